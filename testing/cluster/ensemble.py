"""The client-visible behaviour of an ensemble: a leader prepares transactions, a quorum logs them, members apply them.

The model covers the outcome of the protocol between ZooKeeper servers, not its messages::

    request --prepared by the leader's engine--> log --a quorum has it--> committed --lag of a member--> applied by it

The preparing engine is ahead of all members, because it includes uncommitted transactions. It has no connections
and no watches. If a new leader lacks the end of the log, that end is discarded, which is safe because its requests
were not answered. After that, the preparing engine restarts from the leader's state.

A member::

    DOWN <--stop, start--> LOOKING --a quorum elects--> LEADING, FOLLOWING, OBSERVING
                            ^  |                             |
                            |  +--alone for a while--> READ_ONLY
                            +----------leader lost-----------+

This module does no I/O and reads no clock: callers pass the time and a function that schedules timers. All members
run in one event loop.

Source: Leader, Learner, FastLeaderElection, and the replies of three servers of 3.8.0 and 3.9.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import inf
from typing import Final

from ...protocol.members import parse_config, voter_numbers
from ...protocol.paths import CONFIG
from ...protocol.txns import CreateSessionTxn, SetDataTxn
from ...server.core.engine import Engine
from ...server.core.ops.replay import Applied
from ..signatures import CallLater, Timer
from .copying import copy_state
from .network import MemberNetwork
from .preparing import SESSION_ERRORS, ForwardedRequest, RequestPreparer
from .replica import MemberStatus, Replica
from .voting import Voting

MAX_LOGGED_TRANSACTIONS: Final = 10_000
"""Number of transactions kept for lagging members. A member that needs older ones receives a copy of the state."""
COUNTER_BITS: Final = 32
"""Bits of a zxid that count within an epoch."""


class Ensemble:
    """The members, their log and their leader.

    Args:
        leading: The preparing engine.
        schedule: Calls a function after some seconds.
        read_time: Returns the time, in milliseconds since the epoch and on a monotonic clock.
        election: Duration of an election in seconds.
        read_only_after: Seconds after which a member without a leader becomes read-only, or None for never.

    Attributes:
        replicas: The members by number.
        leader: The leader, or None while no member leads.
        epoch: Number of elections won so far.
        linked: The leader and the members that it reaches; empty while no member leads.
        log: The prepared transactions, starting at position ``first``.
        committed: Number of transactions that a quorum has logged.
        syncs: Answers that wait for a commit: answers to syncs, and to requests that used no zxid.
        preparing: The leader's executor of requests that change the state.
        network: The links between members.
        voting: The votes of the members, which determine the winner of an election.
    """

    def __init__(
        self,
        leading: Engine,
        schedule: CallLater,
        read_time: Callable[[], tuple[int, int]],
        *,
        election: float = 0.0,
        read_only_after: float | None = None,
    ) -> None:
        self.leading = leading
        self.replicas: dict[int, Replica] = {}
        self.leader: Replica | None = None
        self.linked: list[Replica] = []
        self.epoch = 0
        self.log: list[Applied] = []
        self.first = self.committed = 0
        self.preparing = RequestPreparer(leading, self.log)
        self.election = election
        self.read_only_after = read_only_after
        self._schedule = schedule
        self._read_time = read_time
        self.network = MemberNetwork()
        self.reaches = self.network.reaches
        self.voting = Voting(self.replicas, self.reaches)
        self._outgoing: list[tuple[Replica, Callable[[], object]]] = []  # requests that cannot reach the leader yet
        self.syncs: list[tuple[int, Replica, Callable[[], object]]] = []  # answers that wait for a commit
        self._pumping = self._pump_again = False
        self._election: tuple[Timer, Replica] | None = None  # the running election and its winner
        self._notice_timer: Timer | None = None  # timer that makes members notice the partition
        self._timer_at = inf

    # --- the network ---

    def now(self) -> int:
        """Return the monotonic time in milliseconds."""
        return self._read_time()[1]

    def partition(self, groups: Collection[Collection[int]], noticed_after: float = 0.0) -> None:
        """Divide the network: members reach only members of their own group. Members in no group form one more group.

        Args:
            groups: The groups, as member numbers.
            noticed_after: Seconds until the members notice.
        """
        self._stop_noticing()
        self.network.partition(groups)
        if noticed_after > 0:
            self._notice_timer = self._schedule(noticed_after, self._notice_partition)
            self.settle()
        else:
            self._notice_partition()

    def _notice_partition(self) -> None:
        self._stop_noticing()
        self.network.notice()
        self.settle()

    def _stop_noticing(self) -> None:
        if self._notice_timer is not None:
            self._notice_timer.cancel()
            self._notice_timer = None

    def heal(self) -> None:
        """Reconnect all members, and end lags and pauses."""
        self._connect()
        for replica in self.replicas.values():
            replica.delay(0.0)
        self.resume(*self.replicas.values())

    def _connect(self) -> None:
        self._stop_noticing()
        self.network.heal()

    def resume(self, *replicas: Replica) -> None:
        """Resume paused member processes."""
        paused = [each for each in replicas if each.is_paused]
        for each in paused:
            each.is_paused = False
        self.settle()
        for each in paused:
            if each.status is MemberStatus.LOOKING:
                self.start_read_only_timer(each)

    def add(self, replica: Replica) -> None:
        """Add an empty member. It receives a copy of the whole state when it follows a leader."""
        replica.applied = -1
        self.replicas[replica.number] = replica
        self.start_read_only_timer(replica)

    # --- leadership ---

    def settle(self, *, immediately: bool = False) -> None:
        """Determine the leader and its followers after a change.

        Args:
            immediately: Whether to hold an election immediately instead of after ``election`` seconds.
        """
        leader = self.leader
        if leader is not None and not self._still_leads(leader):
            self._lose_leader()
            leader = None
        if leader is None:
            self._start_election(immediately=immediately)
            leader = self.leader
        for each in self.replicas.values():
            is_led = leader is not None and (each is leader or self.network.seems_to_reach(leader, each))
            if each.status.has_leader and not is_led:
                self._look_for_leader(each)
        if leader is not None:
            for each in self.replicas.values():
                if each.status in (MemberStatus.LOOKING, MemberStatus.READ_ONLY) and self.reaches(leader, each):
                    self._make_follower(each, leader)
        self._update_linked(leader)
        self._send_outgoing()
        self.pump()

    def _update_linked(self, leader: Replica | None) -> None:
        """Update ``linked``: the leader, followed by the members that it reaches."""
        others = [each for each in self.replicas.values() if each is not leader and each.status.has_leader]
        self.linked = [] if leader is None else [leader, *(each for each in others if self.reaches(leader, each))]

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
        self.linked = []
        self.syncs.clear()
        for each in self.replicas.values():
            if each.status.has_leader:
                self._look_for_leader(each)

    def _look_for_leader(self, replica: Replica) -> None:
        """Make a member look for a leader: it closes its clients' connections and drops their requests."""
        self.forget(replica)
        if replica.is_up:
            replica.set_status(MemberStatus.LOOKING)
        self.start_read_only_timer(replica)

    def forget(self, replica: Replica) -> None:
        """Drop the unanswered requests of a member's clients."""
        replica.forget_requests()
        self._outgoing = [entry for entry in self._outgoing if entry[0] is not replica]
        self.syncs = [entry for entry in self.syncs if entry[1] is not replica]

    def start_read_only_timer(self, replica: Replica) -> None:
        """Restart the timer that makes a member without a leader read-only."""
        if replica.read_only_timer is not None:
            replica.read_only_timer.cancel()
        replica.read_only_timer = None
        if self.read_only_after is not None and replica.is_up:
            replica.read_only_timer = self._schedule(self.read_only_after, lambda: self._make_read_only(replica))

    def _make_read_only(self, replica: Replica) -> None:
        if replica.status is MemberStatus.LOOKING and not replica.is_paused and replica.votes:
            replica.set_status(MemberStatus.READ_ONLY)

    def _start_election(self, *, immediately: bool) -> None:
        """Start an election. A running election continues while its winner stays the same."""
        winner, takes_time = self.voting.winner(), self.election > 0 and not immediately
        if self._election is not None:
            timer, expected = self._election
            if winner is expected and takes_time:
                return
            timer.cancel()
            self._election = None
        if winner is not None and takes_time:
            self._election = self._schedule(self.election, self.elect_now), winner
        elif winner is not None:
            self._make_leader(winner)

    def elect_now(self) -> None:
        """Elect a leader immediately if no member leads."""
        self.settle(immediately=True)

    def _make_leader(self, winner: Replica) -> None:
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
        winner.set_status(MemberStatus.LEADING)
        for each in self.replicas.values():
            if each is not winner and self.reaches(winner, each):
                self._make_follower(each, winner)

    def _truncate(self, winner: Replica) -> None:
        """Discard the transactions that the new leader has not logged. Their requests were never answered."""
        length = winner.logged
        if length < self.first + len(self.log):
            del self.log[length - self.first :]
            winner.apply(length, self.log, self.first)
            copy_state(winner.engine, self.leading)
        for each in self.replicas.values():
            each.logged = min(each.logged, length)

    def _make_follower(self, replica: Replica, leader: Replica) -> None:
        """Bring a member up to date and let it serve."""
        replica.forget_requests()
        if replica.applied < self.first:
            copy_state(leader.engine, replica.engine)
            replica.applied = leader.applied
        replica.apply(self.committed, self.log, self.first)
        replica.logged = self.first + len(self.log)
        replica.sent = self.committed
        replica.epoch = self.epoch
        replica.set_status(MemberStatus.OBSERVING if replica.observes else MemberStatus.FOLLOWING)

    def transfer(self, number: int) -> None:
        """Make a member the leader.

        Raises:
            ValueError: The member is an observer, is not running, or does not reach the leader or a quorum, or the
                cluster has no leader.
        """
        replica, leader = self.replicas[number], self.leader
        if replica is leader:
            return
        if leader is None:
            raise ValueError("the cluster has no leader to replace; start() members or heal() the network")
        if not replica.votes or not self.reaches(leader, replica) or not self.voting.has_quorum(replica):
            index = list(self.replicas).index(number)
            raise ValueError(f"member {index} cannot lead: a leader must vote, and reach the old leader and a quorum")
        self.voting.candidate = number
        self._lose_leader()
        self.settle()

    def hand_over(self) -> None:
        """Replace the leader immediately, if another member can lead. Call this before the leader is removed."""
        leader = self.leader
        if leader is not None and leader.votes:
            leader.votes = False
            if self.voting.winner() is not None:
                self._lose_leader()
                self.elect_now()
            leader.votes = True

    # --- requests ---

    def forward(self, origin: Replica, request: ForwardedRequest) -> None:
        """Forward a request to the leader, and extend the session of its client."""
        self._send_to_leader(origin, lambda: self._execute(origin, request), heard=request.session_id)

    def open_session(self, origin: Replica, session_id: int, timeout_ms: int, opened: Callable[[], object]) -> None:
        """Open a session with an id from a member. *opened* is called once the member knows the session."""

        def execute() -> None:
            self.leading.zxid += 1
            self.leading.apply(CreateSessionTxn(timeout_ms), session_id)
            self.preparing.owners[session_id] = origin.number
            origin.waiting[self.first + len(self.log) - 1] = lambda code, body: opened()

        self._send_to_leader(origin, execute)

    def revalidate(self, origin: Replica, session_id: int, timeout_ms: int, answered: Callable[[bool], object]) -> None:
        """Call *answered* with whether a resumed session is alive. If it is, make the member its owner."""

        def execute() -> None:
            session = self.leading.sessions.alive.get(session_id)
            if session is not None:
                session.timeout_ms = timeout_ms
                self.leading.sessions.touch(session, self.leading.monotonic_ms)
                self.preparing.owners[session_id] = origin.number
            self._send(origin, self.committed, lambda: answered(session is not None))

        self._send_to_leader(origin, execute)

    def sync(self, origin: Replica, session_id: int, synced: Callable[[], object]) -> None:
        """Call *synced* when a member has applied everything prepared so far, and extend the session of the sync."""

        def execute() -> None:
            self.syncs.append((self.first + len(self.log), origin, synced))

        self._send_to_leader(origin, execute, heard=session_id)

    def touch(self, origin: Replica, session_id: int) -> None:
        """Extend a session after a member received data from its client."""
        if origin in self.linked:
            self._update_time()
            self._extend_session(session_id)

    def _extend_session(self, session_id: int) -> None:
        session = self.leading.sessions.alive.get(session_id)
        if session is not None:
            session.heard = self.leading.monotonic_ms
            self.leading.sessions.touch(session, self.leading.monotonic_ms)

    def _send_to_leader(self, origin: Replica, execute: Callable[[], object], *, heard: int = 0) -> None:
        """Execute a request at the leader as soon as the member reaches the leader.

        The session *heard* is extended only if the request reaches the leader immediately.
        """
        if origin in self.linked:
            self._update_time()
            self._extend_session(heard)
            execute()
            self.pump()
        else:
            self._outgoing.append((origin, execute))

    def _send_outgoing(self) -> None:
        """Send the waiting requests that can reach the leader now. The requests of each member keep their order."""
        outgoing, self._outgoing = self._outgoing, []
        for origin, execute in outgoing:
            self._send_to_leader(origin, execute)

    def _execute(self, origin: Replica, request: ForwardedRequest) -> None:
        before = len(self.log)
        code = self.preparing.execute(request, origin, self.epoch << COUNTER_BITS)
        end = self.first + len(self.log)
        if len(self.log) > before:
            origin.waiting[end - 1] = request.answered
        elif code in SESSION_ERRORS:
            self._send(origin, self.committed, lambda: request.answered(code, b""))
        else:  # a request without a zxid is answered after the earlier transactions are committed
            self.syncs.append((end, origin, lambda: request.answered(code, b"")))

    # --- the log ---

    def pump(self) -> None:
        """Commit the transactions that a quorum has logged, and send them, until only delayed messages are left."""
        self._pump_again = True
        if self._pumping:
            return
        self._pumping = True
        touched: dict[Replica, None] = {}
        try:
            while self._pump_again:
                self._pump_again = False
                self._commit(touched)
        finally:
            self._pumping = False
        self._trim_log()
        self._set_timer()
        for replica in touched:
            replica.flush()
        if self.leader is not None and not self.leader.votes:  # a reconfig has removed the leader
            self.settle()

    def _commit(self, touched: dict[Replica, None]) -> None:
        """Commit the logged transactions, send messages and apply those that are due. Answers may trigger requests."""
        linked, length, now = self.linked, self.first + len(self.log), self.now()
        for each in linked:
            each.logged = length
        if self.committed < length and self.voting.is_quorum(linked):
            start, self.committed = self.committed, length
            for place, entry in enumerate(self.log[start - self.first :], start):
                if isinstance(entry[5], SetDataTxn) and entry[5].path == CONFIG:
                    self._apply_config(entry[5].data, place)
        for each in linked:
            if each.sent < self.committed:
                each.sent = self.committed
                each.receive(now, self.committed)
        waiting, self.syncs = self.syncs, []
        for place, replica, on_applied in waiting:
            if place <= self.committed and replica in linked:
                replica.receive(now, self.committed, on_applied)
            else:
                self.syncs.append((place, replica, on_applied))
        for each in list(self.replicas.values()):
            if each.status.has_leader and each.apply_due(now, self.log, self.first):
                touched[each] = None

    def _apply_config(self, data: bytes | None, place: int) -> None:
        """Use the voters and observers of the configuration at a position of the log."""
        members, _ = parse_config(data)
        voters = voter_numbers(members)
        self.voting.use_config(voters, members.keys() - set(voters))
        if self.leader is not None and not self.leader.votes:  # a removed leader answers only its own clients
            self.voting.candidate = min((each.number for each in self.linked if each.votes), default=None)
            for each in self.linked[1:]:
                each.waiting.pop(place, None)

    def _send(self, replica: Replica, upto: int, on_applied: Callable[[], object]) -> None:
        """Send a member a message from the leader, after the messages that are already on their way."""
        replica.receive(self.now(), upto, on_applied)

    def _set_timer(self) -> None:
        """Set the timer for the next delayed message."""
        due = min([each.next_due() for each in self.replicas.values() if each.status.has_leader], default=inf)
        if due < inf and due < self._timer_at:
            self._timer_at = due
            # The delay is at least 1 ms, because all due messages were applied.
            self._schedule((due - self.now()) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_at = inf
        self.pump()

    def _trim_log(self) -> None:
        if len(self.log) > 2 * MAX_LOGGED_TRANSACTIONS:
            keep = min((each.applied for each in self.replicas.values() if each.status.has_leader), default=0)
            count = min(len(self.log) - MAX_LOGGED_TRANSACTIONS, keep - self.first)
            if count > 0:
                del self.log[:count]
                self.first += count

    def behind(self, replica: Replica) -> int:
        """Return the number of committed transactions that a member has not applied."""
        return self.committed - max(replica.applied, 0)  # applied is -1 for an added member that is still empty

    # --- the whole state ---

    def catch_up(self) -> None:
        """Make every member apply all committed transactions, even members that are stopped or isolated."""
        for each in self.replicas.values():
            if each.applied >= self.first:
                each.apply(self.committed, self.log, self.first)

    def forget_uncommitted(self) -> None:
        """Discard uncommitted transactions. If there are any, clients are disconnected and a new election is held."""
        if self.committed == self.first + len(self.log):
            return
        del self.log[self.committed - self.first :]
        for each in self.replicas.values():
            each.logged = min(each.logged, self.committed)
        copy_state(max(self.replicas.values(), key=lambda each: each.applied).engine, self.leading)
        if self.leader is not None:
            self._lose_leader()

    def clear(self) -> None:
        """Clear the log and all waiting requests. Call this after all engines have been cleared."""
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
        """Reconnect all members, start them all and elect a leader."""
        self._connect()
        self.leader = None
        for each in self.replicas.values():
            each.is_paused = False
            each.lag = 0.0
            each.set_status(MemberStatus.LOOKING)
        self.elect_now()

    # --- time ---

    def _update_time(self) -> None:
        self.leading.set_time(*self._read_time())

    def tick(self) -> bool:
        """Expire the sessions and nodes that are due at the leader. Return whether more work is due."""
        if self.leader is None or self.leader.is_paused:
            return False
        self._update_time()
        more = self.leading.tick()
        self.pump()
        return more

    def expire(self, session_id: int) -> None:
        """Close a session as if it had timed out."""
        session = self.leading.sessions.alive.get(session_id)
        if session is not None:
            self._update_time()
            self.leading.close_session(session)
            self.pump()
