"""Delays between attempts. This module only computes the delays; the callers sleep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays that grow by a factor up to a limit, each shortened or lengthened at random.

    Args:
        first: Seconds before the second attempt; 0 for no delay.
        factor: Growth factor of the delays, 1 or more.
        longest: Maximum delay in seconds, before jitter is added.
        jitter: Maximum random change of a delay, in both directions, as a fraction from 0 to 1.
        tries: Number of attempts in total; None for no limit.

    Raises:
        ValueError: A number is out of its range.
    """

    first: float = 0.05
    factor: float = 2.0
    longest: float = 5.0
    jitter: float = 0.4
    tries: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("first", 0), ("longest", 0), ("factor", 1)):
            if not (value := getattr(self, name)) >= least:  # also rejects a NaN
                raise ValueError(f"{name} must be {least} or more, not {value!r}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, not {self.jitter!r}")
        if self.tries is not None and self.tries < 1:
            raise ValueError(f"tries must be 1 or more, not {self.tries!r}")

    def delays(self, rng: Random) -> Iterator[float]:
        """Yield the delays in seconds before the second attempt, the third and so on, until *tries* is reached."""
        delay, left = min(self.first, self.longest), self.tries
        while left is None or left > 1:
            yield delay * rng.uniform(1 - self.jitter, 1 + self.jitter)
            delay = min(delay * self.factor, self.longest)
            left = None if left is None else left - 1


REFUSAL_BACKOFF: Final = Backoff()
"""Delays between attempts while a server refuses a request: from 0.05 to 5 seconds."""
