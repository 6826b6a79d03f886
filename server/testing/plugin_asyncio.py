"""The fixture for asyncio tests; :mod:`.plugin` registers this module if pytest-asyncio is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

if TYPE_CHECKING:
    from zoolet.client import Client
    from zoolet.server.testing.server import Server


@pytest_asyncio.fixture
async def zoolet_client(zoolet: Server) -> AsyncIterator[Client]:
    """A connected asyncio client of ``zoolet``, closed at the end of the test."""
    from zoolet.client import Client

    async with Client(zoolet.hosts) as client:
        yield client
        zoolet.resume("all")  # otherwise it would wait for the reply to its close request
        zoolet.accept_connections()
