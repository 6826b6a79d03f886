"""zoolet works in unusual interpreters: without docstrings, without pytest or with an old one, without threads."""

from __future__ import annotations

import inspect
import shutil
import subprocess
import sys
import threading
import typing
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import zoolet.client
import zoolet.client.blocking
import zoolet.client.recipes
import zoolet.testing
from zoolet.client.blocking import Client
from zoolet.testing import Server

PUBLIC: Final = (zoolet.client, zoolet.client.blocking, zoolet.client.recipes, zoolet.testing)


def run_python(*words: str) -> str:
    """Run Python, and return its output."""
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- python -OO ---


@pytest.mark.slow
def test_run_with_admin_works_without_docstrings() -> None:
    assert run_python("-OO", "-m", "zoolet", "run", "--admin", "--", "sh", "-c", "echo $ZOOLET_ADMIN").startswith(
        "http://"
    )


@pytest.mark.slow
def test_commands_have_summaries_without_docstrings() -> None:
    code = """
from zoolet.testing import Cluster, Server
from zoolet.testing.control.commands import endpoint_commands
print(*sorted(command.summary for kind in (Server, Cluster) for command in endpoint_commands(kind).values()), sep="\\n")
"""
    summaries = run_python("-OO", "-c", code).splitlines()

    assert "Drop." in summaries
    assert "." not in summaries


# --- pytest ---


def test_testing_is_usable_without_pytest() -> None:
    code = """
import sys
sys.modules["pytest"] = None
import zoolet.testing
from zoolet.testing import *
help(zoolet.testing)
print([name for name in zoolet.testing.__all__ if not hasattr(zoolet.testing, name)])
"""

    assert run_python("-c", code).endswith("[]\n")


@pytest.mark.parametrize("old", ["del pytest.StashKey", "pytest.hookimpl = lambda hookwrapper=False: None"])
def test_plugin_is_disabled_with_old_pytest(old: str) -> None:
    code = f"""
import pytest
{old}
import zoolet.testing.plugin
print(hasattr(zoolet.testing.plugin, "pytest_plugins"), zoolet.testing.plugin.pytest_report_header())
"""

    assert (
        run_python("-c", code)
        == "False zoolet: its fixtures are off, because they need pytest 7.0 and pluggy 1.2 or newer\n"
    )


@pytest.mark.slow
def test_pytest_skips_tests_of_clone_inside_project(tmp_path: Path) -> None:
    tests = tmp_path / "zoolet" / "tests"
    tests.mkdir(parents=True)
    shutil.copy2(Path(__file__).parents[1] / "conftest.py", tests)
    (tests / "test_zoolet.py").write_text("def test_zoolet(): assert False\n")
    (tmp_path / "test_small.py").write_text("def test_small(): pass\n")

    done = subprocess.run([sys.executable, "-m", "pytest"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert "1 passed" in done.stdout, done.stdout
    assert done.returncode == 0


# --- annotations ---


@pytest.mark.parametrize("module", PUBLIC, ids=lambda module: module.__name__)
def test_type_hints_of_public_names_resolve(module: ModuleType) -> None:
    for public in map(partial(getattr, module), module.__all__):
        parts = vars(public).values() if inspect.isclass(public) else ()
        for each in (public, *(part for part in parts if inspect.isfunction(part))):
            if not inspect.isroutine(each) and not inspect.isclass(each):
                continue
            if not each.__name__.startswith("_") or each.__name__ in ("__init__", "__call__"):
                typing.get_type_hints(each, localns={"KazooClient": object})  # kazoo is optional


# --- threads ---


@pytest.fixture
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse threads as an isolated subinterpreter does."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("thread is not supported for isolated subinterpreters")

    monkeypatch.setattr(threading.Thread, "start", refuse)


def test_server_without_threads_names_alternative(without_threads: None) -> None:
    with pytest.raises(RuntimeError, match=r"isolated subinterpreters; use 'async with'"):
        Server().start()


def test_blocking_client_names_alternative_to_threads(without_threads: None) -> None:
    with pytest.raises(RuntimeError, match=r"isolated subinterpreters; zoolet\.client\.Client needs no thread"):
        Client("127.0.0.1:1").start()
