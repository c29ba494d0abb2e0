# Each target creates the virtual environment and installs what it needs: a machine with Python alone will do.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python keeps what it has compiled, so that the many processes of the tests do not compile all libraries anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install dist test quick evidence compat demo lint format bench docs docs-serve docs-look screenshots clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed-%: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[$*]'
	@touch $@

# With the readers of all file formats, the data of the tutorial, scikit-learn and Dask, so that no page of the docs needs more.
install: $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[files,demo,sklearn,dask]'
	@echo "installed: $(CURDIR)/$(BIN)/pgbb"
	@echo "for a shell that finds it, and its Python, first: source $(CURDIR)/$(BIN)/activate"

# SEED=7 runs files, and the tests of a file, in the random order of that seed.
# mypy runs beside the tests: it has one core for most of a minute.
test: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy & types=$$!; \
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(if $(SEED),--shuffle $(SEED)); \
	passed=$$?; wait $$types && exit $$passed

# Between edits: the checkers and the tests that are marked quick and not slow.
quick: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "quick and not slow and not evidence"

# What takes long, and of which another test shows the like in less.
evidence: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n auto --dist loadfile -m evidence

# One pair of versions: make compat PYTHON=python3.13 JAX=0.12.0.1 builds a wheel, installs it into an empty environment
# and runs the tests, or some of them (TESTS=tests/methods), with what is installed.
TESTS ?= tests
CORES ?= auto
PAIR = build/compat/$(notdir $(PYTHON))-jax$(JAX)
compat:
	$(if $(JAX),,$(error which version of JAX? make compat PYTHON=python3.13 JAX=0.12.0.1))
	rm -rf $(PAIR)
	$(PYTHON) -m venv $(PAIR)
	$(PAIR)/bin/python -m pip wheel --quiet --no-deps --wheel-dir $(PAIR)/wheel .
	$(PAIR)/bin/python -m pip install --quiet "$$(ls $(PAIR)/wheel/*.whl)[test]" jax==$(JAX)
	$(PAIR)/bin/pgbb --version
	$(PAIR)/bin/python -m pip list --format=freeze | grep -E '^(jax|jaxlib|numpy|scipy|pandas|pyarrow|scikit-learn)=='
	$(PAIR)/bin/python -m pytest -n $(CORES) --dist loadfile $(TESTS)

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A wheel and a source archive in dist/, checked as an index of packages would.
dist: $(BIN)/python
	$(BIN)/python -m pip install --quiet build twine
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

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

# Opens every page from disk in Chromium: search, copying, axe.
docs-look: docs
	$(BIN)/python docs/tools/look.py site

docs-serve: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

screenshots: docs
	$(BIN)/python docs/tools/screenshots.py site

format: $(VENV)/.installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis site build
