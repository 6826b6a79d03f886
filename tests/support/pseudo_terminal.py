"""A program at a pseudo-terminal: a test presses keys and reads the output."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from support.waiting import DEADLINE_S

CURSOR_QUERY: Final = b"\x1b[6n"
"""The query for the cursor position, which prompt_toolkit sends to a terminal."""
_SEQUENCE: Final = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")
WITHOUT_TOOLKIT: Final = (
    "import sys; sys.modules['prompt_toolkit'] = None; from zoolet.__main__ import main; sys.exit(main())"
)


class TerminalProgram:
    """A running program and its pseudo-terminal.

    Args:
        process: The program.
        master: The other end of the terminal.
    """

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self.raw = b""
        self._seen = 0
        self._answered = 0

    def type(self, text: str) -> None:
        """Type text. Read output at the same time, because otherwise the program might block."""
        data = text.encode()
        while data:
            readable, writable, _ = select.select([self._master], [self._master], [], DEADLINE_S)
            assert readable or writable, "the program does not read what is typed"
            if readable:
                self._read()
            if writable:
                data = data[os.write(self._master, data[:1024]) :]

    def _read(self) -> bool:
        try:
            data = os.read(self._master, 1 << 16)
        except OSError:  # the program exited
            return False
        self.raw += data
        while (place := self.raw.find(CURSOR_QUERY, self._answered)) >= 0:
            os.write(self._master, b"\x1b[1;1R")
            self._answered = place + len(CURSOR_QUERY)
        # The data may end with the first part of a query.
        self._answered = max(self._answered, len(self.raw) - len(CURSOR_QUERY) + 1)
        return bool(data)

    @property
    def text(self) -> str:
        """The output, without control sequences."""
        return _SEQUENCE.sub("", self.raw.decode("utf-8", "replace")).replace("\r", "")

    def expect(self, pattern: str) -> str:
        """Wait for output that matches *pattern* after the previous match, and return the match."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            match = re.compile(pattern).search(self.text, self._seen)
            if match is not None:
                self._seen = match.end()
                return match[0]
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            if not ready or not self._read():
                raise AssertionError(f"{pattern!r} was not printed; this was:\n{self.text[self._seen :][-3000:]!r}")
            while select.select([self._master], [], [], 0.001)[0] and self._read():  # read everything first
                pass

    def type_until(self, key: str, pattern: str) -> None:
        """Press a key until matching output appears, because the program may not read keys yet."""
        deadline = time.monotonic() + DEADLINE_S
        while re.compile(pattern).search(self.text, self._seen) is None:
            assert time.monotonic() < deadline, f"{pattern!r} was not printed:\n{self.text[self._seen :]!r}"
            self.type(key)
            if select.select([self._master], [], [], 0.2)[0]:
                self._read()
        self.expect(pattern)

    def type_until_end(self, key: str) -> int:
        """Press a key until the program exits, and return the exit code. Keys between two prompts are lost."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"{key!r} does not end the program"
            self.type(key)
            if select.select([self._master], [], [], 0.2)[0]:
                self._read()
        return self.process.wait()

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def wait(self) -> int:
        """Wait until the program exits, and return its exit code."""
        deadline = time.monotonic() + DEADLINE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            ready, _, _ = select.select([self._master], [], [], 0.02)
            if ready:
                self._read()
        return self.process.wait(DEADLINE_S)


def _own_terminal() -> None:
    """Make the terminal the controlling terminal of the new process, which receives its Ctrl-C."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # the test run may have another handler


@contextmanager
def run_at_terminal(
    arguments: Sequence[str], home: Path, *, toolkit: bool = True, term: str = "xterm", under: Sequence[str] = ()
) -> Iterator[TerminalProgram]:
    """Run ``zoolet`` at a terminal.

    Args:
        arguments: The arguments of ``zoolet``.
        home: The folder for its history.
        toolkit: Whether it finds prompt_toolkit.
        term: The type of the terminal.
        under: The words of a program that runs the words that follow, such as a shell with job control.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
    command = [sys.executable, "-m", "zoolet"] if toolkit else [sys.executable, "-c", WITHOUT_TOOLKIT]
    environment = {**os.environ, "TERM": term, "XDG_STATE_HOME": str(home), "PYTHONUNBUFFERED": ""}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(
        [*under, *command, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
        preexec_fn=_own_terminal,
    )
    os.close(slave)
    try:
        yield TerminalProgram(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
