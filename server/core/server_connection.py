"""The server's end of one connection, without I/O: bytes come in, bytes go out. No socket, no clock, no waiting.

A transport calls three methods::

    connection.receive_data(data)      bytes were received; the requests in them are answered
    connection.data_to_send()          return the bytes to write now
    connection.connection_lost()       the peer is gone

States and transitions::

    CONNECTING --connect request--> OPEN --closeSession, refusal, malformed frame--> CLOSED
        |
        +--four-letter command, refusal, malformed frame--> CLOSED

``connection_lost`` and ``close`` lead to CLOSED from every state.

Invariants:

- In CONNECTING only a connect request or a four-letter command is answered. In OPEN the client has a session, unless
  that was closed or resumed by another connection within the same batch (``client.closing``).
- In CLOSED received bytes are discarded; the outbox is still to be sent, and nothing is added to it.
- ``missing`` is the number of bytes that are still needed before anything can be done. While it is above 0, parts are
  only collected, so that a frame of n bytes costs O(n), in however many pieces it arrives.
- ``engine.partial_requests`` includes the bytes in ``_parts``; the method that clears ``_parts`` subtracts them.

Each later frame is a length, an xid and an op code, of four bytes each, and the body; the length counts all but itself,
so the body starts at offset 12. A reply has 16 bytes of header behind its length: xid, zxid and error.

The first four bytes of a connection are a frame length or a four-letter command. They cannot be both: as a length, any
command is above a billion, and no limit is that high.

Source: NIOServerCnxn; ZooKeeperServer.processConnectRequest, processPacket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from math import inf
from typing import Final

from zoolet.protocol import records as r
from zoolet.protocol.codec import Int, int_at, struct_of
from zoolet.protocol.enums import Xid
from zoolet.protocol.errors import ErrorCode, MarshallingError, ZooKeeperError
from zoolet.protocol.framing import frame, other_protocol
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.dispatch import Decode, Dispatch
from zoolet.server.core.ops.multi import PartialResults
from zoolet.server.core.ops.session_ops import authenticate, sasl_step

_HEAD = struct_of(Int, r.RequestHeader).unpack_from
_REPLY = struct_of(Int, r.ReplyHeader).pack
PING: Final = int(OpCode.PING)  # a plain int: comparing enums costs more than the rest of a ping
PING_XID: Final = int(Xid.PING)

CHECK_AFTER: Final = 8192
"""Bytes of replies after which the clock is read to see whether the connection's turn is over: some 40 reads. Cheap
requests need no more: those that one read of the socket returns take a few milliseconds.
"""

FREE_PARTIAL_BYTES: Final = 1 << 16
"""Bytes of an incomplete request that each connection may buffer, however much the others buffer."""
SMALL_PART: Final = 4096
"""Bytes below which a part of an incomplete request is joined to the one before: an object of its own has 33 more."""
LARGE_BUFFER: Final = 1 << 16
"""Bytes from which on nothing more is joined to a part, so that joining never copies much."""
COST_OF_AN_ERROR: Final = 256
"""Bytes that a failed request counts as, in place of its reply: it takes longer than one that succeeds."""

NO_OPERATIONS: Final[Dispatch] = {}
"""The dispatch table of a client that has to authenticate first."""

FourLetterCommand = Callable[[Engine, ClientConnection, bytes], bytes]
"""Answers a four-letter command; receives the bytes behind its four letters."""

NO_COMMANDS: Final[Mapping[bytes, FourLetterCommand]] = {}


class State(Enum):
    """The state of a connection; the transitions are drawn above."""

    CONNECTING = 1
    OPEN = 2
    CLOSED = 3


_OPEN: Final = State.OPEN  # a name of its own: a look-up in an enum costs 80 ns (Python 3.11)


class ServerConnection:
    """Splits received bytes into requests and answers them.

    Args:
        engine: The state machine that answers them.
        client: The connection as the operations see it; replies are added to its outbox.
        four_letter_commands: The supported four-letter commands by their four bytes.

    Attributes:
        state: Its state.
        missing: The number of bytes that are needed before anything can be done.
    """

    __slots__ = (
        "_four_letter_commands",
        "_kept",
        "_parts",
        "client",
        "engine",
        "missing",
        "state",
    )

    def __init__(
        self,
        engine: Engine,
        client: ClientConnection,
        four_letter_commands: Mapping[bytes, FourLetterCommand] = NO_COMMANDS,
    ) -> None:
        self.engine = engine
        self.client = client
        self.state = State.CONNECTING
        self._four_letter_commands = four_letter_commands
        self._parts: list[bytes | bytearray] = []  # of an incomplete frame; small parts are joined
        self._kept = 0  # bytes in _parts
        self.missing = 4
        engine.connect(client)

    # --- for the transport ---

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes and answer the complete requests.

        At least one request is answered. A transaction is one request and is never interrupted.

        Args:
            data: The bytes.
            until: The time after which no further request is started, so that other connections get their turn.
            time: Returns the present time, in the unit of *until*; the default always returns 0.

        Returns:
            True if complete requests remain, because the time is up or the replies exceed ``max_output_per_turn``: call
            again, with ``b""``, after the other connections have had their turn and this client has read its replies.
        """
        if self.client.closing:
            return False
        self.missing -= len(data)
        parts = self._parts
        if self.missing > 0:  # a long frame arrives in parts: join them once
            if data:
                self._keep_part(data)
            return False
        if parts:
            parts.append(data)
            data = b"".join(parts)
            self._forget_parts()
        offset = self._handshake(data) if self.state is not _OPEN else 0
        if self.state is _OPEN and (not offset or time() <= until):  # the handshake was a request, too
            offset = self._requests(data, offset, until, time)
        if self.client.closing:
            self.state = State.CLOSED
            return False
        if offset == len(data):
            self.missing = 4
            return False
        return self._keep_rest(data, offset)

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and clear the outbox."""
        outbox = self.client.outbox
        if not outbox:
            return b""
        data = b"".join(outbox) if len(outbox) > 1 else outbox[0]
        outbox.clear()
        return data

    @property
    def closing(self) -> bool:
        """Whether the connection is to be closed once the bytes of :meth:`data_to_send` are written."""
        return self.client.closing

    def connection_lost(self) -> None:
        """Remove the connection and its watches; its session stays alive."""
        self.engine.disconnect(self.client)
        self._forget_parts()
        self.state = State.CLOSED

    def close(self) -> None:
        """Close the connection from this side, once the outbox has been sent."""
        self.state = State.CLOSED
        self.engine.close_connection(self.client)

    # --- for the interceptor of zoolet.testing ---

    def is_command(self, data: bytes) -> bool:
        """Return whether *data*, received now, is a four-letter command."""
        return self.state is State.CONNECTING and data[:4] in self._four_letter_commands

    def answer_with_error(self, xid: int, opcode: int, code: int) -> None:
        """Answer a request with an error without executing it; a write takes a zxid nevertheless."""
        engine = self.engine
        row = OPERATIONS.get(opcode)
        if row is not None and row.takes_zxid:
            engine.take_zxid(self.client.session_id, xid, code)
        self.answer(xid, opcode, code)

    def answer(self, xid: int, opcode: int, code: int, body: bytes = b"", zxid: int | None = None) -> None:
        """Answer a request that was executed elsewhere, at a zxid; None for the last one."""
        self._count(1, 1, self.client.session, opcode)
        shown = self.engine.zxid if zxid is None else zxid
        self.client.outbox.append(_REPLY(16 + len(body), xid, shown, code) + body)

    # --- incomplete frames ---

    def _keep_part(self, data: bytes) -> None:
        """Buffer a part of an incomplete frame; close the connection if it buffers much, and all together too much."""
        engine = self.engine
        is_large = self._kept + len(data) > FREE_PARTIAL_BYTES
        if is_large and engine.partial_requests + len(data) > engine.settings.max_partial_request_bytes:
            engine.metrics.refuse("partial_requests")
            engine.warnings.warn(
                "partial",
                "closing %s:%d: incomplete requests have %d bytes in total (zoolet.maxPartialRequestBytes)",
                self.client.host,
                self.client.port,
                engine.partial_requests,
            )
            self._forget_parts()
            self.close()
            return
        parts = self._parts
        if len(data) >= SMALL_PART:
            parts.append(data)
        elif parts and type(parts[-1]) is bytearray and len(parts[-1]) < LARGE_BUFFER:
            parts[-1] += data
        else:
            parts.append(bytearray(data))
        self._kept += len(data)
        engine.partial_requests += len(data)

    def _forget_parts(self) -> None:
        self._parts.clear()
        self.engine.partial_requests -= self._kept
        self._kept = 0

    def _keep_rest(self, buf: bytes, offset: int) -> bool:
        """Buffer the bytes from *offset* on, which are not answered yet; return whether they contain a complete frame.

        The connection is closed if the frame that they begin is negative, too short, or longer than ``max_frame``
        (``jute.maxbuffer``).
        """
        remaining = len(buf) - offset
        length = -1  # unknown while the four bytes of the length are incomplete
        if remaining >= 4:
            (length,) = int_at(buf, offset)
            shortest = 0 if self.state is State.CONNECTING else 8  # of xid and op code
            if not 0 <= length <= self.engine.settings.max_frame or (length < shortest and remaining >= 4 + length):
                self._refuse_frame(length)
                return False
        if remaining:
            self._keep_part(buf[offset:])
        self.missing = 4 + max(length, 0) - remaining  # 0 or less: the frame is complete, but the turn is over
        return self.missing <= 0 and not self.client.closing

    def _refuse_frame(self, length: int) -> None:
        engine = self.engine
        engine.metrics.refuse("frames")
        other = other_protocol(length) if self.state is State.CONNECTING else None
        if other is not None:
            text = "closing %s:%d: it begins with %s, and this port expects ZooKeeper's own protocol"
            engine.warnings.warn("frame", text, self.client.host, self.client.port, other)
            self.close()
            return
        engine.warnings.warn(
            "frame",
            "closing %s:%d: a request of %d bytes; the limit is %d (jute.maxbuffer)",
            self.client.host,
            self.client.port,
            length,
            engine.settings.max_frame,
        )
        self.close()

    # --- the first frame ---

    def _handshake(self, buf: bytes) -> int:
        """Answer the connect request or four-letter command at offset 0; return the offset of the next frame."""
        command = self._four_letter_commands.get(buf[:4])
        if command is not None:
            self._count_one_received()
            self.client.outbox.append(command(self.engine, self.client, buf[4:]))
            self.close()
            return len(buf)
        if self.client.four_letter_only:
            self.close()
            return len(buf)
        (length,) = int_at(buf, 0)
        end: int = 4 + length
        if not 0 <= length <= self.engine.settings.max_frame or len(buf) < end:
            return 0  # incomplete or malformed: left to _keep_rest
        try:
            request = ConnectRequest.decode(buf, 4, end)
        except MarshallingError:
            self.close()
            return end
        self._count_one_received()
        self._connect(request)
        return end

    def _count_one_received(self) -> None:
        self.client.received += 1
        self.engine.metrics.packets_received += 1

    def _connect(self, request: ConnectRequest) -> None:
        """Open or resume a session, or close the connection.

        Source: ZooKeeperServer.processConnectRequest, reopenSession; the checks are in the same order.
        """
        if self.may_connect(request):
            if request.session_id == 0:
                session: Session | None = self.engine.open_session(self.engine.settings.negotiate(request.timeout_ms))
            else:
                session = self.resumable(request)
            self.begin(request, session)

    # --- for members of an ensemble, which open and resume sessions together ---

    def may_connect(self, request: ConnectRequest) -> bool:
        """Return whether a client may connect to this server now; otherwise its connection is closed."""
        engine, metrics = self.engine, self.engine.metrics
        metrics.connects += 1
        metrics.resumed += request.session_id != 0
        if not engine.allow_session():
            metrics.throttled += 1
        elif engine.read_only and not request.read_only:
            pass
        elif request.last_zxid_seen <= engine.zxid or self._is_of_an_earlier_tree(request):
            return True
        self.close()
        return False

    def resumable(self, request: ConnectRequest) -> Session | None:
        """Return the session that a client asks to resume; None if it is not alive, or the password is wrong. Another
        connection that serves it is closed.
        """
        engine = self.engine
        session = engine.sessions.alive.get(request.session_id)
        if session is not None and session.client is not None:
            engine.close_connection(session.client)  # even if the password is wrong, as in ZooKeeper
        return session if engine.sessions.proves(request.session_id, request.password) else None

    def begin(self, request: ConnectRequest, session: Session | None) -> None:
        """Serve a session, or answer that it has expired if it is None."""
        engine, client = self.engine, self.client
        timeout = engine.settings.negotiate(request.timeout_ms)
        read_only = None if request.read_only is None else engine.read_only
        if session is None:
            if engine.on_session is not None:
                engine.on_session("refused", request.session_id, client)
            self._send(frame(ConnectResponse(read_only=read_only).encode()))
            self.close()
            return
        session.timeout_ms = timeout
        engine.bind_session(session, client)
        self.state = State.OPEN
        if engine.on_session is not None:
            engine.on_session("opened" if request.session_id == 0 else "resumed", session.id, client)
        password = engine.sessions.password(session.id)
        self._send(frame(ConnectResponse(timeout, session.id, password, read_only).encode()))

    def _is_of_an_earlier_tree(self, request: ConnectRequest) -> bool:
        """Return whether a client that has seen a higher zxid resumes a session from before this server's start.

        Such a client is answered that its session has expired. ZooKeeper closes its connection, because another server
        of the ensemble may be ahead; here there is no other server, and the client would reconnect forever.
        """
        session_id, engine = request.session_id, self.engine
        return engine.settings.expire_clients_ahead and session_id != 0 and session_id not in engine.sessions.alive

    def _send(self, data: bytes) -> None:
        self.client.outbox.append(data)
        self.client.sent += 1
        self.engine.metrics.packets_sent += 1

    # --- all other frames ---

    def _requests(self, buf: bytes, offset: int, until: float, time: Callable[[], float]) -> int:
        """Answer the complete requests from *offset* on; return the offset of the first one that is not answered.

        This is the server's hot path: what a request needs is in local names, work is done once a batch where possible,
        and the few operations with replies of another form are recognised by their absence from the dispatch table.
        """
        engine, client = self.engine, self.client
        session = client.session
        auth_required = bool(engine.settings.require_auth) and self.auth_required()
        find = NO_OPERATIONS.get if auth_required else engine.dispatch.get
        emit, unpack, pack, size = client.outbox.append, _HEAD, _REPLY, len(buf)
        max_frame, output_left = engine.settings.max_frame, engine.settings.max_output_per_turn
        until_check = CHECK_AFTER
        done = answered = xid = opcode = 0
        while size - offset >= 12:  # length, xid and op code
            length, xid, opcode = unpack(buf, offset)
            end = offset + 4 + length
            if end > size or not 8 <= length <= max_frame:
                break
            if until_check < 0:
                output_left -= CHECK_AFTER - until_check
                if output_left < 0 or time() > until:
                    break
                until_check = CHECK_AFTER
            entry = find(opcode)
            done += 1
            body_at, offset = offset + 12, end  # the next frame starts where this one ends
            if entry is None:
                if opcode == PING and not auth_required:
                    answered += 1
                    emit(pack(16, PING_XID, engine.zxid, 0))
                    continue
                if not self._control(xid, opcode, buf, body_at, end) or time() > until:
                    break
                auth_required = self.auth_required()  # the client may have authenticated just now
                find = NO_OPERATIONS.get if auth_required else engine.dispatch.get
                continue
            decode, handle, costly = entry
            answered += 1
            client.last_xid = xid
            try:
                body = handle(engine, client, decode(buf, body_at, end))
            except ZooKeeperError as error:
                self._fail(error, xid, opcode, decode, buf, body_at, end)
                until_check -= COST_OF_AN_ERROR
            else:
                emit(pack(16 + len(body), xid, engine.zxid, 0))
                emit(body)
                until_check -= len(body)
            if costly and (time() > until or client.closing):
                break
        if done:
            self._count(done, answered, session, opcode)
        return offset

    def _fail(
        self, error: ZooKeeperError, xid: int, opcode: int, decode: Decode, buf: bytes, offset: int, end: int
    ) -> None:
        """Answer a request with an error; a write that does not decode takes a zxid in some releases."""
        engine = self.engine
        if opcode in engine.zxid_on_decode_error and not _decodes(decode, buf, offset, end):
            engine.zxid += 1
        self.engine.log_failure(self.client.session_id, xid, error.code)
        body = error.body if isinstance(error, PartialResults) else b""
        self.client.outbox.append(_REPLY(16 + len(body), xid, engine.zxid, error.code) + body)

    def _count(self, done: int, answered: int, session: Session | None, opcode: int) -> None:
        """Update the counters and the session's deadline, once a batch, even if the batch has closed the connection."""
        engine, client = self.engine, self.client
        client.received += done
        client.sent += done
        client.last_zxid, client.last_op = engine.zxid, opcode
        engine.metrics.packets_received += done
        engine.metrics.packets_sent += done
        if answered and session is not None:
            session.heard = now = engine.monotonic_ms
            if now + session.timeout_ms >= session.deadline:
                engine.sessions.touch(session, now)  # else its deadline would not change

    def auth_required(self) -> bool:
        """Return whether the client must authenticate before anything else."""
        schemes = self.engine.settings.require_auth
        return bool(schemes) and schemes.isdisjoint(self.client.schemes)

    def _control(self, xid: int, opcode: int, buf: bytes, offset: int, end: int) -> bool:
        """Answer an operation that is not in the dispatch table; return whether the connection stays open."""
        engine, client = self.engine, self.client
        emit = client.outbox.append
        if opcode == OpCode.AUTH:
            return self._authenticate(xid, buf, offset, end)
        if opcode == OpCode.SASL:
            return self._sasl(xid, buf, offset, end)
        refused_with = engine.settings.compat.delete_container_refused_with
        if self.auth_required():
            emit(_REPLY(16, xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH))
        elif opcode == OpCode.DELETE_CONTAINER and refused_with != ErrorCode.UNIMPLEMENTED:
            engine.take_zxid(client.session_id, xid, refused_with)
            emit(_REPLY(16, xid, engine.zxid, refused_with))
            return True
        elif opcode == OpCode.CLOSE_SESSION and client.session is not None:
            if not engine.frozen:  # otherwise the session goes on, and its client is disconnected
                if engine.on_session is not None:
                    engine.on_session("closed", client.session.id, client)
                engine.close_session(client.session)
                emit(_REPLY(16, xid, engine.zxid, 0))
        else:
            emit(_REPLY(16, xid, -1, ErrorCode.UNIMPLEMENTED))
        self.close()
        return False

    def _authenticate(self, xid: int, buf: bytes, offset: int, end: int) -> bool:
        try:
            packet = r.AuthPacket.decode(buf, offset, end)
        except MarshallingError:
            self.close()
            return False
        if authenticate(self.engine, self.client, packet):
            self.client.outbox.append(_REPLY(16, xid, 0, 0))
            return True
        self.engine.metrics.auth_failed += 1
        self.client.outbox.append(_REPLY(16, xid, 0, ErrorCode.AUTH_FAILED))
        self.close()
        return False

    def _sasl(self, xid: int, buf: bytes, offset: int, end: int) -> bool:
        """Execute one step of a SASL exchange; return whether the connection stays open.

        Source: ZooKeeperServer.processSasl.
        """
        try:
            token = r.GetSASLRequest.decode(buf, offset, end).token
        except MarshallingError:
            self.close()
            return False
        answer, error = sasl_step(self.engine, self.client, token)
        body = r.SetSASLResponse(answer).encode()
        self.client.outbox.append(_REPLY(16 + len(body), xid, 0, error) + body)
        if error:
            self.close()
        return not error


def _decodes(decode: Decode, buf: bytes, offset: int, end: int) -> bool:
    """Return whether a request that has failed decodes; only if it does, its handler has taken a zxid."""
    try:
        decode(buf, offset, end)
    except MarshallingError:
        return False
    return True
