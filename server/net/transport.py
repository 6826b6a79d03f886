"""Between a socket and a :class:`~zoolet.server.core.connection.Connection`.

Back-pressure goes both ways. A client that does not read its replies is not read from. What the server sends unasked,
events, has no such brake: a client for which more than ``max_unread`` bytes wait is cut off; its session lives on, and
what it missed it hears of when it comes back.

A connection that the server closes is shut for writing first and dropped once the peer has closed its side, or a second
after the last byte was sent: a close with unread bytes in the kernel would throw away what the peer has not read yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from zoolet.server.core.caller import Caller
from zoolet.server.core.connection import Connection

if TYPE_CHECKING:
    from zoolet.server.net.listener import Listener

_log = logging.getLogger("zoolet.server")
_HIGH, _LOW = 1 << 20, 1 << 18
LINGER: Final = 1.0
"""Seconds that a peer has to close its side once everything is sent."""
PATIENCE: Final = 30
"""How often that long a peer may take to read, of what is still to be sent, nothing at all."""


class Transport(asyncio.Protocol):
    """One accepted socket.

    Args:
        listener: Who accepted it, and has the engine and the clock.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._engine = listener.engine
        self._read_clock = listener.clock.read
        self._transport: asyncio.Transport | None = None
        self.connection: Connection | None = None
        """What answers; None before it is made and after it is lost."""
        self._choked = False  # the peer does not read
        self._stalled = False  # requests are left for a later turn
        self._linger: asyncio.TimerHandle | None = None

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvloop's are not subclasses
        """Take the socket, unless its host has too many already."""
        host, port = (transport.get_extra_info("peername") or ("127.0.0.1", 0))[:2]
        if not self._listener.admits(host):
            transport.close()
            return
        self._transport = transport
        transport.set_write_buffer_limits(_HIGH, _LOW)
        self._listener.open[self] = host
        self._tell_time()
        self.connection = self._listener.connection(self, Caller(host, port, self.flush))

    def data_received(self, data: bytes) -> None:
        """Answer what arrived, and send what others have got by it."""
        connection = self.connection
        if connection is None or self._linger is not None:
            return
        engine, metrics = self._engine, self._engine.metrics
        started = time.perf_counter()
        before = metrics.packets_received
        engine.now, engine.uptime = self._read_clock()
        try:
            self._stalled = connection.receive(data)
        except Exception:
            # A defect of ours: this connection is lost, no other.
            session = connection.caller.session
            _log.exception(
                "closing the connection of session 0x%x after an internal error", session.id if session else 0
            )
            engine.hang_up(connection.caller)
            self._stalled = False
        connection.caller.flush()
        if engine.watches.dirty:
            self._listener.deliver()
        metrics.answered(max(0, metrics.packets_received - before), (time.perf_counter() - started) * 1000)
        if self._stalled:
            self._stall()

    def eof_received(self) -> bool:
        """Close: whatever the peer asked for has been answered by now."""
        return False

    def pause_writing(self) -> None:
        """Read no more from a peer that does not read."""
        self._choked = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with a peer that has caught up."""
        self._choked = False
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its watches; its session lives on."""
        if self._linger is not None:
            self._linger.cancel()
        connection, self.connection, self._transport = self.connection, None, None
        self._listener.closed(self)
        if connection is not None:
            self._tell_time()
            connection.lost()

    # --- called by the server ---

    def flush(self) -> None:
        """Send what is in the caller's outbox, with one write, and close if it is to be closed."""
        transport, connection = self._transport, self.connection
        if transport is None or connection is None:
            return
        caller = connection.caller
        outbox = caller.outbox
        if outbox:
            transport.write(b"".join(outbox) if len(outbox) > 1 else outbox[0])
            outbox.clear()
            if self._choked and transport.get_write_buffer_size() > self._engine.settings.max_unread:
                _log.warning(
                    "cutting off %s:%d: it has not read %d bytes",
                    caller.host,
                    caller.port,
                    transport.get_write_buffer_size(),
                )
                transport.abort()
                return
        if caller.closing:
            self.close()

    def close(self) -> None:
        """Close once everything is sent and the peer has had a moment to read it."""
        transport = self._transport
        if transport is None or self._linger is not None:
            return
        if transport.can_write_eof():
            transport.write_eof()
            if self._choked or self._stalled:
                transport.resume_reading()
            self._linger = self._listener.loop.call_later(
                LINGER, self._let_go, transport.get_write_buffer_size(), PATIENCE
            )
        else:
            transport.close()

    def descriptor(self) -> int:
        """Give the socket's file descriptor; -1 if it is closed."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        return socket.fileno() if socket is not None else -1

    def abort(self) -> None:
        """Close at once; what has not been sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _let_go(self, unsent: int, patience: int) -> None:
        """Drop the connection if all is sent or the peer has stopped reading; otherwise look again in a while."""
        transport = self._transport
        if transport is None:
            return
        left = transport.get_write_buffer_size()
        patience = PATIENCE if left < unsent else patience - 1
        if left and patience:
            self._linger = self._listener.loop.call_later(LINGER, self._let_go, left, patience)
        else:
            transport.abort()

    def _tell_time(self) -> None:
        self._engine.now, self._engine.uptime = self._read_clock()

    def _stall(self) -> None:
        assert self._transport is not None
        if not self._choked:
            self._transport.pause_reading()
            self._listener.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is None or self._choked or self._transport.is_closing():
            return
        if self._stalled:
            self._stalled = False
            self.data_received(b"")
        if not self._stalled:
            self._transport.resume_reading()
