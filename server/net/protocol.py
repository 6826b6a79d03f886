"""The asyncio protocol of an accepted socket, between the transport and a
:class:`~zoolet.server.core.server_connection.ServerConnection`.

It calls the connection's ``receive_data`` with the bytes that were read, ``data_to_send`` for those to write, and
``connection_lost``. Requests that remain for a later turn wait in the :class:`~zoolet.server.net.turns.TurnQueue`;
until then the socket is not read.

Back-pressure: a client that does not read its replies is not read from. Events are not sent on request, so this does
not limit them: a client for which more than ``max_unread_bytes`` bytes of events wait is disconnected; its session
stays alive, and the events that it missed are sent when it has reconnected.

Two numbers decide when a connection is queued for its turn:

- ``_typical``, the seconds of its turns, is a moving average over about four of them. It begins above :data:`CHEAP`,
  so that a new connection counts as expensive, and falls below it after a few short turns. It rises by a fifth of CHEAP
  a turn at most: a connection that becomes expensive is queued after five turns or more, and one slow turn, which may
  be the machine's, queues nobody. Above CHEAP and while the server is busy, what is read is queued.
- ``_spent`` is what the connection has used of the present iteration of the event loop, in which uvloop may read it 32
  times. Above the length of a turn it waits for its next one; a pause of :data:`_SAME_ROUND` begins a new iteration.

When the server closes a connection, it shuts down its sending side first, and closes the socket when the peer has
closed its side, or a second after the last byte was sent: closing a socket with unread bytes in the kernel would
discard output that the peer has not read yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from math import inf
from time import perf_counter
from typing import Final

from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import State
from zoolet.server.net.connections import LOCAL_PEER, Connections, SansIOConnection
from zoolet.server.net.turns import BUSY, PAUSE

_log = logging.getLogger("zoolet.server")
_slow = logging.getLogger("zoolet.server.slow")
_HIGH, _LOW = 1 << 18, 1 << 16
LAST_TURN: Final = 0.1
"""Seconds for the requests that wait for a turn when the peer ends a TLS connection."""
SHORT_TURN: Final = 0.001
"""Seconds of a turn for a connection that receives data while others wait for their next turn."""
CHEAP: Final = 0.0005
"""Average seconds of a connection's turns up to which it is served as soon as it is read, without queueing."""
SMALL_INPUT: Final = 256
"""Bytes of a handshake and some small requests behind it."""
MAX_DEFERRED: Final = 1 << 16
"""Bytes of input that wait for a turn while the socket is read."""
CHARGED_OUTPUT: Final = 1 << 16
"""Bytes of output from which on a turn is charged for sending them, which uvloop does at the end of an iteration."""
Identify = Callable[[asyncio.Transport, ClientConnection], None]
"""Adds the identities that a transport shows to a connection."""
_SAME_ROUND: Final = 0.0002
"""Seconds between two reads below which they count as one: uvloop reads up to 32 times in one iteration."""
COMMAND_SECONDS: Final = 1.0
"""Seconds for a four-letter command on a connection that was accepted with one of the last descriptors."""
LINGER: Final = 1.0
"""Seconds that a peer has to close its side once all output is sent."""
LINGER_TRIES: Final = 30
"""For how many such periods a peer may read none of the remaining output."""


