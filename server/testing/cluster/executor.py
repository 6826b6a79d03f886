"""Executes the frames of one connection of a cluster's member: reads by its own engine, all else through the leader.

Replies keep the order of the requests, as ZooKeeper promises: a read waits for the writes before it. A write goes to
the leader at once, whatever is before it, so that many can be on their way; only the first frame, which opens the
session, is waited for by all.

Source: FollowerRequestProcessor, CommitProcessor; FinalRequestProcessor for a session that has moved.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at, put_str
from zoolet.protocol.enums import EPHEMERAL_MODES
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.ops.dispatch import TABLE
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.testing.cluster.gateway import Gateway
from zoolet.server.testing.cluster.preparing import Forwarded
from zoolet.server.testing.cluster.replica import Status
from zoolet.server.testing.frames.actions import Effect
from zoolet.server.testing.frames.frame_queue import FrameQueue, Passed
from zoolet.server.testing.frames.interceptor import Reply
from zoolet.server.testing.frames.requests import CONNECT

FORWARDED: Final = frozenset(
    [op for op in TABLE if OPERATIONS[op].takes_zxid] + [int(OpCode.CLOSE_SESSION), int(OpCode.SYNC)]
)
"""What the leader decides."""
AT_ONCE: Final = frozenset({int(OpCode.AUTH), int(OpCode.SASL)})
"""What is answered before the requests that came earlier."""
NOT_SERVING: Final = b"This ZooKeeper instance is not currently serving requests\n"
"""The answer to most four-letter commands of a member that has no leader."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A request that is not answered."""

    head: bytes
    passed: Passed
    is_local: bool
    outcome: tuple[int, int, bytes] | None = None
    """Of a request that the leader has decided: the zxid, the error code and the body of its reply."""


