"""The semaphore: never more holders than leases, in order, and no leaked lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support import kazoo_bugs
from support.cancellation import cancel_everywhere
from support.leftovers import ephemerals, wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, SessionExpiredError
from zoolet.client.recipes import LockLostError, Semaphore, SemaphoreLock
from zoolet.protocol.errors import ErrorCode
from zoolet.testing import Server, Simulation, delay, drop_request, error, lose_reply

NAMINGS = ("kazoo", "curator")


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("leases", [1, 2, 3])
def test_semaphore_admits_limited_holders_in_order_of_arrival(naming: str, leases: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        order: list[int] = []
        inside = most = 0

        async def use(number: int) -> None:
            nonlocal inside, most
            async with Semaphore(await connect(), "/pool", leases, naming=naming):
                order.append(number)
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(5 + number / 10)
                inside -= 1

        tasks = []
        for number in range(7):
            tasks.append(asyncio.create_task(use(number)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        assert most == leases
        assert order == list(range(7))
        await wait_until_clean(server)

    simulate_clients(main)


def test_semaphore_refuses_number_of_leases_other_than_stored() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with Semaphore(zk, "/pool", 2) as held:
            assert server.tree()["/pool"].data == b"2"
            assert await Semaphore(zk, "/pool", 2).holders() == [held.path]
            with pytest.raises(ValueError, match="has 2 leases, not 3"):
                await Semaphore(zk, "/pool", 3).acquire()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("leases", [0, -1, 1.5, "2"])
def test_invalid_number_of_leases_is_refused(leases: object) -> None:
    with pytest.raises(ValueError):
        Semaphore(Client("127.0.0.1:1"), "/pool", leases)  # type: ignore[arg-type]


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize(("count", "lists"), [(1, 1), (2, 2)])
def test_acquiring_single_lease_lists_contenders_only_once(naming: str, count: int, lists: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        pool = Semaphore(zk, "/pool", 3, naming=naming)
        await (await pool.acquire()).release()
        await asyncio.sleep(1)
        before = server.op_count()
        lease = await pool.acquire(count=count)
        asked = [op.path for op in server.ops(since=before) if op.op.startswith("getChildren")]
        await lease.release()

        assert len([path for path in asked if path == pool._parent]) == lists

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_end_of_lease_wakes_only_first_waiter(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(6)]
        held = await Semaphore(clients[0], "/pool", 1, naming=naming).acquire()
        waiters = []
        for client in clients[1:]:
            waiters.append(asyncio.create_task(Semaphore(client, "/pool", 1, naming=naming).acquire()))
            await asyncio.sleep(0.2)
        before = server.op_count()
        await held.release()
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        awake = {op.session for op in server.ops(since=before)}
        # The first waiter gets the lease and deletes its contender. The deletion wakes the next waiter.
        assert awake <= {client.session_id for client in clients[:3]}
        for waiter in waiters:
            await (await waiter).release()

    simulate_clients(main)


def test_timed_out_semaphore_acquire_cleans_up() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with Semaphore(one, "/pool", 1):
            with pytest.raises(TimeoutError):
                await Semaphore(two, "/pool", 1).acquire(0.5)
            await server.until(lambda: len(ephemerals(server)) == 1)
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_semaphore_acquire_cancelled_anytime_leaves_no_lease(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        await (await Semaphore(zk, "/pool", 1, naming=naming).acquire()).release()
        await zk.sync()  # by now the contender of the internal lock is also deleted
        leaks = []
        for step in range(80):
            task = asyncio.create_task(Semaphore(zk, "/pool", 1, naming=naming).acquire())
            await asyncio.sleep(step * 0.0004)
            if task.done():
                await (await task).release()
                continue
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await task.result().release()
            await asyncio.sleep(1)
            if ephemerals(server):
                leaks.append(step)
                await zk.delete(ephemerals(server)[0])
        assert leaks == []

    simulate_clients(main)


@pytest.mark.parametrize("op", ["create", "create2", "exists", "delete", "getChildren"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("naming", NAMINGS)
def test_acquire_with_lost_messages_leaves_no_second_lease(naming: str, action: type, op: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), op, times=1):
            async with Semaphore(zk, "/pool", 1, naming=naming) as held:
                await asyncio.sleep(1)
                assert ephemerals(server) == [held.path]
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_waiter_without_its_contender_node_creates_no_lease(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        await (await Semaphore(one, "/pool", 1, naming=naming).acquire()).release()
        with server.fault(delay(0.5), "removeWatches", client=one, times=1, strict=True) as fault:
            first = asyncio.create_task(Semaphore(one, "/pool", 1, naming=naming).acquire())
            await server.until(lambda: fault.hits)
            second = asyncio.create_task(Semaphore(two, "/pool", 1, naming=naming).acquire())
            server.expire(one)
        await asyncio.wait([first, second], timeout=5)
        leases = [task.result() for task in (first, second) if task.done() and task.exception() is None]
        for task in (first, second):
            task.cancel()
        await asyncio.wait([first, second])
        for held in leases:
            await held.release()
        assert len(leases) == 1

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_lease_is_not_created_after_session_of_contender_ended(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        await (await Semaphore(one, "/pool", 1, naming=naming).acquire()).release()
        expired, session_id = error(ErrorCode.SESSION_EXPIRED), one.session_id
        with server.fault(expired, "removeWatches", client=one, times=1, strict=True) as fault:
            first = asyncio.create_task(Semaphore(one, "/pool", 1, naming=naming).acquire())
            await server.until(lambda: fault.hits)
            server.refuse_connections()
            server.expire(session_id)
            held = await Semaphore(two, "/pool", 1, naming=naming).acquire()
            server.accept_connections()
            with pytest.raises(SessionExpiredError):
                await first

        assert [path for path in ephemerals(server) if "lock" not in path] == [held.path]
        await held.release()

    simulate_clients(main)


def test_lease_is_lost_with_session() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with Semaphore(one, "/pool", 1):
                await asyncio.sleep(0.2)
                server.expire(one)
                await asyncio.sleep(1000)
        async with Semaphore(two, "/pool", 1, timeout=5.0):
            pass

    simulate_clients(main)


def test_session_loss_while_deleting_contender_is_reported() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises((LockLostError, SessionExpiredError)):  # noqa: PT012
            with server.fault(delay(0.5), "delete", client=zk, times=1) as fault:

                async def use() -> None:
                    async with Semaphore(zk, "/pool", 1):
                        await asyncio.sleep(60)

                using = asyncio.create_task(use())
                await server.until(lambda: fault.hits)
                server.expire(zk)
            await using

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_semaphore_lock_can_be_released_by_different_task(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await SemaphoreLock(one, "/lock", naming=naming).acquire()
        with pytest.raises(TimeoutError):
            await SemaphoreLock(one, "/lock", naming=naming).acquire(0.5)
        await asyncio.create_task(held.release())
        await (await SemaphoreLock(two, "/lock", naming=naming).acquire(5.0)).release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_foreign_children_of_semaphore_are_not_leases() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/pool": {"note": b"", "0" * 31: b""}})
        async with Semaphore(zk, "/pool", 1, timeout=5.0):
            assert len(kazoo_bugs.children(server, "/pool")) == 3

    simulate_clients(main)


# --- several leases in one step, and a changing size ---


@pytest.mark.parametrize("naming", NAMINGS)
def test_several_leases_are_acquired_and_lost_together(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await Semaphore(one, "/pool", 4, naming=naming).acquire(count=3)
        other = Semaphore(two, "/pool", 4, naming=naming)
        assert len(await other.holders()) == 3
        assert await other.attempt(count=2) is None
        single = await other.attempt()
        assert single is not None
        waiting = asyncio.create_task(other.acquire(5.0, count=3))
        await asyncio.sleep(1)
        assert not waiting.done()
        await held.release()
        both = await waiting
        assert len(await other.holders()) == 4
        await single.release()
        await one.delete(sorted(await other.holders())[1])
        await asyncio.wait_for(both.lost.wait(), 5.0)
        await both.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_leases_with_lost_create_exist_once(naming: str, action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), "multi", times=1, strict=True):
            held = await Semaphore(zk, "/pool", 3, naming=naming).acquire(count=3)
        await asyncio.sleep(5)
        assert len(ephemerals(server)) == 3
        await held.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_cancelled_acquire_of_leases_cleans_up(naming: str) -> None:
    async def work(zk: Client) -> None:
        async with await Semaphore(zk, "/pool", 3, naming=naming).acquire(count=3):
            pass

    cancel_everywhere(work)


@pytest.mark.parametrize("count", [0, 3, 1.5])
def test_invalid_count_is_refused(count: Any) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        with pytest.raises(ValueError, match="count"):
            await Semaphore(await connect(), "/pool", 2).acquire(count=count)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_raising_number_of_leases_admits_waiters(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        pools = [Semaphore(zk, "/pool", None, naming=naming) for zk in clients]
        early = asyncio.create_task(pools[0].acquire())
        await asyncio.sleep(1)
        assert not early.done()
        await pools[1].resize(1)
        await (await asyncio.wait_for(early, 1)).release()
        held = await pools[0].acquire()
        waiting = [asyncio.create_task(pool.acquire()) for pool in pools[1:]]
        await asyncio.sleep(1)
        assert not any(task.done() for task in waiting)
        await pools[3].resize(3)
        await asyncio.sleep(1)
        assert sum(task.done() for task in waiting) == 2
        await pools[3].resize(2)
        await held.release()
        await asyncio.sleep(1)
        assert sum(task.done() for task in waiting) == 2
        await next(task for task in waiting if task.done()).result().release()
        for lease in await asyncio.wait_for(asyncio.gather(*waiting), 5.0):
            await lease.release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_acquiring_more_leases_than_exist_raises_without_effect() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        pool = Semaphore(await connect(), "/pool", None)
        await pool.resize(2)
        with pytest.raises(ValueError, match="count is 3, but /pool has only 2 leases"):
            await pool.acquire(count=3)
        async with await pool.acquire(1.0, count=2):
            with pytest.raises(TimeoutError, match="/pool had fewer than 1 free lease within 1 s"):
                await pool.acquire(1.0)

    simulate_clients(main)


def test_semaphore_with_fixed_number_of_leases_cannot_be_resized() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        with pytest.raises(ValueError, match=r"a fixed number of leases \(2\)"):
            await Semaphore(await connect(), "/pool", 2).resize(3)

    simulate_clients(main)


def test_number_of_leases_set_by_other_client_is_not_replaced() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        with server.fault(delay(1.0), "setData", "/pool", client=one, strict=True):
            trying = asyncio.create_task(Semaphore(one, "/pool", 2).attempt())
            await asyncio.sleep(0.5)
            async with Semaphore(two, "/pool", 5):
                with pytest.raises(ValueError, match="has 5 leases, not 2"):
                    await trying
        assert server.tree()["/pool"].data == b"5"

    simulate_clients(main)


def test_number_of_leases_is_read_from_kazoo_semaphore() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        server.populate({"/pool": b"2"})
        pool = Semaphore(await connect(), "/pool", None)
        first, second = await pool.acquire(), await pool.acquire()
        assert await pool.attempt() is None
        for lease in (first, second):
            await lease.release()

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_semaphore_attempt_overtaken_by_other_deletes_contender(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        await (await Semaphore(one, "/pool", 1, naming=naming).acquire()).release()
        with server.fault(delay(0.5), "create2", client=one, times=1, strict=True) as fault:
            slow = asyncio.create_task(Semaphore(one, "/pool", 1, naming=naming).attempt())
            await server.until(lambda: fault.hits)
            held = await Semaphore(two, "/pool", 1, naming=naming).acquire()
            assert await slow is None
        await server.until(lambda: ephemerals(server) == [held.path], timeout=5)
        await held.release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_attempt_without_stored_number_of_leases_creates_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        assert await Semaphore(await connect(), "/pool", None).attempt() is None
        assert not server.tree()

    simulate_clients(main)
