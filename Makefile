# DAOM: `make demo` to see it work, `make test` to know that it does. `make help` shows the rest.

PYTHON ?= python3
UV ?= uv
ARGS ?=
ROUNDS ?= 30
MESSAGES ?= 1000000
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test check chaos fuzz vllm bench bench-vllm bench-detection lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo '  Settings: PYTHON=python3.12 (to install with), ARGS="-k kafka -x" (for test and bench)'

install: $(INSTALLED) ## make .venv with everything of requirements.txt, and DAOM itself

$(INSTALLED): requirements.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { \
	  echo "There is no $(PYTHON) here. Name a Python 3.11 or newer: make PYTHON=/path/to/python3"; \
	  exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "DAOM needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) -V`."; \
	  echo "Name another one: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv || { \
	  rm -rf .venv; \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian: apt-get install python3-venv"; \
	  exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(INSTALLED)

demo: $(INSTALLED) ## a fleet, a drift, an alert: on this machine, without Docker
	$(BIN)/daom demo $(ARGS)

test: $(INSTALLED) ## run the tests; those whose server is missing are left out, and it says so
	$(BIN)/pytest $(ARGS)

check: $(INSTALLED) ## style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

vllm: .venv-vllm/.installed ## a real vLLM for the CPU in .venv-vllm, with DAOM in it: for the tests that need it

.venv-vllm/.installed: tests/vllm/install.sh tests/vllm/requirements.txt pyproject.toml $(wildcard connectors/*.py daom/*.py)
	@test -x .venv-vllm/bin/pip || $(PYTHON) -m venv .venv-vllm
	tests/vllm/install.sh .venv-vllm
	@touch $@

chaos: $(INSTALLED) ## kill, hang and poison a fleet, and see that nothing is lost; ROUNDS=1000 SEED=7
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(INSTALLED) ## send a million broken messages through it all; MESSAGES=10000 SEED=7
	$(BIN)/python -m tests.fuzz --messages $(MESSAGES) $(if $(SEED),--seed $(SEED))

bench: $(INSTALLED) ## measure throughput and detection; ARGS=--short for a quick look
	$(BIN)/python -m bench $(ARGS)

bench-vllm: $(INSTALLED) vllm ## measure what the plugin costs a real vLLM (ten minutes); ARGS=--short
	$(BIN)/python -m bench.vllm $(ARGS)

bench-detection: $(INSTALLED) ## measure delays and false alarms beside other detectors; ARGS=--short
	$(BIN)/python -m bench.detection $(ARGS)

lock: ## resolve requirements.txt anew from pyproject.toml (needs uv)
	@command -v $(UV) >/dev/null || { \
	  echo "make lock needs uv: pip install uv, or make lock UV=/path/to/uv"; exit 1; }
	$(UV) pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --all-extras pyproject.toml \
	  -o requirements.txt
	@! grep -n '://' requirements.txt || { echo "requirements.txt must name no address"; exit 1; }

clean: ## remove caches and build output; .venv stays
	rm -rf build dist out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
