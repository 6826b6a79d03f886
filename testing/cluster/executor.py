"""The executor of a connection to a member: the member's engine executes reads, the leader all other requests.

Replies keep the order of the requests, as ZooKeeper promises: a read waits for earlier writes. A write is forwarded to
the leader immediately, and several writes can be in flight. Only the handshake, which opens the session, delays all
requests that follow.

Source: FollowerRequestProcessor, CommitProcessor; FinalRequestProcessor for a session that has moved.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from ...protocol import multi as wire
from ...protocol import records as r
from ...protocol.codec import int_at, put_str
from ...protocol.enums import EPHEMERAL_MODES
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.four_letter_words import LEADERLESS_COMMANDS
from ...protocol.framing import frame
from ...protocol.handshake import ConnectRequest
from ...protocol.operations import OPERATIONS, OpCode
from ...server.core.client_connection import ClientConnection, Session
from ...server.core.ops.dispatch import TABLE
from ...server.core.server_connection import ServerConnection
from ..frames.actions import Effect
from ..frames.frame_queue import FrameQueue, PassedRequest
from ..frames.interceptor import Reply, errors_in
from ..frames.requests import CONNECT
from .gateway import Gateway
from .preparing import ForwardedRequest
from .replica import MemberStatus

FORWARDED: Final = frozenset(
    [op for op in TABLE if OPERATIONS[op].takes_zxid] + [int(OpCode.CLOSE_SESSION), int(OpCode.SYNC)]
)
"""Op codes of requests that the leader executes."""
ANSWERED_EARLY: Final = frozenset({int(OpCode.AUTH), int(OpCode.SASL)})
"""Op codes of requests that are answered before earlier requests."""
NOT_SERVING: Final = b"This ZooKeeper instance is not currently serving requests\n"
"""The reply of a member without a leader to most four-letter commands."""


@dataclass(slots=True, eq=False)
class _Slot:
    """An unanswered request."""

    head: bytes
    passed: PassedRequest
    is_local: bool
    """Whether the member executes the request itself, instead of the leader."""
    outcome: tuple[int, int, bytes] | None = None
    """The zxid, error code and body of the reply, once the leader's result has been applied."""


