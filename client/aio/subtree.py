"""Reading many nodes: requests about all of them with a bound on those in flight, and subtrees from the top.

Recipes, the shell and dumps read with these.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final, TypeVar

from zoolet.client.aio.client import Client
from zoolet.protocol import paths
from zoolet.protocol.errors import MarshallingError, NoAuthError, NoNodeError, ZooKeeperError

MAX_IN_FLIGHT: Final = 500
"""Nodes that are read or written at the same time."""
P = TypeVar("P")
T = TypeVar("T")


async def answers(calls: Iterable[Awaitable[T]], *expected: type[ZooKeeperError]) -> list[T | ZooKeeperError]:
    """Wait for the answers to requests; expected errors are returned in their places.

    Raises:
        BaseException: The first other error, after all have ended.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, expected):
            raise result
    return results  # type: ignore[return-value] # an error that is not expected was raised


async def ask(
    request: Callable[[P], Awaitable[T]], about: Iterable[P], *expected: type[ZooKeeperError]
) -> list[T | ZooKeeperError]:
    """Make a request about each of many things; return the answers in the same order.

    Args:
        request: Makes one.
        about: Its argument for each.
        expected: Errors that are returned in the place of an answer.

    Raises:
        BaseException: The first other error; requests made together with it have ended, those after it are not made.
    """
    things = list(about)
    received: list[T | ZooKeeperError] = []
    for start in range(0, len(things), MAX_IN_FLIGHT):
        received += await answers(map(request, things[start : start + MAX_IN_FLIGHT]), *expected)
    return received


async def names_below(client: Client, parents: list[str]) -> list[list[str] | ZooKeeperError]:
    """Return the names of the children of each node, or why they cannot be listed.

    Raises:
        MarshallingError: The server names a child as no node can be; such a server could go on without end.
    """
    lists = await ask(client.children, parents, NoNodeError, NoAuthError)
    for parent, names in zip(parents, lists, strict=True):
        for name in names if isinstance(names, list) else ():
            if "/" in name or not paths.is_valid_name(name):
                raise MarshallingError(parent, f"the server names a child {name!r}, which is no name of a node")
    return lists


async def subtree(client: Client, root: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the nodes from a root down with the names of their children, parents first.

    Nodes that are gone, or whose children may not be listed, are passed over.
    """
    pending = [root]
    while pending:
        parents, pending[-MAX_IN_FLIGHT:] = pending[-MAX_IN_FLIGHT:], []
        for parent, names in zip(parents, await names_below(client, parents), strict=True):
            if isinstance(names, list):
                pending += [paths.join(parent, name) for name in names]
                yield parent, names
