"""The frame queue of a connection, which passes frames in order, one at a time, once no fault or pause delays them.

A frame at the head of the queue::

    complete --faults are matched and counted, once--> matched --not delayed, not held--> executed, recorded
                                                         |  ^
                                                         v  |
                                           waiting: a timer runs, or a hold() is not released

While the session is paused, the queue keeps received frames, or unsent output, or both, and does not close the socket.

Invariants:

- A waiting frame delays the frames after it.
- A frame is matched once, however often the queue checks it.
- ``_matched`` and ``_held_by`` belong to the head of the queue.
- Output keeps its order: everything after a slow reply waits.

A frame queue does no I/O: it is a :class:`~zoolet.server.net.connections.SansIOConnection`. An :class:`Executor`
executes the passed frames: :class:`~zoolet.testing.frames.core_executor.CoreExecutor` with a server's core,
:class:`~zoolet.testing.frames.upstream.Upstream` with a remote server. The executor passes each answer to
:meth:`FrameQueue.answer`, which applies the effects of faults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Protocol

from ...protocol.codec import int_at
from ...protocol.errors import MarshallingError
from ...protocol.handshake import ConnectRequest
from ...server.core.client_connection import ClientConnection
from ...server.core.server_connection import ConnectionState
from ..signatures import Direction
from .actions import Action, Effect
from .faults import Fault
from .interceptor import Interceptor, Reply
from .outbox import Outbox
from .requests import CONNECT, InterceptedRequest, RecordedRequest


class PassedRequest:
    """A request that has left the queue.

    Args:
        request: The request.
        matched: The faults that match it.
        since: The server's time when the faults matched, in seconds since the epoch. 0.0 without faults.

    Attributes:
        effect: The action whose effect applies: the first in the order of :class:`Effect`, or None.
        rate: Rate of the reply in bytes per second, or None for no limit.
    """

    __slots__ = ("effect", "matched", "rate", "request", "since")

    def __init__(self, request: InterceptedRequest, matched: list[Fault], since: float) -> None:
        self.request = request
        self.matched = matched
        self.since = since
        self.effect: Action | None = None
        self.rate: float | None = None
        if matched:
            actions = [fault.action for fault in matched]
            ranked = [(action.effect.value, action) for action in actions if action.effect is not None]
            self.effect = min(ranked, key=lambda entry: entry[0])[1] if ranked else None
            self.rate = min((action.rate for action in actions if action.rate is not None), default=None)

    def has(self, effect: Effect) -> bool:
        """Return whether this effect applies."""
        return self.effect is not None and self.effect.effect is effect


class Executor(Protocol):
    """The executor of the frames that have passed a queue."""

    @property
    def is_raw(self) -> bool:
        """Whether the connection's bytes pass unchanged: TLS, or a four-letter command for a remote server."""
        ...

    def starts_raw(self, data: bytes) -> bool:
        """Return whether a new connection starts with something other than frames: a four-letter command or TLS."""
        ...

    def execute_raw(self, data: bytes) -> None:
        """Execute data that is not a frame. Faults do not apply to such data, and it is not recorded."""
        ...

    def execute(self, head: bytes, passed: PassedRequest) -> int:
        """Execute a frame with the effect of its faults, and answer it now or later.

        Return the number of reply bytes that are available immediately.
        """
        ...

    def unsolicited_output(self) -> bytes:
        """Remove and return output that no request of this connection caused."""
        ...

    def unanswered(self) -> Iterable[PassedRequest]:
        """Return the requests that were executed but not answered yet, in order."""
        ...

    def close(self) -> None:
        """Close the connection, as a fault requires, once its output is sent."""
        ...

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        ...


