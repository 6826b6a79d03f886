"""The lock of one node: free or taken, and never somebody else's to delete."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress

import pytest
from support.leftovers import nothing_left
from support.simulation import Connect, simulate_clients, with_client

from zoolet.client import Client, ConnectionLossError, NoNodeError
from zoolet.client.recipes import LockLostError, TryLock
from zoolet.client.recipes._owned_node import delete_both
from zoolet.server import Server
from zoolet.server.testing import Simulation, drop_request, lose_reply


def test_an_attempt_takes_what_is_free_and_is_none_if_it_is_taken() -> None:
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
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_a_lost_create_is_one_s_own(action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(action(), None, "/job*", times=1, strict=True):
            held = await TryLock(zk, "/job").attempt()
        assert held is not None
        assert held.token == server.tree()["/job"].czxid
        await held.release()
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("step", range(0, 40, 2))
def test_anyone_is_cancelled_at_any_moment_leaves_no_node(step: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        task = asyncio.create_task(TryLock(zk, "/a/job").acquire())
        await asyncio.sleep(step * 0.0004)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        await nothing_left(server)

    simulate_clients(main, step)


def test_an_attempt_that_gave_up_leaves_no_node() -> None:
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
        await nothing_left(server)

    simulate_clients(main)


def test_anyone_waits_has_it_when_it_is_free() -> None:
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
        await nothing_left(server)

    simulate_clients(main)


def test_a_release_whose_reply_is_lost_does_not_delete_the_next_holder_s_node() -> None:
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


def test_the_end_of_a_block_does_not_delete_the_next_holder_s_node() -> None:
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


def test_a_transaction_of_a_former_holder_is_refused_though_another_holds_the_path() -> None:
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


def test_a_node_that_was_deleted_and_taken_by_another_at_once_is_a_loss() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with TryLock(one, "/job", on_lost="flag") as first:
            await two.delete("/job")
            second = await TryLock(two, "/job").attempt()
            assert second is not None
            async with asyncio.timeout(10), second:
                await first.lost

    simulate_clients(main)


def test_a_path_whose_proof_node_somebody_deletes_is_released_all_the_same() -> None:
    async def main(server: Server, zk: Client) -> None:
        lease = await TryLock(zk, "/t").acquire()
        server.delete(lease.proof_node)
        with suppress(NoNodeError, LockLostError):
            await lease.release()
        await asyncio.sleep(1)
        assert "/t" not in server.tree()

    with_client(main)


def test_a_delete_whose_end_nobody_awaits_fails_silently() -> None:
    async def main(server: Server, zk: Client) -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))

        server.refuse_connections()
        server.drop("all")
        delete_both(zk, "/a", "/b").close()
        await asyncio.sleep(2)
        server.accept_connections()
        gc.collect()

        assert complaints == []

    with_client(main, operation_timeout=1.0)
