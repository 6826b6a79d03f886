"""The servers that the client is tried against, a fresh one or a fresh chroot for each test, and clients that end with
their test.

A test that takes ``hosts`` or ``zk`` runs twice: against the embedded server, and against Apache's.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.apache import ApacheZooKeeper
from support.relay import Relay
from support.simulation import Connect

from zoolet.client import Backoff, Client
from zoolet.server import Server

SOON = Backoff(first=0.001, longest=0.01)
"""Nobody waits for a server that a test will bring back in a moment."""


@pytest.fixture(scope="session")
def apache() -> Iterator[str]:
    """The address of Apache's server, one for the whole run."""
    with ApacheZooKeeper(config={"tickTime": "200"}) as apache:
        yield apache.hosts


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """The embedded server, in the test's own loop."""
    async with Server() as running:
        yield running


@pytest.fixture(params=["zoolet", "apache"])
async def hosts(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A connect string whose chroot nobody has used and which exists."""
    chroot = f"/test-{uuid.uuid4().hex}"
    async with AsyncExitStack() as stack:
        if request.param == "apache":
            at = request.getfixturevalue("apache")
        else:
            at = (await stack.enter_async_context(Server())).hosts
        async with Client(at) as maker:
            await maker.create(chroot)
        yield at + chroot


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """A function that gives a started client; afterwards all are closed, and have left no task behind."""
    clients: list[Client] = []

    async def start(hosts: str, **options: Any) -> Client:
        client = Client(hosts, **{"backoff": SOON, **options})
        clients.append(client)
        await client.start()
        return client

    yield start
    for client in reversed(clients):
        await client.aclose()
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("zoolet-client")]
    assert not left


@pytest.fixture
async def zk(hosts: str, connect: Connect) -> Client:
    """A connected client, below the chroot."""
    return await connect(hosts)


@pytest.fixture
async def embedded(server: Server, connect: Connect) -> Client:
    """A client of the embedded server, for what no server is to receive."""
    return await connect(server.hosts)


@pytest.fixture
async def relay(server: Server) -> AsyncIterator[Relay]:
    """A relay before the embedded server."""
    async with Relay(server.hosts) as standing:
        yield standing
