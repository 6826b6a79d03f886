"""The commands that a cluster has in addition: names and parameters are those of
:class:`~zoolet.server.testing.cluster.cluster.Cluster`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zoolet.server.testing.cluster.cluster import Cluster
from zoolet.server.testing.cluster.copying import ClusterSnapshot
from zoolet.server.testing.control.control import Command, Control, Parameter
from zoolet.server.testing.control.values import UsageError
from zoolet.server.testing.run.arguments import MAX_SECONDS

CLUSTER_COMMANDS: Final[dict[str, Command]] = {}
"""The commands by name."""


def _index(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{value!r} is not the index of a member, counted from 0")
    return value


def _groups(value: Any) -> list[list[int]]:
    if not isinstance(value, list) or not all(isinstance(group, list) for group in value):
        raise UsageError(f"{value!r} is not a list of lists of members, such as [[0], [1, 2]]")
    return [[_index(member) for member in group] for group in value]


def _seconds(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or value < 0:
        raise UsageError(f"{value!r} is not a number of seconds, 0 or more")
    return float(value)


def _role(value: Any) -> str:
    if value not in ("participant", "observer"):
        raise UsageError(f"{value!r} is neither 'participant' nor 'observer'")
    return str(value)


_MEMBER: Final = Parameter("whole number", "which one, counted from 0", _index)


def _command(**parameters: Parameter) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        summary, _, _ = function.__doc__.partition("\n")
        CLUSTER_COMMANDS[function.__name__] = Command(summary, parameters, function, False)
        return function

    return register


def _cluster(control: Control) -> Cluster:
    assert isinstance(control.server, Cluster)
    return control.server


def members_of(cluster: Cluster) -> list[dict[str, object]]:
    """Return the members of a cluster, for JSON."""
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
        for member in cluster
    ]


@_command()
def members(control: Control) -> object:
    """Return the members: their addresses, roles, what each is at present, and how far it is behind."""
    return members_of(_cluster(control))


@_command(member=_MEMBER)
def stop_member(control: Control, member: int) -> None:
    """Stop a member; its data stays."""
    _cluster(control)[member].stop()


@_command(member=_MEMBER)
def kill_member(control: Control, member: int) -> None:
    """Kill a member: connections are reset."""
    _cluster(control)[member].kill()


@_command(member=_MEMBER)
def start_member(control: Control, member: int) -> None:
    """Start a member that was stopped or killed."""
    _cluster(control)[member].start()


@_command(member=_MEMBER)
def pause_member(control: Control, member: int) -> None:
    """Pause a member, as SIGSTOP does, until resume_member."""
    _cluster(control)[member].pause()


@_command(member=_MEMBER)
def resume_member(control: Control, member: int) -> None:
    """End the pause of a member."""
    _cluster(control)[member].resume()


@_command()
def stop_leader(control: Control) -> object:
    """Stop the leader, and return its index."""
    return _cluster(control).stop_leader().index


@_command()
def kill_leader(control: Control) -> object:
    """Kill the leader, and return its index."""
    return _cluster(control).kill_leader().index


@_command(member=_MEMBER)
def transfer_leadership(control: Control, member: int) -> None:
    """Make a member the leader."""
    _cluster(control).transfer_leadership(member)


@_command(
    groups=Parameter("list of lists", "members that reach each other", _groups),
    noticed_after=Parameter("number", "seconds until they notice", _seconds, 0.0),
)
def partition(control: Control, groups: list[list[int]], noticed_after: float) -> None:
    """Divide the network between members; heal ends that."""
    _cluster(control).partition(*groups, noticed_after=noticed_after)


@_command(member=_MEMBER, seconds=Parameter("number", "by how much; 0 to catch up", _seconds))
def lag(control: Control, member: int, seconds: float) -> None:
    """Make a member late."""
    _cluster(control).lag(member, seconds)


@_command()
def rolling_restart(control: Control) -> None:
    """Stop and start each member, the leader last."""
    _cluster(control).rolling_restart()


@_command(role=Parameter("text", "participant or observer", _role, "participant"))
def add_member(control: Control, role: Any) -> object:
    """Add a member, and return its index."""
    return _cluster(control).add(role=role).index


@_command(member=_MEMBER)
def remove_member(control: Control, member: int) -> None:
    """Remove a member for good."""
    _cluster(control).remove(member)


@_command(snapshot=Parameter("whole number", "its number", _index))
def restore(control: Control, snapshot: int) -> None:
    """Restore the tree of a snapshot."""
    _cluster(control).restore(control.find(snapshot, ClusterSnapshot))
