"""A frame queue: the frames of one connection pass it in order and one at a time, each when nothing holds it any more.

A frame at the head of the queue::

    complete --faults are matched and counted, once--> matched --not delayed, not held--> executed, recorded
                                                         |  ^
                                                         v  |
                                           waiting: a timer runs, or a hold() is not released

While the session is paused, it keeps what it receives, or what is to be sent and is not closed, or both.

Invariants: a waiting frame delays those behind it; a frame is matched once, however often it is looked at; ``_matched``
and ``_held_by`` belong to the head of the queue. What is sent keeps its order: behind a reply that is sent slowly
everything waits.

There is no I/O: it is a :class:`~zoolet.server.net.connections.SansIOConnection`. Of the two kinds,
:class:`~zoolet.server.testing.frames.intercepted.InterceptedConnection` executes frames by a server's core, and
:class:`~zoolet.server.testing.frames.proxied.ProxiedConnection` by a server somewhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.handshake import ConnectRequest
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import State
from zoolet.server.testing.frames.actions import Action, Effect
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.interceptor import Interceptor, Reply
from zoolet.server.testing.frames.requests import CONNECT, RecordedRequest, Request
from zoolet.server.testing.signatures import Direction

PIECES_PER_SECOND: Final = 20
"""In how many pieces a second a slow reply is sent, at most."""


class _Slow:
    """A reply that is sent in pieces."""

    def __init__(self, data: bytes, rate: float) -> None:
        self.data = data
        self.size = max(1, round(rate / PIECES_PER_SECOND))
        self.pause = self.size / rate
        self.waiting = False


class Outbox:
    """The bytes to be sent, in order; slow replies are sent in pieces.

    Args:
        call_later: Calls a function after some seconds.
        resume: Makes the transport ask for output again.
    """

    def __init__(
        self, call_later: Callable[[float, Callable[[], object]], object], resume: Callable[[], object]
    ) -> None:
        self._call_later = call_later
        self._resume = resume
        self._entries: deque[bytes | _Slow] = deque()

    def __len__(self) -> int:
        return sum(len(entry if isinstance(entry, bytes) else entry.data) for entry in self._entries)

    def add(self, data: bytes, rate: float | None = None) -> None:
        """Add bytes; with a *rate* they are sent slowly, at so many bytes a second."""
        if data:
            self._entries.append(data if rate is None else _Slow(data, rate))

    def read(self) -> bytes:
        """Remove and return what may be sent now."""
        parts = []
        while self._entries:
            entry = self._entries[0]
            if isinstance(entry, bytes):
                parts.append(entry)
                self._entries.popleft()
            elif entry.waiting:
                break
            elif not entry.data:
                self._entries.popleft()
            else:
                parts.append(entry.data[: entry.size])
                entry.data = entry.data[entry.size :]
                entry.waiting = True
                self._call_later(entry.pause, lambda slow=entry: self._continue(slow))  # type: ignore[misc]
        return b"".join(parts)

    def hurry(self) -> None:
        """Send slow replies at once."""
        self._entries = deque(entry if isinstance(entry, bytes) else entry.data for entry in self._entries)

    def _continue(self, slow: _Slow) -> None:
        slow.waiting = False
        self._resume()


class FrameQueue(ABC):
    """A connection whose frames pass one at a time.

    Args:
        interceptor: The pauses, faults and recorded requests.
        client: The connection as others see it.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
        max_frame: The most bytes of a frame.
        max_output: The most bytes of output that a turn may cause.

    Attributes:
        client: As given.
        number: The number of the connection, counted from 1.
        is_open: Whether the connect request was executed.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        client: ClientConnection,
        resume: Callable[[], object],
        max_frame: int,
        max_output: float,
    ) -> None:
        self.client = client
        self.is_open = False
        self._max_output = max_output
        self._interceptor = interceptor
        self._resume = resume
        self._max_frame = max_frame
        self._queue = b""  # received, and not forwarded yet
        self._output = Outbox(interceptor.call_later, resume)
        self._matched: list[Fault] | None = None  # the faults that apply to the first frame of the queue
        self._held_by: list[Fault] = []  # those of them that hold it
        self._delayed = 0  # which timer is running; 0 for none
        self._delays = 0
        interceptor.connections_made += 1
        self.number = interceptor.connections_made
        interceptor.connections[client] = self

    # --- what the two kinds differ in ---

    @abstractmethod
    def _begins_raw(self, data: bytes) -> bool:
        """Return whether a connection that is not open begins with something else than frames: a four-letter command,
        or TLS.
        """

    @abstractmethod
    def _execute_raw(self, data: bytes) -> None:
        """Execute something else than frames; no fault applies to it, and it is not recorded."""

    @abstractmethod
    def _execute(self, head: bytes, request: Request, matched: list[Fault]) -> int:
        """Execute the first frame, with the faults that match it, and have it recorded; return how many bytes answer
        it at once.
        """

    @abstractmethod
    def _more_output(self) -> bytes:
        """Remove and return the output that no request of this connection has caused."""

    # --- as a SansIOConnection ---

    @property
    def state(self) -> State:
        """The state of the connection."""
        return State.CLOSED if self.client.closing else State.OPEN if self.is_open else State.CONNECTING

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed; not while the session is paused, or something is still to be sent."""
        return self.client.closing and not self._output and not self._paused("replies")

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes and forward the frames that need not wait; return whether some remain for a later turn."""
        self._queue = self._queue + data if self._queue else data
        client, output_left = self.client, self._max_output
        while self._queue and not client.closing:
            if self._paused("requests"):
                return False
            head = self._first_frame()
            if head is None:
                return False
            sent = self._pass_on(head)
            if sent is None:
                return False
            output_left -= sent
            if self._queue and (output_left < 0 or time() > until):
                return True
        if client.closing and self.closing:  # a paused one is needed when its session is resumed
            self._interceptor.connections.pop(self.client, None)
        return False

    def data_to_send(self) -> bytes:
        """Return the bytes to write now; none while the session is paused."""
        if self._paused("replies"):
            return b""
        more = self._more_output()
        if more:
            self._interceptor.record_events(self.number, self._session_id(), more, with_reply=False)
            self._output.add(more)
        return self._output.read()

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self._interceptor.connections.pop(self.client, None)

    def recheck(self) -> None:
        """Forward the frames that need not wait any more."""
        self._resume()

    def hurry(self) -> None:
        """End what delays requests and replies."""
        self._delayed = 0
        self._output.hurry()
        self.recheck()

    # --- for reports ---

    def waiting_request(self) -> tuple[Request, list[Fault]] | None:
        """Return the request that waits, and the faults that hold or delay it; None if none waits."""
        if self._matched is None or (head := self._first_frame()) is None:
            return None
        return self._request_in(head), self._matched

    # --- one frame ---

    def _first_frame(self) -> bytes | None:
        """Return the first frame if it is complete, or all bytes if they cannot be a frame: they are executed as they
        are.
        """
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if not 0 <= length <= self._max_frame or (not self.is_open and self._begins_raw(queue)):
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def _session_id(self) -> int:
        """Return the id of the session that this connection serves or asks to resume; 0 for none yet."""
        session = self.client.session
        if session is not None:
            return session.id
        if not self.is_open and len(self._queue) >= 8:
            try:
                return ConnectRequest.decode(self._queue, 4).session_id
            except MarshallingError:
                return 0
        return 0

    def _paused(self, what: Direction) -> bool:
        interceptor = self._interceptor
        if interceptor.all_paused is None and not interceptor.paused:
            return False
        return interceptor.is_paused(self._session_id(), what)

    def _request_in(self, head: bytes) -> Request:
        if not self.is_open:
            return Request(CONNECT, self._session_id(), head[4:])
        opcode, body = (int_at(head, 8)[0], head[12:]) if len(head) >= 12 else (0, b"")
        return Request(opcode, self._session_id(), body)

    def _pass_on(self, head: bytes) -> int | None:
        """Execute the first frame with the faults that match it; return the bytes that answer it at once, or None if it
        must wait.
        """
        if not self.is_open and self._begins_raw(head):
            self._queue = b""
            self._execute_raw(head)
            return 0
        request = self._request_in(head)
        interceptor = self._interceptor
        if self._matched is None:
            self._matched = interceptor.matching(request) if interceptor.faults else []
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            for fault in self._held_by:
                interceptor.limit_hold(fault)
            wait = sum(fault.delay() for fault in self._matched)
            if wait:
                self._delays += 1
                self._delayed = self._delays
                interceptor.call_later(wait, partial(self._end_delay, self._delays))
        if self._delayed or any(not fault.action.released for fault in self._held_by):
            return None
        matched, self._matched = self._matched, None
        self._queue = self._queue[len(head) :]
        self.is_open = True
        return self._execute(head, request, matched)

    def _end_delay(self, number: int) -> None:
        if self._delayed == number:  # hurry() has not ended it, and no other one has begun
            self._delayed = 0
            self.recheck()

    # --- what answers it ---

    def _send_reply(self, reply: Reply, effect: Action | None, rate: float | None) -> tuple[Reply, bool]:
        """Send a reply as an effect says; return what the client gets of it, and whether the connection is to be closed
        now.
        """
        self._output.add(reply.events)
        kind = effect.effect if effect is not None else None
        if effect is not None and kind is Effect.CORRUPT_REPLY:
            reply = reply._replace(data=corrupted(reply.data, effect.at))
        elif effect is not None and kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY):
            self._output.add(reply.data[: effect.at], rate)
            reply = reply._replace(data=b"", error=None, part_errors=())
        self._output.add(reply.data, rate)
        return reply, kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY, Effect.CLOSE_AFTER)

    def _record(self, request: Request, reply: Reply | None, matched: list[Fault], zxid: int) -> None:
        session = self.client.session
        interceptor = self._interceptor
        if reply is not None and reply.events:
            interceptor.record_events(self.number, request.session, reply.events, with_reply=True)
        interceptor.record(
            RecordedRequest(
                self.number,
                request.session or (session.id if session is not None else 0),
                request.opcode,
                request.body,
                zxid,
                None if reply is None else reply.error,
                () if reply is None else reply.part_errors,
                " + ".join(repr(fault.action) for fault in matched),
                interceptor.now(),
                reply.data[4:] if reply is not None and interceptor.recorders else b"",
            )
        )


def effect_of(matched: list[Fault]) -> Action | None:
    """Return the action whose effect applies: the first in the order of :class:`Effect`; None if there is none."""
    ranked = [(fault.action.effect.value, fault.action) for fault in matched if fault.action.effect is not None]
    return min(ranked, key=lambda entry: entry[0])[1] if ranked else None


def rate_of(matched: list[Fault]) -> float | None:
    """Return the lowest bandwidth of some faults, in bytes a second; None if none limits it."""
    return min((fault.action.rate for fault in matched if fault.action.rate is not None), default=None)


def corrupted(data: bytes, at: int) -> bytes:
    """Return a frame with half the bits of four bytes inverted, *at* bytes behind its length, or at its end."""
    if len(data) <= 4:
        return data
    start = min(4 + at, len(data) - 1)
    return data[:start] + bytes(byte ^ 0x55 for byte in data[start : start + 4]) + data[start + 4 :]
