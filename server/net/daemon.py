"""A running server: it listens, lets time pass, switches read-only mode, and stops.

Sessions end by a clock that counts only the time during which the server could serve. A tick that comes late means that
the process was stopped, or busy, or the machine with it: what clients sent meanwhile has not been read, so that their
sessions look older than they are. That time is taken out of the clock, and no session is ended before what arrived
meanwhile has been read.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from zoolet.server.net.acceptor import Acceptor, free_port_of_all_addresses
from zoolet.server.net.connections import Connections
from zoolet.server.net.gc import GcTuner

if TYPE_CHECKING:
    import ssl  # 10 ms of start that most servers can do without

    from zoolet.server.net.tls import SecureAcceptor

_log = logging.getLogger("zoolet.server")
STALL: Final = 0.05
"""Seconds by which a tick may be late before the server counts as having been stopped."""
RECOVERY: Final = 0.05
"""Seconds after that in which what clients sent meanwhile is read, before any session is ended."""
STOP_SECONDS: Final = 5.0
"""Seconds that clients have to read what is on its way to them when the server stops."""


class Daemon:
    """A server in the running loop.

    Args:
        connections: The connections, and through them the engine and the clock.
        backlog: Connections that may wait to be accepted.
        gc_tuner: Receives the size of the tree at each tick, if given.

    Attributes:
        port: The port, once it listens; -1 for none.
        secure_port: The port for TLS; -1 for none.
        next_tick: When the next tick is due, in the loop's time; None while there is nothing that time could change.
        recovering: The process was stopped, and what came meanwhile is being read.
    """

    def __init__(self, connections: Connections, *, backlog: int = 128, gc_tuner: GcTuner | None = None) -> None:
        self.connections = connections
        self.engine = connections.engine
        self.port = self.secure_port = -1
        self.next_tick: float | None = None
        self.recovering = False
        self._loop = connections.loop
        self._clock = connections.clock
        self._backlog = backlog
        self._gc_tuner = gc_tuner
        self._acceptor = Acceptor(connections, backlog)
        self._secure: SecureAcceptor | None = None
        self._timer: asyncio.TimerHandle | None = None
        connections.on_accept = self._start_ticking

    # --- listening ---

    async def start(self, host: str | None, port: int) -> int:
        """Listen; arguments, result and errors as for :meth:`Acceptor.start`."""
        self.port = await self._acceptor.start(host, port)
        self.wake()
        return self.port

    async def start_secure(self, host: str | None, port: int, context: ssl.SSLContext) -> int:
        """Listen for connections over TLS too.

        Args:
            host: As for :meth:`start`.
            port: As for :meth:`start`.
            context: The certificates and what clients have to show.

        Returns:
            The port.

        Raises:
            OSError: The address is in use or is not this machine's.
        """
        from zoolet.server.net.tls import SecureAcceptor

        if host is None and port == 0:
            port = free_port_of_all_addresses()
        self._secure = SecureAcceptor(self.connections, context, self._backlog)
        self.wake()
        self.secure_port = await self._secure.start(host, port)
        return self.secure_port

    def use_certificates(self, context: ssl.SSLContext) -> None:
        """Use other certificates for the TLS connections that come from now on."""
        if self._secure is not None:
            self._secure.context = context

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`; open connections stay."""
        self._acceptor.refuse()

    def accept_connections(self) -> None:
        """Accept connections again, on the same port."""
        self._acceptor.accept()

    async def stop(self, *, gracefully: bool = True) -> None:
        """Accept no more, send what there is to send, and close all connections; sessions are left as they are.

        Args:
            gracefully: Wait up to five seconds for the clients to read what is on its way.
        """
        if self._timer is not None:
            self._timer.cancel()
        await self._acceptor.close()
        if self._secure is not None:
            await self._secure.close()
        connections = self.connections
        for socket in list(connections.open.values()):
            if gracefully:
                socket.flush()
                socket.close()
            else:
                socket.abort()
        try:
            await connections.wait_closed(STOP_SECONDS if gracefully else None)
        except TimeoutError:
            _log.warning("disconnecting %d clients that do not read", len(connections.open))
            connections.abort_all()
            await connections.wait_closed(None)
        await self._acceptor.wait_closed()

    def abort_all(self) -> None:
        """Close all connections at once; what has not been sent is lost."""
        self.connections.abort_all()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are disconnected, and those that accept the mode reconnect."""
        self.connections.set_time()
        self.engine.set_read_only(on)
        self.connections.deliver()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all sockets, for a forked child to close."""
        served = [socket.descriptor() for socket in self.connections.open.values()]
        return [number for number in (*self._acceptor.descriptors(), *served) if number >= 0]

    # --- time ---

    def tick(self) -> None:
        """Do what is due now."""
        self.connections.set_time()
        self.engine.tick()
        self.connections.deliver()
        if self.engine.watches.unswept:
            self.connections.sweep()
        if self._gc_tuner is not None:
            self._gc_tuner.grown(self.engine.tree.size)

    def wake(self) -> None:
        """Let time pass, unless there is nothing that it could change: an unused server sleeps."""
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
        """Tick, unless the process was stopped until just now; the loop's timer calls this.

        Args:
            late: Seconds by which the tick comes later than it was due.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.next_tick = None
        if late > STALL:
            self._forgive(late)
            if not self.recovering:
                self.recovering = True
                self._schedule(RECOVERY)
                return
        self.recovering = False
        try:
            self.tick()
        finally:  # the loop logs what went wrong; sessions have to go on ending all the same
            self.wake()

    def _forgive(self, seconds: float) -> None:
        milliseconds = round(seconds * 1000)
        self._clock.forgive(milliseconds)
        metrics = self.engine.metrics
        metrics.stalls += 1
        metrics.stalled_ms += milliseconds
        if seconds >= 1:
            self.engine.warnings.warn(
                "stall", "the server was stopped for %.1f s; sessions are extended by that time", seconds
            )
