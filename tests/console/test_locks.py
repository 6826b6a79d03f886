"""The locks that the console finds in its own server, compared with those that a client finds there."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import AsyncExitStack
from typing import Any

import pytest
from support.console import printed_locks
from support.engine import make_engine
from support.waiting import DEADLINE_S

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
from zoolet.client.recipes.overview import Overview, overview_json
from zoolet.console.local_locks import LocalLockReader
from zoolet.console.source import Pace
from zoolet.server.admin.lock_counts import LockCounts
from zoolet.testing import Server

pytest.importorskip("h11")


METRIC_LABELS = {"lock": "lock", "read-write lock": "rwlock", "semaphore": "semaphore", "queue": "queue"}
"""The labels of the metrics by kind. Durable locks are not counted."""


def lock_totals(lines: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return the numbers of held locks and of waiters, by the labels of the metrics."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for line in lines:
        if line["kind"] in METRIC_LABELS and line["holders"]:
            label = line["naming"], METRIC_LABELS[line["kind"]]
            locks, waiters = counts.get(label, (0, 0))
            counts[label] = locks + 1, waiters + len(line["waiters"])
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_console_and_client_find_same_recipes(naming: Any) -> None:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server(admin=True))
        a, b = [await stack.enter_async_context(Client(server.hosts)) for _ in range(2)]
        held: list[Any] = [
            await Lock(a, "/some/lock", data=b"a", naming=naming).acquire(),
            await ReadWriteLock(a, "/some/rw", data=b"a", naming=naming).read().acquire(),
            await Semaphore(a, "/pool", 1, data=b"a", naming=naming).acquire(),
            await TryLock(a, "/try").attempt(),
            await DurableLock(a, "/durable", "me", ttl=60.0).attempt(),
        ]
        await a.create("/step/ready", b"", parents=True)
        await b.create("/step/9c7e980a02c6499346ac9bf4e550501a", b"", ephemeral=True)
        waiting = [
            asyncio.create_task(Lock(b, "/some/lock", data=b"b", naming=naming).acquire()),
            asyncio.create_task(Semaphore(b, "/pool", 1, data=b"b", naming=naming).acquire()),
        ]
        await server.until_contenders("/some/lock", 2, 5)
        queue = LockingQueue(a, "/jobs")
        await Queue(a, "/plain").put(b"1")
        await queue.put(b"1")
        held.append((await queue.acquire()).lease)
        server.populate({f"/data/{number}/x": "" for number in range(50)})

        while True:
            shared = overview_json(*await Overview(a, "/").read())["shared"]
            if sum(len(line["waiters"]) for line in shared) == 3:
                break
        lines, _ = await Overview(a, "/").read()
        assert all(entry.holds for line in lines for entry in line.holders)
        assert not any(entry.holds for line in lines for entry in line.waiters)
        assert server.admin_url is not None
        url = f"{server.admin_url}console/api/locks"
        shown = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=DEADLINE_S).read()))

        for line in shown["shared"]:
            assert (line["held"], line["waiting"]) == (len(line["holders"]), len(line["waiters"]))
            for holder in line["holders"]:
                assert holder["held_since"] >= holder["since"]
            for entry in line["holders"] + line["waiters"]:
                assert entry["address"].startswith("127.0.0.1:") or entry["session"] is None
        assert printed_locks(shown["shared"]) == shared
        counts = LockCounts()
        await counts.refresh(server._engine)
        counted = {label: (each.locks, each.waiters) for label, each in counts.latest.by_label.items() if each.locks}
        assert counted == lock_totals(shared)
        kinds = {"lock", "read-write lock", "semaphore", "queue", "durable lock", "double barrier"}
        assert {line["kind"] for line in shared} == kinds
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for lease in held:
            await lease.release()


async def test_nodes_deleted_while_reading_locks_are_skipped() -> None:
    reader = LocalLockReader(make_engine(), Pace(asyncio.Lock()), lambda node: True)

    assert await reader.lists(["/", "/gone"]) == {"/": ["zookeeper"]}
    assert [path for path, _, _ in await reader.nodes(["/", "/gone"])] == ["/"]
