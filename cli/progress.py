"""Progress of a long job, on stderr: a bar on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

from .usage import columns, is_dumb_terminal

BAR_WIDTH: Final = 30
"""Width of the bar in characters."""
REDRAW_INTERVAL_S: Final = 0.1
"""Seconds between two updates of the bar."""
LINE_INTERVAL_S: Final = 5.0
"""Seconds between two lines if stderr is not a terminal. A shorter job writes no line."""


class Progress:
    """A display of the progress of a job. At the end of its ``with`` block, the bar is removed.

    Args:
        job: Name of the job, such as "recovering".
        stream: Stream to write to; by default stderr.
    """

    def __init__(self, job: str, stream: TextIO | None = None) -> None:
        self._job = job
        self._stream = stream or sys.stderr
        self._is_terminal = self._stream.isatty() and not is_dumb_terminal()
        self._next_update = time.monotonic() + (REDRAW_INTERVAL_S if self._is_terminal else LINE_INTERVAL_S)
        self._drawn_width = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn_width:
            self._stream.write("\r" + " " * self._drawn_width + "\r")
            self._stream.flush()

    def show(self, items: str, done: int, total: int) -> None:
        """Show that *done* of *total* items are done, unless the last update was too recent.

        Args:
            items: Name of the items, such as "nodes".
            done: Number of items that are done.
            total: Number of items in total; 0 if unknown.
        """
        now = time.monotonic()
        if now < self._next_update:
            return
        if self._is_terminal:
            self._next_update = now + REDRAW_INTERVAL_S
            self._draw(items, done, total)
        else:
            self._next_update = now + LINE_INTERVAL_S
            of = f" of {total:,}" if total else ""
            self._stream.write(f"{self._job}: {done:,}{of} {items}\n")
            self._stream.flush()

    def _draw(self, items: str, done: int, total: int) -> None:
        bar = ""
        if total:
            filled = BAR_WIDTH * min(done, total) // total
            bar = f"[{'#' * filled}{' ' * (BAR_WIDTH - filled)}] {100 * done // total:3} % "
        line = f"{self._job} {bar}{done:,} {items}"
        width = columns(self._stream) - 1  # a longer line would not be replaced by the next one
        if len(line) > width:
            line = f"{done:,} {items}"[:width]
        self._drawn_width = min(self._drawn_width, width)
        self._stream.write("\r" + line.ljust(self._drawn_width))
        self._stream.flush()
        self._drawn_width = max(self._drawn_width, len(line))
