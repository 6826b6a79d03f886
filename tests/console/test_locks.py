"""The locks that the console finds in its own server, beside those that a client finds there."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from contextlib import AsyncExitStack
from typing import Any

import pytest

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
from zoolet.client.recipes.overview import Overview, described
from zoolet.testing import Server

pytest.importorskip("h11")


@pytest.mark.slow
@pytest.mark.parametrize("naming", ["kazoo", "curator"])
async def test_recipes_of_every_kind_are_found_by_both(naming: Any) -> None:
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
        waiting = [
            asyncio.create_task(Lock(b, "/some/lock", data=b"b", naming=naming).acquire()),
            asyncio.create_task(Semaphore(b, "/pool", 1, data=b"b", naming=naming).acquire()),
        ]
        await server.until_contenders("/some/lock", 2, 5)
        queue = LockingQueue(a, "/jobs")
        await Queue(a, "/plain").put(b"1")
        await queue.put(b"1")
        server.populate({f"/data/{number}/x": "" for number in range(50)})

        while True:
            shared = described(*await Overview(a, "/").look())["shared"]
            if sum(len(line["waiters"]) for line in shared) == 2:
                break
        lines, _ = await Overview(a, "/").look()
        assert all(entry.holds for line in lines for entry in line.holders)
        assert not any(entry.holds for line in lines for entry in line.waiters)
        assert server.admin_url is not None
        url = f"{server.admin_url}console/api/locks"
        shown = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=5).read()))

        for line in shown["shared"]:
            for holder in line["holders"]:
                assert holder.pop("held_since") >= holder["since"]
        assert shown["shared"] == shared
        assert {line["kind"] for line in shared} == {"lock", "read-write lock", "semaphore", "queue", "durable lock"}
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for lease in held:
            await lease.release()
