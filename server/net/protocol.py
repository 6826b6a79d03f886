"""The asyncio protocol of an accepted socket, between the transport and a
:class:`~zoolet.server.core.server_connection.ServerConnection`.

It calls the connection's ``receive_data`` with received bytes, ``data_to_send`` for bytes to write, and
``connection_lost``. Requests that remain for a later turn wait in the :class:`~zoolet.server.net.turns.TurnQueue`. The
socket is not read until then.

Back-pressure: the socket of a client that does not read its replies is not read. This does not limit events, because
they are not requested. A client with more than ``max_unread_bytes`` bytes of unread events is disconnected. Its session
stays alive, and the missed events are sent after it reconnects.

Two numbers decide when a connection is queued for its turn:

- ``_average`` is the average duration of about four last turns. While the server is busy, the input of a
  connection whose average is above :data:`CHEAP` is queued. The average starts above CHEAP, so a new connection must
  first have a few short turns. It rises by at most a fifth of CHEAP per turn, so a connection that becomes expensive is
  queued after five turns or more, and a single slow turn, which may be caused by the machine, has no effect. Input that
  is not one light request (:mod:`~zoolet.server.core.light`) is always queued on a busy server, because many
  connections may complete a heavy request in one iteration.
- ``_spent`` is the time that the connection has used in the current iteration of the event loop. uvloop may read it 32
  times in one iteration. Above the length of a turn, the connection waits for its next turn. A pause of
  :data:`_MAX_GAP_SECONDS` starts a new iteration.

When the server closes a connection, it first shuts down its sending side. It closes the socket when the peer has closed
its side, or a second after the last byte was sent. Closing a socket with unread bytes in the kernel would discard
output that the peer has not read yet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from math import inf
from typing import Final

from ...protocol.four_letter_words import URGENT_COMMANDS
from ...protocol.hexadecimal import hexadecimal
from ..core.client_connection import ClientConnection
from ..core.light import is_light
from ..core.server_connection import ConnectionState
from .connections import LOCAL_PEER, Connections, SansIOConnection
from .listening import peer_host
from .turns import BUSY, PAUSE

_log = logging.getLogger("zoolet.server")
_slow_log = logging.getLogger("zoolet.server.slow")
_HIGH_WATER_BYTES, _LOW_WATER_BYTES = 1 << 18, 1 << 16
LAST_TURN_SECONDS: Final = 0.1
"""Maximum time in seconds for answering deferred requests when the peer closes a TLS connection."""
SHORT_TURN_SECONDS: Final = 0.001
"""Length of a turn in seconds, if a connection receives data while other connections are queued."""
CHEAP: Final = 0.0005
"""Maximum average duration of a connection's turns, in seconds, for serving it without queueing."""
SESSION_ID: Final = slice(20, 28)
"""The position of the session id in a handshake. The id is 0 for a new session."""
MAX_DEFERRED: Final = 1 << 16
"""Maximum number of bytes that wait for a turn while the socket is still read."""
CHARGED_OUTPUT_BYTES: Final = 1 << 16
"""Bytes of output above which sending is charged to a turn. uvloop sends them at the end of an iteration."""
CLEANING_FRACTION: Final = 1 / 16
"""Time for sending the output of a turn and freeing its memory, as a fraction of the turn. This is not a pause."""
Identify = Callable[[asyncio.Transport, ClientConnection], None]
"""A function that adds the identities of a transport to a connection."""
_MAX_GAP_SECONDS: Final = 0.0002
"""Maximum seconds between reads that count as one iteration, because uvloop reads up to 32 times in an iteration."""
COMMAND_SECONDS: Final = 1.0
"""Seconds for a four-letter command on a connection that was accepted with one of the last descriptors."""


