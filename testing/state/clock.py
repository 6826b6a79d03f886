"""The manual clock, which only a test advances, and the expiry of sessions and nodes while it advances."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ...server.net.clock import Clock
from ..signatures import CallLater, Timer

MANUAL_CLOCK_START: Final = 1_600_000_000_000
"""The start of a seeded manual clock: 2020-09-13 12:26:40 UTC, in milliseconds since the epoch."""


@dataclass(slots=True)
class _ManualTimer:
    """A timer of a manual clock."""

    callback: Callable[[], object] | None

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """A wall clock and a monotonic clock that are moved together by hand, with timers.

    Args:
        now: Start of the wall clock, in milliseconds since the epoch. The monotonic clock starts at 0.
    """

    def __init__(self, now: int = MANUAL_CLOCK_START) -> None:
        self._epoch = now
        self.monotonic_ms = 0
        self._timers: list[tuple[int, int, _ManualTimer]] = []
        self._timers_made = 0

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the time since the clock was created, in milliseconds."""
        return self._epoch + self.monotonic_ms, self.monotonic_ms

    def subtract_pause(self, milliseconds: int) -> None:
        """Do nothing, because only :meth:`move_to` moves this clock."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call *callback* when the clock has been moved by *seconds*."""
        self._timers_made += 1
        timer = _ManualTimer(callback)
        heapq.heappush(self._timers, (self.monotonic_ms + round(seconds * 1000), self._timers_made, timer))
        return timer

    def next_timer(self) -> int | None:
        """Return the time of the next timer, in monotonic milliseconds, or None if no timer is pending."""
        return self._timers[0][0] if self._timers else None

    def move_to(self, monotonic_ms: int) -> None:
        """Move the clock to a time, and call the timers that are due."""
        self.monotonic_ms = max(self.monotonic_ms, monotonic_ms)
        while self._timers and self._timers[0][0] <= self.monotonic_ms:
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()


class SkewedClock:
    """A clock whose wall clock can be set.

    Args:
        inner: The underlying clock.

    Attributes:
        inner: The underlying clock.
        skew_ms: Number of milliseconds that the wall clock is ahead of *inner*.
    """

    def __init__(self, inner: Clock) -> None:
        self.inner = inner
        self.skew_ms = 0

    @property
    def call_later(self) -> CallLater:
        """The function that starts a timer: in a manual clock, or else in the running loop."""
        return self.inner.call_later if isinstance(self.inner, ManualClock) else asyncio.get_running_loop().call_later

    def read(self) -> tuple[int, int]:
        """Return the wall-clock time since the epoch, and the monotonic time, in milliseconds."""
        now, monotonic_ms = self.inner.read()
        return now + self.skew_ms, monotonic_ms

    def subtract_pause(self, milliseconds: int) -> None:
        """Subtract the duration of a pause of the server from the monotonic clock, if the clock includes it."""
        self.inner.subtract_pause(milliseconds)


class TimedEngine(Protocol):
    """One or several engines with work that becomes due: sessions and nodes that expire."""

    def next_due(self) -> int | None:
        """Return the first time when something becomes due, in monotonic milliseconds, or None for never."""
        ...

    def set_time(self, now: int, monotonic_ms: int) -> None:
        """Set the time."""
        ...

    def tick(self) -> object:
        """Do all work that is due, such as the expiry of sessions."""
        ...

    def reap(self) -> None:
        """Delete the nodes that are due."""
        ...


def advance(engine: TimedEngine, skewed: SkewedClock, seconds: float) -> None:
    """Advance a clock, and expire sessions and nodes that are due on the way, each at its own time.

    Raises:
        ValueError: The clock is not a manual one, or the seconds are negative.
    """
    clock = skewed.inner
    if not isinstance(clock, ManualClock):
        raise ValueError("advance needs a manual clock: Server(clock='manual') or 'zoolet run --admin --clock manual'")
    if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
        raise ValueError(f"advance: seconds must be 0 or more, not {seconds!r}")
    target = clock.monotonic_ms + round(seconds * 1000)
    while True:
        moments = [moment for moment in (engine.next_due(), clock.next_timer()) if moment is not None]
        moment = min(moments, default=target + 1)
        if moment > target:
            break
        clock.move_to(moment)
        engine.set_time(*skewed.read())
        engine.tick()
        engine.reap()
    clock.move_to(target)
    engine.set_time(*skewed.read())
