"""How the parts of a server are put together."""

from __future__ import annotations

from random import SystemRandom

from zoolet.server.app import assemble
from zoolet.server.config import Config


async def test_the_daemon_takes_its_randomness_from_the_system() -> None:
    listener = assemble(Config())

    assert type(listener.engine.rng) is SystemRandom
