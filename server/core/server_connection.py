"""One connection without I/O: bytes in; bytes out through the caller's outbox.

::

    CONNECTING --connect request--> OPEN --closeSession, refusal, bad frame--> CLOSED
        |                             |
        +--four-letter word, refusal, bad frame--> CLOSED

After CLOSED whatever arrives is dropped; what is in the outbox is still to be sent.

The first four bytes of a connection are a frame length or one of the four-letter words. They cannot be both: as a
length the shortest word would be above a billion, and no limit is that high.

Source: NIOServerCnxn; ZooKeeperServer.processConnectRequest, processPacket.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final

from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import Xid
from zoolet.protocol.errors import ErrorCode, MarshallingError, ZooKeeperError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.dispatch import Answers, Decode
from zoolet.server.core.ops.multi import PartialResults
from zoolet.server.core.ops.session_ops import authenticate, sasl_step
from zoolet.server.core.sessions import Session

_HEAD = struct.Struct(">iii").unpack_from
_REPLY = struct.Struct(">iiqi").pack
PING: Final = int(OpCode.PING)  # plain numbers: comparing enums costs more than all else that a ping does
PING_XID: Final = int(Xid.PING)

CHECK_AFTER: Final = 8192
"""Bytes of replies after which it is looked whether the connection's turn is over: some 40 reads. Cheap requests need
no more: those that one read of the socket brings take a few milliseconds.
"""

ALWAYS_KEPT: Final = 1 << 16
"""Bytes of an unfinished request that any connection may keep, however much the others do."""
COST_OF_AN_ERROR: Final = 256
"""What a request that fails counts instead of its reply, in bytes: it takes longer than one that succeeds."""

NOTHING: Final[Answers] = {}
"""The dispatch table of a client that has to prove first who it is."""

FourLetterCommand = Callable[[Engine, ClientConnection, bytes], bytes]
"""What answers a four-letter word: it gets what arrived behind the word."""


class State(Enum):
    """Where a connection stands."""

    CONNECTING = 1
    OPEN = 2
    CLOSED = 3


class ServerConnection:
    """Splits what arrives into requests and answers them.

    Args:
        engine: What answers.
        caller: The connection as the operations see it; replies go to its outbox.
        words: The four-letter words that are answered, by their four bytes.

    Attributes:
        four_letter_only: Answer a four-letter word, and nothing else.
    """

    __slots__ = (
        "_four_letter_commands",
        "_kept",
        "_missing",
        "_parts",
        "client",
        "engine",
        "four_letter_only",
        "state",
    )

    def __init__(
        self,
        engine: Engine,
        client: ClientConnection,
        four_letter_commands: dict[bytes, FourLetterCommand] | None = None,
    ) -> None:
        self.engine = engine
        self.client = client
        self.state = State.CONNECTING
        self.four_letter_only = False
        self._four_letter_commands = four_letter_commands or {}
        self._parts: list[bytes] = []  # of a frame that is not whole
        self._kept = 0  # bytes in _parts
        self._missing = 4  # bytes without which there is nothing to do
        engine.connect(client)

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Take bytes off the wire and answer the requests that are whole.

        At least one request is answered. A transaction is one request and is never interrupted.

        Args:
            data: The bytes.
            until: The moment after which no further request is begun, so that other connections get their turn.
            time: Returns the present moment, in the unit of *until*; the default stands still.

        Returns:
            True when whole requests are left, because the time is up or their answers would exceed
            ``max_output_per_turn``: call again, with ``b""``, once the others have had their turn and this client
            has read what there is.
        """
        if self.client.closing:
            return False
        self._missing -= len(data)
        parts = self._parts
        if self._missing > 0:  # a long frame arrives in pieces: join them once
            if data:
                self._keep_part(data)
            return False
        if parts:
            parts.append(data)
            data = b"".join(parts)
            self._forget_parts()
        at = self._handshake(data) if self.state is State.CONNECTING else 0
        if self.state is State.OPEN:
            at = self._requests(data, at, until, time)
        if self.client.closing:
            self.state = State.CLOSED
            return False
        if at == len(data):
            self._missing = 4
            return False
        return self._keep(data, at)

    def connection_lost(self) -> None:
        """Record that the peer is gone: its watches go, its session lives on."""
        self.engine.disconnect(self.client)
        self._forget_parts()
        self.state = State.CLOSED

    def _keep_part(self, data: bytes) -> None:
        """Keep a part of a request that is not whole, unless this connection keeps much, and all together too much."""
        engine = self.engine
        much = self._kept + len(data) > ALWAYS_KEPT
        if much and engine.partial_requests + len(data) > engine.settings.max_partial_requests:
            engine.metrics.refuse("partial_requests")
            engine.warnings.warn(
                "partial",
                "closing %s:%d: unfinished requests have %d bytes in all (zoolet.maxPartialRequestBytes)",
                self.client.host,
                self.client.port,
                engine.partial_requests,
            )
            self._forget_parts()
            self._close()
            return
        self._parts.append(data)
        self._kept += len(data)
        engine.partial_requests += len(data)

    def _forget_parts(self) -> None:
        self._parts.clear()
        self.engine.partial_requests -= self._kept
        self._kept = 0

    def _keep(self, buf: bytes, at: int) -> bool:
        """Keep what is not answered yet; hang up if it cannot be the beginning of a frame."""
        rest = len(buf) - at
        length = -1
        if rest >= 4:
            (length,) = int_at(buf, at)
            shortest = 0 if self.state is State.CONNECTING else 8
            if not 0 <= length <= self.engine.settings.max_frame or (length < shortest and rest >= 4 + length):
                self._close()
                return False
        if rest:
            self._keep_part(buf[at:])
        self._missing = 4 + max(length, 0) - rest
        return self._missing <= 0 and not self.client.closing

    def _close(self) -> None:
        self.state = State.CLOSED
        self.engine.close_connection(self.client)

    # --- the first frame ---

    def _handshake(self, buf: bytes) -> int:
        """Answer the connect request or the four-letter word at the start; return where the next frame starts."""
        word = self._four_letter_commands.get(buf[:4])
        if word is not None:
            self.client.received += 1
            self.engine.metrics.packets_received += 1
            self.client.outbox.append(word(self.engine, self.client, buf[4:]))
            self._close()
            return len(buf)
        if self.four_letter_only:
            self._close()
            return len(buf)
        (length,) = int_at(buf, 0)
        stop: int = 4 + length
        if not 0 <= length <= self.engine.settings.max_frame or len(buf) < stop:
            return 0  # _keep waits for it or hangs up
        try:
            request = ConnectRequest.decode(buf, 4, stop)
        except MarshallingError:
            self._close()
            return stop
        self.client.received += 1
        self.engine.metrics.packets_received += 1
        self._connect(request)
        return stop

    def _connect(self, request: ConnectRequest) -> None:
        """Open or resume a session.

        Source: ZooKeeperServer.processConnectRequest, reopenSession; the order of its checks.
        """
        engine, client = self.engine, self.client
        if not engine.allow_session() or (engine.read_only and not request.read_only):
            self._close()
            return
        if request.last_zxid_seen > engine.zxid and not self._is_of_an_earlier_tree(request):
            self._close()
            return
        timeout = engine.settings.negotiate(request.timeout_ms)
        session: Session | None
        if request.session_id == 0:
            session = engine.open_session(timeout)
        else:
            session = engine.sessions.alive.get(request.session_id)
            if session is not None and session.client is not None:
                engine.close_connection(session.client)  # even when the password turns out to be wrong
            if not engine.sessions.proves(request.session_id, request.password):
                session = None
        read_only = None if request.read_only is None else engine.read_only
        if session is None:
            self._send(frame(ConnectResponse(read_only=read_only).encode()))
            self._close()
            return
        session.timeout_ms = timeout
        engine.bind_session(session, client)
        self.state = State.OPEN
        self._send(
            frame(ConnectResponse(timeout, session.id, engine.sessions.password(session.id), read_only).encode())
        )

    def _is_of_an_earlier_tree(self, request: ConnectRequest) -> bool:
        """Return whether a client that is ahead of this server may only be told that its session is over.

        ZooKeeper closes the connection of every client that is ahead, for another server of the ensemble may know more.
        Here there is no other: the tree that the client saw is gone, and it would come back again and again.
        """
        session_id = request.session_id
        return (
            self.engine.settings.expire_clients_ahead
            and session_id != 0
            and session_id not in self.engine.sessions.alive
        )

    def _send(self, data: bytes) -> None:
        self.client.outbox.append(data)
        self.client.sent += 1
        self.engine.metrics.packets_sent += 1

    # --- all others ---

    def _requests(self, buf: bytes, at: int, until: float, time: Callable[[], float]) -> int:
        """Answer the whole requests from *at* on; return where the first one starts that is left.

        The hot path of the server: everything a request needs is a local name, what can be done once a batch is, and
        the few operations with answers of their own are told apart by not being in the table.
        """
        engine, client = self.engine, self.client
        session = client.session
        auth_required = bool(engine.settings.require_auth) and self._auth_required()
        find = NOTHING.get if auth_required else engine.table.get
        emit = client.outbox.append
        unpack, pack, size = _HEAD, _REPLY, len(buf)
        max_frame, share = engine.settings.max_frame, engine.settings.max_output_per_turn
        left = CHECK_AFTER
        done = heard = xid = opcode = 0
        while size - at >= 12:
            length, xid, opcode = unpack(buf, at)
            stop = at + 4 + length
            if stop > size or not 8 <= length <= max_frame:
                break
            if left < 0:
                share -= CHECK_AFTER - left
                if share < 0 or time() > until:
                    break
                left = CHECK_AFTER
            entry = find(opcode)
            if entry is None:
                at = stop
                done += 1
                if opcode == PING and not auth_required:
                    heard += 1
                    emit(pack(16, PING_XID, engine.zxid, 0))
                    continue
                if not self._control(xid, opcode, buf, at - length + 8, stop):
                    break
                auth_required = self._auth_required()  # it may have proved who it is just now
                find = NOTHING.get if auth_required else engine.table.get
                if time() > until:
                    break
                continue
            decode, handle, costly = entry
            try:
                body = handle(engine, client, decode(buf, at + 12, stop))
            except ZooKeeperError as error:
                if opcode in engine.zxid_on_decode_error and not _decodes(decode, buf, at + 12, stop):
                    engine.zxid += 1
                left -= COST_OF_AN_ERROR
                body = error.body if isinstance(error, PartialResults) else b""
                emit(pack(16 + len(body), xid, engine.zxid, error.code) + body)
            else:
                emit(pack(16 + len(body), xid, engine.zxid, 0))
                emit(body)
                left -= len(body)
            heard += 1
            done += 1
            at = stop
            if costly and (time() > until or client.closing):
                break
        if done:
            self._count(done, heard, session)
            client.last_xid, client.last_op = xid, opcode
        return at

    def _count(self, done: int, heard: int, session: Session | None) -> None:
        """Do what is due once a batch: counters, and the deadline of the session, also if the batch has ended the
        connection.
        """
        engine, client = self.engine, self.client
        client.received += done
        client.sent += done
        client.last_zxid = engine.zxid
        engine.metrics.packets_received += done
        engine.metrics.packets_sent += done
        if heard and session is not None and engine.monotonic_ms + session.timeout_ms >= session.deadline:
            engine.sessions.touch(session, engine.monotonic_ms)  # otherwise its deadline would be the same

    def _auth_required(self) -> bool:
        """Return whether the client has yet to prove who it is before anything else is done for it."""
        wanted = self.engine.settings.require_auth
        return bool(wanted) and wanted.isdisjoint(self.client.schemes)

    def _control(self, xid: int, opcode: int, buf: bytes, at: int, stop: int) -> bool:
        """Answer an operation whose reply is not made like the others'; say whether the connection goes on."""
        engine, client = self.engine, self.client
        emit = client.outbox.append
        if opcode == OpCode.AUTH:
            return self._authenticate(xid, buf, at, stop)
        if opcode == OpCode.SASL:
            return self._sasl(xid, buf, at, stop)
        if self._auth_required():
            emit(_REPLY(16, xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_AUTH))
        elif (
            opcode == OpCode.DELETE_CONTAINER
            and engine.settings.compat.delete_container_refused_with != ErrorCode.UNIMPLEMENTED
        ):
            engine.zxid += 1
            emit(_REPLY(16, xid, engine.zxid, engine.settings.compat.delete_container_refused_with))
            return True
        elif opcode == OpCode.CLOSE_SESSION and client.session is not None:
            engine.close_session(client.session)
            emit(_REPLY(16, xid, engine.zxid, 0))
        else:
            emit(_REPLY(16, xid, -1, ErrorCode.UNIMPLEMENTED))
        self._close()
        return False

    def _authenticate(self, xid: int, buf: bytes, at: int, stop: int) -> bool:
        try:
            packet = r.AuthPacket.decode(buf, at, stop)
        except MarshallingError:
            self._close()
            return False
        if authenticate(self.engine, self.client, packet):
            self.client.outbox.append(_REPLY(16, xid, 0, 0))
            return True
        self.engine.metrics.auth_failed += 1
        self.client.outbox.append(_REPLY(16, xid, 0, ErrorCode.AUTH_FAILED))
        self._close()
        return False

    def _sasl(self, xid: int, buf: bytes, at: int, stop: int) -> bool:
        """Take one step of a SASL exchange.

        Source: ZooKeeperServer.processSasl.
        """
        engine, client = self.engine, self.client
        try:
            said = r.GetSASLRequest.decode(buf, at, stop).token
        except MarshallingError:
            self._close()
            return False
        token, error = sasl_step(engine, client, said)
        body = r.SetSASLResponse(token).encode()
        client.outbox.append(_REPLY(16 + len(body), xid, 0, error) + body)
        if error:
            self._close()
        return not error


def _decodes(decode: Decode, buf: bytes, at: int, stop: int) -> bool:
    """Return whether a request that has failed decodes: only then its handler has taken a zxid."""
    try:
        decode(buf, at, stop)
    except MarshallingError:
        return False
    return True
