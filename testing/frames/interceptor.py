"""The state of all connections of a test server or proxy: pauses, faults and the processed requests.

Every frame of every connection passes a :class:`~zoolet.testing.frames.frame_queue.FrameQueue`. The queue uses the
interceptor to check whether a frame has to wait and which faults apply, and records the outcome in it.

A session is *served* or *paused*. It is paused while its id is in ``paused`` or ``all_paused`` is set. In that
case its requests wait, or its replies and events, or both.

A fault::

    active --hits--> active --release()--> released: no more matches; held requests are executed, events are sent
       |                                      |
       +--end(), reset()----------------------+--> removed: held requests are executed, withheld events are lost

Each transition that may end a wait calls :meth:`FrameQueue.recheck` of all connections.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ...protocol import multi as wire
from ...protocol.codec import int_at
from ...protocol.enums import Xid
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.framing import Frames, frame
from ...protocol.handshake import ConnectResponse
from ...protocol.operations import OpCode
from ...protocol.records import ErrorResponse, ReplyHeader
from ...server.core.client_connection import ClientConnection
from ...server.core.engine import Engine
from ..signatures import CallLater, Direction
from .faults import Fault
from .requests import CONNECT, Entry, InterceptedRequest, RecordedEvent, RecordedRequest

if TYPE_CHECKING:
    from .frame_queue import FrameQueue

MAX_RECENT_REQUESTS: Final = 1000
"""The number of recent requests to keep."""


class Reply(NamedTuple):
    """The answer to one request.

    Args:
        data: The reply's frame, or empty bytes if no reply was sent.
        error: The error code, or None if the reply is missing or has no header.
        part_errors: The error codes of the parts of a transaction.
        events: The frames of events that the request caused for its own client.
    """

    data: bytes
    error: int | None
    part_errors: tuple[int, ...] = ()
    events: bytes = b""

    @classmethod
    def parse(cls, data: bytes, opcode: int) -> Reply:
        """Split the core's output for one request into reply and events."""
        if opcode == CONNECT:
            return cls(data, _handshake_error(data))
        events, replies = b"", b""
        error: int | None = None
        part_errors: tuple[int, ...] = ()
        if len(data) > 8 and int_at(data, 0)[0] == len(data) - 4 and not is_event(data[4:]):  # usually a single reply
            return cls(data, *errors_in(data[4:], opcode))
        for payload in Frames(limit=None).feed(data):
            if is_event(payload):
                events += frame(payload)
            else:
                replies += frame(payload)
                error, part_errors = errors_in(payload, opcode)
        return cls(replies, error, part_errors, events)


def is_event(payload: bytes) -> bool:
    """Return whether a frame from a server, without its length, is a watch event."""
    return len(payload) >= 4 and int_at(payload, 0)[0] == Xid.NOTIFICATION


def _handshake_error(data: bytes) -> int | None:
    """Return the error code of a handshake response, in which a timeout of 0 means that the session has expired."""
    with contextlib.suppress(MarshallingError):
        return 0 if ConnectResponse.decode(data, 4).timeout_ms else ErrorCode.SESSION_EXPIRED
    return None


