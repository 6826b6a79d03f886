"""Accept connections, and let time pass."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import FourLetterCommand, ServerConnection
from zoolet.server.net.clock import Clock
from zoolet.server.net.gc import GcTuner
from zoolet.server.net.protocol import TURN, ServerProtocol

if TYPE_CHECKING:
    import ssl  # 10 ms of start that most servers can do without

    from zoolet.server.net.tls import SecureAcceptor

_log = logging.getLogger("zoolet.server")
STALL: Final = 0.05
"""Seconds by which the tick may be late before the server counts as having stood still."""
RECOVERY: Final = 0.05
"""Seconds after that in which what clients sent meanwhile is read, before any session is ended."""
STOP_SECONDS: Final = 5.0
"""Seconds that clients have to read what is on its way to them when the server stops."""
SECONDS_A_BYTE: Final = 2e-9
"""What sending costs: 2 ms a MB, copied into the kernel and out of fresh memory."""
SPARE_DESCRIPTORS: Final = 8
"""Descriptors kept for four-letter words, so that an operator can ask the server what is going on."""


class Daemon:
    """A listening socket in the running loop, its connections and the tick.

    Args:
        engine: What answers.
        clock: What time it is.
        words: The four-letter words that are answered.
        max_per_host: Connections that one address may have; 0 for no limit.
        max_connections: Connections in all; 0 for no limit.
        backlog: Connections that may wait to be accepted.
        collector: Told of the size of the tree at each tick, if given.
        connection: Makes what answers on a transport; by default a plain :class:`ServerConnection`.
        turn: Seconds for which one connection is served before the others get their turn.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        four_letter_commands: dict[bytes, FourLetterCommand],
        *,
        max_per_host: int = 60,
        max_connections: int = 0,
        backlog: int = 128,
        gc_tuner: GcTuner | None = None,
        connection: Callable[[ServerProtocol, ClientConnection], ServerConnection] | None = None,
        turn: float = TURN,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.four_letter_commands = four_letter_commands
        self.connection = connection or (
            lambda transport, client: ServerConnection(engine, client, four_letter_commands)
        )
        self.loop = asyncio.get_running_loop()
        self.port = self.secure_port = -1
        """The ports, once it listens; -1 for none."""
        self.open: dict[ServerProtocol, str] = {}
        """The open connections and the host of each."""
        self.turn = turn
        self.queued: dict[ServerProtocol, None] = {}
        """Connections that wait for their next turn, in order."""
        self.busy_since = self.busy_until = 0.0
        """When the server began to answer without a pause, and when it last did, in seconds of ``perf_counter``."""
        self._turns_scheduled = False
        self._round_ends = 0.0  # when those that wait have had their time
        self._unread = 0  # bytes that wait for peers that do not read; may be too high, never too low
        self._not_reading: dict[ServerProtocol, None] = {}
        self._sweeping = False
        self._last_descriptor = _descriptor_limit() - SPARE_DESCRIPTORS
        self._connections = 0
        self._per_host: Counter[str] = Counter()
        self._max_per_host = max_per_host
        self._max_connections = max_connections
        self._backlog = backlog
        self._collector = gc_tuner
        self._server: asyncio.Server | None = None
        self._secure: SecureAcceptor | None = None
        self._refused: tuple[int, Any] | None = None  # family and address that connections are refused at
        self._placeholder: socket.socket | None = None  # keeps the port meanwhile
        self._resuming: asyncio.Task[None] | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._tick_due = 0.0  # in the loop's time
        self._recovering = False  # the server stood still, and what came meanwhile is being read
        self._all_closed = asyncio.Event()

    async def start(self, host: str | None, port: int) -> int:
        """Listen.

        Args:
            host: An address or name; None for all addresses of the machine.
            port: 0 for a free one.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        if host is None and port == 0:
            port = _port_of_all_addresses()
        self._server = await self.loop.create_server(lambda: ServerProtocol(self), host, port, backlog=self._backlog)
        self.wake()
        bound: socket.socket = self._server.sockets[0]
        self.port = int(bound.getsockname()[1])
        return self.port

    async def start_secure(self, host: str | None, port: int, context: ssl.SSLContext) -> int:
        """Listen for connections over TLS too.

        Args:
            host: As for :meth:`start`.
            port: As for :meth:`start`.
            context: What the server needs for it.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        from zoolet.server.net.tls import SecureAcceptor

        if host is None and port == 0:
            port = _port_of_all_addresses()
        self._secure = SecureAcceptor(self, context, self._backlog)
        self.wake()
        self.secure_port = await self._secure.start(host, port)
        return self.secure_port

    def use_certificates(self, context: ssl.SSLContext) -> None:
        """Use other certificates for the TLS connections that come from now on."""
        if self._secure is not None:
            self._secure.context = context

    def refuse(self) -> None:
        """Accept no more, so that clients are refused, until :meth:`accept`; the port stays taken."""
        if self._server is None or self._refused is not None:
            return
        bound: socket.socket = self._server.sockets[0]
        self._refused = bound.family, bound.getsockname()
        self._server.close()
        self._keep_port()

    def _keep_port(self) -> None:
        if self._refused is None:
            return
        family, address = self._refused
        placeholder = _socket(family)
        try:
            placeholder.bind(address)
        except OSError:  # uvloop closes what listened some turns later
            placeholder.close()
            self.loop.call_soon(self._keep_port)
        else:
            self._placeholder = placeholder

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        if self._refused is None:
            return
        family, address = self._refused
        self._refused = None
        if self._placeholder is not None:
            self._placeholder.close()
            self._placeholder = None
        listening = _socket(family)
        listening.bind(address)
        listening.listen(self._backlog)  # whoever comes from now on waits until the loop listens too
        self._resuming = self.loop.create_task(self._listen_on(listening))

    async def _listen_on(self, listening: socket.socket) -> None:
        self._server = await self.loop.create_server(
            lambda: ServerProtocol(self), sock=listening, backlog=self._backlog
        )

    async def stop(self, *, patient: bool = True) -> None:
        """Accept no more, send what there is to send, and close all connections; sessions are left as they are.

        Args:
            patient: Wait up to five seconds for the clients to read what is on its way.
        """
        if self._tick is not None:
            self._tick.cancel()
        if self._resuming is not None:
            await self._resuming
        refused, self._refused = self._refused, None
        if self._placeholder is not None:
            self._placeholder.close()
        if self._server is not None and refused is None:
            self._server.close()
        if self._secure is not None:
            await self._secure.close()
        for transport in list(self.open):
            if patient:
                transport.flush()
                transport.close()
            else:
                transport.abort()
        if self.open:
            self._all_closed.clear()
            try:
                await asyncio.wait_for(self._all_closed.wait(), STOP_SECONDS if patient else None)
            except TimeoutError:
                _log.warning("disconnecting %d clients that do not read", len(self.open))
                self.abort_all()
                await self._all_closed.wait()
        if self._server is not None:
            await self._server.wait_closed()

    def abort_all(self) -> None:
        """Close all connections at once; what has not been sent is lost."""
        for transport in list(self.open):
            transport.abort()

    def read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are cut off, and those that accept the mode come back."""
        self.engine.set_time(*self.clock.read())
        self.engine.set_read_only(on)
        self.deliver()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all sockets, for a fork to let go of."""
        listening = [one.fileno() for one in self._server.sockets] if self._server is not None else []
        placeholder = [self._placeholder.fileno()] if self._placeholder is not None else []
        served = [transport.descriptor() for transport in self.open]
        return [number for number in (*listening, *placeholder, *served) if number >= 0]

    # --- called by transports ---

    def admits(self, host: str) -> bool:
        """Count a new connection, unless there are too many; return whether it was counted."""
        too_many = self._max_per_host and self._per_host[host] >= self._max_per_host
        if too_many or (self._max_connections and self._connections >= self._max_connections):
            self.engine.metrics.refuse("connections")
            self.engine.warnings.warn(
                f"connections {host}",
                "refusing %s: it has %d connections (maxClientCnxns), all together %d (maxCnxns)",
                host,
                self._per_host[host],
                self._connections,
            )
            return False
        self._per_host[host] += 1
        self._connections += 1
        if self._tick is None:
            self._schedule()
        return True

    def release(self, host: str) -> None:
        """Count one connection less."""
        self._connections -= 1
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]

    def closed(self, transport: ServerProtocol) -> None:
        """Record that a connection is gone."""
        host = self.open.pop(transport, None)
        self.queued.pop(transport, None)
        if host is not None:
            self.release(host)
        if not self.open:
            self._all_closed.set()

    def is_last_descriptor(self, number: int) -> bool:
        """Return whether so few descriptors are left that a connection with this one may only ask what is going on."""
        if number < self._last_descriptor:
            return False
        self.warn_of_descriptors()
        return True

    def warn_of_descriptors(self) -> None:
        """Log that descriptors run out."""
        self.engine.warnings.warn(
            "descriptors",
            "running out of file descriptors: %d connections are open, and %d descriptors is the process's limit "
            "(ulimit -n); only four-letter words are answered on new connections",
            self._connections,
            self._last_descriptor + SPARE_DESCRIPTORS,
        )

    # --- turns ---

    def queue(self, transport: ServerProtocol) -> None:
        """Queue a connection for its next turn; those in the queue share one turn in each round of the loop."""
        self.queued[transport] = None
        self._schedule_turns()

    def _schedule_turns(self) -> None:
        if not self._turns_scheduled:
            self._turns_scheduled = True
            self.loop.call_soon(self._next_turn)

    def charge(self, size: int) -> None:
        """Count the time that it will take to send so many bytes, which happens when no turn is under way."""
        seconds = size * SECONDS_A_BYTE
        self.busy_since -= seconds
        self._round_ends -= seconds

    def _next_turn(self) -> None:
        self._turns_scheduled = False
        waiting, self.queued = self.queued, {}  # a connection that is not done yet queues behind them
        self._round_ends = time.perf_counter() + self.turn
        try:
            while waiting:
                transport = next(iter(waiting))
                del waiting[transport]
                transport.take_turn()
                if time.perf_counter() > self._round_ends:
                    break
        finally:
            if waiting:
                self.queued = waiting | self.queued
                self._schedule_turns()

    # --- what clients do not read ---

    def count_unread(self, transport: ServerProtocol, size: int) -> None:
        """Count the bytes that wait for a peer that does not read.

        Together they may not exceed ``max_write_buffer_total``, or the peers with most are disconnected. A single
        one may: its reply is as large as a node or a list of children, and no more is sent before it reads.
        """
        self._not_reading[transport] = None
        self._unread += size - transport.unread
        transport.unread = size
        limit = self.engine.settings.max_write_buffer_total
        if self._unread <= limit:
            return
        for one in self._not_reading:
            one.unread = one.write_buffer_size()
        self._unread = sum(one.unread for one in self._not_reading)
        while self._unread > limit and len(self._not_reading) > 1:
            worst = max(self._not_reading, key=lambda one: one.unread)
            self.engine.metrics.refuse("unread_total")
            self.engine.warnings.warn(
                "unread_total",
                "disconnecting %s: it has not read %d bytes, all clients together %d (zoolet.maxUnreadBytesTotal)",
                self.open.get(worst, "a client"),
                worst.unread,
                self._unread,
            )
            self.forget_unread(worst)
            worst.abort()

    def forget_unread(self, transport: ServerProtocol) -> None:
        """Count no bytes for this peer any more: it has read them, or is gone."""
        if transport in self._not_reading:
            del self._not_reading[transport]
            self._unread -= transport.unread
            transport.unread = 0

    # --- watches of those that are gone ---

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

    def deliver(self) -> None:
        """Send what connections have got by what others did."""
        dirty = self.engine.watches.pending_output
        while dirty:
            clients = list(dirty)
            dirty.clear()
            for client in clients:
                client.flush()

    # --- time ---

    def tick(self) -> None:
        """Do what is due now."""
        self.engine.set_time(*self.clock.read())
        self.engine.tick()
        self.deliver()
        if self.engine.watches.unswept:
            self.sweep()
        if self._collector is not None:
            self._collector.grown(self.engine.tree.size)

    def _schedule(self) -> None:
        interval = min(self.engine.settings.tick_time, 1000)
        self._schedule_in((interval - self.clock.read()[1] % interval) / 1000)

    def _schedule_in(self, seconds: float) -> None:
        self._tick_due = self.loop.time() + seconds
        self._tick = self.loop.call_later(seconds, self._ticked)

    def _ticked(self) -> None:
        """Tick, unless the server stood still until just now.

        It may have been stopped, or busy, or the machine with it: what clients sent meanwhile has not been read, so
        that their sessions look older than they are. That time is taken out of the clock by which sessions end, and
        none is ended before what came meanwhile has been read.
        """
        late = self.loop.time() - self._tick_due
        self._tick = None
        if late > STALL:
            self._forgive(late)
            if not self._recovering:
                self._recovering = True
                self._schedule_in(RECOVERY)
                return
        self._recovering = False
        try:
            self.tick()
        finally:  # whatever went wrong is the loop's to log; sessions have to go on ending all the same
            self.wake()

    def _forgive(self, seconds: float) -> None:
        milliseconds = round(seconds * 1000)
        self.clock.forgive(milliseconds)
        metrics = self.engine.metrics
        metrics.stalls += 1
        metrics.stalled_ms += milliseconds
        if seconds >= 1:
            self.engine.warnings.warn(
                "stall", "the server stood still for %.1f s; sessions get that much longer", seconds
            )

    def wake(self) -> None:
        """Let time pass, unless there is nothing that it could change: a server that nobody uses sleeps."""
        if self._tick is None and not (self.engine.idle() and not self.open):
            self._schedule()


def _descriptor_limit() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return limit if limit != resource.RLIM_INFINITY else 1 << 30


def _socket(family: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _port_of_all_addresses() -> int:
    """Find a free port: left to themselves, the IPv4 and the IPv6 socket would each take one of their own."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
