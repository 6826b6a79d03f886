"""A walk through a subtree, with many concurrent requests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from ...client.aio.subtree import MAX_IN_FLIGHT, child_names
from ...client.client import Client
from ...protocol import paths
from ...protocol.errors import NoAuthError, ZooKeeperError
from .errors import ShellCommandError

MAX_NAMED: Final = 20
"""Maximum number of unreadable nodes in an error message."""


async def list_children(client: Client, parents: list[str]) -> list[list[str] | ZooKeeperError]:
    """Return the sorted paths of the children of each node, or the error if they cannot be listed."""
    return [
        [paths.join(parent, name) for name in sorted(names)] if isinstance(names, list) else names
        for parent, names in zip(parents, await child_names(client, parents), strict=True)
    ]


async def walk(client: Client, root: str, forbidden: set[str] | None = None) -> AsyncIterator[list[str]]:
    """Yield the paths of a subtree in batches: a node and its children, then the subtree of each child in turn.

    Args:
        client: A client.
        root: Root of the subtree.
        forbidden: Receives the nodes whose children may not be listed; None to raise an error instead.

    Raises:
        NoNodeError: The root does not exist.
        NoAuthError: The children of a node may not be listed, and *forbidden* is None.
    """
    (first,) = await list_children(client, [root])
    if isinstance(first, ZooKeeperError):
        raise first
    yield [root, *first]
    # A stack of sibling lists, each with prefetched children. The walk continues with the list on top.
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
    """A list of siblings, and the prefetched children of the next siblings."""

    __slots__ = ("_known", "at", "paths")

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self.at = 0
        self._known: list[list[str] | ZooKeeperError] = []

    async def next(self, client: Client) -> list[str] | ZooKeeperError:
        """Return the children of the next sibling, or the error if they cannot be listed."""
        place = self.at % MAX_IN_FLIGHT
        if place == 0:
            self._known = await list_children(client, self.paths[self.at : self.at + MAX_IN_FLIGHT])
        self.at += 1
        return self._known[place]


def raise_if_forbidden(forbidden: set[str]) -> None:
    """Raise an error if some nodes could not be read.

    Raises:
        ShellCommandError: *forbidden* is not empty. The message lists the first nodes.
    """
    if forbidden:
        first = sorted(forbidden)[:MAX_NAMED]
        more = f"\nand {len(forbidden) - MAX_NAMED:,} more" if len(forbidden) > MAX_NAMED else ""
        raise ShellCommandError("\n".join(f"Insufficient permission : {path}" for path in first) + more)
