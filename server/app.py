"""The construction of servers: a new engine, and the daemon that connects it with all other parts.

Observers and members of a cluster use engines of their own classes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Final

from .admin.four_letter_commands import four_letter_commands
from .admin.observed import MonitoredServer
from .config import ServerConfig
from .core.client_connection import ClientConnection
from .core.engine import Engine
from .core.server_connection import ServerConnection
from .core.state import first_zxid
from .net.clock import Clock
from .net.connections import Connections, SansIOConnection
from .net.daemon import Daemon
from .net.gc import GcTuner
from .net.turns import TURN

if TYPE_CHECKING:  # imported only for types, because most servers have no files
    from .storage.directory import Progress
    from .storage.opening import OpenDirectory

_log = logging.getLogger("zoolet.server")
DEFAULT_BACKLOG: Final = 128

WrapConnection = Callable[[ServerConnection, Callable[[], None]], SansIOConnection]
"""A function that wraps a connection. Its second argument makes the transport call ``receive_data`` and
``data_to_send`` again. The wrapper calls that function when it can receive or send more.
"""


def new_engine(
    config: ServerConfig,
    clock: Clock,
    rng: Random,
    *,
    initial_zxid: int | None = None,
    data: OpenDirectory | None = None,
    progress: Progress | None = None,
) -> Engine:
    """Return a new engine for :func:`assemble`, with the state from the data directory if there is one.

    Recovering the state may take long, so this function may be called in a thread.

    Args:
        config: The configuration.
        clock: The source of time.
        rng: The source of randomness: ``SystemRandom`` unless the run has to be repeatable.
        initial_zxid: The last zxid used before. The default grows with the clock: zxids and fencing tokens do not start
            over when a server is restarted without its data. Ignored if the data directory contains data.
        data: The data directory; None for an engine without data.
        progress: Receives the progress of the recovery.

    Raises:
        StorageError: The files are damaged or inconsistent.
        OSError: A file cannot be read or written.
    """
    now, monotonic_ms = clock.read()
    zxid = first_zxid(now) if initial_zxid is None else initial_zxid
    engine = Engine(config.settings, now=now, monotonic_ms=monotonic_ms, zxid=zxid, rng=rng, log=_log.warning)
    if data is not None:
        data.recover(engine, progress)
    return engine


def assemble(
    config: ServerConfig,
    engine: Engine,
    *,
    clock: Clock,
    data: OpenDirectory | None = None,
    connection_factory: WrapConnection | None = None,
    gc_tuner: GcTuner | None = None,
    turn: float = TURN,
) -> Daemon:
    """Return a new server for the running event loop.

    The daemon, ``zoolet run``, the embedded server and the simulation all call this function.

    Args:
        config: The configuration.
        engine: The engine.
        clock: The source of time.
        data: The data directory that the engine was recovered from; by default everything is in memory.
        connection_factory: Wraps each connection; by default connections are not wrapped.
        gc_tuner: Tunes the garbage collector, if the server owns the process.
        turn: Seconds that one connection is served before the others get their turn.

    Returns:
        The server. It listens after :meth:`Daemon.start`.
    """
    if data is not None:  # the time that the recovery took must not expire sessions
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
        connection = ServerConnection(engine, client, commands)
        return connection if connection_factory is None else connection_factory(connection, resume)

    connections = Connections(
        engine,
        clock,
        connect,
        max_per_host=config.max_client_cnxns,
        max_connections=config.max_cnxns,
        turn=turn,
    )
    if data is not None:
        connections.log = data.store(engine)
    backlog = config.backlog if config.backlog > 0 else DEFAULT_BACKLOG
    observed = MonitoredServer(
        engine,
        configuration,
        config.file,
        data.last_snapshot if data is not None else lambda: None,
        lambda: len(connections.turns.queued) + len(connections.turns.light),
        data_dir=str(data.directory.folder) if data is not None else None,
    )
    daemon = Daemon(connections, observed, backlog=backlog, gc_tuner=gc_tuner)
    return daemon
