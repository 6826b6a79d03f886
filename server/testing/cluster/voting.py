"""Votes, quorums and elections."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from zoolet.server.testing.cluster.replica import Replica, Status


class Voting:
    """The votes of the members.

    Args:
        replicas: The members by number, as they are at present.
        reaches: Returns whether a member reaches another.

    Attributes:
        candidate: The number of the member that is to win the next election, if its log is as long as any; or None.
        absent: How many voters of the configuration are no members any more.
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
        """How many voters there are by the configuration."""
        return len(self.voters()) + self.absent

    def is_quorum(self, members: Iterable[Replica]) -> bool:
        """Return whether most of the voters are among some members."""
        return 2 * sum(each.votes for each in members) > self.count

    def has_quorum(self, one: Replica) -> bool:
        """Return whether a member and those that it reaches are most of the voters."""
        return self.is_quorum(each for each in self.voters() if each is one or self._reaches(one, each))

    def would_have_quorum(self, leader: Replica, numbers: Collection[int]) -> bool:
        """Return whether a leader reaches most of the members with these numbers."""
        joined = [self._replicas[number] for number in numbers if number in self._replicas]
        return 2 * sum(each is leader or self._reaches(leader, each) for each in joined) > len(numbers)

    def use_config(self, voters: Collection[int]) -> None:
        """Make the members with these numbers the voters."""
        for number, each in self._replicas.items():
            each.votes = number in voters
            if each.status in (Status.FOLLOWING, Status.OBSERVING):
                each.status = Status.FOLLOWING if each.votes else Status.OBSERVING
        self.absent = len(set(voters) - self._replicas.keys())

    def winner(self) -> Replica | None:
        """Return the member that a quorum elects: the one with the longest log; None if there is no quorum."""
        able = [each for each in self.voters() if each.is_up and not each.is_paused and self.has_quorum(each)]
        if not able:
            return None
        best = max(able, key=lambda each: (each.epoch, each.logged, each.number))
        named = self._replicas.get(self.candidate or 0)
        if named in able and (named.epoch, named.logged) == (best.epoch, best.logged):
            return named
        return best
