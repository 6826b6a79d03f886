"""Put the parts of a server together, nothing more."""

from __future__ import annotations

import logging
from random import SystemRandom

from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.config import Config
from zoolet.server.core.engine import Engine
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner

_log = logging.getLogger("zoolet.server")


def assemble(config: Config, *, clock: Clock | None = None, gc_tuner: GcTuner | None = None) -> Daemon:
    """Make an engine and what listens for it; call inside the loop that is to serve.

    Args:
        config: What it was told.
        clock: What time it is; by default the machine's clocks.
        collector: The garbage collector's settings, where the server owns the process.
    """
    clock = clock or RealClock()
    now, monotonic_ms = clock.read()
    engine = Engine(config.settings, now=now, monotonic_ms=monotonic_ms, rng=SystemRandom(), log=_log.warning)

    def configuration() -> dict[str, object]:
        return {
            "clientPort": listener.port,
            "secureClientPort": listener.secure_port,
            "maxClientCnxns": config.max_client_cnxns,
            "clientPortListenBacklog": config.backlog,
        }

    listener = Daemon(
        engine,
        clock,
        four_letter_commands((*config.whitelist, "isro") if config.isro else config.whitelist, configuration),
        max_per_host=config.max_client_cnxns,
        max_connections=config.max_cnxns,
        backlog=config.backlog if config.backlog > 0 else 128,
        gc_tuner=gc_tuner,
    )
    return listener
