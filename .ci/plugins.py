#!/usr/bin/env python3
"""A user's tests with many versions of pytest and its plugins, with a table of the results:

    make plugins        make plugins ARGS="--only django,xdist"

Each row gets a new environment with the committed code. Its tests run twice: the second run replays recordings.
The packages are downloaded.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from installs import InstallTarget, environment, run
from pythons import ROOT


class Row(NamedTuple):
    """One combination of packages, options and test files.

    Args:
        packages: Requirements for pip, in addition to zoolet and kazoo.
        options: Options of pytest.
        files: Names of the test files; see :data:`TEST_FILES`.
    """

    packages: tuple[str, ...]
    options: tuple[str, ...] = ()
    files: tuple[str, ...] = ("basic", "asyncio", "loops")


TEST_FILES: Final = {
    "basic": """
import os
import pytest
from zoolet.testing import ZooletTestCase

def test_kazoo(zoolet, zoolet_kazoo, zoolet_kazoo_factory, monkeypatch):
    zoolet_kazoo.create("/a")
    assert zoolet_kazoo_factory().exists("/a")
    assert zoolet.hosts == os.environ["ZOOKEEPER_HOSTS"]
    monkeypatch.setenv("ZOOKEEPER_HOSTS", "other")

def test_environment():
    assert "ZOOKEEPER_HOSTS" not in os.environ

@pytest.mark.zoolet(members=3)
def test_cluster(zoolet_cluster, zoolet_kazoo):
    zoolet_cluster.kill_leader()
    zoolet_cluster.wait_for_client(zoolet_kazoo)
    zoolet_kazoo.create("/a")

@pytest.mark.zoolet(clock="manual")
def test_clock(zoolet):
    zoolet.advance(60)

@pytest.mark.zoolet(recording=True)
@pytest.mark.parametrize("name", ["a/b", "a b"])
def test_recording(zoolet_kazoo, name):
    zoolet_kazoo.create("/" + name[1:].strip("/ "))

class TestCase(ZooletTestCase):
    def test_it(self):
        self.zoolet.create("/a")
""",
    "asyncio": """
import pytest

@pytest.mark.asyncio
async def test_client(zoolet, zoolet_client, zoolet_client_factory):
    await zoolet_client.create("/a")
    assert await (await zoolet_client_factory()).exists("/a")
    await zoolet.until_node("/a")
""",
    "loops": """
import pytest

@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.asyncio(loop_scope="module")
async def test_client(zoolet_client, number):
    await zoolet_client.create("/a")

@pytest.mark.asyncio(loop_scope="session")
async def test_client_of_session(zoolet_client):
    await zoolet_client.create("/a")
""",
    "flaky": """
import pytest
attempts = []

@pytest.mark.zoolet(recording=True)
def test_second_attempt(zoolet_kazoo):
    attempts.append(zoolet_kazoo.exists("/"))
    assert len(attempts) == 2
""",
    "frozen": """
import freezegun, pytest, time_machine

@pytest.mark.parametrize("freeze", [freezegun.freeze_time, lambda to: time_machine.travel(to, tick=False)])
def test_time_of_server(zoolet, zoolet_kazoo_factory, freeze):
    zoolet_kazoo_factory(timeout=0.2)
    with freeze("2030-01-01"):
        zoolet.pause("all")
        zoolet.wait_for_sessions(0)
        zoolet.create("/a")
        with pytest.raises(TimeoutError):
            zoolet.wait_for(lambda: False, timeout=0.1)
    created = zoolet.tree()["/a"].ctime
    assert created < 1_890_000_000  # before 2030
""",
    "django": """
from django.test import SimpleTestCase
from zoolet.testing import ZooletTestCase

class TestOne(ZooletTestCase, SimpleTestCase):
    def test_it(self):
        self.zoolet.create("/a")

class TestOther(TestOne): ...
""",
}
NEWEST_PACKAGES: Final = ("pytest", "pytest-asyncio")
ROWS: Final = {
    "pytest 7.4": Row(("pytest==7.4.4", "pluggy==1.2.0", "pytest-asyncio==0.21.2"), files=("basic", "asyncio")),
    "pytest 8.0": Row(("pytest==8.0.2", "pytest-asyncio==0.23.8"), files=("basic", "asyncio")),
    "pytest 8.3": Row(("pytest==8.3.5", "pytest-asyncio==0.24.0")),
    "pytest 8.4": Row(("pytest==8.4.2", "pytest-asyncio==1.1.0")),
    "newest": Row(NEWEST_PACKAGES),
    "xdist": Row((*NEWEST_PACKAGES, "pytest-xdist"), ("-n", "2")),
    "randomly": Row((*NEWEST_PACKAGES, "pytest-randomly")),
    "rerunfailures": Row(
        (*NEWEST_PACKAGES, "pytest-rerunfailures"), ("--reruns", "1"), ("basic", "asyncio", "loops", "flaky")
    ),
    "timeout by signal": Row((*NEWEST_PACKAGES, "pytest-timeout"), ("--timeout", "60", "--timeout-method", "signal")),
    "timeout by thread": Row((*NEWEST_PACKAGES, "pytest-timeout"), ("--timeout", "60", "--timeout-method", "thread")),
    "cov": Row((*NEWEST_PACKAGES, "pytest-cov"), ("--cov=.",)),
    "frozen time": Row((*NEWEST_PACKAGES, "freezegun", "time-machine"), files=("basic", "asyncio", "frozen")),
    "django": Row((*NEWEST_PACKAGES, "pytest-django", "django"), ("--ds=settings",), ("basic", "asyncio", "django")),
}
PYTEST_INI: Final = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"


def check_row(row: Row, place: InstallTarget) -> None:
    """Install the packages of a row, and run its tests twice."""
    python = environment(place, place.clone, tests=("kazoo", *row.packages)).python
    assert python is not None
    folder = place.folder / "user"
    folder.mkdir()
    (folder / "pytest.ini").write_text(PYTEST_INI)
    (folder / "settings.py").write_text("SECRET_KEY = 'x'\n")
    for name in row.files:
        (folder / f"test_{name}.py").write_text(TEST_FILES[name])
    for _ in range(2):
        run(python, "-m", "pytest", "-q", *row.options, cwd=folder)
    if "django" in row.files:
        settings = {"DJANGO_SETTINGS_MODULE": "settings"}
        run(python, "-m", "django", "test", "--parallel", "2", "-p", "test_django.py", cwd=folder, **settings)


def main(arguments: list[str]) -> int:
    """Run all rows, print the table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="make plugins", description="Test with pytest's versions and plugins.")
    parser.add_argument("--only", default=",".join(ROWS), help="some of the rows, separated by commas")
    names = parser.parse_args(arguments).only.split(",")
    if not ROWS.keys() >= set(names):
        print(f"--only must name some of {', '.join(ROWS)}", file=sys.stderr)
        return 2
    print(f"{len(names)} environments, about a quarter of a minute each", flush=True)
    failed = False
    with tempfile.TemporaryDirectory(prefix="zoolet plugins ") as parent:
        clone = Path(parent, "zoolet")
        run("git", "clone", "-q", ROOT, clone, cwd=Path(parent))
        for name in names:
            place = InstallTarget(clone, Path(parent, name), Path(sys.executable), Path(parent))
            place.folder.mkdir()
            started = time.monotonic()
            try:
                check_row(ROWS[name], place)
                outcome = f"{time.monotonic() - started:.0f} s"
            except (RuntimeError, OSError, AssertionError) as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
                outcome, failed = "failed", True
            print(f"{name:20}{outcome:>9}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
