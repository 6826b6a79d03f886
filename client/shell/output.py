"""Where the shell writes: text for people, or a line of JSON for each result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from zoolet.client.shell.texts import printable

RED: Final = "31"
CYAN: Final = "36"
BOLD: Final = "1"
_PIECE: Final = 1 << 15
"""Characters that are written at once."""


class Output:
    """Two streams. To a terminal only harmless characters are written, whatever nodes contain.

    Args:
        out: For results.
        err: For errors and remarks.
        as_json: Whether results are JSON.
        colour: Whether to use colours.

    Attributes:
        errors_at_terminal: Whether a person reads the errors.
    """

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool = False, colour: bool = False) -> None:
        self._out = out
        self._err = err
        self._out_is_terminal = out.isatty()
        self.errors_at_terminal = err.isatty()
        self.as_json = as_json
        self.colour = colour and self._out_is_terminal
        self.beside: Callable[[str], None] = self._write
        """Writes text of several lines while a line may be being typed, so that the line stays whole."""

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Write a result.

        Args:
            value: What it is in JSON.
            lines: What it is as text; not iterated if JSON is wanted.
        """
        if self.as_json:
            self._out.write(_json(value))
        else:
            for line in lines:
                self._write_line(line)
        self._out.flush()

    def line(self, value: Any, text: str) -> None:
        """Write a result that is one of many; :meth:`flush` sends it off."""
        if self.as_json:
            self._out.write(_json(value))
        else:
            self._write_line(text)

    def flush(self) -> None:
        """Send off what was written."""
        self._out.flush()

    def _write_line(self, line: str) -> None:
        for start in range(0, len(line), _PIECE):  # a long line appears bit by bit
            piece = line[start : start + _PIECE]
            self._out.write(piece if isinstance(line, _Painted) or not self._out_is_terminal else printable(piece))
        self._out.write("\n")

    def remark(self, text: str, value: Any = None) -> None:
        """Write what is no result to the second stream; in JSON, *value* to the first, if there is one."""
        if not self.as_json:
            self._remark(text, "")
        elif value is not None:
            self.show(value, ())

    def error(self, text: str) -> None:
        """Write an error."""
        self._remark(text, RED)

    def _remark(self, text: str, colour: str) -> None:
        self._out.flush()
        shown = printable(text) if self.errors_at_terminal else text
        if colour and self.colour and self.errors_at_terminal:
            shown = f"\x1b[{colour}m{shown}\x1b[0m"
        self._err.write(shown + "\n")
        self._err.flush()

    def event(self, text: str, value: Any) -> None:
        """Write an event as ZooKeeper's own shell does, beside what is being typed."""
        if self.as_json:
            self.beside(_json(value))
        else:
            shown = printable(text) if self._out_is_terminal else text
            self.beside(f"\nWATCHER::\n\n{self.paint(shown, CYAN)}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def paint(self, text: str, colour: str, rest: str = "") -> str:
        """Return text in a colour, if there are colours, and the rest of the line; both are made harmless first."""
        if not self.colour:
            return text + rest
        return _Painted(f"\x1b[{colour}m{printable(text)}\x1b[0m{printable(rest)}")


def _json(value: Any) -> str:
    import json  # not for text: each module counts at the start of a shell for one command

    return json.dumps(value) + "\n"


class _Painted(str):
    """Text that is harmless already, and has colours."""

    __slots__ = ()