class FrameQueue:
    """A connection whose frames pass one at a time.

    Args:
        interceptor: The pauses, faults and recorded requests.
        client: The connection's public state.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
        executor: Creates the executor of this queue's frames.
        max_frame: Maximum size of a frame in bytes.
        max_output: Maximum output of a turn in bytes.

    Attributes:
        client: The connection's public state.
        executor: Executes the frames.
        number: The number of the connection, starting at 1.
        is_open: Whether the connect request was executed.
        output: The bytes to be sent.
    """

    def __init__(
        self,
        interceptor: Interceptor,
        client: ClientConnection,
        resume: Callable[[], object],
        executor: Callable[[FrameQueue], Executor],
        *,
        max_frame: int,
        max_output: float = inf,
    ) -> None:
        self.client = client
        self.is_open = False
        self.resume = resume
        self.interceptor = interceptor
        self.output = Outbox(interceptor.call_later, resume)
        self.executor = executor(self)
        self._max_output = max_output
        self._max_frame = max_frame
        self._queue = b""  # received data that was not forwarded yet
        self._matched: list[Fault] | None = None  # the faults that apply to the first frame of the queue
        self._matched_at = 0.0
        self._held_by: list[Fault] = []  # the matched faults that hold the frame
        self._running_delay = 0  # the number of the running timer; 0 for none
        self._delay_count = 0
        self._matched_count = 0  # number of matched frames
        self._dropping = False  # a request was dropped, so later frames are discarded
        self.number = interceptor.add_connection(client, self)

    # --- as a SansIOConnection ---

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        if self.client.closing:
            return ConnectionState.CLOSED
        return ConnectionState.OPEN if self.is_open else ConnectionState.CONNECTING

    @property
    def closing(self) -> bool:
        """Whether to close the socket now. False while the session is paused or output is unsent."""
        return self.client.closing and not self.output and not self._paused("replies")

    @property
    def buffered(self) -> int:
        """The number of received bytes that have not been forwarded yet."""
        return len(self._queue)

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes, and forward the frames that need not wait. Return whether frames remain for a later turn."""
        if self._dropping:
            return False
        self._queue = self._queue + data if self._queue else data
        client, output_left = self.client, self._max_output
        while self._queue and not client.closing:
            if self._paused("requests"):
                return False
            head = self._first_frame()
            if head is None:
                return False
            sent = self._execute_first(head)
            if sent is None:
                return False
            output_left -= sent
            if self._queue and (output_left < 0 or time() > until):
                return True
        if client.closing and self.closing:  # a paused connection is still needed when its session resumes
            self.interceptor.connections.pop(self.client, None)
        return False

    def data_to_send(self) -> bytes:
        """Return the bytes to write now. While the session is paused, return no bytes."""
        if self._paused("replies"):
            return b""
        if output := self.executor.unsolicited_output():
            self.send_unsolicited(self.session_id(), output)
        return self.output.read()

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self.interceptor.connections.pop(self.client, None)
        self.executor.connection_lost()

    def recheck(self) -> None:
        """Forward frames that no longer have to wait."""
        self.resume()

    def end_delays(self) -> None:
        """End all delays of requests and replies, including requests that are not answered yet."""
        self._running_delay = 0
        for passed in self.executor.unanswered():
            passed.rate = None
        self.output.end_delays()
        self.recheck()

    # --- for reports ---

    def waiting_request(self) -> PassedRequest | None:
        """Return the request that waits for a fault or an answer, or None if no request waits."""
        if self._matched is not None and (head := self._first_frame()) is not None:
            return PassedRequest(self._request_in(head), self._matched, self._matched_at)
        return next(iter(self.executor.unanswered()), None)

    # --- one frame ---

    def _first_frame(self) -> bytes | None:
        """Return the first frame if it is complete, or all bytes if they are not a frame and are executed unchanged."""
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if not 0 <= length <= self._max_frame or (not self.is_open and self.executor.starts_raw(queue)):
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def session_id(self) -> int:
        """Return the id of the connection's session, or of the session that it requests to resume, or 0."""
        session = self.client.session
        if session is not None:
            return session.id
        if not self.is_open and len(self._queue) >= 8:
            try:
                return ConnectRequest.decode(self._queue, 4).session_id
            except MarshallingError:
                return 0
        return 0

    def _paused(self, direction: Direction) -> bool:
        return self.interceptor.is_paused(self.session_id(), direction)

    def _request_in(self, head: bytes) -> InterceptedRequest:
        if not self.is_open:
            return InterceptedRequest(CONNECT, self.session_id(), head[4:])
        opcode, body = (int_at(head, 8)[0], head[12:]) if len(head) >= 12 else (0, b"")
        return InterceptedRequest(opcode, self.session_id(), body)

    def _execute_first(self, head: bytes) -> int | None:
        """Execute the first frame with its matching faults, unless it must wait.

        Return the number of reply bytes that are available immediately, or None if the frame must wait.
        """
        if not self.is_open and self.executor.starts_raw(head):
            self._queue = b""
            self.executor.execute_raw(head)
            return 0
        request = self._request_in(head)
        interceptor = self.interceptor
        if self._matched is None:
            self._matched = [fault for fault in interceptor.active_faults if fault.claim(request)]
            self._matched_at = interceptor.now() if self._matched else 0.0
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            self._matched_count += 1
            for fault in self._held_by:
                interceptor.limit_hold(fault, partial(self._is_waiting, self._matched_count))
            wait = sum(fault.delay() for fault in self._matched)
            if wait:
                self._delay_count += 1
                self._running_delay = self._delay_count
                interceptor.call_later(wait, partial(self._end_delay, self._delay_count))
        if self._running_delay or any(not fault.action.released for fault in self._held_by):
            return None
        matched, self._matched = self._matched, None
        self._queue = self._queue[len(head) :]
        self.is_open = True
        return self.executor.execute(head, PassedRequest(request, matched, self._matched_at))

    def _is_waiting(self, number: int) -> bool:
        """Return whether the *number*-th matched frame is still at the head of the queue."""
        is_here = self.interceptor.connections.get(self.client) is self
        return is_here and self._matched is not None and self._matched_count == number

    def _end_delay(self, number: int) -> None:
        if self._running_delay == number:  # end_delays() or a new delay may have replaced this delay
            self._running_delay = 0
            self.recheck()

    # --- for the executor ---

    def drop(self) -> None:
        """Discard all input: the bytes received so far, and all later bytes."""
        self._dropping = True
        self._queue = b""

    def send_unsolicited(self, session_id: int, output: bytes) -> None:
        """Send output that no request of this connection caused."""
        if output:
            self.interceptor.record_events(self.number, session_id, output, with_reply=False)
            self.output.add(output)

    def answer(self, passed: PassedRequest, reply: Reply, zxid: int) -> int:
        """Send a reply, modified by the request's faults, and record both. Return the number of bytes in the reply."""
        self.output.add(reply.events)
        effect = passed.effect
        kind = effect.effect if effect is not None else None
        if effect is not None and kind is Effect.CORRUPT_REPLY:
            reply = reply._replace(data=corrupt_frame(reply.data, effect.at))
        elif effect is not None and kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY):
            self.output.add(reply.data[: effect.at], passed.rate)
            reply = reply._replace(data=b"", error=None, part_errors=())
        self.record(passed, reply, zxid)
        self.output.add(reply.data, passed.rate)
        if kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY, Effect.CLOSE_AFTER):
            self.executor.close()
        return len(reply.data)

    def record(self, passed: PassedRequest, reply: Reply | None, zxid: int) -> None:
        """Record a request and its reply, which is None if no reply was sent."""
        interceptor, request = self.interceptor, passed.request
        if reply is not None and reply.events:
            interceptor.record_events(self.number, request.session, reply.events, with_reply=True)
        interceptor.record(
            RecordedRequest(
                self.number,
                request.session or self.client.session_id,
                request.opcode,
                request.body,
                zxid,
                None if reply is None else reply.error,
                () if reply is None else reply.part_errors,
                " + ".join(repr(fault.action) for fault in passed.matched),
                interceptor.now(),
                reply.data[4:] if reply is not None and interceptor.is_recording else b"",
            )
        )


def corrupt_frame(data: bytes, at: int) -> bytes:
    """Return a frame with half the bits of four bytes inverted, *at* bytes after the length, but within the frame."""
    if len(data) <= 4:
        return data
    start = min(4 + at, len(data) - 1)
    return data[:start] + bytes(byte ^ 0x55 for byte in data[start : start + 4]) + data[start + 4 :]
