"""Assemble a server from its parts: the only place where that is done, for every kind of server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.admin.observed import Observed
from zoolet.server.config import Config
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.state import first_zxid
from zoolet.server.net.clock import Clock
from zoolet.server.net.connections import Connections, SansIOConnection
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.gc import GcTuner
from zoolet.server.net.turns import TURN

if TYPE_CHECKING:  # most servers have no files
    from zoolet.server.storage.directory import Progress
    from zoolet.server.storage.opening import OpenDirectory
    from zoolet.server.storage.recovery import Recovered

_log = logging.getLogger("zoolet.server")
DEFAULT_BACKLOG: Final = 128

WrapConnection = Callable[[ServerConnection, Callable[[], None]], SansIOConnection]
"""Wraps a connection. The wrapper calls the second argument when it can receive or send more: the transport then calls
``receive_data`` and ``data_to_send`` again.
"""


def _unwrapped(connection: ServerConnection, resume: Callable[[], None]) -> SansIOConnection:
    return connection


def new_engine(config: Config, clock: Clock, rng: Random, initial_zxid: int | None = None) -> Engine:
    """Return an engine without data; arguments as for :func:`assemble`."""
    now, monotonic_ms = clock.read()
    zxid = first_zxid(now) if initial_zxid is None else initial_zxid
    return Engine(config.settings, now=now, monotonic_ms=monotonic_ms, zxid=zxid, rng=rng, log=_log.warning)


def recovered_engine(
    config: Config,
    clock: Clock,
    rng: Random,
    data: OpenDirectory,
    progress: Progress | None = None,
    initial_zxid: int | None = None,
) -> tuple[Engine, Recovered]:
    """Return an engine with the data of a directory; a thread may call this, and give it to :func:`assemble`.

    Args:
        config: The configuration.
        clock: The source of time.
        rng: The source of randomness.
        data: The directory.
        progress: Receives how far the recovery is.
        initial_zxid: As for :func:`assemble`, if there is no data.

    Raises:
        StorageError: The files are not what they should be.
        OSError: One of them cannot be read or written.
    """
    engine = new_engine(config, clock, rng, initial_zxid)
    return engine, data.recover(engine, progress)


def assemble(
    config: Config,
    *,
    clock: Clock,
    rng: Random,
    initial_zxid: int | None = None,
    connection_factory: WrapConnection = _unwrapped,
    gc_tuner: GcTuner | None = None,
    turn: float = TURN,
    data: OpenDirectory | None = None,
    recovered: tuple[Engine, Recovered] | None = None,
    engine: Engine | None = None,
) -> Daemon:
    """Return a new server for the running event loop.

    The daemon, ``zoolet run``, the embedded server and the simulation all call this function.

    Args:
        config: The configuration.
        clock: The source of time.
        rng: The source of randomness: ``SystemRandom`` unless the run has to be repeatable.
        initial_zxid: The last zxid that was taken before; by default one that grows with the clock, so that zxids and
            fencing tokens do not start over when a server is started again without its data.
        connection_factory: Wraps each connection; by default connections are not wrapped.
        gc_tuner: Tunes the garbage collector, if the server owns the process.
        turn: Seconds for which one connection is served before the others get their turn.
        data: Where its data is, and is logged; by default everything is in memory.
        recovered: What :func:`recovered_engine` has read there, if that was done already.
        engine: The engine of a server in memory, if there is one already.

    Returns:
        The server, which listens after :meth:`Daemon.start`.

    Raises:
        StorageError: The files are not what they should be.
        OSError: One of them cannot be read or written.
    """
    result = None
    if data is None:
        engine = engine or new_engine(config, clock, rng, initial_zxid)
    else:
        engine, result = recovered or recovered_engine(config, clock, rng, data, None, initial_zxid)
        engine.set_time(*clock.read())
        engine.sessions.touch_all(engine.monotonic_ms)

    def configuration() -> dict[str, object]:
        return {
            "clientPort": daemon.port,
            "secureClientPort": daemon.secure_port,
            "maxClientCnxns": config.max_client_cnxns,
            "clientPortListenBacklog": config.backlog,
            **({} if data is None else data.configuration()),
        }

    allowed = (*config.whitelist, "isro") if config.isro else config.whitelist
    commands = four_letter_commands(allowed, lambda engine: observed)

    def connect(client: ClientConnection, resume: Callable[[], None]) -> SansIOConnection:
        return connection_factory(ServerConnection(engine, client, commands), resume)

    connections = Connections(
        engine,
        clock,
        connect,
        max_per_host=config.max_client_cnxns,
        max_connections=config.max_cnxns,
        turn=turn,
    )
    if data is not None and result is not None:
        connections.log = data.store(engine, result)
    backlog = config.backlog if config.backlog > 0 else DEFAULT_BACKLOG
    observed = Observed(
        engine,
        configuration,
        config.file,
        data.last_snapshot if data is not None else lambda: None,
        lambda: len(connections.turns.queued),
        data_dir=str(data.directory.folder) if data is not None else None,
    )
    daemon = Daemon(connections, observed, backlog=backlog, gc_tuner=gc_tuner)
    return daemon
