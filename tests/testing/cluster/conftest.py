"""Three members, and clients that never reconnect or retry on their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.script_client import ScriptClient

from zoolet.testing import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three members."""
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def clients() -> Iterator[list[ScriptClient]]:
    """Clients whose connections are closed at the end of the test."""
    made = [ScriptClient() for _ in range(5)]
    yield made
    for client in made:
        client.drop()
