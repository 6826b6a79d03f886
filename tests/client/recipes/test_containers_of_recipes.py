"""Parent nodes of unused recipes: the server deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from support.simulation import client_of, simulate

from zoolet.client import Client
from zoolet.client.recipes import (
    Discovery,
    DoubleBarrier,
    Election,
    Instance,
    LockingQueue,
    Master,
    Party,
    ReadWriteLock,
    Semaphore,
    Worker,
)
from zoolet.testing import Server, Simulation


async def enter(recipe: Any) -> None:
    """Enter a recipe and leave it."""
    async with recipe:
        await asyncio.sleep(1)


async def pass_through(queue: LockingQueue) -> None:
    """Put an entry, and acknowledge it."""
    await queue.put(b"x")
    await queue.get(10)


async def work(zk: Client) -> None:
    """Do a task."""
    master = Master(zk, "/a/jobs")

    async def do(task: str, value: int) -> int:
        await worker.report(task, "half")
        return value * 2

    async with master, Worker(zk, "/a/jobs", "w", do) as worker:
        task = await master.submit(1)
        assert (await master.result(task))["result"] == 2
        await master.command("x")
        await master.forget(task)


async def register(zk: Client) -> None:
    """Offer a service."""
    async with Discovery(zk, "/a") as discovery:
        await discovery.register(Instance("s", "i", "host", 1))


async def share(zk: Client) -> None:
    """Hold a lease of a semaphore whose size is stored."""
    semaphore = Semaphore(zk, "/a/s", None, naming="curator")
    await semaphore.resize(2)
    await enter(semaphore)


LEFT: Final[dict[str, tuple[Callable[[Client], Awaitable[Any]], set[str]]]] = {
    "Semaphore": (lambda zk: enter(Semaphore(zk, "/a/s", 2)), {"/a"}),
    "Semaphore of Curator": (lambda zk: enter(Semaphore(zk, "/a/s", 2, naming="curator")), {"/a"}),
    "Semaphore of Curator with a shared number": (share, {"/a", "/a/s"}),
    "DoubleBarrier": (lambda zk: enter(DoubleBarrier(zk, "/a/d", 1)), {"/a"}),
    "LockingQueue": (lambda zk: pass_through(LockingQueue(zk, "/a/q")), {"/a"}),
    "Party": (lambda zk: enter(Party(zk, "/a/p", b"me")), {"/a"}),
    "Party of Curator": (lambda zk: enter(Party(zk, "/a/p", b"me", naming="curator")), {"/a"}),
    "Election": (lambda zk: enter(Election(zk, "/a/e")), {"/a"}),
    "ReadWriteLock": (lambda zk: enter(ReadWriteLock(zk, "/a/rw", naming="both").read()), {"/a"}),
    "Discovery": (register, {"/a"}),
    "Worker": (work, {"/a", "/a/jobs", "/a/jobs/assigned", "/a/jobs/results", "/a/jobs/tasks"}),
}


@pytest.mark.parametrize("name", LEFT)
def test_unused_recipe_leaves_only_upper_path(name: str) -> None:
    use, left = LEFT[name]

    async def main(sim: Simulation, server: Server) -> None:
        async with client_of(server) as zk:
            for _ in range(2):  # works even after the containers were deleted
                await use(zk)
                await asyncio.sleep(200)
                assert {path for path in server.tree() if path.startswith("/a")} == left

    simulate(main)
