"""The open connections of a server, and their shared parts: engine, clock, turns, limits and the delivery of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

from ..admin import descriptors
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from ..core.server_connection import ConnectionState
from ..storage.output import TransactionLog
from .clock import Clock
from .lingering import Lingering
from .sampler import Sampler
from .turns import TURN, TurnQueue
from .unread import UnreadBytes

if TYPE_CHECKING:
    from .protocol import ServerProtocol

SPARE_DESCRIPTORS: Final = 8
"""Number of file descriptors that are reserved for four-letter commands, so operators can always query the server."""
SOCKETS_PER_CHECK: Final = 64
"""Number of new connections per check of a descriptor, while descriptors are not scarce."""

LOCAL_PEER: Final = ("unix", 0)
"""The address of all peers of Unix sockets. The limit per address does not apply to it. It is not in any network, so
ACLs of the scheme ``ip`` never match it.
"""


class SansIOConnection(Protocol):
    """A connection without I/O: a ``ServerConnection``, or a wrapper of one."""

    @property
    def client(self) -> ClientConnection:
        """The engine's view of the connection."""
        ...

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the socket has to be closed once all output is written. Always False before ``client.closing``."""
        ...

    @property
    def buffered(self) -> int:
        """The number of received bytes that are not answered yet."""
        ...

    def receive_data(self, data: bytes, until: float = ..., time: Callable[[], float] = ...) -> bool:
        """Receive bytes, and return whether complete requests remain for a later turn."""
        ...

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and clear the output."""
        ...

    def connection_lost(self) -> None:
        """Remove the connection, because the peer has disconnected."""
        ...


ConnectionFactory = Callable[[ClientConnection, Callable[[], None]], SansIOConnection]
"""A function that creates a connection. Its second argument is a function that makes the transport call
``receive_data(b"")`` and send the output.
"""


class Connections:
    """The open connections and their shared parts.

    Args:
        engine: The state machine that answers requests.
        clock: The source of time.
        connection_factory: A function that creates the connection for an accepted socket.
        max_per_host: Maximum number of connections from one address; 0 for no limit.
        max_connections: Maximum number of connections in total; 0 for no limit.
        turn: Time in seconds for serving one connection before the others get their turn.

    Attributes:
        open: The accepted sockets by their connections.
        on_open: A function that is called when a connection is open.
        log: The transaction log; None if transactions are not logged.
        sampler: The sampler that times some requests; None if requests are not timed.
        slow: Minimum duration in seconds of a batch of requests that is logged; infinite for never.
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
        self.lingering = Lingering(self.loop)
        self.open: dict[ClientConnection, ServerProtocol] = {}
        self.on_open: Callable[[], None] = lambda: None
        self.log: TransactionLog | None = None
        self.sampler: Sampler | None = None
        self.slow = inf
        self.stopping = False
        self.last_descriptor = descriptors.limit() - SPARE_DESCRIPTORS
        self._sweeping = False
        self._count = 0
        self._per_host: dict[str, int] = {}
        self._max_per_host = max_per_host
        self._max_connections = max_connections
        self._all_closed = asyncio.Event()
        self._until_check = 1  # number of new connections until a descriptor is looked up

    # --- limits ---

    def try_accept(self, host: str) -> bool:
        """Count a new connection, and return True. Log a warning and return False if a limit is reached."""
        own = self._per_host.get(host, 0)
        if self._max_per_host and own >= self._max_per_host and host != LOCAL_PEER[0]:
            return self._refuse(host, f"{own} connections from this address are already open (maxClientCnxns)")
        if self._max_connections and self._count >= self._max_connections:
            return self._refuse(host, f"{self._count} connections are already open in total (maxCnxns)")
        self._per_host[host] = own + 1
        self._count += 1
        return True

    def _refuse(self, host: str, reason: str) -> bool:
        self.engine.metrics.count_refusal("connections")
        self.engine.warnings.warn(f"connections {host}", "refusing a connection from %s: %s", host, reason)
        return False

    def release(self, host: str) -> None:
        """Subtract one connection from the count of an address."""
        self._count -= 1
        own = self._per_host.pop(host) - 1
        if own:
            self._per_host[host] = own

    def is_last_descriptor(self, socket: ServerProtocol) -> bool:
        """Return whether a new connection has one of the last descriptors, and log a warning if it has.

        Such a connection may only send a four-letter command.

        Reading the descriptor takes a system call. A new descriptor is the lowest free number, so while few files are
        open, all numbers are in the lower half, and only one connection in :data:`SOCKETS_PER_CHECK` is checked. Every
        connection is checked while more than half of the descriptors belong to connections, or if the last checked
        number was in the upper half, because the rest of the process needs many.
        """
        self._until_check -= 1
        half = self.last_descriptor >> 1
        if self._until_check > 0 and self._count <= half:
            return False
        number = socket.descriptor()
        self._until_check = SOCKETS_PER_CHECK if number < half else 1
        if number < self.last_descriptor:
            return False
        self.warn_of_descriptors()
        return True

    def warn_of_descriptors(self) -> None:
        """Log that the process is running out of file descriptors."""
        self.engine.warnings.warn(
            "descriptors",
            "running out of file descriptors: %d connections are open, and the limit is %d descriptors (ulimit -n); "
            "only four-letter commands are answered on new connections",
            self._count,
            self.last_descriptor + SPARE_DESCRIPTORS,
        )

    # --- opening and closing ---

    def add(self, client: ClientConnection, socket: ServerProtocol) -> None:
        """Add an open connection."""
        self.open[client] = socket
        self.on_open()

    def remove(self, client: ClientConnection, socket: ServerProtocol) -> None:
        """Remove a connection whose socket is closed."""
        self.turns.remove(socket)
        self.unread.forget(socket)
        self.lingering.remove(socket)
        if self.open.pop(client, None) is not None:
            self.release(client.host)
        if not self.open:
            self._all_closed.set()

    async def wait_closed(self, seconds: float | None) -> None:
        """Wait until all connections are closed.

        Raises:
            TimeoutError: Some connections are still open after *seconds*.
        """
        if self.open:
            self._all_closed.clear()
            await asyncio.wait_for(self._all_closed.wait(), seconds)

    def abort_all(self) -> None:
        """Close all connections immediately. Unsent output is lost."""
        for socket in list(self.open.values()):
            socket.abort()

    # --- output and sampling ---

    def set_time(self) -> None:
        """Set the engine's time to the time of the clock."""
        self.engine.set_time(*self.clock.read())

    def deliver(self) -> None:
        """Send the output that requests of other connections caused, and start a commit of the log."""
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
        """Start timing a batch of requests, if requests are sampled. Call this when ``batches_left`` reaches 0."""
        sampler = self.sampler
        if sampler is not None:
            self.turns.batches_left = sampler.batches_until_next()
            sampler.begin()
        return sampler

    def measure(self) -> Sampler:
        """Start to time some batches of requests. Return the sampler that times them."""
        self.sampler = Sampler(self.engine)
        self.turns.batches_left = self.sampler.batches_until_next()
        return self.sampler

    def sweep(self) -> None:
        """Schedule the removal of the watches of lost connections, some in each iteration of the event loop."""
        if not self._sweeping:
            self._sweeping = True
            self.loop.call_soon(self._sweep)

    def _sweep(self) -> None:
        self.engine.watches.sweep()
        self._sweeping = False
        if self.engine.watches.unswept:
            self.sweep()
