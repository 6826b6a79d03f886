"""The gate: every frame of every connection passes it, one at a time, on its way to the core.

Here connections are paused, faults applied, and operations recorded. It does no I/O: it sits between the transport and
the core, so that real sockets and simulated links go through the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.protocol.records import ReplyHeader, RequestHeader
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import FourLetterCommand, ServerConnection, State
from zoolet.server.testing.actions import Effect
from zoolet.server.testing.faults import CONNECT, Fault, paths_in

KEPT: Final = 1000
"""Operations that are remembered."""
_EVENT_HEAD: Final = b"\xff\xff\xff\xff"


class RecordedRequest(NamedTuple):
    """One request as it passed: what views show is worked out when somebody looks."""

    session: int
    opcode: int
    body: bytes
    zxid: int
    error: int | None
    faults_applied: str


class Interceptor:
    """What all connections of one server go through.

    Args:
        engine: What is behind it.
        later: Calls a function in so many seconds of the server's clock.
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

    def connect(
        self,
        again: Callable[[], object],
        client: ClientConnection,
        four_letter_commands: dict[bytes, FourLetterCommand],
    ) -> InterceptedConnection:
        """Make a connection that goes through this gate; *again* makes its transport look at it once more."""
        return InterceptedConnection(self, again, client, four_letter_commands)

    # --- pausing ---

    def stops(self, session_id: int) -> bool:
        """Return whether a session is paused."""
        return self.all_paused or session_id in self.paused

    def recheck(self) -> None:
        """Let every connection go on that can."""
        for connection in list(self.connections.values()):
            connection.recheck()

    # --- faults ---

    def add(self, fault: Fault) -> None:
        """Apply a fault from now on."""
        self.faults.append(fault)
        if fault.action.events:
            self.engine.watches.event_filter = self._withholds

    def remove(self, fault: Fault) -> None:
        """Apply a fault no more; what it holds goes on, and what it withheld is lost."""
        if fault in self.faults:
            self.faults.remove(fault)
        self._withheld = [one for one in self._withheld if one[0] is not fault]
        if not any(one.action.events for one in self.faults):
            self.engine.watches.event_filter = None
        fault.action.released = True
        self.recheck()

    def release(self, fault: Fault) -> None:
        """Let a fault hold no more, and send what it withheld."""
        fault.action.released = True
        for whose, client, frame in self._withheld:
            if whose is fault and not client.closing:
                client.outbox.append(frame)
                self.engine.watches.pending_output[client] = None
        self._withheld = [one for one in self._withheld if one[0] is not fault]
        self.recheck()

    def _withholds(self, client: ClientConnection, path: str, event: int, frame: bytes) -> bool:
        session_id = client.session.id if client.session is not None else 0
        hit = False
        for fault in self.faults:
            if fault.applies(0, session_id, lambda: (path,), event=True):
                self._withheld.append((fault, client, frame))
                hit = True
                break
        return hit

    def matching(self, opcode: int, session_id: int, body: bytes) -> list[Fault]:
        """Return the faults that apply to a request, in order of their making."""
        return [
            fault
            for fault in self.faults
            if fault.applies(opcode, session_id, lambda: paths_in(opcode, body), event=False)
        ]

    def record(self, session_id: int, opcode: int, body: bytes, error: int | None, faults_applied: str) -> None:
        """Remember an operation; no *error* means that nothing was answered."""
        self.count += 1
        self.seen.append(RecordedRequest(session_id, opcode, body, self.engine.zxid, error, faults_applied))

    def reset(self) -> None:
        """Forget all faults, pauses and operations."""
        for fault in list(self.faults):
            self.remove(fault)
        self.paused.clear()
        self.all_paused = False
        self.seen.clear()
        self.count = 0
        self.recheck()


