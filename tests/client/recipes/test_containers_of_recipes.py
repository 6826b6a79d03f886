"""Parent nodes of unused recipes: the server deletes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from support.simulation import make_client, simulate

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


async def enter_and_leave(recipe: Any) -> None:
    """Enter a recipe and leave it."""
    async with recipe:
        await asyncio.sleep(1)


async def put_and_acknowledge(queue: LockingQueue) -> None:
    """Put an entry, and acknowledge it."""
    await queue.put(b"x")
    await queue.get(10)


async def do_task(zk: Client) -> None:
    """Submit a task to a worker, send a command, and forget the task."""
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
    """Register an instance of a service."""
    async with Discovery(zk, "/a") as discovery:
        await discovery.register(Instance("s", "i", "host", 1))


async def hold_stored_lease(zk: Client) -> None:
    """Store the size of a semaphore, and hold a lease of it."""
    semaphore = Semaphore(zk, "/a/s", None, naming="curator")
    await semaphore.resize(2)
    await enter_and_leave(semaphore)


REMAINING_NODES: Final[dict[str, tuple[Callable[[Client], Awaitable[Any]], set[str]]]] = {
    "Semaphore": (lambda zk: enter_and_leave(Semaphore(zk, "/a/s", 2)), {"/a"}),
    "Semaphore of Curator": (lambda zk: enter_and_leave(Semaphore(zk, "/a/s", 2, naming="curator")), {"/a"}),
    "Semaphore of Curator with a shared number": (hold_stored_lease, {"/a", "/a/s"}),
    "DoubleBarrier": (lambda zk: enter_and_leave(DoubleBarrier(zk, "/a/d", 1)), {"/a"}),
    "LockingQueue": (lambda zk: put_and_acknowledge(LockingQueue(zk, "/a/q")), {"/a"}),
    "Party": (lambda zk: enter_and_leave(Party(zk, "/a/p", b"me")), {"/a"}),
    "Party of Curator": (lambda zk: enter_and_leave(Party(zk, "/a/p", b"me", naming="curator")), {"/a"}),
    "Election": (lambda zk: enter_and_leave(Election(zk, "/a/e")), {"/a"}),
    "ReadWriteLock": (lambda zk: enter_and_leave(ReadWriteLock(zk, "/a/rw", naming="both").read()), {"/a"}),
    "Discovery": (register, {"/a"}),
    "Worker": (do_task, {"/a", "/a/jobs", "/a/jobs/assigned", "/a/jobs/results", "/a/jobs/tasks"}),
}


@pytest.mark.parametrize("name", REMAINING_NODES)
def test_unused_recipe_leaves_only_nodes_above_its_path(name: str) -> None:
    use, left = REMAINING_NODES[name]

    async def main(sim: Simulation, server: Server) -> None:
        async with make_client(server) as zk:
            for _ in range(2):  # the second round recreates the deleted containers
                await use(zk)
                await asyncio.sleep(200)
                assert {path for path in server.tree() if path.startswith("/a")} == left

    simulate(main)
