"""Put the parts of a server together: the one place where a server is made, whatever it is made for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final

from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.config import Config
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.net.clock import Clock
from zoolet.server.net.connections import Connection, Connections
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner
from zoolet.server.net.turns import TURN

_log = logging.getLogger("zoolet.server")
DEFAULT_BACKLOG: Final = 128

WrapConnection = Callable[[ServerConnection, Callable[[], None]], Connection]
"""Puts something around what answers on a socket. The second argument makes the socket's owner look again."""


def _as_it_is(connection: ServerConnection, resume: Callable[[], None]) -> Connection:
    return connection


def assemble(
    config: Config,
    *,
    clock: Clock,
    rng: Random,
    connection_factory: WrapConnection = _as_it_is,
    gc_tuner: GcTuner | None = None,
    turn: float = TURN,
) -> Daemon:
    """Make a server; call this inside the loop that is to serve.

    The daemon, ``zoolet run``, the embedded server and the simulation are all made here.

    Args:
        config: How it is configured.
        clock: The source of time.
        rng: The source of randomness: ``SystemRandom`` unless the run has to be repeatable.
        connection_factory: Wraps each connection; by default none is.
        gc_tuner: The garbage collector's settings, where the server owns the process.
        turn: Seconds for which one connection is served before the others get their turn.

    Returns:
        The server; :meth:`Daemon.start` makes it listen.
    """
    now, monotonic_ms = clock.read()
    engine = Engine(config.settings, now=now, monotonic_ms=monotonic_ms, rng=rng, log=_log.warning)

    def configuration() -> dict[str, object]:
        return {
            "clientPort": daemon.port,
            "secureClientPort": daemon.secure_port,
            "maxClientCnxns": config.max_client_cnxns,
            "clientPortListenBacklog": config.backlog,
        }

    allowed = (*config.whitelist, "isro") if config.isro else config.whitelist
    commands = four_letter_commands(allowed, configuration)

    def connect(client: ClientConnection, resume: Callable[[], None]) -> Connection:
        return connection_factory(ServerConnection(engine, client, commands), resume)

    connections = Connections(
        engine,
        clock,
        connect,
        max_per_host=config.max_client_cnxns,
        max_connections=config.max_cnxns,
        turn=turn,
    )
    backlog = config.backlog if config.backlog > 0 else DEFAULT_BACKLOG
    daemon = Daemon(connections, backlog=backlog, gc_tuner=gc_tuner)
    return daemon
