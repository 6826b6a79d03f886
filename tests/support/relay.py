"""A relay between a client and a server that modifies frames of the first connection for a test."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.framing import frame

Answer = Callable[[bytes], bytes]
"""Maps a payload from the server to the bytes that the client receives in its place."""
HANDSHAKE, FIRST = 0, 1  # numbers of frames from the server


class Relay:
    """A relay between clients and a server, which replaces one frame of the first connection.

    Args:
        server: The address of the server, as ``host:port``.

    Attributes:
        number: Number of the frame to replace on the first connection.
        breaks: Function that returns the replacement.
        then: State of the connection afterwards: ``"go on"``, ``"close"``, ``"reset"``, or ``"stall"``.
        chop: Whether to send every byte separately.
    """

    def __init__(self, server: str) -> None:
        self.number = -1
        self.breaks: Answer = frame
        self.then = "go on"
        self.chop = False
        self.connections = 0
        self._host, _, self._port = server.partition(":")
        self._open: set[asyncio.StreamWriter] = set()
        self._listening: asyncio.Server
        self._running: set[asyncio.Task[None]] = set()
        self.hosts = ""

    async def __aenter__(self) -> Relay:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.hosts = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def drop(self) -> None:
        """Abort all connections immediately. Unread bytes are lost."""
        for end in self._open:
            end.transport.abort()

    async def _serve(self, mine: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self._running.add(task)
        self.connections += 1
        first = self.connections == 1
        ends = {to_client}
        self._open |= ends
        try:
            its, to_server = await asyncio.open_connection(self._host, int(self._port))
            ends.add(to_server)
            self._open |= ends
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask(mine, to_server))
                try:
                    await self._answer(its, to_client, first)
                except (asyncio.IncompleteReadError, OSError):
                    pass
                asking.cancel()
        except asyncio.CancelledError:
            pass  # the task ends here, so the cancellation need not be raised again
        finally:
            self._open -= ends
            for end in ends:
                end.close()
            self._running.discard(task)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bool) -> None:
        number = -1
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            payload = await reader.readexactly(length)
            number += 1
            broken = first and number == self.number
            data = self.breaks(payload) if broken else frame(payload)
            for at in range(len(data) if self.chop else 1):
                writer.write(data[at : at + 1] if self.chop else data)
                await asyncio.sleep(0)
            if broken and self.then == "reset":
                writer.transport.abort()
            if broken and self.then == "stall":
                await asyncio.Event().wait()
            if broken and self.then in ("close", "reset"):
                return


def reply(xid: int, zxid: int = 1, err: int = 0, body: bytes = b"") -> bytes:
    """Return a reply's frame."""
    return frame(r.ReplyHeader(xid, zxid, err).encode() + body)


def event(kind: int, path: bytes) -> bytes:
    """Return a notification's frame."""
    return reply(-1, -1, 0, pack_int(kind) + pack_int(3) + path)


def text(content: bytes) -> bytes:
    """Return a string in its wire format."""
    return pack_int(len(content)) + content
