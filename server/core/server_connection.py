"""The server's end of one connection, without I/O: it turns received bytes into bytes to send.

A transport calls three methods::

    connection.receive_data(data)      receive bytes, and answer the requests in them
    connection.data_to_send()          return the bytes to write now
    connection.connection_lost()       the peer has disconnected

States and transitions::

    CONNECTING --connect request--> OPEN --closeSession, rejection, malformed frame--> CLOSED
        |                           +---> WORKING, while a request takes longer than a turn ---> OPEN
        +--four-letter command, rejection, malformed frame--> CLOSED

``connection_lost`` and ``close`` lead to CLOSED from every state.

Invariants:

- In CONNECTING only a connect request or a four-letter command is answered. In OPEN the client has a session, unless
  the session was closed, or resumed by a different connection, within the same batch (``client.closing``).
- In WORKING no other request is answered, and ``missing`` is 0: ``_steps`` can be continued without any bytes.
- In CLOSED received bytes are discarded. The outbox still has to be sent, but nothing is added to it.
- ``missing`` is the number of bytes that must arrive before any work can be done. While it is above 0, parts are only
  collected. A frame of n bytes therefore costs O(n), regardless of the number of pieces.
- ``engine.partial_requests`` includes the bytes in ``_parts``. The method that clears ``_parts`` subtracts them.

Each later frame consists of a length, an xid and an op code, of four bytes each, and the body. The length does not
include itself, so the body starts at offset 12. A reply has 16 bytes of header after its length: xid, zxid and error.

The first four bytes of a connection are a frame length or a four-letter command. This is unambiguous: read as a length,
each command is above a billion, and no limit is that high.

Source: NIOServerCnxn, ZooKeeperServer.processConnectRequest, ZooKeeperServer.processPacket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from math import inf
from typing import Final

from ...protocol import records as r
from ...protocol.codec import Int, combined_struct, int_at
from ...protocol.enums import Xid
from ...protocol.errors import ErrorCode, MarshallingError, ZooKeeperError
from ...protocol.framing import frame, guess_protocol
from ...protocol.handshake import ConnectRequest, ConnectResponse
from ...protocol.operations import OPERATIONS, OpCode
from .client_connection import ClientConnection, Session
from .engine import Engine
from .ops.dispatch import Decode, Dispatch, UnfinishedError
from .ops.multi import PartialResultsError
from .ops.session_ops import LOGIN_STEPS, LoginStep

_HEAD = combined_struct(Int, r.RequestHeader).unpack_from
_REPLY = combined_struct(Int, r.ReplyHeader).pack
_REPLY_SIZE: Final = combined_struct(Int, r.ReplyHeader).size
PING: Final = int(OpCode.PING)  # a plain int, because comparing enums would cost more than everything else in a ping
PING_XID: Final = int(Xid.PING)
CLOSE_SESSION: Final = int(OpCode.CLOSE_SESSION)
_NO_STEPS: Final[Iterator[None]] = iter(())

CHECK_AFTER: Final = 8192
"""Number of bytes of replies, about 40 reads, between two checks of the clock, which detect the end of the turn. Cheap
requests need no other checks, because all requests from one read of the socket take a few milliseconds.
"""

FREE_PARTIAL_BYTES: Final = 1 << 16
"""Number of bytes of an incomplete request that a connection may buffer regardless of the total of all connections."""
SMALL_PART: Final = 4096
"""Minimum bytes of a separate part of an incomplete request. Smaller parts are joined: an object needs 33 bytes."""
LARGE_BUFFER: Final = 1 << 16
"""Size in bytes of joined parts that are not extended further, because extending may copy them."""
COST_OF_AN_ERROR: Final = 256
"""Number of bytes that a failed request counts for in CHECK_AFTER. It takes longer than its short reply suggests."""

NO_OPERATIONS: Final[Dispatch] = {}
"""The dispatch table for a client that has not authenticated, but must."""

FourLetterCommand = Callable[[Engine, ClientConnection, bytes], bytes]
"""A function that answers a four-letter command. It receives the bytes after the four letters."""

NO_COMMANDS: Final[Mapping[bytes, FourLetterCommand]] = {}


class ConnectionState(Enum):
    """The state of a connection. See the transitions in the module's docstring."""

    CONNECTING = 1
    OPEN = 2
    CLOSED = 3
    WORKING = 4


