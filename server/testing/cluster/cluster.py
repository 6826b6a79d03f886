"""Several servers over one replicated state, for tests of what clients see when servers fail."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator, Mapping
from random import Random
from typing import Final

from zoolet.server.config.converters import BOOLEAN
from zoolet.server.core.engine import Engine
from zoolet.server.net.daemon import Daemon
from zoolet.server.storage.live import snapshot_of
from zoolet.server.storage.recovery import load_tree
from zoolet.server.storage.snapshot import Snapshot
from zoolet.server.testing.cluster.copying import ClusterSnapshot
from zoolet.server.testing.cluster.ensemble import Ensemble
from zoolet.server.testing.cluster.interceptor import ClusterInterceptor
from zoolet.server.testing.cluster.member import Member, Role
from zoolet.server.testing.cluster.membership import reconfigure, write_config
from zoolet.server.testing.cluster.replica import Status
from zoolet.server.testing.cluster.shared import Shared
from zoolet.server.testing.cluster.whole import Daemons, Time, member_lines, sessions_of
from zoolet.server.testing.run import arguments, clients
from zoolet.server.testing.server import Server
from zoolet.server.testing.signatures import ClockName, CompatName, Who
from zoolet.server.testing.state import report, views
from zoolet.server.testing.state.clock import ManualClock, advance

MAX_MEMBERS: Final = 15
NUMBER_OF_THE_TEST: Final = 127
"""The server number in the ids of sessions that the test has made."""
ALONE_S: Final = 2.0
"""Seconds after which a member without a quorum becomes read-only, as in ZooKeeper."""
ENSEMBLE_KEYS: Final = ("localSessionsEnabled", "localSessionsUpgradingEnabled")
"""Keys of a configuration that have an effect in a cluster only."""


class Cluster(Server):
    """Servers with addresses of their own over one replicated state, in one process, for tests of failover.

    ``with Cluster(3) as cluster:`` or ``async with Cluster(3) as cluster:``. Clients connect to ``cluster.hosts``, or
    to one member by ``cluster[i].hosts``. Everything that clients of an ensemble can see is modelled: a leader and a
    quorum, epochs in zxids, reads of the past, ``sync``, sessions that move between members. It is no replication for
    production.

    It has the calls of a :class:`~zoolet.server.testing.Server`, which mean all members: a fault applies to requests at
    any of them. ``cluster[i]`` is a member, which has the same calls. Changes by the test go through the leader, and
    need one.

    Args:
        size: How many members vote.
        observers: How many more do not.
        host: The address to listen on.
        ports: The ports of the members; by default free ones.
        clock: As for :class:`Server`, as are ``seed``, ``config`` and ``compat``. With ``localSessionsEnabled`` in the
            configuration sessions are known to one member only until they have an ephemeral node, if
            ``localSessionsUpgradingEnabled`` is set, too; with ``readonlymode.enabled`` a member without a quorum
            becomes read-only after two seconds.
        admin: Serve the console, which shows each member, and the control API, as for :class:`Server`.
        election: Seconds that an election takes; 0 for none: another member leads before a call returns.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        size: int = 3,
        *,
        observers: int = 0,
        host: str = "127.0.0.1",
        ports: Collection[int] = (),
        clock: ClockName = "real",
        seed: int | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        compat: CompatName | None = None,
        admin: bool = False,
        election: float = 0.0,
    ) -> None:
        for name, value, low in (("size", size, 1), ("observers", observers, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_MEMBERS:
                raise ValueError(f"{name}={value!r} is invalid; it is a number from {low} to {MAX_MEMBERS}")
        count = size + observers
        if ports and len(ports) != count:
            raise ValueError(f"ports={ports!r} are {len(ports)}, and there are {count} members")
        arguments.check_seconds(f"Cluster(election={election!r})", election)
        flags = {key: False for key in ENSEMBLE_KEYS}
        if isinstance(config, Mapping):
            flags |= {key: _flag(key, config[key]) for key in ENSEMBLE_KEYS if key in config}
            config = {key: value for key, value in config.items() if key not in ENSEMBLE_KEYS}
        given = config
        super().__init__(host, 0, clock=clock, seed=seed, config=config, compat=compat, admin=admin, initial_zxid=0)
        if not isinstance(given, Mapping) and (set(ENSEMBLE_KEYS) & set(self._config.ignored)):
            raise ValueError(f"{' and '.join(ENSEMBLE_KEYS)} have no effect in a file here: give a dict")
        self._config.settings.expire_clients_ahead = False  # another member may be ahead
        local_sessions, upgrades_sessions = (flags[key] for key in ENSEMBLE_KEYS)
        key = Random(f"passwords {self.seed}").randbytes(32)
        self._shared = Shared(
            self.seed, self._clock, self._config, key, local_sessions, upgrades_sessions, self._runner.call
        )
        self._election = election
        self._runner.after_call = self._pump
        self._members: dict[int, Member] = {}
        self._last_number = self._first_members = count
        for number in range(1, count + 1):
            role: Role = "participant" if number <= size else "observer"
            port = list(ports)[number - 1] if ports else 0
            self._members[number] = self._make_member(number, role, host, port)

    def _make_member(self, number: int, role: Role, host: str, port: int) -> Member:
        return Member(self._shared, number, role, host, port)

    def __repr__(self) -> str:
        name = f"zoolet {type(self).__name__.strip('_')} of {len(self._members)}"
        return f"<{name} {self[0].address}>" if self.running else f"<{name}>"

    # --- members ---

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def __getitem__(self, index: int) -> Member:
        """Return a member, counted from 0; one that was removed has no index any more."""
        numbers = list(self._members)
        if not isinstance(index, int) or not -len(numbers) <= index < len(numbers):
            raise IndexError(f"there is no member {index}; the last one is {len(numbers) - 1}")
        return self._members[numbers[index]]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members."""
        return iter(list(self._members.values()))

    @property
    def leader(self) -> Member | None:
        """The member that leads; None while there is none."""
        leader = self.ensemble.leader
        return None if leader is None or not self._runner.running else self._members[leader.number]

    @property
    def followers(self) -> list[Member]:
        """The members that follow the leader and vote."""
        return [member for member in self if member.replica.status is Status.FOLLOWING]

    @property
    def has_changed(self) -> bool:
        """Whether members were added or removed, which :meth:`reset` does not undo."""
        return self._last_number > self._first_members or len(self) < self._first_members

    @property
    def hosts(self) -> str:
        """The connection string for clients, with all members."""
        self._runner.check_running()
        return ",".join(member.address for member in self)

    @property
    def epoch(self) -> int:
        """How many leaders there have been; the upper half of zxids."""
        return self.ensemble.epoch

    # --- starting ---

    @property
    def ensemble(self) -> Ensemble:
        """The log of transactions, and who leads."""
        return self._shared.ensemble

    def _assemble(self) -> Daemon:
        now, monotonic_ms = self._clock.read()
        loop, clock = asyncio.get_running_loop(), self._clock.inner
        call_later = clock.call_later if isinstance(clock, ManualClock) else loop.call_later
        leading = Engine(  # with a number of its own: it has sessions that are no member's
            self._config.settings,
            now=now,
            monotonic_ms=monotonic_ms,
            server_id=NUMBER_OF_THE_TEST,
            rng=Random(self.seed),
        )
        leading.sessions.set_key(self._shared.key)
        self._shared.begin(
            Ensemble(
                leading,
                call_later,
                self._clock.read,
                election=self._election,
                alone=ALONE_S if self._config.isro else None,
            )
        )
        leading.has_quorum = self.ensemble.leader_would_have_quorum
        self._shared.interceptor = ClusterInterceptor(call_later, lambda: self._clock.read()[0] / 1000)
        self._intercept(self._shared.interceptor)
        return Daemons(lambda: self, lambda: self._engine, self._open_members)  # type: ignore[return-value] # it has what a runner needs of one

    async def _open_members(self) -> None:
        for member in self:
            await member.open()
            self.ensemble.replicas[member.number] = member.replica
        write_config(self, self._shared.engines())
        self.ensemble.settle_at_once()  # the first election

    @property
    def _engine(self) -> Engine:
        return self.ensemble.leading if self.ensemble.leader is not None else self._freshest()

    def _freshest(self) -> Engine:
        """Return the engine of the member that knows most, while nobody leads."""
        running = [member.replica for member in self if member.replica.is_up] or [member.replica for member in self]
        return max(running, key=lambda each: each.applied).engine

    @property
    def _writer(self) -> Engine:
        return self._shared.writer()

    def _pump(self) -> None:
        self.ensemble.pump()

    # --- failures ---

    def stop_leader(self) -> Member:
        """Stop the leader, and return it: the others elect another.

        Raises:
            RuntimeError: There is none.
        """
        leader = self._need_leader()
        leader.stop()
        return leader

    def kill_leader(self) -> Member:
        """Kill the leader, and return it; as :meth:`stop_leader`."""
        leader = self._need_leader()
        leader.kill()
        return leader

    def _need_leader(self) -> Member:
        leader = self.leader
        if leader is None:
            raise RuntimeError(f"the cluster has no leader: {self._shared.who_is_who()}")
        return leader

    def _named(self, which: int | Member) -> Member:
        return which if isinstance(which, Member) and which in list(self) else self[which]  # type: ignore[index]

    def transfer_leadership(self, index: int | Member) -> None:
        """Make a member the leader: all clients are disconnected, as at every election.

        Raises:
            IndexError: There is no such member.
            ValueError: It cannot lead.
        """
        self._runner.call(lambda: self.ensemble.transfer(self._named(index).number))

    def partition(self, *groups: Collection[int | Member], noticed_after: float = 0.0) -> None:
        """Divide the network between members: they reach only those of their own group. Clients reach all.

        Args:
            groups: Members, or their indexes; those that are in no group are one together.
            noticed_after: Seconds until members notice whom they do not reach, which ZooKeeper calls ``syncLimit``.
                Until then a leader without a quorum goes on answering reads, and its clients believe in it.

        Raises:
            ValueError: A member is in two groups, or there is no group.
            IndexError: There is no such member.
        """
        arguments.check_seconds(f"partition(noticed_after={noticed_after!r})", noticed_after)
        if not groups or not all(isinstance(group, Collection) and not isinstance(group, str) for group in groups):
            raise ValueError(f"partition{groups!r}: it needs groups of members, such as partition([0], [1, 2])")
        numbers = [[self._named(which).number for which in group] for group in groups]
        named = [number for group in numbers for number in group]
        if len(set(named)) < len(named):
            raise ValueError(f"partition{groups!r}: a member is in two groups")
        self._runner.call(lambda: self.ensemble.partition(numbers, noticed_after))

    def heal(self) -> None:
        """Connect all members again, end lags, pauses and faults, set the clock right, and accept connections. Members
        that were stopped stay so.
        """
        super().heal()

        def heal() -> None:
            self.ensemble.heal()  # first: a member that was paused learns what it is before its clients are answered
            for member in self:
                member.end_faults()

        self._runner.call(heal)

    def lag(self, index: int | Member, seconds: float) -> None:
        """Make a member late: it applies what was committed so many seconds later, answers writes only then, and
        reads from the past. While it leads this has no effect.

        Args:
            index: Which member.
            seconds: By how much; infinite for until further notice, 0 to catch up at once.

        Raises:
            ValueError: *seconds* is negative.
        """
        if seconds != float("inf"):
            arguments.check_seconds(f"lag({index}, {seconds!r})", seconds)
        replica = self._named(index).replica

        def lag() -> None:
            replica.delay(seconds)
            self.ensemble.pump()

        self._runner.call(lag)

    def rolling_restart(self) -> None:
        """Stop and start each member that runs, the leader last, as for an upgrade: clients move."""
        leader = self.leader
        for member in sorted((each for each in self if each.running), key=lambda each: each is leader):
            member.stop()
            member.start()

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Stop all members at once, and start them again, those too that did not run; arguments as for
        :meth:`Server.restart`.
        """
        arguments.check_seconds(f"restart(downtime={downtime!r})", downtime)

        def restart() -> None:
            for member in self:
                member.halt(abort=True)
            if not keep:
                self._clear()
            for member in self:
                member.go_on_later(downtime)

        self._runner.call(restart)

    def set_read_only(self, on: bool) -> None:
        """Refuse: members become read-only when they reach no quorum.

        Raises:
            ValueError: Always.
        """
        raise ValueError(f"members become read-only without a quorum: use partition(...), not set_read_only({on})")

    # --- members that come and go ---

    def add(self, *, role: Role = "participant") -> Member:
        """Add a member, and return it. With ``reconfigEnabled`` it is in ``/zookeeper/config``.

        Raises:
            ValueError: The role is neither ``"participant"`` nor ``"observer"``.
            RuntimeError: There is no leader.
        """
        if role not in ("participant", "observer"):
            raise ValueError(f"role={role!r} is invalid; it is 'participant' or 'observer'")
        self._runner.call(lambda: self._writer)  # or it is refused before it listens
        number = self._last_number = self._last_number + 1
        member = self._make_member(number, role, self._host, 0)
        self._runner.run(member.open())

        def join() -> None:
            leading = self._writer
            self._members[number] = member
            self.ensemble.add(member.replica)
            reconfigure(self, leading)
            self.ensemble.settle()

        try:
            self._runner.call(join)
        except RuntimeError:  # the leader has gone meanwhile
            self._runner.run_soon(member.close())
            raise
        return member

    def remove(self, index: int | Member) -> None:
        """Remove a member for good: it stops, and the others do without it.

        Raises:
            IndexError: There is no such member.
            ValueError: It is the last one that votes.
            RuntimeError: There is no leader, or it reaches no quorum.
        """

        def remove() -> Member:
            member = self._named(index)
            if member.replica.votes and len(self.ensemble.voting.voters()) == 1:
                raise ValueError(f"member {member.index} is the last one that votes")
            leading = self._writer
            if member.is_leader:
                self.ensemble.hand_over()
            del self._members[member.number]
            reconfigure(self, leading)
            self.ensemble.pump()
            member.halt(abort=False)
            del self.ensemble.replicas[member.number]
            self.ensemble.settle()
            return member

        self._runner.run_soon(self._runner.call(remove).close())

    # --- sessions and time ---

    def expire(self, who: Who) -> None:
        """Expire sessions, as :meth:`Server.expire`."""
        self._runner.call(lambda: self._shared.expire(who, self._engine, [member.gateway for member in self]))

    def drop(self, who: Who) -> None:
        """Close the connections of sessions, which stay alive; as :meth:`Server.drop`."""

        def drop() -> None:
            ids = self._sessions_of(who)
            for member in self:
                clients.drop(member.daemon, ids, everybody=who == "all")

        self._runner.call(drop)

    def advance(self, seconds: float) -> None:
        """Advance a manual clock, as :meth:`Server.advance`."""
        arguments.check_seconds(f"advance({seconds!r})", seconds)
        self._runner.call(lambda: advance(Time(self._shared, lambda: self), self._clock, seconds))

    def skew_clock(self, seconds: float) -> None:
        """Set the wall clock of all members, as :meth:`Server.skew_clock`."""
        arguments.check_seconds(f"skew_clock({seconds!r})", seconds, -arguments.MAX_SECONDS)

        def skew() -> None:
            self._clock.skew_ms = round(seconds * 1000)

        self._runner.call(skew)

    # --- state ---

    def snapshot(self) -> ClusterSnapshot:  # type: ignore[override] # of another kind of server
        """Return a snapshot of the tree, in time proportional to its size."""
        return self._runner.call(lambda: ClusterSnapshot(self, snapshot_of(self._engine)))

    def restore(self, snapshot: ClusterSnapshot) -> None:  # type: ignore[override]
        """Restore the tree of a snapshot at all members; otherwise as :meth:`Server.restore`.

        Raises:
            ValueError: The snapshot is of another server.
        """
        if not isinstance(snapshot, ClusterSnapshot) or snapshot.of is not self:
            raise ValueError(f"restore({snapshot!r}): this is not a snapshot of this cluster; snapshot() returns one")
        self._runner.call(lambda: self._set_tree(snapshot.copy))

    def _set_tree(self, copy: Snapshot) -> None:
        self.ensemble.catch_up()
        self.ensemble.forget_uncommitted()
        for engine in self._shared.engines():
            load_tree(engine, copy)
        self.ensemble.settle()

    def reset(self) -> None:
        """Remove all sessions, connections, faults, pauses and nodes, start all members, and connect them again; ports
        change as for :meth:`Server.reset`.
        """

        def reset() -> None:
            self._interceptor.reset()
            for member in self:
                member.forget_clients()
            self._clock.skew_ms = 0
            self._clear()
            for member in self:
                member.begin_again()
            write_config(self, self._shared.engines())  # the ports have changed
            self.ensemble.restart()
            self._faults_made = 0

        self._runner.call(reset)

    def _clear(self) -> None:
        for engine in self._shared.engines():
            engine.clear()
        self.ensemble.clear()
        for member in self:
            member.restore_role()
        write_config(self, self._shared.engines())
        self._others = None
        for engine in self._shared.engines():
            engine.quota.enforced = engine.settings.enforce_quota

    # --- views ---

    def watches(self) -> tuple[views.WatchView, ...]:
        """Return the watches at all members."""
        return self._runner.call(
            lambda: tuple(watch for member in self for watch in views.watches(member.replica.engine))
        )

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, by id."""
        return self._runner.call(lambda: sessions_of(self._engine, self))

    def report(self) -> str:
        """Return the state as text; of members who leads, who lags by how many transactions, who reaches no leader."""

        def sections() -> Mapping[str, list[str]]:
            return {
                "members": member_lines(self._shared, self),
                **report.of_server(self._engine, self._interceptor, sessions_of(self._engine, self)),
            }

        return report.as_text(self._shown_seed, self._runner.call(sections))

    def leaks(self) -> list[str]:
        """Return a line for each thing that clients have left."""
        return self._runner.call(
            lambda: [*dict.fromkeys(leak for each in self._shared.engines() for leak in report.leaks(each))]
        )

    def _refuse_connections(self) -> None:
        for member in self:
            member.set_refusing(True)

    def _accept_connections(self) -> None:
        for member in self:
            member.set_refusing(False)


def _flag(key: str, value: object) -> bool:
    """Return a setting that is true or false.

    Raises:
        ValueError: It is neither.
    """
    try:
        return bool(BOOLEAN.convert(str(value)))
    except ValueError:
        raise ValueError(f"{key}={value!r} is invalid; it must be {BOOLEAN.expected}") from None
