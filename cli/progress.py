"""Progress of a long job on stderr: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

from .usage import columns, is_dumb

BAR_WIDTH: Final = 30
"""Width of the bar in characters."""
REDRAW_EVERY_S: Final = 0.1
"""Seconds between two updates of the bar."""
LINE_EVERY_S: Final = 5.0
"""Seconds between two lines without a terminal. A shorter job writes none."""


class Progress:
    """Shows the progress of a job. As a context manager it removes the bar at the end.

    Args:
        job: Name of the job, such as "recovering".
        stream: Stream to write to; by default stderr.
    """

    def __init__(self, job: str, stream: TextIO | None = None) -> None:
        self._job = job
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty() and not is_dumb()
        self._next = time.monotonic() + (REDRAW_EVERY_S if self._is_terminal else LINE_EVERY_S)
        self._drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            self._stream.write("\r" + " " * self._drawn + "\r")
            self._stream.flush()

    def show(self, what: str, done: int, total: int) -> None:
        """Show that *done* of *total* items are done, unless the last update was too recent.

        Args:
            what: Name of the items, such as "nodes".
            done: Number of items that are done.
            total: Number of items in total; 0 if unknown.
        """
        now = time.monotonic()
        if now < self._next:
            return
        if self._is_terminal:
            self._next = now + REDRAW_EVERY_S
            self._draw(what, done, total)
        else:
            self._next = now + LINE_EVERY_S
            of = f" of {total:,}" if total else ""
            self._stream.write(f"{self._job}: {done:,}{of} {what}\n")
            self._stream.flush()

    def _draw(self, what: str, done: int, total: int) -> None:
        bar = ""
        if total:
            filled = BAR_WIDTH * min(done, total) // total
            bar = f"[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {100 * done // total:3} % "
        line = f"{self._job} {bar}{done:,} {what}"
        width = columns(self._stream) - 1  # a longer line would not be replaced by the next one
        if len(line) > width:
            line = f"{done:,} {what}"[:width]
        self._drawn = min(self._drawn, width)
        self._stream.write("\r" + line.ljust(self._drawn))
        self._stream.flush()
        self._drawn = max(self._drawn, len(line))
