"""A ChildrenCache knows the children of a node by name."""

from __future__ import annotations

from support.simulation import eventually, with_client

from zoolet.client import Client, serializers
from zoolet.client.recipes import ChildrenCache
from zoolet.server import Server


def test_children_are_known_by_name() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"x": "1", "y": {"deep": "2"}}})
        async with ChildrenCache(zk, "/a") as cache:
            assert cache.values == {"x": b"1", "y": b""}
            await zk.delete("/a/x")
            await eventually(lambda: set(cache.values) == {"y"})

    with_client(main)


def test_a_value_that_the_codec_cannot_read_is_left_out_and_comes_when_it_can() -> None:
    async def main(server: Server, zk: Client) -> None:
        server.populate({"/a": {"good": "1", "bad": "{"}})
        async with ChildrenCache(zk.with_serializer(serializers.json), "/a") as cache:
            assert cache.values == {"good": 1}
            await zk.set("/a/bad", b"2")
            await eventually(lambda: cache.values == {"good": 1, "bad": 2})

    with_client(main)
