"""Output of the shell: human-readable text, or a line of JSON for each result."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from .texts import printable

RED: Final = "31"
CYAN: Final = "36"
BOLD: Final = "1"
_PIECE_LENGTH: Final = 1 << 15
"""Maximum number of characters in one write."""


class ShellOutput:
    """The output and error streams of the shell. On a terminal, unprintable characters of nodes are escaped.

    Args:
        out: Stream for results.
        err: Stream for errors and remarks.
        as_json: Whether results are written as JSON.
        colour: Whether to use colours.

    Attributes:
        errors_at_terminal: Whether the error stream is a terminal.
    """

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool = False, colour: bool = False) -> None:
        self._out = out
        self._err = err
        self._out_is_terminal = out.isatty()
        self.errors_at_terminal = err.isatty()
        self.as_json = as_json
        self.colour = colour and self._out_is_terminal
        self.write_above: Callable[[str], None] = self._write
        """Function that writes text above the line that the user is typing, if any, and preserves the line."""

    def show(self, value: Any, lines: Iterable[str]) -> None:
        """Write a result, as JSON or as lines, and flush the output.

        Args:
            value: The result for JSON output.
            lines: The lines for text output; not iterated for JSON.
        """
        if self.as_json:
            self._out.write(_json(value))
        else:
            for line in lines:
                self._write_line(line)
        self._out.flush()

    def line(self, value: Any, text: str) -> None:
        """Write one of many results, without flushing. Call :meth:`flush` after the last result."""
        if self.as_json:
            self._out.write(_json(value))
        else:
            self._write_line(text)

    def flush(self) -> None:
        """Flush the output stream, after calls of :meth:`line`."""
        self._out.flush()

    def _write_line(self, line: str) -> None:
        for start in range(0, len(line), _PIECE_LENGTH):  # the start of a long line appears without delay
            piece = line[start : start + _PIECE_LENGTH]
            self._out.write(piece if isinstance(line, _PaintedText) or not self._out_is_terminal else printable(piece))
        self._out.write("\n")

    def remark(self, text: str, value: Any = None) -> None:
        """Write a remark to the error stream. For JSON, write *value*, unless None, to the output stream instead."""
        if not self.as_json:
            self._remark(text, "")
        elif value is not None:
            self.show(value, ())

    def error(self, text: str) -> None:
        """Write an error, in red if colours are in use."""
        self._remark(text, RED)

    def _remark(self, text: str, colour: str) -> None:
        self._out.flush()
        shown = printable(text) if self.errors_at_terminal else text
        if colour and self.colour and self.errors_at_terminal:
            shown = f"\x1b[{colour}m{shown}\x1b[0m"
        self._err.write(shown + "\n")
        self._err.flush()

    def event(self, text: str, value: Any) -> None:
        """Write an event in the format of zkCli, above the line that is being typed."""
        if self.as_json:
            self.write_above(_json(value))
        else:
            shown = printable(text) if self._out_is_terminal else text
            self.write_above(f"\nWATCHER::\n\n{self.paint(shown, CYAN)}\n")

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()

    def paint(self, text: str, colour: str, rest: str = "") -> str:
        """Return text, in a colour if colours are in use, followed by the rest of the line.

        If colours are in use, unprintable characters of *text* and *rest* are escaped.
        """
        if not self.colour:
            return text + rest
        return _PaintedText(f"\x1b[{colour}m{printable(text)}\x1b[0m{printable(rest)}")


def _json(value: Any) -> str:
    import json  # imported only for JSON output, because imports delay short commands

    return json.dumps(value) + "\n"


class _PaintedText(str):
    """Text with colours, whose other characters are already escaped."""

    __slots__ = ()
