"""The lock of one node: free or held, and deleted only by its holder."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest
from support.leftovers import wait_until_clean
from support.simulation import Connect, simulate_clients, with_client

from zoolet.client import Client, ConnectionLossError, NoNodeError
from zoolet.client.recipes import LockLostError, TryLock
from zoolet.client.recipes._owned_node import delete_node_pair
from zoolet.testing import Server, Simulation, drop_request, lose_reply


def test_attempt_returns_none_if_lock_is_held() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await TryLock(one, "/job", data=b"host").attempt()
        assert held is not None
        assert server.tree()["/job"].data.endswith(b"host")
        assert await TryLock(two, "/job").attempt() is None
        await held.release()
        again = await TryLock(two, "/a/b/job").attempt()
        assert again is not None
        assert again.token > held.token
        await again.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_try_lock_recognizes_its_node_after_lost_create_reply(action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), None, "/job*", times=1, strict=True):
            held = await TryLock(zk, "/job").attempt()
        assert held is not None
        assert held.token == server.tree()["/job"].czxid
        await held.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("step", range(0, 40, 2))
def test_try_lock_acquire_cancelled_anytime_leaves_no_node(step: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        task = asyncio.create_task(TryLock(zk, "/a/job").acquire())
        await asyncio.sleep(step * 0.0004)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        await wait_until_clean(server)

    simulate_clients(main, step)


def test_abandoned_try_lock_attempt_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect(timeout=60.0, operation_timeout=1.0)
        with server.fault(lose_reply(), None, "/job*", times=1, strict=True) as fault:
            trying = asyncio.create_task(TryLock(zk, "/job").attempt())
            await server.until(lambda: fault.hits)
            server.refuse_connections()
            with pytest.raises(ConnectionLossError):
                await trying
            assert "/job" in server.tree()
            server.accept_connections()
        await wait_until_clean(server)

    simulate_clients(main)


def test_waiters_of_try_lock_exclude_each_other() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        inside = 0

        async def use() -> None:
            nonlocal inside
            async with TryLock(await connect(), "/job", timeout=60.0):
                inside += 1
                assert inside == 1
                await asyncio.sleep(1)
                inside -= 1

        await asyncio.gather(*(use() for _ in range(6)))
        await wait_until_clean(server)

    simulate_clients(main)


def test_release_with_lost_reply_keeps_node_of_next_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, three = await connect(), await connect(), await connect()
        first = await TryLock(one, "/job").acquire()
        waiting = asyncio.create_task(TryLock(two, "/job").acquire())
        await asyncio.sleep(0.5)
        with server.fault(lose_reply(), "multi", client=one, times=1, strict=True):
            await first.release()
        second = await waiting
        await asyncio.sleep(0.5)
        third = await TryLock(three, "/job").attempt()
        assert third is None
        assert not second.lost.is_set()
        await second.release()

    simulate_clients(main)


def test_end_of_block_keeps_node_of_next_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with TryLock(one, "/job", on_lost="flag") as first:
            await asyncio.sleep(0.5)
            await two.delete("/job")
            second = await TryLock(two, "/job").attempt()
            assert second is not None
            await first.lost
        await asyncio.sleep(0.02)
        assert "/job" in server.tree()
        await second.release()

    simulate_clients(main)


def test_transaction_of_previous_try_lock_holder_is_refused() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        server.populate({"/register": b"0"})
        first = await TryLock(one, "/job").attempt()
        assert first is not None
        late = first.transaction()
        late.set("/register", b"late")
        server.expire(one)
        second = await TryLock(two, "/job").acquire(5.0)
        await server.until(lambda: one.session_id in server.sessions())
        with pytest.raises(LockLostError):
            await late.commit()
        assert server.tree()["/register"].data == b"0"
        await second.release()

    simulate_clients(main)


def test_try_lock_is_lost_if_its_node_is_deleted_and_recreated() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with TryLock(one, "/job", on_lost="flag") as first:
            await two.delete("/job")
            second = await TryLock(two, "/job").attempt()
            assert second is not None
            async with asyncio.timeout(10), second:
                await first.lost

    simulate_clients(main)


def test_release_deletes_lock_node_without_its_proof_node() -> None:
    async def main(server: Server, zk: Client) -> None:
        lease = await TryLock(zk, "/t").acquire()
        server.delete(lease.proof_node)
        with suppress(NoNodeError, LockLostError):
            await lease.release()
        await asyncio.sleep(1)
        assert "/t" not in server.tree()

    with_client(main)


def test_unawaited_delete_of_try_lock_nodes_fails_silently() -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

        server.refuse_connections()
        server.drop("all")
        delete_node_pair(zk, "/a", "/b").close()
        await asyncio.sleep(2)
        server.accept_connections()
        gc.collect()

        assert complaints == []

    with_client(main, operation_timeout=1.0)
