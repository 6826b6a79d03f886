"""Time that the machine spent suspended: the monotonic clock does not count it, but the server does."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Final

_MIN_SUSPENSION_SECONDS: Final = 0.01
"""Minimum difference in seconds between two clocks that counts as a suspension. A smaller difference is the time
between two reads.
"""


def _clocks() -> tuple[int, int] | None:
    """Return the clock that advances during a suspension, and the clock that stops. None if the platform lacks them."""
    if sys.platform == "linux":
        return time.CLOCK_BOOTTIME, time.CLOCK_MONOTONIC
    if sys.platform == "darwin":
        return time.CLOCK_MONOTONIC, time.CLOCK_UPTIME_RAW
    return None


class SteadyClock:
    """A clock that shows the loop's time plus the seconds that the machine spent suspended since its creation."""

    def __init__(self) -> None:
        self._suspensions = Suspensions()

    def now(self) -> float:
        """Return the time, in seconds."""
        return asyncio.get_running_loop().time() + self._suspensions.total()


class Suspensions:
    """A counter of the seconds that the machine spent suspended since this object was created.

    Args:
        clocks: The clock that advances during a suspension and the one that does not; by default the platform's. On a
            platform without such clocks the count stays 0.
        read: Function that reads a clock.
    """

    def __init__(
        self, clocks: tuple[int, int] | None = _clocks(), read: Callable[[int], float] = time.clock_gettime
    ) -> None:
        self._clocks = clocks
        self._read = read
        self.known = 0.0
        """The seconds counted by the last call of :meth:`total`."""
        self._clock_difference = 0.0 if clocks is None else read(clocks[0]) - read(clocks[1])

    def total(self) -> float:
        """Return the number of seconds spent suspended. It changes only after a further suspension."""
        if self._clocks is None:
            return 0.0
        going, standing = self._clocks
        apart = self._read(going) - self._read(standing)  # inlined, because every request reads the clocks
        if apart - self._clock_difference > _MIN_SUSPENSION_SECONDS:
            self.known += apart - self._clock_difference
            self._clock_difference = apart
        return self.known
