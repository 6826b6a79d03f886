"""The output of a connection, which sends slow replies in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..signatures import CallLater

PIECES_PER_SECOND: Final = 20
"""Approximate number of pieces per second of a slow reply."""


class _Slow:
    """A reply that is sent in pieces."""

    def __init__(self, data: bytes, rate: float) -> None:
        self.data = data
        self.size = max(1, round(rate / PIECES_PER_SECOND))
        self.pause = self.size / rate
        self.waiting = False


class Outbox:
    """The bytes to be sent, in order; slow replies are sent in pieces.

    Args:
        call_later: Calls a function after some seconds.
        resume: Makes the transport fetch output again.
    """

    def __init__(self, call_later: CallLater, resume: Callable[[], object]) -> None:
        self._call_later = call_later
        self._resume = resume
        self._entries: deque[bytes | _Slow] = deque()

    def __len__(self) -> int:
        return sum(len(entry if isinstance(entry, bytes) else entry.data) for entry in self._entries)

    def add(self, data: bytes, rate: float | None = None) -> None:
        """Add bytes to send; with a *rate*, they are sent at that many bytes per second."""
        if data:
            self._entries.append(data if rate is None else _Slow(data, rate))

    def read(self) -> bytes:
        """Remove and return the bytes that may be sent now."""
        parts = []
        while self._entries:
            entry = self._entries[0]
            if isinstance(entry, bytes):
                parts.append(entry)
                self._entries.popleft()
            elif entry.waiting:
                break
            elif not entry.data:
                self._entries.popleft()
            else:
                parts.append(entry.data[: entry.size])
                entry.data = entry.data[entry.size :]
                entry.waiting = True
                self._call_later(entry.pause, lambda slow=entry: self._continue(slow))  # type: ignore[misc]
        return b"".join(parts)

    def hurry(self) -> None:
        """Send all replies without their bandwidth limits."""
        self._entries = deque(entry if isinstance(entry, bytes) else entry.data for entry in self._entries)

    def _continue(self, slow: _Slow) -> None:
        slow.waiting = False
        self._resume()
