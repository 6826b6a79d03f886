"""The lock: its order, what it costs, what is left when somebody gives up, and when its loss is told."""

from __future__ import annotations

import asyncio
import gc
import re
import threading
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from support import kazoo_bugs
from support.schedules import Connect, ephemerals, simulate

from zoolet.client import Client, ClosedError, SessionExpiredError, State, serializers
from zoolet.client.blocking import Client as BlockingClient
from zoolet.client.recipes import Lock, LockLostError
from zoolet.protocol.errors import ConnectionLossError
from zoolet.server import Server
from zoolet.server.testing import Simulation, close_after, drop_request, lose_reply

SESSION: Final = 6.0
LATENCY: Final = 0.003
NAMES: Final = {"kazoo": r"^[0-9a-f]{32}__lock__\d{10}$", "curator": r"^_c_[0-9a-f-]{36}-lock-\d{10}$"}


async def in_line(server: Server, path: str, number: int) -> None:
    """Wait until so many stand in line, and all but the first watch."""
    await server.wait_for(
        lambda: len(kazoo_bugs.children(server, path)) == number and len(server.watches()) >= number - 1, 10
    )


async def nothing_left(server: Server) -> None:
    """Wait until no contender and no watch is left."""
    await server.wait_for(lambda: not ephemerals(server) and not server.watches(), timeout=20)


# --- what it is for ---


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_one_holds_it_and_the_others_follow_in_the_order_in_which_they_asked(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        order: list[int] = []
        inside = 0

        async def hold_it(number: int) -> None:
            nonlocal inside
            async with Lock(await connect(), "/lock", naming=naming):
                inside += 1
                assert inside == 1
                order.append(number)
                await asyncio.sleep(1)
                inside -= 1

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(hold_it(number)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        await nothing_left(server)

    simulate(main)


def test_tasks_of_one_client_exclude_each_other() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = zk.lock("/lock")
        inside: list[int] = []

        async def use(number: int) -> None:
            async with lock:
                inside.append(number)
                assert len(inside) == 1
                await asyncio.sleep(0.1)
                inside.remove(number)

        await asyncio.gather(*map(use, range(5)))
        await nothing_left(server)

    simulate(main)


def test_a_release_wakes_exactly_one_of_many() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(20)]
        holder = await clients[0].lock("/lock").acquire()
        waiters = []
        for number in range(1, 20):
            waiters.append(asyncio.create_task(clients[number].lock("/lock").acquire()))
            await in_line(server, "/lock", number + 1)
        await asyncio.sleep(0.2)
        before = server._interceptor.count

        await holder.release()
        done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.03)

        assert list(done) == [waiters[0]]
        asked = {(op.session, op.op) for op in server.ops(server._interceptor.count - before)}
        first, winner = (client.session_id for client in clients[:2])
        # Both ends of a holding also set or remove the holder's guard; nobody else says a word, nobody lists.
        assert asked <= {(first, "delete"), (first, "removeWatches"), (winner, "getData")}
        for waiter in waiters:
            await (await waiter).release()

    simulate(main)


def test_a_waiter_in_the_middle_that_goes_wakes_only_the_one_behind_it() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(5)]
        holder = await clients[0].lock("/lock").acquire()
        waiters = []
        for number in range(1, 5):
            waiters.append(asyncio.create_task(clients[number].lock("/lock").acquire()))
            await in_line(server, "/lock", number + 1)
        await asyncio.sleep(0.2)
        before = server._interceptor.count

        waiters[1].cancel()
        await in_line(server, "/lock", 4)
        await asyncio.sleep(0.1)

        asked = sorted((clients.index(by), op.op) for op in server.ops(server._interceptor.count - before)
                       for by in clients if by.session_id == op.session)  # fmt: skip
        assert asked == [(2, "delete"), (2, "removeWatches"), (3, "getChildren"), (3, "getData")]
        await holder.release()
        for at in (0, 2, 3):
            await (await waiters[at]).release()

    simulate(main)


