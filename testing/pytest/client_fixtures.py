"""The fixtures with asyncio clients, for tests that pytest-asyncio or anyio's plugin runs.

:mod:`.fixtures` registers these fixtures if one of the plugins is installed.

The plugin whose event loop runs a test must also run its fixtures. This is anyio's plugin if the test uses the fixture
``anyio_backend``. Otherwise it is pytest-asyncio, whose fixtures are in :mod:`.asyncio_fixtures`.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ...client import Client
    from ..server import Server
    from .factories import ClientFactory, ServerFactory

LOOP_SCOPES: Final = ("function", "class", "module", "package", "session")
"""The scopes of pytest-asyncio's event loops."""


@pytest.fixture
def zoolet_client_factory(request: pytest.FixtureRequest) -> ClientFactory:
    """Connect asyncio clients to ``zoolet``: ``zk = await zoolet_client_factory(timeout=2.0)``.

    The arguments are the same as for ``Client``. The clients are closed at the end of the test.
    """
    factory: ClientFactory = request.getfixturevalue(f"_zoolet_clients_by_{_plugin_name(request)}")
    return factory


@pytest.fixture
def zoolet_client(request: pytest.FixtureRequest) -> Client:
    """A connected asyncio client of ``zoolet``, closed at the end of the test."""
    client: Client = request.getfixturevalue(f"_zoolet_client_by_{_plugin_name(request)}")
    return client


def _plugin_name(request: pytest.FixtureRequest) -> str:
    if "anyio_backend" in request.fixturenames:
        if request.getfixturevalue("anyio_backend_name") != "asyncio":
            pytest.fail("zoolet_client needs asyncio; let the fixture anyio_backend return 'asyncio'", pytrace=False)
        return "anyio"
    if not request.config.pluginmanager.hasplugin("asyncio"):
        pytest.fail("zoolet_client needs pytest-asyncio, or a test with @pytest.mark.anyio", pytrace=False)
    return f"asyncio_{_loop_scope(request)}"


def _loop_scope(request: pytest.FixtureRequest) -> str:
    """Return the scope of the test's event loop, as pytest-asyncio determines it."""
    marker = request.node.get_closest_marker("asyncio")
    given = {} if marker is None else marker.kwargs
    try:
        default = request.config.getini("asyncio_default_test_loop_scope")  # since pytest-asyncio 0.26
    except (KeyError, ValueError):
        default = None
    scope = given.get("loop_scope") or given.get("scope") or default
    return scope if scope in LOOP_SCOPES else "function"  # pytest-asyncio itself rejects an unknown scope


async def connect_clients(zoolet: Server, zoolet_factory: ServerFactory) -> AsyncIterator[ClientFactory]:
    """Yield a function that connects clients. At the end, end all faults and close the clients."""
    from ...client import Client
    from ..registry import heal_all
    from ..run.clients import name_client, trusted_ca_file
    from ..state import report

    clients: list[Client] = []

    async def connect(hosts: str | None = None, *arguments: Any, **options: Any) -> Client:
        servers = [zoolet, *getattr(zoolet_factory, "started", ())]
        if (authority := trusted_ca_file(servers, hosts or zoolet.hosts)) is not None:
            options = {"tls": ssl.create_default_context(cafile=authority), **options}
        client = Client(hosts or zoolet.hosts, *arguments, **options)
        await client.start()
        clients.append(client)
        name_client(client, "zoolet_client")
        return client

    try:
        yield connect
    finally:
        report.names.clear()
        heal_all([zoolet, *getattr(zoolet_factory, "started", ())])
        for client in reversed(clients):
            await client.aclose()


async def connect_client(zoolet: Server, zoolet_factory: ServerFactory) -> AsyncIterator[Client]:
    """Yield a connected client. At the end, end all faults and close the client."""
    async with asynccontextmanager(connect_clients)(zoolet, zoolet_factory) as connect:
        yield await connect()


@pytest.fixture
async def _zoolet_clients_by_anyio(
    _zoolet_of_clients: Server, zoolet_factory: ServerFactory
) -> AsyncIterator[ClientFactory]:
    async for connect in connect_clients(_zoolet_of_clients, zoolet_factory):
        yield connect


@pytest.fixture
async def _zoolet_client_by_anyio(_zoolet_of_clients: Server, zoolet_factory: ServerFactory) -> AsyncIterator[Client]:
    async for client in connect_client(_zoolet_of_clients, zoolet_factory):
        yield client
