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
from zoolet.protocol.opcodes import OPERATIONS, OpCode
from zoolet.protocol.records import ReplyHeader, RequestHeader
from zoolet.server.core.caller import Caller
from zoolet.server.core.connection import Connection, State, Word
from zoolet.server.core.engine import Engine
from zoolet.server.testing.actions import Effect
from zoolet.server.testing.faults import CONNECT, Fault, paths_in

KEPT: Final = 1000
"""Operations that are remembered."""
_EVENT_HEAD: Final = b"\xff\xff\xff\xff"


class Seen(NamedTuple):
    """One request as it passed: what views show is worked out when somebody looks."""

    session: int
    opcode: int
    body: bytes
    zxid: int
    error: int | None
    fate: str


class Gate:
    """What all connections of one server go through.

    Args:
        engine: What is behind it.
        later: Calls a function in so many seconds of the server's clock.
    """

    def __init__(self, engine: Engine, later: Callable[[float, Callable[[], object]], object]) -> None:
        self.engine = engine
        self.later = later
        self.faults: list[Fault] = []
        self.paused: set[int] = set()
        self.all_paused = False
        self.seen: deque[Seen] = deque(maxlen=KEPT)
        self.count = 0
        self.connections: dict[Caller, GatedConnection] = {}
        self._withheld: list[tuple[Fault, Caller, bytes]] = []

    def connect(self, again: Callable[[], object], caller: Caller, words: dict[bytes, Word]) -> GatedConnection:
        """Make a connection that goes through this gate; *again* makes its transport look at it once more."""
        return GatedConnection(self, again, caller, words)

    # --- pausing ---

    def stops(self, session_id: int) -> bool:
        """Say whether a session is paused."""
        return self.all_paused or session_id in self.paused

    def look_again(self) -> None:
        """Let every connection go on that can."""
        for connection in list(self.connections.values()):
            connection.look_again()

    # --- faults ---

    def add(self, fault: Fault) -> None:
        """Apply a fault from now on."""
        self.faults.append(fault)
        if fault.action.events:
            self.engine.watches.withholds = self._withholds

    def remove(self, fault: Fault) -> None:
        """Apply a fault no more; what it holds goes on, and what it withheld is lost."""
        if fault in self.faults:
            self.faults.remove(fault)
        self._withheld = [one for one in self._withheld if one[0] is not fault]
        if not any(one.action.events for one in self.faults):
            self.engine.watches.withholds = None
        fault.action.released = True
        self.look_again()

    def release(self, fault: Fault) -> None:
        """Let a fault hold no more, and send what it withheld."""
        fault.action.released = True
        for whose, caller, frame in self._withheld:
            if whose is fault and not caller.closing:
                caller.outbox.append(frame)
                self.engine.watches.dirty[caller] = None
        self._withheld = [one for one in self._withheld if one[0] is not fault]
        self.look_again()

    def _withholds(self, caller: Caller, path: str, event: int, frame: bytes) -> bool:
        session_id = caller.session.id if caller.session is not None else 0
        hit = False
        for fault in self.faults:
            if fault.applies(0, session_id, lambda: (path,), event=True):
                self._withheld.append((fault, caller, frame))
                hit = True
                break
        return hit

    def matching(self, opcode: int, session_id: int, body: bytes) -> list[Fault]:
        """Give the faults that apply to a request, in order of their making."""
        return [
            fault
            for fault in self.faults
            if fault.applies(opcode, session_id, lambda: paths_in(opcode, body), event=False)
        ]

    def record(self, session_id: int, opcode: int, body: bytes, error: int | None, fate: str) -> None:
        """Remember an operation; no *error* means that nothing was answered."""
        self.count += 1
        self.seen.append(Seen(session_id, opcode, body, self.engine.zxid, error, fate))

    def reset(self) -> None:
        """Forget all faults, pauses and operations."""
        for fault in list(self.faults):
            self.remove(fault)
        self.paused.clear()
        self.all_paused = False
        self.seen.clear()
        self.count = 0
        self.look_again()


