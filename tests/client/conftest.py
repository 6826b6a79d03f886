"""Servers for tests of the client, with a fresh server or a fresh chroot for each test, and clients that are closed
after each test.

A test that uses ``hosts`` or ``zk`` runs twice: with the embedded server and with Apache's server.
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
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client, State
from zoolet.testing import Server

SOON = Backoff(first=0.001, longest=0.01)
"""Short delays, because a test restarts its server immediately."""


@pytest.fixture(scope="session")
def apache() -> Iterator[str]:
    """The address of one Apache server for the whole run."""
    with ApacheZooKeeper(config={"tickTime": "200"}) as apache:
        yield apache.hosts


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """The embedded server, in the event loop of the test."""
    async with Server() as running:
        yield running


@pytest.fixture(params=["zoolet", "apache"])
async def hosts(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A connection string with a new, existing chroot."""
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
    """A function that returns a started client; at the end all clients are closed, and no task may be left."""
    clients: list[Client] = []

    async def start(hosts: str, **options: Any) -> Client:
        client = Client(hosts, **{"backoff": SOON, **options})
        clients.append(client)
        await client.start(wait=False)
        # The session timeout may be as short as 0.1 s, and connecting may take that long on a busy machine.
        async with asyncio.timeout(DEADLINE_S):
            await client.wait_for(State.CONNECTED, State.READ_ONLY)
        return client

    yield start
    for client in reversed(clients):
        await client.aclose()
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("zoolet-client")]
    assert not left


@pytest.fixture
async def zk(hosts: str, connect: Connect) -> Client:
    """A connected client in the chroot."""
    return await connect(hosts)


@pytest.fixture
async def embedded(server: Server, connect: Connect) -> Client:
    """A client of the embedded server, for tests of calls that never reach a server."""
    return await connect(server.hosts)


@pytest.fixture
async def relay(server: Server) -> AsyncIterator[Relay]:
    """A relay in front of the embedded server."""
    async with Relay(server.hosts) as standing:
        yield standing
