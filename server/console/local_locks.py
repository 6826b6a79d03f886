"""The locks of the server that runs in this process, found without a client, in slices."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, cast

from zoolet.client.recipes.overview import Overview
from zoolet.protocol.errors import NoNodeError
from zoolet.protocol.records import Stat
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Children, Node

SLICE: Final = 0.001
"""Seconds of work between two pauses."""
MAX_CONTENDERS: Final = 20_000
"""Children of a node from which on it is left out of the locks."""
MAX_LOCKS: Final = 5_000
"""Nodes that are looked at for locks."""
MAX_MIXED: Final = 1_000
"""Children of a node up to which each of them is looked at, because recipes may have some of them only."""
RECIPE_NAMES: Final = re.compile(
    r"-?\d{9,10}$|^[0-9a-f]{32}$|[0-9a-f]{8}-[0-9a-f]{4}-|^(entries|taken|leases|locks|lock)$|__lock__$"
)
"""Names that recipes give: numbered ones, ids, and those of their folders."""


class Pace:
    """Works in slices; a pause comes before each one of all."""

    def __init__(self, turn: asyncio.Lock) -> None:
        self._turn = turn
        self._until = perf_counter() + SLICE

    async def rest(self) -> bool:
        """Pause if the slice is over; return whether it was."""
        if perf_counter() < self._until:
            return False
        async with self._turn:
            await asyncio.sleep(SLICE)
        self._until = perf_counter() + SLICE
        return True


def _may_be_shared(children: Children) -> bool:
    """Return whether children may be those of a lock or the like, by the first ones, or by all if they are few."""
    if len(children) <= MAX_MIXED:
        return any(child.owner for child in children.values()) or any(map(RECIPE_NAMES.search, islice(children, 3)))
    return any(map(RECIPE_NAMES.search, islice(children, 3)))


class LocalOverview(Overview):
    """The shared lines of the server itself."""

    async def _listing(self) -> dict[str, list[str]]:
        return await cast(LockReader, self._client).listing()


class LockReader:
    """Reads nodes for :class:`~zoolet.client.recipes.overview.Overview` where a client would ask a server."""

    def __init__(self, engine: Engine, pace: Pace, may_read: Callable[[Node], bool]) -> None:
        self._engine = engine
        self._pace = pace
        self._may_read = may_read
        self.left_out = 0

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children."""
        await self._pace.rest()
        node = self._engine.tree.find(path)
        return list(node.children) if node.children else []

    async def listing(self) -> dict[str, list[str]]:
        """Return the names of the children of the nodes that may be locks or the like: with an ephemeral child, or with
        names of recipes. All nodes of a large tree would take seconds to look at.
        """
        listing: dict[str, list[str]] = {}
        pending: list[tuple[str, Iterator[tuple[str, Node]]]] = [("", iter([("", self._engine.tree.root)]))]
        while pending:
            prefix, children = pending[-1]
            for name, node in children:
                await self._pace.rest()
                if not node.children:
                    continue
                path = prefix + name
                if _may_be_shared(node.children):
                    if len(node.children) > MAX_CONTENDERS or len(listing) == MAX_LOCKS:
                        self.left_out += 1
                    else:
                        listing[path or "/"] = list(node.children)
                pending.append((f"{path}/", iter([each for each in node.children.items() if each[1].children])))
                break
            else:
                pending.pop()
        return listing

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Return data and Stat of a node; no data if it may not be read.

        Raises:
            NoNodeError: It is gone.
        """
        await self._pace.rest()
        node = self._engine.tree.get(path)
        if node is None:
            raise NoNodeError(path)
        return (node.data or b"") if self._may_read(node) else b"", Stat.decode(node.stat())
