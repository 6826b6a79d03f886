"""A durable lock survives sessions and restarts, and can be taken over if its holder does not renew it."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.simulation import Connect, eventually, make_client, simulate_clients, with_client
from support.waiting import DEADLINE_S

from zoolet.client import Client
from zoolet.client.recipes import DeadlockError, DurableLock, LockLostError
from zoolet.testing import Server, Simulation, drop_request, lose_reply

# --- one holder at a time ---


def test_next_owner_has_higher_token_after_release() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with DurableLock(one, "/up/job", "one", ttl=10) as first:
            assert json.loads(server.tree()["/up/job"].data or b"")["owner"] == "one"
            waiting = asyncio.create_task(DurableLock(two, "/up/job", "two", ttl=10).acquire())
            await asyncio.sleep(100)
            assert not waiting.done()
            assert 0 < first.valid_for() <= 10
        second = await asyncio.wait_for(waiting, 1)
        assert second.token > first.token
        await second.release()
        assert set(server.tree()) == {"/up"}

    simulate_clients(main)


def test_durable_lock_outlives_session() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with DurableLock(one, "/job", "one", ttl=60) as lease:
            for _ in range(3):
                server.expire(one)
                await asyncio.sleep(30)
                lease.raise_if_lost()
                assert await DurableLock(two, "/job", "two").attempt() is None
            async with lease.transaction() as transaction:
                transaction.create("/done")
        await eventually(lambda: set(server.tree()) == {"/done"})

    simulate_clients(main)


def test_saved_token_resumes_hold_after_restart() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first = await DurableLock(one, "/job", "host-1", ttl=1000).acquire()
        await one.aclose()
        assert await DurableLock(two, "/job", "host-1", ttl=1000, token=first.token - 1).attempt() is None
        second = await DurableLock(two, "/job", "host-1", ttl=1000, token=first.token).acquire(timeout=1)
        assert second.token > first.token
        assert await DurableLock(two, "/job", "host-1", ttl=1000, token=first.token).attempt() is None
        await second.release()
        assert not server.tree()

    simulate_clients(main)


def test_hold_resumed_elsewhere_is_lost() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first = await DurableLock(one, "/job", "host-1").acquire()
        second = await DurableLock(two, "/job", "host-1", token=first.token).acquire(timeout=1)
        assert await asyncio.wait_for(first.lost.wait(), 1) == "another client took over the lock or deleted its nodes"
        with pytest.raises(LockLostError):
            first.transaction()
        await first.release()
        await asyncio.sleep(100)
        second.raise_if_lost()
        await second.release()
        assert not server.tree()

    simulate_clients(main)


@pytest.mark.parametrize("shared", [True, False])
def test_tasks_with_same_durable_lock_owner_exclude_each_other(shared: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = DurableLock(zk, "/job", "same", ttl=5)
        inside: list[int] = []

        async def work(number: int) -> None:
            for _ in range(5):
                async with lock if shared else DurableLock(zk, "/job", "same", ttl=5):
                    inside.append(number)
                    await asyncio.sleep(0.1)
                    assert inside.pop() == number

        await asyncio.wait_for(asyncio.gather(*[work(number) for number in range(4)]), 60)
        assert server.op_count() < 1000
        await eventually(lambda: not server.tree())

    simulate_clients(main)


def test_durable_lock_timeout_names_holder() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with DurableLock(one, "/job", "host-1"):
            with pytest.raises(TimeoutError, match="/job was not acquired within 2 s: held by host-1"):
                await DurableLock(two, "/job", "host-2").acquire(timeout=2)

    simulate_clients(main)


def test_waiter_survives_its_session() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = await DurableLock(one, "/job", "one", ttl=10).acquire()
        waiting = asyncio.create_task(DurableLock(two.with_operation_timeout(1000), "/job", "two").acquire())
        for _ in range(8):
            await asyncio.sleep(sim.rng.uniform(0.1, 4))
            server.expire(two)
        await asyncio.sleep(5)
        server.refuse_connections()
        server.drop(two)
        await asyncio.sleep(20)
        server.accept_connections()
        await asyncio.sleep(10)
        await held.release()
        await (await asyncio.wait_for(waiting, 100)).release()

    simulate_clients(main)


def test_holder_without_renewal_is_replaced_after_ttl() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        first = await DurableLock(one, "/job", "one", ttl=30).acquire()
        await one.aclose()
        assert first.lost.is_set()
        began = sim.time()
        with pytest.raises(TimeoutError):
            await DurableLock(two, "/job", "two").acquire(timeout=25)
        second = await DurableLock(two, "/job", "two").acquire()
        assert sim.time() - began == pytest.approx(55, abs=0.1)  # each waiter has seen the lock unchanged for the TTL
        assert second.token > first.token
        holder = await DurableLock(two, "/job", "two").holder()
        assert holder is not None
        assert (holder.owner, holder.ttl) == ("two", 60.0)
        await second.release()

    simulate_clients(main)


def test_attempt_succeeds_once_holder_stopped_renewing_for_ttl() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        await (await DurableLock(one, "/job", "one", ttl=30).acquire()).release()
        held = await DurableLock(one, "/job", "one", ttl=30).acquire()
        lock = DurableLock(two, "/job", "two")
        for _ in range(10):
            await asyncio.sleep(10)
            assert await lock.attempt() is None
        await one.aclose()
        attempts = 0
        while (lease := await lock.attempt()) is None:
            attempts += 1
            await asyncio.sleep(10)
        assert attempts in (3, 4)
        assert lease.token > held.token
        await lease.release()

    simulate_clients(main)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["stall", "refuse"])
def test_loss_is_delivered_before_next_holder(how: str, seed: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect(timeout=1000.0)
        times: dict[str, float] = {}

        async def note(what: str, happens: Any) -> Any:
            result = await happens
            times[what] = sim.time()
            return result

        async with DurableLock(one, "/job", "one", ttl=3, on_lost="flag") as held:
            waiting = asyncio.create_task(note("acquired", DurableLock(two, "/job", "two").acquire()))
            losing = asyncio.create_task(note("lost", held.lost.wait()))
            await asyncio.sleep(sim.rng.uniform(0.1, 10))
            assert not waiting.done()
            server.pause(one)
            if how == "refuse":
                server.drop(one)
            other = await waiting
            await losing
            assert times["lost"] <= times["acquired"] <= times["lost"] + 3
            assert other.token > held.token
            server.resume("all")
        await asyncio.sleep(60)
        other.raise_if_lost()  # the late release of the previous holder did not affect this lease
        await other.release()
        await eventually(lambda: not server.tree())

    simulate_clients(main, seed)


def test_block_is_cancelled_after_takeover() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()

        async def work() -> None:
            async with DurableLock(one, "/job", "host-1"):
                await asyncio.sleep(1000)

        working = asyncio.create_task(work())
        await asyncio.sleep(1)
        former = await one.children("/job")
        token = (await one.exists(f"/job/{former[0]}")).czxid  # type: ignore[union-attr]
        async with DurableLock(two, "/job", "host-1", token=token):
            with pytest.raises(LockLostError, match="lost the lock /job: "):
                await working

    simulate_clients(main)


def test_durable_lock_holder_waiting_for_itself_raises() -> None:
    async def main(server: Server, zk: Client) -> None:
        lock = DurableLock(zk, "/job", "one")
        async with lock:
            with pytest.raises(DeadlockError):
                await lock.__aenter__()

    with_client(main)


# --- faults ---


@pytest.mark.parametrize("op", ["multi", "getData", "exists", "create", "removeWatches"])
@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("taken", [False, True])
def test_durable_lock_works_despite_lost_messages(op: str, action: Any, taken: bool) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        if taken:
            dead = await DurableLock(one, "/up/job", "one", ttl=5).acquire()
            await one.aclose()
            assert dead.lost.is_set()
        with server.fault(action(), op, client=two, times=2, strict=not taken or op != "create"):
            async with DurableLock(two, "/up/job", "two", ttl=30) as lease:
                await asyncio.sleep(100)
                lease.raise_if_lost()
        await eventually(lambda: set(server.tree()) == {"/up"})

    simulate_clients(main)


@pytest.mark.parametrize("held", [False, True])
def test_cancelled_durable_lock_block_cleans_up(held: bool) -> None:
    async def work(zk: Client) -> None:
        async with DurableLock(zk, "/job", "two", ttl=5):
            await asyncio.sleep(0)

    async def before(zk: Client) -> None:
        if held:  # the node that a dead holder leaves behind
            await zk.create("/job", b'{"owner": "one", "ttl": 0.2, "id": "x"}')
            await zk.create("/job/x")

    async def after(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            async with DurableLock(other, "/job", "three", timeout=60):
                pass
        await eventually(lambda: not server.tree())

    cancel_everywhere(work, before=before, after=after)


def test_deletion_of_proof_node_loses_and_frees_durable_lock() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with DurableLock(one, "/job", "one", ttl=10, on_lost="flag") as lease:
            await asyncio.sleep(1)
            await two.delete(lease.proof_node)
            await lease.lost
            async with DurableLock(two, "/job", "two", timeout=60) as next_one:
                assert next_one.token > lease.token
        await eventually(lambda: not server.tree())

    simulate_clients(main)


@pytest.mark.parametrize("how", ["deleted", "rewritten"])
def test_durable_lock_is_lost_if_node_is_deleted_or_rewritten(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with DurableLock(one, "/job", "one", ttl=6, on_lost="flag") as lease:
            await asyncio.sleep(1)
            if how == "deleted":
                await two.delete("/job", recursive=True)
            else:
                await two.set("/job", b'{"owner": "x", "ttl": 5.0, "id": "y"}')
            async with DurableLock(two, "/job", "two", ttl=6, timeout=60) as other:
                assert lease.lost.is_set()
                await asyncio.sleep(60)
                other.raise_if_lost()
                with pytest.raises(LockLostError):
                    lease.transaction()

    simulate_clients(main)


def test_foreign_node_is_not_taken_over() -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/job", b"42")
        for do in (DurableLock(zk, "/job", "one").acquire, DurableLock(zk, "/job", "one").holder):
            with pytest.raises(ValueError, match="/job is not a durable lock"):
                await do()
        assert server.tree()["/job"].data == b"42"

    with_client(main)


@pytest.mark.parametrize(
    "options",
    [{"ttl": 0}, {"ttl": "1"}, {"ttl": math.inf}, {"ttl": math.nan}, {"owner": ""}, {"timeout": -1}, {"on_lost": "?"}],
)
def test_invalid_argument_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        DurableLock(Client("127.0.0.1:1"), "/job", **{"owner": "one", **options})


async def test_durable_lock_works_on_each_server(any_hosts: str) -> None:
    async with Client(any_hosts) as one, Client(any_hosts) as two:
        path = f"/{one._core.new_uuid()}"
        first = await DurableLock(one, path, "one", ttl=1).acquire()
        waiting = asyncio.ensure_future(DurableLock(two, path, "two", ttl=5).acquire())
        await asyncio.sleep(1.5)
        assert not waiting.done()
        await one.aclose()
        async with await asyncio.wait_for(waiting, DEADLINE_S) as second:
            assert second.token > first.token
            async with second.transaction() as transaction:
                transaction.create(f"{path}-done")
            assert await DurableLock(two, path, "three").attempt() is None
        assert await DurableLock(two, path, "three").holder() is None
