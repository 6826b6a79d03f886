"""A clock that stands still until it is told."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

MANUAL_CLOCK_START: Final = 1_600_000_000_000
"""When a seeded manual clock starts: 2020-09-13 12:26:40 UTC, in milliseconds."""


class ManualClock:
    """Both of a server's times, moved together by hand; and what is to be done at some moment.

    Args:
        now: Where it starts, in milliseconds since the epoch. Its steady time starts at 0.
    """

    def __init__(self, now: int = MANUAL_CLOCK_START) -> None:
        self._epoch = now
        self.monotonic_ms = 0
        self._timers: list[tuple[int, int, Callable[[], object]]] = []
        self._made = 0

    def read(self) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds since the clock was made."""
        return self._epoch + self.monotonic_ms, self.monotonic_ms

    def forgive(self, milliseconds: int) -> None:
        """Change nothing: only :meth:`move_to` moves this clock."""

    def call_later(self, seconds: float, do: Callable[[], object]) -> None:
        """Call *do* once the clock was moved so far."""
        self._made += 1
        heapq.heappush(self._timers, (self.monotonic_ms + round(seconds * 1000), self._made, do))

    def next(self) -> int | None:
        """Return the moment at which there is something to call, in milliseconds of its steady time."""
        return self._timers[0][0] if self._timers else None

    def move_to(self, monotonic_ms: int) -> None:
        """Move on, and call what is due by then."""
        self.monotonic_ms = max(self.monotonic_ms, monotonic_ms)
        while self._timers and self._timers[0][0] <= self.monotonic_ms:
            heapq.heappop(self._timers)[2]()
