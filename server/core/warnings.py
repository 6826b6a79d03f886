"""Warnings for the operator, rate-limited so that a peer cannot fill a disk with them.

The core does not log: it passes each line to a function that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LogFunction = Callable[..., None]
"""Receives a message in ``%`` style, and its arguments; ``Logger.warning``, for instance."""
PAUSE_MS: Final = 10_000
"""Milliseconds between two lines of the same kind."""
_KINDS: Final = 1_000  # distinct kinds within PAUSE_MS; the rest share one
_MAX_TEXT: Final = 200


class Warnings:
    """Forwards a line unless one of the same kind was forwarded within the last ten seconds.

    Args:
        write: Receives a message in ``%`` style, and its arguments; by default there is none.
        now: Returns the engine's time, in monotonic milliseconds.
    """

    def __init__(self, write: LogFunction | None = None, now: Callable[[], int] = int) -> None:
        self._write = write
        self._last: dict[str, tuple[int, int]] = {}  # by kind: time of the last line, lines skipped since
        self._now = now

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Forward a line, or count it.

        Args:
            kind: Lines of one kind are limited together.
            message: The line, in ``%`` style.
            arguments: What is put into it. Text is escaped and truncated, so that a peer cannot add lines to the log.
        """
        if self._write is None:
            return
        now = self._now()
        kind = kind[:_MAX_TEXT]
        if kind not in self._last and len(self._last) >= _KINDS - 1:
            self._last = {name: last for name, last in self._last.items() if now - last[0] < PAUSE_MS}
            if len(self._last) >= _KINDS - 1:
                kind = "others"  # which share one limit from now on
        last, skipped = self._last.get(kind, (now - PAUSE_MS, 0))
        if now - last < PAUSE_MS:
            self._last[kind] = last, skipped + 1
            return
        self._last[kind] = now, 0
        if skipped:
            message += " (%d more like this were not logged)"
            arguments += (skipped,)
        self._write(message, *map(_clean, arguments))


def _clean(argument: object) -> object:
    """Return a number unchanged, and anything else as printable text of at most 200 characters."""
    if isinstance(argument, int | float):
        return argument
    text = str(argument)
    if len(text) > _MAX_TEXT:
        text = text[:_MAX_TEXT] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
