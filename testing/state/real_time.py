"""Real time for the threads of test servers, while a test freezes or replaces the functions of the module ``time``.

freezegun replaces attributes of modules, and a monkeypatch replaces attributes of ``time``. Neither affects functions
that an object has stored, nor ``clock_gettime``. time-machine changes the wall clock inside these functions. Therefore
the wall clock of this module is its value at the import plus the monotonic time since then.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from ...server.net.clock import RealClock


class _RealTime:
    """The machine's clocks, as they are when this module is imported."""

    def __init__(self) -> None:
        self.monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
        self._started_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - self.monotonic_ns()

    def seconds(self) -> float:
        """Return the monotonic time in seconds."""
        return self.monotonic_ns() / 1e9

    def now_ns(self) -> int:
        """Return the wall-clock time in nanoseconds since the epoch."""
        return self._started_ns + self.monotonic_ns()

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch."""
        return self.now_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block the thread for some seconds. ``time.sleep`` is what tests replace most often."""
        threading.Event().wait(seconds)


REAL: Final = _RealTime()
"""The clocks. They are methods of an object, because freezegun replaces functions of modules."""


class RealTimeClock(RealClock):
    """The real clock of a test server."""

    def read(
        self, now: Callable[[], int] = REAL.now_ns, monotonic: Callable[[], int] = REAL.monotonic_ns
    ) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time, in milliseconds."""
        return super().read(now, monotonic)


class RealTimeLoop(asyncio.SelectorEventLoop):
    """The event loop of a test server's thread."""

    def time(self) -> float:
        """Return the monotonic time in seconds."""
        return REAL.seconds()
