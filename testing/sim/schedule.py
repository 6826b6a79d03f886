"""The delays and faults of a run, determined by a seed, and the reduction of a failing run to the relevant ones.

In the baseline of a run, each message takes a millisecond and nothing is lost. A run *deviates* from it: messages are
late, requests or replies are lost, sessions expire. Each deviation depends only on the seed and the key of its message:
the connection, the direction and the number of the message there. So removing one deviation does not change the others.

A failing schedule is reduced by removing deviations as long as the run still fails. Its story shows the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from random import Random
from typing import Final, NamedTuple

BASELINE_LATENCY_S: Final = 0.001
"""Latency, in seconds, of a message that is not late."""
LATE_PROBABILITIES: Final = (0.02, 0.05, 0.1, 0.2, 0.4)
"""Probabilities of a late message. Each seed selects one probability."""
MAX_DELAYS_S: Final = (0.005, 0.05, 0.5)
"""Maximum delays of late messages, in seconds. Each seed selects one delay."""
MAX_REDUCTION_RUNS: Final = 200
"""Maximum number of runs to reduce a failing schedule."""


class Deviation(NamedTuple):
    """A deviation of a schedule from the baseline.

    Args:
        time: The time in virtual seconds.
        connection: The number of the connection, starting at 1, or 0 if the session is known.
        session: The id of the session, or 0 if the connection is known.
        description: A description without the client, such as ``a message to the server is 50 ms late``.
    """

    time: float
    connection: int
    session: int
    description: str


class Schedule:
    """The decisions of one run.

    Args:
        seed: The seed.
        probabilities: The probability of each kind of chaos, by name.
        kept: The keys of the deviations to allow, or None to allow all.
        now: Returns the virtual time.

    Attributes:
        deviations: The deviations of this run, by key.
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
        self._late_probability, self._max_delay_s = settings.choice(LATE_PROBABILITIES), settings.choice(MAX_DELAYS_S)
        self._counts: dict[Hashable, int] = {}

    def latency(self, connection: int, to_server: bool) -> float:
        """Return the latency of the next message on a connection in one direction, in seconds."""
        key, rng = self._next_decision("late", connection, to_server)
        if rng.random() >= self._late_probability or not self._is_allowed(key):
            return BASELINE_LATENCY_S
        late = rng.uniform(BASELINE_LATENCY_S, self._max_delay_s)
        direction = "to the server" if to_server else "from the server"
        description = f"a message {direction} is {late * 1000:.0f} ms late"
        self.deviations[key] = Deviation(self._now(), connection, 0, description)
        return BASELINE_LATENCY_S + late

    def happens(self, kind: str, session: int, description: str) -> bool:
        """Return whether this kind of chaos happens to a session's next request. If so, note it as *description*."""
        chosen = self.choose(kind, session)
        if chosen is not None:
            self.note(chosen[0], session, description)
        return chosen is not None

    def can_happen(self, kind: str) -> bool:
        """Return whether this kind of chaos has a probability above 0."""
        return self._probabilities.get(kind, 0.0) > 0

    def choose(self, kind: str, subject: Hashable, probability: float | None = None) -> tuple[Hashable, Random] | None:
        """Return the key and the random generator of the next deviation of this kind, or None if there is none.

        Pass the key to :meth:`note` to describe the deviation.

        Args:
            kind: The kind of chaos.
            subject: The session or other subject. Decisions for different subjects are independent.
            probability: The probability; by default the schedule's probability of this kind, or 0.
        """
        if probability is None:
            probability = self._probabilities.get(kind, 0.0)
        if probability <= 0:
            return None
        key, rng = self._next_decision(kind, subject)
        return (key, rng) if rng.random() < probability and self._is_allowed(key) else None

    def note(self, key: Hashable, session: int, description: str, after: float = 0.0) -> None:
        """Record a deviation that happens *after* seconds from the current time."""
        self.deviations[key] = Deviation(self._now() + after, 0, session, description)

    def _next_decision(self, *about: Hashable) -> tuple[Hashable, Random]:
        number = self._counts[about] = self._counts.get(about, 0) + 1
        key = (*about, number)
        return key, Random(f"{self._seed} {key}")

    def _is_allowed(self, key: Hashable) -> bool:
        return self._kept is None or key in self._kept


def reduce(keys: list[Hashable], still_fails: Callable[[Collection[Hashable]], bool]) -> list[Hashable]:
    """Return a small subset of deviations that still makes the run fail.

    Args:
        keys: The deviations of a failed run.
        still_fails: Function that runs the test with some deviations, and returns whether it fails in the same way.

    Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (ddmin).
    """
    if keys and still_fails([]):  # many failures need no deviation
        return []
    runs = 1
    pieces = 2
    while keys and runs < MAX_REDUCTION_RUNS:
        size = -(-len(keys) // pieces)
        for start in range(0, len(keys), size):
            rest = keys[:start] + keys[start + size :]
            runs += 1
            if still_fails(rest):
                keys, pieces = rest, max(pieces - 1, 2)
                break
            if runs == MAX_REDUCTION_RUNS:
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(keys))
    return keys
