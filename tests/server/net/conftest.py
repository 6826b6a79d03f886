"""Servers in the running event loop; every asynchronous test here runs on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.engine import assemble_daemon
from support.event_loops import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
from support.key_stores import KeyStores
from support.live_server import Dial, LiveServer
from support.live_server import serve as serve
from support.logged_errors import no_error_is_logged as no_error_is_logged
from support.wire import StreamWire

from zoolet.server.config import ServerConfig
from zoolet.server.core.settings import EngineSettings
from zoolet.testing.state.clock import ManualClock

if TYPE_CHECKING:
    from zoolet.testing.run.certificates import Authority


@pytest.fixture
async def live(request: pytest.FixtureRequest) -> AsyncIterator[LiveServer]:
    """A server with a manual clock; indirect parameters are its settings."""
    settings = EngineSettings(**getattr(request, "param", {}))
    server = LiveServer(assemble_daemon(ServerConfig(max_client_cnxns=0, settings=settings), clock=ManualClock()))
    await server.daemon.start(server.host, 0)
    yield server
    await server.close()


@pytest.fixture
def dial(live: LiveServer) -> Dial:
    """A function that connects a client; with ``shake=False`` it sends nothing."""

    async def connect(*, shake: bool = True) -> StreamWire:
        return await live.session() if shake else await live.dial()

    return connect


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """A new certificate authority."""
    from zoolet.testing.run.certificates import (
        Authority,  # needs the extra "tls", which other tests here do without
    )

    return Authority(tmp_path)


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> KeyStores:
    """Java key stores."""
    return KeyStores(tmp_path_factory.mktemp("stores"))
