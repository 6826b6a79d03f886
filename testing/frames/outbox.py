"""The output of a connection, which sends slow replies in pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..signatures import CallLater

PIECES_PER_SECOND: Final = 20
"""Approximate number of pieces per second of a slow reply."""


class _SlowReply:
    """A reply that is sent in pieces of *piece_bytes* bytes, with *pause* seconds between them."""

    def __init__(self, data: bytes, rate: float) -> None:
        self.data = data
        self.piece_bytes = max(1, round(rate / PIECES_PER_SECOND))
        self.pause = self.piece_bytes / rate
        self.waiting = False


class Outbox:
    """The bytes to send, in order. Slow replies are sent in pieces.

    Args:
        call_later: Calls a function after some seconds.
        resume: Makes the transport fetch output again.
    """

    def __init__(self, call_later: CallLater, resume: Callable[[], object]) -> None:
        self._call_later = call_later
        self._resume = resume
        self._entries: deque[bytes | _SlowReply] = deque()

    def __len__(self) -> int:
        return sum(len(entry if isinstance(entry, bytes) else entry.data) for entry in self._entries)

    def add(self, data: bytes, rate: float | None = None) -> None:
        """Add bytes to send. With a *rate*, they are sent at this number of bytes per second."""
        if data:
            self._entries.append(data if rate is None else _SlowReply(data, rate))

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
                parts.append(entry.data[: entry.piece_bytes])
                entry.data = entry.data[entry.piece_bytes :]
                entry.waiting = True
                self._call_later(entry.pause, lambda slow=entry: self._send_next_piece(slow))  # type: ignore[misc]
        return b"".join(parts)

    def end_delays(self) -> None:
        """Send all replies without their bandwidth limits."""
        self._entries = deque(entry if isinstance(entry, bytes) else entry.data for entry in self._entries)

    def _send_next_piece(self, slow: _SlowReply) -> None:
        slow.waiting = False
        self._resume()
