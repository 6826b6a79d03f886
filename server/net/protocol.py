"""Between a socket and a :class:`~zoolet.server.core.server_connection.ServerConnection`.

It calls the connection's three verbs: ``receive_data`` with what was read, ``data_to_send`` for what to write, and
``connection_lost``. What is left for a later turn waits in the :class:`~zoolet.server.net.turns.TurnQueue`; meanwhile
the socket is not read from.

Back-pressure goes both ways. A client that does not read its replies is not read from. What the server sends
unrequested, events, has no such brake: a client for which more than ``max_write_buffer`` bytes of events wait is
disconnected; its session lives on, and it is notified of what it missed when it comes back.

A connection that the server closes is shut for writing first and dropped once the peer has closed its side, or a second
after the last byte was sent: a close with unread bytes in the kernel would discard what the peer has not read yet.
"""

from __future__ import annotations

import asyncio
import logging
from math import inf
from time import perf_counter
from typing import Final

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import State
from zoolet.server.net.connections import Connection, Connections
from zoolet.server.net.turns import BUSY, PAUSE

_log = logging.getLogger("zoolet.server")
_HIGH, _LOW = 1 << 18, 1 << 16
LAST_TURN: Final = 0.1
"""Seconds for what waited for a turn when a peer ends a TLS connection."""
SHORT_TURN: Final = 0.001
"""Seconds of a turn for a connection from which something arrives while others wait for their next turn."""
CHEAP: Final = 0.0005
"""Seconds that the turns of a connection take on average, up to which it never has to queue when it is read."""
_MUCH: Final = 1 << 16
"""Bytes of output whose sending, which uvloop does at the end of a round, is worth counting; bytes of input that may
wait for a turn before no more is read.
"""
_SAME_ROUND: Final = 0.0002
"""Seconds between two reads below which they count as one: uvloop reads up to 32 times in one round of the loop."""
COMMAND_SECONDS: Final = 1.0
"""Seconds for a four-letter command on a connection that was accepted with one of the last descriptors."""
LINGER: Final = 1.0
"""Seconds that a peer has to close its side once everything is sent."""
LINGER_TRIES: Final = 30
"""How often that long a peer may take to read, of what is still to be sent, nothing at all."""


