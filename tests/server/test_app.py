"""The engine of a new server: its random generator and its first zxid."""

from __future__ import annotations

from random import Random

from zoolet.server.app import new_engine
from zoolet.server.config import ServerConfig
from zoolet.server.net.clock import RealClock
from zoolet.testing.state.clock import ManualClock


def test_engine_uses_given_random_generator() -> None:
    rng = Random(7)

    assert new_engine(ServerConfig(), RealClock(), rng).rng is rng


def test_zxids_start_above_those_of_earlier_server() -> None:
    clock = ManualClock()
    before = new_engine(ServerConfig(), clock, Random(0))
    before.zxid += (1 << 20) - 1  # the maximum number of writes in one millisecond's range of zxids
    clock.move_to(1)

    assert new_engine(ServerConfig(), clock, Random(0)).zxid == before.zxid + 1


def test_initial_zxid_is_configurable() -> None:
    assert new_engine(ServerConfig(), RealClock(), Random(0), initial_zxid=7).zxid == 7
