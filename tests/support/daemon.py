"""The daemon as a user runs it: a process of its own, a real port, a SIGTERM at the end."""

from __future__ import annotations

import re
import select
import subprocess
import sys
from types import TracebackType
from typing import IO, Final, Self

READY_S: Final = 20.0  # only ever reached on failure
STOP_S: Final = 10.0


class DaemonProcess:
    """One daemon on a free port; entered it accepts, left it has stopped with exit code 0.

    Args:
        options: What stands behind ``serve --port 0`` on the command line, such as ``-Dzookeeper.tickTime=200``.
        stderr: Where its log goes; by default to the stderr of the tests.
    """

    def __init__(self, *options: str, stderr: IO[bytes] | None = None) -> None:
        self.command = [sys.executable, "-m", "zoolet.server", "serve", "--port", "0", *options]
        self.stderr = stderr
        self.host = ""
        self.port = 0
        self.process: subprocess.Popen[str]  # set by __enter__

    @property
    def hosts(self) -> str:
        """The address as clients take it: ``host:port``."""
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        try:
            self.host, port = self._read_ready_line()
        except BaseException:
            self._end()
            raise
        self.port = int(port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        finally:
            self._end()
        assert self.process.returncode == 0, f"the daemon's exit code is {self.process.returncode}"

    def _read_ready_line(self) -> tuple[str, str]:
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], READY_S)
        line = self.process.stdout.readline() if readable else ""
        match = re.fullmatch(r"zoolet ready on (\S+):(\d+)\n", line)
        assert match is not None, f"expected the ready line, found {line!r}"
        return match[1], match[2]

    def _end(self) -> None:
        assert self.process.stdout is not None
        self.process.kill()  # nothing happens to one that has ended
        self.process.wait()
        self.process.stdout.close()