class MemberExecutor:
    """A connection to a member, as an :class:`~zoolet.server.testing.frames.frame_queue.Executor`.

    Args:
        queue: The queue that the frames come from.
        inner: The core's connection to the member's engine.
        gateway: What it asks.
    """

    is_raw = False

    def __init__(self, queue: FrameQueue, inner: ServerConnection, gateway: Gateway) -> None:
        self._queue = queue
        self._inner = inner
        self._gateway = gateway
        self._slots: deque[_Slot] = deque()
        self._early: list[tuple[bytes, Passed]] = []  # behind a handshake that is not answered
        self._opening: Passed | None = None
        self._sent = 0  # bytes that answer requests
        self._is_executing = False
        self.begins_raw = inner.is_command
        self.unasked_output = inner.data_to_send

    # --- as an Executor ---

    def execute_raw(self, data: bytes) -> None:
        """Execute a four-letter command."""
        if self._gateway.replica.status is Status.LOOKING and data[:4] not in (b"ruok", b"conf", b"envi"):
            self._queue.output.add(NOT_SERVING)
            self._inner.close()
            return
        self._inner.receive_data(data)
        self._queue.output.add(self._inner.data_to_send())

    def execute(self, head: bytes, passed: Passed) -> int:
        """Execute a frame, or give it to the leader; return how many bytes answer it and others at once."""
        sent = self._sent
        self._is_executing = True
        try:
            self._execute(head, passed)
        finally:
            self._is_executing = False
        return self._sent - sent

    def unanswered(self) -> list[Passed]:
        """Return the requests that are not answered, in order."""
        opening = [self._opening] if self._opening is not None else []
        return [*opening, *(slot.passed for slot in self._slots), *(passed for _, passed in self._early)]

    def connection_lost(self) -> None:
        """Remove the connection: the requests that were forwarded are executed, and not answered."""
        for passed in self.unanswered():
            self._queue.record(passed, None, self._inner.engine.zxid)
        self._forget()
        self._inner.connection_lost()

    def close(self) -> None:
        """Close the connection, unless that was done."""
        self._forget()
        if not self._inner.closing:
            self._inner.close()

    def _forget(self) -> None:
        self._slots.clear()
        self._early.clear()
        self._opening = None

    # --- frames ---

    def _execute(self, head: bytes, passed: Passed) -> None:
        inner, queue, opcode = self._inner, self._queue, passed.request.opcode
        if self._opening is not None:
            self._early.append((head, passed))
            return
        queue.send_unasked(passed.request.session)
        if passed.has(Effect.DROP) or not self._gateway.replica.status.has_leader | self._is_read_only:
            queue.record(passed, None, inner.engine.zxid)
            self.close()
        elif int_at(head, 0)[0] + 4 != len(head):  # no frame: the core closes the connection, and says why
            self._answer_here(head, passed)
        elif opcode == CONNECT:
            self._connect(head, passed)
        elif opcode in AT_ONCE:
            self._answer_here(head, passed)
        elif self._is_forwarded(opcode) and not self._is_read_only and not inner.auth_required():
            self._forward(head, passed)
        else:
            self._gateway.touch(inner.client.session_id)
            self._slots.append(_Slot(head, passed, is_local=True))
            self._answer_slots()

    @property
    def _is_read_only(self) -> bool:
        return self._gateway.replica.status is Status.READ_ONLY

    def _is_forwarded(self, opcode: int) -> bool:
        if opcode == OpCode.CLOSE_SESSION:
            return not self._gateway.is_local(self._inner.client.session_id)
        if opcode == OpCode.DELETE_CONTAINER:  # it may take a zxid, though no client may send it
            return self._container_error() != ErrorCode.UNIMPLEMENTED
        return opcode in FORWARDED

    def _container_error(self) -> int:
        return self._inner.engine.settings.compat.delete_container_refused_with

    def _answer_here(self, head: bytes, passed: Passed) -> None:
        """Have the core answer a frame."""
        inner, opcode = self._inner, passed.request.opcode
        if passed.effect is not None and passed.has(Effect.FAIL):
            inner.answer(r.RequestHeader.decode(head, 4).xid, opcode, passed.effect.code)
            reply = Reply(inner.data_to_send(), passed.effect.code)
        elif opcode == OpCode.CLOSE_SESSION and self._gateway.is_local(inner.client.session_id):
            inner.answer(r.RequestHeader.decode(head, 4).xid, opcode, ErrorCode.OK)
            reply = Reply(inner.data_to_send(), ErrorCode.OK)
            self._gateway.close_local(inner.client.session_id)
            inner.close()
        else:
            while inner.receive_data(head):
                head = b""
            reply = Reply.parse(inner.data_to_send(), opcode)
        self._sent += self._queue.answer(passed, reply, inner.engine.zxid)

    def _answer_slots(self) -> None:
        """Answer the requests that wait for nothing any more, in order."""
        while self._slots and not self._inner.closing:
            slot = self._slots[0]
            if not slot.is_local and slot.outcome is None:
                break
            self._slots.popleft()
            self._queue.send_unasked(slot.passed.request.session)
            if slot.outcome is None:
                self._answer_here(slot.head, slot.passed)
            else:
                self._answer_decided(slot, *slot.outcome)

    # --- through the leader ---

    def _forward(self, head: bytes, passed: Passed) -> None:
        inner, opcode = self._inner, passed.request.opcode
        header = r.RequestHeader.decode(head, 4)
        slot = _Slot(head, passed, is_local=False)
        self._slots.append(slot)
        fails_with = passed.effect.code if passed.effect is not None and passed.has(Effect.FAIL) else 0
        if opcode == OpCode.DELETE_CONTAINER:
            fails_with = fails_with or self._container_error()
        body = head[12:]
        if self._gateway.is_local(inner.client.session_id) and creates_ephemeral(opcode, body):
            if not self._gateway.upgrade(inner.client.session_id):
                fails_with = ErrorCode.EPHEMERAL_ON_LOCAL_SESSION
        self._gateway.touch(inner.client.session_id)
        inner.client.last_xid = header.xid

        def answered(code: int, reply: bytes) -> None:
            if slot in self._slots:
                slot.outcome = inner.engine.zxid, code, reply
                self._answer_slots()
                self._resume()

        if opcode == OpCode.SYNC and not fails_with:
            try:
                path = r.SyncRequest.decode(body).path
            except MarshallingError:
                self._gateway.sync(lambda: answered(ErrorCode.MARSHALLING_ERROR, b""))
            else:
                self._gateway.sync(lambda: answered(ErrorCode.OK, put_str(path)))
        else:
            asking = _copy_of(inner.client)
            self._gateway.forward(Forwarded(asking, header.xid, opcode, body, answered, fails_with))

    def _answer_decided(self, slot: _Slot, zxid: int, code: int, body: bytes) -> None:
        """Answer a request whose outcome this member has applied."""
        inner, queue, opcode = self._inner, self._queue, slot.passed.request.opcode
        if code == ErrorCode.SESSION_MOVED:
            queue.record(slot.passed, None, zxid)
            self.close()
            return
        inner.answer(r.RequestHeader.decode(slot.head, 4).xid, opcode, code, body, zxid)
        reply = Reply.parse(inner.data_to_send(), opcode)
        self._sent += queue.answer(slot.passed, reply, zxid)
        if opcode == OpCode.CLOSE_SESSION:
            self.close()

    def _resume(self) -> None:
        """Have the transport send what was answered, unless it is about to do so."""
        if not self._is_executing:
            self._queue.resume()

    # --- the handshake ---

    def _connect(self, head: bytes, passed: Passed) -> None:
        inner, gateway = self._inner, self._gateway
        try:
            request = ConnectRequest.decode(head, 4)
        except MarshallingError:
            self._answer_here(head, passed)
            return
        if not inner.may_connect(request):
            self._queue.record(passed, None, inner.engine.zxid)
            return
        if self._is_read_only and not gateway.serves_local_sessions:
            self._refuse_read_only(request, passed)
            return
        if self._is_read_only:
            self._begin(request, passed, gateway.local_session(inner, request))
            return
        self._opening = passed
        timeout = inner.engine.settings.negotiate(request.timeout_ms)
        if request.session_id == 0 and gateway.serves_local_sessions:
            self._begin(request, passed, gateway.local_session(inner, request))
        elif request.session_id == 0:
            session_id = gateway.new_session_id()

            def opened() -> None:
                self._begin(request, passed, inner.engine.sessions.alive.get(session_id))

            gateway.open_session(session_id, timeout, opened)
        else:
            session = inner.resumable(request)
            if not inner.engine.sessions.proves(request.session_id, request.password):
                self._begin(request, passed, None)
            elif session is not None and gateway.is_local(session.id):
                self._begin(request, passed, session)
            else:
                gateway.revalidate(request.session_id, timeout, lambda session: self._begin(request, passed, session))

    def _refuse_read_only(self, request: ConnectRequest, passed: Passed) -> None:
        """Refuse a client of a read-only member that has no local sessions: it can neither open nor resume a global
        one. What opens one is answered with a header alone, which no client understands.

        Source: ReadOnlyRequestProcessor, case createSession; ReadOnlyZooKeeperServer.validateSession.
        """
        data = b""
        if request.session_id == 0:
            data = frame(r.ReplyHeader(0, self._inner.engine.zxid, ErrorCode.NOT_READ_ONLY).encode())
        else:
            self.close()
        self._sent += self._queue.answer(passed, Reply(data, ErrorCode.NOT_READ_ONLY), self._inner.engine.zxid)

    def _begin(self, request: ConnectRequest, passed: Passed, session: Session | None) -> None:
        if self._inner.closing or (self._opening is not None and self._opening is not passed):
            return
        self._opening = None
        inner = self._inner
        inner.begin(request, session)
        reply = Reply.parse(inner.data_to_send(), CONNECT)
        is_local = session is not None and self._gateway.is_local(session.id)  # it has taken no zxid
        self._sent += self._queue.answer(passed, reply, 0 if is_local else inner.engine.zxid)
        early, self._early = self._early, []
        for head, each in early:
            self._execute(head, each)
        self._resume()


def creates_ephemeral(opcode: int, body: bytes) -> bool:
    """Return whether a request creates an ephemeral node, which needs a session of the whole ensemble.

    Source: QuorumZooKeeperServer.checkUpgradeSession.
    """
    try:
        if opcode == OpCode.MULTI:
            operations = [request for _, request in wire.read_operations(body, 0, len(body))]
        else:
            operations = [r.CreateRequest.decode(body)] if opcode in (OpCode.CREATE, OpCode.CREATE2) else []
    except MarshallingError:
        return False
    return any(isinstance(each, r.CreateRequest) and each.flags in EPHEMERAL_MODES for each in operations)


def _copy_of(client: ClientConnection) -> ClientConnection:
    """Return a client as it is now: it may authenticate, or be gone, before the leader has its request."""
    copy = ClientConnection(client.host, client.port)
    copy.ids, copy.schemes, copy.is_super = dict(client.ids), set(client.schemes), client.is_super
    copy.session, copy.last_xid = client.session, client.last_xid
    return copy
