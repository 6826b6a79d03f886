"""The shell inside the test process, which executes lines and returns their output."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from support.zkcli import TranscriptStep, parse_step

from zoolet.cli.shell.interpreter import execute
from zoolet.cli.shell.output import ShellOutput
from zoolet.cli.shell.shell import ConnectionSettings, Shell
from zoolet.client.wire.states import State

TREE: Final = {"/app": "root", "/app/a": "one", "/app/a/b": "two\nlines", "/app/c": b"\xff\x00", "/other": ""}
"""The nodes that the shell of a test starts with."""


class Screen(io.StringIO):
    """An output stream for the shell, optionally a terminal."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._terminal

    def pop(self) -> str:
        """Return the output since the last call."""
        text = self.getvalue()
        self.seek(0)
        self.truncate()
        return text


class LineOutput(NamedTuple):
    """The output and the exit code of one line.

    Args:
        out: Output on the first stream.
        err: Output on the second stream.
        code: The line's exit code.
    """

    out: str
    err: str
    code: int


class ShellDriver:
    """A connected shell that executes lines and returns their output.

    Args:
        shell: The shell.
        out: Its first stream.
        err: Its second stream; may be the same stream.
    """

    def __init__(self, shell: Shell, out: Screen, err: Screen) -> None:
        self.shell = shell
        self._out = out
        self._err = err

    async def __call__(self, line: str) -> LineOutput:
        """Execute a line, and return its output."""
        code = await execute(self.shell, line)
        for _ in range(3):  # for events that the server sent with the answer
            await asyncio.sleep(0)
        return LineOutput(self._out.pop(), self._err.pop() if self._err is not self._out else "", code)

    async def type(self, lines: Sequence[str]) -> list[TranscriptStep]:
        """Execute lines, each followed by a marker as in a recording, and return what they printed."""
        steps = []
        await execute(self.shell, "ls /marker-0")
        self._out.pop()
        for number, line in enumerate(lines, 1):
            printed = await self(line)
            await execute(self.shell, f"ls /marker-{number}")
            late = self._out.pop().partition(f"Node does not exist: /marker-{number}\n")[0]
            steps.append(parse_step(line, (printed.out + late).split("\n")[:-1]))
        return steps


@asynccontextmanager
async def open_shell(
    hosts: str, *, terminal: bool = False, as_json: bool = False, colour: bool = False, one_stream: bool = False
) -> AsyncIterator[ShellDriver]:
    """Yield a connected shell, on a terminal or not."""
    out = Screen(terminal)
    err = out if one_stream else Screen(terminal)
    shell = Shell(ConnectionSettings(hosts), ShellOutput(out, err, as_json=as_json, colour=colour))
    await shell.connect()
    try:
        await shell.client.wait_for(State.CONNECTED)
        out.pop()
        yield ShellDriver(shell, out, err)
    finally:
        await shell.close()
