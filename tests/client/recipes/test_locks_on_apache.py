"""Each recipe of the lock family, on Apache's server and the embedded one: acquire, release, loss of the session."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.client import Backoff, Client
from zoolet.client.recipes import (
    Election,
    LockLostError,
    MultiLock,
    NodeElection,
    ReadWriteLock,
    Semaphore,
    SemaphoreLock,
    TryLock,
)
from zoolet.protocol import records as r
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectRequest
from zoolet.protocol.operations import OpCode

SHORT_BACKOFF: Final = Backoff(first=0.001, longest=0.01)
MakeLock = Callable[[Client, str], AbstractAsyncContextManager[Any]]
RECIPES: Final[dict[str, MakeLock]] = {
    "lock, kazoo": lambda zk, path: zk.lock(path, timeout=DEADLINE_S),
    "lock, curator": lambda zk, path: zk.lock(path, naming="curator", timeout=DEADLINE_S),
    "lock, both": lambda zk, path: zk.lock(path, naming="both", timeout=DEADLINE_S),
    "writer": lambda zk, path: ReadWriteLock(zk, path, timeout=DEADLINE_S).write(),
    "writer, curator": lambda zk, path: ReadWriteLock(zk, path, naming="curator", timeout=DEADLINE_S).write(),
    "semaphore": lambda zk, path: Semaphore(zk, path, 1, timeout=DEADLINE_S),
    "semaphore lock, curator": lambda zk, path: SemaphoreLock(zk, path, naming="curator", timeout=DEADLINE_S),
    "try lock": lambda zk, path: TryLock(zk, path, timeout=DEADLINE_S),
    "multi lock": lambda zk, path: MultiLock(zk, [f"{path}/a", f"{path}/b"], timeout=DEADLINE_S),
    "election": lambda zk, path: Election(zk, path, b"me", timeout=DEADLINE_S),
    "node election": lambda zk, path: NodeElection(zk, path, b"me", timeout=DEADLINE_S),
}


@pytest.fixture
def path() -> str:
    """A new path."""
    return f"/test-{uuid.uuid4().hex}"


@pytest.fixture
async def clients(any_hosts: str) -> AsyncIterator[list[Client]]:
    """Two clients."""
    async with Client(any_hosts, backoff=SHORT_BACKOFF) as one, Client(any_hosts, backoff=SHORT_BACKOFF) as two:
        yield [one, two]


async def end_session(client: Client, hosts: str) -> None:
    """End a client's session without the client: take it over on a different connection, and close it there."""
    host, port = hosts.split(":")
    password, ended = client.session_password, client.session_id
    hello = frame(ConnectRequest(0, 10_000, ended, password or NO_PASSWORD).encode())
    goodbye = frame(r.RequestHeader(1, OpCode.CLOSE_SESSION).encode())

    def take_over() -> None:
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1) as link:
            link.sendall(hello)
            if link.recv(100):
                link.sendall(goodbye)
                link.recv(100)

    while client.session_id == ended:  # the client may resume its session first
        await asyncio.to_thread(take_over)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("recipe", RECIPES)
async def test_recipe_has_one_holder_and_cleans_up(clients: list[Client], path: str, recipe: str) -> None:
    inside = 0
    tokens = []

    async def use(client: Client) -> None:
        nonlocal inside
        for _ in range(3):
            async with RECIPES[recipe](client, path) as held:
                inside += 1
                assert inside == 1
                tokens.append(held.token)
                async with held.transaction() as t:
                    t.create(f"{path}-done-", b"", sequential=True)
                held.raise_if_lost()
                inside -= 1

    await asyncio.gather(*map(use, clients))
    assert len(set(tokens)) == 6
    for client in clients:
        async with asyncio.timeout(DEADLINE_S):
            while await client.ephemerals("/"):
                await asyncio.sleep(0.005)


@pytest.mark.parametrize("recipe", RECIPES)
async def test_lost_session_frees_recipe_for_next_client(
    clients: list[Client], any_hosts: str, path: str, recipe: str
) -> None:
    one, two = clients
    lost = None
    with pytest.raises(LockLostError):  # noqa: PT012
        async with RECIPES[recipe](one, path) as lost:
            await end_session(one, any_hosts)
            await asyncio.sleep(20)
    assert lost is not None
    assert lost.lost.is_set()
    async with RECIPES[recipe](two, path) as held:
        assert held.token > lost.token


async def test_readers_share_lock_and_writer_can_downgrade(clients: list[Client], path: str) -> None:
    one, two = (ReadWriteLock(client, path, timeout=DEADLINE_S) for client in clients)
    async with one.read(), two.read():
        with pytest.raises(TimeoutError):
            await two.write().acquire(0.1)
    writer = await one.write().acquire()
    reader = await one.downgrade(writer)
    async with two.read():
        pass
    with pytest.raises(TimeoutError):
        await two.write().acquire(0.1)
    await reader.release()
    async with two.write():
        pass
