"""The members of a cluster as one server, for manual clocks and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from ...server.core.engine import Engine
from ..run.arguments import MAX_SECONDS
from ..state import views
from .ensemble import Ensemble
from .member import Member
from .shared import Shared


class ClusterTime:
    """The time of all engines of a cluster, which a manual clock advances.

    Args:
        shared: Shared state, with the preparing engine and the members' engines.
        members: Function that returns the members.
    """

    def __init__(self, shared: Shared, members: Callable[[], Iterable[Member]]) -> None:
        self._shared = shared
        self._members = members

    def next_due(self) -> int | None:
        """Return the time of the next expiry at the leader or of a local session, in monotonic ms, or None."""
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
        """Do the work that is due at the members. The leader also expires sessions."""
        for engine in self._shared.engines()[1:]:
            engine.tick()

    def reap(self) -> None:
        """Delete the nodes that are due."""
        if self._shared.ensemble.leader is not None:
            self._shared.ensemble.leading.reap()
            self._shared.ensemble.pump()


def live_sessions(engine: Engine, members: Iterable[Member]) -> Mapping[int, views.SessionView]:
    """Return the live sessions of an engine and the members' local sessions, by id, with their connections."""
    shown = dict(views.sessions(engine))
    for member in members:
        for id, view in views.sessions(member.replica.engine).items():
            if member.gateway.is_local(id):
                shown[id] = view
            elif id in shown and view.connected:
                shown[id] = replace(view, expires_in=shown[id].expires_in)
    return shown


def member_lines(ensemble: Ensemble, members: Iterable[Member]) -> list[str]:
    """Return a line for each member with its status, its lag in transactions, and whether it reaches no leader."""
    lines = [f"epoch {ensemble.epoch}, {ensemble.committed} transactions"]
    numbers = list(ensemble.replicas)
    groups = ensemble.network.groups(numbers)
    if len(groups) > 1:
        texts = [" and ".join(str(numbers.index(number)) for number in group) for group in groups]
        lines.append(f"the network is divided: {', '.join(texts)}")
    for member in members:
        replica = member.replica
        facts = [f"{member.index} {member.address} {member.status}"]
        behind = ensemble.behind(replica)
        if replica.is_paused:
            facts.append("paused")
        if behind:
            facts.append(f"behind by {behind} transaction{'s' if behind > 1 else ''}")
        if replica.lag:
            facts.append(f"lags by {replica.lag:g} s" + (" once it follows" if member.is_leader else ""))
        if replica.is_up and not replica.status.has_leader:
            facts.append("reaches no leader")
        lines.append(", ".join(facts))
    return lines


def member_facts(members: Iterable[Member]) -> list[dict[str, object]]:
    """Return the index, address, role, status, pause and lag of each member as JSON-compatible values."""
    return [
        {
            "index": member.index,
            "hosts": member.address,
            "role": member.role,
            "status": member.status,
            "paused": member.replica.is_paused,
            "lag": min(member.replica.lag, MAX_SECONDS),  # JSON has no infinity
            "behind": member.behind,
        }
        for member in members
    ]
