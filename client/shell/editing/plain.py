"""Lines read with readline, which is part of Python on most systems."""

from __future__ import annotations

import sys
from collections.abc import Callable

from zoolet.client.shell import words
from zoolet.client.shell.editing.history import append_line, read_lines
from zoolet.client.shell.texts import printable

try:
    import readline
except ImportError:  # Python was built without it: lines cannot be edited
    readline = None  # type: ignore[assignment]


class PlainEditor:
    """Reads lines with ``input``.

    Args:
        complete: Returns what the last word of a line may be.
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
            readline.add_history(line)

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
            readline.add_history(line)
        return line

    def write(self, text: str) -> None:
        """Write text above the line, and draw the line again."""
        prompt = self._prompt
        if prompt is None or readline is None:
            sys.stdout.write(text)
        else:
            sys.stdout.write(f"\r\x1b[K{text.lstrip()}{prompt}{printable(readline.get_line_buffer())}")
        sys.stdout.flush()

    def redraw(self) -> None:
        """The prompt is drawn with the next line."""

    def drop(self) -> None:
        """Nothing is read ahead."""

    def close(self) -> None:
        """The history is in its file already."""
