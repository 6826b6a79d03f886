"""A TreeCache comes to be what the tree is, also after drops and in new sessions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.leftovers import leftovers
from support.simulation import client_of, eventually, with_client

from zoolet.client import Client
from zoolet.client.recipes import TreeCache
from zoolet.server import Server
from zoolet.server.testing import hold


def what(cache: TreeCache) -> dict[str, Any]:
    """Return the values a cache knows, by path."""
    return {path: cached.value for path, cached in cache.nodes.items()}


def test_a_tree_is_followed() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other, TreeCache(zk, "/a") as cache:
            assert what(cache) == {}
            await other.create("/a/b/c", b"1", parents=True)
            await eventually(lambda: what(cache) == {"/a": b"", "/a/b": b"", "/a/b/c": b"1"})
            await other.set("/a/b", b"2")
            await other.create("/ab", b"outside")
            await eventually(lambda: what(cache) == {"/a": b"", "/a/b": b"2", "/a/b/c": b"1"})
            await other.delete("/a", recursive=True)
            await eventually(lambda: what(cache) == {})
        assert not leftovers(server, zk)

    with_client(main)


def test_the_whole_tree_can_be_followed() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with TreeCache(zk, "/") as cache:
            await zk.create("/a", b"1")
            await eventually(lambda: "/a" in cache.nodes)
            await zk.delete("/a")
            await eventually(lambda: "/a" not in cache.nodes)

    with_client(main)


def test_a_chroot_is_no_part_of_the_paths() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/root/a/b": "1"})
        inside = Client(server.hosts + "/root")
        async with inside, TreeCache(inside, "/a") as cache:
            await inside.create("/a/c", b"2")
            await eventually(lambda: set(cache.nodes) == {"/a", "/a/b", "/a/c"})

    with_client(main)


def test_what_is_known_cannot_be_changed() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with TreeCache(zk, "/a") as cache:
            with pytest.raises(TypeError):
                cache.nodes["/a"] = None  # type: ignore[index]

    with_client(main)


def test_more_changes_than_may_wait_are_all_found_in_the_end() -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other, TreeCache(zk, "/a", limit=3) as cache:
            await other.create("/a")
            with server.fault(hold(), "getData", client=zk) as held:
                for number in range(20):
                    await other.create(f"/a/{number}", b"x")
                await other.delete("/a/3")
                held.release()
            await eventually(lambda: set(cache.nodes) == set(server.tree("/a")))

    with_client(main)


def test_a_session_that_ends_while_the_tree_is_read_is_begun_again() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {str(number): "x" for number in range(30)}})
        for op in ("getChildren", "getChildren2", "getData", "addWatch"):
            with server.fault(hold(), op, client=zk, nth=1) as held:
                cache = TreeCache(zk, "/a")
                entering = asyncio.ensure_future(cache.__aenter__())
                await eventually(lambda held=held: held.hits)
                server.expire(zk)
                await asyncio.wait_for(entering, 30)
            assert len(cache.nodes) == 31
            await cache.__aexit__(None, None, None)
        await asyncio.sleep(1)
        assert not leftovers(server, zk)

    with_client(main)
