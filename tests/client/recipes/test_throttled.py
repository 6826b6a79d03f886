"""A server that is too busy to try a request only delays a recipe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest
from support.crew import double
from support.leftovers import wait_until_clean
from support.simulation import make_client, with_client

from zoolet.client import Client, ClosedError, SessionExpiredError, ThrottledOpError
from zoolet.client.recipes import (
    Barrier,
    Counter,
    DoubleBarrier,
    DurableLock,
    Election,
    Lock,
    LockingQueue,
    Master,
    MultiLock,
    NodeCache,
    Party,
    Queue,
    ReadWriteLock,
    Semaphore,
    TreeCache,
    TryLock,
    TwoPhaseCommit,
    UniqueId,
    Worker,
)
from zoolet.protocol.errors import BadArgumentsError, ErrorCode
from zoolet.testing import Server, error
from zoolet.testing.frames.actions import Action

OPERATIONS: Final = (
    "create create2 createContainer createTTL delete exists getData setData getChildren getChildren2 multi addWatch "
    "removeWatches sync"
).split()


def throttle_action() -> Action:
    """Return an action that refuses requests like a server that is too busy to try them."""
    return error(ErrorCode.THROTTLED_OP)


async def submit_task_and_command(zk: Client) -> None:
    """Submit a task, wait for its result, and send the workers a command."""

    async def echo(value: Any) -> Any:
        return value

    async with Master(zk, "/jobs") as master, Worker(zk, "/jobs", "w", double, on_command=echo):
        task = await master.submit(1)
        assert (await master.result(task))["result"] == 2
        assert await master.command("now") == {"w": {"answer": "now"}}


async def hold_lock(lock: Any) -> None:
    """Hold a lock for a second."""
    async with lock:
        await asyncio.sleep(1)


async def put_and_get(queue: Any) -> None:
    """Put an entry and get it."""
    await queue.put(b"x")
    assert await queue.get(60) == b"x"


async def follow_cache(cache: Any) -> None:
    """Enter a cache, and leave it after a second."""
    async with cache:
        await asyncio.sleep(1)


async def propose(zk: Client) -> None:
    """Propose a transaction for one site, vote for it, and check that it commits."""
    site = TwoPhaseCommit(zk, "/tx")
    await site.propose("v", ["a"])
    await site.vote("a", commit=True)
    assert await site.outcome()


async def downgrade(zk: Client) -> None:
    """Acquire the write lock, and downgrade it to a read lock."""
    rw = ReadWriteLock(zk, "/rw")
    reader = await rw.downgrade(await rw.write().acquire())
    await reader.release()


RECIPES: Final[dict[str, Callable[[Client], Awaitable[Any]]]] = {
    "Lock": lambda zk: hold_lock(Lock(zk, "/a")),
    "Lock both": lambda zk: hold_lock(Lock(zk, "/a", naming="both")),
    "MultiLock": lambda zk: hold_lock(MultiLock(zk, ["/a", "/b"])),
    "TryLock": lambda zk: hold_lock(TryLock(zk, "/a")),
    "DurableLock": lambda zk: hold_lock(DurableLock(zk, "/a", "me", ttl=60)),
    "Semaphore": lambda zk: hold_lock(Semaphore(zk, "/a", 2)),
    "Election": lambda zk: hold_lock(Election(zk, "/a")),
    "ReadWriteLock": downgrade,
    "Master": submit_task_and_command,
    "Queue": lambda zk: put_and_get(Queue(zk, "/a")),
    "LockingQueue": lambda zk: put_and_get(LockingQueue(zk, "/a")),
    "Party": lambda zk: hold_lock(Party(zk, "/a", b"me")),
    "Barrier": lambda zk: Barrier(zk, "/a").wait(),
    "DoubleBarrier": lambda zk: hold_lock(DoubleBarrier(zk, "/a", 1)),
    "Counter": lambda zk: Counter(zk, "/a").add(1),
    "UniqueId": lambda zk: UniqueId(zk, "/a").next(),
    "NodeCache": lambda zk: follow_cache(NodeCache(zk, "/")),
    "TreeCache": lambda zk: follow_cache(TreeCache(zk, "/")),
    "TwoPhaseCommit": propose,
}


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_works_if_server_throttles_each_operation_twice(name: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        for operation in OPERATIONS:
            server.fault(throttle_action(), operation, client=zk, times=2).__enter__()
        async with asyncio.timeout(120):
            await RECIPES[name](zk)
        server.heal()
        await zk.aclose()
        await wait_until_clean(server)

    with_client(main)


def test_contender_with_throttled_create_acquires_free_lock() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(throttle_action(), "create2", client=zk, times=1):
            await hold_lock(Lock(zk, "/a"))

    with_client(main)


def test_session_loss_fails_call_that_server_throttles() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(throttle_action(), "getData", client=zk) as fault:
            waiting = zk._for_recipe().get("/")
            await server.until(lambda: fault.hits > 3, timeout=60)
            assert zk.statistics().waiting == 1
            server.expire(zk)
            with pytest.raises(SessionExpiredError):
                await waiting

    with_client(main)


def test_client_close_fails_call_that_server_throttles() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(throttle_action(), "getData", client=zk) as fault:
            waiting, cancelled = zk._for_recipe().get("/"), zk._for_recipe().get("/")
            await server.until(lambda: fault.hits > 3, timeout=60)
            cancelled.cancel()
            await zk.aclose()
            with pytest.raises(ClosedError):
                await waiting

    with_client(main)


def test_throttling_time_does_not_count_as_connection_wait() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(throttle_action(), "getData", client=zk):
            waiting = zk._for_recipe().get("/")
            await asyncio.sleep(19)
        server.refuse_connections()
        server.drop("all")
        await asyncio.sleep(11)
        server.accept_connections()
        assert await waiting

    with_client(main, timeout=60.0, operation_timeout=20.0)


def test_throttled_call_raises_but_retry_repeats_it() -> None:
    async def main(server: Server, zk: Client) -> None:
        with server.fault(throttle_action(), "getData", client=zk, times=1), pytest.raises(ThrottledOpError):
            await zk.get("/")
        with server.fault(throttle_action(), "getData", client=zk, times=2):
            assert await zk.retry(lambda: zk.get("/"))

    with_client(main)


@pytest.mark.parametrize("make", [TryLock, lambda zk, path: ReadWriteLock(zk, path).read()], ids=["try", "read"])
def test_watch_set_again_survives_repeated_removal_of_first(make: Callable[..., Any]) -> None:
    async def main(server: Server, holder: Client) -> None:
        async with make_client(server, seed=6) as zk:
            lease = await (TryLock if make is TryLock else Lock)(holder, "/l").acquire()
            if make is not TryLock:
                await lease.release()
                lease = await ReadWriteLock(holder, "/l").write().acquire()
            with server.fault(throttle_action(), "removeWatches", client=zk, times=1, strict=True):
                giving_up = asyncio.ensure_future(make(zk, "/l").acquire(1))
                await asyncio.sleep(1.02)  # by now the server has refused the removal of the watch
                waiting = asyncio.ensure_future(make(zk, "/l").acquire(600))
                with pytest.raises(TimeoutError):
                    await giving_up
                await asyncio.sleep(5)
            await lease.release()
            async with asyncio.timeout(5):
                await (await waiting).release()

    with_client(main)


def test_throttled_restore_of_watches_is_retried() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/n", b"1")
        async with NodeCache(zk, "/n") as cache:
            with server.fault(throttle_action(), "setWatches", client=zk, times=1, strict=True):
                server.drop("all")
                await asyncio.sleep(3)
            server.set("/n", b"2")
            async with asyncio.timeout(5):
                while cache.value != b"2":
                    await asyncio.sleep(0.1)

    with_client(main)


def test_close_fails_throttled_calls() -> None:
    async def main(server: Server, _: Client) -> None:
        zk = make_client(server, seed=6)
        await zk.start()
        with server.fault(throttle_action(), "getData", client=zk):
            reading = [asyncio.ensure_future(zk._for_recipe().get("/")) for _ in range(3)]
            await asyncio.sleep(0)
            await zk.aclose()
            results = await asyncio.wait_for(asyncio.gather(*reading, return_exceptions=True), 60)
        assert [type(result) for result in results] == [ClosedError] * 3

    with_client(main)


def test_transaction_with_too_many_operations_is_not_repeated() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with zk.lock("/lock") as lease:
            for t in (zk.transaction(), lease.transaction()):
                for _ in range(5_001):
                    t.check("/", -1)
                with pytest.raises(BadArgumentsError, match=r"^the server rejected .* operations \(zoolet\.maxMulti"):
                    await t.commit()

    with_client(main)
