"""Finding the locks of a server in this process without a client, in time slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ..protocol.recipe_names import may_be_of_recipe
from ..protocol.records import Stat
from ..server.core.engine import Engine
from ..server.core.node import Children, Node
from .source import MAX_NAME, Pace

MAX_LOCK_CHILDREN: Final = 5_000
"""Maximum number of children of a lock. Larger nodes are left out, because contenders are sorted in one slice."""
MAX_NAMES: Final = 200_000
"""Maximum number of children of all locks together. A contender takes about 0.5 kB while locks are listed."""
MAX_LOCKS: Final = 10_000
"""Maximum number of nodes that are checked for locks."""
MAX_MIXED: Final = 1_000
"""Maximum number of children that are all checked, because a recipe may own only some children of a node."""
CHUNK: Final = 2_000
"""Number of children between two checks of the clock."""


def _may_be_shared(children: Children) -> bool:
    """Return whether a node with these children may be a lock or a similar recipe.

    The first children decide, or all children if they are few.
    """
    if len(children) <= MAX_MIXED and any(child.owner for child in children.nodes()):
        return True
    return any(map(may_be_of_recipe, islice(children, 3)))


def _inner(children: Children) -> Iterator[tuple[str, Node] | None]:
    """Yield the names and nodes of the children that have children, and None before each chunk."""
    names = list(children)  # a list of names, because the garbage collector would traverse tuples
    for start in range(0, len(names), CHUNK):
        yield None
        for name in names[start : start + CHUNK]:
            child = children.get(name)
            if isinstance(child, Node) and child.children:
                yield name, child


def _short(children: Children | None) -> list[str]:
    """Return the names of children without long names, which no recipe uses."""
    return [name for name in children or () if len(name) <= MAX_NAME]


class LocalReader:
    """Reads nodes for :func:`~zoolet.client.recipes._shared.shared_lines` directly from the engine.

    Args:
        engine: The engine.
        pace: The time slices.
        may_read: Function that returns whether the data of a node may be read.

    Attributes:
        left_out: Number of nodes that were left out because of a limit.
    """

    def __init__(self, engine: Engine, pace: Pace, may_read: Callable[[Node], bool]) -> None:
        self._engine = engine
        self._pace = pace
        self._may_read = may_read
        self._room = MAX_NAMES
        self.left_out = 0

    async def rest(self) -> None:
        """Pause if the time slice is over."""
        await self._pace.rest()

    async def lists(self, parents: list[str]) -> dict[str, list[str]]:
        """Return the names of the children of nodes. Deleted nodes are left out."""
        found = {}
        for path in parents:
            await self._pace.rest()
            if (node := self._engine.tree.get(path)) is not None:
                found[path] = _short(node.children)
        return found

    async def listing(self) -> dict[str, list[str]]:
        """Return the names of the children of all nodes that may be locks or similar recipes.

        These nodes have an ephemeral child or children with the names of a recipe. Checking all nodes of a large tree
        in detail would take seconds.
        """
        listing: dict[str, list[str]] = {}
        pending: list[tuple[str, Iterator[tuple[str, Node] | None]]] = [("", iter([("", self._engine.tree.root)]))]
        while pending:
            prefix, children = pending[-1]
            for each in children:
                await self._pace.rest()
                if each is None or not each[1].children:
                    continue
                path, below = prefix + each[0], each[1].children
                if len(path) > MAX_NAME:  # the path of each node below would contain this path
                    self.left_out += 1
                    continue
                if _may_be_shared(below):
                    if len(below) > min(MAX_LOCK_CHILDREN, self._room) or len(listing) == MAX_LOCKS:
                        self.left_out += 1
                    else:
                        self._room -= len(below)
                        listing[path or "/"] = _short(below)
                pending.append((f"{path}/", _inner(below)))
                break
            else:
                pending.pop()
        return listing

    async def nodes(self, nodes: list[str]) -> list[tuple[str, bytes, Stat]]:
        """Return path, data and Stat of nodes. Deleted nodes are left out, and unreadable data is empty."""
        read = []
        for path in nodes:
            await self._pace.rest()
            if (node := self._engine.tree.get(path)) is not None:
                data = (node.data or b"") if self._may_read(node) else b""
                read.append((path, data, Stat.decode(node.stat())))
        return read
