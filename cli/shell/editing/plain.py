"""The line editor of readline, which is part of Python on most systems."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from ...usage import is_dumb
from .. import words
from ..texts import printable
from .history import append_line, read_lines

try:
    import readline
except ImportError:  # Python was built without readline, so lines cannot be edited
    readline = None  # type: ignore[assignment]


def _add_history(line: str) -> None:
    if readline is not None:
        with suppress(UnicodeError):  # readline uses the encoding of the locale, which is ASCII for C
            readline.add_history(line)


class PlainEditor:
    """Reads lines with ``input``.

    Args:
        complete: Function that returns the completions of the last word of a line.
    """

    def __init__(self, complete: Callable[[str], list[str]]) -> None:
        self._complete = complete
        self._matches: list[str] = []
        self._prompt: str | None = None
        if readline is None:
            return
        readline.set_completer(self._completer)
        readline.set_completer_delims(" \t")
        readline.parse_and_bind("tab: complete")
        readline.set_auto_history(False)
        for line in read_lines():
            _add_history(line)

    def _completer(self, text: str, number: int) -> str | None:
        if number == 0 and readline is not None:
            matches = self._complete(readline.get_line_buffer()[: readline.get_endidx()])
            self._matches = [match for match in matches if words.quote(match) == match]  # readline quotes nothing
        return self._matches[number] if number < len(self._matches) else None

    def read(self, prompt: Callable[[], str]) -> str:
        """Read a line."""
        self._prompt = prompt()
        try:
            line = input(self._prompt)
        except (EOFError, KeyboardInterrupt):
            print()
            raise
        finally:
            self._prompt = None
        if readline is not None and append_line(line):
            _add_history(line)
        return line

    def write(self, text: str) -> None:
        """Write text above the line, and redraw the line."""
        prompt = self._prompt
        if prompt is None or readline is None or is_dumb():
            sys.stdout.write(text)
        else:
            sys.stdout.write(f"\r\x1b[K{text.lstrip()}{prompt}{printable(readline.get_line_buffer())}")
        sys.stdout.flush()

    def redraw(self) -> None:
        """Do nothing: the next line shows the new prompt."""

    def drop(self) -> None:
        """Do nothing: no input is read ahead."""

    def close(self) -> None:
        """Do nothing: the history is already saved."""
