"""docs/trust.md: what it says keeps a defect out is there, so is each command, and numbers that the code has agree."""

from __future__ import annotations

import re
from pathlib import Path

from zoolet.server.testing.checking.checker import RULES

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

    assert set(re.findall(r"`make ([\w.-]+)", PAGE)) <= targets


def test_no_figure_is_missing() -> None:
    assert "@" not in re.sub(r"@zoolet_schedules|/\S*@\S*", "", PAGE)


def test_numbers_are_those_of_the_code() -> None:
    one_run = (ROOT / "tests" / "checking" / "test_one_run.py").read_text()
    kills = (ROOT / "tests" / "cluster" / "test_curator.py").read_text()
    security = (ROOT / "docs" / "security.md").read_text()
    folder = ROOT / "benchmarks" / "adversary" / "cases"
    attacks = [
        line for file in folder.glob("*.py") for line in re.findall(r"^@attack\(", file.read_text(), re.MULTILINE)
    ]

    assert "6 seeds of each of three stories, 20 with `ZOOLET_FULL=1`" in PAGE
    assert "run(kind, effort(6, 20))" in one_run
    assert "over 100 kills" in PAGE
    assert "effort(12, 100)" in kills
    assert f"each of {len(RULES)} rules" in PAGE
    assert f"runs {len(attacks)} attacks" in security


def test_targets_that_compare_with_real_servers_fail_without_them() -> None:
    makefile = (ROOT / "Makefile").read_text()

    for target in ("clusters", "differential", "kills", "schedules", "ensemble"):
        recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0]
        assert "$(REAL)" in recipe or "ZOOLET_REQUIRE_APACHE=1" in recipe, target
