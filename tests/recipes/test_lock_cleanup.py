"""What is left of a lock when an attempt times out, is cancelled or fails, or a reply is lost: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import warnings
from collections.abc import Callable
from typing import Any, Final

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals, in_line, nothing_left
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, ClosedError, SessionExpiredError
from zoolet.client.recipes import Lock, LockLostError, MultiLock, ReadWriteLock, Semaphore, TryLock
from zoolet.protocol.errors import ConnectionLossError, ErrorCode, NoAuthError
from zoolet.server import Server
from zoolet.server.testing import Simulation, close_after, drop_request, error, lose_reply

# --- giving up ---


def test_a_timeout_raises_leaves_nothing_and_the_next_attempt_works() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = two.lock("/lock", timeout=1.5)
        async with one.lock("/lock"):
            began = sim.time()
            with pytest.raises(TimeoutError):
                async with lock:
                    pass
            assert sim.time() - began == pytest.approx(1.5, abs=0.01)
            await in_line(server, "/lock", 1)
            assert kazoo_bugs.watches_of(server, two) == []
        async with lock:
            pass
        async with lock:
            with pytest.raises(TimeoutError):
                await one.lock("/lock").acquire(0)
        await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
@pytest.mark.parametrize("taken", [False, True])
def test_a_waiter_that_is_cancelled_at_any_moment_leaves_no_node_and_no_watch(naming: str, taken: bool) -> None:
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
            await server.wait_for(lambda: len(ephemerals(server)) == mine and not kazoo_bugs.watches_of(server, two))
        if holder is not None:
            await holder.release()
        await two.lock("/lock", naming=naming).acquire(1.0)

    simulate_clients(main)


@pytest.mark.parametrize("step", range(8))
def test_a_waiter_that_is_cancelled_at_any_step_after_the_answer_leaves_no_node(step: int) -> None:
    moments = [0.0]

    async def find_out(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        await zk.lock("/lock").acquire()
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
        await nothing_left(server)

    simulate_clients(find_out, 3)
    simulate_clients(main, 3)


def test_a_lost_reply_to_the_create_does_not_stop_it() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault("create2", times=1, action=lose_reply(), strict=True):
            held = await zk.lock("/lock").acquire()
        assert [f"/lock/{name}" for name in kazoo_bugs.children(server, "/lock")] == [held.path]
        assert server.tree()[held.path].czxid == held.czxid
        await held.release()
        await nothing_left(server)

    simulate_clients(main)


def test_a_lost_create_is_made_again_once() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault("create2", times=2, action=drop_request(), strict=True):
            held = await zk.lock("/lock").acquire()
        assert len(kazoo_bugs.children(server, "/lock")) == 1
        await held.release()

    simulate_clients(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_a_release_whose_reply_is_lost_is_a_release(action: Callable[[], Any]) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await one.lock("/lock").acquire()
        with server.fault("delete", times=1, action=action(), strict=True):
            await held.release()
            async with two.lock("/lock", timeout=5.0):
                pass
        assert not held.lost.is_set()
        await nothing_left(server)

    simulate_clients(main)


def test_a_timeout_whose_cleanup_is_lost_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            with server.fault("delete", times=3, action=drop_request(), strict=True):
                with pytest.raises(TimeoutError):
                    await two.lock("/lock").acquire(0.5)
                await in_line(server, "/lock", 1)
        await nothing_left(server)

    simulate_clients(main)


def test_a_client_that_gives_up_while_it_lists_the_others_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(operation_timeout=1.0, timeout=60.0), await connect()
        server.populate({"/lock": b""})
        with server.fault("create2", times=1, action=close_after(), strict=True) as fault:
            taking = asyncio.create_task(one.lock("/lock").acquire())
            await server.wait_for(lambda: fault.hits)
            server.refuse_connections()
            with pytest.raises(ConnectionLossError):
                await taking
            server.accept_connections()
        async with two.lock("/lock", timeout=30.0):
            pass

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_a_session_that_ends_while_waiting_is_reported(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", naming=naming):
            waiting = asyncio.create_task(two.lock("/lock", naming=naming).acquire())
            await server.wait_for(lambda: kazoo_bugs.watches_of(server, two))
            await kazoo_bugs.lose_session(server, two)
            with pytest.raises(SessionExpiredError):
                await waiting
        async with two.lock("/lock", timeout=5.0, naming=naming):
            pass
        await nothing_left(server)

    simulate_clients(main)


def test_a_waiter_whose_client_is_closed_hears_of_it() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await server.wait_for(lambda: kazoo_bugs.watches_of(server, two))
            await two.aclose()
            with pytest.raises(ClosedError):
                await waiting

    simulate_clients(main)


def test_a_waiter_whose_node_somebody_deletes_never_believes_for_long_that_it_holds() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        holder = await one.lock("/lock").acquire()
        waiting = asyncio.create_task(two.lock("/lock").acquire())
        await in_line(server, "/lock", 2)
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


# --- losing it ---


def test_a_client_that_closes_right_after_a_release_warns_of_nothing() -> None:
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
def test_no_contender_stays_behind_whatever_error_its_second_question_gets(op: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        await zk.ensure_path("/l")
        for lock in (Lock(zk, "/l"), TryLock(zk, "/l/try")):
            with server.fault(op=op, times=1, action=error(NoAuthError)):
                try:
                    await (await lock.acquire()).release()
                except NoAuthError:
                    await asyncio.sleep(1)
            assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate_clients(main)


def test_a_release_that_is_refused_is_tried_again() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(op="delete", times=1, action=error(ErrorCode.THROTTLED_OP), strict=True):
            async with Lock(zk, "/l"):
                pass
            await asyncio.sleep(1)
        assert not [path for path, node in server.tree().items() if node.ephemeral_owner]

    simulate_clients(main)


# --- timeouts, attempts ---

KINDS: Final[dict[str, Callable[[Client], Any]]] = {
    "lock": lambda zk: Lock(zk, "/l"),
    "both": lambda zk: Lock(zk, "/l", naming="both"),
    "multi": lambda zk: MultiLock(zk, ["/k", "/l"]),
    "read": lambda zk: ReadWriteLock(zk, "/l").read(),
    "write": lambda zk: ReadWriteLock(zk, "/l").write(),
    "semaphore": lambda zk: Semaphore(zk, "/l", 1),
    "try": lambda zk: TryLock(zk, "/l"),
}


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_acquire_with_a_timeout_returns_in_time_whenever_the_server_stalls(kind: str, held: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(timeout=30.0), await connect(timeout=30.0)
        for milliseconds in range(0, 60, 3):
            holder = KINDS["write" if kind == "read" else kind](one)
            lease = await holder.acquire() if held else None
            loop = asyncio.get_running_loop()
            began = loop.time()
            loop.call_later(milliseconds / 1000, server.pause, two)
            acquired = None
            with contextlib.suppress(TimeoutError):
                acquired = await KINDS[kind](two).acquire(timeout=1)
            assert loop.time() - began <= 1.5
            assert not (held and acquired)
            await asyncio.sleep(1.5 - (loop.time() - began))
            server.resume(two)
            for taken in (acquired, lease):
                if taken is not None:
                    await taken.release()
            await nothing_left(server)

    simulate_clients(main)


@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_at_a_lock_that_is_held_creates_no_node(kind: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        holder, other = KINDS["write" if kind == "read" else kind](one), KINDS[kind](two)
        lease = await holder.attempt()
        assert lease is not None
        await asyncio.sleep(1)
        before = server.zxid()

        assert await other.attempt() is None
        assert kind == "try" or server.zxid() == before  # an attempt at a TryLock is a transaction that fails
        await lease.release()
        again = await other.attempt()
        assert again is not None
        await again.release()
        await nothing_left(server)

    simulate_clients(main)


def test_two_attempts_at_once_do_not_both_succeed() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        for _ in range(20):
            for kind in ("lock", "both", "multi", "write", "semaphore", "try"):
                leases = await asyncio.gather(*[KINDS[kind](zk).attempt() for zk in clients])
                assert sum(lease is not None for lease in leases) <= 1
                for lease in leases:
                    if lease is not None:
                        await lease.release()
                await nothing_left(server)

    simulate_clients(main)


def test_readers_attempts_succeed_together() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first, second = await KINDS["read"](one).attempt(), await KINDS["read"](two).attempt()
        assert first is not None
        assert second is not None
        assert await KINDS["write"](one).attempt() is None

    simulate_clients(main)


# --- releases ---


def test_a_release_that_the_server_refuses_is_an_error_and_is_tried_with_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        refused = error(NoAuthError)
        with server.fault("delete", "/lock/*", session=zk, action=refused) as fault:
            async with zk.lock("/lock") as lease:
                pass
            await asyncio.sleep(60)
            assert isinstance(lease.release_error, NoAuthError)
            assert fault.hits < 25  # 950 without growing pauses
        await nothing_left(server)

    simulate_clients(main)

    assert len([record for record in caplog.records if "cannot be released" in record.getMessage()]) == 1


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_the_release_of_every_node_is_sent_when_the_block_ends_so_that_the_process_may_end(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with Lock(zk, "/lock", naming=naming):
            await asyncio.sleep(1)
            nodes = len(ephemerals(server))
        now = zk.statistics()
        assert (now.in_flight, now.waiting) == (nodes, 0)
        await nothing_left(server)

    simulate_clients(main)


def test_a_lease_ends_with_a_block_of_its_own() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with await zk.lock("/lock").acquire() as lease:
            assert lease.valid_for() > 0
        assert lease.valid_for() == 0
        await nothing_left(server)

    simulate_clients(main)


# --- what a timeout says ---


def test_a_timeout_says_who_holds_the_lock_since_when_and_how_many_wait() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, three = await connect(), await connect(), await connect()
        async with Lock(one, "/locks/p", data=b"host-1:4711"):
            await asyncio.sleep(180)
            waiting = asyncio.ensure_future(three.lock("/locks/p").acquire())
            await asyncio.sleep(1)
            with pytest.raises(TimeoutError) as caught:
                await two.lock("/locks/p").acquire(timeout=1)
            waiting.cancel()

        assert str(caught.value) == (
            f"/locks/p was not free within 1 s: held by host-1:4711 (session {one.session_id:#x}, "
            "which asked for it 182 s ago), 1 waiting"
        )

    simulate_clients(main)


@pytest.mark.parametrize("data", [b"\xff\x00", b""])
def test_a_timeout_shows_data_that_are_no_text(data: bytes) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with Lock(one, "/l", data=data):
            with pytest.raises(TimeoutError, match=r"held by (b'\\xff\\x00'|somebody) \(session"):
                await two.lock("/l").acquire(timeout=1)

    simulate_clients(main)


def test_a_timeout_of_the_caller_s_own_stays_what_it_is() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/l"):
            began = sim.time()
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(1):
                    await two.lock("/l").acquire(timeout=100)
            assert sim.time() - began < 1.3
            assert str(caught.value) == ""

    simulate_clients(main)


def test_the_data_of_a_lock_say_which_process_holds_it_unless_others_are_given() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/l") as lease:
            assert server.tree()[lease.path].data == f"{socket.gethostname()}:{os.getpid()}".encode()

    simulate_clients(main)


# --- the node above ---


def test_the_node_of_a_lock_goes_some_time_after_its_last_contender() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/locks/p"):
            await asyncio.sleep(200)
            assert "/locks/p" in server.tree()
        await asyncio.sleep(200)
        assert set(server.tree()) == {"/locks"}
        async with zk.lock("/locks/p"):
            pass

    simulate_clients(main)


@pytest.mark.parametrize("op", ["createContainer", "create"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
def test_a_lost_reply_to_the_create_of_the_node_above_makes_no_difference(op: str, action: type) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(op, nth={1, 3}, action=action()):
            async with zk.lock("/locks/p"):
                assert "/locks/p" in server.tree()
        await nothing_left(server)

    simulate_clients(main)


def test_where_the_server_has_no_containers_the_node_of_a_lock_is_persistent() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault("createContainer", action=error(ErrorCode.UNIMPLEMENTED)):
            async with zk.lock("/locks/p"):
                pass
        await asyncio.sleep(200)
        assert "/locks/p" in server.tree()

    simulate_clients(main)
