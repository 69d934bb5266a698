# A fresh clone needs python3 (3.11 or newer) and make. Everything else goes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# RUNLEVEL: what is installed for a test is not started as a service.
APT := DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 timeout 300 apt-get -qq -o Acquire::Retries=1

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Where this is set, as in many images, each process compiles Rota again: twice the time of a start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test test-slow proof reference test-postgres check bench bench-workflows bench-precision bench-cluster bench-engine bench-growth bench-nodes soak profile chaos simulate mutants takeover coordinators quorums dispatch failover disaster upgrade ha cost sweep screenshots docs lock release image clean

help:
	@echo "make run     start Rota with the example shop in this terminal"
	@echo "make test    run the tests, but for the slow ones; ARGS='-k name' for some of them"
	@echo "make test-slow  run the slow tests: packages, frameworks, docs, browsers, services"
	@echo "make proof   run the long tests: kills, faults, simulation, browser, measurements"
	@echo "make test-postgres  the suites that exercise SQL, on PostgreSQL 14 to 18; VERSIONS='14 18'"
	@echo "make check   lint, formatting, types, import rules"
	@echo "make bench   Rota beside its peers on this machine; ARGS='--quick', '--full', '--only', '--peers', '--plan'"
	@echo "make bench-precision  jobs at random moments beside bare timers; make bench-cluster  1, 2 and 4 nodes"
	@echo "make bench-workflows  workflows and durable functions beside theirs; ARGS='--quick', '--only'"
	@echo "make bench-engine  the engine alone, beside what PostgreSQL can do"
	@echo "make bench-growth  what grows with what is stored, at two sizes; ARGS='--jobs 1000000 --publish'"
	@echo "make bench-nodes  what 10, 100 and 1,000 nodes cost the store; ARGS='--nodes 10 100 --pgbouncer'"
	@echo "make soak    an hour at full speed: memory, tables, transaction ids; MINUTES=10"
	@echo "make profile  where the time of a job goes, into docs/performance.md"
	@echo "make simulate  a cluster on virtual time, every fault from a seed; MINUTES=60 SEEDS=1.."
	@echo "make mutants   bugs put in on purpose: the simulation must find each"
	@echo "make takeover  kill schedulers, and measure for how long it is felt"
	@echo "make coordinators  break etcd, ZooKeeper and Consul while a cluster uses them; SERVICES=etcd"
	@echo "make quorums  cut the three machines of etcd or ZooKeeper apart while a cluster uses them; SERVICES=etcd"
	@echo "make dispatch  break brokers, relays and workers while jobs run; SERVICES=redis ARGS='--jobs 100000'"
	@echo "make failover  kill the database's primary under load, several times"
	@echo "make disaster  lose a region under load, recover on its standby, and account for every job"
	@echo "make upgrade  replace the release before by this one, node by node, at 500 jobs a second"
	@echo "make ha      break a Patroni cluster of three in every way, and measure what it costs"
	@echo "make cost    what the worst requests cost the server's loop, by route"
	@echo "make sweep   a fault at every boundary of every transaction (ten minutes)"
	@echo "make chaos   break a cluster for a minute and judge what became of its jobs; SECONDS=600"
	@echo "make screenshots  pictures of the dashboard for the docs"
	@echo "make reference  write docs/reference from the code"
	@echo "make docs    build the documentation into site/"
	@echo "make lock    pin the newest versions that pyproject.toml allows, in requirements/"
	@echo "make release  build wheel, sdist, SBOM and checksums into dist/; ARGS=--draft for a trial"
	@echo "make image   build the image from Debian's packages, without a registry, into dist/rota-image.tar"
	@echo "make clean   remove everything that was made here, .venv included"

# The embedded PostgreSQL keeps its data in .rota; ROTA_DATABASE_URL, if set, is used instead.
run: export ROTA_DATA_DIR ?= $(CURDIR)/.rota
run: $(VENV)/installed
	@cd examples && ../$(BIN)/python -m shop.demo
	@cd examples && ../$(BIN)/rota dev shop.demo:app

