"""Several servers with one replicated state, to test what clients see when servers fail."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from random import Random, SystemRandom
from typing import Final

from ...server.config.converters import BOOLEAN
from ...server.core.engine import Engine
from ...server.net.daemon import Daemon
from ...server.storage.live import take_snapshot
from ...server.storage.recovery import load_tree
from ...server.storage.snapshot import Snapshot
from ..endpoint import ConsoleView
from ..frames.interceptor import Interceptor
from ..run import arguments
from ..run.arguments import make_refusal
from ..run.place import Place
from ..server import Server
from ..signatures import ClockName, CompatName, Who
from ..state import report, views
from ..state.clock import advance
from ..state_calls import StateCalls
from .copying import ClusterSnapshot
from .ensemble import Ensemble
from .member import Member, Role
from .membership import reconfigure, write_config
from .replica import MemberStatus
from .shared import Shared
from .whole import ClusterTime, live_sessions, member_facts, member_lines

MAX_MEMBERS: Final = 15
TEST_SERVER_NUMBER: Final = 127
"""The server number in the ids of sessions that the test creates."""
READ_ONLY_AFTER_S: Final = 2.0
"""Seconds after which a member without a quorum becomes read-only, as in ZooKeeper."""
ENSEMBLE_KEYS: Final = ("localSessionsEnabled", "localSessionsUpgradingEnabled")
"""Configuration keys that take effect only in a cluster."""


class Cluster(StateCalls):
    """Several servers with one replicated state, in one process, for tests of failover.

    Use it as ``with Cluster(3) as cluster:`` or ``async with Cluster(3) as cluster:``. Clients connect to
    ``cluster.hosts``, or to one member at ``cluster[i].hosts``. The cluster models everything that clients of an
    ensemble can see: a leader and a quorum, epochs in zxids, stale reads, ``sync``, and sessions that move between
    members. It does not replicate data for production.

    The methods of a :class:`~zoolet.testing.Server` apply to all members. For example, a fault applies to requests at
    any member. ``cluster[i]`` is a member and has most of these methods. Changes by the test go through the leader, so
    they fail while no member leads.

    Args:
        members: Number of voting members.
        observers: Number of additional members that do not vote.
        host: The address to listen on.
        ports: The ports of the members, by default free ports.
        clock: As for :class:`Server`.
        seed: As for :class:`Server`.
        config: As for :class:`Server`. With ``localSessionsEnabled``, new sessions are local to one member. With
            ``localSessionsUpgradingEnabled``, a local session becomes global when it creates an ephemeral node. With
            ``readonlymode.enabled``, a member without a quorum becomes read-only after two seconds.
        compat: As for :class:`Server`.
        tls: Speak TLS at every member. Clients must trust the CA in ``tls_ca``, as for :class:`Server`.
        admin: Serve the control API and the console, which shows each member, as for :class:`Server`.
        election: Duration of an election in seconds. With 0, ``stop_leader()`` returns after the election.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        members: int = 3,
        *,
        observers: int = 0,
        host: str = "127.0.0.1",
        ports: Collection[int] = (),
        clock: ClockName = "real",
        seed: int | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        compat: CompatName | None = None,
        tls: bool = False,
        admin: bool = False,
        election: float = 0.0,
    ) -> None:
        for name, value, low in (("members", members, 1), ("observers", observers, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= MAX_MEMBERS:
                raise arguments.invalid(name, value, f"a number from {low} to {MAX_MEMBERS}")
        count = members + observers
        if ports and len(ports) != count:
            raise arguments.invalid("ports", ports, f"{count} ports, one per member")
        arguments.check_seconds("election", election)
        arguments.check_numbers(seed, None)
        arguments.check_flags(tls=tls, admin=admin)
        flags = {key: False for key in ENSEMBLE_KEYS}
        if isinstance(config, Mapping):
            flags |= {key: _parse_flag(key, config[key]) for key in ENSEMBLE_KEYS if key in config}
            config = {key: value for key, value in config.items() if key not in ENSEMBLE_KEYS}
        given = config
        super().__init__(
            host,
            0,
            SystemRandom().getrandbits(32) if seed is None else seed,
            arguments.make_clock(clock, seed),
            arguments.read_config(config, compat, exact=clock == "manual"),
        )
        self._runner.after_start, self._runner.before_stop = self._open, self._close
        self._serve_admin(admin)
        if tls:
            self._use_tls()
        if not isinstance(given, Mapping) and (set(ENSEMBLE_KEYS) & set(self._config.ignored)):
            raise ValueError(f"{' and '.join(ENSEMBLE_KEYS)} have no effect in a config file; pass config as a dict")
        self._config.settings.expire_clients_ahead = False  # the client may come from a member that is ahead
        local_sessions, upgrades_sessions = (flags[key] for key in ENSEMBLE_KEYS)
        key = Random(f"passwords {self.seed}").randbytes(32)
        tls_of_all = self._runner.context, self.tls_ca
        self._shared = Shared(
            self.seed, self._clock, self._config, key, local_sessions, upgrades_sessions, self._runner.call, tls_of_all
        )
        self._election = election
        self._runner.after_call = self._pump
        self._members: dict[int, Member] = {}
        self._last_number = self._first_members = count
        for number in range(1, count + 1):
            role: Role = "participant" if number <= members else "observer"
            port = list(ports)[number - 1] if ports else 0
            self._members[number] = Member(self._shared, number, role, host, port, self._place)

    def supports_chaos(self, kind: str) -> bool:
        """Return True, because a cluster supports every kind of chaos."""
        return True

    def move_to(self, place: Place) -> None:
        """Run in a different place, with all members."""
        super().move_to(place)
        for member in self:
            member.move_to(place)

    def __repr__(self) -> str:
        name = f"zoolet {type(self).__name__.strip('_')} of {len(self._members)}"
        return f"<{name} {self[0].address}>" if self.running else f"<{name}>"

    # --- members ---

    def __len__(self) -> int:
        """Return the number of members."""
        return len(self._members)

    def __getitem__(self, index: int) -> Member:
        """Return a member by index, starting at 0. Removed members are not counted.

        Raises:
            IndexError: The member does not exist.
        """
        numbers = list(self._members)
        if not isinstance(index, int) or not -len(numbers) <= index < len(numbers):
            raise IndexError(f"member must be an index from 0 to {len(numbers) - 1}, not {index!r}")
        return self._members[numbers[index]]

    def __iter__(self) -> Iterator[Member]:
        """Iterate over the members."""
        return iter(list(self._members.values()))

    @property
    def leader(self) -> Member | None:
        """The current leader, or None if no member leads."""
        leader = self.ensemble.leader
        return None if leader is None or not self._runner.running else self._members[leader.number]

    @property
    def followers(self) -> list[Member]:
        """The voting members that follow the leader, without observers."""
        return [member for member in self if member.replica.status is MemberStatus.FOLLOWING]

    @property
    def has_changed(self) -> bool:
        """Whether members have been added or removed, which :meth:`reset` does not undo."""
        return self._last_number > self._first_members or len(self) < self._first_members

    @property
    def port(self) -> int:
        """The port of the first member."""
        return self[0].port

    @property
    def hosts(self) -> str:
        """The connection string for clients, listing all members."""
        self._runner.check_running()
        return ",".join(member.address for member in self)

    @property
    def epoch(self) -> int:
        """The current epoch: the number of elections so far, and the upper half of zxids."""
        return self.ensemble.epoch

    # --- starting ---

    @property
    def ensemble(self) -> Ensemble:
        """The members, their log of transactions and their leader."""
        return self._shared.ensemble

    def _assemble(self) -> None:
        now, monotonic_ms = self._clock.read()
        call_later = self._clock.call_later
        leading = Engine(  # the engine needs its own server number, because its sessions belong to no member
            self._config.settings,
            now=now,
            monotonic_ms=monotonic_ms,
            server_id=TEST_SERVER_NUMBER,
            rng=Random(self.seed),
        )
        leading.sessions.set_key(self._shared.key)
        self._shared.use_ensemble(
            Ensemble(
                leading,
                call_later,
                self._clock.read,
                election=self._election,
                read_only_after=READ_ONLY_AFTER_S if self._config.isro else None,
            )
        )
        leading.has_quorum = self.ensemble.leader_would_have_quorum
        self._shared.interceptor = Interceptor(call_later, lambda: self._clock.read()[0] / 1000)
        self._intercept(self._shared.interceptor)

    def _daemons(self) -> list[Daemon]:
        return [member.daemon for member in self]

    async def _open(self) -> None:
        try:
            for member in self:
                await member.open()
                self.ensemble.replicas[member.number] = member.replica
        except BaseException:  # one port is in use, or the start is cancelled
            await self._close()
            raise
        write_config(self, self._shared.engines())
        self.ensemble.elect_now()  # the first election is immediate
        await self._open_admin()

    async def _close(self) -> None:
        await self._close_admin()
        for member in self:
            await member.close()

    @property
    def _engine(self) -> Engine:
        return self.ensemble.leading if self.ensemble.leader is not None else self._most_advanced_engine()

    def _most_advanced_engine(self) -> Engine:
        """Return the engine that has applied the most transactions. It shows the state while no member leads."""
        running = [member.replica for member in self if member.replica.is_up] or [member.replica for member in self]
        return max(running, key=lambda each: each.applied).engine

    @property
    def _writer(self) -> Engine:
        return self._shared.writer()

    def _engines(self) -> list[Engine]:
        return self._shared.engines()

    def _pump(self) -> None:
        self.ensemble.pump()

    # --- failures ---

    def stop_leader(self) -> Member:
        """Stop the leader and return it. The other members elect a new leader.

        Raises:
            RuntimeError: The cluster has no leader.
        """
        leader = self._require_leader()
        leader.stop()
        return leader

    def kill_leader(self) -> Member:
        """Kill the leader and return it. Unlike :meth:`stop_leader`, reset connections and lose unsent output."""
        leader = self._require_leader()
        leader.kill()
        return leader

    def _require_leader(self) -> Member:
        leader = self.leader
        if leader is None:
            raise RuntimeError(self._shared.no_leader_message())
        return leader

    def _find_member(self, which: int | Member) -> Member:
        return which if isinstance(which, Member) and which in list(self) else self[which]  # type: ignore[index]

    def transfer_leadership(self, index: int | Member) -> None:
        """Make a member the leader. All clients are disconnected, as in every election.

        Raises:
            IndexError: The member does not exist.
            ValueError: The member does not vote, or does not reach the leader or a quorum, or no member leads.
        """
        self._runner.call(lambda: self.ensemble.transfer(self._find_member(index).number))

    def partition(self, *groups: Collection[int | Member], noticed_after: float = 0.0) -> None:
        """Divide the network between members: each member reaches only its own group. Clients reach all members.

        Args:
            groups: Groups of members or member indexes. Members in no group form one more group.
            noticed_after: Seconds until members notice the partition, like ZooKeeper's ``syncLimit``. Until then, a
                leader without a quorum keeps answering reads, and its clients stay connected.

        Raises:
            ValueError: A member is in two groups, or no group is given.
            IndexError: A member does not exist.
        """
        arguments.check_seconds("noticed_after", noticed_after)
        if not groups or not all(isinstance(group, Collection) and not isinstance(group, str) for group in groups):
            raise ValueError(f"groups must be collections of members, such as partition([0], [1, 2]), not {groups!r}")
        members = [[self._find_member(which) for which in group] for group in groups]
        named = [member for group in members for member in group]
        if twice := next((member for member in named if named.count(member) > 1), None):
            raise ValueError(f"member {twice.index} is in two groups")
        numbers = [[member.number for member in group] for group in members]
        self._runner.call(lambda: self.ensemble.partition(numbers, noticed_after))

    def heal(self) -> None:
        """Reconnect all running members, end lags and clock skew, and do the same as :meth:`Server.heal`."""
        super().heal()

        def heal() -> None:
            self.ensemble.heal()  # a paused member must get its new status before it answers clients
            for member in self:
                member.end_faults()

        self._runner.call(heal)

    def lag(self, index: int | Member, seconds: float) -> None:
        """Delay a member: it applies committed transactions *seconds* later.

        Until then it does not answer writes, and its reads are stale. A leader does not lag: its lag takes effect when
        it becomes a follower.

        Args:
            index: The member, or its index.
            seconds: Delay in seconds. 0 makes the member catch up immediately. ``inf`` withholds all transactions.

        Raises:
            IndexError: The member does not exist.
            ValueError: *seconds* is negative.
        """
        if seconds != float("inf"):
            arguments.check_seconds("lag: seconds", seconds)
        replica = self._find_member(index).replica

        def lag() -> None:
            replica.delay(seconds)
            self.ensemble.pump()

        self._runner.call(lag)

    def rolling_restart(self) -> None:
        """Restart each running member in turn, the leader last, as for an upgrade. Clients move between members."""
        leader = self.leader
        for member in sorted((each for each in self if each.running), key=lambda each: each is leader):
            member.stop()
            member.start()

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Kill all members at the same time, and start all, even stopped ones. See :meth:`Server.restart`."""
        arguments.check_seconds("downtime", downtime)

        def restart() -> None:
            for member in self:
                member.halt(abort=True)
            if not keep:
                self._clear()
            for member in self:
                member.start_in_loop_later(downtime)

        self._runner.call(restart)

    set_read_only = make_refusal(
        Server.set_read_only, "members become read-only without a quorum: use partition(...), not set_read_only()"
    )

    # --- adding and removing members ---

    def add(self, *, role: Role = "participant") -> Member:
        """Add a member and return it. With ``reconfigEnabled``, ``/zookeeper/config`` lists it.

        Raises:
            ValueError: The role is neither ``"participant"`` nor ``"observer"``.
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """
        if role not in ("participant", "observer"):
            raise arguments.invalid("role", role, "'participant' or 'observer'")
        self._runner.call(lambda: self._writer)  # without a leader, the call fails before the member listens
        number = self._last_number = self._last_number + 1
        member = Member(self._shared, number, role, self._host, 0, self._place)
        self._runner.run(member.open())

        def join() -> None:
            leading = self._writer
            self._members[number] = member
            self.ensemble.add(member.replica)
            reconfigure(self, leading)
            self.ensemble.settle()

        try:
            self._runner.call(join)
        except RuntimeError:  # the leader was lost after the first check
            self._runner.run_soon(member.close())
            raise
        return member

    def remove(self, index: int | Member) -> None:
        """Remove a member permanently: it stops and no longer counts in quorums.

        Raises:
            IndexError: The member does not exist.
            ValueError: The member is the only voter.
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """

        def remove() -> Member:
            member = self._find_member(index)
            if member.replica.votes and len(self.ensemble.voting.voters()) == 1:
                raise ValueError(f"cannot remove member {member.index}: no other member votes")
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
        """Expire sessions at all members, like :meth:`Server.expire`.

        Raises:
            LookupError: No session matches *who*.
            RuntimeError: The cluster has no leader, or the leader reaches no quorum.
        """
        self._runner.call(lambda: self._shared.expire(who, self._engine, [member.gateway for member in self]))

    def advance(self, seconds: float) -> None:
        """Advance the manual clock of all members, like :meth:`Server.advance`."""
        arguments.check_seconds("advance: seconds", seconds)
        self._runner.call(lambda: advance(ClusterTime(self._shared, lambda: self), self._clock, seconds))

    # --- state ---

    def snapshot(self) -> ClusterSnapshot:
        """Return a snapshot of the tree, in time proportional to its size."""
        return self._runner.call(lambda: ClusterSnapshot(self, take_snapshot(self._engine)))

    def restore(self, snapshot: ClusterSnapshot) -> None:
        """Restore the tree of a snapshot at all members, like :meth:`Server.restore`.

        Raises:
            ValueError: *snapshot* is not a snapshot of this cluster.
        """
        if not isinstance(snapshot, ClusterSnapshot) or snapshot.cluster is not self:
            raise ValueError(f"restore({snapshot!r}): expected a snapshot of this cluster, from its snapshot()")
        self._runner.call(lambda: self._set_tree(snapshot.copy))

    def _set_tree(self, copy: Snapshot) -> None:
        self.ensemble.catch_up()
        self.ensemble.forget_uncommitted()
        for engine in self._shared.engines():
            load_tree(engine, copy)
        self.ensemble.settle()

    def reset(self) -> None:
        """Remove all sessions, connections, faults, pauses and nodes, then start and reconnect all members.

        Ports change as for :meth:`Server.reset`.
        """

        def reset() -> None:
            self._interceptor.reset()
            for member in self:
                member.forget_clients()
            self._clock.skew_ms = 0
            self._clear()
            for member in self:
                member.start_after_reset()
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
        self._owner_session = None
        for engine in self._shared.engines():
            engine.quota.enforced = engine.settings.enforce_quota

    # --- views ---

    def members(self) -> list[dict[str, object]]:
        """Return the address, role, status and lag of each member."""
        return self._runner.call(lambda: member_facts(self))

    def console_views(self) -> list[ConsoleView]:
        """Return a console view for each member. The leader's view is the default."""
        return [
            ConsoleView(member.daemon, member.address, member is self.leader, partial(self._console_facts, member))
            for member in self
        ]

    def _console_facts(self, member: Member) -> dict[str, object]:
        return {"members": member_facts(self), "member": member.index, "report": member_lines(self.ensemble, self)}

    def _session_views(self) -> Mapping[int, views.SessionView]:
        return live_sessions(self._engine, self)

    def _sections(self) -> report.Sections:
        return {"members": member_lines(self.ensemble, self), **super()._sections()}

    def _apply_refusing(self, on: bool) -> None:
        for member in self:
            member.set_refusing(on)


def _parse_flag(key: str, value: object) -> bool:
    """Convert the value of a boolean setting.

    Raises:
        ValueError: *value* is not a boolean.
    """
    try:
        return bool(BOOLEAN.convert(str(value)))
    except ValueError:
        raise arguments.invalid(key, value, BOOLEAN.expected) from None