class GatedConnection(Connection):
    """A connection that goes through a gate.

    Args:
        gate: Which one.
        again: Calls :meth:`receive` with nothing, and sends what there is then.
        caller: The connection as the operations see it.
        words: The four-letter words that are answered.
    """

    __slots__ = ("_again", "_flush", "_gate", "_held_by", "_matched", "_queue", "_resumes_at")

    def __init__(self, gate: Gate, again: Callable[[], object], caller: Caller, words: dict[bytes, Word]) -> None:
        super().__init__(gate.engine, caller, words)
        self._gate = gate
        self._again = again
        self._flush = caller.flush
        self._queue = b""  # what has not passed yet
        self._matched: list[Fault] | None = None  # what applies to the first frame of it
        self._held_by: list[Fault] = []  # those of them that make it wait
        self._resumes_at = False  # a timer is running
        gate.connections[caller] = self

    def look_again(self) -> None:
        """Go on if nothing holds this connection any more."""
        self.caller.flush = _not_now if self._paused() else self._flush
        if self.caller.closing:  # its session ended while it was paused
            self.caller.flush()
            return
        self._again()

    def lost(self) -> None:
        """Take note that the peer is gone."""
        super().lost()
        self._gate.connections.pop(self.caller, None)

    def receive(self, data: bytes, until: float = inf, time: Callable[[], float] = float) -> bool:
        """Take bytes off the wire and let through what may pass; as :meth:`Connection.receive`."""
        if self.caller.closing:
            self._gate.connections.pop(self.caller, None)
            return False
        self._queue = self._queue + data if self._queue else data
        share = self.engine.settings.output_share
        while self._queue and not self.caller.closing:
            if self._paused():
                self.caller.flush = _not_now
                return False
            frame = self._whole_frame()
            if frame is None:
                return False
            if not self._passes(frame):
                return False
            share -= sum(map(len, self.caller.outbox[-2:]))
            if self._queue and (share < 0 or time() > until):
                return True
        if self.caller.closing:
            self._gate.connections.pop(self.caller, None)
        return False

    # --- one frame ---

    def _whole_frame(self) -> bytes | None:
        """Give the first frame if it is whole; what can be no frame is the core's to refuse, at once."""
        queue = self._queue
        if len(queue) < 4:
            return None
        (length,) = int_at(queue, 0)
        if self.state is State.CONNECTING and queue[:4] in self._words:
            return queue
        if not 0 <= length <= self.engine.settings.max_frame:
            return queue
        return queue[: 4 + length] if len(queue) >= 4 + length else None

    def _session_id(self) -> int:
        """Give the session this connection serves, or asks for with its first frame; 0 for none yet."""
        if self.caller.session is not None:
            return self.caller.session.id
        if self.state is State.CONNECTING and len(self._queue) >= 8:
            try:
                return ConnectRequest.decode(self._queue, 4).session_id
            except MarshallingError:
                return 0
        return 0

    def _paused(self) -> bool:
        gate = self._gate
        return gate.all_paused or (bool(gate.paused) and gate.stops(self._session_id()))

    def _passes(self, frame: bytes) -> bool:
        """Let the first frame through, or say that it has to wait."""
        opcode, body = self._read(frame)
        session_id = self._session_id()
        if self._matched is None:
            self._matched = self._gate.matching(opcode, session_id, body) if self._gate.faults else []
            self._held_by = [fault for fault in self._matched if fault.action.holds]
            wait = sum(fault.action.seconds for fault in self._matched)
            if wait:
                self._resumes_at = True
                self._gate.later(wait, self._time_is_up)
        if self._resumes_at or any(not fault.action.released for fault in self._held_by):
            return False
        effects = [fault.action for fault in self._matched if fault.action.effect is not None]
        first = min(effects, key=lambda action: action.effect.value, default=None)  # type: ignore[union-attr]
        fate = " + ".join(repr(fault.action) for fault in self._matched)
        self._matched = None
        self._queue = self._queue[len(frame) :]
        self._do(frame, opcode, body, session_id, first.effect if first else None, first.code if first else 0, fate)
        return True

    def _time_is_up(self) -> None:
        self._resumes_at = False
        self.look_again()

    def _read(self, frame: bytes) -> tuple[int, bytes]:
        if self.state is State.CONNECTING:
            return CONNECT, frame[4:]
        if len(frame) < 12:
            return 0, b""
        return int_at(frame, 8)[0], frame[12:]

    def _do(
        self, frame: bytes, opcode: int, body: bytes, session_id: int, effect: Effect | None, code: int, fate: str
    ) -> None:
        outbox, before = self.caller.outbox, len(self.caller.outbox)
        error: int | None = None
        if effect is Effect.DROP:
            self._cut()
        elif effect is Effect.FAIL:
            xid = RequestHeader.decode(frame, 4).xid
            self.engine.zxid += opcode in OPERATIONS and OPERATIONS[OpCode(opcode)].writes
            self._count(1, 1, self.caller.session)
            reply = ReplyHeader(xid, self.engine.zxid, code).encode()
            outbox.append(len(reply).to_bytes(4, "big") + reply)
            error = code
        else:
            while super().receive(frame):
                frame = b""
            error = _error_in(outbox, before) if opcode != CONNECT else 0
            session_id = session_id or (self.caller.session.id if self.caller.session is not None else 0)
            if effect is Effect.LOSE_REPLY:
                del outbox[_reply_at(outbox, before, opcode) :]
                self._cut()
            elif effect is Effect.CLOSE_AFTER:
                self._cut()
        self._gate.record(session_id, opcode, body, None if effect is Effect.LOSE_REPLY else error, fate)

    def _cut(self) -> None:
        if not self.caller.closing:
            self._hang_up()


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
