"""Curator's leader latch and lock, while leaders of a cluster are killed: one leader and one holder at a time."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final

from support.apache import JARS, NEEDED
from support.curator import CURATOR, require_curator
from support.effort import effort

from zoolet.testing import Cluster

PROGRAM: Final = Path(__file__).parents[1] / "support" / "java" / "CuratorLeaders.java"
KILLS: Final = effort(12, 100)


def test_one_leads_and_one_holds_while_leaders_are_killed() -> None:
    require_curator()
    jars = ":".join(str(jar) for pattern in (*NEEDED, *CURATOR) for jar in sorted(JARS.glob(pattern)))
    with Cluster(3, config={"maxSessionTimeout": 60000}) as cluster:
        command = ["java", "-XX:TieredStopAtLevel=1", "-cp", jars, str(PROGRAM), cluster.hosts]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                assert any(line.startswith("ready") for line in process.stdout)
                cluster.wait_for_contenders("/latch", 3, timeout=30)
                for _ in range(KILLS):
                    old = cluster.kill_leader()
                    time.sleep(0.1)
                    old.start()
                    time.sleep(0.15)
                process.stdin.write("\n")
                process.stdin.flush()
                words = next(line for line in process.stdout if line.startswith("rounds")).split()
            finally:
                process.kill()
    outcome = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert outcome["rounds"] >= 5  # Curator waits long after a failure
    assert outcome["leaders"] > 0
    assert (outcome["overlaps"], outcome["two"]) == (0, 0)
