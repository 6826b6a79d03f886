"""Lines for the operator's log, at most so many that a peer cannot fill a disk with them.

The core has no log of its own: it hands each line to a function that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

PAUSE_MS: Final = 10_000
"""Milliseconds between two lines of the same kind."""
_KINDS: Final = 1_000  # that are told apart; beyond it, all start anew


class Warnings:
    """Passes a line on unless one of its kind was passed on within the last ten seconds.

    Args:
        write: Receives a message in ``%`` style, and its arguments; by default nobody does.
    """

    def __init__(self, write: Callable[..., None] | None = None) -> None:
        self._write = write
        self._last: dict[str, tuple[int, int]] = {}  # by kind: when a line was passed on, and how many were not since
        self.monotonic_ms = 0
        """The engine keeps this at its own time."""

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Pass a line on, or count it.

        Args:
            kind: Lines of one kind are limited together.
            message: The line, in ``%`` style.
            arguments: What is put into it.
        """
        if self._write is None:
            return
        now = self.monotonic_ms
        last, skipped = self._last.get(kind, (now - PAUSE_MS, 0))
        if now - last < PAUSE_MS:
            self._last[kind] = last, skipped + 1
            return
        if len(self._last) >= _KINDS:
            self._last.clear()
        self._last[kind] = now, 0
        if skipped:
            message += " (%d more like this were not logged)"
            arguments += (skipped,)
        self._write(message, *arguments)
