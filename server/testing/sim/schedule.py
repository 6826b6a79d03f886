"""Schedules: in which order messages arrive, and what is lost, decided by a seed and reduced to what matters.

A run has a baseline, in which each message takes a millisecond and nothing is lost, and *deviations* from it: a message
is late, a request or a reply is lost, a session expires. Whether there is one is decided for each message by the seed
and the message's key (its connection, its direction and its number there), so that the decisions for the others stay
when one is taken back. That is how a failing schedule is reduced: deviations are taken back for as long as the run
still fails, and those that are left are the story.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from random import Random
from typing import Final, NamedTuple

BASELINE: Final = 0.001
"""Seconds that a message takes when it is not late."""
RATES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
"""The probabilities of lateness, of which each seed has one."""
LATEST: Final = (0.005, 0.05, 0.5)
"""The most seconds by which messages are late, of which each seed has one."""
MAX_RUNS: Final = 200
"""How often a failing schedule is run to reduce it."""


class Deviation(NamedTuple):
    """A deviation of a schedule from the baseline.

    Args:
        time: When, in virtual seconds.
        connection: The number of the connection, counted from 1; 0 if the session is known.
        session: The id of the session; 0 if the connection is known.
        what: What it is, without the client: ``a message to the server is 50 ms late``.
    """

    time: float
    connection: int
    session: int
    what: str


class Schedule:
    """The decisions of one run.

    Args:
        seed: The seed.
        probabilities: The probability of each kind of trouble, by its name.
        kept: The keys of the deviations that are allowed; None for all.
        now: Returns the virtual time.

    Attributes:
        deviations: What deviated in this run, by key.
    """

    def __init__(
        self,
        seed: int,
        probabilities: dict[str, float],
        kept: Collection[Hashable] | None,
        now: Callable[[], float],
    ) -> None:
        self.deviations: dict[Hashable, Deviation] = {}
        self._seed = seed
        self._probabilities = probabilities
        self._kept = kept
        self._now = now
        settings = Random(f"schedule {seed}")
        self._rate, self._latest = settings.choice(RATES), settings.choice(LATEST)
        self._counts: dict[Hashable, int] = {}

    def latency(self, connection: int, to_server: bool) -> float:
        """Return how long the next message on a connection takes in a direction, in seconds."""
        key, rng = self._next("late", connection, to_server)
        if rng.random() >= self._rate or not self._may(key):
            return BASELINE
        late = rng.uniform(BASELINE, self._latest)
        direction = "to the server" if to_server else "from the server"
        what = f"a message {direction} is {late * 1000:.0f} ms late"
        self.deviations[key] = Deviation(self._now(), connection, 0, what)
        return BASELINE + late

    def happens(self, kind: str, session: int, what: str) -> bool:
        """Return whether trouble of a kind happens to the next request of a session; *what* says which."""
        chosen = self.chosen(kind, session)
        if chosen is not None:
            self.note(chosen[0], session, what)
        return chosen is not None

    def can_happen(self, kind: str) -> bool:
        """Return whether there is trouble of a kind at all."""
        return self._probabilities.get(kind, 0.0) > 0

    def chosen(self, kind: str, who: Hashable, probability: float | None = None) -> tuple[Hashable, Random] | None:
        """Return the key and the randomness of trouble of a kind that happens to the next one of somebody's, if it
        does; :meth:`note` says what it is.

        Args:
            kind: The kind.
            who: Whose turn it is.
            probability: That of the kind; by default the one that the schedule was made with, or 0.
        """
        if probability is None:
            probability = self._probabilities.get(kind, 0.0)
        if probability <= 0:
            return None
        key, rng = self._next(kind, who)
        return (key, rng) if rng.random() < probability and self._may(key) else None

    def note(self, key: Hashable, session: int, what: str, after: float = 0.0) -> None:
        """Note what deviates, so many seconds from now."""
        self.deviations[key] = Deviation(self._now() + after, 0, session, what)

    def _next(self, *about: Hashable) -> tuple[Hashable, Random]:
        number = self._counts[about] = self._counts.get(about, 0) + 1
        key = (*about, number)
        return key, Random(f"{self._seed} {key}")

    def _may(self, key: Hashable) -> bool:
        return self._kept is None or key in self._kept


def reduce(keys: list[Hashable], still_fails: Callable[[Collection[Hashable]], bool]) -> list[Hashable]:
    """Return a small part of the deviations with which a run still fails.

    Args:
        keys: The deviations of a run that has failed.
        still_fails: Runs with only these, and returns whether it fails in the same way.

    Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (ddmin).
    """
    if keys and still_fails([]):  # the commonest case: it fails whatever is late
        return []
    runs = 1
    pieces = 2
    while keys and runs < MAX_RUNS:
        size = -(-len(keys) // pieces)
        for start in range(0, len(keys), size):
            rest = keys[:start] + keys[start + size :]
            runs += 1
            if still_fails(rest):
                keys, pieces = rest, max(pieces - 1, 2)
                break
            if runs == MAX_RUNS:
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(keys))
    return keys