# Files side by side: most tests wait for something. PARALLEL= for one after the other.
# In the order of tests/conftest.py, the longest files first: by itself, xdist begins with those of most tests.
BY_FILE := --dist loadfile --no-loadscope-reorder
PROGRAMS := $(VENV)/pgbouncer $(VENV)/chaos $(VENV)/prometheus $(VENV)/browser $(VENV)/nodejs $(VENV)/services $(VENV)/kafka/tried $(VENV)/django6/tried $(VENV)/containers $(VENV)/ha $(VENV)/barman
test: PARALLEL ?= -n 5 $(BY_FILE)
test: $(VENV)/installed $(PROGRAMS)
	@$(BIN)/python -m pytest -m "not proof and not slow" $(PARALLEL) $(ARGS)

# The files that tests/support/order.py names as slow.
test-slow: PARALLEL ?= -n 5 $(BY_FILE)
test-slow: $(VENV)/installed $(PROGRAMS)
	@$(BIN)/python -m pytest -m "slow and not proof" $(PARALLEL) $(ARGS)

# The tests that are marked proof: whole clusters that are killed, cut off, upgraded, simulated or measured.
proof: PARALLEL ?= -n 2 $(BY_FILE)
proof: $(VENV)/installed $(PROGRAMS) $(VENV)/consul/tried
	@$(BIN)/python -m pytest -m proof $(PARALLEL) $(ARGS)

# On each PostgreSQL that Rota supports. VERSIONS="14 18" for some of them, ARGS for pytest.
test-postgres: $(VENV)/installed
	@$(BIN)/python -m proof.postgres $(VERSIONS) $(ARGS)

check: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The peers are installed on demand into bench/.peers, each into an environment of its own.
bench: $(VENV)/installed $(VENV)/peers
	@$(BIN)/python -m bench.compare $(ARGS)

bench-workflows: $(VENV)/installed $(VENV)/peers
	@$(BIN)/python -m bench.workflows $(ARGS)

bench-precision: $(VENV)/installed
	@$(BIN)/python -m bench.precision $(ARGS)

bench-cluster: $(VENV)/installed
	@$(BIN)/python -m bench.cluster $(ARGS)

bench-engine: $(VENV)/installed
	@$(BIN)/python -m bench.run $(ARGS)

# Needs about 15 GB of disk for 10 million jobs. ARGS="--jobs 10000000 --schedules 1000000" for 100 million.
bench-growth: $(VENV)/installed
	@$(BIN)/python -m bench.growth $(ARGS)

# Up to 5,000 connections: 16 GB of memory, and as many open files.
bench-nodes: $(VENV)/installed $(VENV)/pgbouncer
	@$(BIN)/python -m bench.many_nodes $(ARGS)

soak: MINUTES ?= 60
soak: $(VENV)/installed
	@$(BIN)/python -m bench.soak --minutes $(MINUTES) $(ARGS)

profile: $(VENV)/installed
	@$(BIN)/python -m bench.profile $(ARGS)

# A swarm of seeds on virtual time, others each time; MINUTES=60 for thousands of them, SEEDS=1..200 for these.
simulate: MINUTES ?= 2
simulate: SEEDS ?= fresh
simulate: $(VENV)/installed
	@$(BIN)/python -m proof.simulation --seeds $(SEEDS) --minutes $(MINUTES) --jobs 2 $(ARGS)

mutants: $(VENV)/installed
	@$(BIN)/python -m proof.mutants $(ARGS)

# Coordinators other than PostgreSQL, killed, paused and wiped while a cluster works. SERVICES="etcd consul" for some.
coordinators: $(VENV)/installed $(VENV)/services $(VENV)/consul/tried
	@$(BIN)/python -m proof.coordinators $(SERVICES)

# etcd and ZooKeeper on three machines (network namespaces), cut apart while a cluster works. SERVICES=etcd ARGS="--cuts 'leader cut'"
quorums: $(VENV)/installed $(VENV)/services
	@$(BIN)/python -m proof.quorums $(SERVICES) $(ARGS)

# Brokers that carry jobs to workers, killed, paused and wiped, with relays and workers. SERVICES="redis nats rabbitmq kafka"
dispatch: $(VENV)/installed $(VENV)/services $(VENV)/kafka/tried
	@$(BIN)/python -m proof.dispatch $(SERVICES) $(ARGS)

takeover: $(VENV)/installed
	@$(BIN)/python -m proof.takeover $(ARGS)

failover: $(VENV)/installed
	@$(BIN)/python -m proof.failover $(ARGS)

disaster: $(VENV)/installed
	@$(BIN)/python -m proof.disaster $(ARGS)

