"""An embedded server, and a connected blocking client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zoolet.client.blocking import Client
from zoolet.testing import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A server in its own thread."""
    with Server() as running:
        yield running


@pytest.fixture
def zk(server: Server) -> Iterator[Client]:
    """A connected client."""
    with Client(server.hosts) as client:
        yield client