class ServerProtocol(asyncio.Protocol):
    """One accepted socket.

    Args:
        connections: What it shares with all other connections of the server.
        counted: Whether the connection has been counted when it was accepted.
    """

    def __init__(self, connections: Connections, *, counted: bool = False) -> None:
        self._connections = connections
        self._turns = connections.turns
        self._engine = connections.engine
        self._read_clock = connections.clock.read
        self._counted = counted
        self.was_made = False
        """Whether ``connection_made`` was called and took the connection over."""
        self.host = ""
        """The peer's address."""
        self._transport: asyncio.Transport | None = None
        self.connection: Connection | None = None
        """What answers; None before it is made and after it is lost."""
        self._unread_events = 0  # bytes that were sent since the peer stopped reading
        self._write_paused = False  # the peer does not read
        self._has_backlog = False  # requests are left for a later turn
        self._deferred: list[bytes] = []  # what was read while others were served
        self._deferred_size = 0
        self._finished = False  # the peer sends no more
        self._typical = 2 * CHEAP  # seconds that a turn takes, averaged over the last few
        self._spent = 0.0  # seconds of this round of the loop
        self._ended = 0.0  # when the last turn did
        self._linger: asyncio.TimerHandle | None = None

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvloop's are not subclasses
        """Take the socket, unless its host has too many already."""
        peer = transport.get_extra_info("peername")
        if not peer:
            # It was reset before it was accepted. Nobody can say whose it was, so neither the ACLs of scheme ip nor
            # the limit of its host could be kept; and nobody is there to read an answer.
            transport.abort()
            return
        host, port = peer[:2]
        connections = self._connections
        if not self._counted and not connections.try_accept(host):
            transport.close()
            return
        self._transport = transport
        self.was_made = True
        self.host = host
        transport.set_write_buffer_limits(_HIGH, _LOW)
        connections.set_time()
        client = ClientConnection(host, port)
        self.connection = connections.connection_factory(client, self.resume)
        connections.add(client, self)
        if connections.is_last_descriptor(self.descriptor()):
            client.four_letter_only = True
            connections.loop.call_later(COMMAND_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answer what arrived, and send what others have got by it."""
        turns = self._turns
        started = perf_counter()
        if self._deferred:
            self._defer(data)
            return
        if started - turns.busy_until > PAUSE:
            turns.busy_since = started
        elif self._typical > CHEAP and started - turns.busy_since > BUSY and turns.seconds < inf:
            connection = self.connection
            if connection is not None and connection.state is not State.CONNECTING:  # a handshake takes 0.1 ms
                self._defer(data)
                return
        self._serve(data, started, SHORT_TURN if turns.queued else turns.seconds)

    def resume(self) -> None:
        """Receive what was left, and send what there is."""
        self.data_received(b"")

    def _defer(self, data: bytes) -> None:
        """Keep what was read until it is this connection's turn; read on as long as that is little, for to stop and to
        go on reading costs two system calls.
        """
        self._deferred.append(data)
        self._deferred_size += len(data)
        if self._deferred_size > _MUCH:
            self._wait_for_turn()
        else:
            self._turns.enqueue(self)

    def _pop_deferred(self) -> bytes:
        data = b"".join(self._deferred)
        self._deferred.clear()
        self._deferred_size = 0
        return data

    def _serve(self, data: bytes, started: float, seconds: float) -> None:
        connection = self.connection
        if connection is None or self._linger is not None:
            return
        engine, metrics = self._engine, self._engine.metrics
        before = metrics.packets_received
        engine.now, engine.monotonic_ms = self._read_clock()
        try:
            self._has_backlog = connection.receive_data(data, started + seconds, perf_counter)
        except Exception:
            # A defect of ours: this connection is lost, no other.
            session = connection.client.session
            _log.exception(
                "closing the connection of session 0x%x after an internal error", session.id if session else 0
            )
            engine.close_connection(connection.client)
            self._has_backlog = False
        self.flush()
        if engine.pending_output:
            self._connections.deliver()
        ended = self._turns.busy_until = perf_counter()
        spent = ended - started
        metrics.answered(max(0, metrics.packets_received - before), spent * 1000)
        if spent > CHEAP or self._typical > CHEAP or self._has_backlog:  # else it is not worth the 0.3 microseconds
            self._charge(started, ended)

    def _charge(self, started: float, ended: float) -> None:
        """Count a turn, and let the connection wait for the next one if it has used up this one."""
        spent = ended - started
        self._typical += min((spent - self._typical) / 4, CHEAP / 5)  # one slow turn may be the machine's fault
        self._spent = spent if started - self._ended > _SAME_ROUND else self._spent + spent
        self._ended = ended
        if self._has_backlog or self._spent > self._turns.seconds:
            self._wait_for_turn()

    def eof_received(self) -> bool:
        """Close, once what the peer has asked for is answered; return whether that is still to be done."""
        self._finished = True
        transport = self._transport
        if self._deferred and transport is not None and not transport.can_write_eof():
            # TLS: the connection is closed in a moment whatever is returned, so what waited is answered now.
            self._serve(self._pop_deferred(), perf_counter(), LAST_TURN)
        return bool(self._deferred)

    def pause_writing(self) -> None:
        """Read no more from a peer that does not read."""
        self._write_paused = True
        self._unread_events = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Go on with a peer that has caught up."""
        self._write_paused = False
        self._connections.unread.forget(self)
        self._wait_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its watches; its session lives on."""
        if self._linger is not None:
            self._linger.cancel()
        connection, self.connection, self._transport = self.connection, None, None
        if connection is not None:
            self._connections.remove(connection.client, self)
            self._connections.set_time()
            connection.connection_lost()
            if self._engine.watches.unswept:
                self._connections.sweep()

    # --- called by the server ---

    def flush(self) -> None:
        """Send what the connection has to send, with one write, and close if it is to be closed."""
        transport, connection = self._transport, self.connection
        if transport is None or connection is None:
            return
        data = connection.data_to_send()
        if data:
            if self._write_paused:  # what is sent now is not a reply, for nothing is read: it is events
                self._unread_events += len(data)
            transport.write(data)
            if len(data) > _MUCH:
                self._turns.charge(len(data))
            if self._write_paused and not self._may_wait(transport, connection.client):
                return
        if connection.closing:
            self.close()

    def _may_wait(self, transport: asyncio.Transport, client: ClientConnection) -> bool:
        """Count what waits for a peer that does not read; disconnect it, or another one, if that is too much."""
        if self._unread_events > self._engine.settings.max_write_buffer:
            self._engine.metrics.refuse("unread")
            self._engine.warnings.warn(
                "unread",
                "disconnecting %s:%d: it has not read %d bytes (zoolet.maxUnreadBytes)",
                client.host,
                client.port,
                transport.get_write_buffer_size(),
            )
            transport.abort()
            return False
        self._connections.unread.count(self, transport.get_write_buffer_size())
        return True

    @property
    def write_paused(self) -> bool:
        """Whether the peer does not read, so that it is not read from."""
        return self._write_paused

    def write_buffer_size(self) -> int:
        """Return how many bytes wait to be sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        """Close once everything is sent and the peer has had a moment to read it."""
        transport = self._transport
        if transport is None or self._linger is not None:
            return
        unsent = transport.get_write_buffer_size()
        if transport.can_write_eof():
            transport.write_eof()
        elif not unsent:
            transport.close()  # TLS, which has a second to end; with something to send it would have no more than that
            return
        if not transport.is_reading():
            transport.resume_reading()
        self._linger = self._connections.loop.call_later(LINGER, self._drop_if_done, unsent, LINGER_TRIES)

    def descriptor(self) -> int:
        """Return the socket's file descriptor; -1 if it is closed."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        return socket.fileno() if socket is not None else -1

    def abort(self) -> None:
        """Close at once; what has not been sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _drop_if_done(self, unsent: int, tries: int) -> None:
        """Drop the connection if all is sent or the peer has stopped reading; otherwise look again in a while."""
        transport = self._transport
        if transport is None:
            return
        left = transport.get_write_buffer_size()
        tries = LINGER_TRIES if left < unsent else tries - 1
        if left and tries:
            self._linger = self._connections.loop.call_later(LINGER, self._drop_if_done, left, tries)
        elif left or transport.can_write_eof():
            transport.abort()
        else:
            transport.close()  # with TLS's own end, close_notify

    def _wait_for_turn(self) -> None:
        """Read no more until it is this connection's turn again."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            self._turns.enqueue(self)

    def take_turn(self) -> None:
        """Answer what was left, and read on unless more is left or the peer does not read."""
        transport = self._transport
        if transport is None or self._write_paused or transport.is_closing():
            return  # resume_writing queues it again
        self._spent = 0.0
        if self._has_backlog or self._deferred:
            data = self._pop_deferred()
            self._has_backlog = False
            self._serve(data, perf_counter(), self._turns.seconds)
            if self._has_backlog or self._write_paused or self._spent > self._turns.seconds:
                return  # it is in the queue again, or will be
        if self._finished:
            transport.close()
        elif self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()
