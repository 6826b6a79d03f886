"""The members of a cluster as if they were one: for its runner, and for the passing of time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from zoolet.server.core.engine import Engine
from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.cluster.member import Member
from zoolet.server.testing.cluster.shared import Shared
from zoolet.server.testing.state import views


class Time:
    """The engines of a cluster, as far as the passing of time is concerned: for a manual clock.

    Args:
        shared: The engine that prepares, and the members' engines.
        members: Returns the members.
    """

    def __init__(self, shared: Shared, members: Callable[[], Iterable[Member]]) -> None:
        self._shared = shared
        self._members = members

    def next_due(self) -> int | None:
        """Return when something becomes due at the leader, or a local session at a member; None for never."""
        ensemble = self._shared.ensemble
        moments = [member.gateway.next_due() for member in self._members()]
        if ensemble.leader is not None:
            moments.append(ensemble.leading.next_due())
        return min((moment for moment in moments if moment is not None), default=None)

    def set_time(self, now: int, monotonic_ms: int) -> None:
        """Set the time of all engines."""
        for engine in self._shared.engines():
            engine.set_time(now, monotonic_ms)

    def tick(self) -> None:
        """Do what is due at the members; the one that leads lets sessions expire."""
        for engine in self._shared.engines()[1:]:
            engine.tick()

    def reap(self) -> None:
        """Delete the nodes that are due."""
        if self._shared.ensemble.leader is not None:
            self._shared.ensemble.leading.reap()
            self._shared.ensemble.pump()


class Opened(Protocol):
    """A member, as far as starting and stopping are concerned."""

    @property
    def daemon(self) -> Daemon:
        """The daemon that listens."""
        ...

    async def close(self) -> None:
        """Stop for good."""


class Daemons:
    """The daemons of all members, as one daemon for the runner of a cluster.

    Args:
        members: Returns the members.
        shown: Returns the engine whose state is shown.
        open_members: Starts the members.
    """

    log = None

    def __init__(
        self,
        members: Callable[[], Iterable[Opened]],
        shown: Callable[[], Engine],
        open_members: Callable[[], Awaitable[None]],
    ) -> None:
        self._members = members
        self._shown = shown
        self._open_members = open_members
        self.connections = self
        self.stall_warning = ""

    @property
    def engine(self) -> Engine:
        """The engine whose state is shown."""
        return self._shown()

    def _all(self) -> list[Daemon]:
        return [member.daemon for member in self._members()]

    async def start(self, host: str, port: int, context: object) -> int:
        """Start the members; return the port of the first."""
        await self._open_members()
        return self._all()[0].port

    async def stop(self, *, gracefully: bool) -> None:
        """Stop the members."""
        for member in self._members():
            await member.close()

    def move(self, used: object) -> None:
        """Do nothing: the members have moved, if they had to."""

    def set_time(self) -> None:
        """Set the time of all members' engines."""
        for daemon in self._all():
            daemon.connections.set_time()

    def deliver(self) -> None:
        """Send the events that wait at any member."""
        for daemon in self._all():
            daemon.connections.deliver()

    def wake(self) -> None:
        """Schedule the next ticks."""
        for daemon in self._all():
            daemon.wake()

    def descriptors(self) -> list[int]:
        """Return the file descriptors of all sockets."""
        return [number for daemon in self._all() for number in daemon.descriptors()]


def sessions_of(engine: Engine, members: Iterable[Member]) -> Mapping[int, views.SessionView]:
    """Return the sessions that are alive by an engine, by id, each with the connection that it has at a member, and the
    local ones.
    """
    shown = dict(views.sessions(engine))
    for member in members:
        for id, view in views.sessions(member.replica.engine).items():
            if member.gateway.is_local(id):
                shown[id] = view
            elif id in shown and view.connected:
                shown[id] = replace(view, expires_in=shown[id].expires_in)
    return shown


def member_lines(shared: Shared, members: Iterable[Member]) -> list[str]:
    """Return a line for each member: who leads, who lags by how many transactions, who reaches no leader."""
    committed = shared.ensemble.committed
    lines = [f"epoch {shared.ensemble.epoch}, {committed} transactions"]
    numbers = list(shared.ensemble.replicas)
    groups = shared.ensemble.network.groups(numbers)
    if len(groups) > 1:
        texts = [" and ".join(str(numbers.index(number)) for number in group) for group in groups]
        lines.append(f"the network is divided: {', '.join(texts)}")
    for member in members:
        replica = member.replica
        facts = [f"{member.index} {member.address} {member.status}"]
        behind = shared.ensemble.behind(replica)
        if replica.is_paused:
            facts.append("paused")
        if behind:
            facts.append(f"behind by {behind} transaction{'s' if behind > 1 else ''}")
        if replica.lag:
            facts.append(f"lags by {replica.lag:g} s")
        if replica.is_up and not replica.status.has_leader:
            facts.append("reaches no leader")
        lines.append(", ".join(facts))
    return lines
