"""For how long the machine was suspended: time that the monotonic clock does not count, and the server does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final

_NOTICEABLE: Final = 0.01
"""Seconds by which two clocks must have moved apart; less is the time between reading one and the other."""


def _clocks() -> tuple[int, int] | None:
    """Return the clock that goes on during a suspension, and the one that stands still; None if there are no such."""
    if sys.platform == "linux":
        return time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    if sys.platform == "darwin":
        return time.CLOCK_MONOTONIC, time.CLOCK_UPTIME_RAW
    return None


class SteadyClock:
    """The loop's time, plus the seconds for which the machine was suspended since this was made."""

    def __init__(self) -> None:
        self._suspensions = Suspensions()

    def now(self) -> float:
        """Return the time, in seconds."""
        return asyncio.get_running_loop().time() + self._suspensions.total()


class Suspensions:
    """Counts the seconds for which the machine was suspended since this was made.

    Args:
        clocks: The clock that goes on and the one that stands still; by default those of the platform. On a platform
            without such clocks the count stays 0.
        read: Reads a clock.
    """

    def __init__(
        self, clocks: tuple[int, int] | None = _clocks(), read: Callable[[int], float] = time.clock_gettime
    ) -> None:
        self._clocks = clocks
        self._read = read
        self.known = 0.0
        """The seconds, when they were last looked at."""
        self._apart = 0.0 if clocks is None else read(clocks[0]) - read(clocks[1])

    def total(self) -> float:
        """Return the seconds; it is the same number until there is another suspension."""
        if self._clocks is None:
            return 0.0
        going, standing = self._clocks
        apart = self._read(going) - self._read(standing)  # no call of a function: it is asked twice for each request
        if apart - self._apart > _NOTICEABLE:
            self.known += apart - self._apart
            self._apart = apart
        return self.known
