"""The state of all connections of a test server or a proxy: the pauses, the faults, the requests that have passed.

Every frame of every connection passes a :class:`~zoolet.server.testing.frames.frame_queue.FrameQueue`, which asks here
whether it has to wait and which faults apply, and reports here what became of it.

A session is *served* or *paused* (its id is in ``paused``, or ``all_paused`` is set): its requests wait, or its
replies and events, or both.

A fault::

    active --hits--> active --release()--> released: matches nothing more, what it held is executed or sent
       |                                      |
       +--end(), reset()----------------------+--> removed: held requests are executed, withheld events are lost

Each transition that may end a wait calls :meth:`FrameQueue.recheck` of all connections.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from zoolet.protocol import multi as wire
from zoolet.protocol.codec import int_at
from zoolet.protocol.enums import Xid
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import ErrorResponse, ReplyHeader
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.requests import CONNECT, Entry, RecordedEvent, RecordedRequest, Request
from zoolet.server.testing.signatures import CallLater, Direction

MAX_SEEN: Final = 1000
"""The most requests that are kept."""


class Reply(NamedTuple):
    """The answer to one request.

    Args:
        data: The reply's frame; empty for none.
        error: Its error code; None if there is no reply, or the reply has no header.
        part_errors: Of a transaction, the error codes of its parts.
        events: The frames of the events that the request caused for its own client.
    """

    data: bytes
    error: int | None
    part_errors: tuple[int, ...] = ()
    events: bytes = b""

    @classmethod
    def parse(cls, data: bytes, opcode: int) -> Reply:
        """Split the core's output after one request into reply and events."""
        if opcode == CONNECT:
            return cls(data, _handshake_error(data))
        events, replies = b"", b""
        error: int | None = None
        part_errors: tuple[int, ...] = ()
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
    """Return the error of the answer to a connect request: that the session has expired is a timeout of 0 there."""
    with contextlib.suppress(MarshallingError):
        return 0 if ConnectResponse.decode(data, 4).timeout_ms else ErrorCode.SESSION_EXPIRED
    return None