# ARGS="v0.1.0 --rate 1000 --seconds 60" for another release, rate and length of each phase.
upgrade: $(VENV)/installed
	@$(BIN)/python -m proof.upgrade $(ARGS)

# Six faults, with synchronous and asynchronous replication: a quarter of an hour. ARGS="--front pgbouncer" for another front.
ha: $(VENV)/installed $(VENV)/ha
	@$(BIN)/python -m proof.ha $(ARGS)

# What a request costs the server's loop, for every route: worst bodies, without and with a token.
cost: $(VENV)/installed
	@$(BIN)/python -m proof.cost $(ARGS)

sweep: $(VENV)/installed
	@$(BIN)/python -m proof.sweep $(ARGS)

# Three schedulers, four workers and a PostgreSQL of their own, in real processes. SECONDS=600 SEED=7
chaos: SECONDS ?= 60
chaos: SEED ?= 1
chaos: $(VENV)/installed $(VENV)/chaos
	@$(BIN)/python -m proof.nemesis --seconds $(SECONDS) --seed $(SEED) $(ARGS)

# Each page of the dashboard, light, dark and on a phone, into docs/images/dashboard.
screenshots: $(VENV)/installed $(VENV)/browser
	@$(BIN)/python docs/screenshots.py $(ARGS)

# The pages of the reference, from the code.
reference: $(VENV)/installed
	@$(BIN)/python docs/generate_sync.py
	@$(BIN)/python docs/generate.py

docs: $(VENV)/installed-docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Built: open site/index.html"

# The newest versions that pyproject.toml allows, resolved in a fresh environment.
lock: | $(BIN)/python
	@$(BIN)/python requirements/lock.py

# Refuses a tree that isn't committed, and a version that CHANGELOG.md doesn't date.
release: $(VENV)/installed
	@$(BIN)/python -m release.build $(ARGS)

# Needs root, mmdebstrap and buildah: see docs/guide/containers.md for Docker.
image: $(VENV)/installed $(VENV)/containers
	@$(BIN)/python -m release.image $(ARGS)

clean:
	rm -rf $(VENV) .rota site dist build .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis bench/.peers

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

$(VENV)/installed: pyproject.toml requirements/all.txt | $(BIN)/python
	@echo "Installing Rota and what its tests and checks need into $(VENV) (once, about a minute)"
	@$(BIN)/python -m pip install -qq --upgrade pip
	@$(BIN)/python -m pip install -qq --constraint requirements/all.txt --editable . --group test --group check
	@touch $@

$(VENV)/installed-docs: pyproject.toml | $(VENV)/installed
	@echo "Installing what the documentation needs into $(VENV)"
	@$(BIN)/python -m pip install -qq --constraint requirements/all.txt --group docs
	@touch $@

# Django 6 needs Python 3.12 or newer, and has an environment of its own. Without such a Python its tests are skipped.
$(VENV)/django6/tried: requirements/all.txt requirements/django6.txt | $(BIN)/python
	@mkdir -p $(VENV)/django6; \
	for python in python3.14 python3.13 python3.12 $(wildcard $(HOME)/.pyenv/versions/3.1[234]*/bin/python) $(PYTHON); do \
		command -v $$python >/dev/null && $$python -c 'import sys, venv; sys.exit(sys.version_info < (3, 12))' \
			2>/dev/null || continue; \
		echo "Installing Django 6 for its tests into $(VENV)/django6"; \
		grep -vi '^django==' requirements/all.txt > $(VENV)/django6/pins && \
		$$python -m venv $(VENV)/django6 && $(VENV)/django6/bin/python -m pip install -qq \
			--constraint $(VENV)/django6/pins --requirement requirements/django6.txt --editable '.[psycopg]' \
			&& break; \
		rm -f $(VENV)/django6/bin/python; \
	done; \
	[ -x $(VENV)/django6/bin/python ] || echo "No Python 3.12 to be had: the tests with Django 6 will be skipped"
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

