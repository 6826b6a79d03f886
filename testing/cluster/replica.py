"""One member's copy of the state, and the messages from the leader that it has not applied yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from math import ceil, inf
from typing import Final, NamedTuple

from ...protocol.operations import OpCode
from ...server.core.engine import Engine
from ...server.core.ops.replay import Applied, replay
from ..signatures import Timer

CLOSE_SESSION: Final = int(OpCode.CLOSE_SESSION)
Answered = Callable[[int, bytes], object]
"""Receives the error code and the body of the reply to a request."""


class MemberStatus(Enum):
    """The state of a member. The values are the names that ``srvr`` prints, in the states where it answers.

    A stopped member is ``down``. A running member without a leader is ``looking`` or ``read-only``.

    Attributes:
        has_leader: Whether the member serves clients as a part of the ensemble.
    """

    DOWN = "down"
    LOOKING = "looking"
    READ_ONLY = "read-only"
    FOLLOWING = "follower"
    OBSERVING = "observer"
    LEADING = "leader"

    def __init__(self, text: str) -> None:
        self.has_leader = text in ("follower", "observer", "leader")


class _Message(NamedTuple):
    """A leader's message: the first *upto* transactions are committed. Call *on_applied* once they are applied.

    Args:
        sent: The time of sending, in milliseconds.
        due: The time to apply the transactions, in milliseconds. If infinite, the message is withheld.
        upto: Number of committed transactions.
        on_applied: Function to call once the transactions are applied, or None.
    """

    sent: int
    due: float
    upto: int
    on_applied: Callable[[], object] | None


@dataclass(slots=True, eq=False)
class Replica:
    """One member's copy of the state.

    Args:
        number: The member's number, starting at 1.
        engine: The member's engine, with the first ``applied`` transactions of the ensemble's log.
        votes: Whether the member counts in elections and quorums.
        on_status: Called with the previous status after a change.
        flush: Sends the output of the member's connections.
        is_local: Function that returns whether a session is local to this member.

    Attributes:
        observes: Whether the member is an observer. A voter that a reconfig removes follows without voting.
        status: The state of the member.
        is_paused: Whether the member's process is paused.
        lag: Delay of messages from the leader, in seconds. If infinite, messages are withheld.
        epoch: The last epoch in which the member had a leader.
        logged: Number of transactions in the member's log. The last transactions may be uncommitted.
        applied: Number of transactions that the engine has applied.
        sent: Number of transactions that the leader has reported as committed.
        read_only_timer: Timer that makes the member read-only unless it finds a leader before, or None.
        waiting: Callbacks for the outcome of transactions, by position in the log.
        inbox: The leader's messages that the member has not processed yet, in order.
    """

    number: int
    engine: Engine
    votes: bool
    on_status: Callable[[MemberStatus], object]
    flush: Callable[[], object]
    is_local: Callable[[int], bool] = lambda session_id: False
    observes: bool = field(init=False)
    status: MemberStatus = MemberStatus.LOOKING
    is_paused: bool = False
    lag: float = 0.0
    epoch: int = 0
    logged: int = 0
    applied: int = 0
    sent: int = 0
    read_only_timer: Timer | None = None
    waiting: dict[int, Answered] = field(default_factory=dict)
    inbox: deque[_Message] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.observes = not self.votes

    @property
    def is_up(self) -> bool:
        """Whether the member is running."""
        return self.status is not MemberStatus.DOWN

    def set_status(self, status: MemberStatus) -> None:
        """Set the status, and call ``on_status`` if it has changed."""
        before, self.status = self.status, status
        if before is not status:
            self.on_status(before)

    def receive(self, now: int, upto: int, on_applied: Callable[[], object] | None = None) -> None:
        """Queue the leader's message that the first *upto* transactions are committed. It takes effect after the lag.

        Args:
            now: The time of sending, in milliseconds.
            upto: Number of committed transactions.
            on_applied: Function to call once these transactions are applied, or None.
        """
        due = 0.0 if self.status is MemberStatus.LEADING else self._due_time(now)
        self.inbox.append(_Message(now, max(due, self.inbox[-1].due) if self.inbox else due, upto, on_applied))

    def _due_time(self, sent: int) -> float:
        """Return the due time of a message sent at *sent*, in whole milliseconds, or infinity if withheld."""
        return inf if self.lag == inf else sent + ceil(self.lag * 1000)

    def apply_due(self, now: int, log: list[Applied], first: int) -> bool:
        """Apply the messages that are due. Return whether any message was due.

        Args:
            now: The time in milliseconds.
            log: The ensemble's log.
            first: Position of the log's first transaction.
        """
        done = False
        while self.inbox and self.inbox[0].due <= now and not self.is_paused:
            message = self.inbox.popleft()
            self.apply(message.upto, log, first)
            if message.on_applied is not None:
                message.on_applied()
            done = True
        return done

    def apply(self, upto: int, log: list[Applied], first: int) -> None:
        """Apply transactions up to position *upto*, and answer the requests that wait for them."""
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
        """Drop all waiting requests and undelivered messages."""
        self.waiting.clear()
        self.inbox.clear()

    def delay(self, seconds: float) -> None:
        """Change the lag, including the lag of messages that are already on their way."""
        self.lag = seconds
        self.inbox = deque(message._replace(due=self._due_time(message.sent)) for message in self.inbox)

    def next_due(self) -> float:
        """Return when the next message is due, in milliseconds, or infinity if no message is waiting."""
        return self.inbox[0].due if self.inbox and not self.is_paused else inf
