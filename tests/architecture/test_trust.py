"""docs/project: each named test and command exists, and numbers agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

from zoolet.testing.checking.checker import RULES

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "docs" / "project"
PAGE = (PROJECT / "trust.md").read_text()
DEFECTS = (PROJECT / "defects.md").read_text()
THREATS = (PROJECT / "threats.md").read_text()


def test_each_regression_test_named_in_defects_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DEFECTS))
    written = {
        name for file in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }

    assert len(named) > 25
    assert named - written == set()


def test_each_test_file_named_on_trust_pages_exists() -> None:
    named = set(re.findall(r"`(?:tests/[\w/]*/)?(test_\w+\.py)`", DEFECTS + PAGE))

    assert len(named) > 15
    assert named <= {file.name for file in (ROOT / "tests").rglob("test_*.py")}


def test_each_command_is_a_target_of_make() -> None:
    targets = set(re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set(re.findall(r"`make ([\w.-]+)", PAGE + DEFECTS + THREATS)) <= targets


def test_placeholders_for_figures_on_trust_page_are_filled() -> None:
    assert "@" not in re.sub(r"@zoolet_schedules|/\S*@\S*", "", PAGE + DEFECTS + THREATS)


def test_numbers_on_trust_page_equal_those_in_code() -> None:
    one_run = (ROOT / "tests" / "testing" / "checking" / "test_one_run.py").read_text()
    kills = (ROOT / "tests" / "testing" / "cluster" / "test_curator.py").read_text()
    folder = ROOT / "benchmarks" / "adversary" / "cases"
    attacks = [
        line for file in folder.glob("*.py") for line in re.findall(r"^@attack\(", file.read_text(), re.MULTILINE)
    ]

    assert "6 seeds of each of three stories, 20 with `ZOOLET_FULL=1`" in PAGE
    assert "run(kind, effort(6, 20))" in one_run
    assert "over 100 kills" in PAGE
    assert "effort(12, 100)" in kills
    assert f"each of {len(RULES)} rules" in PAGE
    assert f"runs {len(attacks)} attacks" in THREATS


def test_comparison_targets_fail_without_real_servers() -> None:
    makefile = (ROOT / "Makefile").read_text()

    for target in ("clusters", "differential", "kills", "schedules", "ensemble"):
        recipe = makefile.partition(f"\n{target}: ")[2].partition("\n\n")[0]
        assert "$(REAL)" in recipe or "ZOOLET_REQUIRE_APACHE=1" in recipe, target
