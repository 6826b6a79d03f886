"""A regular expression search in a separate process, which can be killed, because some expressions take hours."""

from __future__ import annotations

import asyncio
import struct
import sys
from types import TracebackType
from typing import Final, Self

from .errors import ShellCommandError

_SIZE_STRUCT: Final = struct.Struct(">I")
PROGRAM: Final = """
import re, struct, sys
size, source, out = struct.Struct(">I"), sys.stdin.buffer, sys.stdout.buffer
def read():
    head = source.read(4)
    return source.read(size.unpack(head)[0]) if len(head) == 4 else None
def write(data):
    out.write(size.pack(len(data)) + data)
flags, expression = read(), read()
try:
    pattern = re.compile(expression, re.IGNORECASE if flags else 0)
except Exception as error:
    write(str(error).encode("utf-8", "replace") or b"the expression is too complex")
    out.flush()
    sys.exit()
write(b"")
out.flush()
while (data := read()) is not None:
    lines = [line for line in data.split(b"\\n") if pattern.search(line)]
    write(size.pack(len(lines)))
    for line in lines:
        write(line)
    out.flush()
"""
"""Program of the search process. Each message consists of its size in four bytes, and its bytes."""


class Matcher:
    """A search process: ``async with Matcher(rb"a.*b") as matcher: await matcher.lines(data)``.

    Args:
        pattern: Regular expression to search for.
        ignore_case: Whether the search ignores case.
    """

    def __init__(self, pattern: bytes, *, ignore_case: bool = False) -> None:
        self._pattern = pattern
        self._flags = b"i" if ignore_case else b""
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start the search process, and send it the pattern.

        Raises:
            ShellCommandError: The pattern is not a valid regular expression.
        """
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-W", "ignore", "-c", PROGRAM, stdin=pipe, stdout=pipe, start_new_session=True
        )
        try:
            self._send(self._flags, self._pattern)
            error = await self._receive()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        if error:
            await self.__aexit__(None, None, None)
            shown, why = self._pattern.decode("utf-8", "replace"), error.decode("utf-8", "replace")
            raise ShellCommandError(f"{shown} is not a valid regular expression: {why}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def lines(self, data: bytes) -> list[bytes]:
        """Return the lines of *data* that match.

        Raises:
            ShellCommandError: The process exited.
        """
        self._send(data)
        (count,) = _SIZE_STRUCT.unpack(await self._receive())
        return [await self._receive() for _ in range(count)]

    def _send(self, *messages: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        for message in messages:
            self._process.stdin.write(_SIZE_STRUCT.pack(len(message)) + message)

    async def _receive(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            (size,) = _SIZE_STRUCT.unpack(await self._process.stdout.readexactly(_SIZE_STRUCT.size))
            return await self._process.stdout.readexactly(size)
        except asyncio.IncompleteReadError:
            raise ShellCommandError("the search process exited unexpectedly") from None
