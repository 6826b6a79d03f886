"""The sources of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two times in milliseconds: the wall clock, which may be set, and a monotonic clock."""

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time."""
        ...

    def forgive(self, milliseconds: int) -> None:
        """Subtract time for which the server was paused from the monotonic clock, if that includes it."""
        ...


class RealClock:
    """The machine's clocks; the monotonic one counts from an unspecified moment, and may stop while the machine sleeps.

    Its monotonic time is the time for which the server could serve: pauses are subtracted, so that no session expires
    because of one.
    """

    def __init__(self) -> None:
        self._paused_ms = 0

    def read(
        self, now: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time; called once a batch of requests."""
        return now() // 1_000_000, monotonic() // 1_000_000 - self._paused_ms

    def forgive(self, milliseconds: int) -> None:
        """Subtract time for which the server was paused from the monotonic clock."""
        self._paused_ms += milliseconds
