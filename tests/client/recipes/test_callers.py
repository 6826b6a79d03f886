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

from zoolet.client import Client
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
    """Enter as ``IsolatedAsyncioTestCase.enterAsyncContext`` does."""
    case = unittest.IsolatedAsyncioTestCase()
    kind = type(lock)
    leave = kind.__aexit__
    lease = await kind.__aenter__(lock)
    case.addAsyncCleanup(leave, lock, None, None, None)
    yield lease
    for function, args, _ in reversed(case._cleanups):
        await function(*args)


@asynccontextmanager
async def with_direct_calls(lock: Any) -> AsyncIterator[Any]:
    """Call ``__aenter__`` and ``__aexit__``."""
    lease = await lock.__aenter__()
    yield lease
    await lock.__aexit__(None, None, None)


OF_ONE_TASK: Final = [in_the_task, with_stack, with_direct_calls, with_test_case]
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


@pytest.mark.parametrize("hold", [way for way in WAYS if way is not with_direct_calls])
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


class Traced:
    """A program's own wrapper of a lock, which calls its methods."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    async def __aenter__(self) -> Any:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)


@pytest.mark.parametrize("hold", [way for way in WAYS if way is not with_direct_calls])
def test_wrapper_leaves_its_own_block(hold: Hold) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Semaphore(await connect(), "/l", 2)
        wrapped = await in_a_task(Traced(lock).__aenter__())
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
        await nothing_left(server)

    simulate_clients(main)


async def in_a_task(job: Any) -> Any:
    """Await a coroutine in a task that is done afterwards."""
    return await asyncio.create_task(job)


def test_direct_aexit_leaves_block_of_direct_aenter() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = Semaphore(await connect(), "/l", 2)
        one = await lock.__aenter__()
        async with lock as two:
            await lock.__aexit__(None, None, None)
            assert (one.released, two.released) == (True, False)

    simulate_clients(main)


def test_direct_aexit_refuses_entries_of_several_tasks() -> None:
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


async def lose(server: Server, lease: Any) -> None:
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
                await lose(server, lease)
        assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]

    simulate_clients(main)


@pytest.mark.parametrize("outer", ["cancel", "flag"])
@pytest.mark.parametrize("inner", ["cancel", "flag"])
def test_each_block_has_its_own_reaction_to_loss(outer: Any, inner: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, raised = await connect(), None
        async with AsyncExitStack() as stack:
            try:
                async with zk.lock("/l", reentrant=True, on_lost=outer):
                    try:
                        async with zk.lock("/l", reentrant=True, on_lost=inner) as lease:
                            stack.push_async_callback(asyncio.sleep, 1)
                            await asyncio.wait_for(lose(server, lease), 10)
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


class Late:
    """Base class of locks that wait before they are entered."""

    async def __aenter__(self) -> Any:
        await asyncio.sleep(0.01)
        return await super().__aenter__()  # type: ignore[misc]


class LateLock(Late, Lock):
    """A lock that waits before it is entered."""


class LateSemaphore(Late, Semaphore):
    """A semaphore that waits before it is entered."""


@pytest.mark.parametrize("kind", [LateLock, LateSemaphore])
def test_tasks_sharing_late_lock_keep_own_lease(kind: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, leases = await connect(), []
        lock = kind(zk, "/l", 2) if kind is LateSemaphore else kind(zk, "/l")

        async def work(seconds: float) -> None:
            async with lock as lease:
                leases.append(lease)
                await asyncio.sleep(seconds)
                lease.raise_if_lost()
            assert lease.released

        async with asyncio.TaskGroup() as group:
            for seconds in (0.1, 0.3):
                group.create_task(work(seconds))
        await nothing_left(server)

    simulate_clients(main)


def test_all_tasks_in_blocks_of_lease_get_its_loss() -> None:
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


def test_block_of_lease_after_downgrade_ends() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        rw = ReadWriteLock(await connect(), "/l")
        writer = await rw.write().acquire()
        reader = await rw.downgrade(writer)
        async with writer:
            pass
        assert not reader.released
        await reader.release()

    simulate_clients(main)


def test_closed_client_block_can_be_left_in_new_loop(zoolet: Server) -> None:
    stack = AsyncExitStack()

    async def enter() -> None:
        async with Client(zoolet.hosts) as zk:
            await stack.enter_async_context(zk.watch("/a"))
            await stack.enter_async_context(zk.lock("/l"))

    asyncio.run(enter())
    asyncio.run(stack.aclose())