class MemberExecutor:
    """A connection to a member, as an :class:`~zoolet.testing.frames.frame_queue.Executor`.

    Args:
        queue: The queue that the frames come from.
        inner: The core's connection to the member's engine.
        gateway: The member's gateway to the leader.
    """

    is_raw = False

    def __init__(self, queue: FrameQueue, inner: ServerConnection, gateway: Gateway) -> None:
        self._queue = queue
        self._inner = inner
        self._gateway = gateway
        self._slots: deque[_Slot] = deque()
        self._before_handshake: list[tuple[bytes, PassedRequest]] = []  # requests that wait for the handshake
        self._opening: PassedRequest | None = None
        self._sent = 0  # number of sent bytes that answer requests
        self._is_executing = False
        self.starts_raw = inner.is_command
        self.unsolicited_output = inner.data_to_send

    # --- as an Executor ---

    def execute_raw(self, data: bytes) -> None:
        """Execute a four-letter command."""
        if self._gateway.replica.status is MemberStatus.LOOKING and data[:4] not in LEADERLESS_COMMANDS:
            self._queue.output.add(NOT_SERVING)
            self._inner.close()
            return
        self._inner.receive_data(data)
        self._queue.output.add(self._inner.data_to_send())

    def execute(self, head: bytes, passed: PassedRequest) -> int:
        """Execute a frame or forward it to the leader. Return the number of reply bytes available immediately."""
        sent = self._sent
        self._is_executing = True
        try:
            self._execute(head, passed)
        finally:
            self._is_executing = False
        return self._sent - sent

    def unanswered(self) -> list[PassedRequest]:
        """Return the unanswered requests, in order."""
        opening = [self._opening] if self._opening is not None else []
        return [*opening, *(slot.passed for slot in self._slots), *(passed for _, passed in self._before_handshake)]

    def connection_lost(self) -> None:
        """Remove the connection. Requests already forwarded are executed, but not answered."""
        for passed in self.unanswered():
            self._queue.record(passed, None, self._inner.engine.zxid)
        self._forget()
        self._inner.connection_lost()

    def close(self) -> None:
        """Close the connection unless it is already closing."""
        self._forget()
        if not self._inner.closing:
            self._inner.close()

    def _forget(self) -> None:
        self._slots.clear()
        self._before_handshake.clear()
        self._opening = None

    # --- frames ---

    def _execute(self, head: bytes, passed: PassedRequest) -> None:
        inner, queue, opcode = self._inner, self._queue, passed.request.opcode
        if self._opening is not None:
            self._before_handshake.append((head, passed))
            return
        if output := inner.data_to_send():
            queue.send_unsolicited(passed.request.session, output)
        serves = self._gateway.replica.status.has_leader or self._is_read_only
        if passed.has(Effect.DROP) or not serves or self._has_session_moved(opcode):
            queue.record(passed, None, inner.engine.zxid)
            self.close()
        elif int_at(head, 0)[0] + 4 != len(head):  # the core logs a malformed frame, and closes the connection
            self._answer_from_member(head, passed)
        elif opcode == CONNECT:
            self._connect(head, passed)
        elif opcode in ANSWERED_EARLY:
            self._answer_from_member(head, passed)
        elif self._is_forwarded(opcode) and not self._is_read_only and not inner.auth_required():
            self._forward(head, passed)
        else:
            self._gateway.touch(inner.client.session_id)
            self._slots.append(_Slot(head, passed, is_local=True))
            self._answer_slots()

    def _has_session_moved(self, opcode: int) -> bool:
        """Return whether the leader closes the connection, because the session has moved to a different member.

        A write uses a zxid before this check, so it is forwarded instead.
        """
        checked = opcode == OpCode.SYNC or opcode not in (CONNECT, *ANSWERED_EARLY, *FORWARDED)
        return checked and self._gateway.knows_moved(self._inner.client.session_id)

    @property
    def _is_read_only(self) -> bool:
        return self._gateway.replica.status is MemberStatus.READ_ONLY

    def _is_forwarded(self, opcode: int) -> bool:
        if opcode == OpCode.CLOSE_SESSION:
            return not self._gateway.is_local(self._inner.client.session_id)
        if opcode == OpCode.DELETE_CONTAINER:  # deleteContainer may use a zxid, though clients must not send it
            return self._container_error() != ErrorCode.UNIMPLEMENTED
        return opcode in FORWARDED

    def _container_error(self) -> int:
        return self._inner.engine.settings.compat.delete_container_refused_with

    def _answer_from_member(self, head: bytes, passed: PassedRequest) -> None:
        """Answer a frame with the member's own core."""
        inner, opcode = self._inner, passed.request.opcode
        if passed.effect is not None and passed.has(Effect.FAIL):
            inner.append_reply(r.RequestHeader.decode(head, 4).xid, opcode, passed.effect.code)
            reply = Reply(inner.data_to_send(), passed.effect.code)
        elif opcode == OpCode.CLOSE_SESSION and self._gateway.is_local(inner.client.session_id):
            inner.append_reply(r.RequestHeader.decode(head, 4).xid, opcode, ErrorCode.OK)
            reply = Reply(inner.data_to_send(), ErrorCode.OK)
            self._gateway.close_local(inner.client.session_id)
            inner.close()
        else:
            while inner.receive_data(head):
                head = b""
            reply = Reply.parse(inner.data_to_send(), opcode)
        self._sent += self._queue.answer(passed, reply, inner.engine.zxid)

    def _answer_slots(self) -> None:
        """Answer the requests that no longer have to wait, in order."""
        while self._slots and not self._inner.closing:
            slot = self._slots[0]
            if not slot.is_local and slot.outcome is None:
                break
            self._slots.popleft()
            if output := self._inner.data_to_send():
                self._queue.send_unsolicited(slot.passed.request.session, output)
            if slot.outcome is None:
                self._answer_from_member(slot.head, slot.passed)
            else:
                self._answer_decided(slot, *slot.outcome)

    # --- requests that the leader executes ---

    def _forward(self, head: bytes, passed: PassedRequest) -> None:
        inner, opcode = self._inner, passed.request.opcode
        header = r.RequestHeader.decode(head, 4)
        slot = _Slot(head, passed, is_local=False)
        self._slots.append(slot)
        fails_with = passed.effect.code if passed.effect is not None and passed.has(Effect.FAIL) else 0
        if opcode == OpCode.DELETE_CONTAINER:
            fails_with = fails_with or self._container_error()
        body = head[12:]
        session_id = passed.request.session
        if self._gateway.is_local(session_id) and creates_ephemeral(opcode, body):
            if not self._gateway.upgrade(session_id):
                fails_with = ErrorCode.EPHEMERAL_ON_LOCAL_SESSION
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
                self._gateway.sync(session_id, lambda: answered(ErrorCode.MARSHALLING_ERROR, b""))
            else:
                self._gateway.sync(session_id, lambda: answered(ErrorCode.OK, put_str(path)))
        else:
            asking = _copy_state(inner.client)
            self._gateway.forward(ForwardedRequest(asking, session_id, header.xid, opcode, body, answered, fails_with))

    def _answer_decided(self, slot: _Slot, zxid: int, code: int, body: bytes) -> None:
        """Answer a forwarded request after this member has applied its result."""
        inner, queue, opcode = self._inner, self._queue, slot.passed.request.opcode
        if code == ErrorCode.SESSION_MOVED:
            queue.record(slot.passed, None, zxid)
            self.close()
            return
        inner.append_reply(r.RequestHeader.decode(slot.head, 4).xid, opcode, code, body, zxid)
        data = inner.data_to_send()  # the data is only the reply, because events were sent before
        self._sent += queue.answer(slot.passed, Reply(data, *errors_in(data[4:], opcode)), zxid)
        if opcode == OpCode.CLOSE_SESSION:
            self.close()

    def _resume(self) -> None:
        """Have the transport send the replies, unless a running :meth:`execute` will cause that anyway."""
        if not self._is_executing:
            self._queue.resume()

    # --- the handshake ---

    def _connect(self, head: bytes, passed: PassedRequest) -> None:
        inner, gateway = self._inner, self._gateway
        try:
            request = ConnectRequest.decode(head, 4)
        except MarshallingError:
            self._answer_from_member(head, passed)
            return
        if not inner.may_connect(request):
            self._queue.record(passed, None, inner.engine.zxid)
            return
        if self._is_read_only and not gateway.serves_local_sessions:
            self._refuse_read_only(request, passed)
            return
        if self._is_read_only:
            self._finish_handshake(request, passed, gateway.open_or_resume_local(inner, request))
            return
        self._opening = passed
        timeout = inner.engine.settings.negotiate(request.timeout_ms)
        if request.session_id == 0 and gateway.serves_local_sessions:
            self._finish_handshake(request, passed, gateway.open_or_resume_local(inner, request))
        elif request.session_id == 0:
            session_id = gateway.new_session_id()

            def opened() -> None:
                self._finish_handshake(request, passed, inner.engine.sessions.alive.get(session_id))

            gateway.open_session(session_id, timeout, opened)
        else:
            session = inner.take_over(request)
            if not inner.engine.sessions.password_matches(request.session_id, request.password):
                self._finish_handshake(request, passed, None)
            elif session is not None and gateway.is_local(session.id):
                self._finish_handshake(request, passed, session)
            else:
                gateway.revalidate(
                    request.session_id, timeout, lambda session: self._finish_handshake(request, passed, session)
                )

    def _refuse_read_only(self, request: ConnectRequest, passed: PassedRequest) -> None:
        """Refuse a client of a read-only member that serves no local sessions, because it cannot open global sessions.

        A request for a new session is answered with only a reply header, which clients do not understand.

        Source: ReadOnlyRequestProcessor, case createSession; ReadOnlyZooKeeperServer.validateSession.
        """
        data = b""
        if request.session_id == 0:
            data = frame(r.ReplyHeader(0, self._inner.engine.zxid, ErrorCode.NOT_READ_ONLY).encode())
        else:
            self.close()
        self._sent += self._queue.answer(passed, Reply(data, ErrorCode.NOT_READ_ONLY), self._inner.engine.zxid)

    def _finish_handshake(self, request: ConnectRequest, passed: PassedRequest, session: Session | None) -> None:
        if self._inner.closing or (self._opening is not None and self._opening is not passed):
            return
        self._opening = None
        inner = self._inner
        inner.start_session(request, session)
        reply = Reply.parse(inner.data_to_send(), CONNECT)
        is_local = session is not None and self._gateway.is_local(session.id)  # local sessions use no zxid
        self._sent += self._queue.answer(passed, reply, 0 if is_local else inner.engine.zxid)
        early, self._before_handshake = self._before_handshake, []
        for head, each in early:
            self._execute(head, each)
        self._resume()


def creates_ephemeral(opcode: int, body: bytes) -> bool:
    """Return whether a request creates an ephemeral node, which needs a global session.

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


def _copy_state(client: ClientConnection) -> ClientConnection:
    """Return a copy of a client's state. The state may change before the leader executes the request."""
    copy = ClientConnection(client.host, client.port)
    copy.ids, copy.schemes, copy.is_super = dict(client.ids), set(client.schemes), client.is_super
    copy.session, copy.last_xid = client.session, client.last_xid
    return copy
