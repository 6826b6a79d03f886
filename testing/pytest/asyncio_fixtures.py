"""The fixtures with asyncio clients for pytest-asyncio. :mod:`.client_fixtures` selects them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import pytest_asyncio

from .client_fixtures import clients_of

if TYPE_CHECKING:
    from ...client import Client
    from ..server import Server
    from .factories import ClientFactory, ServerFactory


@pytest_asyncio.fixture
async def _zoolet_clients_by_asyncio(
    _zoolet_of_clients: Server, zoolet_factory: ServerFactory
) -> AsyncIterator[ClientFactory]:
    async for connect in clients_of(_zoolet_of_clients, zoolet_factory):
        yield connect


@pytest_asyncio.fixture
async def _zoolet_client_by_asyncio(_zoolet_clients_by_asyncio: ClientFactory) -> Client:
    return await _zoolet_clients_by_asyncio()
