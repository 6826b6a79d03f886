"""A clock that stands still until it is told."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

EPOCH: Final = 1_600_000_000_000
"""When a seeded manual clock starts: 2020-09-13 12:26:40 UTC, in milliseconds."""


class ManualClock:
    """Both of a server's times, moved together by hand; and what is to be done at some moment.

    Args:
        now: Where it starts, in milliseconds since the epoch. Its steady time starts at 0.
    """

    def __init__(self, now: int = EPOCH) -> None:
        self._epoch = now
        self.uptime = 0
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._made = 0

    def read(self) -> tuple[int, int]:
        """Give milliseconds since the epoch, and milliseconds since the clock was made."""
        return self._epoch + self.uptime, self.uptime

    def forgive(self, milliseconds: int) -> None:
        """Change nothing: only :meth:`move_to` moves this clock."""

    def later(self, seconds: float, do: Callable[[], object]) -> None:
        """Call *do* once the clock was moved so far."""
        self._made += 1
        heapq.heappush(self._timers, (self.uptime + round(seconds * 1000), self._made, do))

    def next(self) -> int | None:
        """Give the moment at which there is something to call, in milliseconds of its steady time."""
        return self._timers[0][0] if self._timers else None

    def move_to(self, uptime: int) -> None:
        """Move on, and call what is due by then."""
        self.uptime = max(self.uptime, uptime)
        while self._timers and self._timers[0][0] <= self.uptime:
            heapq.heappop(self._timers)[2]()
