"""The fixtures with asyncio clients that pytest-asyncio runs; :mod:`.client_fixtures` chooses them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

from zoolet.server.testing.pytest.client_fixtures import clients_of

if TYPE_CHECKING:
    from zoolet.client import Client
    from zoolet.server.testing.pytest.factories import ClientFactory, ServerFactory
    from zoolet.server.testing.server import Server


@pytest_asyncio.fixture
async def _zoolet_clients_by_asyncio(
    _zoolet_of_clients: Server, zoolet_factory: ServerFactory
) -> AsyncIterator[ClientFactory]:
    async for connect in clients_of(_zoolet_of_clients, zoolet_factory):
        yield connect


@pytest_asyncio.fixture
async def _zoolet_client_by_asyncio(_zoolet_clients_by_asyncio: ClientFactory) -> Client:
    return await _zoolet_clients_by_asyncio()
