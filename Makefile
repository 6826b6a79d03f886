# The commands for developers. `make` without a command is `make help`.
PYTHON ?= python3
PORT ?= 2181
# Two more than cores: many tests wait for a while.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
# With PYTHON=..., make uses a separate environment, such as .venv-3.13.0.
VERSION = $(shell $(PYTHON) -c 'import platform; print(platform.python_version())')
VENV := $(if $(filter file,$(origin PYTHON)),.venv,.venv-$(VERSION))
BIN := $(VENV)/bin
# A user's pip.conf may contain "user = true", which pip refuses in an environment.
export PIP_USER := 0
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check
# A command that runs pytest, such as .ci/retry.py.
RETRY ?=
# Comparisons with real servers: without Java, 3.8.0 or 3.9.4 they fail, they are not skipped.
REAL := ZOOLET_REQUIRE_APACHE=1 ZOOLET_REQUIRE_APACHE_3_9=1
# pip compiles what it copies, but not what it links to: without this a command starts in 160 ms instead of 100 where
# Python may not write bytecode itself.
COMPILE = $(BIN)/python -m compileall -q __init__.py __main__.py protocol server client console testing cli

.NOTPARALLEL:  # with -j, benchmarks would measure one another
.PHONY: straight bench-scale debug interrupts pictures plugins pythons installs faces kills audit observer help setup run test types lint limits bench bench-server bench-disk bench-clients bench-compare schedules ensemble clusters budget docs apache-3.9 differential kazoo-suite go-suite mutations soak wheel clean attacks fuzz

help:
	@grep -E '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9.-]+):.*## /  make \1\t/' | expand -t 20

setup: $(VENV)/.dev  ## create a virtual environment with zoolet (editable) and its test tools

# An environment contains the paths of its folder and of its Python, so after a change of either it is made again.
$(VENV)/.origin: FORCE
	@origin="$$($(PYTHON) -c 'import os, sys; sys.version_info >= (3, 11) or sys.exit("zoolet needs Python 3.11 or newer, this is " + sys.version); print(*sys.version_info[:3], sys.base_prefix, os.getcwd())')" && \
	if test "$$origin" != "$$(cat $@ 2>/dev/null)"; then \
	    if test -L $(VENV) || { test -e $(VENV) && ! test -e $@ && ! test -e $(VENV)/.daemon; }; then \
	        echo "$(VENV) was not created by make: move it to another place, so that make can create its own" >&2; exit 1; \
	    fi; \
	    test ! -e $(VENV) || echo "$(VENV) is from a different Python or folder, so it is made again" >&2; \
	    rm -rf $(VENV) && mkdir $(VENV) && touch $@ && $(PYTHON) -m venv $(VENV) && printf '%s\n' "$$origin" > $@; \
	fi
FORCE:

# .daemon: what `make run` needs is installed; .dev, .docs, .jks: that extra, too. The metadata hold the version, hence __init__.py.
$(VENV)/.%: pyproject.toml setup.py __init__.py $(VENV)/.origin
	$(INSTALL) --editable '.$(patsubst %,[%],$(filter-out daemon,$*))'
	$(COMPILE)
	touch $(VENV)/.daemon $@

# The root is the package `zoolet`; mypy looks for a folder of that name.
build/typing/zoolet:
	mkdir -p build/typing
	ln -sfn ../.. $@

run: $(VENV)/.daemon  ## run the daemon on 127.0.0.1:2181 (PORT=... for another port; ARGS=... for the daemon)
	exec $(BIN)/zoolet serve --port $(PORT) $(ARGS)

test: setup  ## run all tests, in two processes more than there are cores (WORKERS=0 for one process; ARGS=... for pytest; ZOOLET_FULL=1 for more cases; PYTHON=python3.13 for another Python)
	$(RETRY) $(BIN)/pytest -n $(WORKERS) --dist loadfile $(ARGS)

# Like `python -X dev -W error`, also for the processes of pytest-xdist. Python 3.11 has no eager tasks.
DEBUG := PYTHONDEVMODE=1 PYTHONWARNINGS=error PYTHONASYNCIODEBUG=1
debug: setup  ## run the client's tests in asyncio's debug mode, and with eager tasks, with all warnings as errors: two minutes each (PYTHON=python3.13; ARGS=...)
	$(DEBUG) $(BIN)/pytest -n $(WORKERS) --dist loadfile $(or $(ARGS),tests/client)
	! $(BIN)/python -c 'import asyncio; asyncio.eager_task_factory' 2>/dev/null || \
	    $(DEBUG) PYTHONPATH=tests $(BIN)/pytest -p support.eager_tasks -n $(WORKERS) --dist loadfile $(or $(ARGS),tests/client)

