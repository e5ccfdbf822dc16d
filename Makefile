# Needs python3 with venv and pip, and make. Everything else is installed into .venv, from lock
# files with hashes. `make help` lists the targets.

PYTHON ?= python3
PY := .venv/bin/python
PYTEST := $(PY) -m pytest
SOAK := ONCEWARD_SOAK=1 $(PYTEST) --timeout 2700 -o faulthandler_timeout=2800 -s
# `make check AUDIT=required` fails where the advisory service cannot be reached.
AUDIT ?=
# `make lock UPGRADE=--upgrade` takes the newest versions; without it, pins move only as needed.
UPGRADE ?=
WORKERS ?= 2
# The tests of `make test-versions`; all of them if empty.
TESTS ?=
# Where `make demo` listens.
PORT ?= 8080
# What is compiled is kept, whatever the surroundings say: tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE

# An environment is made again when its name changes: another interpreter, checkout, lock, or
# project table. Changing a tool's settings in pyproject.toml does not count.
key = $(shell { $(PYTHON) -V; echo "$(CURDIR)"; sed '/^\[tool/,$$d' pyproject.toml; \
	cat requirements/$(1).lock; } 2>&1 | cksum | cut -d ' ' -f 1)
RUN := .venv/.run-$(call key,run)
DEV := .venv/.dev-$(call key,dev)
PACKAGE := .venv-package/.package-$(call key,package)
DOCS := .venv-docs/.docs-$(call key,docs)
BENCH := .venv-bench/.bench-$(call key,bench)
TEMPORAL := .venv-temporal/.temporal-$(call key,temporal)
RESTATE := .venv-restate/.restate-$(call key,restate)
OPENAPI := .venv-openapi/.openapi-$(call key,openapi)
UV := .venv-uv/.uv-$(call key,uv)

# Errors only: advice about root, versions and mirrors is for other occasions.
PIP_QUIET := -qq --disable-pip-version-check --root-user-action=ignore
# $(call environment,folder,lock). A lock is complete: with dependencies, pip 23.2 would look for newer
# versions of packages with extras.
define environment
	@echo "installing requirements/$(2).lock into $(1)"
	@$(PYTHON) -m venv --clear $(1)
	@$(1)/bin/python -m pip install $(PIP_QUIET) --no-deps --require-hashes -r requirements/$(2).lock
endef
# $(call install_self,folder)
install_self = @$(1)/bin/python -m pip install $(PIP_QUIET) --no-build-isolation --no-deps \
	--editable .

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help walk modules records prose generate demo demo-crash test test-versions coverage check lint types tidy deps audit package bundle size bench bench-local bench-peers bench-engine bench-schedule bench-postgres bench-work bench-enqueue bench-poison \
	bench-http bench-rooms bench-seats bench-timers soak-kill soak-inbox soak-server soak-workers soak-postgres soak-schedule soak-locks soak-openapi soak-seats soak-rooms soak-fuzz soak-timers soak-credit soak-console soak-browser \
	soak-sql soak-simulate soak-proof soak-power soak-anonymous soak-chaos soak-mutants pictures docs lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1	\2/p' Makefile | expand -t 18

demo: $(RUN) ## run all systems with a page to try them on, and to break them (PORT=8080)
	@$(PY) -m apps.demo --port $(PORT)

demo-crash: $(RUN) ## commit, be killed, and show that nothing was lost
	@$(PY) examples/crash.py

test: lint types ## everything a change must pass, in under 8 minutes
	@scripts/browser.sh
	@scripts/npm.sh
	@$(PYTEST) -n $(WORKERS) --dist worksteal --durations=10

test-versions: ## run the tests on every installed Python from 3.11 to 3.14 (TESTS=tests/api)
	@scripts/versions.sh -n $(WORKERS) --dist worksteal $(TESTS)

coverage: $(DEV) ## how much of the package the tests run: 90% or more, branches included
	@$(PYTEST) -n $(WORKERS) --dist worksteal --cov --cov-report=term

check: lint types tidy prose deps audit ## style, types, layers, texts, dependencies and their advisories

lint: $(DEV) ## ruff: rules and format
	@$(PY) -m ruff check --quiet .
	@$(PY) -m ruff format --quiet --check . || { $(PY) -m ruff format --diff .; exit 1; }

types: $(DEV) ## mypy --strict on the package, the applications and the examples
	@$(PY) -m mypy

prose: ## check texts for people against docs/writing.md
	@$(PYTHON) -m scripts.prose

tidy: $(DEV) ## imports point down; drivers, time and randomness stay in their places
	@$(PYTEST) -q tests/test_tidy.py

deps: $(DEV) ## dependencies are declared and used
	@$(PY) -m deptry onceward apps

