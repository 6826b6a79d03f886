"""A NodeCache follows one node: from nothing to nothing, and its values in order."""

from __future__ import annotations

import asyncio
from typing import Any

from support.leftovers import leftovers
from support.simulation import client_of, eventually, with_client

from zoolet.client import Client
from zoolet.client.recipes import NodeCache
from zoolet.server import Server


def test_a_node_s_value_is_followed_from_nothing_to_nothing() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other, NodeCache(zk, "/a") as cache:
            assert (cache.value, cache.stat) == (None, None)
            await other.create("/a", b"1")
            await eventually(lambda: cache.value == b"1")
            await other.set("/a", b"2")
            await eventually(lambda: cache.value == b"2")
            assert cache.stat is not None
            assert cache.stat.version == 1
            await other.delete("/a")
            await eventually(lambda: cache.stat is None)
            assert cache.value is None
        assert not leftovers(server, zk)

    with_client(main)


def test_a_node_s_changes_are_delivered_in_order() -> None:
    async def main(server: Server, zk: Client) -> None:
        seen: list[Any] = []
        await zk.create("/a", b"0")
        async with NodeCache(zk, "/a") as cache:

            async def follow() -> None:
                async for value in cache.changes():
                    seen.append(value)  # noqa: PERF401

            job = asyncio.ensure_future(follow())
            for number in range(1, 5):
                await asyncio.sleep(1)
                await zk.set("/a", b"%d" % number)
            await asyncio.sleep(1)
            job.cancel()
        assert seen == [b"0", b"1", b"2", b"3", b"4"]

    with_client(main)