interrupts: setup  ## interrupt each kind of blocking call 20,000 times, and make 20,000 calls from finalizers (ZOOLET_INTERRUPTS=)
	ZOOLET_INTERRUPTS=$(or $(ZOOLET_INTERRUPTS),20000) $(BIN)/pytest -n $(WORKERS) tests/client/blocking/test_interrupts.py $(ARGS)

pythons:  ## run the suite on every supported Python that is installed, and as an ordinary user: 6 minutes each (ARGS="--only 3.13"; ARGS=--lowest for the oldest dependencies)
	$(PYTHON) .ci/pythons.py $(ARGS)

installs:  ## install zoolet in every way on every supported Python that is installed, and try each: ten minutes (ARGS="--ways uv,pipx")
	$(PYTHON) .ci/installs.py $(ARGS)

plugins:  ## run a user's tests with pytest 7.4 to the newest, and with the plugins that projects use: five minutes (ARGS="--only django,xdist")
	$(PYTHON) .ci/plugins.py $(ARGS)

types: setup build/typing/zoolet  ## check types with mypy and pyright
	$(BIN)/mypy
	$(BIN)/pyright --warnings --pythonpath $(BIN)/python

lint: setup  ## check style with ruff, oxlint and oxfmt, and words with tests/architecture/vocabulary.txt
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint console/static
	$(BIN)/oxfmt --check 'console/static/*.js'
	$(BIN)/python tests/architecture/vocabulary.py

bench: bench-server bench-clients  ## run all benchmarks, compared with Apache ZooKeeper, kazoo, aiozk, Redis and memcached if installed (ARGS=...)

bench-server: setup  ## measure the cost of a request in process, and the server compared with Apache ZooKeeper
	$(BIN)/python benchmarks/inproc.py
	$(BIN)/python benchmarks/load.py $(ARGS)

bench-scale: setup  ## measure how costs grow from 100 to 100,000 neighbours, and the cost of large amounts: one minute (ARGS=...)
	$(BIN)/python benchmarks/scale.py $(ARGS)

bench-disk: setup  ## measure writes with a data directory in FOLDER (default: here), compared with Apache ZooKeeper with forceSync
	$(BIN)/python benchmarks/disk.py --folder "$(or $(FOLDER),$(CURDIR))" $(ARGS)

bench-clients: setup  ## measure clients and locks (pip install aiozk redis; apt-get install redis-server memcached)
	$(BIN)/python benchmarks/clients.py
	$(BIN)/python benchmarks/locks.py

audit: setup  ## look up known vulnerabilities of the dependencies in a database on the network
	$(INSTALL) pip-audit
	$(BIN)/pip-audit --requirement constraints.txt --no-deps --disable-pip

attacks: setup  ## exit 1 if a misbehaving client can delay, fill or stop the server for others (ARGS="--only 7")
	$(BIN)/python benchmarks/attacks.py $(ARGS)

schedules: setup  ## run 1,000 fault schedules for each recipe, and 10,000 rounds together with kazoo's and Curator's locks
	ZOOLET_REQUIRE_APACHE=1 ZOOLET_SCHEDULES=1000 ZOOLET_ROUNDS=10000 $(BIN)/pytest tests/client/recipes $(ARGS)

ensemble: setup  ## test locks for five minutes on an Apache ensemble whose leaders are killed (ARGS=...)
	ZOOLET_REQUIRE_APACHE=1 ZOOLET_ENSEMBLE_SECONDS=300 $(BIN)/pytest -s -n 0 tests/client/recipes/test_locks_on_an_ensemble.py $(ARGS)

observer: setup  ## follow Apache ensembles of 3.8.0 and 3.9.4 through 20 leader kills under load: five minutes (ARGS=...)
	$(REAL) ZOOLET_FULL=1 ZOOLET_OBSERVER_KILLS=20 $(BIN)/pytest -s -n 0 tests/server/test_observer_on_apache.py $(ARGS)

clusters: setup  ## compare a Cluster with three real servers of 3.8.0 and 3.9.4 in 41 failover scripts; Curator's locks over 100 kills; 1,000 seeds of recipes: 15 minutes
	$(REAL) ZOOLET_FULL=1 ZOOLET_CLUSTERS=1 ZOOLET_SCHEDULES=1000 $(BIN)/pytest --dist loadfile tests/testing/cluster tests/testing/checking $(ARGS)

bench-compare: setup  ## compare the CPU time of each row with another commit, exit 1 if a row is slower: ten minutes (REV=..., ARGS=...)
	$(BIN)/python benchmarks/compare.py $(or $(REV),HEAD) $(ARGS)

limits: setup  ## compare the CPU time of each operation with a server that only does its input and output (ARGS=...)
	$(BIN)/python benchmarks/limits.py $(ARGS)