audit: $(DEV) ## known vulnerabilities in what is locked
	@$(PY) scripts/audit.py $(AUDIT:%=--%) $(wildcard requirements/*.lock)

package: $(PACKAGE) ## build wheel and sdist into dist/, check and install them, check the npm package
	@scripts/npm.sh tests/js/package .venv-attw
	@scripts/package.sh $(PYTHON)

bundle: ## build onceward/web/js from clients/js with esbuild
	@scripts/npm.sh
	@node scripts/bundle.mjs

walk: $(DEV) ## how many files and functions one request runs (docs/walks.md)
	@$(PY) -m scripts.walk

size: $(DEV) ## how many bytes a page loads for the client for browsers
	@$(PY) scripts/size.py

# Sides that could not be installed do not take part, and the table says so.
bench: $(BENCH) ## ours and others in turns, a selection in 10 minutes; writes docs/benchmarks.md
	@scripts/npm-bench.sh
	@.venv-bench/bin/python -m benchmarks

bench-peers: $(BENCH) ## all cases and all others, in 40 minutes; writes docs/benchmarks.md
	@-$(MAKE) -s $(TEMPORAL)
	@-$(MAKE) -s $(RESTATE)
	@scripts/npm-bench.sh
	@.venv-bench/bin/python -m benchmarks --full

bench-local: $(DEV) ## ours against the limits of this machine, in 3 minutes
	@$(PY) -m benchmarks.local

bench-engine: $(DEV) ## the engine against row-by-row SQLite, side by side
	@$(PY) -m benchmarks.engine

bench-schedule: $(DEV) ## a million jobs that wait, on both engines
	@$(PY) -m benchmarks.schedule

bench-postgres: $(DEV) ## the PostgreSQL engine against the usual ways to use PostgreSQL
	@$(PY) -m benchmarks.postgres

bench-rooms: $(BENCH) ## rooms with many readers, against Socket.IO and node's ws (needs node, npm, cc)
	@.venv-bench/bin/python -m benchmarks.rooms

bench-timers: $(BENCH) ## timers that come due while 100,000 wait, against APScheduler and DBOS
	@.venv-bench/bin/python -m benchmarks.timers

bench-seats: $(DEV) ## a line of 100,000 at a table, against one in PostgreSQL
	@$(PY) -m benchmarks.seats

bench-poison: $(DEV) ## healthy jobs beside as many that fail
	@$(PY) -m benchmarks.poison

bench-work: $(BENCH) ## jobs accepted and done, against huey, DBOS, procrastinate and pgmq
	@.venv-bench/bin/python -m benchmarks --only accept,work --seconds 5 --minutes 60 --no-page

bench-enqueue: $(BENCH) ## jobs enqueued in transactions of the application, against procrastinate, DBOS, pgmq and pgqueuer
	@.venv-bench/bin/python -m benchmarks.enqueue

bench-http: $(BENCH) ## over HTTP on one core, against FastAPI, and Celery with Valkey behind it
	@.venv-bench/bin/python -m benchmarks.http

soak-kill: $(DEV) ## kill real processes under load, 1,000 times
	@$(SOAK) -m kill

soak-inbox: $(DEV) ## send 10,000 keys 10 times each to a process that is killed
	@$(SOAK) -m inbox

soak-server: $(DEV) ## send 10,000 keys 10 times each over HTTP to a server that is killed
	@$(SOAK) -m server

soak-workers: $(DEV) ## kill and stop workers on PostgreSQL for 10 minutes
	@$(SOAK) -m workers

soak-postgres: $(DEV) ## cut connections 20,000 times, crash a server 300 times, fail over 60 times
	@$(SOAK) -m outage

soak-schedule: $(DEV) ## kill and pause processes that work on 100,000 jobs
	@$(SOAK) -m cluster

soak-locks: $(DEV) ## kill and pause processes that use locks 100,000 times
	@$(SOAK) -m locks

soak-timers: $(DEV) ## fire a million timers, kill a server, call one receiver 4,000 times at once, change the number of nodes
	@$(SOAK) -m timers

soak-credit: $(DEV) ## send 200 applications 20 times each while workers are killed, to two bureaus
	@$(SOAK) -m credit

soak-seats: $(DEV) ## let 1,000 people join a table at once, also on three processes; kill a server 30 times
	@$(SOAK) -m tables

soak-console: $(DEV) ## watch 100,000 jobs in a browser for 10 minutes
	@$(SOAK) -m console

soak-rooms: $(DEV) ## kill a server of rooms 50 times, alone and as one of three; let 1,000 readers not read, and copies converge
	@$(SOAK) -m rooms

soak-browser: $(DEV) ## 1,000 changes a second in a tab for 5 minutes, and tabs and programs converge
	@$(SOAK) -m browser

soak-fuzz: $(DEV) ## read 10 million made-up frames of rooms
	@$(SOAK) -m fuzz

soak-openapi: $(DEV) $(OPENAPI) ## lint the OpenAPI document, use clients made from it, send 18,000 requests made up from it
	@scripts/npm.sh
	@scripts/npm.sh tests/js/spectral .venv-spectral
	@$(SOAK) -m openapi

soak-sql: $(DEV) ## kill a shop with SQL tables 100 times on each database; kill and pause its nodes 100 times
	@$(SOAK) -m sql

soak-simulate: $(DEV) ## run the simulator over 50,000 seeds
	@$(SOAK) -m simulate

soak-proof: $(DEV) ## find 20 mistakes of handlers with the simulator, and none in their repaired twins
	@$(SOAK) tests/testing/proof

soak-power: $(DEV) ## cut the power 100 times
	@$(SOAK) -m power

soak-anonymous: $(DEV) ## let 1,000 connections without credentials misbehave for 16 minutes, and fill in docs/reliability.md
	@$(SOAK) -m anonymous

soak-chaos: $(DEV) ## let everything fail at once for 40 minutes, and fill in docs/reliability.md
	@$(SOAK) -m chaos

soak-mutants: $(DEV) ## make small mistakes in pure modules, and see that their tests notice
	@$(PY) -m scripts.mutants

pictures: $(DEV) ## make the pictures of the console and the demonstration for the guides
	@$(PY) scripts/console_pictures.py docs
	@$(PY) scripts/demo_pictures.py docs

generate: $(DEV) ## write the parts of clients that are made from onceward/api
	@$(PY) -m scripts.generate_python
	@$(PY) -m scripts.generate_sync
	@$(PY) -m scripts.generate_js

modules: $(DEV) ## write docs/modules.md, the map of all modules
	@$(PY) -m scripts.modules

records: $(DEV) ## write tests/fixtures/records.json, the layout of stored records
	@$(PY) -m scripts.records

docs: $(DOCS) $(DEV) ## build the documentation into site/, check its links and its search
	@$(PY) -m scripts.reference docs/reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --strict --quiet
	@scripts/browser.sh
	@$(PYTEST) -q tests/docs/built_site.py
	@echo "open site/index.html"

lock: $(UV) ## write requirements/*.lock from pyproject.toml and requirements/*.in
	@$(call compile,uv,--group lock)
	@$(call compile,core,pyproject.toml)
	@$(call compile,server,pyproject.toml --extra server --constraints requirements/core.lock)
	@$(call compile,run,pyproject.toml --extra server --group build --constraints requirements/server.lock)
	@$(call compile,dev,pyproject.toml --all-extras --group build --group test --group check \
		--constraints requirements/run.lock)
	@$(call compile,package,--group build --group package)
	@$(call compile,docs,--group docs)
	@$(call compile,bench,pyproject.toml --all-extras --group build requirements/bench.in \
		--constraints requirements/dev.lock)
	@$(call compile,temporal,requirements/temporal.in)
	@$(call compile,restate,requirements/restate.in)
	@$(call compile,openapi,requirements/openapi.in)
	@! grep -nE '://|--(index|extra-index|find-links)' requirements/*.lock

# $(call compile,lock,sources)
compile = .venv-uv/bin/uv pip compile --quiet --no-config --universal --python-version 3.11 \
	--generate-hashes --no-annotate --custom-compile-command "make lock" $(UPGRADE) \
	--output-file requirements/$(1).lock $(2)

clean: ## remove environments, caches and built files
	rm -rf .venv .venv-3.* .venv-attw .venv-bench .venv-docs .venv-node .venv-npm .venv-openapi .venv-package .venv-restate .venv-spectral .venv-temporal .venv-uv build dist site htmlcov .coverage .coverage.* \
		.hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN):
	$(call environment,.venv,run)
	$(call install_self,.venv)
	@touch $@

# What serves for development serves for the demo.
$(DEV):
	$(call environment,.venv,dev)
	$(call install_self,.venv)
	@touch $@ $(RUN)

$(BENCH):
	$(call environment,.venv-bench,bench)
	$(call install_self,.venv-bench)
	@touch $@

$(TEMPORAL):
	$(call environment,.venv-temporal,temporal)
	@touch $@

$(RESTATE):
	$(call environment,.venv-restate,restate)
	@touch $@

$(OPENAPI):
	$(call environment,.venv-openapi,openapi)
	@touch $@

$(PACKAGE):
	$(call environment,.venv-package,package)
	@touch $@

$(DOCS):
	$(call environment,.venv-docs,docs)
	@touch $@

$(UV):
	$(call environment,.venv-uv,uv)
	@touch $@
