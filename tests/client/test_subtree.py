"""Reading subtrees: the number of requests in flight, skipped nodes, and invalid names."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from zoolet.client import Client
from zoolet.client.aio.subtree import MAX_IN_FLIGHT, request_each, subtree
from zoolet.protocol.errors import MarshallingError, NoAuthError, NoNodeError


class Children:
    """A client that supports only ``children()``, and counts requests in flight.

    Args:
        tree: The names of the children of each node, or an error.
    """

    def __init__(self, tree: dict[str, Any]) -> None:
        self._tree = tree
        self._in_flight = self.most = 0

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children."""
        self._in_flight += 1
        self.most = max(self.most, self._in_flight)
        await asyncio.sleep(0)
        self._in_flight -= 1
        answer = self._tree.get(path, [])
        if isinstance(answer, Exception):
            raise answer
        return cast(list[str], answer)

    async def read(self, root: str) -> dict[str, list[str]]:
        """Return the result of a walk through a subtree."""
        return {path: names async for path, names in subtree(cast(Client, self), root)}


async def test_wide_level_is_read_with_bounded_requests() -> None:
    names = [f"n{number}" for number in range(3 * MAX_IN_FLIGHT)]
    children = Children({"/": names})
    assert await children.read("/") == {"/": names} | {f"/{name}": [] for name in names}
    assert children.most == MAX_IN_FLIGHT


async def test_missing_and_secret_nodes_are_skipped() -> None:
    tree = {"/a": ["gone", "secret", "b"], "/a/gone": NoNodeError(), "/a/secret": NoAuthError(), "/a/b": ["c"]}
    assert await Children(tree).read("/a") == {"/a": ["gone", "secret", "b"], "/a/b": ["c"], "/a/b/c": []}


@pytest.mark.parametrize("name", ["", "a/b", "..", "."])
async def test_invalid_child_name_from_server_stops_walk(name: str) -> None:
    with pytest.raises(MarshallingError, match="invalid child name"):
        await Children({"/": [name]}).read("/")


async def test_unexpected_error_stops_reading() -> None:
    with pytest.raises(NoAuthError):
        await request_each(Children({"/b": NoAuthError()}).children, ["/a", "/b"], NoNodeError)
