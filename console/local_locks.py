"""The search for locks of a server in this process, directly in its tree and in time slices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from ..protocol.recipe_names import may_be_recipe_name
from ..protocol.records import Stat
from ..server.core.engine import Engine
from ..server.core.node import Children, Node
from .source import MAX_NAME, Pace

MAX_LOCK_CHILDREN: Final = 5_000
"""Maximum number of children of a lock. Larger nodes are omitted, because contenders are sorted in one time slice."""
MAX_TOTAL_CHILDREN: Final = 200_000
"""Maximum number of children of all locks together. Each contender takes about 0.5 kB until the locks are listed."""
MAX_LOCKS: Final = 10_000
"""Maximum number of nodes that are checked for locks."""
MAX_CHECKED_CHILDREN: Final = 1_000
"""Maximum number of children that are all checked, because only some may belong to a recipe."""
NAMES_PER_CHUNK: Final = 2_000
"""Number of children between two checks of the clock."""


def _may_be_recipe(children: Children) -> bool:
    """Return whether a node with these children may be a lock or a similar recipe.

    All children are checked if they are few. Otherwise only the first three are checked.
    """
    if len(children) <= MAX_CHECKED_CHILDREN and any(child.owner for child in children.nodes()):
        return True
    return any(map(may_be_recipe_name, islice(children, 3)))


def _iterate_parents(children: Children) -> Iterator[tuple[str, Node] | None]:
    """Yield the names and nodes of all children that have children. None is yielded before each chunk of names."""
    names = list(children)  # a list of names, because the garbage collector would traverse tuples
    for start in range(0, len(names), NAMES_PER_CHUNK):
        yield None
        for name in names[start : start + NAMES_PER_CHUNK]:
            child = children.get(name)
            if isinstance(child, Node) and child.children:
                yield name, child


def _short_names(children: Children | None) -> list[str]:
    """Return the names of children, except long names, which no recipe uses."""
    return [name for name in children or () if len(name) <= MAX_NAME]


class LocalLockReader:
    """A reader of nodes for :func:`~zoolet.client.recipes._shared.read_shared_recipes`, directly from the engine.

    Args:
        engine: The engine.
        pace: The time slices.
        may_read: Function that returns whether the data of a node may be read.

    Attributes:
        left_out: Number of nodes that were omitted because of a limit.
    """

    def __init__(self, engine: Engine, pace: Pace, may_read: Callable[[Node], bool]) -> None:
        self._engine = engine
        self._pace = pace
        self._may_read = may_read
        self._children_left = MAX_TOTAL_CHILDREN
        self.left_out = 0

    async def rest(self) -> None:
        """Pause if the time slice is over."""
        await self._pace.rest()

    async def lists(self, parents: list[str]) -> dict[str, list[str]]:
        """Return the names of the children of nodes, by path. Deleted nodes are omitted."""
        found = {}
        for path in parents:
            await self._pace.rest()
            if (node := self._engine.tree.get(path)) is not None:
                found[path] = _short_names(node.children)
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
                if _may_be_recipe(below):
                    if len(below) > min(MAX_LOCK_CHILDREN, self._children_left) or len(listing) == MAX_LOCKS:
                        self.left_out += 1
                    else:
                        self._children_left -= len(below)
                        listing[path or "/"] = _short_names(below)
                pending.append((f"{path}/", _iterate_parents(below)))
                break
            else:
                pending.pop()
        return listing

    async def nodes(self, nodes: list[str]) -> list[tuple[str, bytes, Stat]]:
        """Return the path, data and Stat of nodes. Deleted nodes are omitted, and unreadable data is empty."""
        read = []
        for path in nodes:
            await self._pace.rest()
            if (node := self._engine.tree.get(path)) is not None:
                data = (node.data or b"") if self._may_read(node) else b""
                read.append((path, data, Stat.decode(node.stat())))
        return read
