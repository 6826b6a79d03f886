"""What the three caches have in common: bad arguments, cancellation, absences, lost replies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.cancellation import cancel_everywhere
from support.leftovers import leftovers
from support.simulation import client_of, with_client

from zoolet.client import Client, ClosedError, serializers
from zoolet.client.recipes import ChildrenCache, NodeCache, TreeCache
from zoolet.server import Server
from zoolet.server.testing import drop_request, lose_reply

EVERY = [NodeCache, ChildrenCache, TreeCache]


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("path", ["", "relative", "/a/"])
def test_an_illegal_path_is_refused_at_once(kind: Any, path: str) -> None:
    with pytest.raises(ValueError):
        kind(Client("127.0.0.1:1"), path)


@pytest.mark.parametrize("kind", EVERY)
def test_a_closed_client_cannot_follow_anything(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.aclose()
        with pytest.raises(ClosedError):
            async with kind(zk, "/a"):
                pass

    with_client(main)


@pytest.mark.parametrize("kind", EVERY)
def test_cancelled_it_leaves_nothing(kind: Any) -> None:
    async def enter(zk: Client) -> None:
        async with kind(zk, "/a"):
            await asyncio.sleep(1)

    cancel_everywhere(enter, nodes={"/a": {"b": "1", "c": {"d": "2"}}})


@pytest.mark.parametrize("how", ["drop", "expire"])
def test_changes_by_others_during_an_absence_are_found(how: str) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other:
            server.populate({"/a": {"gone": "1", "changed": "1", "again": "1", "same": "1"}})
            async with (
                NodeCache(zk, "/a/changed") as node,
                TreeCache(zk, "/a") as tree,
                ChildrenCache(zk, "/a") as names,
            ):
                server.pause(zk)
                await other.delete("/a/gone")
                await other.set("/a/changed", b"2")
                await other.delete("/a/again")
                await other.create("/a/again", b"2")
                await other.create("/a/new", b"2")
                await other.create("/a/new/deep", b"3")
                await asyncio.sleep(1)
                if how == "expire":
                    server.expire(zk)
                else:
                    server.resume(zk)
                    server.drop(zk)
                await asyncio.sleep(20)
                assert node.value == b"2"
                known = {path: cached.value for path, cached in tree.nodes.items()}
                assert known == {path: view.data for path, view in server.tree("/a").items()}
                assert names.values == {"changed": b"2", "again": b"2", "new": b"2", "same": b"1"}
            assert not leftovers(server, zk)

    with_client(main, timeout=30.0)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(NodeCache), TreeCache],
)
def test_a_value_that_cannot_be_read_does_not_end_the_following(kind: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        await zk.create("/a", b"1")
        async with kind(zk.with_serializer(serializers.json), "/a") as cache:
            await zk.set("/a", b"{")
            await asyncio.sleep(1)
            await zk.set("/a", b"3")
            await asyncio.sleep(1)
            assert (cache.value if kind is NodeCache else cache.nodes["/a"].value) == 3

    with_client(main)


@pytest.mark.parametrize("action", [lose_reply, drop_request])
@pytest.mark.parametrize("kind", EVERY)
def test_lost_replies_make_no_difference(kind: Any, action: Any) -> None:
    async def main(server: Server, zk: Client) -> None:
        async with client_of(server, seed=6) as other:
            await other.create("/a", b"1")
            with server.fault(action(), client=zk, probability=0.3, times=10, strict=True):
                async with kind(zk, "/a") as cache:
                    for number in range(20):
                        await other.set("/a", b"%d" % number)
                        await asyncio.sleep(0.5)
                    await asyncio.sleep(10)
                    assert (cache.value if kind is NodeCache else cache.nodes["/a"].value) == b"19"
            await asyncio.sleep(10)
            assert not leftovers(server, zk)

    with_client(main)
