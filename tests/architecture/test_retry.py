"""``.ci/retry.py`` forgives a test that fails only next to others, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.rooms import ROOT
from support.waiting import DEADLINE_S

PYTEST: Final = (sys.executable, "-m", "pytest", "-p", "xdist.plugin", "--dist", "loadfile")
DRY: Final = """
import pathlib, pytest

def first_time(name):
    mark = pathlib.Path(f"{name}.ran")
    ran, _ = mark.exists(), mark.touch()
    return not ran
"""
TESTS: Final = {
    "passes": "def test_passes(): pass",
    "once": "def test_once(): assert not first_time('once')",
    "always": "def test_always(): assert False",
    "teardown": """
@pytest.fixture
def dirty():
    yield
    assert not first_time("teardown")

def test_teardown(dirty): pass
""",
    "crash": """
import os

def test_crash(): first_time("crash") and os._exit(3)

@pytest.mark.parametrize("n", range(5))
def test_after(n): pass
""",
    "skips": """
def test_skips():
    if not first_time("skips"):
        pytest.skip("alone")
    assert False
""",
    "many": "@pytest.mark.parametrize('n', range(21))\ndef test_many(n): assert not first_time(n)",
    "syntax": "def test_syntax(: pass",
    "method": """
class TestMethod:
    assert not first_time("method")

    def test_method(self): pass
""",
    "stops": "def test_stops(): pytest.exit('stop', returncode=3)",
}


def run_retry(
    folder: Path, *names: str, workers: int = 0, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run ``.ci/retry.py`` on a project with these tests."""
    folder.joinpath("pytest.ini").write_text("[pytest]\n")
    for name in names:
        folder.joinpath(f"test_{name}.py").write_text(f"{DRY}\n{TESTS[name]}\n")
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": "", "FORCE_COLOR": "1"}
    command = [sys.executable, ROOT / ".ci" / "retry.py", *PYTEST, "-n", str(workers), *options]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def flaky_tests(run: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the tests that a run listed as flaky."""
    return [line for line in run.stdout.splitlines() if line.startswith("flaky: ")]


@pytest.mark.slow
def test_failures_that_do_not_repeat_are_reported_as_flaky(tmp_path: Path) -> None:
    run = run_retry(tmp_path, "passes", "once", "teardown", workers=2)

    assert run.returncode == 0
    assert sorted(flaky_tests(run)) == ["flaky: test_once.py::test_once", "flaky: test_teardown.py::test_teardown"]
    assert run.stdout.count("test session starts") == 2


@pytest.mark.slow
def test_repeated_failure_fails_test_run(tmp_path: Path) -> None:
    run = run_retry(tmp_path, "passes", "once", "always", options=("-x",))  # the first failure must not end the run

    assert (run.returncode, flaky_tests(run)) == (1, [])
    assert ".ci/retry: 2 failed" in run.stdout
    assert run.stdout.count("test session starts") == 2


@pytest.mark.slow
def test_passing_test_run_is_not_repeated(tmp_path: Path) -> None:
    run = run_retry(tmp_path, "passes")

    assert (run.returncode, flaky_tests(run), run.stdout.count("test session starts")) == (0, [], 1)


@pytest.mark.slow
def test_skip_after_failure_fails_test_run(tmp_path: Path) -> None:
    run = run_retry(tmp_path, "skips")

    assert (run.returncode, flaky_tests(run)) == (1, [])
    assert "neither failed nor passed: ['test_skips.py::test_skips']" in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("name", "workers"), [("many", 0), ("syntax", 0), ("method", 0), ("stops", 0), ("crash", 2)])
def test_broken_test_run_fails_without_second_attempt(tmp_path: Path, name: str, workers: int) -> None:
    run = run_retry(tmp_path, "once", name, workers=workers)

    assert run.returncode != 0
    assert (flaky_tests(run), run.stdout.count("test session starts")) == ([], 1)
