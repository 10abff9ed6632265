# Sluicegate. `make` alone tells what there is.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUNNING := $(VENV)/.installed-to-run
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -q

.PHONY: help
help: ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z][a-z-]*:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: up
up: $(RUNNING) ## run everything here: stores, roles, carrier simulator; Ctrl-C stops it
	@exec $(BIN)/sluicegate up $(ARGS)

.PHONY: test
# In the order of the folders: what runs long comes first, and many short ones fill the end evenly.
test: $(STAMP) ## every test that needs only Python; real PostgreSQL and Valkey are started for it
	$(PYTEST) -n $(WORKERS) --dist loadscope --no-loadscope-reorder --maxfail=40 -m "not interop" tests $(ARGS)

.PHONY: test-interop
test-interop: $(STAMP) tests/interop/node_modules/.installed ## tests against peers that are not ours (Node, Redis, Chromium, promtool)
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { echo "chromium is needed (Debian: apt-get install chromium)"; exit 1; }
	@command -v redis-server >/dev/null || { echo "redis-server is needed (Debian: apt-get install redis-server)"; exit 1; }
	@command -v promtool >/dev/null || { echo "promtool is needed (Debian: apt-get install --no-install-recommends prometheus)"; exit 1; }
	$(PYTEST) -m interop tests/interop $(ARGS)

.PHONY: install
install: $(STAMP) ## .venv with everything the other targets need

# What running needs is the smaller part of the lock; tests and tools come on top of it.
$(RUNNING): requirements-run.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, %s is %s" % (sys.executable, sys.version.split()[0]) if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || echo "making $(VENV)"
	@test -x $(BIN)/python || { $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip uninstall -qq --disable-pip-version-check --yes setuptools; }
	@echo "installing the packages of requirements-run.lock into $(VENV): a minute, more on a slow line"
	$(PIP) --require-hashes -r requirements-run.lock
	@echo "installing sluicegate itself"
	$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): requirements.lock $(RUNNING)
	@echo "installing what tests and tools need too, from requirements.lock: a minute or two, more on a slow line"
	$(PIP) --require-hashes -r requirements.lock
	@touch $@

tests/interop/node_modules/.installed: tests/interop/package.json tests/interop/package-lock.json
	@command -v npm >/dev/null || { echo "npm is needed (Debian: apt-get install nodejs npm)"; exit 1; }
	npm ci --prefix tests/interop --no-audit --no-fund --silent
	@touch $@

.PHONY: check
check: $(STAMP) ## format, lint, types, import rules, pure tests: under a minute, no services
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(PYTEST) -n $(WORKERS) tests/unit tests/house

.PHONY: audit
audit: $(STAMP) ## bandit over the code, pip-audit over the lock file; pins it had no answer for must be the newest
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml gateway scheduler smpp
	$(PIP) pip-audit==2.10.1
	@mkdir -p results && rm -f results/audit.json
	$(BIN)/pip-audit --require-hashes --disable-pip --requirement requirements.lock --format json --output results/audit.json 2>results/audit.log || true
	$(BIN)/python -m tests.house.pins results/audit.json

.PHONY: bench
bench: $(STAMP) ## Sluicegate, Kannel and Jasmin under the same loads: a table, results/bench-DATE.json; ARGS=--quick
	loadtests/peers/install.sh
	$(BIN)/python -m loadtests.peers $(ARGS)

.PHONY: bench-alone
bench-alone: $(STAMP) ## the full job of Sluicegate alone, CPU by process; installs nothing
	$(BIN)/python -m loadtests.bench $(ARGS)

.PHONY: flood
flood: $(STAMP) ## one tenant floods marketing, another sends codes; a table, a picture, results/flood-DATE.json
	$(BIN)/python -m loadtests.flood $(ARGS)

.PHONY: faults
faults: $(STAMP) ## seeded kills, pauses, cuts, lost indexes, clock steps; goes on where it stopped (docs/promises.md)
	$(BIN)/python -m loadtests.campaign $(ARGS)

.PHONY: faults-broken
faults-broken: $(STAMP) ## rules of the gateway broken on purpose in a copy: the fault run that guards each must notice
	$(BIN)/python -m loadtests.breaks $(ARGS)

.PHONY: fuzz
fuzz: $(STAMP) ## damaged PDUs against codec, session and readers; ARGS="--seconds 3600" for an hour
	$(BIN)/python -m loadtests.fuzz $(ARGS)

.PHONY: sim
sim: $(STAMP) ## the scheduler's scenarios on virtual time, all seeds; prints a table, writes results/sim-DATE.json
	$(BIN)/python -m simulations $(ARGS)

.PHONY: model
model: $(STAMP) ## the scheduler's scripts against the model of their policy, long: SEEDS=1-200
	SLUICEGATE_MODEL_SEEDS=$(or $(SEEDS),1-200) SLUICEGATE_MODEL_EVENTS=$(or $(EVENTS),1000) $(PYTEST) -x tests/property/scheduler/test_model.py $(ARGS)

.PHONY: format
format: $(STAMP) ## put the code into the one form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: diagram
diagram: $(STAMP) ## the state diagram of ARCHITECTURE.md, drawn from the transition table
	$(BIN)/python -m tests.house.state_diagram

.PHONY: lock
lock: $(STAMP) ## make requirements.lock and requirements-run.lock from pyproject.toml
	$(PIP) uv
	$(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --extra dev --no-emit-index-url pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --extra build --no-emit-index-url -c requirements.lock pyproject.toml -o requirements-run.lock

.PHONY: clean
clean: ## remove what can be made again; data in .sluicegate stays
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist tests/interop/node_modules
	find gateway scheduler smpp tests loadtests simulations -name __pycache__ -type d -prune -exec rm -rf {} +
