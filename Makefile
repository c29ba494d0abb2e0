# Each target creates the virtual environment and installs what it needs: a machine with Python alone will do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: test demo lint format bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

test: lint
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(VENV)/.installed-demo
	$(BIN)/pgbb demo --out demo-output

bench: $(VENV)/.installed-test
	$(BIN)/python benchmarks/accountant.py

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis
