"""The interceptor of a test server: every frame of every connection passes it, one at a time, on its way to the core.

It pauses connections, applies faults and records requests. There is no I/O: an :class:`InterceptedConnection` wraps a
:class:`~zoolet.server.core.server_connection.ServerConnection` and has the same methods, so real sockets and simulated
ones are intercepted in the same way.

A session is *served* or *paused* (its id is in ``paused``, or ``all_paused`` is set). While it is paused, its
connections keep what they receive in ``_queue`` and what they have answered in ``_output``, and are not closed.

A frame at the head of a connection's queue::

    complete --faults are matched and counted, once--> matched --not delayed, not held--> executed, recorded
                                                         |  ^
                                                         v  |
                                           waiting: a timer runs, or a hold() is not released

A fault::

    active --hits--> active --release()--> released: matches nothing more, what it held is executed or sent
       |                                      |
       +--end(), reset()----------------------+--> removed: held requests are executed, withheld events are lost

Invariants: a connection forwards its frames in order and one at a time, so that a waiting frame delays those behind it;
a frame is matched once, however often it is looked at; ``matched`` and ``held`` belong to the head of the queue. Each
transition that may end a wait calls :meth:`InterceptedConnection.recheck`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from zoolet.protocol import multi as wire
from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import Xid
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import ErrorResponse, ReplyHeader, RequestHeader
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection, State
from zoolet.server.testing.actions import Effect
from zoolet.server.testing.faults import CONNECT, Fault, paths_in

KEPT: Final = 1000
"""The number of requests that are kept."""


class RecordedRequest(NamedTuple):
    """One request that passed; :mod:`~zoolet.server.testing.views` decodes it on demand."""

    session: int
    opcode: int
    body: bytes
    zxid: int
    error: int | None
    faults_applied: str


class Reply(NamedTuple):
    """The core's output after one request.

    Args:
        data: The reply's frame; empty for none.
        error: Its error code; None if there is no reply, or the reply has no header.
        events: The frames of the events that the request caused for its own client.
    """

    data: bytes
    error: int | None
    events: bytes

    @classmethod
    def parse(cls, data: bytes, opcode: int) -> Reply:
        """Split the core's output after one request into reply and events."""
        if opcode == CONNECT:
            return cls(data, _handshake_error(data), b"")
        events, replies = b"", b""
        error = None
        for payload in Frames(limit=None).feed(data):
            if int_at(payload, 0)[0] == Xid.NOTIFICATION:
                events += frame(payload)
            else:
                replies += frame(payload)
                error = _error_of(payload, opcode)
        return cls(replies, error, events)


def _handshake_error(data: bytes) -> int | None:
    """Return the error of the answer to a connect request: that the session has expired is a timeout of 0 there."""
    with contextlib.suppress(MarshallingError):
        return 0 if ConnectResponse.decode(data, 4).timeout_ms else ErrorCode.SESSION_EXPIRED
    return None


def _error_of(payload: bytes, opcode: int) -> int | None:
    """Return the error of a reply; of a transaction that of its first part that failed, if its header has none."""
    if len(payload) < 16:
        return None
    error = ReplyHeader.decode(payload).err
    if error == 0 and opcode == OpCode.MULTI:
        for _, record in wire.decode_results(payload[16:]):
            if isinstance(record, ErrorResponse) and record.err not in (0, ErrorCode.RUNTIME_INCONSISTENCY):
                return record.err
    return error


class Interceptor:
    """The pauses, faults and recorded requests of one server.

    Args:
        engine: The server's engine.
        call_later: Calls a function after some seconds of the server's clock.

    Attributes:
        paused: The ids of the paused sessions.
        all_paused: Whether all sessions are paused.
        seen: The last requests.
        count: The number of requests since the start or the last reset.
    """

    def __init__(self, engine: Engine, call_later: Callable[[float, Callable[[], object]], object]) -> None:
        self.engine = engine
        self.call_later = call_later
        self.faults: list[Fault] = []
        self.paused: set[int] = set()
        self.all_paused = False
        self.seen: deque[RecordedRequest] = deque(maxlen=KEPT)
        self.count = 0
        self.connections: dict[ClientConnection, InterceptedConnection] = {}
        self._withheld: list[tuple[Fault, ClientConnection, bytes]] = []

    def wrap(self, connection: ServerConnection, resume: Callable[[], object]) -> InterceptedConnection:
        """Return an intercepted connection; *resume* makes its transport receive and send again."""
        return InterceptedConnection(self, connection, resume)

    # --- pausing ---

    def is_paused(self, session_id: int) -> bool:
        """Return whether a session is paused."""
        return self.all_paused or session_id in self.paused

    def recheck(self) -> None:
        """Forward the frames of all connections that need not wait any more."""
        for connection in list(self.connections.values()):
            connection.recheck()

    # --- faults ---

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self.faults.append(fault)
        if fault.action.events:
            self.engine.watches.event_filter = self._withhold

    def remove(self, fault: Fault) -> None:
        """Remove a fault; the requests that it holds are executed, the events that it withheld are lost."""
        if fault in self.faults:
            self.faults.remove(fault)
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        if not any(other.action.events for other in self.faults):
            self.engine.watches.event_filter = None
        fault.action.released = True
        self.recheck()

    def release(self, fault: Fault) -> None:
        """Release a fault: execute the requests that it holds, and send the events that it withheld."""
        fault.action.released = True
        for owner, client, event in self._withheld:
            if owner is fault and not client.closing:
                client.outbox.append(event)
                self.engine.pending_output[client] = None
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        self.recheck()

    def _withhold(self, client: ClientConnection, path: str, event: int, data: bytes) -> bool:
        session_id = client.session.id if client.session is not None else 0
        hit = False
        for fault in self.faults:
            if fault.applies(0, session_id, lambda: (path,), event=True):
                self._withheld.append((fault, client, data))
                hit = True
                break
        return hit

    def matching(self, opcode: int, session_id: int, body: bytes) -> list[Fault]:
        """Return the faults that apply to a request, in the order in which they were added."""
        return [
            fault
            for fault in self.faults
            if fault.applies(opcode, session_id, lambda: paths_in(opcode, body), event=False)
        ]

    def record(self, session_id: int, opcode: int, body: bytes, error: int | None, faults_applied: str) -> None:
        """Record a request; an *error* of None means that there was no reply."""
        self.count += 1
        self.seen.append(RecordedRequest(session_id, opcode, body, self.engine.zxid, error, faults_applied))

    def heal(self) -> None:
        """Remove all faults and pauses."""
        for fault in list(self.faults):
            self.remove(fault)
        self.paused.clear()
        self.all_paused = False
        self.recheck()

    def reset(self) -> None:
        """Remove all faults, pauses and recorded requests."""
        self.heal()
        self.seen.clear()
        self.count = 0


class InterceptedConnection:
    """A connection whose frames pass an interceptor.

    Args:
        interceptor: The server's interceptor.
        inner: The connection that answers the frames.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
    """

    def __init__(self, interceptor: Interceptor, inner: ServerConnection, resume: Callable[[], object]) -> None:
        self._interceptor = interceptor
        self._inner = inner
        self._resume = resume
        self._queue = b""  # received, and not forwarded yet
        self._output: list[bytes] = []  # answered by the core, and not sent yet
        self._matched: list[Fault] | None = None  # the faults that apply to the first frame of the queue
        self._held_by: list[Fault] = []  # those of them that hold it
        self._delayed = False  # a timer is running
        interceptor.connections[inner.client] = self

    # --- as ServerConnection ---

    @property
    def client(self) -> ClientConnection:
        """The connection as the operations see it."""
        return self._inner.client

    @property
    def state(self) -> State:
        """The state of the inner connection."""
        return self._inner.state

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed; not while the session is paused."""
        return self._inner.closing and not self._paused()

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes and forward the frames that need not wait; as :meth:`ServerConnection.receive_data`."""
        inner = self._inner
        self._queue = self._queue + data if self._queue else data
        output_left = inner.engine.settings.max_output_per_turn
        while self._queue and not inner.closing:
            if self._paused():
                return False
            head = self._first_frame()
            if head is None or not self._pass_on(head):
                return False
            output_left -= len(self._output[-1]) if self._output else 0
            if self._queue and (output_left < 0 or time() > until):
                return True
        if inner.closing and not self._paused():  # a paused one is needed when its session is resumed
            self._interceptor.connections.pop(inner.client, None)
        return False

    def data_to_send(self) -> bytes:
        """Return the bytes to write now; none while the session is paused."""
        if self._paused():
            return b""
        output, self._output = self._output, []
        return b"".join([*output, self._inner.data_to_send()])

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self._inner.connection_lost()
        self._interceptor.connections.pop(self._inner.client, None)

    def recheck(self) -> None:
        """Forward the frames that need not wait any more."""
        self._resume()

    # --- one frame ---

    def _first_frame(self) -> bytes | None:
        """Return the first frame if it is complete, or all bytes if they cannot be a frame: the core refuses them."""
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if self._inner.is_command(queue) or not 0 <= length <= self._inner.engine.settings.max_frame:
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def _session_id(self) -> int:
        """Return the id of the session that this connection serves or asks to resume; 0 for none yet."""
        session = self.client.session
        if session is not None:
            return session.id
        if self.state is State.CONNECTING and len(self._queue) >= 8:
            try:
                return ConnectRequest.decode(self._queue, 4).session_id
            except MarshallingError:
                return 0
        return 0

    def _paused(self) -> bool:
        interceptor = self._interceptor
        return interceptor.all_paused or (bool(interceptor.paused) and interceptor.is_paused(self._session_id()))

    def _pass_on(self, head: bytes) -> bool:
        """Forward the first frame with the faults that match it; return False if it must wait."""
        opcode, body = self._opcode_and_body(head)
        session_id = self._session_id()
        if self._matched is None:
            self._matched = self._interceptor.matching(opcode, session_id, body) if self._interceptor.faults else []
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            wait = sum(fault.action.seconds for fault in self._matched)
            if wait:
                self._delayed = True
                self._interceptor.call_later(wait, self._delay_is_over)
        if self._delayed or any(not fault.action.released for fault in self._held_by):
            return False
        matched, self._matched = self._matched, None
        self._queue = self._queue[len(head) :]
        effects = [fault.action for fault in matched if fault.action.effect is not None]
        first = min(effects, key=lambda action: action.effect.value, default=None)  # type: ignore[union-attr]
        self._output.append(self._inner.data_to_send())
        error = self._apply(head, opcode, first.effect if first else None, first.code if first else 0)
        session = self.client.session
        session_id = session_id or (session.id if session is not None else 0)
        faults_applied = " + ".join(repr(fault.action) for fault in matched)
        self._interceptor.record(session_id, opcode, body, error, faults_applied)
        return True

    def _delay_is_over(self) -> None:
        self._delayed = False
        self.recheck()

    def _opcode_and_body(self, head: bytes) -> tuple[int, bytes]:
        if self.state is State.CONNECTING:
            return CONNECT, head[4:]
        return (int_at(head, 8)[0], head[12:]) if len(head) >= 12 else (0, b"")

    def _apply(self, head: bytes, opcode: int, effect: Effect | None, code: int) -> int | None:
        """Execute a request with an effect; return the error code of the reply, None if there is no reply."""
        inner = self._inner
        if effect is Effect.DROP:
            self._close()
            return None
        if effect is Effect.FAIL:
            inner.answer_with_error(RequestHeader.decode(head, 4).xid, opcode, code)
            self._output.append(inner.data_to_send())
            return code
        while inner.receive_data(head):
            head = b""
        reply = Reply.parse(inner.data_to_send(), opcode)
        if effect is Effect.LOSE_REPLY:
            self._output.append(reply.events)
            self._close()
            return None
        self._output.append(reply.events + reply.data)
        if effect is Effect.CLOSE_AFTER:
            self._close()
        return reply.error

    def _close(self) -> None:
        if not self._inner.closing:
            self._inner.close()
