"""When a lock is lost: who is notified, how soon, and what its holder can no longer do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals, in_line, nothing_left
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, State
from zoolet.client.recipes import Lock, LockLostError
from zoolet.protocol.errors import ErrorCode, SessionExpiredError
from zoolet.server import Server
from zoolet.server.testing import Simulation, error

SESSION: Final = 6.0
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
def test_anyone_loses_it_is_cancelled_and_the_block_says_so(lose: Lose, naming: str) -> None:
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

    simulate_clients(main)


@pytest.mark.parametrize("lose", WAYS)
def test_anyone_only_wants_a_flag_is_not_cancelled(lose: Lose) -> None:
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

    simulate_clients(main)


def test_a_node_that_is_gone_is_reported_with_both_reasons() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", on_lost="flag") as held:
            server.delete(held.path)
            assert await held.lost == "its node is gone: the session ended, or somebody deleted it"

    simulate_clients(main)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["stall", "refuse", "pause"])
def test_a_loss_is_delivered_before_the_server_may_give_it_to_another(how: str, seed: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one = await connect()
        two = await connect(timeout=1000.0)
        times: dict[str, float] = {}
        async with one.lock("/lock", on_lost="flag") as held:
            assert held.valid_for() <= server.sessions()[one.session_id].expires_in + 1e-3
            await asyncio.sleep(sim.rng.uniform(0.1, 3 * SESSION))
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await in_line(server, "/lock", 2)
            if how == "stall":  # of the one only: the other must be notified
                server.pause(one)
            elif how == "pause":
                server.pause(one)
                asyncio.get_running_loop().call_later(SESSION * 0.9, server.resume, "all")
            else:
                server.pause(one)
                server.drop(one)
            promised = sim.time() + held.valid_for()

            async def lost() -> None:
                await held.lost
                times["lost"] = sim.time()

            telling = asyncio.create_task(lost())
            if how == "pause":
                await asyncio.sleep(5 * SESSION)
                telling.cancel()
                if "lost" not in times:
                    held.raise_if_lost()
                    assert not waiting.done()
                if waiting.done():
                    await waiting.result().release()
                waiting.cancel()
                return
            other = await waiting
            times["other"] = sim.time()
            await asyncio.sleep(0)
            assert times["lost"] <= times["other"]
            assert times["lost"] == pytest.approx(promised, abs=1e-6)
            assert times["other"] - times["lost"] < 1.0
            await telling
            await other.release()

    simulate_clients(main, seed)


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

    simulate_clients(main)


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

    simulate_clients(main)


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

    simulate_clients(main)


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
                        sim.pass_time(2 * SESSION)  # the process was stopped
                        held.raise_if_lost()
            except LockLostError:
                await asyncio.sleep(1)
                return "lost"
            return "nothing"

        task = asyncio.create_task(use())
        await asyncio.wait([task])
        assert not task.cancelled()
        assert task.result() == "lost"

    simulate_clients(main)


def test_a_cancellation_from_outside_stays_one() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()

        async def use() -> None:
            async with zk.lock("/lock"):
                await asyncio.sleep(1000)

        task = asyncio.create_task(use())
        await server.until(lambda: kazoo_bugs.children(server, "/lock"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await nothing_left(server)

    simulate_clients(main)


def test_an_error_in_the_block_releases_and_comes_out() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises(ZeroDivisionError):
            async with zk.lock("/lock"):
                raise ZeroDivisionError
        await nothing_left(server)

    simulate_clients(main)


def test_a_deletion_right_after_it_was_had_is_noticed_too() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await two.delete(held.path)
            async with asyncio.timeout(0.2):
                await held.lost

    simulate_clients(main)


def test_a_deletion_while_the_holder_is_disconnected_is_noticed_when_it_is_back() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await asyncio.sleep(0.5)
            server.drop(one)
            server.pause(one)
            await two.delete(held.path)
            server.resume("all")
            async with asyncio.timeout(SESSION):
                await held.lost

    simulate_clients(main)


def test_with_naming_both_the_deletion_of_either_node_is_a_loss() -> None:
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

    simulate_clients(main)


def test_nothing_is_held_once_the_client_closes_though_the_server_has_not_answered() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        held = await Lock(zk, "/lock").acquire()
        closing = asyncio.create_task(zk.aclose())
        await asyncio.sleep(0)

        assert zk.state is State.CLOSED
        assert held.lost.is_set()
        assert held.valid_for() == zk.valid_for() == 0
        with pytest.raises(LockLostError):
            held.raise_if_lost()
        await closing

    simulate_clients(main)


def test_a_reply_that_the_session_is_over_ends_what_is_held() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        held = await Lock(zk, "/l").acquire()
        with server.fault(error(ErrorCode.SESSION_EXPIRED), "get", times=1, strict=True):
            with pytest.raises(SessionExpiredError):
                await zk.get("/l")
        assert held.lost.is_set()

    simulate_clients(main)


def test_a_server_in_read_only_mode_keeps_no_lease_valid() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect(read_only=True)
        lease = await zk.lock("/lock").acquire()
        began = sim.time()

        server.set_read_only(True)  # the majority is elsewhere, and ends the session after its timeout
        await zk.wait_for(State.READ_ONLY)
        await asyncio.wait_for(lease.lost.wait(), 2 * SESSION)

        assert sim.time() - began <= SESSION
        assert zk.state is State.READ_ONLY  # its pings are answered all the time

    simulate_clients(main)


def test_time_for_which_the_machine_was_suspended_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect()
        lease = await zk.lock("/lock").acquire()
        assert lease.valid_for() > 0

        suspended = SESSION + 1  # the monotonic clock did not count it

        assert lease.valid_for() == 0
        with pytest.raises(LockLostError):
            lease.raise_if_lost()

    simulate_clients(main)


def test_a_lease_is_valid_again_after_a_suspension_that_the_session_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect()
        async with await zk.lock("/lock").acquire() as lease:
            suspended = SESSION / 2
            assert 0 < lease.valid_for() <= SESSION / 2
            await zk.exists("/")

            assert lease.valid_for() > SESSION / 2
            lease.raise_if_lost()

    simulate_clients(main)


@pytest.mark.parametrize("answer", [ErrorCode.THROTTLED_OP, ErrorCode.NO_AUTH, ErrorCode.SYSTEM_ERROR])
@pytest.mark.parametrize("revocable", [False, True])
def test_an_error_in_answer_to_the_watch_of_a_lease_ends_neither_it_nor_the_watching(
    answer: ErrorCode, revocable: bool
) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        lease = await Lock(zk, "/lock", revocable=revocable).acquire()
        with server.fault(error(answer), path=lease.path, client=zk, times=3, strict=True):
            await asyncio.sleep(10)
        assert not lease.lost.is_set()

        if revocable:
            await Lock(other, "/lock").revoke()
            await asyncio.wait_for(lease.revoked.wait(), 5)
        await other.delete(lease.path)
        await asyncio.wait_for(lease.lost.wait(), 5)

    simulate_clients(main)


def test_a_lease_is_lost_within_a_second_after_a_suspension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect(timeout=30.0)
        lease = await zk.lock("/lock").acquire()
        await asyncio.sleep(1)
        server.pause(zk)
        suspended = 60.0
        await asyncio.wait_for(lease.lost.wait(), 1.1)

    simulate_clients(main)
