"""Where the time comes from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two times in milliseconds: one that people set, and one that nobody sets."""

    def read(self) -> tuple[int, int]:
        """Give milliseconds since the epoch, and milliseconds on a steady clock."""
        ...


class RealClock:
    """The machine's clocks; the steady one counts from some fixed moment, and may stop while the machine sleeps."""

    def read(
        self, now: Callable[[], int] = time.time_ns, uptime: Callable[[], int] = time.monotonic_ns
    ) -> tuple[int, int]:
        """Give milliseconds since the epoch, and milliseconds on a steady clock; called once a batch of requests."""
        return now() // 1_000_000, uptime() // 1_000_000
