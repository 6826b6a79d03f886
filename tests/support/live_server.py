"""A server in the running loop with a real port, and the clients that connect to it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from support.engine import assemble_daemon
from support.raw_client import RawClient
from support.waiting import DEADLINE_S, until

from zoolet.server.config import Config
from zoolet.server.core.engine import Engine
from zoolet.server.net.daemon import Daemon
from zoolet.server.testing.clock import ManualClock


class LiveServer:
    """A server, and clients that end with it.

    Args:
        listener: The server.
        host: The address on which it is to listen.

    Attributes:
        clients: All clients that have connected, in order.
    """

    def __init__(self, listener: Daemon, host: str = "127.0.0.1") -> None:
        self.listener = listener
        self.host = host
        self.clients: list[RawClient] = []
        self._stopped = False

    @property
    def engine(self) -> Engine:
        """What answers."""
        return self.listener.engine

    @property
    def port(self) -> int:
        """The plain port."""
        return self.listener.port

    # --- clients ---

    async def dial(self, local: str | None = None, *, room: int = 0) -> RawClient:
        """Connect, and say nothing yet.

        Args:
            local: The client's own address; None for whatever the machine chooses.
            room: How many bytes the client's kernel keeps for it while it does not read; 0 for the usual.
        """
        link = socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if room:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        if local is not None:
            link.bind((local, 0))
        link.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(link, (self.host, self.port))
        except BaseException:
            link.close()
            raise
        return self._keep(await asyncio.open_connection(sock=link, limit=room or 1 << 16))

    async def session(self, local: str | None = None) -> RawClient:
        """Connect, from an address of this machine if one is given, and open a session."""
        client = await self.dial(local)
        await client.shake_hands()
        return client

    async def dial_without_reading(self, requests: bytes) -> RawClient:
        """Open a session with a socket that holds little, ask, and read no more."""
        client = await self.dial(room=4096)
        await client.shake_hands()
        before = len(self.listener.connections.unread.by_connection)
        client.send(requests)
        await until(lambda: len(self.listener.connections.unread.by_connection) > before)
        return client

    async def dial_secure(self, local: str | None = None, *, context: ssl.SSLContext | None = None) -> RawClient:
        """Connect to the port for TLS; without a context, say nothing."""
        where = (local, 0) if local is not None else None
        async with asyncio.timeout(DEADLINE_S):
            return self._keep(
                await asyncio.open_connection(self.host, self.listener.secure_port, ssl=context, local_addr=where)
            )

    async def ask(self, *pieces: bytes) -> str:
        """Send a four-letter command, each piece once the server has the one before; return what comes back."""
        client = await self.dial()
        missing = 4
        for piece in pieces[:-1]:
            client.send(piece)
            missing -= len(piece)
            await self._until_missing(missing)
        client.send(pieces[-1])
        answer = await client.rest()
        await client.close()  # or the server waits a second for it
        return answer.decode()

    async def _until_missing(self, count: int) -> None:
        await until(
            lambda: any(
                one.connection and one.connection.missing == count for one in self.listener.connections.open.values()
            )
        )

    def _keep(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> RawClient:
        client = RawClient(*streams)
        self.clients.append(client)
        return client

    # --- the server ---

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and do what is due; only with a manual clock."""
        clock = self.listener.connections.clock
        assert isinstance(clock, ManualClock)
        clock.move_to(clock.monotonic_ms + milliseconds)
        self.listener.tick()

    def make_node(self, path: str, size: int) -> None:
        """Make a node of so many bytes behind the back of all clients."""
        self.engine.tree.create(path, bytes(size), 0, 0, 1, 0)

    async def settle(self) -> None:
        """Wait until the server has seen that all connections are gone."""
        await until(lambda: not self.listener.connections.open)

    async def stop(self, *, gracefully: bool = True) -> None:
        """Stop the server, once."""
        if not self._stopped:
            self._stopped = True
            await self.listener.stop(gracefully=gracefully)

    async def close(self) -> None:
        """Abort the clients and stop the server."""
        for client in self.clients:
            client.writer.transport.abort()
            with suppress(OSError):
                await client.writer.wait_closed()
        await self.stop(gracefully=False)


Serve = Callable[..., Awaitable[LiveServer]]
"""A function that starts a server; takes fields of its Config."""
Dial = Callable[..., Awaitable[RawClient]]
"""A function that connects to a server and, unless told otherwise, opens a session."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server; takes fields of its Config."""
    servers: list[LiveServer] = []

    async def start(**config: Any) -> LiveServer:
        settled = Config(**{"max_client_cnxns": 0, **config})
        server = LiveServer(assemble_daemon(settled), settled.host or "127.0.0.1")
        await server.listener.start(server.host, 0)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close()
