# A fresh clone needs python3 (3.11 or newer) and make. Everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# RUNLEVEL: what is installed for a test is not started as a service.
APT := DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 timeout 300 apt-get -qq -o Acquire::Retries=1

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help run test check bench chaos simulate mutants takeover failover sweep docs clean

help:
	@echo "make run     start Rota with the example shop in this terminal"
	@echo "make test    run the tests; ARGS='-k name' for some of them"
	@echo "make check   lint, formatting, types, import rules"
	@echo "make bench   measure this machine"
	@echo "make simulate  a cluster on virtual time, every fault from a seed; MINUTES=60"
	@echo "make mutants   bugs put in on purpose: the simulation must find each"
	@echo "make takeover  kill schedulers, and measure for how long it is felt"
	@echo "make failover  kill the database's primary under load, several times"
	@echo "make sweep   a fault at every boundary of every transaction (ten minutes)"
	@echo "make chaos   break a cluster for a minute and judge what became of its jobs; SECONDS=600"
	@echo "make docs    build the documentation into site/"
	@echo "make clean   remove everything that was made here, .venv included"

# The embedded PostgreSQL keeps its data in .rota; ROTA_DATABASE_URL, if set, is used instead.
run: export ROTA_DATA_DIR ?= $(CURDIR)/.rota
run: $(VENV)/installed
	@cd examples && ../$(BIN)/python -m shop.demo
	@cd examples && ../$(BIN)/rota dev shop.demo:app

test: $(VENV)/installed $(VENV)/pgbouncer $(VENV)/chaos $(VENV)/prometheus
	@$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/installed
	@$(BIN)/python bench/run.py $(ARGS)

# A swarm of seeds on virtual time; MINUTES=60 for thousands of them.
simulate: MINUTES ?= 2
simulate: $(VENV)/installed
	@$(BIN)/python -m proof.simulation --seeds 1.. --minutes $(MINUTES) --jobs 2 $(ARGS)

mutants: $(VENV)/installed
	@$(BIN)/python -m proof.mutants $(ARGS)

takeover: $(VENV)/installed
	@$(BIN)/python -m proof.takeover $(ARGS)

failover: $(VENV)/installed
	@$(BIN)/python -m proof.failover $(ARGS)

sweep: $(VENV)/installed
	@$(BIN)/python -m proof.sweep $(ARGS)

# Three schedulers, four workers and a PostgreSQL of their own, in real processes. SECONDS=600 SEED=7
chaos: SECONDS ?= 60
chaos: SEED ?= 1
chaos: $(VENV)/installed $(VENV)/chaos
	@$(BIN)/python -m proof.nemesis --seconds $(SECONDS) --seed $(SEED) $(ARGS)

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

# Partitions need iproute2 and nftables, wrong clocks need libfaketime. Tried once, each by itself; what
# is not to be had is left out.
$(VENV)/chaos: | $(BIN)/python
	@PATH="$$PATH:/usr/sbin:/sbin"; \
	has() { case $$1 in \
		iproute2) command -v ip ;; nftables) command -v nft ;; \
		libfaketime) ls /usr/lib/*/faketime/libfaketimeMT.so.1 ;; esac >/dev/null 2>&1; }; \
	for package in iproute2 nftables libfaketime; do \
		has $$package && continue; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing $$package for make chaos"; \
			{ $(APT) install -y $$package || { $(APT) update && $(APT) install -y $$package; }; } \
				>/dev/null 2>&1; \
		fi; \
		has $$package || echo "No $$package to be had: make chaos leaves out what needs it"; \
	done
	@touch $@

# One test lets Prometheus scrape a node and waits for the alert; the rules are checked by promtool.
$(VENV)/prometheus: | $(BIN)/python
	@command -v prometheus >/dev/null && command -v prometheus-alertmanager >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Prometheus for one of the tests"; \
			packages="--no-install-recommends prometheus prometheus-alertmanager"; \
			{ $(APT) install -y $$packages || { $(APT) update && $(APT) install -y $$packages; }; } \
				>/dev/null 2>&1 && { systemctl disable --now prometheus prometheus-alertmanager \
				>/dev/null 2>&1 || true; } || \
				echo "No Prometheus to be had: its tests will be skipped"; \
		else \
			echo "No Prometheus here: its tests will be skipped"; \
		fi; }
	@touch $@
