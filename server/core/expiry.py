"""Deadlines of sessions and connections, in buckets that make extending a deadline cheap.

Sessions have deadlines, and so do connections until they open a session. ``Engine.tick`` expires the sessions and
closes the connections that are due.

An item is in one of two states:

- *expiring*: ``deadline`` is the key of the only bucket that contains the item, or that contained it until the bucket
  became due. :meth:`Expiry.touch` moves the item to a later bucket.
- *not expiring*: ``deadline`` is NEVER, and no bucket contains the item. This is the state before the first touch, and
  after ``remove`` or ``pop_due``.

Deadlines are rounded up to a multiple of the interval. No item expires early, or more than one interval late. A busy
session moves to a different bucket once per interval, not once per request. Items in a bucket are in order of
insertion. An interval of 0 means exact deadlines, for clocks that are moved by hand.

Invariants: the heap contains each bucket's deadline exactly once, and an empty bucket stays until its deadline passes.

Source: ExpiryQueue.
"""

from __future__ import annotations

import heapq
from typing import Final, Generic, Protocol, TypeVar


class Expirable(Protocol):
    """An item with a deadline. Only :class:`Expiry` changes the deadline."""

    deadline: int


M = TypeVar("M", bound=Expirable)
NEVER: Final = -1
"""The deadline of an item that does not expire."""


class Expiry(Generic[M]):
    """Items in order of deadline.

    Args:
        interval: Size of a bucket in milliseconds; 0 for exact deadlines.
    """

    def __init__(self, interval: int) -> None:
        self.interval = interval
        self._buckets: dict[int, dict[M, None]] = {}
        self._deadlines: list[int] = []  # a heap of the buckets' deadlines
        # The items of the last bucket that became due, in reverse order. Popping them from the end of a list is faster
        # than removing the first key of a dict repeatedly, which skips all keys that were removed before.
        self._due: list[M] = []
        self._due_at = NEVER

    def touch(self, item: M, monotonic_ms: int, timeout: int) -> None:
        """Set the deadline of *item* to *timeout* milliseconds after *monotonic_ms*, rounded up."""
        interval = self.interval
        deadline = (monotonic_ms + timeout) // interval * interval + interval if interval else monotonic_ms + timeout
        if deadline == item.deadline:
            return
        if item.deadline != NEVER:
            self.remove(item)
        item.deadline = deadline
        bucket = self._buckets.get(deadline)
        if bucket is None:
            bucket = self._buckets[deadline] = {}
            heapq.heappush(self._deadlines, deadline)
        bucket[item] = None

    def remove(self, item: M) -> None:
        """Remove the deadline of *item*, if it has one."""
        deadline = item.deadline
        if deadline == NEVER:
            return
        bucket = self._buckets.get(deadline)
        if bucket is not None:
            bucket.pop(item, None)
        item.deadline = NEVER

    def pop_due(self, monotonic_ms: int) -> M | None:
        """Remove and return the item with the earliest deadline that has passed. Return None if no deadline has passed.

        Items with the same deadline are returned in the order of their insertion.
        """
        due = self._due
        while True:
            while due:
                item = due.pop()
                if item.deadline == self._due_at:  # skip items that were touched or removed
                    item.deadline = NEVER
                    return item
            if not self._deadlines or self._deadlines[0] > monotonic_ms:
                return None
            self._due_at = heapq.heappop(self._deadlines)
            due.extend(reversed(self._buckets.pop(self._due_at)))

    def next(self) -> int | None:
        """Return the earliest deadline of a bucket, in monotonic milliseconds, or None if no bucket exists."""
        if self._due:
            return self._due_at
        return self._deadlines[0] if self._deadlines else None
