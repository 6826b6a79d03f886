"""``zoolet locks``: holders, waiters and deadlocks, for locks of kazoo, Curator and zoolet."""

from __future__ import annotations

import asyncio
import json
import re
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
from zoolet.cli.locks import _describe_contender
from zoolet.client import Client
from zoolet.client.recipes import (
    DoubleBarrier,
    DurableLock,
    Lock,
    LockingQueue,
    Overview,
    Queue,
    ReadWriteLock,
    Semaphore,
    SharedRecipe,
    TryLock,
)
from zoolet.protocol.deadlocks import LockEntry, contender_name
from zoolet.testing import Server


def facts_by_path(lines: list[SharedRecipe]) -> dict[str, tuple[str, str, list[bytes], list[bytes]]]:
    """Return for each path the kind and naming of its lock, and the data of holders and of waiters."""
    return {
        line.path: (line.kind, line.naming, [e.data for e in line.holders], [e.data for e in line.waiters])
        for line in lines
    }


async def start_waiters(server: Server, *attempts: Any) -> list[asyncio.Future[Any]]:
    """Start the attempts one after the other, each when the previous one has set its watch. Return their tasks."""
    waiting = []
    for attempt in attempts:
        before = len(server.watches())
        waiting.append(asyncio.ensure_future(attempt))
        await server.until(lambda before=before: len(server.watches()) > before)
    return waiting


@pytest.mark.slow
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_zoolet_locks_show_holders_and_waiters(server: Server, naming: str) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = [await stack.enter_async_context(Client(server.hosts)) for _ in range(3)]
        held: list[Any] = [
            await Lock(a, "/lock", data=b"a", naming=naming).acquire(),
            await ReadWriteLock(a, "/rw", data=b"a", naming=naming).read().acquire(),
            await Semaphore(a, "/pool", 1, data=b"a", naming=naming).acquire(),
        ]
        waiting = await start_waiters(
            server,
            Lock(b, "/lock", data=b"b", naming=naming).acquire(),
            Lock(c, "/lock", data=b"c", naming=naming).acquire(),
            ReadWriteLock(b, "/rw", data=b"b", naming=naming).write().acquire(),
            Semaphore(b, "/pool", 1, data=b"b", naming=naming).acquire(),
            Semaphore(c, "/pool", 1, data=b"c", naming=naming).acquire(),
        )
        lines, circles = await Overview(c, "/").read()
        for attempt in waiting:
            attempt.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for lease in held:
            await lease.release()
    assert circles == []
    semaphore = facts_by_path(lines)["/pool"]
    assert facts_by_path(lines)["/lock"] == ("lock", naming, [b"a"], [b"b", b"c"])
    assert facts_by_path(lines)["/rw"] == ("read-write lock", naming, [b"a"], [b"b"])
    assert (semaphore[0], semaphore[1], len(semaphore[3])) == ("semaphore", naming, 2)
    assert sorted(facts_by_path(lines)) == ["/lock", "/pool", "/rw"]


async def test_double_barrier_members_wait_until_round_opens(server: Server) -> None:
    async with Client(server.hosts) as a, Client(server.hosts) as b, Client(server.hosts) as c:
        first = asyncio.create_task(DoubleBarrier(a, "/step", 2).enter())
        await server.until(lambda: sum(path.startswith("/step/") for path in server.tree()) == 1)
        before = facts_by_path((await Overview(c, "/").read())[0])
        await asyncio.gather(first, DoubleBarrier(b, "/step", 2).enter())
        late = await c.create("/step/9c7e980a02c6499346ac9bf4e550501a", b"late", ephemeral=True)
        inside = facts_by_path((await Overview(c, "/").read())[0])
        await c.create("/curator/ready", b"", parents=True)
        for parent in ("/curator", "/services"):  # Curator's service discovery also creates nodes with such names
            await c.create(f"{parent}/9c7e980a-02c6-4993-46ac-9bf4e550501a", b"x", ephemeral=True, parents=True)
        others = facts_by_path((await Overview(c, "/").read())[0])

    assert before == {"/step": ("double barrier", "kazoo", [], [b""])}
    assert inside == {"/step": ("double barrier", "kazoo", [b"", b""], [b"late"])}
    assert late.endswith("1a")
    assert others["/curator"] == ("double barrier", "curator", [], [b"x"])
    assert "/services" not in others


async def test_queues_and_zoolet_recipes_are_listed(server: Server) -> None:
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
        lines, _ = await Overview(b, "/").read()
        for lease in held:
            await lease.release()
    assert facts_by_path(lines)["/queue"][2] == [Lock(a, "/lock").data]
    kinds = {line.path: (line.kind, line.size, len(line.holders)) for line in lines}
    assert kinds == {
        "/try": ("lock", None, 1),
        "/durable": ("durable lock", None, 1),
        "/plain": ("queue", 1, 0),
        "/queue": ("queue", 2, 1),
    }


@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_semaphore_has_default_data_of_lock(server: Server, naming: str) -> None:
    async with Client(server.hosts) as zk:
        lease = await Semaphore(zk, "/pool", 1, naming=naming).acquire()
        lines, _ = await Overview(zk, "/").read()
        await lease.release()

    assert facts_by_path(lines)["/pool"][2] == [Lock(zk, "/lock").data]


