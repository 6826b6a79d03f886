"""Votes, quorums and elections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from .replica import MemberStatus, Replica


class Voting:
    """The votes of the members.

    Args:
        replicas: The members by number, a mapping that changes with the cluster.
        reaches: Function that returns whether one member reaches a second member.

    Attributes:
        candidate: Number of the member that wins the next election if no log is longer than its own, or None.
        absent: Number of configured voters that are no longer members.
    """

    def __init__(self, replicas: Mapping[int, Replica], reaches: Callable[[Replica, Replica], bool]) -> None:
        self._replicas = replicas
        self._reaches = reaches
        self.candidate: int | None = None
        self.absent = 0

    def voters(self) -> list[Replica]:
        """Return the members that vote."""
        return [each for each in self._replicas.values() if each.votes]

    @property
    def count(self) -> int:
        """The number of voters according to the configuration."""
        return len(self.voters()) + self.absent

    def is_quorum(self, members: Iterable[Replica]) -> bool:
        """Return whether *members* include most of the voters."""
        return 2 * sum(each.votes for each in members) > self.count

    def has_quorum(self, one: Replica) -> bool:
        """Return whether a member, together with the members that it reaches, forms a quorum."""
        return self.is_quorum(each for each in self.voters() if each is one or self._reaches(one, each))

    def would_have_quorum(self, leader: Replica, numbers: Collection[int]) -> bool:
        """Return whether a leader reaches most of the members with these numbers."""
        joined = [self._replicas[number] for number in numbers if number in self._replicas]
        return 2 * sum(each is leader or self._reaches(leader, each) for each in joined) > len(numbers)

    def use_config(self, voters: Collection[int], observers: Collection[int]) -> None:
        """Make the members with these numbers the voters and observers. A voter in neither list remains a follower."""
        for number, each in self._replicas.items():
            each.votes = number in voters
            each.observes = number in observers or (each.observes and not each.votes)
            if each.status in (MemberStatus.FOLLOWING, MemberStatus.OBSERVING):
                each.status = MemberStatus.OBSERVING if each.observes else MemberStatus.FOLLOWING
        self.absent = len(set(voters) - self._replicas.keys())

    def winner(self) -> Replica | None:
        """Return the member that a quorum elects: the member with the longest log. None if no quorum can elect it."""
        able = [each for each in self.voters() if each.is_up and not each.is_paused and self.has_quorum(each)]
        if not able:
            return None
        best = max(able, key=lambda each: (each.epoch, each.logged, each.number))
        named = self._replicas.get(self.candidate or 0)
        if named in able and (named.epoch, named.logged) == (best.epoch, best.logged):
            return named
        return best
