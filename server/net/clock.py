"""The clocks of a server: the wall clock, and a monotonic clock that excludes pauses of the process."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times in milliseconds: the wall clock, which may be set, and a monotonic clock."""

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time."""
        ...

    def subtract_pause(self, milliseconds: int) -> None:
        """Subtract a pause of the server from the monotonic clock, if the clock includes the pause."""
        ...


class RealClock:
    """The machine's clocks. The monotonic clock starts at an unspecified time, and may stop while the machine sleeps.

    The monotonic time includes only the time when the server could serve requests. Pauses are subtracted, because no
    session may expire due to a pause.
    """

    # The functions are attributes, because tests that freeze time replace them in the module, but not here.
    _now_ns = staticmethod(time.time_ns)
    _monotonic_ns = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self._paused_ms = 0

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time. This is called for each batch."""
        return self._now_ns() // 1_000_000, self._monotonic_ns() // 1_000_000 - self._paused_ms

    def subtract_pause(self, milliseconds: int) -> None:
        """Subtract a pause of the server from the monotonic clock."""
        self._paused_ms += milliseconds
