# On a machine with only Python and make: `make demo`, then `make test`.
PYTHON ?= python3
BIN := .venv/bin
# Where this is set, every process compiles all of its modules anew: a third of the CPU of `make test` (decision 0510).
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help demo demo-world test test-pythons quick lint format bench corpus soak docs clean core dev servers frameworks

help: ## What can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: core ## Run the main job on the embedded engine, with a crash in the middle
	@$(BIN)/python -m examples.demo

demo-world: core ## Three datacenters and two gates on this machine: a cut link, a killed gate, a global timeout
	@$(BIN)/python -m examples.demo world

test: dev servers frameworks ## Everything CI runs: format, lint, types, import contracts, all suites on real engines
	@$(BIN)/python tools/run_tests.py

test-pythons: servers ## All suites on Python 3.11, 3.12, 3.13 and 3.14, each in an environment of its own (ONLY="tests/jobs" for some)
	@$(PYTHON) tools/test_all_pythons.py $(if $(ONLY),--only $(ONLY))

quick: dev ## The checks and the tests that take seconds
	@$(BIN)/python tools/run_tests.py --quick

lint: dev ## Format check, lint, strict types, import contracts, ownership of time and randomness
	@$(BIN)/python tools/run_tests.py --lint

format: dev ## Format the code in place
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: dev servers ## Measure what users run beside the peers, and its promises (14 minutes; ONLY="beat redis" for some, ONLY=all for an hour); a bar that is not met fails
	@$(BIN)/python -m bench $(ONLY)

corpus: dev ## The hang corpus: every way to hang, every slow and healthy job, in real processes; writes docs/corpus.md (PEERS=1 for the peers, too)
	@$(BIN)/python -m corpus
	@test -z "$(PEERS)" || $(BIN)/python -m corpus --quiet --short --runtime peers

soak: dev servers ## The long versions of the simulations and fault tests, then two hours of chaos (CHAOS_HOURS=… for another time)
	@$(BIN)/python tools/run_tests.py --soak; long=$$?; $(BIN)/python tools/chaos_rounds.py --hours $(or $(CHAOS_HOURS),2) && exit $$long

docs: ## Build the documentation as a site that works offline, in build/site
	@$(PYTHON) tools/bootstrap.py docs
	@NO_MKDOCS_2_WARNING=1 .docs/bin/mkdocs build --quiet && echo "build/site/index.html"

core:
	@$(PYTHON) tools/bootstrap.py core

dev:
	@$(PYTHON) tools/bootstrap.py dev

servers:
	@$(PYTHON) tools/bootstrap.py servers || echo "The test servers could not be installed; the tests say what they skip."
	@test ! -x $(BIN)/python || { $(BIN)/python -m tools.servers.chromium && $(BIN)/python -m tools.servers.axe; } || echo "The browser could not be fetched; the tests say what they skip."
	@test ! -x $(BIN)/python || $(BIN)/python -m tools.servers.client_generator || echo "The generator of clients could not be fetched; the tests say what they skip."

frameworks:
	@$(PYTHON) tools/bootstrap.py frameworks || echo "The frameworks could not be installed; the tests say what they skip."

clean: ## Remove the environments and everything built or cached
	rm -rf .venv .servers .docs .frameworks .peers .pythons .tenure/packages .bootstrap build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache bench/results/latest.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
