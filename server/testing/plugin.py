"""The pytest plugin. Every project that has zoolet installed loads it, so it imports modules only on first use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kazoo.client import KazooClient

    from zoolet.server.testing.server import Server

_LEAKS = ("off", "warn", "error")
_SERVER: pytest.StashKey[Server] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ini option ``zoolet_leaks``."""
    parser.addini(
        "zoolet_leaks",
        "what to do about sessions, ephemeral nodes, watches and lock contenders that a test leaves: off, warn, error",
        default="warn",
    )


class _WithoutAsyncio:
    """Replaces :mod:`.plugin_asyncio` if pytest-asyncio is not installed."""

    @pytest.fixture
    def zoolet_client_factory(self) -> None:
        """Fail with a message that names the missing plugin."""
        pytest.fail("zoolet_client needs the plugin pytest-asyncio: pip install pytest-asyncio", pytrace=False)

    @pytest.fixture
    def zoolet_client(self, zoolet_client_factory: None) -> None:
        """Fail as the factory does."""


def pytest_configure(config: pytest.Config) -> None:
    """Register the fixtures that need pytest-asyncio."""
    if config.pluginmanager.hasplugin("asyncio"):
        from zoolet.server.testing import plugin_asyncio

        config.pluginmanager.register(plugin_asyncio, "zoolet-asyncio")
    else:
        config.pluginmanager.register(_WithoutAsyncio(), "zoolet-asyncio")


@pytest.fixture(scope="session")
def zoolet_server() -> Iterator[Server]:
    """A ZooKeeper server for the whole run; its state is that which earlier tests have left."""
    from zoolet.server.testing.server import Server

    with Server() as server:
        yield server


@pytest.fixture
def zoolet(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper server for each test, on a port of its own: a client that another test has left never gets in."""
    from zoolet.server.testing.server import Server

    on_leaks = request.config.getini("zoolet_leaks")
    if on_leaks not in _LEAKS:
        raise pytest.UsageError(f"zoolet_leaks is {on_leaks!r}; it must be one of {', '.join(_LEAKS)}")
    with Server() as server:
        request.node.stash[_SERVER] = server
        yield server
        if on_leaks == "off" or not server.running:
            return
        from zoolet.server.testing import report

        leaks = report.leaks(server)
    if leaks:
        message = f"{request.node.nodeid} has left at zoolet:\n" + "\n".join(f"  {leak}" for leak in leaks)
        if on_leaks == "error":
            pytest.fail(message, pytrace=False)
        warnings.warn(pytest.PytestWarning(message), stacklevel=1)


@pytest.fixture
def zoolet_factory() -> Iterator[Callable[..., Server]]:
    """Start more ZooKeeper servers, with the arguments of ``Server``; they run until the end of the test."""
    from zoolet.server.testing.server import Server

    servers: list[Server] = []

    def start(**options: Any) -> Server:
        server = Server(**options)
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def zoolet_kazoo(zoolet_kazoo_factory: Callable[..., KazooClient]) -> KazooClient:
    """A connected KazooClient of ``zoolet``, stopped at the end of the test."""
    return zoolet_kazoo_factory()


@pytest.fixture
def zoolet_kazoo_factory(zoolet: Server) -> Iterator[Callable[..., KazooClient]]:
    """Start KazooClients for ``zoolet``, with the arguments of ``KazooClient``; they are stopped at the end."""
    from kazoo.client import KazooClient

    from zoolet.server.testing.clients import session_id_of

    clients: list[KazooClient] = []

    def connect(hosts: str | None = None, **options: Any) -> KazooClient:
        client = KazooClient(hosts or zoolet.hosts, **options)
        clients.append(client)
        client.start()
        return client

    yield connect
    zoolet.heal()  # otherwise a client would wait for a reply to its close until it times out
    for client in clients:
        session_id = session_id_of(client, 0)
        client.stop()
        client.close()
        if session_id in zoolet.sessions():  # the client had no connection on which to close it
            zoolet.expire(session_id)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the state of the server to the report of a test that fails."""
    report = yield
    server = item.stash.get(_SERVER, None)
    if report.failed and call.when == "call" and server is not None:
        from zoolet.server.testing.report import describe

        try:
            description = describe(server, {})
        except RuntimeError as error:  # the test has stopped it
            description = str(error)
        report.sections.append(("zoolet", description))
    return report
