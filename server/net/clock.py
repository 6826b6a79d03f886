"""Where the time comes from."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times in milliseconds: one that people set, and one that nobody sets."""

    def now(self) -> int:
        """Give milliseconds since the epoch."""
        ...

    def uptime(self) -> int:
        """Give milliseconds on a steady clock."""
        ...


class RealClock:
    """The machine's clocks."""

    def now(self) -> int:
        """Give milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def uptime(self) -> int:
        """Give milliseconds since some fixed moment; sleeping machines may not count."""
        return time.monotonic_ns() // 1_000_000
