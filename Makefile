# The words a developer needs; `make` without one is `make help`.
PYTHON ?= python3
PORT ?= 2181
# One more than cores: many tests wait for a while.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# pip compiles what it copies, but not what it links to: without this a command starts in 160 ms instead of 100 where
# Python may not write bytecode itself.
# Comparisons with real servers: without Java, 3.8.0 or 3.9.4 they fail, they are not skipped.
REAL := ZOOLET_REQUIRE_APACHE=1 ZOOLET_REQUIRE_APACHE_3_9=1
COMPILE = $(BIN)/python -m compileall -q $(PACKAGE)
PACKAGE := __init__.py __main__.py event_loop.py pem.py progress.py testing.py usage.py py.typed protocol server client

.PHONY: faces kills audit help setup links run test types lint limits bench bench-server bench-disk bench-clients bench-compare schedules ensemble clusters budget docs apache-3.9 differential kazoo-suite go-suite mutations soak wheel clean attacks fuzz

help:
	@grep -E '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*## /  make \1\t/' | expand -t 20

setup: $(VENV)/.tools links  ## a virtual environment with zoolet (editable) and its test tools

$(BIN)/pip:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "zoolet needs Python 3.11 or newer, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)

# .daemon: what `make run` needs is installed; .tools: the rest too. The metadata hold the version, hence __init__.py.
$(VENV)/.daemon: pyproject.toml setup.py __init__.py | $(BIN)/pip
	$(INSTALL) --editable .
	$(COMPILE)
	touch $@

$(VENV)/.tools: pyproject.toml setup.py __init__.py | $(BIN)/pip
	$(INSTALL) --editable '.[dev]'
	$(COMPILE)
	touch $(VENV)/.daemon $@

# What the documentation site needs; the tests that build it skip without it.
$(VENV)/.docs: pyproject.toml setup.py __init__.py | $(BIN)/pip
	$(INSTALL) --editable '.[docs]'
	touch $(VENV)/.daemon $@

links:
	@mkdir -p .typing/zoolet
	@for part in $(PACKAGE); do ln -sfn ../../$$part .typing/zoolet/$$part; done

run: $(VENV)/.daemon  ## the daemon on 127.0.0.1:2181 (PORT=..., ARGS=... pass through)
	exec $(BIN)/zoolet serve --port $(PORT) $(ARGS)