# One test builds the image on a Debian that is made here, and runs it. Tried once.
$(VENV)/containers: | $(BIN)/python
	@has() { for each in podman buildah mmdebstrap crun; do command -v $$each >/dev/null || return 1; done; }; \
	has || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing podman, buildah and mmdebstrap for the tests of the image"; \
			packages="--no-install-recommends podman buildah mmdebstrap crun"; \
			{ $(APT) install -y $$packages || { $(APT) update && $(APT) install -y $$packages; }; } \
				>/dev/null 2>&1; \
		fi; \
		has || echo "No podman, buildah or mmdebstrap to be had: the tests of the image will be skipped"; }
	@touch $@

# A Patroni cluster: etcd and haproxy of Debian, Patroni in an environment of its own. Tried once.
$(VENV)/ha: requirements/patroni.txt | $(BIN)/python $(VENV)/services $(VENV)/chaos $(VENV)/pgbouncer
	@has() { command -v haproxy >/dev/null || [ -x /usr/sbin/haproxy ]; }; \
	has || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing haproxy for the tests of high availability"; \
			package="--no-install-recommends haproxy"; \
			{ $(APT) install -y $$package || { $(APT) update && $(APT) install -y $$package; }; } \
				>/dev/null 2>&1 && { systemctl disable --now haproxy >/dev/null 2>&1 || true; }; \
		fi; \
		has || echo "No haproxy to be had: the tests of high availability will be skipped"; }
	@echo "Installing Patroni for the tests of high availability into $(VENV)/patroni"; \
	$(PYTHON) -m venv $(VENV)/patroni && $(VENV)/patroni/bin/python -m pip install -qq \
		--requirement requirements/patroni.txt || \
		echo "No Patroni to be had: the tests of high availability will be skipped"
	@touch $@

# One test restores a backup of Barman's, which copies with rsync. Tried once.
$(VENV)/barman: requirements/barman.txt | $(BIN)/python
	@command -v rsync >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing rsync for one of the tests"; \
			{ $(APT) install -y rsync || { $(APT) update && $(APT) install -y rsync; }; } \
				>/dev/null 2>&1; \
		fi; \
		command -v rsync >/dev/null || echo "No rsync to be had: a test with Barman will be skipped"; }
	@echo "Installing Barman for one of the tests into $(VENV)/barman"; \
	$(PYTHON) -m venv $(VENV)/barman && $(VENV)/barman/bin/python -m pip install -qq \
		--requirement requirements/barman.txt || \
		echo "No Barman to be had: its test will be skipped"
	@touch $@

# The reference worker in JavaScript needs Node.js 18 or newer, and no package.
$(VENV)/nodejs: | $(BIN)/python
	@has() { [ "$$(node --version 2>/dev/null | sed 's/^v\([0-9]*\).*/\1/')" -ge 18 ] 2>/dev/null; }; \
	has || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Node.js for the tests of the worker in JavaScript"; \
			package="--no-install-recommends nodejs"; \
			{ $(APT) install -y $$package || { $(APT) update && $(APT) install -y $$package; }; } \
				>/dev/null 2>&1; \
		fi; \
		has || echo "No Node.js 18 to be had: the tests of the worker in JavaScript will be skipped"; }
	@touch $@

# The dashboard's tests need a browser, and axe-core (only there: it checks accessibility). Tried once; what is
# not to be had is skipped.
$(VENV)/browser: | $(BIN)/python
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Chromium for the tests of the dashboard"; \
			packages="--no-install-recommends chromium"; \
			{ $(APT) install -y $$packages || { $(APT) update && $(APT) install -y $$packages; }; } \
				>/dev/null 2>&1 || echo "No Chromium to be had: the dashboard's tests will be skipped"; \
		else \
			echo "No Chromium here: the dashboard's tests will be skipped"; \
		fi; }
	@if command -v npm >/dev/null; then \
		mkdir -p $(VENV)/axe && (cd $(VENV)/axe && npm install --silent --no-audit --no-fund axe-core@4 \
			>/dev/null 2>&1) || echo "No axe-core to be had: accessibility will not be checked"; \
	else \
		echo "No npm here: accessibility will not be checked"; \
	fi
	@touch $@

