"""``zoolet locks``: who holds what of kazoo's, Curator's and our locks, who waits, and who waits in a circle."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, ConnectionClosedError
from support.apache import ApacheZooKeeper, require_apache
from support.curator import curator_locks, require_curator
from support.waiting import until

from zoolet.__main__ import main
from zoolet.client import Client
from zoolet.client.recipes import (
    DurableLock,
    Lock,
    LockingQueue,
    Queue,
    ReadWriteLock,
    Semaphore,
    TryLock,
)
from zoolet.client.recipes.overview import Overview, SharedLine
from zoolet.server import Server


def of(lines: list[SharedLine]) -> dict[str, tuple[str, str, list[bytes], list[bytes]]]:
    """Return what lines say, by path: kind, naming, the data of holders and of waiters."""
    return {
        line.path: (line.kind, line.naming, [e.data for e in line.holders], [e.data for e in line.waiters])
        for line in lines
    }


async def in_line(server: Server, *attempts: Any) -> list[asyncio.Future[Any]]:
    """Begin to wait for locks, in that order."""
    waiting = []
    for attempt in attempts:
        before = len(server.watches())
        waiting.append(asyncio.ensure_future(attempt))
        await server.until(lambda before=before: len(server.watches()) > before)
    return waiting


@pytest.mark.slow
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_our_recipes(server: Server, naming: str) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = [await stack.enter_async_context(Client(server.hosts)) for _ in range(3)]
        held: list[Any] = [
            await Lock(a, "/lock", data=b"a", naming=naming).acquire(),
            await ReadWriteLock(a, "/rw", data=b"a", naming=naming).read().acquire(),
            await Semaphore(a, "/pool", 1, data=b"a", naming=naming).acquire(),
        ]
        waiting = await in_line(
            server,
            Lock(b, "/lock", data=b"b", naming=naming).acquire(),
            Lock(c, "/lock", data=b"c", naming=naming).acquire(),
            ReadWriteLock(b, "/rw", data=b"b", naming=naming).write().acquire(),
            Semaphore(b, "/pool", 1, data=b"b", naming=naming).acquire(),
            Semaphore(c, "/pool", 1, data=b"c", naming=naming).acquire(),
        )
        lines, circles = await Overview(c, "/").look()
        for attempt in waiting:
            attempt.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for lease in held:
            await lease.release()
    assert circles == []
    semaphore = of(lines)["/pool"]
    assert of(lines)["/lock"] == ("lock", naming, [b"a"], [b"b", b"c"])
    assert of(lines)["/rw"] == ("read-write lock", naming, [b"a"], [b"b"])
    assert (semaphore[0], semaphore[1], len(semaphore[3])) == ("semaphore", naming, 2)
    assert sorted(of(lines)) == ["/lock", "/pool", "/rw"]


async def test_what_only_we_have_and_queues(server: Server) -> None:
    async with Client(server.hosts) as a, Client(server.hosts) as b:
        held: list[Any] = [
            await TryLock(a, "/try", data=b"a").acquire(),
            await DurableLock(a, "/durable", owner="a", ttl=60).acquire(),
        ]
        await Queue(a, "/plain").put(b"1")
        queue = LockingQueue(a, "/queue")
        await queue.put(b"1")
        await queue.put(b"2")
        held.append(await queue.acquire())
        lines, _ = await Overview(b, "/").look()
        for lease in held:
            await lease.release()
    kinds = {line.path: (line.kind, line.size, len(line.holders)) for line in lines}
    assert kinds == {
        "/try": ("lock", None, 1),
        "/durable": ("durable lock", None, 1),
        "/plain": ("queue", 1, 0),
        "/queue": ("queue", 2, 1),
    }


# --- the command ---


def waiting_for(lock: Any) -> None:
    """Wait for a lock of kazoo's until the test ends."""
    with suppress(CancelledError, ConnectionClosedError):
        lock.acquire()


