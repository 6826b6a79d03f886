"""Where the time comes from."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Two times in milliseconds: the wall clock, which people set, and a monotonic one."""

    def read(self) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds on the monotonic clock."""
        ...

    def forgive(self, milliseconds: int) -> None:
        """Subtract the time during which the server stood still from the monotonic clock, if that has counted it."""
        ...


class RealClock:
    """The machine's clocks; the monotonic one counts from some fixed moment, and may stop while the machine sleeps.

    The monotonic clock counts the time during which the server could serve: what it stood still for is taken out, so
    that no session ends because of it.
    """

    def __init__(self) -> None:
        self._stood_still = 0

    def read(
        self, now: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds on the monotonic clock; called once a batch of
        requests.
        """
        return now() // 1_000_000, monotonic() // 1_000_000 - self._stood_still

    def forgive(self, milliseconds: int) -> None:
        """Subtract the time during which the server stood still from the monotonic clock."""
        self._stood_still += milliseconds
