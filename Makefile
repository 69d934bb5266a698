# A fresh clone needs python3 (3.11 or newer) and make. Everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# RUNLEVEL: what is installed for a test is not started as a service.
APT := DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 timeout 300 apt-get -qq -o Acquire::Retries=1

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run test check bench docs clean

help:
	@echo "make run     start Rota with the example shop in this terminal"
	@echo "make test    run the tests; ARGS='-k name' for some of them"
	@echo "make check   lint, formatting, types, import rules"
	@echo "make bench   measure this machine"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove everything that was made here, .venv included"

# The embedded PostgreSQL keeps its data in .rota; ROTA_DATABASE_URL, if set, is used instead.
run: export ROTA_DATA_DIR ?= $(CURDIR)/.rota
run: $(VENV)/installed
	@cd examples && ../$(BIN)/python -m shop.demo
	@cd examples && ../$(BIN)/rota dev shop.demo:app

test: $(VENV)/installed $(VENV)/pgbouncer
	@$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed
	@$(BIN)/python bench/run.py $(ARGS)

docs: $(VENV)/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Built: open site/index.html"

clean:
	rm -rf $(VENV) .rota site dist build .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis

# -- set-up, done once and again when pyproject.toml has changed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Rota needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python has no venv; installing python3-venv"; \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && $(APT) update && \
			$(APT) install -y python3-venv >/dev/null; } || \
		{ echo "That didn't work. Run: sudo apt-get install python3-venv" >&2; exit 1; }; }
	@echo "Making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(BIN)/python
	@echo "Installing Rota and what its tests and checks need into $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq --editable . --group test --group check
	@touch $@

$(VENV)/installed-docs: pyproject.toml | $(VENV)/installed
	@echo "Installing what the documentation needs into $(VENV)"
	@$(BIN)/python -m pip install -qq --group docs
	@touch $@

# One test runs Rota behind PgBouncer, and is skipped where there is none. Tried once.
$(VENV)/pgbouncer: | $(BIN)/python
	@command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing PgBouncer for one of the tests"; \
			{ $(APT) install -y pgbouncer || { $(APT) update && $(APT) install -y pgbouncer; }; } \
				>/dev/null 2>&1 && { systemctl disable --now pgbouncer >/dev/null 2>&1 || true; } || \
				echo "No PgBouncer to be had: its test will be skipped"; \
		else \
			echo "No PgBouncer here: its test will be skipped"; \
		fi; }
	@touch $@
