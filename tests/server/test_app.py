"""How the parts of a server are put together."""

from __future__ import annotations

from random import Random

from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.net.clock import RealClock


async def test_a_server_takes_its_randomness_from_what_it_is_given() -> None:
    rng = Random(7)

    daemon = assemble(Config(), clock=RealClock(), rng=rng)

    assert daemon.engine.rng is rng