budget: setup  ## exit 1 if a request costs more CPU than benchmarks/budget.toml allows
	$(BIN)/python benchmarks/budget.py

faces: setup  ## generate client/blocking/client.pyi and recipes.pyi from the asyncio client and recipes
	$(BIN)/python docs/_build/faces.py

straight: setup  ## generate server/core/ops/straight.py, the frequent requests as one function each, from their general forms
	$(BIN)/python docs/_build/straight.py

pictures: setup  ## make the pictures in docs/images again; the console's need chromium and chromium-driver
	$(BIN)/python docs/_build/pictures.py

docs: $(VENV)/.docs  ## generate the pages that are made from tables, and the documentation site in build/site
	$(BIN)/python docs/_build/faces.py
	$(BIN)/python docs/_build/compatibility.py
	$(BIN)/python docs/_build/diagrams.py
	$(BIN)/python docs/_build/commands.py
	$(BIN)/python docs/_build/configuration.py
	$(BIN)/python docs/_build/manual.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "The site is in build/site: open build/site/index.html"

apache-3.9: setup  ## install Apache ZooKeeper 3.9.4 into the cache folder, for comparisons: downloads 456 MB once, keeps 41 MB
	$(BIN)/python tests/support/fetch_apache.py

differential: setup  ## compare with a real ZooKeeper 3.8.0 and 3.9.4: 20,000 steps for each of three seeds, one of them new
	@echo "Three seeds, 20,000 steps each, compared with two releases: about 4 minutes for each release."
	$(REAL) ZOOLET_FULL=1 ZOOLET_DIFFERENTIAL_FRESH=1 ZOOLET_DIFFERENTIAL_STEPS=20000 \
	    $(BIN)/pytest -s tests/differential $(ARGS)

kills: setup  ## kill a daemon under load 1,000 times and at each step, with 7,200 power losses: 15 to 20 minutes (KILLS=...)
	ZOOLET_FULL=1 ZOOLET_LOSSES=40 $(BIN)/pytest -q tests/server/storage/test_store.py -k crashes_lose_no_acknowledged_write
	$(REAL) ZOOLET_KILLS=$(or $(KILLS),1000) $(BIN)/pytest -q tests/server/storage/test_kills.py

kazoo-suite: setup  ## run kazoo's own tests against the daemon, and against a Cluster of three
	$(INSTALL) pyopenssl pyjks pure-sasl gevent eventlet objgraph
	cd /tmp && PYTHONPATH="$(CURDIR)/tests" "$(CURDIR)/$(BIN)/python" -m pytest -p kazoo_suite.adapter --pyargs kazoo.tests \
	    -q -rs -p no:cacheprovider -p no:asyncio $(ARGS)
	cd /tmp && ZOOKEEPER_CLUSTER_SIZE=3 PYTHONPATH="$(CURDIR)/tests" "$(CURDIR)/$(BIN)/python" -m pytest -p kazoo_suite.adapter \
	    --pyargs kazoo.tests -q -rs -p no:cacheprovider -p no:asyncio $(ARGS)

mutations: setup  ## plant 300 defects, one at a time, and count those that the tests find: about an hour (COUNT=, SEED=, JOBS=, AGAIN=)
	$(INSTALL) coverage
	PYTHONPATH=tests $(BIN)/python -m mutations $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) \
	    $(if $(JOBS),--jobs $(JOBS)) $(if $(AGAIN),--again $(AGAIN))

soak: setup  ## run a daemon with 2,000 changing sessions for half an hour: memory, descriptors, latency, histories (MINUTES=)
	PYTHONPATH=tests $(BIN)/python benchmarks/soak.py $(if $(MINUTES),--minutes $(MINUTES))

go-suite: setup  ## run go-zookeeper's cluster tests, unchanged, on a Cluster of three (SOURCES=a checkout of go-zookeeper/zk)
	@test -f "$(SOURCES)/go.mod" || { echo 'SOURCES must be a checkout of go-zookeeper/zk' >&2; exit 2; }
	cd "$(SOURCES)" && ZOOKEEPER_BIN_PATH="$(CURDIR)/tests/go_suite/bin" go test -count=1 -run 'Cluster|Quorum|WaitForClose|BadSession' -v .

fuzz: setup  ## send 10,000,000 broken frames in process, and more for 5 minutes over sockets and 9 by coverage (FRAMES=, MINUTES=, SEED=)
	$(INSTALL) atheris
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(FRAMES),--frames $(FRAMES)) $(if $(MINUTES),--minutes $(MINUTES)) \
	    $(if $(SEED),--seed $(SEED))

wheel: setup  ## build the sdist and the wheel in dist/
	rm -rf dist
	$(INSTALL) build
	$(BIN)/python -m build

clean:  ## remove all generated files and environments
	rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
