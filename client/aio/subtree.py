"""Functions that read many nodes, with a limit on the requests in flight, and that walk subtrees from the top.

Recipes, the shell and dumps use these functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

from ...protocol import paths
from ...protocol.errors import MarshallingError, NoAuthError, NoNodeError, ZooKeeperError
from .operations import BaseClient

MAX_IN_FLIGHT: Final = 500
"""Maximum number of nodes that are read or written at the same time."""
P = TypeVar("P")
T = TypeVar("T")


async def gather_answers(calls: Iterable[Awaitable[T]], *expected: type[ZooKeeperError]) -> list[T | ZooKeeperError]:
    """Wait for the answers to requests. Expected errors are returned in place of an answer.

    Raises:
        BaseException: A request failed with any other error. It is raised after all requests have completed.
    """
    results = await asyncio.gather(*calls, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, expected):
            raise result
    return results  # type: ignore[return-value] # unexpected errors were raised above


async def request_each(
    request: Callable[[P], Awaitable[T]], arguments: Iterable[P], *expected: type[ZooKeeperError]
) -> list[T | ZooKeeperError]:
    """Make the same request for each of many arguments, and return the answers in the same order.

    Args:
        request: Function that makes one request.
        arguments: Arguments of the requests, such as paths.
        expected: Error classes that are returned in place of an answer.

    Raises:
        BaseException: A request failed with any other error. Requests of the same batch have completed; later requests
            are not made.
    """
    pending = list(arguments)
    received: list[T | ZooKeeperError] = []
    for start in range(0, len(pending), MAX_IN_FLIGHT):
        received += await gather_answers(map(request, pending[start : start + MAX_IN_FLIGHT]), *expected)
    return received


async def child_names(client: BaseClient[Any], parents: list[str]) -> list[list[str] | ZooKeeperError]:
    """Return the names of the children of each node, or the error for a node that cannot be listed.

    Raises:
        MarshallingError: The server returned an invalid child name. Such a server could cause an endless walk.
    """
    lists = await request_each(client.children, parents, NoNodeError, NoAuthError)
    for parent, names in zip(parents, lists, strict=True):
        for name in names if isinstance(names, list) else ():
            if "/" in name or not paths.is_valid_name(name):
                raise MarshallingError(parent, f"the server returned an invalid child name: {name!r}")
    return lists


async def walk_subtree(
    client: BaseClient[Any], root: str, is_leaf: Callable[[str], bool] = lambda name: False
) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the nodes from a root down with the names of their children, parents first.

    Nodes that no longer exist, or whose children the client may not list, are skipped.

    Args:
        client: Client that reads the nodes.
        root: Path of the first node.
        is_leaf: Function that returns whether a name shows that the node has no children. Such nodes are not read.
    """
    pending = [root]
    while pending:
        parents, pending[-MAX_IN_FLIGHT:] = pending[-MAX_IN_FLIGHT:], []
        for parent, names in zip(parents, await child_names(client, parents), strict=True):
            if isinstance(names, list):
                pending += [paths.join(parent, name) for name in names if not is_leaf(name)]
                yield parent, names