class InterceptedConnection(ServerConnection):
    """A connection that goes through a gate.

    Args:
        gate: Which one.
        again: Calls :meth:`receive_data` with nothing, and sends what there is then.
        caller: The connection as the operations see it.
        words: The four-letter words that are answered.
    """

    __slots__ = ("_again", "_flush", "_held_by", "_interceptor", "_matched", "_queue", "_resumes_at")

    def __init__(
        self,
        interceptor: Interceptor,
        again: Callable[[], object],
        client: ClientConnection,
        four_letter_commands: dict[bytes, FourLetterCommand],
    ) -> None:
        super().__init__(interceptor.engine, client, four_letter_commands)
        self._interceptor = interceptor
        self._again = again
        self._flush = client.flush
        self._queue = b""  # what has not passed yet
        self._matched: list[Fault] | None = None  # what applies to the first frame of it
        self._held_by: list[Fault] = []  # those of them that make it wait
        self._resumes_at = False  # a timer is running
        interceptor.connections[client] = self

    def recheck(self) -> None:
        """Go on if nothing holds this connection any more."""
        self.client.flush = _not_now if self._paused() else self._flush
        if self.client.closing:  # its session ended while it was paused
            self.client.flush()
            return
        self._again()

    def connection_lost(self) -> None:
        """Record that the peer is gone."""
        super().connection_lost()
        self._interceptor.connections.pop(self.client, None)

    def receive_data(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Take bytes off the wire and let through what may pass; as :meth:`Connection.receive`."""
        if self.client.closing:
            self._interceptor.connections.pop(self.client, None)
            return False
        self._queue = self._queue + data if self._queue else data
        share = self.engine.settings.max_output_per_turn
        while self._queue and not self.client.closing:
            if self._paused():
                self.client.flush = _not_now
                return False
            frame = self._whole_frame()
            if frame is None:
                return False
            if not self._passes(frame):
                return False
            share -= sum(map(len, self.client.outbox[-2:]))
            if self._queue and (share < 0 or time() > until):
                return True
        if self.client.closing:
            self._interceptor.connections.pop(self.client, None)
        return False

    # --- one frame ---

    def _whole_frame(self) -> bytes | None:
        """Return the first frame if it is whole; what can be no frame is the core's to refuse, at once."""
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if self.state is State.CONNECTING and queue[:4] in self._four_letter_commands:
            return queue
        if not 0 <= length <= self.engine.settings.max_frame:
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def _session_id(self) -> int:
        """Return the session this connection serves, or asks for with its first frame; 0 for none yet."""
        if self.client.session is not None:
            return self.client.session.id
        if self.state is State.CONNECTING and len(self._queue) >= 8:
            try:
                return ConnectRequest.decode(self._queue, 4).session_id
            except MarshallingError:
                return 0
        return 0

    def _paused(self) -> bool:
        interceptor = self._interceptor
        return interceptor.all_paused or (bool(interceptor.paused) and interceptor.stops(self._session_id()))

    def _passes(self, frame: bytes) -> bool:
        """Let the first frame through, or say that it has to wait."""
        opcode, body = self._read(frame)
        session_id = self._session_id()
        if self._matched is None:
            self._matched = self._interceptor.matching(opcode, session_id, body) if self._interceptor.faults else []
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            wait = sum(fault.action.seconds for fault in self._matched)
            if wait:
                self._resumes_at = True
                self._interceptor.call_later(wait, self._time_is_up)
        if self._resumes_at or any(not fault.action.released for fault in self._held_by):
            return False
        effects = [fault.action for fault in self._matched if fault.action.effect is not None]
        first = min(effects, key=lambda action: action.effect.value, default=None)  # type: ignore[union-attr]
        faults_applied = " + ".join(repr(fault.action) for fault in self._matched)
        self._matched = None
        self._queue = self._queue[len(frame) :]
        self._do(
            frame, opcode, body, session_id, first.effect if first else None, first.code if first else 0, faults_applied
        )
        return True

    def _time_is_up(self) -> None:
        self._resumes_at = False
        self.recheck()

    def _read(self, frame: bytes) -> tuple[int, bytes]:
        if self.state is State.CONNECTING:
            return CONNECT, frame[4:]
        if len(frame) < 12:
            return 0, b""
        return int_at(frame, 8)[0], frame[12:]

    def _do(
        self,
        frame: bytes,
        opcode: int,
        body: bytes,
        session_id: int,
        effect: Effect | None,
        code: int,
        faults_applied: str,
    ) -> None:
        outbox, before = self.client.outbox, len(self.client.outbox)
        error: int | None = None
        if effect is Effect.DROP:
            self._cut()
        elif effect is Effect.FAIL:
            xid = RequestHeader.decode(frame, 4).xid
            self.engine.zxid += opcode in OPERATIONS and OPERATIONS[OpCode(opcode)].writes
            self._count(1, 1, self.client.session)
            reply = ReplyHeader(xid, self.engine.zxid, code).encode()
            outbox.append(len(reply).to_bytes(4, "big") + reply)
            error = code
        else:
            while super().receive_data(frame):
                frame = b""
            error = _error_in(outbox, before) if opcode != CONNECT else 0
            session_id = session_id or (self.client.session.id if self.client.session is not None else 0)
            if effect is Effect.LOSE_REPLY:
                del outbox[_reply_at(outbox, before, opcode) :]
                self._cut()
            elif effect is Effect.CLOSE_AFTER:
                self._cut()
        self._interceptor.record(
            session_id, opcode, body, None if effect is Effect.LOSE_REPLY else error, faults_applied
        )

    def _cut(self) -> None:
        if not self.client.closing:
            self._close()


def _not_now() -> None:
    """Flush nothing: what a paused connection does."""


def _reply_at(outbox: list[bytes], start: int, opcode: int) -> int:
    """Find where in an outbox the reply to the last request begins: behind the events it caused for its own client."""
    at = start
    while opcode != CONNECT and at < len(outbox) and outbox[at][4:8] == _EVENT_HEAD:
        at += 1
    return at


def _error_in(outbox: list[bytes], start: int) -> int | None:
    at = _reply_at(outbox, start, 0)
    return ReplyHeader.decode(outbox[at], 4).err if at < len(outbox) and len(outbox[at]) >= 20 else None