# Consul is in no Debian: it is built from its module, which takes six minutes of processor time, and less where Go has built
# it before. Tried once; without it its tests replay a conversation, unless ROTA_TEST_CONSUL names its program. The module's go.mod
# replaces its own parts by folders that the module doesn't contain, so that `go install` refuses it: they are taken
# as they were published.
CONSUL := github.com/hashicorp/consul
CONSUL_VERSION := v1.20.6
CONSUL_PARTS := api envoyextensions proto-public sdk troubleshoot
$(VENV)/consul/tried: | $(BIN)/python
	@mkdir -p $(VENV)/consul; cd $(VENV)/consul; \
	if [ -x consul ]; then \
		true; \
	elif ! command -v go >/dev/null; then \
		echo "No Go here: Consul is not built, and its tests replay a conversation"; \
	else \
		echo "Building Consul for its tests into $(VENV)/consul (once, six minutes of processor time)"; \
		rm -rf source go.mod && go mod init consul >/dev/null 2>&1 && \
		timeout 600 go mod download $(CONSUL)@$(CONSUL_VERSION) 2>log && \
		cp -r "$$(go env GOMODCACHE)/$(CONSUL)@$(CONSUL_VERSION)" source && chmod -R u+w source && \
		(cd source && for part in $(CONSUL_PARTS); do go mod edit -dropreplace $(CONSUL)/$$part; done && \
			CGO_ENABLED=0 timeout 3000 go build -mod=mod -ldflags "-s -w" -o ../consul .) 2>log || \
			echo "Consul could not be built ($(VENV)/consul/log says why): its tests replay a conversation"; \
		rm -rf source go.mod; \
	fi
	@touch $@

# Coordinators and brokers that Rota can use, each for its own tests. Tried once, each by itself; what is not to be
# had is skipped.
$(VENV)/services: | $(BIN)/python
	@has() { case $$1 in etcd-server) command -v etcd ;; \
		redis-server) command -v redis-server ;; \
		rabbitmq-server) command -v rabbitmq-server || [ -x /usr/sbin/rabbitmq-server ] ;; \
		zookeeper) ls /usr/share/java/zookeeper.jar ;; esac >/dev/null 2>&1; }; \
	for package in etcd-server zookeeper redis-server rabbitmq-server; do \
		has $$package && continue; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing $$package for the tests of its driver"; \
			package="--no-install-recommends $$package"; \
			{ $(APT) install -y $$package || { $(APT) update && $(APT) install -y $$package; }; } \
				>/dev/null 2>&1 && { systemctl disable --now etcd redis-server rabbitmq-server >/dev/null 2>&1 || true; }; \
			package=$${package##* }; \
		fi; \
		has $$package || echo "No $$package to be had: the tests of its driver will be skipped"; \
	done
	@touch $@

# A Kafka broker for tests and trials: Java 17 from Debian, the jars from Maven. Tried once.
$(VENV)/kafka/tried: proof/kafka/pom.xml | $(BIN)/python
	@mkdir -p $(VENV)/kafka; \
	has() { command -v mvn && java -version; }; \
	has >/dev/null 2>&1 || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Java and Maven for the tests of Kafka"; \
			packages="--no-install-recommends default-jre-headless maven"; \
			{ $(APT) install -y $$packages || { $(APT) update && $(APT) install -y $$packages; }; } \
				>/dev/null 2>&1; \
		fi; }; \
	rm -f $(VENV)/kafka/*.jar; \
	has >/dev/null 2>&1 && echo "Getting Kafka for its tests into $(VENV)/kafka (43 MB)" && \
		timeout 600 mvn -q -B -f proof/kafka/pom.xml dependency:copy-dependencies \
		-DoutputDirectory=$(abspath $(VENV)/kafka) -DincludeScope=runtime >/dev/null 2>&1 || { \
		rm -f $(VENV)/kafka/*.jar; echo "No Kafka to be had: its tests will be skipped"; }
	@touch $@

# Some peers need Redis, others Node.js with npm, Go, or Java with Maven. Redis and Node.js are tried once; without
# what it needs make bench leaves a peer out, and says why.
$(VENV)/peers: | $(BIN)/python
	@has() { case $$1 in npm) command -v npm && command -v node ;; \
		redis-server) command -v redis-server ;; esac >/dev/null 2>&1; }; \
	for package in redis-server npm; do \
		has $$package && continue; \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing $$package for make bench"; \
			{ $(APT) install -y $$package || { $(APT) update && $(APT) install -y $$package; }; } \
				>/dev/null 2>&1 && { systemctl disable --now redis-server >/dev/null 2>&1 || true; }; \
		fi; \
		has $$package || echo "No $$package to be had: make bench leaves out what needs it"; \
	done
	@touch $@
