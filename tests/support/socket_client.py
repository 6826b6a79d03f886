"""A client reduced to its socket: it sends even while the loop is blocked, and reads only on request."""

from __future__ import annotations

import asyncio
import socket
import time

from support import frames
from support.waiting import DEADLINE_S

from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse


class SocketClient:
    """One connection, which reads only what a test waits for.

    Args:
        link: The connected socket; its creator closes it.
    """

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        link.setblocking(False)
        self.loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        async with asyncio.timeout(DEADLINE_S):
            await self.loop.sock_sendall(self.link, data)

    async def read(self, size: int) -> bytearray:
        """Wait for so many bytes."""
        buf = bytearray(size)
        view, offset = memoryview(buf), 0
        async with asyncio.timeout(DEADLINE_S):
            while offset < size:
                count = await self.loop.sock_recv_into(self.link, view[offset:])
                if not count:
                    raise EOFError(f"the server closed after {offset} of {size} bytes")
                offset += count
        return buf

    async def payload(self) -> bytearray:
        """Wait for one frame."""
        (length,) = int_at(await self.read(4))
        return await self.read(length)

    async def shake_hands(self, timeout_ms: int = 40_000) -> ConnectResponse:
        """Open a session."""
        await self.send(frame(ConnectRequest(timeout_ms=timeout_ms).encode()))
        return ConnectResponse.decode(bytes(await self.payload()))

    async def call(self, request: bytes) -> int:
        """Send one framed request; return the error of its reply."""
        await self.send(request)
        header = r.ReplyHeader.decode(bytes(await self.payload()))
        assert (header.xid,) == int_at(request, 4)
        return header.err

    def ping(self) -> None:
        """Send a ping at once, whether the loop runs or not."""
        self.link.send(frames.ping())

    def ping_for(self, seconds: float) -> None:
        """Block the loop for *seconds*, and send pings during that time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.ping()
            time.sleep(0.01)
