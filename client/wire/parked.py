"""A collection of calls that wait for a connection. It stays fast with any number of calls."""

from __future__ import annotations

import heapq
from itertools import count
from typing import Final

from .requests import PendingCall, drop

_MAX_STALE_ENTRIES: Final = 64
"""The heap is rebuilt if its entries of removed calls outnumber the waiting calls by more than this number."""


class _Entry:
    """An entry of the heap: a call and its deadline.

    Args:
        deadline: End of the call's wait for a connection, as a time of the session's clock.
        number: Sequence number of the call. It orders calls with the same deadline.
        call: The call; None once it is removed.
    """

    __slots__ = ("call", "deadline", "number")

    def __init__(self, deadline: float, number: int, call: PendingCall | None) -> None:
        self.deadline = deadline
        self.number = number
        self.call = call

    def __lt__(self, other: _Entry) -> bool:
        return (self.deadline, self.number) < (other.deadline, other.number)


class ParkedCalls:
    """Waiting calls, which can be taken in the order they were added or by earliest deadline.

    A call that is cancelled is removed.
    """

    def __init__(self) -> None:
        self._entries: dict[PendingCall, _Entry] = {}
        self._heap: list[_Entry] = []  # with the earliest deadline first
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, call: PendingCall) -> None:
        """Add a call. If the call is already cancelled, drop it."""
        if call.done():
            return drop(call)
        self._entries[call] = entry = _Entry(call.deadline, next(self._numbers), call)
        heapq.heappush(self._heap, entry)
        call.add_done_callback(self._on_cancelled)

    def earliest_deadline(self) -> float | None:
        """Return the earliest deadline. Return None if no call waits."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
        return self._heap[0].deadline if self._heap else None

    def pop_overdue(self, now: float) -> PendingCall | None:
        """Remove and return the call with the earliest deadline if that time has passed. Otherwise return None.

        The call may already have been cancelled.
        """
        deadline = self.earliest_deadline()
        if deadline is None or now < deadline:
            return None
        call = self._heap[0].call
        assert call is not None
        self._remove(call)
        return call

    def take_all(self) -> list[PendingCall]:
        """Remove and return all calls, in the order they were added."""
        calls = list(self._entries)
        for call in calls:
            call.remove_done_callback(self._on_cancelled)
        self._entries.clear()
        self._heap.clear()
        return calls

    def _remove(self, call: PendingCall) -> None:
        call.remove_done_callback(self._on_cancelled)
        self._entries.pop(call).call = None  # the entry stays in the heap, because finding it there would be slow
        if len(self._heap) > 2 * len(self._entries) + _MAX_STALE_ENTRIES:
            self._heap = [entry for entry in self._heap if entry.call is not None]
            heapq.heapify(self._heap)

    def _on_cancelled(self, call: PendingCall) -> None:
        if call in self._entries:
            self._remove(call)
            drop(call)
