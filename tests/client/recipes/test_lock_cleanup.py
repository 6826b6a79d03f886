"""Nothing is left of a lock when an attempt times out, is cancelled or fails, or when a reply is lost."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals, wait_for_queue, wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, ClosedError, SessionExpiredError
from zoolet.client.recipes import Lock, LockLostError, TryLock
from zoolet.protocol.errors import ConnectionLossError, ErrorCode, NoAuthError
from zoolet.testing import Server, Simulation, close_after, drop_request, error, lose_reply

# --- timeouts and cancelled waits ---


def test_timed_out_acquire_cleans_up_for_next_attempt() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = two.lock("/lock", timeout=1.5)
        async with one.lock("/lock"):
            began = sim.time()
            with pytest.raises(TimeoutError):
                async with lock:
                    pass
            assert sim.time() - began == pytest.approx(1.5, abs=0.05)
            await wait_for_queue(server, "/lock", 1)
            assert kazoo_bugs.client_watches(server, two) == []
        async with lock:
            pass
        async with lock:
            with pytest.raises(TimeoutError):
                await one.lock("/lock").acquire(0)
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
@pytest.mark.parametrize("taken", [False, True])
def test_waiter_cancelled_at_any_point_cleans_up(naming: str, taken: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        server.populate({"/lock": b""})
        holder = await one.lock("/lock", naming=naming).acquire() if taken else None
        mine = len(ephemerals(server))

        async def use() -> None:
            async with two.lock("/lock", naming=naming):
                await asyncio.sleep(0.001)

        for step in range(40):
            task = asyncio.create_task(use())
            await asyncio.sleep(step * 0.0007)
            task.cancel()
            await asyncio.wait([task])
            await server.until(lambda: len(ephemerals(server)) == mine and not kazoo_bugs.client_watches(server, two))
        if holder is not None:
            await holder.release()
        await (await two.lock("/lock", naming=naming).acquire(1.0)).release()

    simulate_clients(main)


@pytest.mark.parametrize("step", range(8))
def test_waiter_cancelled_after_reply_leaves_no_node(step: int) -> None:
    moments = [0.0]

    async def find_out(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        async with await zk.lock("/lock").acquire():
            moments[0] = sim.time()

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        task = asyncio.create_task(zk.lock("/lock").acquire())
        await asyncio.sleep(moments[0] - sim.time())
        for _ in range(step):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().release()
        await wait_until_clean(server)

    simulate_clients(find_out, 3)
    simulate_clients(main, 3)


def test_lock_is_acquired_after_lost_create_reply() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault(lose_reply(), "create2", times=1, strict=True):
            held = await zk.lock("/lock").acquire()
        assert [f"/lock/{name}" for name in kazoo_bugs.children(server, "/lock")] == [held.path]
        assert server.tree()[held.path].czxid == held.czxid
        await held.release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_lost_create_is_repeated_once() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault(drop_request(), "create2", times=2, strict=True):
            held = await zk.lock("/lock").acquire()
        assert len(kazoo_bugs.children(server, "/lock")) == 1
        await held.release()

    simulate_clients(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_release_with_lost_reply_succeeds(action: Callable[[], Any]) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await one.lock("/lock").acquire()
        with server.fault(action(), "delete", times=1, strict=True):
            await held.release()
            async with two.lock("/lock", timeout=5.0):
                pass
        assert not held.lost.is_set()
        await wait_until_clean(server)

    simulate_clients(main)


def test_lock_timeout_with_lost_delete_requests_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            with server.fault(drop_request(), "delete", times=3, strict=True):
                with pytest.raises(TimeoutError):
                    await two.lock("/lock").acquire(0.5)
                await wait_for_queue(server, "/lock", 1)
        await wait_until_clean(server)

    simulate_clients(main)


def test_client_closed_while_listing_contenders_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(operation_timeout=1.0, timeout=60.0), await connect()
        server.populate({"/lock": b""})
        with server.fault(close_after(), "create2", times=1, strict=True) as fault:
            taking = asyncio.create_task(one.lock("/lock").acquire())
            await server.until(lambda: fault.hits)
            server.refuse_connections()
            with pytest.raises(ConnectionLossError):
                await taking
            server.accept_connections()
        async with two.lock("/lock", timeout=30.0):
            pass

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_session_end_while_waiting_is_reported(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", naming=naming):
            waiting = asyncio.create_task(two.lock("/lock", naming=naming).acquire())
            await server.until(lambda: kazoo_bugs.client_watches(server, two))
            await kazoo_bugs.lose_session(server, two)
            with pytest.raises(SessionExpiredError):
                await waiting
        async with two.lock("/lock", timeout=5.0, naming=naming):
            pass
        await wait_until_clean(server)

    simulate_clients(main)


def test_lock_waiter_raises_when_its_client_closes() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await server.until(lambda: kazoo_bugs.client_watches(server, two))
            await two.aclose()
            with pytest.raises(ClosedError):
                await waiting

    simulate_clients(main)


def test_waiter_with_deleted_node_does_not_hold_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        holder = await one.lock("/lock").acquire()
        waiting = asyncio.create_task(two.lock("/lock").acquire())
        await wait_for_queue(server, "/lock", 2)
        await one.delete(f"/lock/{kazoo_bugs.children(server, '/lock')[1]}")
        await holder.release()
        try:
            held = await asyncio.wait_for(waiting, 5)
        except SessionExpiredError:
            return
        with pytest.raises(LockLostError):
            await held.transaction().commit()
        assert held.lost.is_set()

    simulate_clients(main)


# --- failed and refused requests, and warnings ---


def test_client_closed_after_release_logs_no_warning() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        async with Client(server.hosts) as zk, zk.lock("/lock", naming="both"):
            pass
        gc.collect()

    with warnings.catch_warnings(record=True) as reported:
        warnings.simplefilter("always")
        simulate_clients(main)
        gc.collect()
    assert [str(one.message) for one in reported] == []


@pytest.mark.parametrize("op", ["getChildren", "exists", "sync"])
def test_refused_request_during_acquire_leaves_no_node(op: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        await zk.ensure_path("/l")
        for lock in (Lock(zk, "/l"), TryLock(zk, "/l/try")):
            with server.fault(error(NoAuthError), op, times=1):
                try:
                    await (await lock.acquire()).release()
                except NoAuthError:
                    await asyncio.sleep(1)
            assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate_clients(main)


def test_refused_release_is_retried() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(error(ErrorCode.THROTTLED_OP), "delete", times=1, strict=True):
            async with Lock(zk, "/l"):
                pass
            await asyncio.sleep(1)
        assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate_clients(main)
