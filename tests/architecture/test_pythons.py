"""``.ci/pythons.py`` finds the Pythons of a machine, and reports what failed, ended early and was skipped."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from support.rooms import ROOT

MINORS: Final = ("3.11", "3.12", "3.13", "3.14")


@pytest.fixture(scope="module")
def pythons() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("ci_pythons", ROOT / ".ci" / "pythons.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_fake_python(folder: Path, name: str, version: str) -> Path:
    """Write an interpreter that prints its version."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho {version}\n")
    path.chmod(0o755)
    return path


def test_python_versions_are_read_from_classifiers(pythons: ModuleType) -> None:
    assert pythons.supported((ROOT / "pyproject.toml").read_text()) == MINORS


def test_each_python_version_is_found_once_in_order(pythons: ModuleType, tmp_path: Path) -> None:
    versions = tmp_path / "pyenv" / "versions"
    write_fake_python(versions / "3.12.10" / "bin", "python3.12", "3.12.10")
    write_fake_python(versions / "3.12.9" / "bin", "python3.12", "3.12.9")
    write_fake_python(tmp_path / "bin", "python3.12", "3.12.9")
    write_fake_python(tmp_path / "bin", "python3.14", "3.14.2")
    write_fake_python(tmp_path / "bin", "python3.15", "3.15.0")
    environ = {"PYENV_ROOT": str(tmp_path / "pyenv"), "PATH": str(tmp_path / "bin")}

    found = [each.version for each in pythons.find_interpreters(("3.12", "3.14"), environ)]

    expected = ["3.12.9", "3.12.10", "3.14.2"]
    assert [version for version in found if version in expected] == expected
    assert "3.15.0" not in found
    assert len(found) == len(set(found))


def test_running_python_is_found(pythons: ModuleType) -> None:
    found = {each.version for each in pythons.find_interpreters(MINORS, {"PATH": "", "PYENV_ROOT": "/none"})}

    assert ".".join(map(str, sys.version_info[:3])) in found


def test_outcome_of_test_run_is_read_from_pytest_output(pythons: ModuleType) -> None:
    output = """
SKIPPED [2] tests/a.py:5: no Java here
SKIPPED [1] tests/b.py:7: no Java here
FAILED tests/c.py::test_x - 3 passed
== 1 failed, 20 passed, 3 skipped, 2 errors in 3.14s ==
"""

    outcome = pythons.parse_outcome("3.13.0", output, 1, 60.0)

    assert outcome.counts == {"failed": 1, "passed": 20, "skipped": 3, "error": 2}
    assert outcome.skips == {"no Java here": 3}
    assert pythons.table([outcome]).splitlines() == [
        "Python  passed  failed  skipped  minutes",
        "3.13.0      20       3        3      1.0",
        "skipped: no Java here: 3 on 3.13.0",
    ]


def test_summary_shows_test_run_that_ended_early(pythons: ModuleType) -> None:
    outcome = pythons.parse_outcome("3.13.0", "make: *** no compiler", 2, 0.0)

    assert "ended early (exit code 2)" in pythons.table([outcome])


def test_lowest_versions_are_bounds_of_requirements(pythons: ModuleType) -> None:
    project = """
    requires = ["setuptools>=77.0.1"]
    dependencies = ["msgpack>=1.0.5", "uvloop>=0.19; sys_platform != 'win32'"]
    dev = ["zoolet[tls,shell]", "kazoo==2.11.0", "mkdocs>=1.6,<2", "mkdocstrings[python]>=1.0", "msgpack>=1.0.5"]
    """

    assert pythons.lowest(project).splitlines() == [
        "kazoo==2.11.0",
        "mkdocs==1.6",
        "mkdocstrings==1.0",
        "msgpack==1.0.5",
        "setuptools==77.0.1",
        "uvloop==0.19",
    ]
