"""A reentrant lock is entered again by the task that holds it, and by no other."""

from __future__ import annotations

import asyncio

import pytest
from support import kazoo_bugs
from support.leftovers import nothing_left
from support.simulation import Connect, simulate_clients

from zoolet.server import Server
from zoolet.server.testing import Simulation


def test_who_holds_a_reentrant_lock_enters_again_and_the_last_exit_releases() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = one.lock("/lock", reentrant=True)
        async with lock as outer:
            async with lock as inner:
                assert inner is outer
            assert len(kazoo_bugs.children(server, "/lock")) == 1
            with pytest.raises(TimeoutError):
                await asyncio.create_task(lock.acquire(0.1))
            with pytest.raises(TimeoutError):
                await two.lock("/lock").acquire(0.1)
        async with two.lock("/lock", timeout=1.0):
            pass

    simulate_clients(main)


def test_another_task_does_not_enter_a_reentrant_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = zk.lock("/lock", reentrant=True, timeout=0.2)

        async def enter() -> None:
            async with lock:
                pass

        async with lock:
            with pytest.raises(TimeoutError):
                await asyncio.create_task(enter())
        await asyncio.create_task(enter())

    simulate_clients(main)


def test_a_lock_that_is_not_reentrant_waits_for_itself() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = (await connect()).lock("/lock", timeout=0.2)
        async with lock:
            with pytest.raises(TimeoutError):
                async with lock:
                    pass
        await nothing_left(server)

    simulate_clients(main)
