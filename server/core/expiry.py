"""Deadlines in buckets: whoever is heard of in time moves on, and each bucket is emptied at its hour.

A deadline is rounded up to the next whole interval, so nobody expires early and at most one interval late, and moving a
busy session costs a dictionary move once an interval, not once a request. An interval of 0 rounds nothing: that is for
clocks that stand still.

Source: ExpiryQueue.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, Protocol, TypeVar


class Expirable(Protocol):
    """What can expire."""

    deadline: int


M = TypeVar("M", bound=Expirable)
NEVER: Final = -1
"""The deadline of what does not expire."""


class Expiry(Generic[M]):
    """All that may expire, in order of deadline.

    Args:
        interval: The size of a bucket, in milliseconds; 0 for exact deadlines.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._buckets: dict[int, dict[M, None]] = {}
        self._deadlines: list[int] = []  # a heap of the buckets' deadlines

    def touch(self, one: M, monotonic_ms: int, timeout: int) -> None:
        """Let *one* live until *timeout* milliseconds after *uptime*, rounded up."""
        interval = self.interval
        deadline = (monotonic_ms + timeout) // interval * interval + interval if interval else monotonic_ms + timeout
        if deadline == one.deadline:
            return
        self.remove(one)
        one.deadline = deadline
        bucket = self._buckets.get(deadline)
        if bucket is None:
            bucket = self._buckets[deadline] = {}
            heapq.heappush(self._deadlines, deadline)
        bucket[one] = None

    def remove(self, one: M) -> None:
        """Let *one* never expire; harmless if it would not have."""
        bucket = self._buckets.get(one.deadline)
        if bucket is not None:
            bucket.pop(one, None)
        one.deadline = NEVER

    def pop_due(self, monotonic_ms: int) -> M | None:
        """Remove and return the one with the oldest deadline, if that has come; of several, the one that was not heard
        of for the longest time.
        """
        while self._deadlines and self._deadlines[0] <= monotonic_ms:
            bucket = self._buckets[self._deadlines[0]]
            for one in bucket:
                del bucket[one]
                one.deadline = NEVER
                return one
            del self._buckets[heapq.heappop(self._deadlines)]
        return None

    def next(self) -> int | None:
        """Return the hour of the first bucket, in milliseconds of uptime; None if there is none."""
        return self._deadlines[0] if self._deadlines else None
