"""A running server: it listens, ticks, switches read-only mode, and stops.

Sessions expire by a clock that counts only the time for which the server could serve. A late tick means that the
process, or the machine, was paused or busy: what clients sent during that time has not been read, so their sessions
look older than they are. That time is subtracted from the clock, and no session expires before the bytes that arrived
have been read::

    ticking --a tick is more than STALL late--> recovering --RECOVERY seconds later--> ticking

A tick that is late while recovering is subtracted as well, but does not start another recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import TYPE_CHECKING, Final

from zoolet.server.admin.observed import Observed
from zoolet.server.net.acceptor import Acceptor, UnixAcceptor
from zoolet.server.net.connections import Connections
from zoolet.server.net.gc import GcTuner

if TYPE_CHECKING:
    import ssl  # importing it takes 10 ms, which most servers can save

    from zoolet.server.net.tls import SecureAcceptor, ServerContext

_log = logging.getLogger("zoolet.server")
STALL: Final = 0.05
"""Seconds by which a tick may be late before the server counts as having been paused."""
RECOVERY: Final = 0.05
"""Seconds after a pause for reading what clients have sent, before any session expires."""
STOP_SECONDS: Final = 4.0
"""Seconds that a stop takes at most, in which clients may read their remaining output."""


ROUNDS: Final = 4
"""Rounds of the event loop from a connection's acceptance until it is closed, for one that came just before a stop: the
loop makes a transport, reports it, and when it is aborted, closes its socket.
"""


class Daemon:
    """A server in the running event loop.

    Args:
        connections: The connections, and through them the engine and the clock.
        observed: The server, for those who ask how it is.
        backlog: Connections that may wait to be accepted.
        gc_tuner: Receives the size of the tree at each tick, if given.

    Attributes:
        port: The port, once the server listens; -1 before.
        secure_port: The port for TLS; -1 for none.
        next_tick: When the next tick is due, in the loop's time; None while nothing can become due.
        stall_warning: What is logged after a pause of a second or more, with the seconds.
        recovering: Whether the process was paused and the bytes that arrived meanwhile are being read.
    """

    def __init__(
        self,
        connections: Connections,
        observed: Observed | None = None,
        *,
        backlog: int = 128,
        gc_tuner: GcTuner | None = None,
    ) -> None:
        self.connections = connections
        self.observed = observed or Observed(connections.engine)
        self.engine = connections.engine
        self.port = self.secure_port = -1
        self.next_tick: float | None = None
        self.recovering = False
        self.stall_warning = "the server was stopped for %.1f s; sessions are extended by that time"
        self._loop = connections.loop
        self._clock = connections.clock
        self._backlog = backlog
        self._gc_tuner = gc_tuner
        self._acceptor = Acceptor(connections, backlog)
        self._secure: SecureAcceptor | None = None
        self._unix: UnixAcceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        connections.on_accept = self._start_ticking

    # --- listening ---

    async def start(
        self, host: str | None, port: int, context: ssl.SSLContext | None = None, *, at_once: bool = False
    ) -> int:
        """Start to listen; arguments, result and errors as for :meth:`Acceptor.start`.

        With a TLS context, which is for zoolet.testing, all connections of this port are over TLS; with *at_once*,
        which is for one address, this does not wait.
        """
        self._acceptor.context = context
        start = self._acceptor.start_at_once if at_once and host is not None else self._acceptor.start
        self.port = await start(host, port)  # type: ignore[arg-type] # it is not None there
        self.wake()
        return self.port

    async def start_secure(self, host: str | None, port: int, context: ServerContext) -> int:
        """Start to listen for connections over TLS, too.

        Args:
            host: As for :meth:`start`.
            port: As for :meth:`start`.
            context: The TLS context.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        from zoolet.server.net.tls import SecureAcceptor

        self._secure = SecureAcceptor(self.connections, context, self._backlog)
        self.observed.certificate_ends = context.certificate_ends
        self.wake()
        self.secure_port = await self._secure.start(host, port)
        return self.secure_port

    async def start_unix(self, path: str) -> None:
        """Start to listen on a unix socket, too; errors as for :meth:`UnixAcceptor.start`."""
        self._unix = UnixAcceptor(self.connections, self._backlog)
        await self._unix.start(path)
        self.wake()

    def use_certificates(self, context: ServerContext) -> None:
        """Use another TLS context for new connections."""
        if self._secure is not None:
            self._secure.context = context
            self.observed.certificate_ends = context.certificate_ends

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`; open connections stay open."""
        self._acceptor.refuse()

    def accept_connections(self) -> None:
        """Accept connections again, on the same port."""
        self._acceptor.accept()

    def move(self, used: Container[int]) -> int | None:
        """Listen on another port; as for :meth:`Acceptor.move`."""
        port = self._acceptor.move(used)
        self.port = port or self.port
        return port

    async def stop(self, *, gracefully: bool = True) -> bool:
        """Stop listening, send the remaining output, and close all connections; sessions stay alive.

        Args:
            gracefully: Wait for the clients to read their output, for :data:`STOP_SECONDS` with what the log takes;
                otherwise it is lost.

        Returns:
            Whether all that was executed is logged, if there is a log.
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
                socket.pause()  # what it asked for from now on could be answered, and not logged
            is_logged = await connections.log.close()
            gracefully = is_logged and gracefully  # never send what is not logged
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
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
        return is_logged

    def measure(self) -> None:
        """Time some requests from now on."""
        self.observed.samples = self.connections.measure().by_label

    def abort_all(self) -> None:
        """Close all connections at once; output that has not been sent is lost."""
        self.connections.abort_all()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are disconnected, and those that accept the mode reconnect."""
        self.connections.set_time()
        self.engine.set_read_only(on)
        self.connections.deliver()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all sockets, which a forked child process closes."""
        accepted = [socket.descriptor() for socket in self.connections.open.values()]
        return [number for number in (*self._acceptor.descriptors(), *accepted) if number >= 0]

    # --- time ---

    def tick(self) -> bool:
        """Do what is due now, and send the events that it causes; return whether more is due."""
        self.connections.set_time()
        self._touch_paused()
        more = self.engine.tick()
        self.connections.deliver()
        if self.engine.watches.unswept:
            self.connections.sweep()
        if self.connections.sampler is not None:
            self.connections.sampler.rotate(self.engine.monotonic_ms)
        if self._gc_tuner is not None:
            self._gc_tuner.grown(self.engine.tree.size)
        return more

    def _touch_paused(self) -> None:
        """Extend the sessions of clients that are not read from: whether they are alive cannot be known."""
        log, sessions = self.connections.log, self.engine.sessions
        for socket in log.paused() if log is not None else ():
            if (session := sessions.alive.get(socket.session_id)) is not None:
                sessions.touch(session, self.engine.monotonic_ms)

    def wake(self) -> None:
        """Schedule the next tick, unless nothing can become due: an unused server has no timer."""
        if not (self.engine.idle() and not self.connections.open):
            self._start_ticking()

    def _start_ticking(self) -> None:
        if self._timer is None:
            interval = min(self.engine.settings.tick_time, 1000)
            self._schedule((interval - self._clock.read()[1] % interval) / 1000)

    def _schedule(self, seconds: float) -> None:
        self.next_tick = self._loop.time() + seconds
        self._timer = self._loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self.ticked(self._loop.time() - self.next_tick if self.next_tick is not None else 0.0)

    def ticked(self, late: float) -> None:
        """Tick, unless the process was paused until just now; the loop's timer calls this.

        Args:
            late: By how many seconds the tick is late.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.next_tick = None
        self.engine.metrics.summaries["loop_lag"].observe(max(late, 0.0) * 1000)
        if late > STALL:
            self._forgive(late)
            if not self.recovering:
                self.recovering = True
                self._schedule(RECOVERY)
                return
        self.recovering = False
        try:
            if self.tick():
                self._schedule(0.0)  # the others are served first
        finally:  # the loop logs an error; sessions must expire nevertheless
            self.wake()

    def _forgive(self, seconds: float) -> None:
        milliseconds = round(seconds * 1000)
        self._clock.forgive(milliseconds)
        metrics = self.engine.metrics
        metrics.stalls += 1
        metrics.stalled_ms += milliseconds
        if seconds >= 1:
            self.engine.warnings.warn("stall", self.stall_warning, seconds)
