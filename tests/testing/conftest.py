"""Embedded servers with a real or manual clock, and the clients and connections of the tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.testing import Server

QUICK_RETRY: Final = {"max_tries": -1, "delay": 0.001, "backoff": 1, "max_jitter": 0.0}  # for kazoo's reconnects


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the real clock."""
    with Server(seed=1) as server:
        yield server


@pytest.fixture
def manual() -> Iterator[Server]:
    """A server with a manual clock."""
    with Server(clock="manual", seed=1) as server:
        yield server


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    """An exit stack that closes the test's connections at the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def wire(server: Server, wires: ExitStack) -> Wire:
    """A session reduced to its socket."""
    entered: Wire = wires.enter_context(Wire(server)).welcomed()
    return entered


@pytest.fixture
def kazoo() -> Iterator[Callable[..., KazooClient]]:
    """A function that creates KazooClients for a server, connected by default."""
    clients: list[KazooClient] = []

    def make(server: Server, start: bool = True, **options: Any) -> KazooClient:
        client = KazooClient(server.hosts, **{"timeout": 30, "connection_retry": QUICK_RETRY, **options})
        clients.append(client)
        if start:
            client.start(DEADLINE_S)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def client(server: Server, kazoo: Callable[..., KazooClient]) -> KazooClient:
    """A connected KazooClient."""
    return kazoo(server)
