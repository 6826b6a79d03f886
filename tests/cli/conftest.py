"""The servers for tests of commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from support.transfers import TREE

from zoolet.client.blocking import Client
from zoolet.testing import Server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """The embedded server, in the event loop of the test."""
    async with Server() as running:
        yield running


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    """A server with a tree and an ephemeral node, and an empty one."""
    with ExitStack() as stack:
        first, second = stack.enter_context(Server(seed=1)), stack.enter_context(Server(seed=2))
        first.populate(TREE)
        client = stack.enter_context(Client(first.hosts))
        client.create("/app/ephemeral", b"", ephemeral=True)
        yield first, second
