"""An ensemble as its clients can see it: one log, a leader that prepares, a quorum that has it, members that apply it.

What is modelled is the outcome of ZooKeeper's protocol between servers, not its messages::

    request --prepared by the leader's engine--> log --a quorum has it--> committed --after its lag--> applied by each

The engine that prepares is ahead of all members: it has what is not committed yet. It has no connections and no
watches. When a leader is elected that does not have the end of the log, that end is forgotten, as nobody has been
answered, and the engine that prepares begins again with the leader's state.

A member::

    DOWN <--stop, start--> LOOKING --a quorum elects--> LEADING, FOLLOWING, OBSERVING
                            ^  |                             |
                            |  +--alone for a while--> READ_ONLY
                            +-------no leader any more-------+

There is no I/O and no clock here: time is given, and timers are asked for. All members are in one event loop.

Source: Leader, Learner, FastLeaderElection, and what clients see of three servers of 3.8.0 and 3.9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from math import inf
from typing import Final

from zoolet.protocol.paths import CONFIG
from zoolet.protocol.txns import CreateSessionTxn, SetDataTxn
from zoolet.server.core.engine import Engine
from zoolet.server.core.ops.reconfig import parse_config, voters_of
from zoolet.server.core.ops.replay import Applied
from zoolet.server.testing.cluster.copying import copy_state
from zoolet.server.testing.cluster.network import Network
from zoolet.server.testing.cluster.preparing import GONE, Forwarded, Preparing
from zoolet.server.testing.cluster.replica import Replica, Status
from zoolet.server.testing.cluster.voting import Voting
from zoolet.server.testing.signatures import CallLater, Timer

MAX_LOG: Final = 10_000
"""Transactions that are kept for members that are behind; a member that needs older ones is given the whole state."""
COUNTER_BITS: Final = 32
"""Bits of a zxid that count within an epoch."""


class Ensemble:
    """The members, their log, and who leads.

    Args:
        leading: The engine that prepares.
        schedule: Calls a function after some seconds.
        read_time: Returns the time, in milliseconds since the epoch and on a monotonic clock.
        election: Seconds that an election takes.
        alone: Seconds after which a member without a leader becomes read-only; None for never.

    Attributes:
        replicas: The members by number.
        leader: The one that leads; None for none.
        epoch: How many leaders there have been.
        log: What was prepared, from ``first`` on.
        committed: How many transactions a quorum has.
        syncs: Answers that wait for a commit: those of syncs, and of requests that took no zxid.
        preparing: Executes the requests that change something.
        network: Which members reach each other.
        voting: Who votes, and who is elected.
    """

    def __init__(
        self,
        leading: Engine,
        schedule: CallLater,
        read_time: Callable[[], tuple[int, int]],
        *,
        election: float = 0.0,
        alone: float | None = None,
    ) -> None:
        self.leading = leading
        self.replicas: dict[int, Replica] = {}
        self.leader: Replica | None = None
        self.epoch = 0
        self.log: list[Applied] = []
        self.first = self.committed = 0
        self.preparing = Preparing(leading, self.log)
        self.election = election
        self.alone = alone
        self._schedule = schedule
        self._read_time = read_time
        self.network = Network()
        self.reaches = self.network.reaches
        self.voting = Voting(self.replicas, self.reaches)
        self._outgoing: list[tuple[Replica, Callable[[], object]]] = []  # requests that do not reach the leader
        self.syncs: list[tuple[int, Replica, Callable[[], object]]] = []  # marks that wait for a commit
        self._pumping = False
        self._election: tuple[Timer, Replica] | None = None  # the one that takes its time, and who is to win it
        self._noticing: Timer | None = None  # makes a partition known
        self._timer_at = inf

    # --- the network ---

    def now(self) -> int:
        """Return the time in milliseconds."""
        return self._read_time()[1]

    def partition(self, groups: Collection[Collection[int]], noticed_after: float = 0.0) -> None:
        """Divide the network: members reach only those of their own group; those in no group are one, too.

        Args:
            groups: Numbers of members.
            noticed_after: Seconds until the members notice.
        """
        self._stop_noticing()
        self.network.partition(groups)
        if noticed_after > 0:
            self._noticing = self._schedule(noticed_after, self._notice)
            self.settle()
        else:
            self._notice()

    def _notice(self) -> None:
        self._stop_noticing()
        self.network.notice()
        self.settle()

    def _stop_noticing(self) -> None:
        if self._noticing is not None:
            self._noticing.cancel()
            self._noticing = None

    def heal(self) -> None:
        """Connect all members again, and end lags and pauses."""
        self._connect()
        for replica in self.replicas.values():
            replica.delay(0.0)
        self.resume(*self.replicas.values())

    def _connect(self) -> None:
        self._stop_noticing()
        self.network.heal()

    def resume(self, *replicas: Replica) -> None:
        """Have the processes of members go on that were paused."""
        paused = [each for each in replicas if each.is_paused]
        for each in paused:
            each.is_paused = False
        self.settle()
        for each in paused:
            if each.status is Status.LOOKING:
                self.count_alone(each)

    def add(self, replica: Replica) -> None:
        """Add a member, which has nothing and is given everything."""
        replica.applied = -1
        self.replicas[replica.number] = replica
        self.count_alone(replica)

    # --- who leads ---

    def settle(self, *, at_once: bool = False) -> None:
        """Decide who leads and who follows, after something has changed.

        Args:
            at_once: An election takes no time.
        """
        leader = self.leader
        if leader is not None and not self._still_leads(leader):
            self._lose_leader()
            leader = None
        if leader is None:
            self._elect_soon(at_once=at_once)
            leader = self.leader
        for each in self.replicas.values():
            is_led = leader is not None and (each is leader or self.network.seems_to_reach(leader, each))
            if each.status.has_leader and not is_led:
                self._look(each)
        if leader is not None:
            for each in self.replicas.values():
                if each.status in (Status.LOOKING, Status.READ_ONLY) and self.reaches(leader, each):
                    self._follow(each, leader)
            self._send_outgoing()
        self.pump()

    def leader_would_have_quorum(self, numbers: Collection[int]) -> bool:
        """Return whether the leader reaches most of the members with these numbers."""
        return self.leader is not None and self.voting.would_have_quorum(self.leader, numbers)

    def _still_leads(self, leader: Replica) -> bool:
        if not leader.is_up or not leader.votes or leader.is_paused:
            return False
        return self.voting.is_quorum(
            e for e in self.voting.voters() if e is leader or self.network.seems_to_reach(leader, e)
        )

    def _lose_leader(self) -> None:
        self.leader = None
        self.syncs.clear()
        for each in self.replicas.values():
            if each.status.has_leader:
                self._look(each)

    def _look(self, replica: Replica) -> None:
        """Make a member look for a leader: it closes the connections of its clients, and forgets their requests."""
        self.forget(replica)
        if replica.is_up:
            replica.set_status(Status.LOOKING)
        self.count_alone(replica)

    def forget(self, replica: Replica) -> None:
        """Forget the requests of a member's clients that nobody has answered."""
        replica.forget_requests()
        self._outgoing = [entry for entry in self._outgoing if entry[0] is not replica]
        self.syncs = [entry for entry in self.syncs if entry[1] is not replica]

    def count_alone(self, replica: Replica) -> None:
        """Begin to count the time after which a member without a leader is read-only."""
        if replica.alone is not None:
            replica.alone.cancel()
        replica.alone = None
        if self.alone is not None and replica.is_up:
            replica.alone = self._schedule(self.alone, lambda: self._be_read_only(replica))

    def _be_read_only(self, replica: Replica) -> None:
        if replica.status is Status.LOOKING and not replica.is_paused and replica.votes:
            replica.set_status(Status.READ_ONLY)

    def _elect_soon(self, *, at_once: bool) -> None:
        """Begin an election, or go on with the one that is under way, as long as it has the same winner."""
        winner, takes_time = self.voting.winner(), self.election > 0 and not at_once
        if self._election is not None:
            timer, expected = self._election
            if winner is expected and takes_time:
                return
            timer.cancel()
            self._election = None
        if winner is not None and takes_time:
            self._election = self._schedule(self.election, self.settle_at_once), winner
        elif winner is not None:
            self._lead(winner)

    def settle_at_once(self) -> None:
        """Elect without taking time, if there is no leader."""
        self.settle(at_once=True)

    def _lead(self, winner: Replica) -> None:
        self.voting.candidate = None
        self.epoch += 1
        winner.forget_requests()
        self._truncate(winner)
        winner.apply(winner.logged, self.log, self.first)
        self.committed = winner.sent = winner.logged
        self.preparing.owners.clear()
        self._update_time()
        leading = self.leading
        leading.zxid = self.epoch << COUNTER_BITS
        leading.sessions.touch_all(leading.monotonic_ms)
        self.leader = winner
        winner.epoch = self.epoch
        winner.engine.zxid = leading.zxid
        winner.set_status(Status.LEADING)
        for each in self.replicas.values():
            if each is not winner and self.reaches(winner, each):
                self._follow(each, winner)

    def _truncate(self, winner: Replica) -> None:
        """Forget what the new leader has not logged: nobody was answered."""
        length = winner.logged
        if length < self.first + len(self.log):
            del self.log[length - self.first :]
            winner.apply(length, self.log, self.first)
            copy_state(winner.engine, self.leading)
        for each in self.replicas.values():
            each.logged = min(each.logged, length)

    def _follow(self, replica: Replica, leader: Replica) -> None:
        """Bring a member up to date, and let it serve."""
        replica.forget_requests()
        if replica.applied < self.first:
            copy_state(leader.engine, replica.engine)
            replica.applied = leader.applied
        replica.apply(self.committed, self.log, self.first)
        replica.logged = self.first + len(self.log)
        replica.sent = self.committed
        replica.epoch = self.epoch
        replica.set_status(Status.FOLLOWING if replica.votes else Status.OBSERVING)

    def transfer(self, number: int) -> None:
        """Make another member the leader.

        Raises:
            ValueError: It cannot: it is an observer, does not run, or does not reach the leader.
        """
        replica, leader = self.replicas[number], self.leader
        if replica is leader:
            return
        if leader is None:
            raise ValueError("the cluster has no leader that could make another one")
        if not replica.votes or not self.reaches(leader, replica) or not self.voting.has_quorum(replica):
            index = list(self.replicas).index(number)
            raise ValueError(f"member {index} cannot lead: it is an observer, or does not reach the leader or a quorum")
        self.voting.candidate = number
        self._lose_leader()
        self.settle()

    def hand_over(self) -> None:
        """Have another member lead at once in place of the one that leads, if one can, as before that is removed."""
        leader = self.leader
        if leader is not None and leader.votes:
            leader.votes = False
            if self.voting.winner() is not None:
                self._lose_leader()
                self.settle_at_once()
            leader.votes = True

    # --- requests ---

    def forward(self, origin: Replica, request: Forwarded) -> None:
        """Forward a request of a member's client to the leader."""
        self._to_leader(origin, lambda: self._execute(origin, request))

    def open_session(self, origin: Replica, session_id: int, timeout_ms: int, opened: Callable[[], object]) -> None:
        """Open a session whose id a member has made; *opened* is called when that member has it."""

        def execute() -> None:
            self.leading.zxid += 1
            self.leading.apply(CreateSessionTxn(timeout_ms), session_id)
            self.preparing.owners[session_id] = origin.number
            origin.waiting[self.first + len(self.log) - 1] = lambda code, body: opened()

        self._to_leader(origin, execute)

    def revalidate(self, origin: Replica, session_id: int, timeout_ms: int, answered: Callable[[bool], object]) -> None:
        """Report to a member whether a session is alive that one of its clients resumes; it is its own from now on."""

        def execute() -> None:
            session = self.leading.sessions.alive.get(session_id)
            if session is not None:
                session.timeout_ms = timeout_ms
                self.leading.sessions.touch(session, self.leading.monotonic_ms)
                self.preparing.owners[session_id] = origin.number
            self._send(origin, self.committed, lambda: answered(session is not None))

        self._to_leader(origin, execute)

    def sync(self, origin: Replica, synced: Callable[[], object]) -> None:
        """Call *synced* when a member has applied all that was prepared until now."""

        def execute() -> None:
            self.syncs.append((self.first + len(self.log), origin, synced))

        self._to_leader(origin, execute)

    def touch(self, origin: Replica, session_id: int) -> None:
        """Extend a session whose client was heard by a member."""
        leader = self.leader
        if leader is not None and (origin is leader or self.reaches(origin, leader)):
            session = self.leading.sessions.alive.get(session_id)
            if session is not None:
                self._update_time()
                session.heard = self.leading.monotonic_ms
                self.leading.sessions.touch(session, self.leading.monotonic_ms)

    def _to_leader(self, origin: Replica, execute: Callable[[], object]) -> None:
        self._outgoing.append((origin, execute))
        self._send_outgoing()

    def _send_outgoing(self) -> None:
        """Send the requests that reach the leader; those of a member keep their order."""
        leader = self.leader
        outgoing, self._outgoing = self._outgoing, []
        for origin, execute in outgoing:
            is_near = leader is not None and (origin is leader or self.reaches(origin, leader))
            if is_near and origin.status.has_leader:
                self._update_time()
                execute()
            else:
                self._outgoing.append((origin, execute))
        self.pump()

    def _execute(self, origin: Replica, request: Forwarded) -> None:
        before = len(self.log)
        code = self.preparing.execute(request, origin, self.epoch << COUNTER_BITS)
        end = self.first + len(self.log)
        if len(self.log) > before:
            origin.waiting[end - 1] = request.answered
        elif code in GONE:
            self._send(origin, self.committed, lambda: request.answered(code, b""))
        else:  # it took no zxid
            self.syncs.append((end, origin, lambda: request.answered(code, b"")))

    # --- the log ---

    def pump(self) -> None:
        """Commit what a quorum has, and give it to the members; nothing is left to do then but what lags."""
        if self._pumping:
            return
        self._pumping = True
        touched: dict[Replica, None] = {}
        try:
            while self._commit(touched):
                pass
        finally:
            self._pumping = False
        self._trim()
        self._set_timer()
        for replica in touched:
            replica.flush()

    def _commit(self, touched: dict[Replica, None]) -> bool:
        leader, length = self.leader, self.first + len(self.log)
        changed = False
        if leader is not None:
            for each in self.linked(leader):
                each.logged = length
            if self.committed < length and self._is_logged_by_quorum(leader, length):
                fresh, self.committed = self.log[self.committed - self.first :], length
                for entry in fresh:
                    if isinstance(entry[5], SetDataTxn) and entry[5].path == CONFIG:
                        self._on_config(entry[5].data)
                changed = True
            for each in self.linked(leader):
                if each.sent < self.committed:
                    each.sent = self.committed
                    each.receive(self.now(), self.committed)
                    changed = True
            linked = list(self.linked(leader))
            waiting, self.syncs = self.syncs, []
            for place, replica, mark in waiting:
                if place <= self.committed and replica in linked:
                    self._send(replica, self.committed, mark)
                else:
                    self.syncs.append((place, replica, mark))
        now = self.now()
        for each in list(self.replicas.values()):
            if each.status.has_leader and each.apply_due(now, self.log, self.first):
                touched[each] = None
                changed = True
        return changed

    def _on_config(self, data: bytes | None) -> None:
        members, _ = parse_config(data)
        self.voting.use_config(voters_of(members))

    def linked(self, leader: Replica) -> Iterator[Replica]:
        """Yield the members that the leader reaches, itself first."""
        yield leader
        for each in self.replicas.values():
            if each is not leader and each.status.has_leader and self.reaches(leader, each):
                yield each

    def _is_logged_by_quorum(self, leader: Replica, length: int) -> bool:
        return self.voting.is_quorum(each for each in self.linked(leader) if each.logged >= length)

    def _send(self, replica: Replica, upto: int, mark: Callable[[], object]) -> None:
        """Send a message of the leader, behind what is on its way."""
        replica.receive(self.now(), upto, mark)

    def _set_timer(self) -> None:
        """See to it that what lags is applied in time."""
        due = min((each.next_due() for each in self.replicas.values() if each.status.has_leader), default=inf)
        if due < inf and due < self._timer_at:
            self._timer_at = due
            self._schedule((due - self.now()) / 1000, self._on_timer)  # a millisecond at least: the rest is applied

    def _on_timer(self) -> None:
        self._timer_at = inf
        self.pump()

    def _trim(self) -> None:
        if len(self.log) > 2 * MAX_LOG:
            keep = min((each.applied for each in self.replicas.values() if each.status.has_leader), default=0)
            count = min(len(self.log) - MAX_LOG, keep - self.first)
            if count > 0:
                del self.log[:count]
                self.first += count

    def behind(self, replica: Replica) -> int:
        """Return how many committed transactions a member has not applied."""
        return self.committed - max(replica.applied, 0)  # -1 for one that was added, and has nothing yet

    # --- the whole state ---

    def catch_up(self) -> None:
        """Make every member apply all that is committed, those too that do not run or do not reach the leader."""
        for each in self.replicas.values():
            if each.applied >= self.first:
                each.apply(self.committed, self.log, self.first)

    def forget_uncommitted(self) -> None:
        """Forget what no quorum has: clients are disconnected, and another leader begins with what is committed."""
        if self.committed == self.first + len(self.log):
            return
        del self.log[self.committed - self.first :]
        for each in self.replicas.values():
            each.logged = min(each.logged, self.committed)
        copy_state(max(self.replicas.values(), key=lambda each: each.applied).engine, self.leading)
        if self.leader is not None:
            self._lose_leader()

    def clear(self) -> None:
        """Forget the log: the state of all engines is empty."""
        self.voting.absent = 0
        self.log.clear()
        self.first = self.committed = 0
        self.syncs.clear()
        self._outgoing.clear()
        self.preparing.owners.clear()
        for each in self.replicas.values():
            each.forget_requests()
            each.logged = each.applied = each.sent = 0

    def restart(self) -> None:
        """Connect all members again, and elect; all of them run."""
        self._connect()
        self.leader = None
        for each in self.replicas.values():
            each.is_paused = False
            each.lag = 0.0
            each.set_status(Status.LOOKING)
        self.settle_at_once()

    # --- time ---

    def _update_time(self) -> None:
        self.leading.set_time(*self._read_time())

    def tick(self) -> bool:
        """Do what is due at the leader: sessions and nodes expire; return whether more is due."""
        if self.leader is None or self.leader.is_paused:
            return False
        self._update_time()
        more = self.leading.tick()
        self.pump()
        return more

    def expire(self, session_id: int) -> None:
        """Close a session, as if its client had not been heard for too long."""
        session = self.leading.sessions.alive.get(session_id)
        if session is not None:
            self._update_time()
            self.leading.close_session(session)
            self.pump()
