"""Curator's leader latch and lock, while leaders of a cluster are killed: never two leaders or two holders."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from support.curator import curator_program, require_curator
from support.effort import effort
from support.waiting import DEADLINE_S

from zoolet.testing import Cluster

PROGRAM: Final = Path(__file__).parents[2] / "support" / "java" / "CuratorLeaders.java"
KILLS: Final = effort(12, 100)


def test_killed_leaders_leave_one_leader_and_holder() -> None:
    require_curator()
    with Cluster(3, config={"maxSessionTimeout": 60000}) as cluster:
        with curator_program(PROGRAM, cluster.hosts) as (_, process):
            assert process.stdin is not None
            assert process.stdout is not None
            cluster.wait_for_contenders("/latch", 3, timeout=DEADLINE_S)
            for _ in range(KILLS):
                old = cluster.kill_leader()
                time.sleep(0.1)
                old.start()
                time.sleep(0.15)
            process.stdin.write("\n")
            process.stdin.flush()
            words = next(line for line in process.stdout if line.startswith("rounds")).split()
    outcome = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert outcome["rounds"] >= 2  # Curator may wait for seconds after a failure
    assert outcome["leaders"] > 0
    assert (outcome["overlaps"], outcome["two"]) == (0, 0)
