"""Dropping a held lease is detected immediately, on every version of Python."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from support.lock_kinds import KINDS
from support.simulation import Connect, simulate_clients

from zoolet.client import Client
from zoolet.client.recipes import Lock
from zoolet.testing import Server, Simulation


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def drop_lease(kind: str, zk: Client, obtain: str = "acquire") -> None:
    """Acquire a lease, and return without releasing it."""
    lock = KINDS[kind](zk)
    lease = await getattr(lock, "lead" if obtain == "acquire" and "Election" in kind else obtain)()
    await asyncio.sleep(1)
    assert not lease.lost.is_set()


@pytest.mark.parametrize("obtain", ["acquire", "attempt"])
@pytest.mark.parametrize("kind", KINDS)
def test_returning_function_dropping_lease_warns(kind: str, obtain: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.warns(ResourceWarning, match="was dropped while held"):
            await drop_lease(kind, zk, obtain)

    simulate_clients(main)


def test_dropping_result_of_task_warns() -> None:
    async def drop_result(lock: Lock) -> None:
        await asyncio.create_task(lock.acquire())
        await asyncio.sleep(1)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Lock(await connect(), "/l")
        with pytest.warns(ResourceWarning, match="was dropped while held"):
            await drop_result(lock)

    simulate_clients(main)


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_function_dropping_lease_warns(kind: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        holding = await KINDS[kind](one).attempt()
        asyncio.get_running_loop().call_later(1, holding.release_nowait)
        with pytest.warns(ResourceWarning, match="was dropped while held"):
            await drop_lease(kind, two)

    simulate_clients(main)
