"""The read-write lock: readers share, writers are exclusive, order is kept, and a writer may become a reader."""

from __future__ import annotations

import asyncio

import pytest
from support import kazoo_bugs
from support.leftovers import wait_until_clean
from support.simulation import Connect, make_client, simulate_clients, with_client

from zoolet.client import Client, ConnectionLossError, acl
from zoolet.client.recipes import DeadlockError, Lock, LockLostError, ReadWriteLock
from zoolet.testing import Server, Simulation, hold, lose_reply

NAMINGS = ("kazoo", "curator")


@pytest.mark.parametrize("naming", NAMINGS)
def test_readers_share_lock_and_writers_exclude_in_arrival_order(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        log: list[str] = []

        async def use(who: str) -> None:
            rw = ReadWriteLock(await connect(), "/rw", naming=naming)
            async with rw.read() if who[0] == "r" else rw.write():
                log.append(f"+{who}")
                await asyncio.sleep(10)
                log.append(f"-{who}")

        tasks = []
        for who in ("r1", "r2", "w3", "r4", "r5", "w6", "w7"):
            tasks.append(asyncio.create_task(use(who)))
            await asyncio.sleep(0.5)
        await asyncio.gather(*tasks)
        assert log[:6] == ["+r1", "+r2", "-r1", "-r2", "+w3", "-w3"]
        assert set(log[6:8]) == {"+r4", "+r5"}
        assert set(log[8:10]) == {"-r4", "-r5"}
        assert log[10:] == ["+w6", "-w6", "+w7", "-w7"]
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
def test_leaving_reader_wakes_at_most_one_client(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(6)]
        first = await ReadWriteLock(clients[0], "/rw", naming=naming).read().acquire()
        waiters = []
        for client in clients[1:]:
            rw = ReadWriteLock(client, "/rw", naming=naming)
            waiters.append(asyncio.create_task(rw.write().acquire()))
            await asyncio.sleep(0.2)
        before = server.op_count()
        await first.release()
        await asyncio.sleep(0.03)
        awake = {op.session for op in server.ops(since=before)}
        assert awake <= {clients[0].session_id, clients[1].session_id}
        for waiter in waiters:
            await (await waiter).release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("first", [kazoo_bugs.LAST_SEQUENCE - 1, kazoo_bugs.LAST_SEQUENCE])
def test_rwlock_order_survives_negative_sequence_numbers(naming: str, first: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        kazoo_bugs.create_with_next_sequence(server, "/rw", first)
        log: list[str] = []

        async def use(who: str) -> None:
            rw = ReadWriteLock(await connect(), "/rw", naming=naming)
            async with rw.read() if who[0] == "r" else rw.write():
                log.append(who)
                await asyncio.sleep(5)

        tasks = []
        for who in ("w1", "r2", "w3", "r4"):
            tasks.append(asyncio.create_task(use(who)))
            await asyncio.sleep(0.5)
        await asyncio.gather(*tasks)
        assert log == ["w1", "r2", "w3", "r4"]

    simulate_clients(main)


@pytest.mark.parametrize("naming", [*NAMINGS, "both"])
def test_downgraded_writer_admits_only_readers(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two, three = await connect(), await connect(), await connect()
        rw = ReadWriteLock(one, "/rw", naming=naming)
        writer = await rw.write().acquire()
        behind = asyncio.create_task(ReadWriteLock(two, "/rw", naming=naming).read().acquire())
        await asyncio.sleep(0.5)
        last = asyncio.create_task(ReadWriteLock(three, "/rw", naming=naming).write().acquire())
        await asyncio.sleep(0.5)

        reader = await rw.downgrade(writer)

        with pytest.raises(LockLostError):
            writer.raise_if_lost()
        reader.raise_if_lost()
        other = await behind
        await writer.release()
        await asyncio.sleep(3)
        assert not last.done()
        await other.release()
        await asyncio.sleep(3)
        assert not last.done()
        await reader.release()
        await (await last).release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("naming", [*NAMINGS, "both"])
def test_loss_of_downgraded_reader_lease_cancels_writer_block(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        rw = ReadWriteLock(zk, "/rw", naming=naming, data=b"me")
        with pytest.raises(LockLostError):  # noqa: PT012
            async with asyncio.timeout(30), rw.write() as writer:
                reader = await rw.downgrade(writer)
                assert {server.tree()[path].data for path, _ in reader.nodes} == {b"me"}
                server.expire(zk)
                await asyncio.sleep(60)
        with pytest.raises(LockLostError):  # noqa: PT012
            async with asyncio.timeout(30), await rw.write().acquire() as writer:
                reader = await rw.downgrade(writer)
                server.expire(zk)
                await asyncio.sleep(60)
        await wait_until_clean(server)

    simulate_clients(main)


def test_downgraded_writer_does_not_wait_for_itself() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        rw = ReadWriteLock(await connect(), "/rw")
        async with rw.write() as writer:
            reader = await rw.downgrade(writer)
            async with rw.read():
                pass
            with pytest.raises(DeadlockError):
                await rw.write().acquire()
        await reader.release()
        async with rw.write():
            pass

    simulate_clients(main)


def test_lost_writer_cannot_be_downgraded() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        rw = ReadWriteLock(one, "/rw")
        writer = await rw.write().acquire()
        await two.delete(writer.path)
        with pytest.raises(LockLostError):
            await rw.downgrade(writer)
        await writer.release()
        await wait_until_clean(server)

    simulate_clients(main)


@pytest.mark.parametrize("how", ["reply lost", "cancelled", "cancelled later"])
def test_failed_downgrade_leaves_no_node(how: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        rw = ReadWriteLock(one, "/rw")
        writer = await rw.write().acquire()
        if how == "reply lost":
            with server.fault(lose_reply(), "multi", times=1, strict=True):
                try:
                    reader = await rw.downgrade(writer)
                except ConnectionLossError:
                    pass
                else:
                    await reader.release()
        else:
            with server.fault(hold(), "multi" if how == "cancelled" else "exists", client=one, times=1) as held:
                task = asyncio.create_task(rw.downgrade(writer))
                await server.until(lambda: held.hits)
                task.cancel()
                await asyncio.wait([task])
        await writer.release()
        try:
            async with ReadWriteLock(two, "/rw", timeout=60.0).write():
                pass
        finally:
            await one.delete("/rw", recursive=True)  # the next test expects no node at this path

    simulate_clients(main)


@pytest.mark.parametrize("side", ["read", "write"])
@pytest.mark.parametrize("step", range(0, 30, 2))
def test_rwlock_waiter_cancelled_at_any_point_cleans_up(side: str, step: int) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        writer = await ReadWriteLock(one, "/rw").write().acquire()
        waiting = asyncio.create_task(getattr(ReadWriteLock(two, "/rw"), side)().acquire())
        await asyncio.sleep(step * 0.0007)
        waiting.cancel()
        await asyncio.wait([waiting])
        await writer.release()
        await wait_until_clean(server)

    simulate_clients(main, step)


def test_unknown_rwlock_naming_is_refused() -> None:
    with pytest.raises(ValueError, match="kazoo, curator, both"):
        ReadWriteLock(Client("127.0.0.1:1"), "/rw", naming="x")  # type: ignore[arg-type]


def test_long_held_writer_can_be_downgraded() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = ReadWriteLock(zk, "/rw")
        async with lock.write() as writer:
            await asyncio.sleep(1)
            reader = await lock.downgrade(writer)
            reader.raise_if_lost()
            await reader.release()

    simulate_clients(main)


@pytest.mark.parametrize("which", ["another path", "a plain lock", "another client", "a reader"])
def test_downgrade_accepts_only_writer_lease_of_same_lock(which: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with make_client(server, seed=6) as other:
            makes = {
                "another path": lambda: ReadWriteLock(zk, "/other").write(),
                "a plain lock": lambda: Lock(zk, "/plain"),
                "another client": lambda: ReadWriteLock(other, "/rw").write(),
                "a reader": lambda: ReadWriteLock(zk, "/rw").read(),
            }
            lease = await makes[which]().acquire()
            with pytest.raises(ValueError, match="is not a writer's lease of the lock at /rw"):
                await ReadWriteLock(zk, "/rw").downgrade(lease)
            assert lease.path in server.tree()
            await lease.release()

    with_client(main)


def test_rwlock_nodes_have_given_acl() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        rw = ReadWriteLock(await connect(), "/rw", acl=acl.OPEN + acl.digest("user", "password", acl.READ))
        async with rw.write():
            (name,) = (path for path in server.tree() if path.startswith("/rw/"))
            assert server.tree()[name].acl == tuple(acl.OPEN + acl.digest("user", "password", acl.READ))

    simulate_clients(main)