@pytest.mark.parametrize(
    ("data", "session", "name"),
    [
        (b"vm:4278", 16, "vm:4278 (session 0x10)"),
        (b"", 16, "session 0x10"),
        (b"1b4e28ba-2fa1-41d2-883f-0016d3cca427", 16, "session 0x10"),
        (b"1b4e28ba2fa141d2883f0016d3cca427", 16, "session 0x10"),
        (b"nightly", 0, "nightly"),
    ],
    ids=["name", "empty", "uuid", "hex", "durable"],
)
def test_contender_name_is_data_or_session(data: bytes, session: int, name: str) -> None:
    assert contender_name(LockEntry("/a", False, session, data, 0.0, True)) == name


async def test_locks_command_does_not_list_children_of_contenders(server: Server) -> None:
    async with Client(server.hosts) as zk:
        await zk.create("/data")
        async with Lock(zk, "/lock"):
            with server.recording() as requests:
                await Overview(zk, "/").read()

    listed = {request.path for request in requests if request.op == "getChildren"}
    assert listed == {"/", "/data", "/lock", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"}


# --- the command ---


@pytest.mark.parametrize(
    ("seconds", "text"), [(-3, "0 s"), (59.9, "59 s"), (125, "2 min"), (7199, "1 h"), (200_000, "2 d")]
)
def test_locks_command_shows_start_and_duration_of_hold(
    monkeypatch: pytest.MonkeyPatch, seconds: float, text: str
) -> None:
    monkeypatch.setattr("zoolet.cli.locks.time.time", lambda: 1_000_000.0 + seconds)

    shown = _describe_contender(LockEntry("/a", False, 16, b"vm:1", 1_000_000.0, True))

    pattern = r"vm:1 \(session 0x10\) since 1970-01-\d\d \d\d:\d\d:40[+-]\d\d:\d\d \((.*)\)"
    assert re.findall(pattern, shown) == [text]


def wait_for_lock(lock: Any) -> None:
    """Wait for a kazoo lock until the test ends."""
    with suppress(CancelledError, ConnectionClosedError):
        lock.acquire()


@contextmanager
def kazoo_locks(hosts: str, *, cycle: bool) -> Iterator[list[str]]:
    """Hold kazoo locks. Yield two session ids: the holder's and the waiter's."""
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
            threading.Thread(target=wait_for_lock, args=(lock,), daemon=True).start()
            looking = threading.Event()
            while len(a.get_children(path)) < children:
                looking.wait(0.01)
        yield [f"{client.client_id[0] & 0xFFFFFFFFFFFFFFFF:#x}" for client in clients]


def locks(
    capsys: pytest.CaptureFixture[str], where: str
) -> tuple[int, dict[str, tuple[str, list[str], list[str]]], Any]:
    """Run the command. Return its exit code, the holders and waiters by path, and the deadlocks."""
    code = main(["locks", where, "--json"])
    answer = json.loads(capsys.readouterr().out)
    shared = {
        line["path"]: (line["kind"], [e["session"] for e in line["holders"]], [e["session"] for e in line["waiters"]])
        for line in answer["shared"]
    }
    return code, shared, answer["deadlocks"]


@pytest.mark.slow
@pytest.mark.parametrize("cycle", [False, True])
def test_locks_command_lists_kazoo_and_curator_locks_on_apache(capsys: pytest.CaptureFixture[str], cycle: bool) -> None:
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


async def test_locks_command_prints_longest_wait_first(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    async with server, Client(server.hosts) as a, Client(server.hosts) as b:
        held = [await Lock(a, path).acquire() for path in ("/a", "/b", "/c")]
        waiting = []
        for path in ("/c", "/b"):
            waiting += await start_waiters(server, Lock(b, path).acquire())
            await asyncio.sleep(0.002)  # the times of requests have a resolution of 1 ms
        await asyncio.to_thread(main, ["locks", server.hosts, "--json"])
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for lease in held:
            await lease.release()

    assert [line["path"] for line in json.loads(capsys.readouterr().out)["shared"]] == ["/c", "/b", "/a"]


def test_locks_command_reports_that_no_locks_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        assert main(["locks", server.hosts]) == 0
        assert capsys.readouterr().out == "no locks, elections, semaphores or queues below /\n"


def test_locks_command_reports_missing_path_or_server(capsys: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        hosts = server.hosts
        assert main(["locks", f"{hosts}/missing"]) == 1
        assert capsys.readouterr().err == f"zoolet locks: {hosts}: /missing: the node does not exist\n"
    assert main(["locks", hosts]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"zoolet locks: cannot connect to {hosts}: ")
    assert "refused" in error
    assert main(["locks", "host:99999"]) == 2


async def test_watch_option_of_locks_command_prints_changed_locks(server: Server) -> None:
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
        assert await process.stdout.readline() == b"no locks, elections, semaphores or queues below /\n"
        lease = await Lock(zk, "/lock", data=b"me").acquire()
        assert await process.stdout.readline() == b"/lock  (lock)\n"
        assert b"held by me" in await process.stdout.readline()
        await lease.release()
        assert await process.stdout.readline() == b"no locks, elections, semaphores or queues below /\n"
        process.terminate()
        await process.wait()
    await until(lambda: process.returncode is not None)
