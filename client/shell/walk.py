"""Walking through a subtree, many requests at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import MarshallingError, NoAuthError, NoNodeError, ZooKeeperError

AT_ONCE: Final = 500
"""Nodes that are asked for at the same time."""


async def children_of(client: ClientSurface, parents: list[str]) -> list[list[str] | ZooKeeperError]:
    """Return the sorted paths of the children of each node, or why they cannot be listed."""
    answers = await asyncio.gather(*(client.children(path) for path in parents), return_exceptions=True)
    results: list[list[str] | ZooKeeperError] = []
    for parent, answer in zip(parents, answers, strict=True):
        if isinstance(answer, NoNodeError | NoAuthError):
            results.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            results.append([_joined(parent, name) for name in sorted(answer)])
    return results


def _joined(parent: str, name: str) -> str:
    """Return the path of a child.

    Raises:
        MarshallingError: No node can have that name; such a server could name children without end.
    """
    if "/" in name or not paths.is_valid_name(name):
        raise MarshallingError(parent, f"the server names a child {name!r}, which is no name of a node")
    return paths.join(parent, name)


async def walk(client: ClientSurface, root: str, *, skips_forbidden: bool = True) -> AsyncIterator[list[str]]:
    """Yield the paths of a subtree in batches: a node, all its children, then what is below each of them in turn.

    Args:
        client: A client.
        root: Where to begin.
        skips_forbidden: Whether nodes whose children may not be listed are passed over; otherwise the first ends it.

    Raises:
        NoNodeError: The root does not exist.
        NoAuthError: The children of a node may not be listed.
    """
    (first,) = await children_of(client, [root])
    if isinstance(first, ZooKeeperError):
        raise first
    yield [root, *first]
    # A stack of lists of siblings, the last of which is continued; each list has the children of some of them already.
    pending: list[_Siblings] = [_Siblings(first)]
    while pending:
        siblings = pending[-1]
        if siblings.at == len(siblings.paths):
            pending.pop()
            continue
        children = await siblings.next(client)
        if isinstance(children, NoAuthError) and not skips_forbidden:
            raise children
        if isinstance(children, list) and children:
            yield children
            pending.append(_Siblings(children))


class _Siblings:
    """The children of one node, and the children of those that come next."""

    __slots__ = ("_known", "at", "paths")

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.at = 0
        self._known: list[list[str] | ZooKeeperError] = []

    async def next(self, client: ClientSurface) -> list[str] | ZooKeeperError:
        """Return the children of the next one."""
        place = self.at % AT_ONCE
        if place == 0:
            self._known = await children_of(client, self.paths[self.at : self.at + AT_ONCE])
        self.at += 1
        return self._known[place]
