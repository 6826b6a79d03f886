"""The benchmark of growth: each row runs, and the table and the plot contain all rows."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
REPORT = {
    "date": "2026-11-29T00:00:00",
    "machine": "a machine",
    "sizes": [100, 1000],
    "rows": [
        {"title": "flat", "neighbours": "children", "us": [5.0, 5.5]},
        {"title": "growing", "neighbours": "levels", "us": [0.25, 250.0]},
    ],
    "amounts": {},
}


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Return the benchmark as a module."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("scale")
    for name in ("scale", "load", "inproc"):
        sys.modules.pop(name, None)


def test_each_row_of_scale_benchmark_measures_steps(scale: ModuleType) -> None:
    for row in scale.ROWS:
        steps = list(row.steps(100))
        assert len(steps) >= 3, row.title
        assert min(steps) >= 0, row.title
        assert sum(steps) > 0, row.title


def test_table_of_scale_benchmark_shows_growth(scale: ModuleType) -> None:
    lines = scale.table(REPORT).splitlines()

    assert "| flat | children | 5.00 | 5.50 | 1.10 |" in lines
    assert "| growing | levels | 0.25 | 250 | 1,000 |" in lines


def test_plot_of_scale_benchmark_draws_each_row(scale: ModuleType) -> None:
    root = ElementTree.fromstring(scale.plot(REPORT))
    tag = "{http://www.w3.org/2000/svg}"

    assert len(root.findall(f"{tag}polyline")) == 2
    assert {"flat", "growing"} <= {text.text for text in root.findall(f"{tag}text")}
