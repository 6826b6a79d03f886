"""Real time for the threads of test servers, while a test freezes or replaces the functions of the module ``time``.

freezegun replaces attributes of modules, and a monkeypatch replaces attributes of ``time``. Neither affects functions
that are attributes of an object, nor ``clock_gettime``. time-machine changes the wall clock inside these functions.
Therefore the wall clock of this module is its value at the import plus the monotonic time since then.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from functools import partial
from typing import Any, Final

from ...server.net.clock import RealClock


class _RealTime:
    """The machine's clocks.

    Attributes:
        started_ns: The wall-clock time when the monotonic clock was 0, in nanoseconds since the epoch.
    """

    def __init__(self) -> None:
        self.monotonic_ns = partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC)
        machine: Any = sys.modules.get("time_machine")
        clocks = machine.escape_hatch.time if machine and machine.escape_hatch.is_travelling() else time
        self.started_ns: int = clocks.clock_gettime_ns(time.CLOCK_REALTIME) - self.monotonic_ns()

    def seconds(self) -> float:
        """Return the monotonic time in seconds."""
        return self.monotonic_ns() / 1e9

    def now_ns(self) -> int:
        """Return the wall-clock time in nanoseconds since the epoch."""
        return self.started_ns + self.monotonic_ns()

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch."""
        return self.now_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block the thread for some seconds, although many tests replace ``time.sleep``."""
        threading.Event().wait(seconds)


REAL: Final = _RealTime()
"""The machine's clocks, as methods of an object, because freezegun replaces functions of modules."""


class RealTimeClock(RealClock):
    """The real clock of a test server, which tests cannot freeze."""

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time, in milliseconds."""
        monotonic_ns = REAL.monotonic_ns()
        return (REAL.started_ns + monotonic_ns) // 1_000_000, monotonic_ns // 1_000_000 - self._paused_ms


class RealTimeLoop(asyncio.SelectorEventLoop):
    """The event loop of a test server's thread, whose time tests cannot freeze."""

    def time(self) -> float:
        """Return the monotonic time in seconds."""
        return REAL.seconds()
