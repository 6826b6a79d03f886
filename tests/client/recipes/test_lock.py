"""The lock: its order, its cost, its nodes, and a holder's view of other contenders."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import pytest
from support import kazoo_bugs
from support.leftovers import wait_for_queue, wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client import Client, State, serializers
from zoolet.client.recipes import Lock, LockLostError, MultiLock, Semaphore, TryLock
from zoolet.testing import Server, Simulation, drop_request

SESSION_S: Final = 6.0
LATENCY_S: Final = 0.003
NODE_NAME_PATTERNS: Final = {"kazoo": r"^[0-9a-f]{32}__lock__\d{10}$", "curator": r"^_c_[0-9a-f-]{36}-lock-\d{10}$"}


# --- one holder at a time ---


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_waiters_acquire_in_order_of_arrival(naming: str) -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


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
        await wait_until_clean(server)

    simulate_clients(main)


async def start_waiters(server: Server, clients: list[Client]) -> list[asyncio.Task[Any]]:
    """Start a task for each client that waits for the lock. The tasks queue in the order of *clients*."""
    tasks = []
    for number, client in enumerate(clients, 2):
        tasks.append(asyncio.create_task(client.lock("/lock").acquire()))
        await wait_for_queue(server, "/lock", number)
    await asyncio.sleep(0.2)
    return tasks


def test_release_wakes_exactly_one_waiter() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(20)]
        holder = await clients[0].lock("/lock").acquire()
        waiters = await start_waiters(server, clients[1:])
        before = server.op_count()

        await holder.release()
        done, _ = await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.sleep(0.03)

        assert list(done) == [waiters[0]]
        asked = {(op.session, op.op) for op in server.ops(since=before)}
        first, winner = (client.session_id for client in clients[:2])
        # An acquire also sets the watch of the holder, and a release removes it. All other waiters must stay silent.
        assert asked <= {(first, "delete"), (first, "removeWatches"), (winner, "getData")}
        for waiter in waiters:
            await (await waiter).release()

    simulate_clients(main)


def test_leaving_waiter_wakes_only_successor() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(5)]
        holder = await clients[0].lock("/lock").acquire()
        waiters = await start_waiters(server, clients[1:])
        before = server.op_count()

        waiters[1].cancel()
        await wait_for_queue(server, "/lock", 4)
        await asyncio.sleep(0.1)

        asked = sorted((clients.index(by), op.op) for op in server.ops(since=before)
                       for by in clients if by.session_id == op.session)  # fmt: skip
        assert asked == [(2, "delete"), (2, "removeWatches"), (3, "getChildren"), (3, "getData")]
        await holder.release()
        for at in (0, 2, 3):
            await (await waiters[at]).release()

    simulate_clients(main)


def test_free_lock_takes_one_round_trip() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        began = sim.time()
        held = await zk.lock("/lock").acquire()
        assert sim.time() - began < 3 * LATENCY_S
        await held.release()

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
def test_lock_node_has_given_naming_and_data(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", naming=naming, data=b"host-1") as held:
            [name] = kazoo_bugs.children(server, "/lock")
            assert re.match(NODE_NAME_PATTERNS[naming], name)
            assert held.path == f"/lock/{name}"
            view = server.tree()[held.path]
            assert (view.data, view.ephemeral_owner, view.czxid) == (b"host-1", zk.session_id, held.czxid)
        await wait_until_clean(server)

    simulate_clients(main)


def test_naming_both_creates_kazoo_and_curator_node() -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_foreign_children_of_lock_node_are_not_contenders(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        names = ("a", "0000000000", "x-0000000000", "__lock__", "lock-", "__lock__12", "n__LOCK__0000000000", "0lock")
        server.populate({"/lock": dict.fromkeys(names, b"")})
        async with zk.lock("/lock", naming=naming, timeout=1.0):
            pass
        await wait_until_clean(server)
        assert set(kazoo_bugs.children(server, "/lock")) == set(names)

    simulate_clients(main)


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
@pytest.mark.parametrize(
    "first", [kazoo_bugs.LAST_SEQUENCE - 2, kazoo_bugs.LAST_SEQUENCE - 1, kazoo_bugs.LAST_SEQUENCE]
)
def test_lock_order_survives_wrap_to_negative_sequence_numbers(naming: str, first: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        kazoo_bugs.create_with_next_sequence(server, "/lock", first)
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

    simulate_clients(main)


def test_token_grows_with_each_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        tokens = []
        for client in (one, two, two, one):
            async with client.lock("/lock") as held:
                tokens.append(held.token)
        assert tokens == sorted(set(tokens))

    simulate_clients(main)


def test_lock_works_with_serializer_and_chroot() -> None:
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
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize(
    "options",
    [{"naming": "zk"}, {"timeout": -1}, {"on_lost": "ignore"}, {"timeout": float("nan")}],
)
def test_invalid_lock_arguments_are_refused(options: dict[str, Any]) -> None:
    zk = Client("127.0.0.1:1")
    with pytest.raises(ValueError):
        zk.lock("/lock", **options)
    with pytest.raises(ValueError):
        zk.lock("lock")


def test_lock_acquired_after_session_loss_waits_for_session() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        with server.fault(drop_request(), "connect", times=1):
            server.expire(zk)
            await zk.wait_for(State.LOST)
            async with zk.lock("/lock", timeout=20.0):
                pass
        await wait_until_clean(server)

    simulate_clients(main)


def test_lock_held_briefly_costs_three_requests() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        server.populate({"/lock": b""})
        before = server.op_count()
        async with zk.lock("/lock"):
            pass
        await wait_until_clean(server)
        asked = [op.op for op in server.ops(since=before)]
        assert asked == ["create2", "getChildren", "delete"]

    simulate_clients(main)


# --- holders: revocation, contenders, dropped leases ---


def test_revocable_lock_holder_is_notified_of_revocation() -> None:
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

    simulate_clients(main)


def test_irrevocable_lock_holder_is_not_notified_of_revocation() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with one.lock("/lock") as held:
            assert await two.lock("/lock").revoke() is True
            await asyncio.sleep(1)
            assert not held.revoked.is_set()

    simulate_clients(main)


def test_lock_contenders_are_delivered_in_order_of_arrival() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        assert await one.lock("/lock").contenders() == []
        held = await one.lock("/lock").acquire()
        waiting = asyncio.create_task(two.lock("/lock").acquire())
        await wait_for_queue(server, "/lock", 2)
        first, second = await one.lock("/lock").contenders()
        assert first == held.path
        await held.release()
        async with await waiting as lease:
            assert lease.path == second

    simulate_clients(main)


@pytest.mark.parametrize("kind", [Lock, TryLock, Semaphore])
@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_dropped_held_lease_causes_warning(kind: Any, seconds: float) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        lease = await kind(await connect(), "/lock").acquire()
        await asyncio.sleep(seconds)  # after 0.05 s the client watches its node
        with pytest.warns(ResourceWarning, match=r"was dropped while held"):
            del lease
        assert "/lock" in server.tree()

    simulate_clients(main)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_dropped_lease_of_several_nodes_causes_warning(seconds: float) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        for lock in (MultiLock(zk, ["/a", "/b"]), zk.lock("/c", naming="both"), zk.lock("/d", reentrant=True)):
            lease = await lock.acquire()
            await asyncio.sleep(seconds)
            with pytest.warns(ResourceWarning, match=r"was dropped while held"):
                del lease

    simulate_clients(main)


@pytest.mark.parametrize("end", ["released", "lost", "closed"])
def test_unheld_lease_is_dropped_without_warning(end: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lease = await zk.lock("/lock").acquire()
        if end == "released":
            await lease.release()
        elif end == "lost":
            server.expire(zk)
            await lease.lost
        else:
            await zk.aclose()
        del lease

    simulate_clients(main)


def test_released_lock_is_not_held() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        held = await (await connect()).lock("/lock").acquire()
        held.raise_if_lost()
        assert 0 < held.valid_for() <= SESSION_S
        await held.release()
        await held.release()
        assert held.valid_for() == 0
        assert not held.lost.is_set()
        with pytest.raises(LockLostError):
            held.raise_if_lost()
        with pytest.raises(LockLostError):
            held.transaction()

    simulate_clients(main)
