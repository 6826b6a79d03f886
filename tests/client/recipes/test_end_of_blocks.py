"""Leaving a block while the server is down takes at most a second, because the session ends anyway."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.leftovers import leftovers
from support.simulation import eventually, with_client
from support.waiting import PROMPT_S

from zoolet.client import Client, blocking, serializers
from zoolet.client.recipes import (
    Discovery,
    DurableLock,
    Election,
    Instance,
    Lock,
    LockingQueue,
    Master,
    MultiLock,
    NodeElection,
    Party,
    PersistentEphemeral,
    ReadWriteLock,
    Semaphore,
    TreeCache,
    Worker,
)
from zoolet.testing import Server

Block = Callable[[Client], Any]


async def _work(name: str, value: Any) -> Any:
    return value


BLOCKS: dict[str, Block] = {
    "Party": lambda zk: Party(zk, "/party", b"me"),
    "PersistentEphemeral": lambda zk: PersistentEphemeral(zk, "/up/me"),
    "Discovery": lambda zk: Discovery(zk, "/services"),
    "Worker": lambda zk: Worker(zk, "/jobs", "w", _work),
    "Master": lambda zk: Master(zk, "/jobs", "m"),
    "Lock": lambda zk: Lock(zk, "/lock"),
    "DurableLock": lambda zk: DurableLock(zk, "/durable", "me"),
    "MultiLock": lambda zk: MultiLock(zk, ["/a", "/b"]),
    "ReadWriteLock": lambda zk: ReadWriteLock(zk, "/rw").write(),
    "Semaphore": lambda zk: Semaphore(zk, "/pool", 2),
    "Election": lambda zk: Election(zk, "/leader"),
    "NodeElection": lambda zk: NodeElection(zk, "/master"),
    "TreeCache": lambda zk: TreeCache(zk, "/"),
}


async def _seconds_to_leave(server: Server, zk: Client, block: Any) -> float:
    """Enter a block, and return how long leaving it takes without a server."""
    now = asyncio.get_running_loop().time
    async with AsyncExitStack() as stack:
        entered = await stack.enter_async_context(block)
        if isinstance(entered, Discovery):
            await entered.register(Instance("web", "web-1"))
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(0.1)
        began = now()
    return now() - began


@pytest.mark.parametrize("name", BLOCKS)
def test_block_end_waits_one_second_for_absent_server(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        assert await _seconds_to_leave(server, zk, BLOCKS[name](zk)) <= 1.0
        server.accept_connections()
        await eventually(lambda: not leftovers(server, zk))

    with_client(main)


def test_stop_timeout_extends_end_of_block() -> None:
    async def main(server: Server, zk: Client) -> None:
        node = PersistentEphemeral(zk, "/up/me", stop_timeout=3.0)
        assert await _seconds_to_leave(server, zk, node) == pytest.approx(3.0)

    with_client(main)


def test_failing_block_does_not_wait_for_its_entry() -> None:
    async def main(server: Server, zk: Client) -> None:
        now = asyncio.get_running_loop().time
        queue = LockingQueue(zk.with_serializer(serializers.raw), "/jobs")
        await queue.put(b"job")
        entry = await queue.acquire()
        server.refuse_connections()
        server.drop(zk)
        await asyncio.sleep(0.1)
        began = now()
        with pytest.raises(ZeroDivisionError):
            async with entry:
                raise ZeroDivisionError
        assert now() - began <= 1.0

    with_client(main)


def test_stop_timeout_limits_end_of_threads_block(zoolet: Server) -> None:
    with blocking.Client(zoolet.hosts, timeout=40.0) as zk:
        with blocking.recipes.Party(zk, "/party", b"me", stop_timeout=0.01):
            zoolet.refuse_connections()
            zoolet.drop("all")
            began = time.monotonic()
        took = time.monotonic() - began
    assert took < PROMPT_S, "it waited as long as the session"


def test_block_reentered_in_same_session_keeps_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        node = PersistentEphemeral(zk, "/up/me")
        await _seconds_to_leave(server, zk, node)
        first = server.tree()["/up/me"].czxid
        server.accept_connections()
        async with node:
            await asyncio.sleep(5)
            assert server.tree()["/up/me"].czxid == first

    with_client(main)
