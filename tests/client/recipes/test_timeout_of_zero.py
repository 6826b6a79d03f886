"""A timeout of 0 succeeds only without waiting; a negative timeout is rejected before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from support.simulation import with_client

from zoolet.client import Client
from zoolet.client.recipes import (
    Barrier,
    DoubleBarrier,
    DurableLock,
    Election,
    Lock,
    LockingQueue,
    Master,
    MultiLock,
    NodeElection,
    PriorityQueue,
    Queue,
    Semaphore,
    TryLock,
    TwoPhaseCommit,
)
from zoolet.testing import Server

LOCKS: Final[dict[str, Callable[[Client], Any]]] = {
    "Lock": lambda zk: Lock(zk, "/a"),
    "Lock both": lambda zk: Lock(zk, "/a", naming="both"),
    "MultiLock": lambda zk: MultiLock(zk, ["/a", "/b"]),
    "TryLock": lambda zk: TryLock(zk, "/a"),
    "DurableLock": lambda zk: DurableLock(zk, "/a", "me"),
    "Semaphore": lambda zk: Semaphore(zk, "/a"),
    "Semaphore of Curator": lambda zk: Semaphore(zk, "/a", naming="curator"),
}
READS: Final = {"connect", "getChildren", "getData", "exists", "removeWatches", "multi"}
WAITS: Final[dict[str, Callable[[Client, float], Awaitable[Any]]]] = {
    **{name: lambda zk, seconds, make=make: make(zk).acquire(seconds) for name, make in LOCKS.items()},
    "Election": lambda zk, seconds: Election(zk, "/a").lead(seconds),
    "NodeElection": lambda zk, seconds: NodeElection(zk, "/a").lead(seconds),
    "Queue": lambda zk, seconds: Queue(zk, "/a").get(seconds),
    "PriorityQueue": lambda zk, seconds: PriorityQueue(zk, "/a").get(seconds),
    "LockingQueue": lambda zk, seconds: LockingQueue(zk, "/a").acquire(seconds),
    "Barrier": lambda zk, seconds: Barrier(zk, "/a").wait(seconds),
    "DoubleBarrier": lambda zk, seconds: DoubleBarrier(zk, "/a", 2, timeout=seconds).enter(),
    "result": lambda zk, seconds: Master(zk, "/a").result("task", seconds),
    "command": lambda zk, seconds: Master(zk, "/a").command("x", seconds),
    "proposal": lambda zk, seconds: TwoPhaseCommit(zk, "/a").proposal(seconds),
}


@pytest.mark.parametrize("name", WAITS)
def test_negative_timeout_is_refused_before_any_request(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        before = server.ops()
        with pytest.raises(ValueError, match=r"timeout must be 0 or more seconds, or None, not -1"):
            await WAITS[name](zk, -1)
        assert server.ops() == before

    with_client(main)


@pytest.mark.parametrize("name", LOCKS)
def test_acquire_timeout_zero_acquires_only_free_lock(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with Client(server.hosts) as other:
            lease = await LOCKS[name](zk).acquire(0)
            await asyncio.sleep(1)  # by then a semaphore has deleted its contender
            before = server.tree()
            assert await LOCKS[name](other).attempt() is None
            with pytest.raises(TimeoutError, match="is not free"):
                await LOCKS[name](other).acquire(0)
            assert server.tree() == before
            assert {op.op for op in server.ops() if op.session == other.session_id} <= READS
            await lease.release()
            await (await LOCKS[name](other).acquire(0)).release()

    with_client(main)


def test_wait_with_timeout_zero_returns_only_available_results() -> None:
    async def main(server: Server, zk: Client) -> None:
        queue = LockingQueue(zk, "/q")
        with pytest.raises(TimeoutError):
            await queue.acquire(0)
        await queue.put(b"x")
        async with await queue.acquire(0) as entry:
            assert entry.value == b"x"
        barrier = Barrier(zk, "/b")
        await barrier.wait(0)
        await barrier.create()
        with pytest.raises(TimeoutError, match="/b was not removed immediately"):
            await barrier.wait(0)
        async with DoubleBarrier(zk, "/d", 1, timeout=0):
            pass
        with pytest.raises(TimeoutError, match="fewer than 2 members"):
            await DoubleBarrier(zk, "/d", 2, timeout=0).enter()

    with_client(main)