def test_a_lock_that_is_free_is_had_in_one_round_trip() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        began = sim.time()
        held = await zk.lock("/lock").acquire()
        assert sim.time() - began < 3 * LATENCY
        await held.release()

    simulate(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_a_node_is_named_as_the_layout_says_and_holds_the_data(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", naming=naming, data=b"host-1") as held:
            [name] = kazoo_bugs.children(server, "/lock")
            assert re.match(NAMES[naming], name)
            assert held.path == f"/lock/{name}"
            view = server.tree()[held.path]
            assert (view.data, view.ephemeral_owner, view.czxid) == (b"host-1", zk.session_id, held.token)
        await nothing_left(server)

    simulate(main)


def test_layout_both_holds_one_node_of_each_kind_and_keeps_each_kind_out() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, other = await connect(), await connect()
        async with one.lock("/lock", naming="both"):
            kinds = sorted("__lock__" in name for name in kazoo_bugs.children(server, "/lock"))
            assert kinds == [False, True]
            for naming in ("kazoo", "curator", "both"):
                with pytest.raises(TimeoutError):
                    await other.lock("/lock", naming=naming).acquire(0.2)
        for naming in ("kazoo", "curator"):
            async with other.lock("/lock", naming=naming):
                with pytest.raises(TimeoutError):
                    await one.lock("/lock", naming="both").acquire(0.2)
        await nothing_left(server)

    simulate(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_children_of_others_do_not_stand_in_line(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        names = ("a", "0000000000", "x-0000000000", "__lock__", "lock-", "__lock__12", "n__LOCK__0000000000", "0lock")
        server.populate({"/lock": dict.fromkeys(names, b"")})
        async with zk.lock("/lock", naming=naming, timeout=1.0):
            pass
        await nothing_left(server)
        assert set(kazoo_bugs.children(server, "/lock")) == set(names)

    simulate(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
@pytest.mark.parametrize("first", [kazoo_bugs.LAST_NUMBER - 2, kazoo_bugs.LAST_NUMBER - 1, kazoo_bugs.LAST_NUMBER])
def test_the_order_holds_where_sequence_numbers_turn_negative(naming: str, first: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        kazoo_bugs.count_from(server, "/lock", first)
        order: list[int] = []
        tokens: list[int] = []

        async def hold_it(number: int) -> None:
            async with (await connect()).lock("/lock", naming=naming) as held:
                order.append(number)
                tokens.append(held.token)
                await asyncio.sleep(1)

        tasks = []
        for number in range(5):
            tasks.append(asyncio.create_task(hold_it(number)))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)
        assert order == [0, 1, 2, 3, 4]
        assert tokens == sorted(set(tokens))

    simulate(main)


def test_the_token_grows_from_holder_to_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        tokens = []
        for client in (one, two, two, one):
            async with client.lock("/lock") as held:
                tokens.append(held.token)
        assert tokens == sorted(set(tokens))

    simulate(main)


def test_the_codec_and_the_chroot_of_a_client_change_nothing() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        server.populate({"/app": b""})
        inner = await connect("/app", serializer=serializers.json)
        outer = await connect()
        async with inner.lock("/lock", data=b"\xff") as held:
            assert held.path.startswith("/lock/")
            assert server.tree()["/app" + held.path].data == b"\xff"
            with pytest.raises(TimeoutError):
                await outer.lock("/app/lock").acquire(0.1)
            inner.lock("/x")
            async with held.transaction() as t:
                t.create("/done", {"a": 1})
            assert server.tree()["/app/done"].data == b'{"a":1}'
        async with outer.lock("/app/lock"):
            with pytest.raises(TimeoutError):
                await inner.lock("/lock").acquire(0.1)
        await nothing_left(server)

    simulate(main)


@pytest.mark.parametrize(
    "options",
    [{"naming": "zk"}, {"timeout": -1}, {"on_lost": "ignore"}, {"timeout": float("nan")}],
)
def test_arguments_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    zk = Client("127.0.0.1:1")
    with pytest.raises(ValueError):
        zk.lock("/lock", **options)
    with pytest.raises(ValueError):
        zk.lock("lock")


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

    simulate(main)


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

    simulate(main)


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

    simulate(find_out, 3)
    simulate(main, 3)


def test_a_lost_reply_to_the_create_does_not_stop_it() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault("create2", times=1, action=lose_reply(), strict=True):
            held = await zk.lock("/lock").acquire()
        assert [f"/lock/{name}" for name in kazoo_bugs.children(server, "/lock")] == [held.path]
        assert server.tree()[held.path].czxid == held.token
        await held.release()
        await nothing_left(server)

    simulate(main)


def test_a_lost_create_is_made_again_once() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        with server.fault("create2", times=2, action=drop_request(), strict=True):
            held = await zk.lock("/lock").acquire()
        assert len(kazoo_bugs.children(server, "/lock")) == 1
        await held.release()

    simulate(main)


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

    simulate(main)


def test_a_timeout_whose_cleanup_is_lost_leaves_no_node() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            with server.fault("delete", times=3, action=drop_request(), strict=True):
                with pytest.raises(TimeoutError):
                    await two.lock("/lock").acquire(0.5)
                await in_line(server, "/lock", 1)
        await nothing_left(server)

    simulate(main)


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

    simulate(main)


@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_a_session_that_ends_while_waiting_is_said(naming: str) -> None:
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

    simulate(main)


def test_a_waiter_whose_client_is_closed_hears_of_it() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock"):
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await server.wait_for(lambda: kazoo_bugs.watches_of(server, two))
            await two.aclose()
            with pytest.raises(ClosedError):
                await waiting

    simulate(main)


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

    simulate(main)


# --- holding ---


def test_who_holds_a_reentrant_lock_enters_again_and_the_last_exit_releases() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = one.lock("/lock", reentrant=True)
        async with lock as outer:
            async with lock as inner:
                assert inner is outer
            assert len(kazoo_bugs.children(server, "/lock")) == 1
            with pytest.raises(TimeoutError):
                await asyncio.create_task(lock.acquire(0.1))
            with pytest.raises(TimeoutError):
                await two.lock("/lock").acquire(0.1)
        async with two.lock("/lock", timeout=1.0):
            pass

    simulate(main)


def test_another_task_does_not_enter_a_reentrant_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = zk.lock("/lock", reentrant=True, timeout=0.2)

        async def enter() -> None:
            async with lock:
                pass

        async with lock:
            with pytest.raises(TimeoutError):
                await asyncio.create_task(enter())
        await asyncio.create_task(enter())

    simulate(main)


def test_a_lock_that_is_not_reentrant_waits_for_itself() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lock = (await connect()).lock("/lock", timeout=0.2)
        async with lock:
            with pytest.raises(TimeoutError):
                async with lock:
                    pass
        await nothing_left(server)

    simulate(main)


def test_a_holder_hears_that_somebody_asks_it_to_let_go() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        assert await two.lock("/lock").revoke() is False
        async with one.lock("/lock", revocable=True) as held:
            await asyncio.sleep(0.1)
            assert not held.revoked.is_set()
            assert await two.lock("/lock").revoke() is True
            async with asyncio.timeout(1):
                await held.revoked
            assert not held.lost.is_set()
            held.raise_if_lost()

    simulate(main)


def test_a_holder_that_is_not_revocable_hears_of_no_wish() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock") as held:
            assert await two.lock("/lock").revoke() is True
            await asyncio.sleep(1)
            assert not held.revoked.is_set()

    simulate(main)


def test_contenders_are_told_in_order() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        assert await one.lock("/lock").contenders() == []
        held = await one.lock("/lock").acquire()
        waiting = asyncio.create_task(two.lock("/lock").acquire())
        await in_line(server, "/lock", 2)
        first, second = await one.lock("/lock").contenders()
        assert first == held.path
        await held.release()
        assert (await waiting).path == second

    simulate(main)


def test_what_was_released_is_not_held() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        held = await (await connect()).lock("/lock").acquire()
        held.raise_if_lost()
        assert 0 < held.valid_for() <= SESSION
        await held.release()
        await held.release()
        assert held.valid_for() == 0
        assert not held.lost.is_set()
        with pytest.raises(LockLostError):
            held.raise_if_lost()
        with pytest.raises(LockLostError):
            held.transaction()

    simulate(main)


# --- losing it ---

Lose = Callable[[Simulation, Server, Client, str], Coroutine[Any, Any, None]]


async def expire(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """The server ends the session."""
    server.expire(client)


async def delete(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Somebody deletes the node."""
    async with Client(server.hosts) as other:
        await other.delete(path)


async def stall(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Nothing gets through any more, for longer than the session lasts."""
    sim.network.pause()
    asyncio.get_running_loop().call_later(3 * SESSION, sim.network.resume)


async def refuse(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """The connection breaks, and no other is had for longer than the session lasts."""
    server.refuse_connections()
    server.drop(client)
    asyncio.get_running_loop().call_later(3 * SESSION, server.accept_connections)


async def close(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """The client is closed."""
    await client.aclose()


WAYS: Final = [expire, delete, stall, refuse, close]


@pytest.mark.parametrize("lose", WAYS)
@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_whoever_loses_it_is_cancelled_and_the_block_says_so(lose: Lose, naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        cancelled = False
        with pytest.raises(LockLostError) as raised:  # noqa: PT012
            async with zk.lock("/lock", naming=naming) as held:
                await asyncio.sleep(0.2)
                losing = asyncio.create_task(lose(sim, server, zk, held.path))
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    cancelled = True
                    raise
        assert cancelled
        assert held.lost.is_set()
        assert held.lost.reason
        assert raised.value.path == held.path
        assert asyncio.current_task().cancelling() == 0
        await losing
        await asyncio.sleep(4 * SESSION)
        assert ephemerals(server) == []

    simulate(main)


@pytest.mark.parametrize("lose", WAYS)
def test_whoever_only_wants_a_flag_is_not_cancelled(lose: Lose) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", on_lost="flag") as held:
            await asyncio.sleep(0.2)
            await lose(sim, server, zk, held.path)
            async with asyncio.timeout(2 * SESSION):
                reason = await held.lost
            assert reason == held.lost.reason != ""
            await asyncio.sleep(0.1)
            assert held.valid_for() == 0
            with pytest.raises(LockLostError):
                held.raise_if_lost()
            with pytest.raises(LockLostError):
                held.transaction()

    simulate(main)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["stall", "refuse", "pause"])
def test_a_loss_is_told_before_the_server_may_give_it_to_another(how: str, seed: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one = await connect()
        two = await connect(timeout=1000.0)
        times: dict[str, float] = {}
        async with one.lock("/lock", on_lost="flag") as held:
            assert held.valid_for() <= server.sessions()[one.session_id].expires_in + 1e-3
            await asyncio.sleep(sim.rng.uniform(0.1, 3 * SESSION))
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await in_line(server, "/lock", 2)
            if how == "stall":  # of the one only: the other must hear of it
                server.pause(one)
            elif how == "pause":
                server.pause(one)
                asyncio.get_running_loop().call_later(SESSION * 0.9, server.resume, "all")
            else:
                server._interceptor.paused.add(one.session_id)
                server.drop(one)
            promised = sim.time() + held.valid_for()

            async def lost() -> None:
                await held.lost
                times["lost"] = sim.time()

            telling = asyncio.create_task(lost())
            if how == "pause":
                await asyncio.sleep(5 * SESSION)
                telling.cancel()
                waiting.cancel()
                if "lost" not in times:
                    held.raise_if_lost()
                    assert not waiting.done()
                    return
                return
            other = await waiting
            times["other"] = sim.time()
            await asyncio.sleep(0)
            assert times["lost"] <= times["other"]
            assert times["lost"] == pytest.approx(promised, abs=1e-6)
            assert times["other"] - times["lost"] < 1.0
            await telling
            await other.release()

    simulate(main, seed)


def test_a_stall_shorter_than_the_session_loses_nothing() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock") as held:
            for _ in range(5):
                sim.network.pause()
                await asyncio.sleep(SESSION * 0.5)
                held.raise_if_lost()
                sim.network.resume()
                await asyncio.sleep(SESSION)
            sim.network.drop()
            await asyncio.sleep(SESSION)
            held.raise_if_lost()

    simulate(main)


def test_after_the_loss_the_server_refuses_a_transaction_of_the_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        server.populate({"/register": b"0"})
        held = await one.lock("/lock").acquire()
        async with held.transaction() as t:
            t.set("/register", b"1")
        assert len(t.results) == 1
        late = held.transaction()
        late.set("/register", b"late")
        await two.delete(held.path)
        with pytest.raises(LockLostError):
            await late.commit()
        assert held.lost.is_set()
        assert server.tree()["/register"].data == b"1"

    simulate(main)


def test_a_transaction_of_a_session_that_has_ended_is_refused_in_the_next_one() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        server.populate({"/register": b"0"})
        held = await one.lock("/lock").acquire()
        late = held.transaction()
        late.set("/register", b"late")
        await kazoo_bugs.lose_session(server, one)
        async with two.lock("/lock"):
            with pytest.raises(LockLostError):
                await late.commit()
        assert server.tree()["/register"].data == b"0"

    simulate(main)


@pytest.mark.parametrize("how", ["transaction", "ensure"])
def test_a_loss_that_the_holder_itself_finds_out_leaves_the_block_as_lock_lost(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()

        async def use() -> str:
            try:
                async with one.lock("/lock") as held:
                    if how == "transaction":
                        await two.delete(held.path)
                        await held.transaction().commit()
                    else:
                        sim._loop.pass_time(2 * SESSION)  # the process was stopped
                        held.raise_if_lost()
            except LockLostError:
                await asyncio.sleep(1)
                return "lost"
            return "nothing"

        task = asyncio.create_task(use())
        await asyncio.wait([task])
        assert not task.cancelled()
        assert task.result() == "lost"

    simulate(main)


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()

        async def use() -> None:
            async with zk.lock("/lock"):
                await asyncio.sleep(1000)

        task = asyncio.create_task(use())
        await server.wait_for(lambda: kazoo_bugs.children(server, "/lock"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_left(server)

    simulate(main)


def test_an_error_in_the_block_releases_and_comes_out() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises(ZeroDivisionError):
            async with zk.lock("/lock"):
                raise ZeroDivisionError
        await nothing_left(server)

    simulate(main)


def test_a_deletion_right_after_it_was_had_is_noticed_too() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await two.delete(held.path)
            async with asyncio.timeout(0.2):
                await held.lost

    simulate(main)


def test_a_deletion_while_the_holder_is_cut_off_is_noticed_when_it_is_back() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await asyncio.sleep(0.5)
            server.drop(one)
            server._interceptor.paused.add(one.session_id)
            await two.delete(held.path)
            server.resume("all")
            async with asyncio.timeout(SESSION):
                await held.lost

    simulate(main)


def test_with_layout_both_the_deletion_of_either_node_is_a_loss() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await one.lock("/lock", naming="both").acquire()
        [kazoo] = [name for name in kazoo_bugs.children(server, "/lock") if "__lock__" in name]
        await two.delete(f"/lock/{kazoo}")
        try:
            async with asyncio.timeout(2 * SESSION):
                await held.lost
        finally:
            await held.release()
            await nothing_left(server)

    simulate(main)


def test_what_is_held_shortly_costs_three_requests() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        before = server._interceptor.count
        async with zk.lock("/lock"):
            pass
        await nothing_left(server)
        asked = [op.op for op in server.ops(server._interceptor.count - before)]
        assert asked == ["create2", "getChildren", "delete"]

    simulate(main)


def test_a_lock_can_be_asked_for_between_two_sessions() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault("connect", times=1, action=drop_request()):
            server.expire(zk)
            await zk.wait_for(State.LOST)
            async with zk.lock("/lock", timeout=20.0):
                pass
        await nothing_left(server)

    simulate(main)


def test_a_client_that_closes_right_after_a_release_warns_of_nothing() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        async with Client(server.hosts) as zk, zk.lock("/lock", naming="both"):
            pass
        gc.collect()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        simulate(main)
        gc.collect()
    assert [str(one.message) for one in said] == []


# --- for threads ---


def test_a_blocking_lock_excludes_threads(zoolet: Server) -> None:
    inside: list[int] = []
    tokens: list[int] = []

    def use(number: int) -> None:
        with BlockingClient(zoolet.hosts) as zk:
            for _ in range(5):
                with zk.lock("/lock") as held:
                    inside.append(number)
                    tokens.append(held.token)
                    assert inside == [number]
                    inside.remove(number)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(tokens) == 15
    assert tokens == sorted(set(tokens))
    assert ephemerals(zoolet) == []


def test_a_blocking_lock_times_out_and_flags_its_loss(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as one, BlockingClient(zoolet.hosts) as two:
        with one.lock("/lock") as held:
            with pytest.raises(TimeoutError), two.lock("/lock", timeout=0.02):
                pass
            held.raise_if_lost()
            kazoo_bugs.lose_session(zoolet, one)
            zoolet.wait_for(held.lost.is_set)
            with pytest.raises(LockLostError):
                held.raise_if_lost()
        with two.lock("/lock", timeout=5.0):
            pass


def test_a_blocking_lock_is_not_reentrant_and_says_so(zoolet: Server) -> None:
    with BlockingClient(zoolet.hosts) as zk, pytest.raises(ValueError, match="reentrant"):
        zk.lock("/lock", reentrant=True)
