"""Loss of a lock: how soon the holder is notified, and the operations that are refused afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

import pytest
from support import kazoo_bugs
from support.leftovers import ephemerals, wait_for_queue, wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, State
from zoolet.client.recipes import Lock, LockLostError
from zoolet.protocol.errors import ErrorCode, SessionExpiredError
from zoolet.testing import Server, Simulation, error

SESSION_S: Final = 6.0
LoseLease = Callable[[Simulation, Server, Client, str], Coroutine[Any, Any, None]]


async def expire(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Expire the session on the server."""
    server.expire(client)


async def delete(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Delete the node with a different client."""
    async with Client(server.hosts) as other:
        await other.delete(path)


async def stall(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Block all traffic for longer than the session timeout."""
    sim.network.pause()
    asyncio.get_running_loop().call_later(3 * SESSION_S, sim.network.resume)


async def refuse(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Break the connection, and refuse new ones for longer than the session timeout."""
    server.refuse_connections()
    server.drop(client)
    asyncio.get_running_loop().call_later(3 * SESSION_S, server.accept_connections)


async def close(sim: Simulation, server: Server, client: Client, path: str) -> None:
    """Close the client."""
    await client.aclose()


LOSSES: Final = [expire, delete, stall, refuse, close]


@pytest.mark.parametrize("lose", LOSSES)
@pytest.mark.parametrize("naming", ["kazoo", "both"])
def test_loss_cancels_holder_and_raises_from_block(lose: LoseLease, naming: str) -> None:
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
        await asyncio.sleep(4 * SESSION_S)
        assert ephemerals(server) == []

    simulate_clients(main)


@pytest.mark.parametrize("lose", LOSSES)
def test_loss_with_on_lost_flag_does_not_cancel_holder(lose: LoseLease) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", on_lost="flag") as held:
            await asyncio.sleep(0.2)
            await lose(sim, server, zk, held.path)
            async with asyncio.timeout(2 * SESSION_S):
                reason = await held.lost
            assert reason == held.lost.reason != ""
            await asyncio.sleep(0.1)
            assert held.valid_for() == 0
            with pytest.raises(LockLostError):
                held.raise_if_lost()
            with pytest.raises(LockLostError):
                held.transaction()

    simulate_clients(main)


def test_loss_by_deleted_node_names_both_possible_reasons() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", on_lost="flag") as held:
            server.delete(held.path)
            assert await held.lost == "its node no longer exists (session expired, or node deleted by another client)"

    simulate_clients(main)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["stall", "refuse", "pause"])
def test_loss_is_reported_before_next_grant(how: str, seed: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one = await connect()
        two = await connect(timeout=1000.0)
        times: dict[str, float] = {}
        async with one.lock("/lock", on_lost="flag") as held:
            assert held.valid_for() <= server.sessions()[one.session_id].expires_in + 1e-3
            await asyncio.sleep(sim.rng.uniform(0.1, 3 * SESSION_S))
            waiting = asyncio.create_task(two.lock("/lock").acquire())
            await wait_for_queue(server, "/lock", 2)
            if how == "stall":  # pause only this client, because the waiter must be notified of the expiry
                server.pause(one)
            elif how == "pause":
                server.pause(one)
                asyncio.get_running_loop().call_later(SESSION_S * 0.9, server.resume, "all")
            else:
                server.pause(one)
                server.drop(one)
            promised = sim.time() + held.valid_for()

            async def lost() -> None:
                await held.lost
                times["lost"] = sim.time()

            telling = asyncio.create_task(lost())
            if how == "pause":
                await asyncio.sleep(5 * SESSION_S)
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


def test_short_stall_keeps_lease() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock") as held:
            for _ in range(5):
                sim.network.pause()
                await asyncio.sleep(SESSION_S * 0.5)
                held.raise_if_lost()
                sim.network.resume()
                await asyncio.sleep(SESSION_S)
            sim.network.drop()
            await asyncio.sleep(SESSION_S)
            held.raise_if_lost()

    simulate_clients(main)


def test_transaction_after_loss_is_refused() -> None:
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


def test_transaction_of_previous_session_is_refused() -> None:
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
def test_loss_found_by_holder_raises_lock_lost(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()

        async def use() -> str:
            try:
                async with one.lock("/lock") as held:
                    if how == "transaction":
                        await two.delete(held.path)
                        await held.transaction().commit()
                    else:
                        sim.pass_time(2 * SESSION_S)  # as if the process had been stopped
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


def test_external_cancellation_of_holder_propagates() -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


def test_error_in_block_releases_lock_and_propagates() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with pytest.raises(ZeroDivisionError):
            async with zk.lock("/lock"):
                raise ZeroDivisionError
        await wait_until_clean(server)

    simulate_clients(main)


def test_deletion_of_lock_node_right_after_acquire_is_noticed() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await two.delete(held.path)
            async with asyncio.timeout(0.2):
                await held.lost

    simulate_clients(main)


def test_lock_node_deletion_while_offline_is_found_on_reconnect() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock", on_lost="flag") as held:
            await asyncio.sleep(0.5)
            server.drop(one)
            server.pause(one)
            await two.delete(held.path)
            server.resume("all")
            async with asyncio.timeout(SESSION_S):
                await held.lost

    simulate_clients(main)


def test_deleting_one_of_two_lock_nodes_loses_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await one.lock("/lock", naming="both").acquire()
        [kazoo] = [name for name in kazoo_bugs.children(server, "/lock") if "__lock__" in name]
        await two.delete(f"/lock/{kazoo}")
        try:
            async with asyncio.timeout(2 * SESSION_S):
                await held.lost
        finally:
            await held.release()
            await wait_until_clean(server)

    simulate_clients(main)


def test_closing_client_loses_leases_immediately() -> None:
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


def test_session_expired_reply_loses_lease() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        held = await Lock(zk, "/l").acquire()
        with server.fault(error(ErrorCode.SESSION_EXPIRED), "get", times=1, strict=True):
            with pytest.raises(SessionExpiredError):
                await zk.get("/l")
        assert held.lost.is_set()

    simulate_clients(main)


def test_lease_is_lost_on_read_only_server() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect(read_only=True)
        lease = await zk.lock("/lock").acquire()
        began = sim.time()

        server.set_read_only(True)  # the majority, on other members, expires the session after its timeout
        await zk.wait_for(State.READ_ONLY)
        await asyncio.wait_for(lease.lost.wait(), 2 * SESSION_S)

        assert sim.time() - began <= SESSION_S
        assert zk.state is State.READ_ONLY  # the client is still connected, because pings are answered

    simulate_clients(main)


def test_machine_suspension_shortens_validity_of_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect()
        lease = await zk.lock("/lock").acquire()
        assert lease.valid_for() > 0

        suspended = SESSION_S + 1  # seconds that the monotonic clock did not count

        assert lease.valid_for() == 0
        with pytest.raises(LockLostError):
            lease.raise_if_lost()

    simulate_clients(main)


def test_lease_is_valid_again_after_short_machine_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended = 0.0
    monkeypatch.setattr("zoolet.client.aio.suspension.Suspensions.total", lambda self: suspended)

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        nonlocal suspended
        zk = await connect()
        async with await zk.lock("/lock").acquire() as lease:
            suspended = SESSION_S / 2
            assert 0 < lease.valid_for() <= SESSION_S / 2
            await zk.exists("/")

            assert lease.valid_for() > SESSION_S / 2
            lease.raise_if_lost()

    simulate_clients(main)


@pytest.mark.parametrize("answer", [ErrorCode.THROTTLED_OP, ErrorCode.NO_AUTH, ErrorCode.SYSTEM_ERROR])
@pytest.mark.parametrize("revocable", [False, True])
def test_lease_survives_error_replies_to_its_watch_requests(answer: ErrorCode, revocable: bool) -> None:
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


def test_lease_is_lost_within_second_of_long_machine_suspension(
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
