"""The assembly of a server from its parts."""

from __future__ import annotations

from random import Random

from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.net.clock import RealClock
from zoolet.testing.state.clock import ManualClock


async def test_server_uses_given_random_generator() -> None:
    rng = Random(7)

    daemon = assemble(Config(), clock=RealClock(), rng=rng)

    assert daemon.engine.rng is rng


async def test_zxids_start_above_those_of_earlier_server() -> None:
    clock = ManualClock()
    before = assemble(Config(), clock=clock, rng=Random(0)).engine
    before.zxid += (1 << 20) - 1  # the most writes that one millisecond has numbers for
    clock.move_to(1)

    assert assemble(Config(), clock=clock, rng=Random(0)).engine.zxid == before.zxid + 1


async def test_initial_zxid_is_configurable() -> None:
    assert assemble(Config(), clock=RealClock(), rng=Random(0), initial_zxid=7).engine.zxid == 7
