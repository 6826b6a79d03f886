"""No row costs more CPU than benchmarks/budget.toml allows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.effort import FULL

BUDGET = Path(__file__).parents[2] / "benchmarks" / "budget.py"


def budget(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the check."""
    return subprocess.run([sys.executable, str(BUDGET), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="counts for a minute and a half: `make budget`, or ZOOLET_FULL=1")
def test_every_row_is_within_its_budget() -> None:
    done = budget()
    if done.returncode and "cold" not in done.stdout:  # only timed: a noisy neighbour may have taken the caches
        done = budget()

    assert done.returncode == 0, done.stdout + done.stderr
