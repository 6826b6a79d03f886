"""Network partitions between members, and whether the members have noticed them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from .replica import Replica


class MemberNetwork:
    """The links between members, as groups. Members in no group form one more group."""

    def __init__(self) -> None:
        self._group_of: Mapping[int, int] = {}
        self._noticed: Mapping[int, int] = {}

    def reaches(self, one: Replica, other: Replica) -> bool:
        """Return whether messages from one member currently arrive at the other."""
        return _are_running(one, other) and _are_together(self._group_of, one, other)

    def seems_to_reach(self, one: Replica, other: Replica) -> bool:
        """Return whether two members still act as if they were connected."""
        return _are_running(one, other) and _are_together(self._noticed, one, other)

    def partition(self, groups: Collection[Collection[int]]) -> None:
        """Divide the network into groups. The members notice this only at :meth:`notice`."""
        self._group_of = {number: place for place, group in enumerate(groups, 1) for number in group}

    def notice(self) -> None:
        """Make all members notice the partition."""
        self._noticed = self._group_of

    def groups(self, numbers: Iterable[int]) -> list[list[int]]:
        """Return the member numbers in groups that reach each other."""
        by_group: dict[int, list[int]] = {}
        for number in numbers:
            by_group.setdefault(self._group_of.get(number, 0), []).append(number)
        return list(by_group.values())

    def heal(self) -> None:
        """Reconnect all members. They notice this immediately."""
        self.partition(())
        self.notice()


def _are_running(one: Replica, other: Replica) -> bool:
    return one.is_up and other.is_up and not one.is_paused and not other.is_paused


def _are_together(group_of: Mapping[int, int], one: Replica, other: Replica) -> bool:
    return group_of.get(one.number, 0) == group_of.get(other.number, 0)
