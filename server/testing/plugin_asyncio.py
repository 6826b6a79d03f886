"""The fixtures for asyncio tests; :mod:`.plugin` registers this module if pytest-asyncio is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest_asyncio

if TYPE_CHECKING:
    from zoolet.client import Client
    from zoolet.server.testing.server import Server


@pytest_asyncio.fixture
async def zoolet_client_factory(zoolet: Server) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Connect asyncio clients to ``zoolet``, with the arguments of ``Client``; they are closed at the end of the test:
    ``zk = await zoolet_client_factory(timeout=2.0)``.
    """
    from zoolet.client import Client

    clients: list[Client] = []

    async def connect(hosts: str | None = None, *arguments: Any, **options: Any) -> Client:
        client = Client(hosts or zoolet.hosts, *arguments, **options)
        await client.start()
        clients.append(client)
        return client

    yield connect
    zoolet.heal()  # otherwise they would wait for the replies to their close requests
    for client in reversed(clients):
        await client.aclose()


@pytest_asyncio.fixture
async def zoolet_client(zoolet_client_factory: Callable[..., Awaitable[Client]]) -> Client:
    """A connected asyncio client of ``zoolet``, closed at the end of the test."""
    return await zoolet_client_factory()
