"""The holder of a lock is the task that enters it: each lock is entered in each of several ways, in one task or two."""

from __future__ import annotations

import asyncio
import logging
import unittest
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from unittest import mock

import pytest
from support.leftovers import wait_until_clean
from support.lock_kinds import KINDS
from support.simulation import Connect, simulate_clients
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.recipes import Election, Lock, LockLostError, NodeElection, ReadWriteLock, Semaphore
from zoolet.testing import Server, Simulation

HoldFunction = Callable[[Any], Any]


@asynccontextmanager
async def hold_with_async_with(lock: Any) -> AsyncIterator[Any]:
    """Enter and leave a lock with ``async with``."""
    async with lock as lease:
        yield lease


@asynccontextmanager
async def hold_with_exit_stack(lock: Any) -> AsyncIterator[Any]:
    """Enter and leave a lock with an exit stack."""
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(lock)


@asynccontextmanager
async def hold_with_wait_for(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock with ``wait_for``, which creates a task in Python 3.11."""
    async with AsyncExitStack() as stack:
        yield await asyncio.wait_for(stack.enter_async_context(lock), DEADLINE_S)


@asynccontextmanager
async def hold_with_create_task(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock in a separate task."""
    async with AsyncExitStack() as stack:
        yield await asyncio.create_task(stack.enter_async_context(lock))


@asynccontextmanager
async def hold_with_gather(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock with ``gather``, concurrently with a second coroutine."""
    async with AsyncExitStack() as stack:
        lease, _ = await asyncio.gather(stack.enter_async_context(lock), asyncio.sleep(0))
        yield lease


@asynccontextmanager
async def hold_with_task_group(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock in a task of a TaskGroup."""
    async with AsyncExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            entering = group.create_task(stack.enter_async_context(lock))
        yield entering.result()


@asynccontextmanager
async def hold_with_generator(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock in an asynchronous generator whose first step runs in a separate task."""

    async def generate() -> AsyncIterator[Any]:
        async with lock as lease:
            yield lease

    generator = generate()
    step = asyncio.create_task(anext(generator))  # type: ignore[arg-type]
    yield await step
    await anext(generator, None)


@asynccontextmanager
async def hold_with_test_case(lock: Any) -> AsyncIterator[Any]:
    """Enter a lock as ``IsolatedAsyncioTestCase.enterAsyncContext`` does."""
    case = unittest.IsolatedAsyncioTestCase()
    kind = type(lock)
    leave = kind.__aexit__
    lease = await kind.__aenter__(lock)
    case.addAsyncCleanup(leave, lock, None, None, None)
    yield lease
    for function, args, _ in reversed(case._cleanups):
        await function(*args)


@asynccontextmanager
async def hold_with_direct_calls(lock: Any) -> AsyncIterator[Any]:
    """Enter and leave a lock by calling ``__aenter__`` and ``__aexit__``."""
    lease = await lock.__aenter__()
    yield lease
    await lock.__aexit__(None, None, None)


SINGLE_TASK_HOLDS: Final = [hold_with_async_with, hold_with_exit_stack, hold_with_direct_calls, hold_with_test_case]
TWO_TASK_HOLDS: Final = [hold_with_create_task, hold_with_gather, hold_with_task_group, hold_with_generator]
HOLD_FUNCTIONS: Final = [*SINGLE_TASK_HOLDS, hold_with_wait_for, *TWO_TASK_HOLDS]


@pytest.mark.parametrize("hold", HOLD_FUNCTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_sharing_lock_object_exclude_each_other(kind: str, hold: HoldFunction) -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("hold", [way for way in HOLD_FUNCTIONS if way is not hold_with_direct_calls])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("kind", ["Semaphore", "ReadWriteLock"])
def test_block_releases_its_own_lease(kind: str, first: int, hold: HoldFunction) -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("hold", SINGLE_TASK_HOLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_loss_cancels_block(kind: str, hold: HoldFunction) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises((LockLostError, asyncio.CancelledError)):  # noqa: PT012
            async with hold(KINDS[kind](zk)) as lease:
                asyncio.get_running_loop().call_later(0.2, server.delete, lease.nodes[0][0])
                await asyncio.sleep(1000)
        assert lease.lost

    simulate_clients(main)


@pytest.mark.parametrize("hold", TWO_TASK_HOLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_block_that_loss_cannot_cancel_is_logged(
    kind: str, hold: HoldFunction, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with hold(KINDS[kind](zk)) as lease:
                asyncio.get_running_loop().call_later(0.2, server.delete, lease.nodes[0][0])
                assert await lease.lost
                (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
                assert record.getMessage().startswith(f"lost the lock {lease.path}: ")
                assert "cannot be cancelled" in record.getMessage()

    simulate_clients(main)


def test_attribute_access_does_not_count_as_block() -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


def test_subclass_overriding_block_methods_is_a_lock() -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("kind", [Lock, Semaphore, Election, NodeElection])
async def test_autospec_mock_of_lock_can_be_entered(kind: type) -> None:
    async with mock.create_autospec(kind, instance=True):
        pass


class LockWrapper:
    """A wrapper of a lock, such as a program may write: it calls the special methods of the lock."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> Any:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)


@pytest.mark.parametrize("hold", [way for way in HOLD_FUNCTIONS if way is not hold_with_direct_calls])
def test_exit_of_wrapper_releases_only_its_own_lease(hold: HoldFunction) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Semaphore(await connect(), "/l", 2)
        wrapped = await run_in_new_task(LockWrapper(lock).__aenter__())
        inside, left = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with hold(lock) as lease:
                inside.set()
                await left.wait()
                lease.raise_if_lost()

        working = asyncio.create_task(work())
        await inside.wait()
        await lock.__aexit__(None, None, None)
        left.set()
        await working
        assert wrapped.released
        await wait_until_clean(server)

    simulate_clients(main)


async def run_in_new_task(job: Any) -> Any:
    """Await a coroutine in a new task, which ends with the coroutine."""
    return await asyncio.create_task(job)


def test_direct_aexit_releases_only_lease_of_direct_aenter() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Semaphore(await connect(), "/l", 2)
        one = await lock.__aenter__()
        async with lock as two:
            await lock.__aexit__(None, None, None)
            assert (one.released, two.released) == (True, False)

    simulate_clients(main)


def test_direct_aexit_raises_if_several_tasks_have_entered() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock, left = Semaphore(await connect(), "/l", 2), asyncio.Event()

        async def work() -> None:
            lease = await lock.__aenter__()
            await left.wait()
            lease.raise_if_lost()
            await lock.__aexit__(None, None, None)

        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(work())
            await asyncio.sleep(1)
            with pytest.raises(RuntimeError, match="was not entered by this task, but by several others"):
                await lock.__aexit__(None, None, None)
            left.set()

    simulate_clients(main)


async def delete_lease_node(server: Server, lease: Any) -> None:
    """Delete the node of a lease after 0.2 s, and wait until the loss cancels the block."""
    asyncio.get_running_loop().call_later(0.2, server.delete, lease.nodes[0][0])
    await asyncio.sleep(1000)


@pytest.mark.parametrize("second", ["block of the lock", "block of the lease", "block of a reader"])
def test_loss_cancels_second_block_after_first_ended(second: str) -> None:
    """The holder enters the lock twice, and leaves the first block before the second."""

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        rw = ReadWriteLock(await connect(), "/l", reentrant=True)
        one, two = AsyncExitStack(), AsyncExitStack()
        lease = await one.enter_async_context(rw.write())
        if second == "block of a reader":
            lease = await rw.downgrade(lease)
            await two.enter_async_context(rw.read())
        elif second == "block of the lease":
            await two.enter_async_context(await rw.write().acquire())
        else:
            await two.enter_async_context(rw.write())
        await one.aclose()
        with pytest.raises(LockLostError):
            async with two:
                await delete_lease_node(server, lease)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    simulate_clients(main)


@pytest.mark.parametrize("outer", ["cancel", "flag"])
@pytest.mark.parametrize("inner", ["cancel", "flag"])
def test_on_lost_applies_to_each_block_separately(outer: Any, inner: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, raised = await connect(), None
        async with AsyncExitStack() as stack:
            try:
                async with zk.lock("/l", reentrant=True, on_lost=outer):
                    try:
                        async with zk.lock("/l", reentrant=True, on_lost=inner) as lease:
                            stack.push_async_callback(asyncio.sleep, 1)
                            await asyncio.wait_for(delete_lease_node(server, lease), 10)
                    except LockLostError:
                        raised = "inner"
                        raise
            except LockLostError:
                raised = raised or "outer"
            except TimeoutError:
                raised = "none"
        assert raised == ("outer" if outer == "cancel" else "inner" if inner == "cancel" else "none")

    simulate_clients(main)


@pytest.mark.skipif(not hasattr(asyncio, "eager_task_factory"), reason="Python has no eager tasks")
def test_loss_found_by_eager_task_raises_only_once() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
        zk = await connect(timeout=2.0)

        async def check(lease: Any) -> None:
            with pytest.raises(LockLostError):
                lease.raise_if_lost()

        for waits in (False, True):
            with pytest.raises(LockLostError):  # noqa: PT012
                async with zk.lock("/l") as lease:
                    lease._time_left = lambda: 0.0
                    checking = asyncio.create_task(check(lease))
                    if waits:
                        await asyncio.sleep(1000)
            await asyncio.sleep(1)
            assert checking.done()

    simulate_clients(main)


class DelayedEntry:
    """Base class of locks that wait before they are entered."""

    async def __aenter__(self) -> Any:
        await asyncio.sleep(0.01)
        return await super().__aenter__()  # type: ignore[misc]


class DelayedLock(DelayedEntry, Lock):
    """A lock that waits before it is entered."""


class DelayedSemaphore(DelayedEntry, Semaphore):
    """A semaphore that waits before it is entered."""


@pytest.mark.parametrize("kind", [DelayedLock, DelayedSemaphore])
def test_tasks_sharing_lock_with_slow_acquire_keep_own_leases(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, leases = await connect(), []
        lock = kind(zk, "/l", 2) if kind is DelayedSemaphore else kind(zk, "/l")

        async def work(seconds: float) -> None:
            async with lock as lease:
                leases.append(lease)
                await asyncio.sleep(seconds)
                lease.raise_if_lost()
            assert lease.released

        async with asyncio.TaskGroup() as group:
            for seconds in (0.1, 0.3):
                group.create_task(work(seconds))
        await wait_until_clean(server)

    simulate_clients(main)


def test_loss_cancels_all_tasks_in_blocks_of_lease() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lease, got = await (await connect()).lock("/l").acquire(), []

        async def use() -> None:
            try:
                async with lease:
                    await asyncio.sleep(1000)
            except LockLostError:
                got.append(asyncio.current_task().cancelling())  # type: ignore[union-attr]

        using = [asyncio.create_task(use()) for _ in range(2)]
        await asyncio.sleep(0.2)
        server.delete(lease.path)
        await asyncio.wait(using)
        assert got == [0, 0]

    simulate_clients(main)


def test_block_of_downgraded_writer_keeps_read_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        rw = ReadWriteLock(await connect(), "/l")
        writer = await rw.write().acquire()
        reader = await rw.downgrade(writer)
        async with writer:
            pass
        assert not reader.released
        await reader.release()

    simulate_clients(main)


def test_block_of_closed_client_exits_in_new_loop(zoolet: Server) -> None:
    stack = AsyncExitStack()

    async def enter() -> None:
        async with Client(zoolet.hosts) as zk:
            await stack.enter_async_context(zk.watch("/a"))
            await stack.enter_async_context(zk.lock("/l"))

    asyncio.run(enter())
    asyncio.run(stack.aclose())
