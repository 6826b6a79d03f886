"""Sessions survive while the server's process is stopped, for example by a debugger."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest
from support.waiting import DEADLINE_S

PROGRAM: Final = """
import os, subprocess, time
from kazoo.client import KazooClient
from zoolet.client import blocking
from zoolet.testing import Server

with Server() as server, blocking.Client(server.hosts, timeout=0.5) as ours:
    kazoo = KazooClient(server.hosts, timeout=0.5)
    kazoo.start()
    before = sorted(server.sessions())
    kazoo.create("/theirs", ephemeral=True)
    ours.create("/ours", ephemeral=True)
    stopping = subprocess.Popen(["sh", "-c", f"kill -STOP {os.getpid()}; sleep 1.5; kill -CONT {os.getpid()}"])
    stopping.wait()  # this process, with the server and both clients, stands still meanwhile
    deadline = time.monotonic() + 1.0  # twice the timeout: what was about to expire has
    while time.monotonic() < deadline:
        assert sorted(server.sessions()) == before
        time.sleep(0.01)
    assert sorted(server.tree()) == ["/ours", "/theirs"]
    kazoo.stop()
    print("alive")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGSTOP")
def test_sessions_survive_stopped_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )

    assert done.stdout == "alive\n", done.stderr