@contextmanager
def kazoo_locks(hosts: str, *, cycle: bool) -> Iterator[list[str]]:
    """Hold kazoo's locks; yield the ids of the two sessions: the one that holds, and the one that waits."""
    with ExitStack() as stack:
        clients = []
        for _ in range(2):
            client = KazooClient(hosts)
            client.start()
            stack.callback(client.close)
            stack.callback(client.stop)
            clients.append(client)
        a, b = clients
        a.Lock("/kazoo/lock", "a").acquire()
        a.Semaphore("/kazoo/semaphore", "a", 1).acquire()
        a.ReadLock("/kazoo/rw", "a").acquire()
        steps = [
            (b.Lock("/kazoo/lock", "b"), "/kazoo/lock", 2),
            (b.Semaphore("/kazoo/semaphore", "b", 1), "/kazoo/semaphore-__lock__", 1),
            (b.WriteLock("/kazoo/rw", "b"), "/kazoo/rw", 2),
        ]
        if cycle:
            a.Lock("/kazoo/one", "a").acquire()
            b.Lock("/kazoo/two", "b").acquire()
            steps += [
                (a.Lock("/kazoo/two", "a"), "/kazoo/two", 2),
                (b.Lock("/kazoo/one", "b"), "/kazoo/one", 2),
            ]
        for lock, path, children in steps:
            stack.callback(lock.cancel)
            threading.Thread(target=waiting_for, args=(lock,), daemon=True).start()
            looking = threading.Event()
            while len(a.get_children(path)) < children:
                looking.wait(0.01)
        yield [f"{client.client_id[0] & 0xFFFFFFFFFFFFFFFF:#x}" for client in clients]


def locks(
    capsys: pytest.CaptureFixture[str], where: str
) -> tuple[int, dict[str, tuple[str, list[str], list[str]]], Any]:
    """Run the command; return its exit code, who holds and who waits by path, and the deadlocks."""
    code = main(["locks", where, "--json"])
    answer = json.loads(capsys.readouterr().out)
    shared = {
        line["path"]: (line["kind"], [e["session"] for e in line["holders"]], [e["session"] for e in line["waiters"]])
        for line in answer["shared"]
    }
    return code, shared, answer["deadlocks"]


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [False, True])
def test_kazoos_and_curators_locks_on_apache(capsys: pytest.CaptureFixture[str], cycle: bool) -> None:
    require_apache()
    require_curator()
    with (
        ApacheZooKeeper() as apache,
        kazoo_locks(apache.hosts, cycle=cycle) as (a, b),
        curator_locks(apache.hosts, cycle=cycle) as (c, d),
    ):
        code, shared, deadlocks = locks(capsys, apache.hosts)
        text_code = main(["locks", apache.hosts])
        text = capsys.readouterr().out
    expected = {
        "/kazoo/lock": ("lock", [a], [b]),
        "/kazoo/semaphore": ("semaphore", [a], [b]),
        "/kazoo/rw": ("read-write lock", [a], [b]),
        "/curator/mutex": ("lock", [c], [d]),
        "/curator/rw": ("read-write lock", [c], [d]),
        "/curator/semaphore": ("semaphore", [c], [d]),
        "/curator/latch": ("election", [c], [d]),
    }
    if cycle:
        expected |= {
            "/kazoo/one": ("lock", [a], [b]),
            "/kazoo/two": ("lock", [b], [a]),
            "/cycle/one": ("lock", [c], [d]),
            "/cycle/two": ("lock", [d], [c]),
        }
    assert shared == expected
    assert (code, text_code) == (int(cycle), int(cycle))
    assert len(deadlocks) == 2 * cycle
    assert text.count("DEADLOCK of 2 clients:") == 2 * cycle
    assert f"/kazoo/lock  (lock)\n  held by a (session {a}) since 20" in text


def test_nothing_is_shared(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        assert main(["locks", server.hosts]) == 0
        assert capsys.readouterr().out == "nothing is shared below /\n"


def test_no_such_node_and_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        hosts = server.hosts
        assert main(["locks", f"{hosts}/missing"]) == 1
        assert capsys.readouterr().err == f"zoolet: {hosts}: /missing: the node does not exist\n"
    assert main(["locks", hosts]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"zoolet: {hosts}: ")
    assert "refused" in error
    assert main(["locks", "host:99999"]) == 2


async def test_what_has_changed_is_printed_again(server: Server) -> None:
    async with Client(server.hosts) as zk:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "zoolet",
            "locks",
            server.hosts,
            "--watch",
            "--interval",
            "0.05",
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"nothing is shared below /\n"
        lease = await Lock(zk, "/lock", data=b"me").acquire()
        assert await process.stdout.readline() == b"/lock  (lock)\n"
        assert b"held by me" in await process.stdout.readline()
        await lease.release()
        assert await process.stdout.readline() == b"nothing is shared below /\n"
        process.terminate()
        await process.wait()
    await until(lambda: process.returncode is not None)
