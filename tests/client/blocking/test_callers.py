"""Locks of the blocking client are held by a thread, or by the task that a thread runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pytest
from support.leftovers import ephemerals
from support.waiting import DEADLINE_S

from zoolet.client import recipes
from zoolet.client.blocking import Client
from zoolet.client.blocking import recipes as blocking_recipes
from zoolet.client.recipes import DeadlockError
from zoolet.testing import Server

KINDS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "Lock": lambda module, zk: module.Lock(zk, "/l", reentrant=True),
    "ReadWriteLock": lambda module, zk: module.ReadWriteLock(zk, "/l", reentrant=True).write(),
    "MultiLock": lambda module, zk: module.MultiLock(zk, ["/k", "/l"]),
    "Semaphore": lambda module, zk: module.Semaphore(zk, "/l", 1),
    "Election": lambda module, zk: module.Election(zk, "/l"),
}


async def run_in_task_group(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run jobs in a TaskGroup."""
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(job())


async def run_in_gather(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run jobs with ``gather``, one of them in the caller's task."""
    await asyncio.gather(*[job() for job in jobs])


async def run_in_wait_for(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run jobs in tasks, each with ``wait_for``."""
    await asyncio.gather(*[asyncio.wait_for(job(), DEADLINE_S) for job in jobs])


async def run_in_caller_task(*jobs: Callable[[], Awaitable[None]]) -> None:
    """Run the first job in the task of the call, and each other job in its own task."""
    tasks = [asyncio.create_task(job()) for job in jobs[1:]]
    await jobs[0]()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize("run", [run_in_task_group, run_in_gather, run_in_wait_for, run_in_caller_task])
@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_one_call_exclude_each_other(server: Server, zk: Client, kind: str, run: Any) -> None:
    inside, first = 0, asyncio.Event()

    async def use(client: Any) -> None:
        async def job() -> None:
            nonlocal inside
            if job_numbers.pop():
                await first.wait()  # the other jobs try to acquire while the first job holds the lock
            async with KINDS[kind](recipes, client):
                inside += 1
                first.set()
                await asyncio.sleep(0.01)
                assert inside == 1
                inside -= 1

        job_numbers = [2, 1, 0]

        await run(job, job, job)

    zk.use(use, timeout=DEADLINE_S)
    server.wait_for(lambda: not ephemerals(server))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_of_pool_exclude_each_other(server: Server, zk: Client, kind: str) -> None:
    shared, inside = KINDS[kind](blocking_recipes, zk), 0

    def job(number: int) -> int:
        nonlocal inside
        lock = KINDS[kind](blocking_recipes, zk) if number % 2 else shared
        with lock as lease:
            inside += 1
            assert inside == 1
            lease.raise_if_lost()
            inside -= 1
        assert lease.released
        return lease.token

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(job, range(12), timeout=DEADLINE_S))) == 12
    server.wait_for(lambda: not ephemerals(server))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("in_pool", [False, True])
def test_block_releases_its_own_lease(zk: Client, first: int, in_pool: bool) -> None:
    semaphore, stacks = blocking_recipes.Semaphore(zk, "/pool", 2), [ExitStack(), ExitStack()]
    with ThreadPoolExecutor(1) as pool:
        enter = (lambda stack: pool.submit(stack.enter_context, semaphore).result()) if in_pool else None
        leases = [enter(stack) if enter else stack.enter_context(semaphore) for stack in stacks]
    stacks[first].close()

    assert leases[first].released
    leases[1 - first].raise_if_lost()
    stacks[1 - first].close()
    assert leases[1 - first].released


def test_coroutine_of_thread_reenters_its_lock(zk: Client) -> None:
    async def again(client: Any) -> int:
        async with recipes.Lock(client, "/l", reentrant=True) as lease:
            return lease.token

    with zk.lock("/l", reentrant=True) as lease:
        assert zk.use(again) == lease.token
        lease.raise_if_lost()


@pytest.mark.parametrize("reentrant", [False, True])
def test_waiting_for_own_thread_raises_deadlock_error(zk: Client, reentrant: bool) -> None:
    async def main() -> None:  # in an event loop of the program, which the calls block
        entered = asyncio.Event()

        async def hold() -> None:
            with zk.lock("/l", reentrant=reentrant) as lease:
                entered.set()
                await asyncio.sleep(0.01)
                lease.raise_if_lost()

        holding = asyncio.create_task(hold())
        await entered.wait()
        with pytest.raises(DeadlockError, match="this thread already holds"):
            zk.lock("/l", reentrant=reentrant, timeout=DEADLINE_S).acquire()
        await holding

    async def acquire() -> None:
        zk.lock("/l", reentrant=reentrant, timeout=DEADLINE_S).acquire()

    asyncio.run(main())
    with zk.lock("/l", reentrant=reentrant), pytest.raises(DeadlockError, match="this thread already holds"):
        asyncio.run(acquire())


def test_handler_does_not_reenter_locks_of_its_thread(zk: Client) -> None:
    held = threading.Event()

    def lead() -> None:
        with pytest.raises(TimeoutError):
            zk.lock("/l", reentrant=True, timeout=0).acquire()
        held.set()
        raise StopIteration  # run() raises it

    with zk.lock("/l", reentrant=True), pytest.raises(RuntimeError, match="StopIteration"):
        blocking_recipes.Election(zk, "/leader").run(lead)
    assert held.is_set()


def test_attribute_access_does_not_count_as_block(server: Server, zk: Client) -> None:
    one, two = zk.lock("/one"), zk.lock("/two")
    one.__enter__()
    one.__exit__(None, None, None)
    lease = one.__enter__()
    assert hasattr(one, "__exit__")
    with ExitStack() as stack:
        stack.push(one)
        other = two.__enter__()
        stack.push(two)
        zk.exists("/")
        lease.raise_if_lost()
        other.raise_if_lost()
    assert lease.released
    assert other.released
    server.wait_for(lambda: not ephemerals(server))


def test_subclass_overriding_block_methods_is_a_lock(server: Server, zk: Client) -> None:
    class Sub(blocking_recipes.Lock):
        def __enter__(self) -> Any:
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)

    lock = Sub(zk, "/l")
    for _ in range(3):
        with lock as lease:
            zk.exists("/")
            lease.raise_if_lost()
        assert lease.released
    server.wait_for(lambda: not ephemerals(server))
