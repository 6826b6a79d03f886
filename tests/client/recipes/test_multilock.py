"""Several locks as one: all or none, in any order, and lost when any of them is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.leftovers import wait_until_clean
from support.simulation import Connect, eventually, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import LockLostError, MultiLock
from zoolet.testing import Server, Simulation, hold

PATHS = ["/c", "/a", "/b"]


def test_multilocks_with_paths_in_any_order_do_not_deadlock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        inside = 0

        async def use(client: Client, paths: list[str]) -> None:
            nonlocal inside
            for _ in range(10):
                async with MultiLock(client, paths) as held:
                    inside += 1
                    assert inside == 1
                    assert held.token == max(part.token for part in held.parts)
                    await asyncio.sleep(0.1)
                    inside -= 1

        orders = (PATHS, PATHS[::-1], sorted(PATHS) * 2)
        clients = [await connect() for _ in orders]
        await asyncio.gather(*map(use, clients, orders))
        await wait_until_clean(server)

    simulate_clients(main)


def test_multilock_timeout_releases_locks_already_acquired() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with two.lock("/b"):
            with pytest.raises(TimeoutError):
                await MultiLock(one, PATHS).acquire(0.5)
            async with two.lock("/a", timeout=1.0), two.lock("/c", timeout=1.0):
                pass
        await wait_until_clean(server)

    simulate_clients(main)


def test_multilock_attempt_that_loses_race_releases_its_locks() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        with server.fault(hold(), "multi", client=one, nth=2) as held:
            attempt = asyncio.create_task(MultiLock(one, PATHS).attempt())
            await server.until(lambda: held.hits, timeout=10)
            async with two.lock("/b"):
                held.release()
                assert await attempt is None
        async with two.lock("/a", timeout=1.0):
            pass
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("paths", [[], "/a"])
def test_invalid_paths_of_multilock_are_refused(paths: object) -> None:
    with pytest.raises(ValueError):
        MultiLock(Client("127.0.0.1:1"), paths)  # type: ignore[arg-type]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_multilock_is_lost_if_any_of_its_nodes_is_deleted(which: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with MultiLock(one, PATHS) as held:
                await asyncio.sleep(0.2)
                await two.delete(held.parts[which].path)
                await asyncio.sleep(1000)
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("which", [0, 1])
def test_multilock_refuses_transaction_after_loss_of_any_node(which: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        server.populate({"/register": b"0"})
        held = await MultiLock(one, PATHS).acquire()
        late = held.transaction()
        late.set("/register", b"late")
        await two.delete(held.parts[which].path)
        try:
            with pytest.raises(LockLostError):
                await late.commit()
        finally:
            await held.release()

    simulate_clients(main)


@pytest.mark.parametrize("step", range(0, 230, 8))
@pytest.mark.parametrize("obtain", [MultiLock.acquire, MultiLock.attempt], ids=["acquire", "attempt"])
def test_multilock_acquire_cancelled_at_any_point_cleans_up(obtain: Any, step: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        task = asyncio.create_task(obtain(MultiLock(zk, PATHS)))
        await asyncio.sleep(step * 0.0005)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        await wait_until_clean(server)

    simulate_clients(main, step)


@pytest.mark.parametrize("step", range(0, 20, 2))
def test_multilock_release_cancelled_at_any_point_completes(step: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        held = await MultiLock(zk, PATHS).acquire()
        await asyncio.sleep(0.5)
        task = asyncio.create_task(held.release())
        await asyncio.sleep(step * 0.0005)
        task.cancel()
        await asyncio.wait([task])
        await wait_until_clean(server)

    simulate_clients(main, step)


def test_lost_multilock_ends_its_background_tasks() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await MultiLock(zk, ["/a", "/b", "/c"], on_lost="flag").acquire()
        await asyncio.sleep(1)
        server.delete(lease.parts[1].path)
        await lease.lost

        await eventually(lambda: zk.statistics().idle)
        await wait_until_clean(server)

    simulate_clients(main)