# Separate names, because a look-up in an enum costs 80 ns (Python 3.11).
_CONNECTING: Final = ConnectionState.CONNECTING
_OPEN: Final = ConnectionState.OPEN
_CLOSED: Final = ConnectionState.CLOSED
_WORKING: Final = ConnectionState.WORKING


class ServerConnection:
    """The server's end of a connection. It splits received bytes into requests, and answers the requests.

    Args:
        engine: The state machine that answers the requests.
        client: The engine's view of the connection. Replies are added to its outbox.
        four_letter_commands: The supported four-letter commands by their four bytes.

    Attributes:
        state: The state of the connection.
        missing: Number of bytes that are needed before any work can be done.
        buffered: Number of bytes in incomplete frames, and in complete frames that remain for a later turn.
    """

    __slots__ = (
        "_four_letter_commands",
        "_parts",
        "_steps",
        "_xid",
        "buffered",
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
        self.state = _CONNECTING
        self._four_letter_commands = four_letter_commands
        self._parts: list[bytes | bytearray] = []  # parts of an incomplete frame, with small parts joined
        self.buffered = 0
        self.missing = 4
        self._steps = _NO_STEPS  # in WORKING: the remaining work of the request
        self._xid = 0  # in WORKING: the xid of the request
        engine.connect(client)

    # --- for the transport ---

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes, and answer the requests that are complete.

        If a request is complete, at least one is answered. A transaction is one request and is never interrupted.

        Args:
            data: The bytes.
            until: Time limit for starting further requests, which gives other connections their turn.
            time: A function that returns the current time in the unit of *until*. The default always returns 0.

        Returns:
            True if work remains, because the time is up or the replies exceed ``max_output_per_turn``. In this case,
            call the method again with ``b""`` once other connections had a turn and this client has read its replies.
        """
        client, parts, offset = self.client, self._parts, 0
        if client.closing:
            return False
        if self.state is _OPEN and not parts:  # nearly always true, so it is tested first
            offset = self._requests(data, 0, until, time)
        else:
            self.missing -= len(data)
            if self.missing > 0:  # keep the parts of a long frame, and join them only once
                self._keep_part(data)
                return False
            if parts:
                parts.append(data)
                data = b"".join(parts)
                self._forget_parts()
            if self.state is _WORKING:
                self._work(until, time)
            elif self.state is not _OPEN:
                offset = self._handshake(data)
            is_open = self.state is _OPEN and not client.closing  # a continued request may have closed the connection
            if is_open and (not offset or time() <= until):  # the handshake counts as a request
                offset = self._requests(data, offset, until, time)
        if client.closing:
            self.state = _CLOSED
            return False
        if self.state is _WORKING:
            self._keep_part(data[offset:])
            self.missing = 0
            return True
        if offset == len(data):
            self.missing = 4
            return False
        return self._keep_rest(data, offset)

    def data_to_send(self) -> bytes:
        """Return the bytes to write now, and clear the outbox."""
        outbox = self.client.outbox
        data = b"".join(outbox)
        outbox.clear()
        return data

    @property
    def closing(self) -> bool:
        """Whether the connection is to be closed once the bytes of :meth:`data_to_send` are written."""
        return self.client.closing

    def connection_lost(self) -> None:
        """Remove the connection and its watches. Its session stays alive."""
        self.engine.disconnect(self.client)
        self._forget_parts()
        self.state = _CLOSED

    def close(self) -> None:
        """Close the connection from this side, once the outbox has been sent."""
        self.state = _CLOSED
        self.engine.close_connection(self.client)

    # --- for the interceptor of zoolet.testing ---

    def is_command(self, data: bytes) -> bool:
        """Return whether *data*, if it were received now, would be treated as a four-letter command."""
        return self.state is _CONNECTING and data[:4] in self._four_letter_commands

    def answer_with_error(self, xid: int, opcode: int, code: int) -> None:
        """Answer a request with an error instead of executing it. A write still uses up a zxid."""
        engine = self.engine
        if (row := OPERATIONS.get(opcode)) is not None and row.takes_zxid:
            engine.take_zxid(self.client.session_id, xid, code)
        self.append_reply(xid, opcode, code)

    def append_reply(self, xid: int, opcode: int, code: int, body: bytes = b"", zxid: int | None = None) -> None:
        """Append the reply to a request that :meth:`receive_data` did not execute. *zxid* None is the last zxid."""
        self._count_requests(1, 1, self.client.session, opcode)
        shown = self.engine.zxid if zxid is None else zxid
        self.client.outbox.append(_REPLY(16 + len(body), xid, shown, code) + body)

    # --- incomplete frames ---

    def _keep_part(self, data: bytes) -> None:
        """Buffer a part of an incomplete frame. Close the connection instead if it would then buffer more than
        FREE_PARTIAL_BYTES, and all connections together more than ``max_partial_request_bytes``.
        """
        engine = self.engine
        is_large = self.buffered + len(data) > FREE_PARTIAL_BYTES
        if is_large and engine.partial_requests + len(data) > engine.settings.max_partial_request_bytes:
            engine.metrics.count_refusal("partial_requests")
            engine.warnings.warn(
                "partial",
                "closing %s: the incomplete requests of all clients have %d bytes (zoolet.maxPartialRequestBytes)",
                self.client.address,
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
        self.buffered += len(data)
        engine.partial_requests += len(data)

    def _forget_parts(self) -> None:
        self._parts.clear()
        self.engine.partial_requests -= self.buffered
        self.buffered = 0

    def _keep_rest(self, buf: bytes, offset: int) -> bool:
        """Buffer the unanswered bytes from *offset* on, and return whether they contain a complete frame.

        Close the connection if the length of the first remaining frame is negative, too small, or above ``max_frame``
        (``jute.maxbuffer``).
        """
        remaining = len(buf) - offset
        length = -1  # the length is unknown until its four bytes are complete
        if remaining >= 4:
            (length,) = int_at(buf, offset)
            shortest = 0 if self.state is _CONNECTING else 8  # a request contains at least an xid and an op code
            if not 0 <= length <= self.engine.settings.max_frame or (length < shortest and remaining >= 4 + length):
                self._refuse_frame(length)
                return False
        self._keep_part(buf[offset:])
        self.missing = 4 + max(length, 0) - remaining  # at most 0 if the frame is complete, but the turn is over
        return self.missing <= 0 and not self.client.closing

    def _refuse_frame(self, length: int) -> None:
        engine = self.engine
        engine.metrics.count_refusal("frames")
        other = guess_protocol(length) if self.state is _CONNECTING else None
        text = f"a request of {length} bytes (limit {engine.settings.max_frame}, jute.maxbuffer)"
        if other is not None:
            text = f"{other}, but this port expects the ZooKeeper protocol"
        engine.warnings.warn("frame", "closing %s: received %s", self.client.address, text)
        self.close()

    # --- the first frame ---

    def _handshake(self, buf: bytes) -> int:
        """Answer the connect request or four-letter command at offset 0, and return the offset of the next frame."""
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
            return 0  # the frame is incomplete or malformed, which _keep_rest handles
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

        Source: ZooKeeperServer.processConnectRequest, ZooKeeperServer.reopenSession, with the checks in the same order.
        """
        if self.may_connect(request):
            if request.session_id == 0:
                session: Session | None = self.engine.open_session(self.engine.settings.negotiate(request.timeout_ms))
            else:
                session = self.take_over(request)
            self.start_session(request, session)

    # --- for members of an ensemble, which open and resume sessions together ---

    def may_connect(self, request: ConnectRequest) -> bool:
        """Count a connect request, and return whether the client may connect now. If not, close the connection."""
        engine, metrics = self.engine, self.engine.metrics
        metrics.connects += 1
        metrics.resumed += request.session_id != 0
        if not engine.allow_session():
            metrics.throttled += 1
        elif not engine.allow_client(request):
            pass
        elif request.last_zxid_seen <= engine.zxid or self._is_of_an_earlier_tree(request):
            return True
        self.close()
        return False

    def take_over(self, request: ConnectRequest) -> Session | None:
        """Close the old connection of the session that a client wants to resume. Return the session, or None if the
        session is not alive or the password is wrong.
        """
        engine = self.engine
        session = engine.sessions.alive.get(request.session_id)
        if session is not None and session.client is not None:
            engine.close_connection(session.client)  # as in ZooKeeper, a wrong password also closes the old connection
        return session if engine.sessions.password_matches(request.session_id, request.password) else None

    def start_session(self, request: ConnectRequest, session: Session | None) -> None:
        """Answer a connect request, and start serving *session*. If it is None, reply that the session has expired."""
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
        self.state = _OPEN
        if engine.on_session is not None:
            engine.on_session("opened" if request.session_id == 0 else "resumed", session.id, client)
        password = engine.sessions.password(session.id)
        self._send(frame(ConnectResponse(timeout, session.id, password, read_only).encode()))

    def _is_of_an_earlier_tree(self, request: ConnectRequest) -> bool:
        """Return whether a client that has seen a higher zxid resumes a session from before this server's start.

        Such a client receives the reply that its session has expired. ZooKeeper closes the connection instead, because
        a different server of the ensemble may be ahead. Here no other server exists, so the client would reconnect
        forever.
        """
        session_id, engine = request.session_id, self.engine
        return engine.settings.expire_clients_ahead and session_id != 0 and session_id not in engine.sessions.alive

    def _send(self, data: bytes) -> None:
        self.client.outbox.append(data)
        self.client.sent += 1
        self.engine.metrics.packets_sent += 1

    # --- all other frames ---

    def _requests(self, buf: bytes, offset: int, until: float, time: Callable[[], float]) -> int:
        """Answer the complete requests from *offset* on, and return the offset of the first unanswered request.

        This is the server's hot path. Everything that a request needs is in local variables, and work is done once per
        batch where possible. :meth:`_answer_control_request` answers operations that are not in the dispatch table.
        """
        engine, client, session = self.engine, self.client, self.client.session
        auth_required = bool(engine.settings.require_auth) and self.auth_required()
        find = NO_OPERATIONS.get if auth_required else engine.dispatch.get
        emit, unpack, pack, until_check = client.outbox.append, _HEAD, _REPLY, CHECK_AFTER
        size, max_frame, output_left = len(buf), engine.settings.max_frame, engine.settings.max_output_per_turn
        done = controls = xid = opcode = 0
        run_start, zxid = offset, engine.zxid  # the start of a run of successful requests, and the last zxid before it
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
            if entry is None:
                if opcode == PING and not auth_required:
                    offset = end
                    emit(pack(16, PING_XID, engine.zxid, 0))
                    continue
                controls += 1
                engine.notify_requests(buf, run_start, offset, session, zxid)
                is_open = self._answer_control_request(xid, opcode, buf, offset + 12, end)
                offset, run_start, zxid = end, end, engine.zxid
                if not is_open or time() > until:
                    break
                auth_required = self.auth_required()  # the operation may have authenticated the client
                find = NO_OPERATIONS.get if auth_required else engine.dispatch.get
                continue
            decode, handle, costly, run = entry
            client.last_xid = xid
            try:
                if run is not None:
                    output = run(engine, client, buf, offset + 12, end)  # the whole frame of the reply
                else:
                    output = handle(engine, client, decode(buf, offset + 12, end))
                    emit(pack(16 + len(output), xid, engine.zxid, 0))
                    until_check -= _REPLY_SIZE
            except ZooKeeperError as error:
                engine.notify_requests(buf, run_start, offset, session, zxid)
                self._fail(error, xid, opcode, decode, buf, offset + 12, end)
                self._work(until, time)
                run_start, zxid = end, engine.zxid
                until_check -= COST_OF_AN_ERROR
            else:
                emit(output)
                until_check -= len(output)
            offset = end
            if costly and (self.state is not _OPEN or time() > until or client.closing):
                break
        if engine.zxid != zxid and engine.on_requests is not None:
            engine.notify_requests(buf, run_start, offset, session, zxid)
        if done:
            self._count_requests(done, done - controls, session, opcode)
        return offset

    def _work(self, until: float, time: Callable[[], float]) -> None:
        """Continue an unfinished request until its end or the end of the turn. Send the reply when it is finished."""
        if self.state is not _WORKING:
            return
        error = 0
        try:
            for _ in self._steps:
                if time() > until:
                    return
        except ZooKeeperError as failure:
            error = failure.code
            self.engine.log_failure(self.client.session_id, self._xid, error)
        self.state, self._steps = _OPEN, _NO_STEPS
        self.client.outbox.append(_REPLY(16, self._xid, self.engine.zxid, error))

    def _fail(
        self, error: ZooKeeperError, xid: int, opcode: int, decode: Decode, buf: bytes, offset: int, end: int
    ) -> None:
        """Answer a failed request with its error. If the request is only unfinished, prepare to continue it instead."""
        if isinstance(error, UnfinishedError):
            self.state, self._steps, self._xid = _WORKING, error.steps, xid
            return
        self.engine.fail(self.client.session_id, xid, error.code, opcode, decode, buf, offset, end)
        body, zxid = b"", self.engine.zxid
        if isinstance(error, PartialResultsError):
            body, zxid = error.body, zxid - error.skips_zxid
        self.client.outbox.append(_REPLY(16 + len(body), xid, zxid, error.code) + body)

    def _count_requests(self, done: int, answered: int, session: Session | None, opcode: int) -> None:
        """Update the counters and the session's deadline, once per batch, even if the batch closed the connection."""
        engine, client = self.engine, self.client
        client.received += done
        client.sent += done
        client.last_zxid, client.last_op = engine.zxid, opcode
        engine.metrics.packets_received += done
        engine.metrics.packets_sent += done
        if answered and session is not None:
            session.heard = now = engine.monotonic_ms
            if now + session.timeout_ms >= session.deadline:
                engine.sessions.touch(session, now)  # skipped if the deadline would stay the same

    def auth_required(self) -> bool:
        """Return whether the client must authenticate before its requests are executed."""
        schemes = self.engine.settings.require_auth
        return bool(schemes) and schemes.isdisjoint(self.client.schemes)

    def _answer_control_request(self, xid: int, opcode: int, buf: bytes, offset: int, end: int) -> bool:
        """Answer an operation that is not in the dispatch table. Return whether the connection stays open."""
        engine, client = self.engine, self.client
        emit = client.outbox.append
        if (step := LOGIN_STEPS.get(opcode)) is not None:
            return self._log_in(step, xid, buf, offset, end)
        refused_with = engine.settings.compat.delete_container_refused_with
        if self.auth_required():
            emit(_REPLY(16, xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH))
        elif opcode == CLOSE_SESSION and client.session is not None:
            if not engine.frozen:  # a frozen server keeps the session, and only disconnects the client
                if engine.on_session is not None:
                    engine.on_session("closed", client.session.id, client)
                engine.close_session(client.session)
                emit(_REPLY(16, xid, engine.zxid, 0))
        elif opcode == OpCode.DELETE_CONTAINER and refused_with != ErrorCode.UNIMPLEMENTED:
            engine.take_zxid(client.session_id, xid, refused_with)
            emit(_REPLY(16, xid, engine.zxid, refused_with))
            return True
        else:
            emit(_REPLY(16, xid, -1, ErrorCode.UNIMPLEMENTED))
        self.close()
        return False

    def _log_in(self, step: LoginStep, xid: int, buf: bytes, offset: int, end: int) -> bool:
        """Answer one step of a login. Return whether the connection stays open."""
        try:
            body, error = step(self.engine, self.client, buf, offset, end)
        except MarshallingError:
            self.close()
            return False
        self.client.outbox.append(_REPLY(16 + len(body), xid, 0, error) + body)
        if error:
            self.close()
        return not error