def errors_in(payload: bytes, opcode: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the error of a reply, and the errors of the parts of a transaction.

    A failed transaction without an error in its header gets the error of its first failed part.
    """
    if len(payload) < 16:
        return None, ()
    error = ReplyHeader.decode(payload).err
    if opcode not in (OpCode.MULTI, OpCode.MULTI_READ) or len(payload) == 16:
        return error, ()
    try:
        results = wire.decode_results(payload[16:])
    except MarshallingError:
        return error, ()
    parts = tuple(record.err if isinstance(record, ErrorResponse) else 0 for _, record in results)
    if error == 0 and opcode == OpCode.MULTI:
        error = next((part for part in parts if part not in (0, ErrorCode.RUNTIME_INCONSISTENCY)), 0)
    return error, parts


Recorder = Callable[[Entry], None]
"""Receives requests and events while a recording runs."""


class Interceptor:
    """The pauses, faults and recorded requests of one server or proxy.

    Args:
        call_later: Calls a function after some seconds of the server's clock.
        now: Returns the server's time, in seconds since the epoch.
        parent: The cluster's interceptor, for a member's interceptor, or None. The cluster's interceptor is checked
            first, records all requests, and holds the connections.

    Attributes:
        faults: The active faults, in order of addition.
        active_faults: The faults to match: for a member, the cluster's faults and then its own.
        paused: The paused directions by session id.
        all_paused: The paused direction of all sessions, or None if not all sessions are paused.
        seen: The most recent requests.
        last: The last request of each session, by session id.
        opened_at: The time of each session's first request, in seconds since the epoch.
        last_zxid: The highest zxid of any request.
        passwords: The passwords of sessions opened at a remote server, by session id.
        credentials: The schemes and credentials that a remote server accepted.
        count: The number of requests since the start or the last reset.
        non_ping_count: The number of requests other than pings. A reset does not change it.
        connections: The open connections.
        members: The interceptors of a cluster's members.
        recorders: The running recordings.
    """

    def __init__(
        self,
        call_later: CallLater,
        now: Callable[[], float],
        parent: Interceptor | None = None,
    ) -> None:
        self.call_later = call_later
        self.now = now
        self._parent = parent
        self.members: list[Interceptor] = []
        self.faults: list[Fault] = []
        self.active_faults: list[Fault] = self.faults if parent is None else parent.active_faults
        self.paused: dict[int, Direction] = {}
        self.all_paused: Direction | None = None
        self.seen: deque[RecordedRequest] = deque(maxlen=MAX_RECENT_REQUESTS)
        self.last: dict[int, RecordedRequest] = {}
        self.opened_at: dict[int, float] = {}
        self.count = self.non_ping_count = self.last_zxid = 0
        self._connections_made = 0
        self.connections: dict[ClientConnection, FrameQueue] = {}
        self.passwords: dict[int, bytes] = {}
        self.credentials: set[tuple[str, bytes]] = set()
        if parent is not None:
            self.connections, self.passwords = parent.connections, parent.passwords
            self.credentials = parent.credentials
            parent.members.append(self)
        self.recorders: list[Recorder] = []
        self._engine: Engine | None = None  # engine whose events this interceptor filters
        self._withheld: list[tuple[Fault, Callable[[], None]]] = []

    def add_connection(self, client: ClientConnection, connection: FrameQueue) -> int:
        """Add a connection, and return its number, which starts at 1 and is unique in a cluster."""
        if self._parent is not None:
            return self._parent.add_connection(client, connection)
        self._connections_made += 1
        self.connections[client] = connection
        return self._connections_made

    # --- pausing ---

    def is_paused(self, session_id: int, direction: Direction) -> bool:
        """Return whether a session's requests or replies are paused."""
        if self._parent is not None and self._parent.is_paused(session_id, direction):
            return True
        if self.all_paused is None and not self.paused:
            return False
        return self.all_paused in (direction, "both") or self.paused.get(session_id) in (direction, "both")

    def recheck(self) -> None:
        """Forward frames of all connections that no longer have to wait."""
        for connection in list(self.connections.values()):
            connection.recheck()

    # --- faults ---

    def add(self, fault: Fault) -> None:
        """Add a fault, which applies to all later requests and events."""
        self.faults.append(fault)
        self.update_faults()

    def remove(self, fault: Fault) -> None:
        """Remove a fault, if it is present. Its held requests are executed, and its withheld events are lost."""
        if fault in self.faults:
            self.faults.remove(fault)
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        self.update_faults()
        fault.action.released = True
        self.recheck()

    def release(self, fault: Fault) -> None:
        """Release a fault: execute its held requests and send its withheld events."""
        fault.action.released = True
        late = [send for owner, send in self._withheld if owner is fault]
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        for send in late:
            send()
        self.recheck()

    def filter_events_of(self, engine: Engine) -> None:
        """Filter the events of an engine while a fault for events is active."""
        self._engine = engine
        self.update_faults()

    def update_faults(self) -> None:
        """Update ``active_faults`` here and at the members, and filter events if a fault needs it."""
        self.active_faults = self.faults if self._parent is None else self._parent.faults + self.faults
        if self._engine is not None:
            is_active = any(fault.action.events for fault in self.active_faults)
            self._engine.watches.event_filter = self._is_withheld if is_active else None
        for each in self.members:
            each.update_faults()

    def _is_withheld(self, client: ClientConnection, path: str, event: int, frame: bytes) -> bool:
        def send() -> None:
            if self._engine is not None and not client.closing:
                client.outbox.append(frame)
                self._engine.pending_output[client] = None

        return self.withhold(client.session_id, (event, path), send)

    def withhold(self, session_id: int, event: tuple[int, str], send: Callable[[], None]) -> bool:
        """Return whether a fault withholds an event. If so, a release of the fault calls *send*.

        Args:
            session_id: The id of the session.
            event: The type and the path of the event.
            send: Sends the event.
        """
        if self._parent is not None and self._parent.withhold(session_id, event, send):
            return True
        request = InterceptedRequest(0, session_id, b"", event=event)
        for fault in self.faults:
            if fault.claim(request):
                self._withheld.append((fault, send))
                return True
        return False

    def limit_hold(self, fault: Fault, is_waiting: Callable[[], bool]) -> None:
        """Release a fault at the end of its limit, if a held request is still waiting."""

        def over() -> None:
            if not fault.action.released and is_waiting():
                fault.was_too_long = True
                owner.release(fault)

        owner = self if self._parent is None or fault in self.faults else self._parent

        self.call_later(fault.action.limit, over)

    # --- recording ---

    def has_answered(self, session_id: int) -> bool:
        """Return whether the last request of a session was answered on a connection that is still open."""
        last = self.last.get(session_id)
        if last is None or last.error is None or self.is_paused(session_id, "replies"):
            return False
        return any(
            client.session_id == session_id and not client.closing and connection.number == last.connection
            for client, connection in self.connections.items()
        )

    @property
    def is_recording(self) -> bool:
        """Whether a recording is running."""
        return bool(self.recorders) or (self._parent is not None and self._parent.is_recording)

    def record(self, request: RecordedRequest) -> None:
        """Record a processed request."""
        if self._parent is not None:
            self._parent.record(request)
        self.count += 1
        self.non_ping_count += request.opcode != OpCode.PING
        self.last_zxid = max(self.last_zxid, request.zxid)
        for recorder in self.recorders:
            recorder(request)
        kept = request._replace(reply=b"") if request.reply else request
        self.seen.append(kept)
        self.last.pop(request.session, None)  # keep the order of the last activity
        self.last[request.session] = kept
        self.opened_at.setdefault(request.session, request.time)
        if len(self.last) > 4 * MAX_RECENT_REQUESTS:  # forget the half that was inactive longest; most are closed
            self.last = dict(list(self.last.items())[-2 * MAX_RECENT_REQUESTS :])
            self.opened_at = {session: self.opened_at[session] for session in self.last}

    def stop_recorder(self, recorder: Recorder) -> None:
        """Remove a recorder if it is present."""
        if recorder in self.recorders:
            self.recorders.remove(recorder)

    def record_events(self, connection: int, session_id: int, frames: bytes, *, with_reply: bool) -> None:
        """Record the events among frames sent to a client. With *with_reply*, a reply follows directly."""
        if self._parent is not None:
            self._parent.record_events(connection, session_id, frames, with_reply=with_reply)
        for payload in Frames(limit=None).feed(frames) if self.recorders else ():
            if is_event(payload):
                for recorder in self.recorders:
                    recorder(RecordedEvent(connection, session_id, self.now(), payload, with_reply))

    # --- removing faults and requests ---

    def heal(self) -> None:
        """Remove all faults and pauses."""
        for fault in list(self.faults):
            self.remove(fault)
        self.paused.clear()
        self.all_paused = None
        for connection in list(self.connections.values()):
            connection.end_delays()

    def reset(self) -> None:
        """Remove all faults, pauses and recorded requests."""
        self.heal()
        self.seen.clear()
        self.last.clear()
        self.opened_at.clear()
        self.count = 0
