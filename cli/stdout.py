"""The stdout of the command: a failed write stops the command, and is not mistaken for a connection error.

This module imports nothing from zoolet and nothing slow, because Ctrl-C during its import prints a traceback.
"""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer


class OutputError(Exception):
    """The output cannot be written.

    Args:
        error: The error of the system call.

    Attributes:
        is_closed: Whether the reader of the output, such as ``head``, has closed it.
    """

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write to stdout: {(error.strerror or str(error)).lower()}")
        self.is_closed = isinstance(error, BrokenPipeError)


class OutputFile(io.FileIO):
    """The file of stdout, whose failed writes raise OutputError."""

    def write(self, data: Buffer, /) -> int:
        """Write bytes to the file.

        Raises:
            OutputError: The bytes cannot be written.
        """
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(error) from None


def replace_stdout() -> None:
    """Replace ``sys.stdout`` by a stream whose failed writes raise :class:`OutputError`.

    A stdout that was closed at the start, or was already replaced, stays as it is.
    """
    before = sys.__stdout__
    if before is None or sys.stdout is not before:
        return
    file = io.BufferedWriter(OutputFile(before.fileno(), "w", closefd=False))
    errors = "backslashreplace" if before.errors == "strict" else before.errors  # a path may contain any character
    sys.stdout = io.TextIOWrapper(file, before.encoding, errors, None, before.line_buffering, before.write_through)


def discard_stdout() -> None:
    """Redirect stdout to /dev/null, because Python writes the rest of the buffer at exit and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
