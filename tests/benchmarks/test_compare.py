"""The comparison of two revisions: its verdict, and one row of each kind."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location("compare", FOLDER / "compare.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("here", "word"),
    [
        ([110.0, 108.0, 111.0, 109.0, 107.0], "slower"),
        ([90.0, 91.0, 92.0, 93.0, 94.0], "faster"),
        ([101.0, 99.0, 102.0, 98.0, 100.0], "equal"),
        ([110.0, 90.0, 111.0, 89.0, 107.0], "equal"),
        ([110.0, 108.0, 111.0], "equal"),
    ],
)
def test_verdict_depends_on_median_and_nearly_all_rounds(here: list[float], word: str, compare: ModuleType) -> None:
    assert compare.verdict(here, [100.0] * len(here)).word == word


@pytest.mark.parametrize("row", ["in process ping", "client and embedded server set"])
def test_each_row_is_measured_in_its_own_process(row: str) -> None:
    command = [sys.executable, str(FOLDER / "compare.py"), "--one", row, "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert 100 < float(done.stdout) < 10_000_000
