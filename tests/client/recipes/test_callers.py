"""The holder of a lock is the task that enters it: ways to enter a block in one task or in two, and each lock."""

from __future__ import annotations

import asyncio
import logging
import unittest
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from unittest import mock

import pytest
from support.leftovers import nothing_left
from support.lock_kinds import KINDS
from support.simulation import Connect, simulate_clients
from support.waiting import DEADLINE_S

from zoolet.client.recipes import Election, Lock, LockLostError, NodeElection, ReadWriteLock, Semaphore
from zoolet.testing import Server, Simulation

Hold = Callable[[Any], Any]


@asynccontextmanager
async def in_the_task(lock: Any) -> AsyncIterator[Any]:
    """Enter and leave with ``async with``."""
    async with lock as lease:
        yield lease


@asynccontextmanager
async def with_stack(lock: Any) -> AsyncIterator[Any]:
    """Enter with an exit stack."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(lock)


@asynccontextmanager
async def with_wait_for(lock: Any) -> AsyncIterator[Any]:
    """Enter with a limit by ``wait_for``, which makes a task in Python 3.11."""
    async with AsyncExitStack() as stack:
        yield await asyncio.wait_for(stack.enter_async_context(lock), DEADLINE_S)


@asynccontextmanager
async def with_create_task(lock: Any) -> AsyncIterator[Any]:
    """Enter in a task."""
    async with AsyncExitStack() as stack:
        yield await asyncio.create_task(stack.enter_async_context(lock))


@asynccontextmanager
async def with_gather(lock: Any) -> AsyncIterator[Any]:
    """Enter together with another coroutine."""
    async with AsyncExitStack() as stack:
        lease, _ = await asyncio.gather(stack.enter_async_context(lock), asyncio.sleep(0))
        yield lease


@asynccontextmanager
async def with_task_group(lock: Any) -> AsyncIterator[Any]:
    """Enter in a TaskGroup."""
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            entering = group.create_task(stack.enter_async_context(lock))
        yield entering.result()


@asynccontextmanager
async def with_generator(lock: Any) -> AsyncIterator[Any]:
    """Enter in an asynchronous generator whose first step runs in a task."""

    async def generate() -> AsyncIterator[Any]:
        async with lock as lease:
            yield lease

    generator = generate()
    step = asyncio.create_task(anext(generator))  # type: ignore[arg-type]
    yield await step
    await anext(generator, None)


@asynccontextmanager
async def with_test_case(lock: Any) -> AsyncIterator[Any]:
    """Enter as an ``IsolatedAsyncioTestCase`` does it."""
    case = unittest.IsolatedAsyncioTestCase()
    kind = type(lock)
    leave = kind.__aexit__
    lease = await kind.__aenter__(lock)
    case.addAsyncCleanup(leave, lock, None, None, None)
    yield lease
    for function, args, _ in reversed(case._cleanups):
        await function(*args)


@asynccontextmanager
async def by_hand(lock: Any) -> AsyncIterator[Any]:
    """Call the two methods."""
    lease = await lock.__aenter__()
    yield lease
    await lock.__aexit__(None, None, None)


OF_ONE_TASK: Final = [in_the_task, with_stack, by_hand, with_test_case]
OF_TWO_TASKS: Final = [with_create_task, with_gather, with_task_group, with_generator]
WAYS: Final = [*OF_ONE_TASK, with_wait_for, *OF_TWO_TASKS]


@pytest.mark.parametrize("hold", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_are_never_inside_together(kind: str, hold: Hold) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        shared, inside, leases = KINDS[kind](zk), 0, []

        async def work(lock: Any) -> None:
            nonlocal inside
            async with hold(lock) as lease:
                inside += 1
                await asyncio.sleep(0.2)
                assert inside == 1
                lease.raise_if_lost()
                inside -= 1
            leases.append(lease)
            assert lease.released

        async with asyncio.TaskGroup() as group:
            for lock in (shared, shared, KINDS[kind](zk)):
                group.create_task(work(lock))
        assert len({lease.token for lease in leases}) == 3
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("hold", [way for way in WAYS if way is not by_hand])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("kind", ["Semaphore", "ReadWriteLock"])
def test_block_gives_back_its_own_lease(kind: str, first: int, hold: Hold) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = Semaphore(zk, "/l", 2) if kind == "Semaphore" else ReadWriteLock(zk, "/l").read()

        blocks = [hold(lock), hold(lock)]
        leases = [await block.__aenter__() for block in blocks]
        await blocks[first].__aexit__(None, None, None)

        assert leases[first].released
        leases[1 - first].raise_if_lost()
        await blocks[1 - first].__aexit__(None, None, None)
        assert leases[1 - first].released
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("hold", OF_ONE_TASK)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_cancels_block(kind: str, hold: Hold) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises((LockLostError, asyncio.CancelledError)):  # noqa: PT012
            async with hold(KINDS[kind](zk)) as lease:
                asyncio.get_running_loop().call_later(0.2, server.delete, lease.nodes[0][0])
                await asyncio.sleep(1000)
        assert lease.lost

    simulate_clients(main)


@pytest.mark.parametrize("hold", OF_TWO_TASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_log_names_block_that_loss_cannot_cancel(kind: str, hold: Hold, caplog: pytest.LogCaptureFixture) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with hold(KINDS[kind](zk)) as lease:
                asyncio.get_running_loop().call_later(0.2, server.delete, lease.nodes[0][0])
                assert await lease.lost
                (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
                assert record.getMessage().startswith(f"lost the lock {lease.path}: ")
                assert "is not cancelled" in record.getMessage()

    simulate_clients(main)


def test_lock_looked_up_without_block_is_not_taken_for_one() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        one, two = zk.lock("/one"), zk.lock("/two")
        leases = [await one.__aenter__()]
        async with AsyncExitStack() as stack:
            stack.push_async_exit(one)
            leases.append(await two.__aenter__())
            stack.push_async_exit(two)
            assert hasattr(one, "__aexit__")
            await one.__aexit__(None, None, None)
            leases.append(await one.__aenter__())
            leases[2].raise_if_lost()
            assert [lease.released for lease in leases] == [True, False, False]
        assert all(lease.released for lease in leases)
        await nothing_left(server)

    simulate_clients(main)


def test_subclass_with_methods_of_its_own_is_a_lock() -> None:
    class Sub(Lock):
        async def __aenter__(self) -> Any:
            return await super().__aenter__()

        async def __aexit__(self, *error: Any) -> None:
            await super().__aexit__(*error)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Sub(await connect(), "/l")
        for _ in range(3):
            async with lock as lease:
                lease.raise_if_lost()
            assert lease.released
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("kind", [Lock, Semaphore, Election, NodeElection])
async def test_mock_of_lock_can_be_entered(kind: type) -> None:
    async with mock.create_autospec(kind, instance=True):
        pass
