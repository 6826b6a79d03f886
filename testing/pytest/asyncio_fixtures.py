"""The fixtures with asyncio clients for pytest-asyncio. :mod:`.client_fixtures` selects them.

Each scope of event loops has a pair of fixtures, because a client belongs to the loop of its test.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

import pytest
import pytest_asyncio

from .client_fixtures import LOOP_SCOPES, connect_client, connect_clients

if TYPE_CHECKING:
    from ...client import Client
    from ..server import Server
    from .factories import ClientFactory, ServerFactory

_HAS_LOOP_SCOPES: Final = "loop_scope" in inspect.signature(pytest_asyncio.fixture).parameters  # since 0.24


def _client_fixtures(scope: str) -> dict[str, Any]:
    """Return the two fixtures for tests whose event loop has a scope, by their names."""
    options: dict[str, Any] = {"loop_scope": scope} if _HAS_LOOP_SCOPES else {}

    @pytest_asyncio.fixture(**options)
    async def clients(_zoolet_of_clients: Server, zoolet_factory: ServerFactory) -> AsyncIterator[ClientFactory]:
        _check_scope(scope)
        async for connect in connect_clients(_zoolet_of_clients, zoolet_factory):
            yield connect

    @pytest_asyncio.fixture(**options)
    async def client(_zoolet_of_clients: Server, zoolet_factory: ServerFactory) -> AsyncIterator[Client]:
        _check_scope(scope)
        async for one in connect_client(_zoolet_of_clients, zoolet_factory):
            yield one

    return {f"_zoolet_clients_by_asyncio_{scope}": clients, f"_zoolet_client_by_asyncio_{scope}": client}


def _check_scope(scope: str) -> None:
    if scope != "function" and not _HAS_LOOP_SCOPES:
        pytest.fail(f"a client in a loop of the scope {scope} requires pytest-asyncio 0.24", pytrace=False)


for _scope in LOOP_SCOPES:
    globals().update(_client_fixtures(_scope))
