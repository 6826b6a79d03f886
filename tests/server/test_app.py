"""How the parts of a server are put together."""

from __future__ import annotations

from random import Random

from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.net.clock import RealClock
from zoolet.server.testing.state.clock import ManualClock


async def test_a_server_takes_its_randomness_from_what_it_is_given() -> None:
    rng = Random(7)

    daemon = assemble(Config(), clock=RealClock(), rng=rng)

    assert daemon.engine.rng is rng


async def test_zxids_begin_above_those_of_a_server_started_a_millisecond_earlier() -> None:
    clock = ManualClock()
    before = assemble(Config(), clock=clock, rng=Random(0)).engine
    before.zxid += (1 << 20) - 1  # as many writes as one millisecond has numbers for
    clock.move_to(1)

    assert assemble(Config(), clock=clock, rng=Random(0)).engine.zxid == before.zxid + 1


async def test_the_initial_zxid_can_be_given() -> None:
    assert assemble(Config(), clock=RealClock(), rng=Random(0), initial_zxid=7).engine.zxid == 7