class ServerProtocol(asyncio.Protocol):
    """One accepted socket.

    Args:
        connections: The connections of the server.
        counted: Whether the connection was counted when it was accepted.
        identify: Adds the identities that the transport shows to a new connection; None if it shows none.
        is_local: The socket is a unix socket, whose peer has no address.
    """

    def __init__(
        self,
        connections: Connections,
        *,
        counted: bool = False,
        identify: Identify | None = None,
        is_local: bool = False,
    ) -> None:
        self._is_local = is_local
        self._connections = connections
        self._turns = connections.turns
        self._engine = connections.engine
        self._read_clock = connections.clock.read
        self._counted = counted
        self._identify = identify
        self.was_made = False
        """Whether ``connection_made`` was called and has accepted the connection."""
        self.host = ""
        """The peer's address."""
        self._transport: asyncio.Transport | None = None
        self.connection: SansIOConnection | None = None
        """The connection without I/O; None before it is created and after it is lost."""
        self._unread_events = 0  # bytes of events since the peer stopped reading
        self._write_paused = False  # the peer does not read, so its socket is not read
        self._held = False  # output waits for transactions to be logged
        self._log_paused = False  # so much of it waits that nothing more is read
        self._has_backlog = False  # requests remain for a later turn
        self._deferred: list[bytes] = []  # what was read while it was not this connection's turn
        self._deferred_size = 0
        self._finished = False  # the peer has closed its sending side
        self._typical = 2 * CHEAP  # seconds that a turn takes, averaged over the last few
        self._spent = 0.0  # seconds in this iteration of the event loop
        self._ended = 0.0  # when the last turn ended
        self._linger: asyncio.TimerHandle | None = None  # set once the sending side is shut down

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvloop's are not subclasses
        """Accept the connection, unless its host has too many."""
        peer = LOCAL_PEER if self._is_local else transport.get_extra_info("peername")
        if not peer:
            # It was reset before it was accepted. Its address is unknown, so neither ACLs of scheme ip nor the limit
            # of its host could be enforced, and there is no peer to read an answer.
            transport.abort()
            return
        host, port = peer[:2]
        connections = self._connections
        if connections.stopping:  # the loop accepted it before the stop, and reports it now: nobody would serve it
            transport.abort()
            return
        if not self._counted and not connections.try_accept(host):
            transport.close()
            return
        self._transport = transport
        self.was_made = True
        self.host = host
        transport.set_write_buffer_limits(_HIGH, _LOW)
        connections.set_time()
        client = ClientConnection(host, port)
        if self._identify is not None:
            self._identify(transport, client)
        self.connection = connections.connection_factory(client, self.answer)
        connections.add(client, self)
        if connections.is_last_descriptor(self.descriptor()):
            client.four_letter_only = True
            connections.loop.call_later(COMMAND_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answer the requests in *data*, and send the events that they cause, or defer *data* to the next turn."""
        turns = self._turns
        started = perf_counter()
        if self._deferred:
            self._defer(data)
            return
        if started - turns.busy_until > PAUSE:
            turns.busy_since = started
        elif self._typical > CHEAP and started - turns.busy_since > BUSY and turns.seconds < inf:
            connection = self.connection
            if connection is not None and connection.state is State.CONNECTING:  # a handshake takes 0.1 ms
                # What is behind it waits, unless that is little: a turn of its own would cost more.
                self._serve(data, started, SHORT_TURN if len(data) <= SMALL_INPUT else 0.0)
                return
            self._defer(data)
            return
        self._serve(data, started, SHORT_TURN if turns.queued else turns.seconds)

    def answer(self) -> None:
        """Answer the requests that remain, and send the pending output."""
        self.data_received(b"")

    def _defer(self, data: bytes) -> None:
        """Keep *data* until it is this connection's turn. Reading goes on while that is little, because pausing and
        resuming cost two system calls.
        """
        self._deferred.append(data)
        self._deferred_size += len(data)
        if self._deferred_size > MAX_DEFERRED:
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
        metrics.bytes_received += len(data)
        engine.now, engine.monotonic_ms = self._read_clock()
        turns = self._turns
        turns.batches_left -= 1
        sampler = self._connections.begin_sample() if not turns.batches_left else None
        try:
            self._has_backlog = connection.receive_data(data, started + seconds, perf_counter)
        except Exception:
            # A defect: it costs this connection, and no other.
            _log.exception(
                "closing the connection of session 0x%x after an internal error", connection.client.session_id
            )
            engine.close_connection(connection.client)
            self._has_backlog = False
        transport = self._transport
        if self._connections.log is not None or self._write_paused or transport is None:
            self.flush()
        else:  # flush() and _send(), for what nearly every batch has: two calls less are 4 % of one request at a time
            if reply := connection.data_to_send():
                transport.write(reply)
                size = len(reply)
                metrics.bytes_sent += size
                if size > CHARGED_OUTPUT:
                    turns.charge(size)
            is_cut = self._write_paused and not self._check_write_buffer(transport, connection.client)
            if connection.closing and not is_cut:
                self.close()
        if engine.pending_output:
            self._connections.deliver()
        ended = turns.busy_until = perf_counter()
        spent = ended - started
        requests = metrics.packets_received - before
        if requests > 0:  # not without a complete one, nor after srst
            metrics.answered(requests, spent * 1000)
        if sampler is not None:
            sampler.end(spent * 1000)
        if spent > CHEAP or self._typical > CHEAP or self._has_backlog:  # otherwise not worth its 0.3 microseconds
            self._charge(started, ended)

    def _charge(self, started: float, ended: float) -> None:
        """Charge a turn to the connection; if its time is used up, wait for the next turn."""
        spent = ended - started
        if spent > self._connections.slow:
            session_id, host = self.session_id, self.host
            _slow.warning("%.0f ms for a batch of requests of session 0x%x at %s", spent * 1000, session_id, host)
        self._typical += min((spent - self._typical) / 4, CHEAP / 5)  # bounded: one slow turn may be the machine's
        self._spent = spent if started - self._ended > _SAME_ROUND else self._spent + spent
        self._ended = ended
        if self._has_backlog or self._spent > self._turns.seconds:
            self._wait_for_turn()

    def eof_received(self) -> bool:
        """Close once all requests are answered; return True if some still wait, or their replies, so that the transport
        stays open.
        """
        self._finished = True
        transport = self._transport
        if self._deferred and transport is not None and not transport.can_write_eof():
            # TLS closes the transport whatever this returns, so the deferred requests are answered now.
            self._serve(self._pop_deferred(), perf_counter(), LAST_TURN)
        return bool(self._deferred or self._held)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read."""
        self._write_paused = True
        self._unread_events = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Queue a peer that reads again for its next turn."""
        self._write_paused = False
        self._connections.unread.forget(self)
        self._wait_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and its watches; its session stays alive."""
        if self._linger is not None:
            self._linger.cancel()
        connection, self.connection, self._transport = self.connection, None, None
        if connection is not None:
            if self._connections.log is not None:
                self._connections.log.forget(self)
            self._connections.remove(connection.client, self)
            self._connections.set_time()
            connection.connection_lost()
            if self._engine.watches.unswept:
                self._connections.sweep()

    # --- called by the server ---

    def flush(self) -> None:
        """Send the connection's output with one write, and close if it is to be closed; if it may show transactions
        that are not logged yet, this happens later.
        """
        connection, log = self.connection, self._connections.log
        if connection is None:
            return
        if log is not None and log.hold(self):
            self._held = True
            return
        self._send(connection.data_to_send(), connection.closing)

    def _send(self, data: bytes, closing: bool) -> None:
        transport, connection = self._transport, self.connection
        if transport is None or connection is None:
            return
        if data:
            if self._write_paused:  # nothing is read, so this is not a reply: it is events
                self._unread_events += len(data)
            transport.write(data)
            self._engine.metrics.bytes_sent += len(data)
            if len(data) > CHARGED_OUTPUT:
                self._turns.charge(len(data))
            if self._write_paused and not self._check_write_buffer(transport, connection.client):
                return
        if closing:
            self.close()

    # --- called by the log ---

    @property
    def session_id(self) -> int:
        """The session of the connection; 0 if it has none."""
        return self.connection.client.session_id if self.connection is not None else 0

    def pop_output(self) -> tuple[bytes, bool]:
        """Return the bytes to send, and whether the connection is to be closed behind them."""
        connection = self.connection
        return (b"", False) if connection is None else (connection.data_to_send(), connection.closing)

    def send_output(self, data: bytes, closing: bool, last: bool) -> None:
        """Send bytes that have waited; *last* says that no others wait."""
        self._held = not last
        self._send(data, closing)
        if last and self._finished and not (self._deferred or self._has_backlog) and self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read nothing more until :meth:`resume`."""
        self._log_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again."""
        self._log_paused = False
        self._wait_for_turn()

    # --- closing, and turns ---

    def _check_write_buffer(self, transport: asyncio.Transport, client: ClientConnection) -> bool:
        """Count the bytes that wait for a peer that does not read; disconnect it, or another, if they are too many."""
        if self._unread_events > self._engine.settings.max_unread_bytes:
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
        """Whether the peer does not read its output, so that it is not read from."""
        return self._write_paused

    def write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        """Close once all output is sent and the peer has had time to read it."""
        transport = self._transport
        if transport is None or self._linger is not None:
            return
        can_write_eof = transport.can_write_eof()
        if not can_write_eof and transport.is_closing():  # TLS has no buffer to ask for any more
            return
        unsent = transport.get_write_buffer_size()
        if can_write_eof:
            try:
                transport.write_eof()
            except OSError:  # the peer has reset the connection, and the loop has not noticed yet
                transport.abort()
                return
        elif not unsent:
            transport.close()  # TLS: has LINGER seconds in all, so not while there is output
            return
        if not transport.is_reading():
            transport.resume_reading()
        self._linger = self._connections.loop.call_later(LINGER, self._close_if_done, unsent, LINGER_TRIES)

    def descriptor(self) -> int:
        """Return the socket's file descriptor; -1 if it is closed."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        return socket.fileno() if socket is not None else -1

    def abort(self) -> None:
        """Close at once; output that has not been sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    def _close_if_done(self, unsent: int, tries: int) -> None:
        """Close the socket if all output is sent or the peer has stopped reading; otherwise check again later."""
        transport = self._transport
        if transport is None:
            return
        remaining = transport.get_write_buffer_size()
        tries = LINGER_TRIES if remaining < unsent else tries - 1
        if remaining and tries:
            self._linger = self._connections.loop.call_later(LINGER, self._close_if_done, remaining, tries)
        elif remaining or transport.can_write_eof():
            transport.abort()
        else:
            transport.close()  # with close_notify of TLS

    def _wait_for_turn(self) -> None:
        """Stop reading until it is this connection's turn."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            self._turns.enqueue(self)

    def take_turn(self) -> None:
        """Answer the requests that remain, and resume reading unless there are more or the peer does not read."""
        transport = self._transport
        if transport is None or self._write_paused or self._log_paused or transport.is_closing():
            return  # resume_writing or resume queues it again
        self._spent = 0.0
        if self._has_backlog or self._deferred:
            data = self._pop_deferred()
            self._has_backlog = False
            self._serve(data, perf_counter(), self._turns.seconds)
            if self._has_backlog or self._write_paused or self._log_paused or self._spent > self._turns.seconds:
                return  # it is in the queue again, or will be when the peer reads
        if self._finished:
            if not self._held:  # otherwise send_output does it
                transport.close()
        elif self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()
