"""A reentrant lock can be entered again by the task that holds it, and by no other task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support import kazoo_bugs
from support.leftovers import wait_until_clean
from support.simulation import Connect, simulate_clients

from zoolet.client.recipes import (
    DeadlockError,
    DurableLock,
    Lock,
    LockLostError,
    MultiLock,
    ReadWriteLock,
    Semaphore,
    TryLock,
)
from zoolet.testing import Server, Simulation


def test_reentrant_lock_is_released_by_last_exit() -> None:
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

    simulate_clients(main)


def test_reentrant_lock_excludes_different_task() -> None:
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

    simulate_clients(main)


def test_self_waiting_task_gets_deadlock_error() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        rw = ReadWriteLock(zk, "/rw")
        pairs = [(lock, lock) for lock in (zk.lock("/lock"), MultiLock(zk, ["/m"]), TryLock(zk, "/t"))]
        for outer, inner in [*pairs, (rw.write(), rw.read()), (rw.read(), rw.write()), (rw.write(), rw.write())]:
            async with outer:
                with pytest.raises(DeadlockError, match="waiting for it would deadlock"):
                    async with inner:
                        pass
        await wait_until_clean(server)

    simulate_clients(main)


def test_acquire_of_own_lock_raises_and_attempt_fails() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        locks = [zk.lock("/l"), MultiLock(zk, ["/m"]), TryLock(zk, "/t"), DurableLock(zk, "/d", "me")]
        locks += [Lock(zk, "/b", naming="both")]
        for lock in locks:
            lease = await lock.acquire()
            with pytest.raises(RuntimeError, match="this task already holds"):
                await lock.acquire()
            assert await lock.attempt() is None
            with pytest.raises(TimeoutError):
                await asyncio.create_task(lock.acquire(0.1))
            await lease.release()
            await (await lock.acquire()).release()
        one = await Lock(zk, "/b").acquire()
        with pytest.raises(RuntimeError, match="this task already holds"):
            await Lock(zk, "/b", naming="both").acquire()
        await one.release()
        await wait_until_clean(server)

    simulate_clients(main)


def test_block_of_already_acquired_lock_is_cancelled_on_loss() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        lock = zk.lock("/lock", reentrant=True)
        lease = await lock.acquire()
        with pytest.raises(LockLostError):  # noqa: PT012
            async with asyncio.timeout(30), lock:
                server.expire(zk)
                await asyncio.sleep(60)
        await lease.release()

    simulate_clients(main)


def test_exit_without_entry_raises() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        with pytest.raises(RuntimeError, match="was not entered"):
            await (await connect()).lock("/lock").__aexit__(None, None, None)

    simulate_clients(main)


def test_reentrant_lock_counts_releases_in_its_block() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = one.lock("/lock", reentrant=True)
        async with lock as lease:
            again = await lock.acquire()
            assert again is lease
        assert await two.lock("/lock").attempt() is None
        await again.release()
        other = await two.lock("/lock").attempt()
        assert other is not None
        await other.release()

    simulate_clients(main)


def test_writer_can_reenter_as_writer_and_as_reader() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        rw, other = ReadWriteLock(one, "/rw", reentrant=True), ReadWriteLock(two, "/rw")
        async with rw.write() as writer, rw.write(), rw.read() as reader:
            assert reader is writer
            assert await other.read().attempt() is None
        async with rw.read(), rw.read():
            assert len(await other.read().contenders()) == 1
            with pytest.raises(DeadlockError, match="waiting for it would deadlock"):
                async with rw.write():
                    pass
        async with other.write() as lease:
            assert lease.token > writer.token

    simulate_clients(main)


def test_revocation_reaches_readers_and_writer() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        locks = [ReadWriteLock(zk, "/rw", revocable=True) for zk in clients]
        readers = [await lock.read().acquire() for lock in locks[:2]]
        waiting = asyncio.ensure_future(locks[2].write().acquire())
        await asyncio.sleep(0.5)

        assert await locks[2].write().revoke()

        for reader in readers:
            await asyncio.wait_for(reader.revoked.wait(), 5)
            await reader.release()
        writer = await waiting
        assert not writer.revoked.is_set()
        assert await locks[0].read().revoke()
        await asyncio.wait_for(writer.revoked.wait(), 5)
        await writer.release()
        assert not await locks[0].read().revoke()

    simulate_clients(main)


def test_task_reacquires_reentrant_lock_without_block() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        lock = one.lock("/lock", reentrant=True)
        lease = await lock.acquire()
        assert await lock.acquire(timeout=5) is lease
        assert await lock.attempt() is lease
        async with lock as entered:
            assert entered is lease
        for held in (True, True):
            assert await two.lock("/lock").attempt() is None, held
            await lease.release()
        await lease.release()
        await wait_until_clean(server)

        other = await asyncio.create_task(lock.acquire())
        assert other is not lease
        await other.release()

    simulate_clients(main)


# --- one task, several lock objects of one path ---


@pytest.mark.parametrize("naming", ["kazoo", "curator", "both"])
def test_task_waiting_for_own_lock_by_other_object_gets_error(naming: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", naming=naming):
            with pytest.raises(DeadlockError):
                await zk.lock("/lock", naming=naming).__aenter__()
            with pytest.raises(DeadlockError):
                await zk.with_operation_timeout(1).lock("/lock", naming=naming).__aenter__()
            async with zk.lock("/other", naming=naming):
                pass
        async with zk.lock("/lock", naming=naming):
            pass
        await wait_until_clean(server)

    simulate_clients(main)


def test_reentrant_lock_is_reentered_through_second_lock_object() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with zk.lock("/lock", reentrant=True) as outer, zk.lock("/lock", reentrant=True) as inner:
            assert inner is outer
        await wait_until_clean(server)

    simulate_clients(main)


def test_read_write_lock_objects_of_same_path_share_reentrancy() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        async with ReadWriteLock(zk, "/rw").read():
            async with ReadWriteLock(zk, "/rw").read():
                pass
            with pytest.raises(DeadlockError):
                await ReadWriteLock(zk, "/rw").write().__aenter__()
        await wait_until_clean(server)

    simulate_clients(main)


# --- the block of a lease that was acquired earlier ---


@pytest.mark.parametrize("on_lost", ["cancel", "flag"])
def test_block_of_acquired_lease_is_cancelled_on_loss(on_lost: str) -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        made: list[Any] = [
            zk.lock("/a", on_lost=on_lost),
            Semaphore(zk, "/b", on_lost=on_lost),
            TryLock(zk, "/c", on_lost=on_lost),
            MultiLock(zk, ["/d", "/e"], on_lost=on_lost),
        ]
        for lock in made:

            async def work(lock: Any = lock) -> str:
                async with await lock.acquire() as lease:
                    server.expire(zk)
                    await asyncio.sleep(10)
                    return str(lease.lost.reason)

            if on_lost == "flag":
                assert await work()
            else:
                with pytest.raises(LockLostError):
                    await work()

    simulate_clients(main)
