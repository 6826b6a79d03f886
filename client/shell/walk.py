"""Walking through a subtree, many requests at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from zoolet.client.aio.client import Client
from zoolet.client.aio.subtree import MAX_IN_FLIGHT, names_below
from zoolet.client.shell.errors import CommandError
from zoolet.protocol import paths
from zoolet.protocol.errors import NoAuthError, ZooKeeperError

NAMED: Final = 20
"""Nodes that could not be read and are named."""


async def children_of(client: Client, parents: list[str]) -> list[list[str] | ZooKeeperError]:
    """Return the sorted paths of the children of each node, or why they cannot be listed."""
    return [
        [paths.join(parent, name) for name in sorted(names)] if isinstance(names, list) else names
        for parent, names in zip(parents, await names_below(client, parents), strict=True)
    ]


async def walk(client: Client, root: str, forbidden: set[str] | None = None) -> AsyncIterator[list[str]]:
    """Yield the paths of a subtree in batches: a node, all its children, then what is below each of them in turn.

    Args:
        client: A client.
        root: Where to begin.
        forbidden: Nodes whose children may not be listed are passed over and added to this; without it the first ends
            the walk.

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
        if isinstance(children, NoAuthError):
            if forbidden is None:
                raise children
            forbidden.add(siblings.paths[siblings.at - 1])
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

    async def next(self, client: Client) -> list[str] | ZooKeeperError:
        """Return the children of the next one."""
        place = self.at % MAX_IN_FLIGHT
        if place == 0:
            self._known = await children_of(client, self.paths[self.at : self.at + MAX_IN_FLIGHT])
        self.at += 1
        return self._known[place]


def report(forbidden: set[str]) -> None:
    """Raise an error that names nodes that could not be read, if there are any.

    Raises:
        CommandError: There are.
    """
    if forbidden:
        first = sorted(forbidden)[:NAMED]
        more = f"\nand {len(forbidden) - NAMED:,} more" if len(forbidden) > NAMED else ""
        raise CommandError("\n".join(f"Insufficient permission : {path}" for path in first) + more)
