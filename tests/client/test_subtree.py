"""Reading subtrees: how many requests are in flight, what is passed over, and names that no node can have."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from zoolet.client import Client
from zoolet.client.aio.subtree import MAX_IN_FLIGHT, ask, subtree
from zoolet.protocol.errors import MarshallingError, NoAuthError, NoNodeError


class Children:
    """A client that knows only children, and counts requests in flight.

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
        """Return what a walk through a subtree finds."""
        return {path: names async for path, names in subtree(cast(Client, self), root)}


async def test_a_wide_level_is_read_with_a_bound_on_what_is_in_flight() -> None:
    names = [f"n{number}" for number in range(3 * MAX_IN_FLIGHT)]
    children = Children({"/": names})
    assert await children.read("/") == {"/": names} | {f"/{name}": [] for name in names}
    assert children.most == MAX_IN_FLIGHT


async def test_nodes_that_are_gone_or_secret_are_passed_over() -> None:
    tree = {"/a": ["gone", "secret", "b"], "/a/gone": NoNodeError(), "/a/secret": NoAuthError(), "/a/b": ["c"]}
    assert await Children(tree).read("/a") == {"/a": ["gone", "secret", "b"], "/a/b": ["c"], "/a/b/c": []}


@pytest.mark.parametrize("name", ["", "a/b", "..", "."])
async def test_a_server_that_names_a_child_as_no_node_can_be_named_ends_the_walk(name: str) -> None:
    with pytest.raises(MarshallingError, match="no name of a node"):
        await Children({"/": [name]}).read("/")


async def test_an_error_that_is_not_expected_ends_the_reading() -> None:
    with pytest.raises(NoAuthError):
        await ask(Children({"/b": NoAuthError()}).children, ["/a", "/b"], NoNodeError)
