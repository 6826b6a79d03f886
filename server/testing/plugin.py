"""The pytest plugin. It is loaded in every project that has zoolet installed: what it needs it imports when used."""

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
    """Offer the ini option ``zoolet_leaks``."""
    parser.addini(
        "zoolet_leaks",
        "what to do about sessions, ephemeral nodes, watches and lock contenders that a test leaves: off, warn, error",
        default="off",
    )


class _WithoutAsyncio:
    """What takes the place of :mod:`.plugin_asyncio`."""

    @pytest.fixture
    def zoolet_client(self) -> None:
        """Return what is missing."""
        pytest.fail("zoolet_client needs the plugin pytest-asyncio: pip install pytest-asyncio", pytrace=False)


def pytest_configure(config: pytest.Config) -> None:
    """Offer ``zoolet_client``, which only pytest-asyncio can run."""
    if config.pluginmanager.hasplugin("asyncio"):
        from zoolet.server.testing import plugin_asyncio

        config.pluginmanager.register(plugin_asyncio, "zoolet-asyncio")
    else:
        config.pluginmanager.register(_WithoutAsyncio(), "zoolet-asyncio")


@pytest.fixture(scope="session")
def zoolet_server() -> Iterator[Server]:
    """One ZooKeeper for the whole run."""
    from zoolet.server.testing.server import Server

    with Server() as server:
        yield server


@pytest.fixture
def zoolet(zoolet_server: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ZooKeeper with fresh state for each test."""
    wanted = request.config.getini("zoolet_leaks")
    if wanted not in _LEAKS:
        raise pytest.UsageError(f"zoolet_leaks is {wanted!r}; it must be one of {', '.join(_LEAKS)}")
    zoolet_server.reset()
    request.node.stash[_SERVER] = zoolet_server
    yield zoolet_server
    if wanted == "off":
        return
    from zoolet.server.testing import report

    left = report.leaks(zoolet_server)
    if left:
        message = f"{request.node.nodeid} has left at zoolet:\n" + "\n".join(f"  {line}" for line in left)
        if wanted == "error":
            pytest.fail(message, pytrace=False)
        warnings.warn(pytest.PytestWarning(message), stacklevel=1)


@pytest.fixture
def zoolet_factory() -> Iterator[Callable[..., Server]]:
    """Make more ZooKeepers, with the arguments of ``Server``; they run until the end of the test."""
    from zoolet.server.testing.server import Server

    made: list[Server] = []

    def start(**options: Any) -> Server:
        server = Server(**options)
        server.start()
        made.append(server)
        return server

    yield start
    for server in made:
        server.stop()


@pytest.fixture
def zoolet_kazoo(zoolet: Server) -> Iterator[Callable[..., KazooClient]]:
    """Make connected KazooClients of ``zoolet``, with the arguments of ``KazooClient``; stopped at the end."""
    from kazoo.client import KazooClient

    made: list[KazooClient] = []

    def connect(hosts: str | None = None, **options: Any) -> KazooClient:
        client = KazooClient(hosts or zoolet.hosts, **options)
        made.append(client)
        client.start()
        return client

    yield connect
    zoolet.resume("all")  # or a client would wait for its session to end until it gives up
    zoolet.accept_connections()
    for client in made:
        session = getattr(client, "_session_id", None)
        client.stop()
        client.close()
        if session in zoolet.sessions():  # it had no connection to end it with
            zoolet.expire(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what the server knows to the report of a test that fails."""
    report = yield
    server = item.stash.get(_SERVER, None)
    if report.failed and call.when == "call" and server is not None:
        from zoolet.server.testing.report import describe

        try:
            said = describe(server, {})
        except RuntimeError as error:  # the test has stopped it
            said = str(error)
        report.sections.append(("zoolet", said))
    return report
