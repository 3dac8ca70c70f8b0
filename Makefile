# Everything a developer or CI does here. `make` alone prints this list.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each test that starts a process would compile all of it again where this is set.
export PYTHONDONTWRITEBYTECODE :=
TOOLS := prometheus wrk netcat-openbsd curl unzip
.DEFAULT_GOAL := help
.PHONY: help setup tools demo test test-user test-pythons check sim sim-mutants fix bench bench-durable bench-before bench-files bench-http bench-access docs picture lock clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(VENV)/.ready ## virtual environment with locked dependencies (the others call it by themselves)

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

tools: ## programs that are no Python packages, for tests and benchmarks: promtool, wrk, nc, curl (Debian; needs root)
	@if [ "$$(id -u)" != 0 ]; then echo "make tools installs Debian packages ($(TOOLS)): run it as root" >&2; exit 1; fi
	@command -v apt-get >/dev/null || { echo "make tools knows only Debian's apt-get: install $(TOOLS) your own way" >&2; exit 1; }
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(TOOLS)

demo: setup ## price 240 options with the shipped example, on this machine, with no set-up
	$(BIN)/waku demo

# Three tests at a time keep two CPUs busy: about a third of a run is waiting. What is left of a slow part others take over.
TESTS := $(BIN)/python -m pytest --numprocesses $(or $(PROCESSES),3) --dist worksteal

test: setup ## all tests, PROCESSES=N at a time
	$(TESTS)

test-user: setup ## the tests that depend on the user, as an ordinary one: root makes one for it
	.ci/as-user

test-pythons: ## all tests, or ONLY="tests/wire …", on Python 3.12 and 3.13 (PYTHONS="…"), as far as they are here
	PYTHONS="$(PYTHONS)" ONLY="$(ONLY)" .ci/pythons

check: setup ## format, lint, types, tests; CI runs test-user, some of test-pythons and this
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(TESTS)

sim: setup ## simulated worlds full of faults: SEEDS=N from FROM=N on, MINUTES=N as long, or SEED=N alone with its story; KIND=gateways
	$(BIN)/python -m tests.sim --processes $(or $(PROCESSES),2) $(if $(SEED),--seed $(SEED) --story) $(if $(KIND),--kind $(KIND)) \
		$(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) $(if $(MINUTES),--minutes $(MINUTES))

sim-mutants: setup ## bugs planted in the core on purpose: each must be found by the simulator
	$(BIN)/python -m tests.sim --mutants

fix: setup ## format and mend what can be mended by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## measure against rivals, in their own environment; writes docs/internals/benchmarks.md
	$(BIN)/python bench/run.py

bench-durable: setup ## measure what the journal costs, on this disk; writes docs/internals/benchmarks-durable.md
	$(BIN)/python bench/run.py --durable

bench-before: setup ## measure this checkout against another one, BEFORE=FOLDER, in turns: is a change slower?
	$(BIN)/python bench/run.py --before $(BEFORE)

bench-files: setup ## measure how large files travel, on this disk; writes docs/internals/benchmarks-files.md
	$(BIN)/python bench/files.py --write

bench-http: setup ## measure what HTTP, groups and the gateway cost beside the frames; writes docs/internals/benchmarks-http.md
	$(BIN)/python bench/doors.py --write

bench-access: setup ## measure what keys and TLS cost, with BEFORE=FOLDER also `waku run` there; writes docs/internals/benchmarks-access.md
	$(BIN)/python bench/access.py --write $(if $(BEFORE),--before $(BEFORE))

docs: setup ## write the pages that are made of the source
	$(BIN)/python tools/module_map.py
	$(BIN)/python tools/settings_page.py
	$(BIN)/python -m tools.commands_page
	$(BIN)/python -m tools.errors_page
	$(BIN)/python -m tools.limits_page
	$(BIN)/python -m tools.metrics_page
	$(BIN)/python -m tools.http_pages
	$(BIN)/python -m tools.kit_page

picture: setup ## record the README's picture of a run anew
	$(BIN)/python -m tools.picture

lock: setup ## resolve the dependencies anew
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --generate-hashes --no-header --no-annotate -o requirements.lock

clean: ## remove what the other targets made
	rm -rf $(VENV) .venv-* .bench demo-out .mypy_cache .ruff_cache .pytest_cache .hypothesis
