"""The open connections of a server, and what they share: engine, clock, turns, limits and the delivery of events."""

from __future__ import annotations

import asyncio
import resource
from collections import Counter
from collections.abc import Callable
from math import inf
from typing import Final, Protocol

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import State
from zoolet.server.net.clock import Clock
from zoolet.server.net.sampler import Sampler
from zoolet.server.net.turns import TURN, TurnQueue
from zoolet.server.net.unread import UnreadBytes
from zoolet.server.storage.output import Output, TransactionLog

SPARE_DESCRIPTORS: Final = 8
"""File descriptors that are reserved for four-letter commands, so that operators can still query the server."""


LOCAL_PEER: Final = ("unix", 0)
"""Stands for the address of the peer of a unix socket, of which there may be any number. It is in no network, so that
no ACL of scheme ``ip`` allows it anything.
"""


class SansIOConnection(Protocol):
    """A connection without I/O: a ``ServerConnection``, or a wrapper of one."""

    @property
    def client(self) -> ClientConnection:
        """The connection as the operations see it."""
        ...

    @property
    def state(self) -> State:
        """The state of the connection."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed once all output is written."""
        ...

    def receive_data(self, data: bytes, until: float = ..., time: Callable[[], float] = ...) -> bool:
        """Receive bytes; return whether complete requests remain for a later turn."""
        ...

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and clear the output."""
        ...

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        ...


ConnectionFactory = Callable[[ClientConnection, Callable[[], None]], SansIOConnection]
"""Creates a connection. The second argument makes the transport call ``receive_data(b"")`` and send the output."""


class OpenSocket(Output, Protocol):
    """An accepted socket, as other parts of the server see it."""

    @property
    def host(self) -> str:
        """The peer's address."""
        ...

    def flush(self) -> None:
        """Send the pending output."""
        ...

    def close(self) -> None:
        """Close once all output is sent."""
        ...

    def abort(self) -> None:
        """Close at once; output that has not been sent is lost."""
        ...

    def descriptor(self) -> int:
        """Return the file descriptor; -1 if the socket is closed."""
        ...

    def write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        ...

    def take_turn(self) -> None:
        """Answer the requests that remain."""
        ...

    @property
    def connection(self) -> SansIOConnection | None:
        """The connection without I/O; None after the socket is closed."""
        ...


class Connections:
    """The open connections and what they share.

    Args:
        engine: The state machine that answers requests.
        clock: The source of time.
        connection_factory: Creates the connection for an accepted socket.
        max_per_host: The most connections from one address; 0 for no limit.
        max_connections: The most connections in total; 0 for no limit.
        turn: Seconds for which one connection is served before the others get their turn.

    Attributes:
        open: The accepted sockets by their connections.
        on_accept: Called when a connection is counted, and when it is open.
        log: Where transactions are logged; None if they are not.
        sampler: Times some requests; None if nobody looks at that.
        slow: Seconds from which on a batch of requests is logged; infinite for never.
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
        self.log: TransactionLog | None = None
        self.sampler: Sampler | None = None
        self.slow = inf
        self.stopping = False
        self.last_descriptor = _descriptor_limit() - SPARE_DESCRIPTORS
        self._sweeping = False
        self._count = 0
        self._per_host: Counter[str] = Counter()
        self._max_per_host = max_per_host
        self._max_connections = max_connections
        self._all_closed = asyncio.Event()

    # --- limits ---

    def try_accept(self, host: str) -> bool:
        """Count a new connection and return True, or return False if there are too many."""
        too_many = self._max_per_host and self._per_host[host] >= self._max_per_host and host != LOCAL_PEER[0]
        if too_many or (self._max_connections and self._count >= self._max_connections):
            self.engine.metrics.refuse("connections")
            self.engine.warnings.warn(
                f"connections {host}",
                "refusing %s: it has %d connections (maxClientCnxns) of %d in total (maxCnxns)",
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
        """Count one connection less from an address."""
        self._count -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def is_last_descriptor(self, number: int) -> bool:
        """Return whether a connection with this descriptor, one of the last, may only send a four-letter command."""
        if number < self.last_descriptor:
            return False
        self.warn_of_descriptors()
        return True

    def warn_of_descriptors(self) -> None:
        """Log that the process runs out of file descriptors."""
        self.engine.warnings.warn(
            "descriptors",
            "running out of file descriptors: %d connections are open, and the limit is %d descriptors (ulimit -n); "
            "only four-letter commands are answered on new connections",
            self._count,
            self.last_descriptor + SPARE_DESCRIPTORS,
        )

    # --- beginning and end ---

    def add(self, client: ClientConnection, socket: OpenSocket) -> None:
        """Add an open connection."""
        self.open[client] = socket
        self.on_accept()  # a TLS handshake may have outlasted the ticking that its accept started

    def remove(self, client: ClientConnection, socket: OpenSocket) -> None:
        """Remove a connection whose socket is closed."""
        self.turns.remove(socket)
        self.unread.forget(socket)
        if self.open.pop(client, None) is not None:
            self.release(client.host)
        if not self.open:
            self._all_closed.set()

    async def wait_closed(self, seconds: float | None) -> None:
        """Wait until no connection is open.

        Raises:
            TimeoutError: Some are still open after *seconds*.
        """
        if self.open:
            self._all_closed.clear()
            await asyncio.wait_for(self._all_closed.wait(), seconds)

    def abort_all(self) -> None:
        """Close all connections at once; output that has not been sent is lost."""
        for socket in list(self.open.values()):
            socket.abort()

    # --- delivery ---

    def set_time(self) -> None:
        """Set the engine's time to the clock's."""
        self.engine.set_time(*self.clock.read())

    def deliver(self) -> None:
        """Send the events that requests of other connections have caused."""
        pending = self.engine.pending_output
        while pending:
            clients = list(pending)
            pending.clear()
            for client in clients:
                socket = self.open.get(client)
                if socket is not None:
                    socket.flush()
        if self.log is not None:
            self.log.commit_soon()

    def begin_sample(self) -> Sampler | None:
        """Begin to look at a batch of requests; called when no batch is left until then."""
        sampler = self.sampler
        if sampler is not None:
            self.turns.batches_left = sampler.next()
            sampler.begin()
        return sampler

    def measure(self) -> Sampler:
        """Look at some batches from now on."""
        self.sampler = Sampler(self.engine)
        self.turns.batches_left = self.sampler.next()
        return self.sampler

    def sweep(self) -> None:
        """Remove the watches of connections that are gone, some in each iteration of the event loop."""
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
