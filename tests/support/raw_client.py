"""A client reduced to its streams: it sends the bytes that it is given and decodes only what a test asks for."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Final

from support.frames import request
from support.peer import Reply
from support.waiting import DEADLINE_S

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.enums import CreateMode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

RESET: Final = struct.pack("ii", 1, 0)
"""The value of ``SO_LINGER`` with which a close sends RST."""


class RawClient:
    """One connection.

    Attributes:
        welcome: The connect response; None before the handshake.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.welcome: ConnectResponse | None = None

    @property
    def address(self) -> str:
        """The client's address in ZooKeeper's format."""
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"/{host}:{port}"

    @property
    def session_id(self) -> int:
        """The id of its session."""
        assert self.welcome is not None
        return self.welcome.session_id

    # --- bytes ---

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def end(self) -> None:
        """Send nothing more: half-close."""
        self.writer.write_eof()

    async def rest(self) -> bytes:
        """Wait for the server to close; return the bytes that it sent before."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def closed(self) -> bytes:
        """Wait for the server to close, even with a reset; return the bytes that it sent before."""
        with suppress(ConnectionError):
            return await self.rest()
        return b""

    async def close(self) -> None:
        """Close the socket."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    async def reset(self) -> None:
        """Close the socket as a machine that crashed does, with RST."""
        link: socket.socket = self.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.writer.transport.abort()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    # --- frames ---

    async def payload(self) -> bytes:
        """Wait for one frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = int_at(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def answer(self) -> Reply:
        """Wait for one reply."""
        payload = await self.payload()
        header = r.ReplyHeader.decode(payload)
        return Reply(header.xid, header.zxid, header.err, payload[16:])

    async def answers(self, count: int) -> list[Reply]:
        """Wait for so many replies."""
        return [await self.answer() for _ in range(count)]

    async def xid(self) -> int:
        """Wait for one reply; return its xid."""
        (xid,) = int_at(await self.payload())
        return int(xid)

    async def xids(self, count: int) -> list[int]:
        """Wait for so many replies; return their xids."""
        return [await self.xid() for _ in range(count)]

    # --- operations ---

    async def shake_hands(self, session: int = 0, password: bytes = bytes(16)) -> ConnectResponse:
        """Open or resume a session of 30 seconds."""
        self.send(frame(ConnectRequest(0, 30_000, session, password).encode()))
        self.welcome = ConnectResponse.decode(await self.payload())
        return self.welcome

    async def call(self, op: OpCode, body: Record | bytes = b"", xid: int = 1) -> None:
        """Send one request and wait for its reply, skipping notifications."""
        self.send(request(xid, op, body))
        while await self.xid() != xid:
            pass

    async def create(self, path: str, mode: CreateMode = CreateMode.PERSISTENT, data: bytes = b"") -> None:
        """Create a node."""
        await self.call(OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, mode))

    async def watch(self, path: str) -> None:
        """Set a data watch; the node need not exist."""
        await self.call(OpCode.EXISTS, r.ExistsRequest(path, True))


def reset_at_once(port: int, data: bytes = b"") -> int:
    """Connect, send and reset, all before the server's loop can accept; return the number of bytes."""
    link = socket.create_connection(("127.0.0.1", port))
    link.sendall(data)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    link.close()
    return len(data)
