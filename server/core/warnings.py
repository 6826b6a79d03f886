"""Warnings for the operator, with a rate limit, because a peer must not be able to fill the disk with log lines.

The core does not log. It passes each line to a function that the owner provides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

LogFunction = Callable[..., None]
"""A function that receives a message in ``%`` style and its arguments, for example ``Logger.warning``."""
PAUSE_MS: Final = 10_000
"""Minimum number of milliseconds between two lines of the same kind."""
_MAX_KINDS: Final = 1_000  # maximum number of distinct kinds within PAUSE_MS; all further kinds count as one
_MAX_TEXT_CHARACTERS: Final = 200


class Warnings:
    """A rate limiter for warnings. It forwards at most one line of each kind per ten seconds (:data:`PAUSE_MS`).

    Args:
        write: A function that receives a message in ``%`` style and its arguments; None to discard all lines.
        now: A function that returns the engine's time in monotonic milliseconds.
    """

    def __init__(self, write: LogFunction | None = None, now: Callable[[], int] = int) -> None:
        self._write = write
        self._last: dict[str, tuple[int, int]] = {}  # by kind: time of the last line, number of lines skipped
        self._now = now

    def warn(self, kind: str, message: str, *arguments: object) -> None:
        """Forward a line, or count it as skipped.

        Args:
            kind: Kind of the line. Lines of one kind are limited together.
            message: The line, in ``%`` style.
            *arguments: Values for the line. Texts are escaped and truncated, because they may come from a peer.
        """
        if self._write is None:
            return
        now = self._now()
        kind = kind[:_MAX_TEXT_CHARACTERS]
        if kind not in self._last and len(self._last) >= _MAX_KINDS - 1:
            self._last = {name: last for name, last in self._last.items() if now - last[0] < PAUSE_MS}
            if len(self._last) >= _MAX_KINDS - 1:
                kind = "others"  # new kinds share one limit
        last, skipped = self._last.get(kind, (now - PAUSE_MS, 0))
        if now - last < PAUSE_MS:
            self._last[kind] = last, skipped + 1
            return
        self._last[kind] = now, 0
        if skipped:
            message += " (%d more like this were not logged)"
            arguments += (skipped,)
        self._write(message, *map(_printable, arguments))


def _printable(argument: object) -> object:
    """Return a number unchanged, and anything else as printable text of at most 200 characters."""
    if isinstance(argument, int | float):
        return argument
    text = str(argument)
    if len(text) > _MAX_TEXT_CHARACTERS:
        text = text[:_MAX_TEXT_CHARACTERS] + "..."
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def quoted_name(name: str) -> str:
    """Return a name for a log line: quoted, escaped, and truncated to 64 characters."""
    return repr(name if len(name) <= 64 else name[:64] + "...")
