"""Reading subtrees: the number of requests in flight, skipped nodes, and invalid names."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from zoolet.client import Client
from zoolet.client.aio.subtree import MAX_IN_FLIGHT, request_each, walk_subtree
from zoolet.protocol.errors import MarshallingError, NoAuthError, NoNodeError


class ChildrenClient:
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
        return {path: names async for path, names in walk_subtree(cast(Client, self), root)}


async def test_children_of_wide_level_are_read_in_bounded_batches() -> None:
    names = [f"n{number}" for number in range(3 * MAX_IN_FLIGHT)]
    children = ChildrenClient({"/": names})
    assert await children.read("/") == {"/": names} | {f"/{name}": [] for name in names}
    assert children.most == MAX_IN_FLIGHT


async def test_subtree_walk_skips_missing_and_unreadable_nodes() -> None:
    tree = {"/a": ["gone", "secret", "b"], "/a/gone": NoNodeError(), "/a/secret": NoAuthError(), "/a/b": ["c"]}
    assert await ChildrenClient(tree).read("/a") == {"/a": ["gone", "secret", "b"], "/a/b": ["c"], "/a/b/c": []}


@pytest.mark.parametrize("name", ["", "a/b", "..", "."])
async def test_invalid_child_name_from_server_stops_subtree_walk(name: str) -> None:
    with pytest.raises(MarshallingError, match="invalid child name"):
        await ChildrenClient({"/": [name]}).read("/")


async def test_unexpected_error_of_one_children_request_is_raised() -> None:
    with pytest.raises(NoAuthError):
        await request_each(ChildrenClient({"/b": NoAuthError()}).children, ["/a", "/b"], NoNodeError)
