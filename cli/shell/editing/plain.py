"""The line editor based on readline, which is part of Python on most systems."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress

from ...usage import is_dumb_terminal
from .. import words
from ..texts import printable
from .history import append_line, read_lines

try:
    import readline
except ImportError:  # Python was built without readline: input() works, but without editing
    readline = None  # type: ignore[assignment]


def _add_history(line: str) -> None:
    if readline is not None:
        with suppress(UnicodeError):  # readline encodes for the locale, which may only support ASCII
            readline.add_history(line)


class PlainEditor:
    """A line editor that uses ``input`` and readline.

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
            self._matches = [match for match in matches if words.quote(match) == match]  # readline does not quote words
        return self._matches[number] if number < len(self._matches) else None

    def read(self, prompt: Callable[[], str]) -> str:
        """Print the prompt, and return the next line. Add the line to the history."""
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
        """Write text above the line that is being typed, and redraw the line."""
        prompt = self._prompt
        if prompt is None or readline is None or is_dumb_terminal():
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
