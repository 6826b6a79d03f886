"""A test server in its own thread keeps real time, while the test freezes or replaces the functions of ``time``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.server.net import protocol, turns
from zoolet.server.net.clock import RealClock
from zoolet.testing import Cluster, Server
from zoolet.testing.state.real_time import REAL, RealTimeClock


@contextmanager
def frozen() -> Iterator[None]:
    """Freeze time as freezegun does: replace the functions of ``time``. Also replace ``sleep``, as many tests do."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("time", "monotonic", "perf_counter"):
            patch.setattr(time, name, lambda: 1.0)
            patch.setattr(time, f"{name}_ns", lambda: 1_000_000_000)
        patch.setattr(time, "sleep", lambda seconds: None)
        yield


def test_wait_ends_while_time_is_frozen(server: Server) -> None:
    with frozen(), pytest.raises(TimeoutError, match=r"after 0\.05 s"):
        server.wait_for(lambda: False, timeout=0.05)


@pytest.mark.parametrize("make", [Server, Cluster])
def test_session_expires_while_time_is_frozen(make: Any) -> None:
    with frozen(), make() as server:
        with Wire(server.port, timeout=0.1).welcomed():
            server.wait_for_sessions(1)
            server.wait_for_sessions(0, timeout=DEADLINE_S)


def test_wall_clock_is_real_while_time_is_frozen(server: Server) -> None:
    before = time.time()
    with frozen():
        server.create("/a")
    assert abs(server.tree()["/a"].ctime - before) < DEADLINE_S


def test_timer_started_in_frozen_time_uses_real_time(server: Server) -> None:
    with frozen():
        server.restart(downtime=0.01)
    server.wait_for(lambda: not server._down, timeout=DEADLINE_S)


def test_net_modules_keep_no_reference_to_perf_counter() -> None:
    for module in (protocol, turns):
        assert not [name for name, value in vars(module).items() if value is time.perf_counter]


def test_clock_of_observer_runs_while_time_is_frozen() -> None:
    with frozen():
        now, monotonic_ms = RealClock().read()

    assert now > 1_600_000_000_000
    assert monotonic_ms != 1_000


def test_pause_is_subtracted_from_clock_of_test_server(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RealTimeClock()
    monkeypatch.setattr(REAL, "monotonic_ns", lambda: 70_000_000_000)

    clock.subtract_pause(60_000)

    assert clock.read() == ((REAL.started_ns + 70_000_000_000) // 1_000_000, 10_000)