def errors_in(payload: bytes, opcode: int) -> tuple[int | None, tuple[int, ...]]:
    """Return the error of a reply, and of a transaction those of its parts; a transaction whose header has none fails
    with that of its first part that failed.
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


class Intercepted(Protocol):
    """A connection, as far as pauses and faults are concerned: a frame queue."""

    def recheck(self) -> None:
        """Forward the frames that need not wait any more."""
        ...

    def hurry(self) -> None:
        """End what delays requests and replies."""
        ...

    def waiting_request(self) -> tuple[Request, list[Fault]] | None:
        """Return the request that waits, and the faults that hold or delay it; None if none waits."""
        ...


Recorder = Callable[[Entry], None]
"""Receives what passes while a recording runs."""


class Interceptor:
    """The pauses, faults and recorded requests of one server or proxy.

    Args:
        call_later: Calls a function after some seconds of the server's clock.
        now: Returns the server's time, in seconds since the epoch.

    Attributes:
        faults: The active faults, in the order in which they were added.
        paused: The ids of the paused sessions, and in which direction each is paused.
        all_paused: In which direction all sessions are paused; None if they are not.
        seen: The last requests.
        last: The last request of each session, by its id.
        began: When each session made its first request, in seconds since the epoch.
        last_zxid: The highest zxid of any request.
        passwords: The passwords of sessions that were opened at another server.
        count: The number of requests since the start or the last reset.
        requests: The number of requests other than pings, ever.
        connections: The open connections.
        recorders: The recordings that run.
        on_event_faults: Called with whether a fault for events is active, whenever that may have changed.
    """

    def __init__(
        self,
        call_later: CallLater,
        now: Callable[[], float],
    ) -> None:
        self.call_later = call_later
        self.now = now
        self.faults: list[Fault] = []
        self.paused: dict[int, Direction] = {}
        self.all_paused: Direction | None = None
        self.seen: deque[RecordedRequest] = deque(maxlen=MAX_SEEN)
        self.last: dict[int, RecordedRequest] = {}
        self.began: dict[int, float] = {}
        self.passwords: dict[int, bytes] = {}
        self.count = self.requests = self.last_zxid = 0
        self.connections: dict[ClientConnection, Intercepted] = {}
        self.connections_made = 0
        self.recorders: list[Recorder] = []
        self.on_event_faults: Callable[[bool], None] = lambda active: None
        self._withheld: list[tuple[Fault, Callable[[], None]]] = []

    def add_connection(self, client: ClientConnection, connection: Intercepted) -> int:
        """Add a connection; return its number, counted from 1."""
        self.connections_made += 1
        self.connections[client] = connection
        return self.connections_made

    # --- pausing ---

    def is_paused(self, session_id: int, what: Direction) -> bool:
        """Return whether a session's requests, or its replies, wait."""
        if self.all_paused is None and not self.paused:
            return False
        return self.all_paused in (what, "both") or self.paused.get(session_id) in (what, "both")

    def recheck(self) -> None:
        """Forward the frames of all connections that need not wait any more."""
        for connection in list(self.connections.values()):
            connection.recheck()

    # --- faults ---

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        self.faults.append(fault)
        self._check_event_faults()

    def remove(self, fault: Fault) -> None:
        """Remove a fault; the requests that it holds are executed, the events that it withheld are lost."""
        if fault in self.faults:
            self.faults.remove(fault)
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        self._check_event_faults()
        fault.action.released = True
        self.recheck()

    def release(self, fault: Fault) -> None:
        """Release a fault: execute the requests that it holds, and send the events that it withheld."""
        fault.action.released = True
        late = [send for owner, send in self._withheld if owner is fault]
        self._withheld = [entry for entry in self._withheld if entry[0] is not fault]
        for send in late:
            send()
        self.recheck()

    def _check_event_faults(self) -> None:
        self.on_event_faults(any(fault.action.events for fault in self.faults))

    def withhold(self, session_id: int, event: tuple[int, str], send: Callable[[], None]) -> bool:
        """Return whether a fault withholds an event, of a type and a path; *send* sends it if the fault is released."""
        request = Request(0, session_id, b"", event=event)
        for fault in self.faults:
            if fault.claim(request):
                self._withheld.append((fault, send))
                return True
        return False

    def claimed_by(self, request: Request) -> list[Fault]:
        """Return the faults that apply to a request, in the order in which they were added."""
        return [fault for fault in self.faults if fault.claim(request)]

    def limit_hold(self, fault: Fault, is_waiting: Callable[[], bool]) -> None:
        """Release a fault if a request that it holds still waits when its limit is over."""

        def over() -> None:
            if not fault.action.released and is_waiting():
                fault.was_too_long = True
                self.release(fault)

        self.call_later(fault.action.limit, over)

    # --- recording ---

    @property
    def is_recording(self) -> bool:
        """Whether a recording runs."""
        return bool(self.recorders)

    def record(self, request: RecordedRequest) -> None:
        """Record a request that has passed."""
        self.count += 1
        self.requests += request.opcode != OpCode.PING
        self.last_zxid = max(self.last_zxid, request.zxid)
        for recorder in self.recorders:
            recorder(request)
        kept = request._replace(reply=b"") if request.reply else request
        self.seen.append(kept)
        self.last.pop(request.session, None)  # the one that was active last is at the end
        self.last[request.session] = kept
        self.began.setdefault(request.session, request.time)
        if len(self.last) > 4 * MAX_SEEN:  # most of these sessions have ended
            self.last = dict(list(self.last.items())[-2 * MAX_SEEN :])
            self.began = {session: self.began[session] for session in self.last}

    def stop_recorder(self, recorder: Recorder) -> None:
        """Record no more for a recorder, if it is one."""
        if recorder in self.recorders:
            self.recorders.remove(recorder)

    def record_events(self, connection: int, session_id: int, frames: bytes, *, with_reply: bool) -> None:
        """Record the events among frames that are sent to a client, while a request is answered or not."""
        for payload in Frames(limit=None).feed(frames) if self.recorders else ():
            if is_event(payload):
                for recorder in self.recorders:
                    recorder(RecordedEvent(connection, session_id, self.now(), payload, with_reply))

    # --- the end ---

    def heal(self) -> None:
        """Remove all faults and pauses."""
        for fault in list(self.faults):
            self.remove(fault)
        self.paused.clear()
        self.all_paused = None
        for connection in list(self.connections.values()):
            connection.hurry()

    def reset(self) -> None:
        """Remove all faults, pauses and recorded requests."""
        self.heal()
        self.seen.clear()
        self.last.clear()
        self.began.clear()
        self.count = 0
