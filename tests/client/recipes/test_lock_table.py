"""The table of locks shows the holders and waiters of each lock, and deadlocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.kazoo_clients import kazoo_client
from support.leftovers import wait_for_queue
from support.simulation import Connect, make_client, simulate_clients, with_client

from zoolet.client import Client
from zoolet.client.recipes import Election, Lock, LockTable, ReadWriteLock, Semaphore
from zoolet.protocol import deadlocks
from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.deadlocks import LockEntry, LockStatus, find_cycles
from zoolet.testing import Server, Simulation, delay


def test_table_lists_holders_and_waiters_with_times() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        async with AsyncExitStack() as stack:
            held = await stack.enter_async_context(Lock(one, "/locks/a", data=b"one"))
            since = server.tree()[held.path].ctime
            await asyncio.sleep(5)
            waiting = asyncio.create_task(Lock(two, "/locks/a", data=b"two").acquire())
            await wait_for_queue(server, "/locks/a", 2)
            (line,) = await LockTable(one, "/").read()
            assert (line.path, line.naming) == ("/locks/a", "kazoo")
            assert [(entry.data, entry.session_id, entry.holds, entry.shared) for entry in line.entries] == [
                (b"one", one.session_id, True, False),
                (b"two", two.session_id, False, False),
            ]
            assert line.entries[0].since == pytest.approx(since)
            assert line.entries[1].since - line.entries[0].since == pytest.approx(5, abs=0.1)
        await (await waiting).release()

    simulate_clients(main)


def test_table_shows_reader_waiting_after_earlier_writer() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        zk = await connect()
        first, second = await ReadWriteLock(zk, "/rw").read().acquire(), await ReadWriteLock(zk, "/rw").read().acquire()
        waiting = [asyncio.create_task(ReadWriteLock(zk, "/rw").write().acquire())]
        await wait_for_queue(server, "/rw", 3)
        waiting.append(asyncio.create_task(ReadWriteLock(zk, "/rw").read().acquire()))
        await wait_for_queue(server, "/rw", 4)
        (line,) = await LockTable(zk, "/rw").read()
        assert [(entry.shared, entry.holds) for entry in line.entries] == [
            (True, True),
            (True, True),
            (False, False),
            (True, False),
        ]
        await first.release()
        await second.release()
        for task in waiting:
            await (await task).release()

    simulate_clients(main)


async def test_table_lists_all_kinds_of_locks() -> None:
    async with Server() as server, make_client(server) as zk, kazoo_client(server) as kazoo:
        theirs = kazoo.Lock("/a", "them")
        await asyncio.to_thread(theirs.acquire)
        async with Election(zk, "/b", b"me", naming="curator"), Lock(zk, "/c", naming="both"):
            async with Semaphore(zk, "/d"), make_client(server, seed=6) as other:
                waiting = asyncio.create_task(Semaphore(other, "/d").acquire())
                await wait_for_queue(server, "/d-__lock__", 1)
                lines = await LockTable(zk, "/").read()
                waiting.cancel()
        assert [(line.path, line.naming, line.entries[0].data) for line in lines if line.path < "/c"] == [
            ("/a", "kazoo", b"them"),
            ("/b", "curator", b"me"),
        ]
        assert {line.naming for line in lines if line.path == "/c"} == {"kazoo", "curator"}
        assert "/d-__lock__" in [line.path for line in lines]
        await asyncio.to_thread(theirs.release)


def test_table_omits_unreadable_locks() -> None:
    async def main(server: Server, zk: Client) -> None:
        nobody = [ACL(31, Id("ip", "10.0.0.1"))]
        await zk.create("/b")
        await zk.create(f"/b/{'0' * 32}__lock__", ephemeral=True, sequential=True, acl=nobody)
        await zk.create("/d", acl=nobody)
        async with Lock(zk, "/a"), Lock(zk, "/c"):
            assert [line.path for line in await LockTable(zk, "/").read()] == ["/a", "/c"]

    with_client(main)


# --- deadlocks ---

AcquireLock = Callable[[int, str], Awaitable[Any]]


def run_deadlock(script: Callable[[AcquireLock, LockTable], Awaitable[None]], clients: int = 3) -> None:
    """Run a script with a function that acquires a lock for a client, and a table of all locks."""

    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        members = [await connect() for _ in range(clients)]
        tasks = []

        async def acquire(number: int, path: str) -> None:
            lock = Lock(members[number], path, data=b"client %d" % number)
            tasks.append(asyncio.create_task(lock.acquire()))
            await asyncio.sleep(1)

        await script(acquire, LockTable(members[0], "/"))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled():
                await task.result().release()

    simulate_clients(main)


def test_clients_in_deadlock_are_found() -> None:
    async def script(acquire: AcquireLock, table: LockTable) -> None:
        await acquire(0, "/a")
        await acquire(1, "/b")
        await acquire(0, "/b")
        assert await table.deadlocks() == []
        await acquire(1, "/a")
        (circle,) = await table.deadlocks()
        assert {(wait.lock, wait.entry.data, wait.holder.data) for wait in circle} == {
            ("/b", b"client 0", b"client 1"),
            ("/a", b"client 1", b"client 0"),
        }
        [text] = [str(wait) for wait in circle if wait.lock == "/b"]
        assert text.startswith("client 0 (session 0x")
        assert "waits for /b, and client 1 (session 0x" in text

    run_deadlock(script)


def test_lock_with_two_namings_occurs_once_in_deadlock() -> None:
    def line(path: str, naming: str, *sessions: int) -> LockStatus:
        entries = [LockEntry(f"{path}/{id}", False, id, b"", 0.0, id == sessions[0]) for id in sessions]
        return LockStatus(path, naming, tuple(entries))

    lines = [
        line("/a", "kazoo", 2, 1),
        line("/a", "curator", 2, 1),
        line("/a", "other", 1, 2),
        line("/b", "kazoo", 2, 1),
    ]

    (circle,) = find_cycles(lines)
    assert {wait.lock for wait in circle} == {"/a", "/b"}


def test_waiter_outside_circle_is_not_reported_as_deadlocked() -> None:
    async def script(acquire: AcquireLock, table: LockTable) -> None:
        await acquire(0, "/a")
        await acquire(1, "/b")
        await acquire(2, "/b")
        await acquire(0, "/b")
        await acquire(1, "/a")
        (circle,) = await table.deadlocks()
        assert {wait.entry.data for wait in circle} == {b"client 0", b"client 1"}

    run_deadlock(script)


def test_separate_deadlocks_are_each_found_once() -> None:
    async def script(acquire: AcquireLock, table: LockTable) -> None:
        for number, path in enumerate(("/a", "/b", "/c", "/x", "/y")):
            await acquire(number, path)
        for number, path in enumerate(("/b", "/c", "/a", "/y", "/x")):
            await acquire(number, path)
        circles = await table.deadlocks()
        assert sorted(len(circle) for circle in circles) == [2, 3]

    run_deadlock(script, clients=5)


def test_queue_or_second_wait_for_own_lock_is_not_a_deadlock() -> None:
    async def script(acquire: AcquireLock, table: LockTable) -> None:
        for number in (0, 1, 2, 0):
            await acquire(number, "/a")
        await acquire(0, "/b")
        await acquire(0, "/b")
        assert await table.deadlocks() == []

    run_deadlock(script)


def test_deadlock_of_readers_and_writers_is_found() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        members = [await connect() for _ in range(4)]
        one, two, three, four = members
        tasks = []
        reads = [await ReadWriteLock(zk, "/rw").read().acquire() for zk in (one, two)]
        tasks.append(asyncio.create_task(ReadWriteLock(three, "/rw").write().acquire()))
        await asyncio.sleep(1)
        held = await Lock(four, "/a").acquire()
        tasks.append(asyncio.create_task(ReadWriteLock(four, "/rw").read().acquire()))
        await asyncio.sleep(1)
        assert await LockTable(one, "/").deadlocks() == []
        tasks.append(asyncio.create_task(Lock(two, "/a").acquire()))
        await asyncio.sleep(1)
        (circle,) = await LockTable(one, "/").deadlocks()
        assert {wait.entry.session_id for wait in circle} == {two.session_id, four.session_id}
        for task in tasks:
            task.cancel()
        for lease in (*reads, held):
            await lease.release()

    simulate_clients(main)


def test_waits_among_tasks_of_one_client_are_not_a_deadlock() -> None:
    async def script(acquire: AcquireLock, table: LockTable) -> None:
        for path in ("/a", "/b", "/b", "/a"):
            await acquire(0, path)
        assert await table.deadlocks() == []

    run_deadlock(script)


def test_deadlock_is_found_despite_release_request() -> None:
    async def main(sim: Simulation, server: Server, connect: Connect) -> None:
        one, two = await connect(), await connect()
        held = [await Lock(one, "/a").acquire(), await Lock(two, "/b").acquire()]
        tasks = [asyncio.create_task(Lock(one, "/b").acquire()), asyncio.create_task(Lock(two, "/a").acquire())]
        await asyncio.sleep(1)
        table = LockTable(one, "/")
        with server.fault(delay(1.0), "getData", "/a/*", client=one, nth=3) as fault:
            finding = asyncio.create_task(table.deadlocks())
            while fault.seen < 3:  # wait until the deadlock check is between its two reads
                await asyncio.sleep(0.001)
            await Lock(two, "/a").revoke()
            assert len(await finding) == 1
        for task in tasks:
            task.cancel()
        for lease in held:
            await lease.release()

    simulate_clients(main)


@pytest.mark.parametrize("shape", ["chain", "layers"])
def test_deadlock_search_is_fast_with_many_waiters(shape: str) -> None:
    def entry(session_id: int, holds: bool) -> LockEntry:
        return LockEntry(f"/{session_id}", False, session_id, b"", 0.0, holds)

    if shape == "chain":
        lines = [LockStatus(f"/{n}", "kazoo", (entry(n, True), entry(n - 1, False))) for n in range(3000)]
    else:  # each of three clients holds many locks, and waits for all locks of the next client
        lines = [
            LockStatus(f"/{n}-{number}", "kazoo", (entry(n, True), entry(n - 1, False)))
            for n in range(3)
            for number in range(1000)
        ]
    began = time.process_time()
    assert find_cycles(lines) == []
    assert time.process_time() - began < 1.0


def test_shortest_of_several_wait_circles_is_reported() -> None:
    def line(path: str, holders: list[int], waiter: int) -> LockStatus:
        held = [LockEntry(f"{path}/{session}", True, session, b"", 0.0, True) for session in holders]
        return LockStatus(path, "kazoo", (*held, LockEntry(f"{path}/{waiter}", False, waiter, b"", 0.0, False)))

    (circle,) = find_cycles([line("/1", [2], 1), line("/2", [3, 1], 2), line("/3", [1], 3)])

    assert [(wait.entry.session_id, wait.holder.session_id) for wait in circle] == [(1, 2), (2, 1)]


def test_deadlock_search_in_dense_graph_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlocks, "MAX_WAITS", 1_000)
    everyone = [LockEntry(f"/{number}", False, number, b"", 0.0, number < 100) for number in range(200)]
    swapped = [entry._replace(session_id=(entry.session_id + 100) % 200) for entry in everyone]
    lines = [LockStatus("/a", "kazoo", tuple(everyone)), LockStatus("/b", "kazoo", tuple(swapped))]

    assert find_cycles(lines) == []  # the pairs of the second lock are not considered
    monkeypatch.setattr(deadlocks, "MAX_WAITS", 20_000)
    assert len(find_cycles(lines)) == 100