class ServerProtocol(asyncio.Protocol):
    """The protocol of one accepted socket.

    Args:
        connections: The connections of the server.
        counted: Whether the connection was counted when it was accepted.
        identify: A function that adds the identities of the transport to a new connection; None to add none.
        is_local: Whether the socket is a Unix socket, whose peer has no address.
    """

    _now = staticmethod(time.perf_counter)  # an attribute, because freezegun replaces names of modules in tests

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
        self._client: ClientConnection | None = None
        self._read_clock = connections.clock.read
        self._counted = counted
        self._identify = identify
        self.was_accepted = False
        """Whether ``connection_made`` has accepted the connection."""
        self.host = ""
        """The peer's address."""
        self._transport: asyncio.Transport | None = None
        self.connection: SansIOConnection | None = None
        """The connection without I/O; None before it is created and after it is lost."""
        self._unread_events = 0  # bytes of events since the peer stopped reading
        self._write_paused = False  # the peer does not read, so its socket is not read
        self._held = False  # output waits for transactions to be logged
        self._log_paused = False  # too much output waits for the log, so the socket is not read
        self._has_backlog = False  # requests remain for a later turn
        self._deferred: list[bytes] = []  # input that was read before this connection's turn
        self._deferred_size = 0
        self._eof_received = False  # the peer has closed its sending side
        self._average = 2 * CHEAP  # moving average of the seconds of a turn
        self._spent = 0.0  # seconds used in this iteration of the event loop
        self._ended = 0.0  # end of the last turn
        self._lingers = False  # the sending side is shut down, and the peer has yet to close its side

    # --- called by asyncio ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # no subclass in uvloop
        """Create the connection without I/O. Close the socket if the server is stopping or a limit is reached."""
        peer = LOCAL_PEER if self._is_local else transport.get_extra_info("peername")
        if not peer:
            # The connection was reset before it was accepted. Without an address, neither ACLs of the scheme ip nor the
            # limit per host could be enforced. No peer would read a reply anyway.
            transport.abort()
            return
        host, port = peer_host(peer), peer[1]
        connections = self._connections
        if connections.stopping:  # the loop accepted the connection before the stop, but would never serve it
            transport.abort()
            return
        if not self._counted and not connections.try_accept(host):
            transport.close()
            return
        self._transport = transport
        self.was_accepted = True
        self.host = host
        transport.set_write_buffer_limits(_HIGH_WATER_BYTES, _LOW_WATER_BYTES)
        self._engine.now, self._engine.monotonic_ms = self._read_clock()
        self._client = client = ClientConnection(host, port)
        client.is_secure = transport.get_extra_info("sslcontext") is not None
        if self._identify is not None:
            self._identify(transport, client)
        self.connection = connections.connection_factory(client, self.answer)
        connections.add(client, self)
        if connections.is_last_descriptor(self):
            client.four_letter_only = True
            connections.loop.call_later(COMMAND_SECONDS, self.abort)

    def data_received(self, data: bytes) -> None:
        """Answer the requests in *data*, and send the events that they cause, or defer *data* to the next turn."""
        turns = self._turns
        started = self._now()
        if self._deferred:
            self._defer(data)
            return
        if started - turns.busy_until > PAUSE and not turns.queued:
            turns.busy_since = started
        elif started - turns.busy_since > BUSY and turns.seconds < inf:
            connection, client = self.connection, self._client
            if connection is None or client is None:
                return
            if self._average > CHEAP or connection.buffered or not is_light(self._engine, client, data):
                self._serve_if_urgent_or_defer(data, started, connection, client)
                return
        self._serve(data, started, SHORT_TURN_SECONDS if turns.queued else turns.seconds)

    def _serve_if_urgent_or_defer(
        self, data: bytes, started: float, connection: SansIOConnection, client: ClientConnection
    ) -> None:
        """Answer a handshake or an urgent four-letter command, and defer any other input."""
        is_first = connection.state is ConnectionState.CONNECTING and not connection.buffered
        if not is_first or (data[:1] != b"\0" and data[:4] not in URGENT_COMMANDS):
            self._defer(data)
            return
        # A handshake takes 0.1 ms. Requests after the handshake wait, unless the only one is light, in a new session.
        is_new = data[:3] == bytes(3) and data[SESSION_ID] == bytes(8)
        is_short = is_new and is_light(self._engine, client, data[data[3] + 4 :])
        self._serve(data, started, SHORT_TURN_SECONDS if is_short else 0.0)

    def answer(self) -> None:
        """Answer the requests that remain, and send the pending output."""
        self.data_received(b"")

    def _defer(self, data: bytes) -> None:
        """Keep *data* until it is this connection's turn.

        Up to :data:`MAX_DEFERRED` bytes are kept before reading is paused, because pausing and resuming cost two system
        calls.
        """
        self._deferred.append(data)
        self._deferred_size += len(data)
        if self._deferred_size > MAX_DEFERRED:
            self._wait_for_turn()
        else:
            connection, client = self.connection, self._client
            is_alone = connection is not None and not connection.buffered and len(self._deferred) == 1
            light = is_alone and client is not None and is_light(self._engine, client, data)
            self._turns.enqueue(self, is_light=light)

    def _pop_deferred(self) -> bytes:
        data = b"".join(self._deferred)
        self._deferred.clear()
        self._deferred_size = 0
        return data

    def _serve(self, data: bytes, started: float, seconds: float) -> None:
        connection = self.connection
        client = self._client
        if connection is None or client is None or self._lingers:
            return
        engine, metrics = self._engine, self._engine.metrics
        before = metrics.packets_received
        metrics.bytes_received += len(data)
        engine.now, engine.monotonic_ms = self._read_clock()
        turns = self._turns
        turns.batches_left -= 1
        sampler = self._connections.begin_sample() if not turns.batches_left else None
        try:
            self._has_backlog = connection.receive_data(data, started + seconds, self._now)
        except Exception:
            # Close only this connection: a defect must not stop the server.
            address, session = client.address, hexadecimal(client.session_id)
            _log.exception("closing the connection of %s, session %s, after an internal error", address, session)
            engine.close_connection(client)
            self._has_backlog = False
        transport = self._transport
        if self._connections.log is not None or self._write_paused or transport is None:
            self.flush()
        else:  # flush() and _send() are inlined, which makes a client with one request at a time 4 % faster
            if reply := connection.data_to_send():
                transport.write(reply)
                size = len(reply)
                metrics.bytes_sent += size
                if size > CHARGED_OUTPUT_BYTES:
                    turns.charge(size)
                    del reply  # freeing a megabyte takes 0.3 ms, which would look like a pause after this turn
            is_cut = self._write_paused and not self._check_write_buffer(transport, client)
            if client.closing and connection.closing and not is_cut:
                engine.pending_output.pop(client, None)  # all output of the client was sent
                self.close()
        if engine.pending_output:
            self._connections.deliver()
        ended = turns.busy_until = self._now()
        spent = ended - started
        requests = metrics.packets_received - before
        if requests > 0:  # 0 if no request was complete, negative after srst has reset the counter
            metrics.count_latency(requests, spent * 1000)
        if sampler is not None:
            sampler.end(spent * 1000)
        if spent > CHEAP or self._average > CHEAP or self._has_backlog:  # skipped for cheap turns, which saves 0.3 us
            self._charge(started, ended)

    def _charge(self, started: float, ended: float) -> None:
        """Update the connection's average and its used time after a turn, and log a slow turn.

        If requests remain, or the time is used up, queue the connection for its next turn.
        """
        spent = ended - started
        if spent > self._connections.slow:
            session, host = hexadecimal(self.session_id), self.host
            _slow_log.warning("slow batch of requests: %.0f ms for session %s at %s", spent * 1000, session, host)
        self._average += min((spent - self._average) / 4, CHEAP / 5)  # bounded, because the machine may slow a turn
        self._spent = spent if started - self._ended > _MAX_GAP_SECONDS else self._spent + spent
        self._ended = ended
        turns = self._turns
        turns.busy_until = ended + spent * CLEANING_FRACTION
        is_long = self._spent > turns.seconds
        turns.was_long |= is_long
        if self._has_backlog or is_long:
            self._wait_for_turn()

    def eof_received(self) -> bool:
        """Note that the peer sends no more data. Return whether the transport must stay open for pending replies."""
        self._eof_received = True
        transport = self._transport
        if self._deferred and transport is not None and not transport.can_write_eof():
            # TLS closes the transport regardless of the return value, so the deferred requests are answered now.
            self._serve(self._pop_deferred(), self._now(), LAST_TURN_SECONDS)
        return bool(self._deferred or self._held)

    def pause_writing(self) -> None:
        """Stop reading from the peer, because it does not read its output."""
        self._write_paused = True
        self._unread_events = 0
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Queue the connection for its next turn, because the peer has read its output."""
        self._write_paused = False
        self._connections.unread.forget(self)
        self._wait_for_turn()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection and its watches. Its session stays alive."""
        connection, self.connection, self._transport = self.connection, None, None
        if connection is not None:
            connections, engine = self._connections, self._engine
            if connections.log is not None:
                connections.log.forget(self)
            connections.remove(connection.client, self)
            engine.now, engine.monotonic_ms = self._read_clock()
            connection.connection_lost()
            if engine.watches.unswept:
                connections.sweep()

    # --- called by the server ---

    def flush(self) -> None:
        """Send the connection's output with one write, and close the connection if required.

        If the output may show transactions that are not logged yet, the log sends it later.
        """
        connection, log = self.connection, self._connections.log
        if connection is None:
            return
        if log is not None and log.hold(self):
            self._held = True
            return
        self._send(connection.data_to_send(), connection.client.closing and connection.closing)

    def _send(self, data: bytes, closing: bool) -> None:
        transport, client = self._transport, self._client
        if transport is None or client is None:
            return
        if data:
            size = len(data)
            if self._write_paused:  # only events, because no requests are read
                self._unread_events += size
            transport.write(data)
            self._engine.metrics.bytes_sent += size
            if size > CHARGED_OUTPUT_BYTES:
                self._turns.charge(size)
            if self._write_paused and not self._check_write_buffer(transport, client):
                return
        if closing:
            self.close()

    # --- called by the log ---

    @property
    def session_id(self) -> int:
        """The id of the connection's session; 0 if it has none."""
        return self.connection.client.session_id if self.connection is not None else 0

    def pop_output(self) -> tuple[bytes, bool]:
        """Return the bytes to send, and whether the connection has to be closed after them."""
        connection = self.connection
        return (b"", False) if connection is None else (connection.data_to_send(), connection.closing)

    def send_output(self, data: bytes, closing: bool, last: bool) -> None:
        """Send bytes that have waited for the log.

        Args:
            data: The bytes.
            closing: Whether to close the connection after the bytes.
            last: Whether no more output is waiting.
        """
        self._held = not last
        self._send(data, closing)
        if last and self._eof_received and not (self._deferred or self._has_backlog) and self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Stop reading until :meth:`resume`."""
        self._log_paused = True
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        """Queue the connection for its next turn, which resumes reading."""
        self._log_paused = False
        self._wait_for_turn()

    # --- closing, and turns ---

    def _check_write_buffer(self, transport: asyncio.Transport, client: ClientConnection) -> bool:
        """Count the bytes that wait for this peer, which does not read.

        If too many bytes wait, this peer, or the peers with the most bytes, are disconnected.

        Returns:
            Whether this peer stays connected.
        """
        if self._unread_events > self._engine.settings.max_unread_bytes:
            self._engine.metrics.count_refusal("unread")
            self._engine.warnings.warn(
                "unread",
                "disconnecting %s: %d bytes are unread (zoolet.maxUnreadBytes)",
                client.address,
                transport.get_write_buffer_size(),
            )
            transport.abort()
            return False
        self._connections.unread.count(self, transport.get_write_buffer_size())
        return True

    @property
    def write_paused(self) -> bool:
        """Whether reading is paused because the peer does not read its output."""
        return self._write_paused

    def write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def close(self) -> None:
        """Close the connection after all output is sent, with time for the peer to read it."""
        transport = self._transport
        if transport is None or self._lingers:
            return
        can_write_eof = transport.can_write_eof()
        if not can_write_eof and transport.is_closing():  # a closing TLS transport no longer has a buffer
            return
        unsent = transport.get_write_buffer_size()
        if can_write_eof:
            try:
                transport.write_eof()
            except OSError:  # the peer has reset the connection, but the loop has not noticed yet
                transport.abort()
                return
        elif not unsent:
            # Over TLS, close() discards unsent output after LINGER seconds, so it is called only when none is left.
            transport.close()
            return
        if not transport.is_reading():
            transport.resume_reading()
        self._lingers = True
        self._connections.lingering.add(self, unsent)

    def descriptor(self) -> int:
        """Return the socket's file descriptor; -1 if it is closed."""
        socket = self._transport.get_extra_info("socket") if self._transport is not None else None
        return socket.fileno() if socket is not None else -1

    def abort(self) -> None:
        """Close immediately. Unsent output is lost."""
        if self._transport is not None:
            self._transport.abort()

    def end_linger(self, *, is_sent: bool) -> None:
        """Close the socket, although the peer has not closed its side in time.

        Args:
            is_sent: Whether all output was sent. Otherwise the peer has stopped reading, and the rest is discarded.
        """
        transport = self._transport
        if transport is None:
            return
        if is_sent and not transport.can_write_eof():
            transport.close()  # sends close_notify of TLS
        else:
            transport.abort()

    def _wait_for_turn(self) -> None:
        """Pause reading, and queue the connection for its next turn. A turn without requests only resumes reading."""
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            self._turns.enqueue(self, is_light=not (self._has_backlog or self._deferred))

    def take_turn(self) -> None:
        """Answer the remaining requests, and resume reading unless more requests remain or the peer does not read."""
        transport = self._transport
        if transport is None or self._write_paused or self._log_paused or transport.is_closing():
            return  # resume_writing() or resume() will queue the connection again
        self._spent = 0.0
        if self._has_backlog or self._deferred:
            data = self._pop_deferred()
            self._has_backlog = False
            self._serve(data, self._now(), self._turns.seconds)
            if self._has_backlog or self._write_paused or self._log_paused or self._spent > self._turns.seconds:
                return  # the connection is already queued, or will be queued when its peer reads
        if self._eof_received:
            if not self._held:  # send_output() closes the transport after held output
                transport.close()
        elif self._transport is not None and not self._transport.is_closing() and not self._transport.is_reading():
            self._transport.resume_reading()