test: setup  ## the whole suite in a process more than cores (WORKERS=0 for one; ARGS=... pass through to pytest; ZOOLET_FULL=1 tries more)
	$(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

types: setup  ## mypy and pyright
	$(BIN)/mypy
	rm -rf build/typing && mkdir -p build/typing/zoolet && cp -r $(PACKAGE) build/typing/zoolet/
	$(BIN)/pyright

lint: setup  ## ruff, and the words that docs/glossary.md avoids
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tests/architecture/vocabulary.py

bench: bench-server bench-clients  ## all benchmark tables, beside Apache ZooKeeper, kazoo, aiozk, Redis, memcached where they are (ARGS=...)

bench-server: setup  ## what a request costs in process, and the server beside Apache ZooKeeper
	$(BIN)/python benchmarks/inproc.py
	$(BIN)/python benchmarks/load.py $(ARGS)

bench-disk: setup  ## writes with a data directory on the disk of FOLDER (default: here), beside Apache ZooKeeper with forceSync
	$(BIN)/python benchmarks/disk.py --folder $(or $(FOLDER),$(CURDIR)) $(ARGS)

bench-clients: setup  ## clients and locks (pip install aiozk redis; apt-get install redis-server memcached)
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/locks.py

audit: setup  ## known vulnerabilities of the dependencies, from a database on the network
	$(INSTALL) pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

attacks: setup  ## exit 1 if a misbehaving client can delay, fill or stop the server for others (ARGS="--only 7")
	$(BIN)/python benchmarks/attacks.py $(ARGS)

schedules: setup  ## the long runs: 1,000 fault schedules a recipe, 10,000 rounds beside kazoo's and Curator's locks
	ZOOLET_REQUIRE_APACHE=1 ZOOLET_SCHEDULES=1000 ZOOLET_ROUNDS=10000 $(BIN)/pytest tests/recipes $(ARGS)

ensemble: setup  ## five minutes of locks on an Apache ensemble whose leaders are killed (ARGS=...)
	ZOOLET_REQUIRE_APACHE=1 ZOOLET_ENSEMBLE_SECONDS=300 $(BIN)/pytest -s -n 0 tests/recipes/test_locks_on_an_ensemble.py $(ARGS)

clusters: setup  ## 38 scripts of failover on three real servers of 3.8.0 and of 3.9.4, beside what a Cluster does; Curator's locks over 100 kills; 1,000 seeds of recipes: 15 minutes
	$(REAL) ZOOLET_FULL=1 ZOOLET_CLUSTERS=1 ZOOLET_SCHEDULES=1000 $(BIN)/pytest --dist loadfile tests/cluster tests/checking $(ARGS)

bench-compare: setup  ## CPU of every row in turns beside another commit, exit 1 if one is slower: ten minutes (REV=..., ARGS=...)
	$(BIN)/python benchmarks/compare.py $(or $(REV),HEAD) $(ARGS)

limits: setup  ## CPU of an operation beside a server that does nothing but the row's input and output (ARGS=...)
	$(BIN)/python benchmarks/limits.py $(ARGS)

budget: setup  ## exit 1 if a request costs more CPU than benchmarks/budget.toml allows
	$(BIN)/python benchmarks/budget.py

faces: setup  ## client/blocking/client.pyi and recipes.pyi from the signatures of the asyncio client and recipes
	$(BIN)/python docs/_build/faces.py

docs: $(VENV)/.docs  ## the pages that are made from tables, and the documentation site in build/site
	$(BIN)/python docs/_build/faces.py
	$(BIN)/python docs/_build/compatibility.py
	$(BIN)/python docs/_build/configuration.py
	$(BIN)/python docs/_build/manual.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in build/site: open build/site/index.html"

apache-3.9: setup  ## Apache ZooKeeper 3.9.4 to compare with, into the cache folder: downloads 456 MB once, keeps 41 MB
	$(BIN)/python tests/support/fetch_apache.py

differential: setup  ## 20,000 steps a seed beside a real ZooKeeper 3.8.0 and 3.9.4, one of the seeds never tried before
	@echo "Three seeds, 20,000 steps each, beside each of two releases: about 4 minutes for each release."
	$(REAL) ZOOLET_FULL=1 ZOOLET_DIFFERENTIAL_FRESH=1 ZOOLET_DIFFERENTIAL_STEPS=20000 \
	    $(BIN)/pytest -s tests/differential $(ARGS)

kills: setup  ## 1,000 kills of a daemon under load, 7,200 losses of power, a kill at each step: 15 to 20 minutes (KILLS=...)
	ZOOLET_FULL=1 ZOOLET_LOSSES=40 $(BIN)/pytest -q tests/server/storage/test_store.py -k kills_and_losses
	$(REAL) ZOOLET_KILLS=$(or $(KILLS),1000) $(BIN)/pytest -q tests/server/storage/test_kills.py

kazoo-suite: setup  ## kazoo's own test suite against the daemon, and against a Cluster of three
	$(INSTALL) pyopenssl pyjks pure-sasl gevent eventlet objgraph
	cd /tmp && PYTHONPATH=$(CURDIR)/tests $(CURDIR)/$(BIN)/python -m pytest -p kazoo_suite.adapter --pyargs kazoo.tests \
	    -q -rs -p no:cacheprovider -p no:asyncio $(ARGS)
	cd /tmp && ZOOKEEPER_CLUSTER_SIZE=3 PYTHONPATH=$(CURDIR)/tests $(CURDIR)/$(BIN)/python -m pytest -p kazoo_suite.adapter \
	    --pyargs kazoo.tests -q -rs -p no:cacheprovider -p no:asyncio $(ARGS)

mutations: setup  ## 300 planted defects, one by one: how many of them the tests find, about an hour (COUNT=, SEED=, JOBS=, AGAIN=)
	$(INSTALL) coverage
	PYTHONPATH=tests $(BIN)/python -m mutations $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(JOBS),--jobs $(JOBS)) $(if $(AGAIN),--again $(AGAIN))

soak: setup  ## a daemon with 2,000 sessions that come and go, for half an hour: memory, descriptors, latency, histories (MINUTES=)
	PYTHONPATH=tests $(BIN)/python benchmarks/soak.py $(if $(MINUTES),--minutes $(MINUTES))

go-suite: setup  ## go-zookeeper's tests of clusters, unchanged, on a Cluster of three (SOURCES=a checkout of go-zookeeper/zk)
	@test -f "$(SOURCES)/go.mod" || { echo 'SOURCES= has to be a checkout of go-zookeeper/zk' >&2; exit 2; }
	cd $(SOURCES) && ZOOKEEPER_BIN_PATH=$(CURDIR)/tests/go_suite/bin go test -count=1 -run 'Cluster|Quorum|WaitForClose|BadSession' -v .

fuzz: setup  ## 10,000,000 broken frames in process, 5 minutes over sockets, 9 by coverage: FRAMES=, MINUTES=, SEED=
	$(INSTALL) atheris
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(FRAMES),--frames $(FRAMES)) $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(SEED),--seed $(SEED))

wheel: setup  ## sdist and wheel in dist/
	rm -rf dist
	$(INSTALL) build
	$(BIN)/python -m build

clean:  ## remove everything that was made
	rm -rf $(VENV) .typing build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
