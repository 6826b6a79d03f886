"""One member's copy of the state, and what its leader has sent it and it has not applied yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf
from typing import Final, NamedTuple

from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.replay import Applied, replay
from zoolet.server.testing.signatures import Timer

CLOSE_SESSION: Final = int(OpCode.CLOSE_SESSION)
Answered = Callable[[int, bytes], object]
"""Receives the error code and the body of the reply to a request."""


class Status(Enum):
    """The state of a member. The values are what ``srvr`` calls it, where it answers.

    A member that does not run is down; one that runs and has no leader is looking, or read-only.
    """

    DOWN = "down"
    LOOKING = "looking"
    READ_ONLY = "read-only"
    FOLLOWING = "follower"
    OBSERVING = "observer"
    LEADING = "leader"

    @property
    def has_leader(self) -> bool:
        """Whether it serves clients as a part of the ensemble."""
        return self in (Status.FOLLOWING, Status.OBSERVING, Status.LEADING)


class _Message(NamedTuple):
    """So many transactions are committed; when they are applied, a mark is called."""

    sent: int
    due: float
    upto: int
    mark: Callable[[], object] | None


@dataclass(slots=True, eq=False)
class Replica:
    """One member's copy.

    Args:
        number: The member's number, from 1.
        engine: Its engine, which has the first ``applied`` transactions of the ensemble's log.
        votes: Whether it takes part in elections and quorums; otherwise it is an observer.
        on_status: Called when its status has changed, with the one before.
        flush: Sends the output of its connections.
        is_local: Returns whether a session is known to this member only.

    Attributes:
        status: What it is.
        is_paused: Whether its process stands still.
        lag: Seconds by which what its leader sends is late; infinite for never.
        epoch: The last epoch in which it had a leader.
        logged: How many transactions it has in its log; no quorum may have the last ones.
        applied: How many its engine has.
        sent: How many it was sent as committed.
        alone: Makes it read-only, unless it finds a leader before; None for nothing.
        waiting: Who is to be notified of the outcome of a transaction, by its place in the log.
    """

    number: int
    engine: Engine
    votes: bool
    on_status: Callable[[Status], object]
    flush: Callable[[], object]
    is_local: Callable[[int], bool] = lambda session_id: False
    status: Status = Status.LOOKING
    is_paused: bool = False
    lag: float = 0.0
    epoch: int = 0
    logged: int = 0
    applied: int = 0
    sent: int = 0
    alone: Timer | None = None
    waiting: dict[int, Answered] = field(default_factory=dict)
    inbox: deque[_Message] = field(default_factory=deque)

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self.status is not Status.DOWN

    def set_status(self, status: Status) -> None:
        """Change the status, and notify the owner."""
        before, self.status = self.status, status
        if before is not status:
            self.on_status(before)

    def receive(self, now: int, upto: int, mark: Callable[[], object] | None = None) -> None:
        """Receive a message of the leader: so many transactions are committed.

        Args:
            now: The time in milliseconds.
            upto: How many.
            mark: Called when they are applied; None for nobody.
        """
        due = 0.0 if self.status is Status.LEADING else self._due(now)
        self.inbox.append(_Message(now, max(due, self.inbox[-1].due) if self.inbox else due, upto, mark))

    def _due(self, sent: int) -> float:
        """Return when what was sent at a time is due: whole milliseconds, as clocks have them, or infinite."""
        return inf if self.lag == inf else sent + ceil(self.lag * 1000)

    def apply_due(self, now: int, log: list[Applied], first: int) -> bool:
        """Apply what is due; return whether anything was.

        Args:
            now: The time in milliseconds.
            log: The ensemble's log.
            first: The place of its first transaction.
        """
        done = False
        while self.inbox and self.inbox[0].due <= now and not self.is_paused:
            message = self.inbox.popleft()
            self.apply(message.upto, log, first)
            if message.mark is not None:
                message.mark()
            done = True
        return done

    def apply(self, upto: int, log: list[Applied], first: int) -> None:
        """Apply transactions until there are so many, and answer those who wait for them."""
        engine = self.engine
        while self.applied < upto:
            place = self.applied
            entry = log[place - first]
            answered = self.waiting.pop(place, None)
            ended = engine.sessions.alive.get(entry[0]) if entry[4] == CLOSE_SESSION else None
            client = ended.client if ended is not None else None
            if entry[4] != CLOSE_SESSION or ended is not None:
                code, body = replay(engine, entry)
            else:
                engine.zxid, code, body = entry[2], 0, b""
            self.applied = place + 1
            if answered is not None:
                answered(code, body)
            elif client is not None:
                engine.close_connection(client)

    def forget_requests(self) -> None:
        """Forget who waits for what: the leader is gone."""
        self.waiting.clear()
        self.inbox.clear()

    def delay(self, seconds: float) -> None:
        """Change the lag, of what is on its way, too."""
        self.lag = seconds
        self.inbox = deque(message._replace(due=self._due(message.sent)) for message in self.inbox)

    def next_due(self) -> float:
        """Return when the next message is due; infinite for never."""
        return self.inbox[0].due if self.inbox and not self.is_paused else inf
