"""A server in the running event loop with a real port, and its clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from support.engine import assemble_daemon
from support.waiting import DEADLINE_S, until
from support.wire import StreamWire

from zoolet.protocol import paths
from zoolet.server.config import ServerConfig
from zoolet.server.core.engine import Engine
from zoolet.server.net.daemon import Daemon
from zoolet.testing.state.clock import ManualClock


class LiveServer:
    """A server and the clients that are closed with it.

    Args:
        daemon: The server.
        host: The address to listen on.

    Attributes:
        clients: All clients that have connected, in order.
    """

    def __init__(self, daemon: Daemon, host: str = "127.0.0.1") -> None:
        self.daemon = daemon
        self.host = host
        self.clients: list[StreamWire] = []
        self._stopped = False

    @property
    def engine(self) -> Engine:
        """The server's engine."""
        return self.daemon.engine

    @property
    def port(self) -> int:
        """The plain port."""
        return self.daemon.port

    # --- clients ---

    async def dial(self, local: str | None = None, *, room: int = 0) -> StreamWire:
        """Connect without sending anything.

        Args:
            local: The client's address; None to let the system choose.
            room: The size of the socket's receive buffer, in bytes; 0 for the default.
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

    async def session(self, local: str | None = None) -> StreamWire:
        """Connect, optionally from a given local address, and open a session."""
        client = await self.dial(local)
        await client.shake_hands()
        return client

    async def dial_without_reading(self, requests: bytes) -> StreamWire:
        """Open a session on a socket with a small buffer, send requests, and stop reading."""
        client = await self.dial(room=4096)
        await client.shake_hands()
        before = len(self.daemon.connections.unread.by_connection)
        client.send(requests)
        await until(lambda: len(self.daemon.connections.unread.by_connection) > before)
        return client

    async def dial_secure(self, local: str | None = None, *, context: ssl.SSLContext | None = None) -> StreamWire:
        """Connect to the TLS port; without a context, send nothing."""
        where = (local, 0) if local is not None else None
        async with asyncio.timeout(DEADLINE_S):
            return self._keep(
                await asyncio.open_connection(self.host, self.daemon.secure_port, ssl=context, local_addr=where)
            )

    async def ask(self, *pieces: bytes) -> str:
        """Send a four-letter command in pieces, waiting until the server has received each one; return the answer."""
        client = await self.dial()
        missing = 4
        for piece in pieces[:-1]:
            client.send(piece)
            missing -= len(piece)
            await self._until_missing(missing)
        client.send(pieces[-1])
        answer = await client.rest()
        await client.close()  # otherwise the server waits a second for the client
        return answer.decode()

    async def _until_missing(self, count: int) -> None:
        await until(
            lambda: any(
                accepted.connection and accepted.connection.missing == count
                for accepted in self.daemon.connections.open.values()
            )
        )

    def _keep(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> StreamWire:
        client = StreamWire(*streams)
        self.clients.append(client)
        return client

    # --- the server ---

    def advance(self, milliseconds: int) -> None:
        """Advance the server's manual clock, and run a tick."""
        clock = self.daemon.connections.clock
        assert isinstance(clock, ManualClock)
        clock.move_to(clock.monotonic_ms + milliseconds)
        self.daemon.tick()

    def make_node(self, path: str, size: int) -> None:
        """Create a node of *size* bytes directly in the tree, without events."""
        self.engine.tree.create(path, paths.name(path), self.engine.tree.parent_of(path), bytes(size), 0, 0, 1, 0)

    async def settle(self) -> None:
        """Wait until the server has noticed that all connections are closed."""
        await until(lambda: not self.daemon.connections.open)

    async def stop(self, *, gracefully: bool = True) -> None:
        """Stop the server, unless it has been stopped before."""
        if not self._stopped:
            self._stopped = True
            await self.daemon.stop(gracefully=gracefully)

    async def close(self) -> None:
        """Abort the clients and stop the server."""
        for client in self.clients:
            await client.abort()
        await self.stop(gracefully=False)


Serve = Callable[..., Awaitable[LiveServer]]
"""A function that starts a server; its arguments are fields of ServerConfig."""
Dial = Callable[..., Awaitable[StreamWire]]
"""A function that connects to a server and, by default, opens a session."""


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server; its arguments are fields of ServerConfig."""
    servers: list[LiveServer] = []

    async def start(**config: Any) -> LiveServer:
        complete = ServerConfig(**{"max_client_cnxns": 0, **config})
        server = LiveServer(assemble_daemon(complete), complete.host or "127.0.0.1")
        await server.daemon.start(server.host, 0)
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.close()
