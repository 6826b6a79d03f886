"""The daemon as a user runs it: a separate process with a real port, stopped by SIGTERM."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Final, Self

from support.command import ZOOLET, zoolet
from support.waiting import DEADLINE_S

SERVE: Final = (*ZOOLET, "serve")


class DaemonProcess:
    """A daemon on a free port, as a context manager. It is ready in the block, and must exit with 0 at the end.

    Args:
        options: Further arguments after ``serve --port 0``, such as ``-Dzookeeper.tickTime=200``.
        stderr: Destination of its log; by default the stderr of the tests.
    """

    def __init__(self, *options: str, stderr: IO[bytes] | None = None) -> None:
        self.command = [*SERVE, "--port", "0", *options]
        self.stderr = stderr
        self.host = ""
        self.port = 0
        self.process: subprocess.Popen[str]  # set by __enter__

    @property
    def hosts(self) -> str:
        """The connection string: ``host:port``."""
        return f"{self.host}:{self.port}"

    def start(self) -> subprocess.Popen[str]:
        """Start the process, and return it once it is ready. The caller has to stop the process."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        self._read_ready_line()
        return self.process

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        try:
            self._read_ready_line()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(DEADLINE_S)
        finally:
            self._end()
        assert self.process.returncode == 0, f"the daemon's exit code is {self.process.returncode}"

    def _read_ready_line(self) -> None:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        line = self.process.stdout.readline() if readable else ""
        match = re.fullmatch(r"zoolet ready on (\S+):(\d+)\n", line)
        assert match is not None, f"expected the ready line, found {line!r}"
        self.host, self.port = match[1], int(match[2])

    def _end(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()  # no effect on a process that has exited
        self.process.wait()
        self.process.stdout.close()


class RunningDaemon:
    """A daemon that may have no plain port.

    Args:
        process: The daemon, its stdout and stderr unbuffered pipes.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._unread: dict[int, bytes] = {}

    def read_line(self, number: int, within: float = DEADLINE_S) -> str:
        """Wait up to *within* seconds for a line of stdout (1) or stderr (2). At the end, return an empty string."""
        pipe = self.process.stdout if number == 1 else self.process.stderr
        assert pipe is not None
        text = self._unread.pop(number, b"")
        deadline = time.monotonic() + within
        while b"\n" not in text:
            assert select.select([pipe], [], [], max(0, deadline - time.monotonic()))[0], f"no line; so far {text!r}"
            more = os.read(pipe.fileno(), 65_536)
            if not more:
                return text.decode()
            text += more
        line, _, self._unread[number] = text.partition(b"\n")
        return line.decode()

    def log_until(self, text: str) -> str:
        """Wait for a log line that contains *text*, and return the line."""
        while text not in (line := self.read_line(2)):
            assert line, f"the log ended without {text!r}"
        return line

    def port(self, within: float = DEADLINE_S) -> int:
        """Wait up to *within* seconds for the next ready line. Return its port."""
        line = self.read_line(1, within)
        assert line.startswith("zoolet ready "), line
        return int(line.rpartition(":")[2])


@contextmanager
def running_daemon(*options: str) -> Iterator[RunningDaemon]:
    """Run a daemon with these options for the block. It must exit with 0 at the end."""
    command = [*SERVE, *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        try:
            yield RunningDaemon(process)
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def startup_error(*options: object, code: int = 2) -> str:
    """Run a daemon that fails to start. Return its error message, which must be one line."""
    done = zoolet("serve", *options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
    return done.stderr
