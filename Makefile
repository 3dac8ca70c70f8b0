# Everything a developer or CI does here. `make` alone prints this list.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix bench lock clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## virtual environment with locked dependencies (the others call it by themselves)

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## price 240 options with the shipped example, on this machine, with no set-up
	$(BIN)/waku demo

test: setup ## all tests
	$(BIN)/python -m pytest

check: setup ## what CI runs: format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

fix: setup ## format and mend what can be mended by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure against rivals, in their own environment; writes docs/BENCHMARKS.md
	$(BIN)/python bench/run.py

lock: setup ## resolve the dependencies anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --no-annotate -o requirements.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) .bench demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
