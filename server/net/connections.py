"""All open connections of a server, and what they share: the engine, the clock, turns, limits and delivery."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import State
from zoolet.server.net.clock import Clock
from zoolet.server.net.turns import TURN, TurnQueue
from zoolet.server.net.unread import UnreadBytes

SPARE_DESCRIPTORS: Final = 8
"""Descriptors kept for four-letter commands, so that an operator can ask the server what is going on."""


class Connection(Protocol):
    """What answers on a socket: a ``ServerConnection``, or what wraps one."""

    @property
    def client(self) -> ClientConnection:
        """The connection as the operations see it."""
        ...

    @property
    def state(self) -> State:
        """Whether it is connecting, open or closed."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed once everything is sent."""
        ...

    def receive_data(self, data: bytes, until: float = ..., time: Callable[[], float] = ...) -> bool:
        """Receive bytes; return whether complete requests are left for a later turn."""
        ...

    def data_to_send(self) -> bytes:
        """Return the bytes that are to be written now, and forget them."""
        ...

    def connection_lost(self) -> None:
        """Record that the peer is gone."""
        ...


ConnectionFactory = Callable[[ClientConnection, Callable[[], None]], Connection]
"""Makes what answers on a socket. The second argument makes the socket's owner look again: it receives what was left
and sends what there is.
"""


class OpenSocket(Protocol):
    """An accepted socket, as the others see it."""

    @property
    def host(self) -> str:
        """The peer's address."""
        ...

    def flush(self) -> None:
        """Send what there is to send."""
        ...

    def close(self) -> None:
        """Close once everything is sent."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...

    def descriptor(self) -> int:
        """Return the file descriptor; -1 if it is closed."""
        ...

    def write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        ...

    def take_turn(self) -> None:
        """Answer what was left."""
        ...

    @property
    def connection(self) -> Connection | None:
        """What answers; None after it is lost."""
        ...


class Connections:
    """The open connections and what they share.

    Args:
        engine: The state machine that answers.
        clock: The source of time.
        connection_factory: Makes what answers on a socket.
        max_per_host: Connections that one address may have; 0 for no limit.
        max_connections: Connections in all; 0 for no limit.
        turn: Seconds for which one connection is served before the others get their turn.

    Attributes:
        open: The accepted sockets by the connection that the operations see.
        on_accept: Called when a connection is counted.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        connection_factory: ConnectionFactory,
        *,
        max_per_host: int = 60,
        max_connections: int = 0,
        turn: float = TURN,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.connection_factory = connection_factory
        self.turns = TurnQueue(self.loop, turn)
        self.unread = UnreadBytes(engine)
        self.open: dict[ClientConnection, OpenSocket] = {}
        self.on_accept: Callable[[], None] = lambda: None
        self.last_descriptor = _descriptor_limit() - SPARE_DESCRIPTORS
        self._sweeping = False
        self._count = 0
        self._per_host: Counter[str] = Counter()
        self._max_per_host = max_per_host
        self._max_connections = max_connections
        self._all_closed = asyncio.Event()

    # --- limits ---

    def try_accept(self, host: str) -> bool:
        """Count a new connection, unless there are too many; return whether it was counted."""
        too_many = self._max_per_host and self._per_host[host] >= self._max_per_host
        if too_many or (self._max_connections and self._count >= self._max_connections):
            self.engine.metrics.refuse("connections")
            self.engine.warnings.warn(
                f"connections {host}",
                "refusing %s: it has %d connections (maxClientCnxns), all together %d (maxCnxns)",
                host,
                self._per_host[host],
                self._count,
            )
            return False
        self._per_host[host] += 1
        self._count += 1
        self.on_accept()
        return True

    def release(self, host: str) -> None:
        """Count one connection less."""
        self._count -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def is_last_descriptor(self, number: int) -> bool:
        """Return whether so few descriptors are left that a connection with this one may only send a command."""
        if number < self.last_descriptor:
            return False
        self.warn_of_descriptors()
        return True

    def warn_of_descriptors(self) -> None:
        """Log that descriptors run out."""
        self.engine.warnings.warn(
            "descriptors",
            "running out of file descriptors: %d connections are open, and %d descriptors is the process's limit "
            "(ulimit -n); only four-letter words are answered on new connections",
            self._count,
            self.last_descriptor + SPARE_DESCRIPTORS,
        )

    # --- beginning and end ---

    def add(self, client: ClientConnection, socket: OpenSocket) -> None:
        """Record an open connection."""
        self.open[client] = socket

    def remove(self, client: ClientConnection, socket: OpenSocket) -> None:
        """Record that a connection is gone."""
        self.turns.remove(socket)
        self.unread.forget(socket)
        if self.open.pop(client, None) is not None:
            self.release(client.host)
        if not self.open:
            self._all_closed.set()

    async def wait_closed(self, seconds: float | None) -> None:
        """Wait until no connection is open.

        Raises:
            TimeoutError: Some are still open after so many seconds.
        """
        if self.open:
            self._all_closed.clear()
            await asyncio.wait_for(self._all_closed.wait(), seconds)

    def abort_all(self) -> None:
        """Close all connections at once; what has not been sent is lost."""
        for socket in list(self.open.values()):
            socket.abort()

    # --- delivery ---

    def set_time(self) -> None:
        """Set the engine's time to the clock's."""
        self.engine.set_time(*self.clock.read())

    def deliver(self) -> None:
        """Send what connections have got by what others did."""
        pending = self.engine.pending_output
        while pending:
            clients = list(pending)
            pending.clear()
            for client in clients:
                socket = self.open.get(client)
                if socket is not None:
                    socket.flush()

    def sweep(self) -> None:
        """Remove the watches of connections that are gone, some in each round of the loop."""
        if not self._sweeping:
            self._sweeping = True
            self.loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        self.engine.watches.sweep()
        self._sweeping = False
        if self.engine.watches.unswept:
            self.sweep()


def _descriptor_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit != resource.RLIM_INFINITY else 1 << 30
