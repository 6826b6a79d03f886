"""One daemon for all tests in this folder, and kazoo clients that are stopped after each test."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from kazoo.client import KazooClient
from support.daemon import DaemonProcess
from support.waiting import DEADLINE_S


@pytest.fixture(scope="session")
def daemon() -> Iterator[DaemonProcess]:
    """A daemon with a tick of 200 ms, so session timeouts range from 0.4 s to 4 s."""
    options = ("-Dzookeeper.tickTime=200", "-Dzookeeper.minSessionTimeout=400", "-Dzookeeper.maxClientCnxns=0")
    with DaemonProcess(*options) as running:
        yield running


@pytest.fixture
def kazoo(daemon: DaemonProcess) -> Iterator[Callable[..., KazooClient]]:
    """A function that returns a started client. It accepts a chroot and the keywords of ``KazooClient``."""
    clients: list[KazooClient] = []

    def connect(chroot: str = "", **options: Any) -> KazooClient:
        client = KazooClient(daemon.hosts + chroot, **options)
        clients.append(client)
        client.start(timeout=DEADLINE_S)
        return client

    yield connect
    for client in reversed(clients):
        client.stop()
        client.close()


@pytest.fixture
def base(kazoo: Callable[..., KazooClient]) -> str:
    """The path of a new node for this test alone."""
    path = f"/test-{uuid.uuid4().hex}"
    kazoo().create(path)
    return path


@pytest.fixture
def background() -> Callable[..., Future[Any]]:
    """A function that runs a callable in a thread; stopping its client ends a call that would block forever."""

    def run(function: Callable[..., Any], *args: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def target() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=target, daemon=True).start()
        return future

    return run
