"""A running server, with its listening sockets, its timer, and its graceful stop.

Sessions expire by a clock that counts only the time when the server could serve requests. A late tick means that the
process, or the machine, was paused or busy. The data that clients sent during that time has not been read, so their
sessions look older than they are. That time is subtracted from the clock, and no session expires before the received
bytes have been read::

    ticking --a tick is late--> recovering --RECOVERY_SECONDS later--> ticking

The delay of a late tick while recovering is also subtracted, but does not start a new recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from ..admin.observed import MonitoredServer
from .acceptor import Acceptor, UnixAcceptor
from .connections import Connections
from .gc import GcTuner

if TYPE_CHECKING:
    import ssl  # the import takes 10 ms, and most servers do not need it

    from .tls import SecureAcceptor, ServerContext

_log = logging.getLogger("zoolet.server")
MAX_TICK_DELAY_SECONDS: Final = 0.05
"""Maximum delay of a tick in seconds. A longer delay means that the server was paused."""
RECOVERY_SECONDS: Final = 0.05
"""Seconds after a pause before any session may expire, because received data must be read first."""
STOP_SECONDS: Final = 4.0
"""Maximum duration of a stop in seconds. Clients may read their remaining output during this time."""


CLOSING_ITERATIONS: Final = 4
"""Iterations of the event loop for closing a connection that was accepted just before a stop. The loop creates a
transport, reports it to the protocol, and closes the socket after the protocol has aborted it.
"""


class Daemon:
    """A server in the running event loop.

    Args:
        connections: The connections, which also provide the engine and the clock.
        observed: The view of the server for reports.
        backlog: Maximum number of connections that wait to be accepted.
        gc_tuner: Tuner of the garbage collector, which receives the size of the tree at each tick; None for no tuning.

    Attributes:
        port: The port; -1 until the server listens.
        secure_port: The port for TLS; -1 if the server does not listen for TLS connections.
        next_tick: Time of the next tick, in the loop's time; None while nothing can become due.
        stall_warning: Message that is logged after a pause of a second or more, with the number of seconds.
        recovering: Whether the server is reading the bytes that arrived during a pause of the process.
    """

    def __init__(
        self,
        connections: Connections,
        observed: MonitoredServer | None = None,
        *,
        backlog: int = 128,
        gc_tuner: GcTuner | None = None,
    ) -> None:
        self.connections = connections
        self.observed = observed or MonitoredServer(connections.engine)
        self.engine = connections.engine
        self.port = self.secure_port = -1
        self.next_tick: float | None = None
        self.recovering = False
        self.stall_warning = "the server was paused for %.1f s; sessions are extended by that time"
        self._loop = connections.loop
        self._clock = connections.clock
        self._backlog = backlog
        self._gc_tuner = gc_tuner
        self._acceptor = Acceptor(connections, backlog)
        self._secure: SecureAcceptor | None = None
        self._unix: UnixAcceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        connections.on_open = self._start_ticking

    # --- listening ---

    async def start(
        self, host: str | None, port: int, context: ssl.SSLContext | None = None, *, without_waiting: bool = False
    ) -> int:
        """Start listening. The arguments, the result and the errors are the same as for :meth:`Acceptor.start`.

        With *context*, all connections to this port use TLS; only zoolet.testing does this. With *without_waiting*, the
        method does not wait, and *host* must be one numeric address or mean all addresses.
        """
        self._acceptor.context = context
        self.port = await (self._acceptor.start_without_waiting if without_waiting else self._acceptor.start)(
            host, port
        )
        self.wake()
        return self.port

    async def start_secure(self, host: str | None, port: int, context: ServerContext) -> int:
        """Also start listening for TLS connections.

        Args:
            host: The addresses, as for :meth:`Acceptor.start`.
            port: Port number; 0 for a free port.
            context: The TLS context.

        Returns:
            The port number.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
        """
        from .tls import SecureAcceptor

        self._secure = SecureAcceptor(self.connections, context, self._backlog)
        self.observed.certificate_ends = context.certificate_ends
        self.wake()
        self.secure_port = await self._secure.start(host, port)
        return self.secure_port

    async def start_unix(self, path: str) -> None:
        """Also start listening on a Unix socket. The errors are the same as for :meth:`UnixAcceptor.start`."""
        self._unix = UnixAcceptor(self.connections, self._backlog)
        await self._unix.start(path)
        self.wake()

    def use_certificates(self, context: ServerContext) -> None:
        """Use a new TLS context for new connections."""
        if self._secure is not None:
            self._secure.context = context
            self.observed.certificate_ends = context.certificate_ends

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`. Open connections stay open."""
        self._acceptor.refuse()

    def accept_connections(self) -> None:
        """Accept connections again, on the same port."""
        self._acceptor.accept()

    def move(self, used: Container[int]) -> int | None:
        """Move to a different port. See :meth:`Acceptor.move`."""
        port = self._acceptor.move(used)
        self.port = port or self.port
        return port

    async def stop(self, *, gracefully: bool = True) -> bool:
        """Stop listening, send the remaining output, and close all connections. Sessions stay alive.

        Args:
            gracefully: Whether to wait until the clients have read their output, for up to :data:`STOP_SECONDS`
                including the time for the log. Otherwise the output is lost.

        Returns:
            Whether all executed transactions are logged. True if the server has no log.
        """
        is_logged = True
        if self._timer is not None:
            self._timer.cancel()
        connections, deadline = self.connections, self._loop.time() + STOP_SECONDS
        connections.stopping = True
        await self._acceptor.close()
        if self._secure is not None:
            await self._secure.close()
        if self._unix is not None:
            self._unix.close()
        if connections.log is not None:
            for socket in list(connections.open.values()):
                socket.pause()  # later requests could be answered without being logged
            is_logged = await connections.log.close()
            gracefully = is_logged and gracefully  # replies whose transactions are not logged must not be sent
            connections.log = None
        for socket in list(connections.open.values()):
            if gracefully:
                socket.flush()
                socket.close()
            else:
                socket.abort()
        try:
            await connections.wait_closed(max(0.0, deadline - self._loop.time()) if gracefully else None)
        except TimeoutError:
            _log.warning("disconnecting %d clients that do not read", len(connections.open))
            connections.abort_all()
            await connections.wait_closed(None)
        await self._acceptor.wait_closed()
        for _ in range(CLOSING_ITERATIONS):
            await asyncio.sleep(0)
        return is_logged

    def measure(self) -> None:
        """Start to time some batches of requests, for the metrics."""
        self.observed.samples = self.connections.measure().by_label

    def abort_all(self) -> None:
        """Close all connections immediately. Unsent output is lost."""
        self.connections.abort_all()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off. All clients are disconnected, and clients that accept the mode reconnect."""
        self.connections.set_time()
        self.engine.set_read_only(on)
        self.connections.deliver()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all sockets, which a forked child process closes."""
        accepted = [socket.descriptor() for socket in self.connections.open.values()]
        return [number for number in (*self._acceptor.descriptors(), *accepted) if number >= 0]

    # --- ticks and pauses ---

    def tick(self) -> bool:
        """Process everything that is due, and send the resulting events. Return whether more work is due."""
        self.connections.set_time()
        self._extend_paused_sessions()
        more = self.engine.tick()
        self.connections.deliver()
        if self.engine.watches.unswept:
            self.connections.sweep()
        if self.connections.sampler is not None:
            self.connections.sampler.rotate(self.engine.monotonic_ms)
        if self._gc_tuner is not None:
            self._gc_tuner.freeze_if_grown(self.engine.tree.size)
        return more

    def _extend_paused_sessions(self) -> None:
        """Extend the sessions of clients whose sockets the log has paused, because their pings are not read."""
        log, sessions = self.connections.log, self.engine.sessions
        for socket in log.paused() if log is not None else ():
            if (session := sessions.alive.get(socket.session_id)) is not None:
                sessions.touch(session, self.engine.monotonic_ms)

    def wake(self) -> None:
        """Schedule the next tick, unless nothing can become due. An unused server has no timer."""
        if not (self.engine.is_idle() and not self.connections.open):
            self._start_ticking()

    def _start_ticking(self) -> None:
        if self._timer is None:
            interval = min(self.engine.settings.tick_time, 1000)
            self._schedule((interval - self._clock.read()[1] % interval) / 1000)

    def _schedule(self, seconds: float) -> None:
        self.next_tick = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self.on_tick(self._loop.time() - self.next_tick if self.next_tick is not None else 0.0)

    def on_tick(self, late: float) -> None:
        """Tick, or start a recovery if the tick is late because the process was paused. The loop's timer calls this.

        Args:
            late: Delay of the tick in seconds.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.next_tick = None
        self.engine.metrics.summaries["loop_lag"].observe(max(late, 0.0) * 1000)
        if late > MAX_TICK_DELAY_SECONDS:
            self._subtract_pause(late)
            if not self.recovering:
                self.recovering = True
                self._schedule(RECOVERY_SECONDS)
                return
        self.recovering = False
        try:
            if self.tick():
                self._schedule(0.0)  # in the next iteration, so clients are served in between
        finally:  # after an error, which the loop logs, sessions must still expire
            self.wake()

    def _subtract_pause(self, seconds: float) -> None:
        milliseconds = round(seconds * 1000)
        self._clock.subtract_pause(milliseconds)
        metrics = self.engine.metrics
        metrics.stalls += 1
        metrics.stalled_ms += milliseconds
        if seconds >= 1:
            self.engine.warnings.warn("stall", self.stall_warning, seconds)
