"""docs/trust.md: what it says keeps a defect out is there, and so is each command."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "trust.md").read_text()


def test_each_test_that_keeps_a_defect_out_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }

    assert len(named) > 25
    assert named - written == set()


def test_each_command_is_a_target_of_make() -> None:
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([\w-]+)", PAGE)) <= targets


def test_no_figure_is_missing() -> None:
    assert "@" not in re.sub(r"@zoolet_schedules|/\S*@\S*", "", PAGE)
