# Each target creates the virtual environment and installs what it needs: a machine with Python alone will do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install test demo lint format bench docs docs-serve screenshots clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

install: $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable .
	@echo "installed: $(CURDIR)/$(BIN)/pgbb"

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

demo: $(VENV)/.installed-demo
	$(BIN)/pgbb demo --out demo-output

# Scaling curves, comparisons and the cost model: a page in docs/ and results/bench/; QUICK=1 in a minute or two.
bench: $(VENV)/.installed-bench
	$(BIN)/python benchmarks/accountant.py
	$(BIN)/python benchmarks/bench.py $(if $(QUICK),--quick)

# Runs every block of the tutorial and the how-to pages, then follows the built tutorial in an empty folder.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/tools/follow.py site/tutorial/census.html

docs-serve: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

screenshots: docs
	$(BIN)/python docs/tools/screenshots.py site/tutorial/schooling.html

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis site
