"""The CPU cost of each row in benchmarks/budget.toml is within its budget."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.effort import FULL

BUDGET = Path(__file__).parents[2] / "benchmarks" / "budget.py"


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="counts for a minute and a half: `make budget`, or ZOOLET_FULL=1")
def test_every_measured_operation_is_within_its_budget() -> None:
    for _ in range(1 if shutil.which("valgrind") else 3):  # without valgrind, other processes may disturb a measurement
        done = subprocess.run([sys.executable, str(BUDGET)], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            break

    assert done.returncode == 0, done.stdout + done.stderr
