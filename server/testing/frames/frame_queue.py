"""A frame queue: the frames of one connection pass it in order and one at a time, each when nothing holds it any more.

A frame at the head of the queue::

    complete --faults are matched and counted, once--> matched --not delayed, not held--> executed, recorded
                                                         |  ^
                                                         v  |
                                           waiting: a timer runs, or a hold() is not released

While the session is paused, it keeps what it receives, or what is to be sent and is not closed, or both.

Invariants: a waiting frame delays those after it; a frame is matched once, however often it is looked at; ``_matched``
and ``_held_by`` belong to the head of the queue. What is sent keeps its order: after a reply that is sent slowly
everything waits.

There is no I/O: it is a :class:`~zoolet.server.net.connections.SansIOConnection`. An :class:`Executor` executes what
has passed: :class:`~zoolet.server.testing.frames.core_executor.CoreExecutor` by a server's core,
:class:`~zoolet.server.testing.frames.upstream.Upstream` by a server somewhere else. It gives each answer back to
:meth:`FrameQueue.answer`, where the effects of faults meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import Protocol

from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.handshake import ConnectRequest
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import State
from zoolet.server.testing.frames.actions import Action, Effect
from zoolet.server.testing.frames.faults import Fault
from zoolet.server.testing.frames.interceptor import Interceptor, Reply
from zoolet.server.testing.frames.outbox import Outbox
from zoolet.server.testing.frames.requests import CONNECT, RecordedRequest, Request
from zoolet.server.testing.signatures import Direction


class Passed:
    """A request that has left the queue.

    Args:
        request: The request.
        matched: The faults that match it.

    Attributes:
        effect: The action whose effect applies: the first in the order of :class:`Effect`; None if there is none.
        rate: At how many bytes a second its reply is sent; None if nothing limits it.
    """

    __slots__ = ("effect", "matched", "rate", "request")

    def __init__(self, request: Request, matched: list[Fault]) -> None:
        self.request = request
        self.matched = matched
        self.effect: Action | None = None
        self.rate: float | None = None
        if matched:
            actions = [fault.action for fault in matched]
            ranked = [(action.effect.value, action) for action in actions if action.effect is not None]
            self.effect = min(ranked, key=lambda entry: entry[0])[1] if ranked else None
            self.rate = min((action.rate for action in actions if action.rate is not None), default=None)

    def has(self, effect: Effect) -> bool:
        """Return whether an effect applies."""
        return self.effect is not None and self.effect.effect is effect


class Executor(Protocol):
    """The part that executes the frames that have passed a queue."""

    @property
    def is_raw(self) -> bool:
        """Whether all bytes of the connection pass as they are: TLS, or a four-letter command for another server."""
        ...

    def begins_raw(self, data: bytes) -> bool:
        """Return whether a connection that is not open begins with something other than frames: a four-letter command,
        or TLS.
        """
        ...

    def execute_raw(self, data: bytes) -> None:
        """Execute something other than frames; no fault applies to it, and it is not recorded."""
        ...

    def execute(self, head: bytes, passed: Passed) -> int:
        """Execute a frame, as the effect of its faults says, and answer it now or later; return how many bytes answer
        it at once.
        """
        ...

    def unasked_output(self) -> bytes:
        """Remove and return the output that no request of this connection has caused."""
        ...

    def unanswered(self) -> Iterable[Passed]:
        """Return the requests that are executed and not answered, in order."""
        ...

    def close(self) -> None:
        """Close the connection once its output is sent, because a fault says so."""
        ...

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        ...


class FrameQueue:
    """A connection whose frames pass one at a time.

    Args:
        interceptor: The pauses, faults and recorded requests.
        client: The connection as others see it.
        resume: Makes the transport call ``receive_data(b"")`` and send the output.
        executor: Makes what executes the frames of this queue.
        max_frame: The most bytes of a frame.
        max_output: The most bytes of output that a turn may cause.

    Attributes:
        client: As given.
        executor: What executes the frames.
        number: The number of the connection, counted from 1.
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
        self._queue = b""  # received, and not forwarded yet
        self._matched: list[Fault] | None = None  # the faults that apply to the first frame of the queue
        self._held_by: list[Fault] = []  # those of them that hold it
        self._delayed = 0  # which timer is running; 0 for none
        self._delays = 0
        self._looked_at = 0  # frames that were matched
        self._dropping = False  # a request was dropped: nothing after it passes
        self.number = interceptor.add_connection(client, self)

    # --- as a SansIOConnection ---

    @property
    def state(self) -> State:
        """The state of the connection."""
        return State.CLOSED if self.client.closing else State.OPEN if self.is_open else State.CONNECTING

    @property
    def closing(self) -> bool:
        """Whether the socket is to be closed; not while the session is paused, or something is still to be sent."""
        return self.client.closing and not self.output and not self._paused("replies")

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Receive bytes and forward the frames that need not wait; return whether some remain for a later turn."""
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
            sent = self._pass_on(head)
            if sent is None:
                return False
            output_left -= sent
            if self._queue and (output_left < 0 or time() > until):
                return True
        if client.closing and self.closing:  # a paused one is needed when its session is resumed
            self.interceptor.connections.pop(self.client, None)
        return False

    def data_to_send(self) -> bytes:
        """Return the bytes to write now; none while the session is paused."""
        if self._paused("replies"):
            return b""
        self.send_unasked(self.session_id())
        return self.output.read()

    def connection_lost(self) -> None:
        """Remove the connection, because the peer is gone."""
        self.interceptor.connections.pop(self.client, None)
        self.executor.connection_lost()

    def recheck(self) -> None:
        """Forward the frames that need not wait any more."""
        self.resume()

    def hurry(self) -> None:
        """End what delays requests and replies, those too that are not answered yet."""
        self._delayed = 0
        for passed in self.executor.unanswered():
            passed.rate = None
        self.output.hurry()
        self.recheck()

    # --- for reports ---

    def waiting_request(self) -> tuple[Request, list[Fault]] | None:
        """Return the request that waits for a fault or for its answer, and the faults that match it; None if none
        waits.
        """
        if self._matched is not None and (head := self._first_frame()) is not None:
            return self._request_in(head), self._matched
        oldest = next(iter(self.executor.unanswered()), None)
        return None if oldest is None else (oldest.request, oldest.matched)

    # --- one frame ---

    def _first_frame(self) -> bytes | None:
        """Return the first frame if it is complete, or all bytes if they cannot be a frame: they are executed as they
        are.
        """
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if not 0 <= length <= self._max_frame or (not self.is_open and self.executor.begins_raw(queue)):
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def session_id(self) -> int:
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
        return self.interceptor.is_paused(self.session_id(), what)

    def _request_in(self, head: bytes) -> Request:
        if not self.is_open:
            return Request(CONNECT, self.session_id(), head[4:])
        opcode, body = (int_at(head, 8)[0], head[12:]) if len(head) >= 12 else (0, b"")
        return Request(opcode, self.session_id(), body)

    def _pass_on(self, head: bytes) -> int | None:
        """Execute the first frame with the faults that match it; return the bytes that answer it at once, or None if it
        must wait.
        """
        if not self.is_open and self.executor.begins_raw(head):
            self._queue = b""
            self.executor.execute_raw(head)
            return 0
        request = self._request_in(head)
        interceptor = self.interceptor
        if self._matched is None:
            self._matched = interceptor.claimed_by(request)
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            self._looked_at += 1
            for fault in self._held_by:
                interceptor.limit_hold(fault, partial(self._is_waiting, self._looked_at))
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
        return self.executor.execute(head, Passed(request, matched))

    def _is_waiting(self, number: int) -> bool:
        """Return whether the frame that was matched as the *number*-th one is still at the head of the queue."""
        is_here = self.interceptor.connections.get(self.client) is self
        return is_here and self._matched is not None and self._looked_at == number

    def _end_delay(self, number: int) -> None:
        if self._delayed == number:  # hurry() has not ended it, and no other one has begun
            self._delayed = 0
            self.recheck()

    # --- for the executor ---

    def drop(self) -> None:
        """Stop passing anything on: what has come and what will come is discarded."""
        self._dropping = True
        self._queue = b""

    def send_unasked(self, session_id: int) -> None:
        """Send the output that no request of this connection has caused."""
        if output := self.executor.unasked_output():
            self.interceptor.record_events(self.number, session_id, output, with_reply=False)
            self.output.add(output)

    def answer(self, passed: Passed, reply: Reply, zxid: int) -> int:
        """Send a reply as the effect of the request's faults says, and record both; return how many bytes of it the
        client gets.
        """
        self.output.add(reply.events)
        effect = passed.effect
        kind = effect.effect if effect is not None else None
        if effect is not None and kind is Effect.CORRUPT_REPLY:
            reply = reply._replace(data=corrupted(reply.data, effect.at))
        elif effect is not None and kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY):
            self.output.add(reply.data[: effect.at], passed.rate)
            reply = reply._replace(data=b"", error=None, part_errors=())
        self.output.add(reply.data, passed.rate)
        self.record(passed, reply, zxid)
        if kind in (Effect.LOSE_REPLY, Effect.CUT_REPLY, Effect.CLOSE_AFTER):
            self.executor.close()
        return len(reply.data)

    def record(self, passed: Passed, reply: Reply | None, zxid: int) -> None:
        """Record a request, and its reply; None for none."""
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


def corrupted(data: bytes, at: int) -> bytes:
    """Return a frame with half the bits of four bytes inverted, *at* bytes after its length, or at its end."""
    if len(data) <= 4:
        return data
    start = min(4 + at, len(data) - 1)
    return data[:start] + bytes(byte ^ 0x55 for byte in data[start : start + 4]) + data[start + 4 :]
