"""A node's children and their values, kept up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from zoolet.client.recipes.tree_cache import TreeCache
from zoolet.client.serializers import UndecodableError
from zoolet.protocol import paths
from zoolet.protocol.records import Stat

T = TypeVar("T")


class ChildrenCache(TreeCache):
    """The values of a node's children by name: ``async with ChildrenCache(zk, "/workers") as cache: cache.values``.

    Znodes, guarantees and limits: those of TreeCache; what is below the children is read too, and not shown.
    """

    @property
    def values(self) -> Mapping[str, Any]:
        """The children's values by name."""
        return {name: cached.value for name, cached in self._by_name(self.nodes)}

    @property
    def stats(self) -> Mapping[str, Stat]:
        """The children's Stats by name."""
        return {name: cached.stat for name, cached in self._by_name(self.nodes)}

    @property
    def errors_by_name(self) -> Mapping[str, UndecodableError]:
        """Why the values of the other children cannot be read, by name."""
        return dict(self._by_name(self.errors))

    def _by_name(self, by_path: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        for path, item in by_path.items():
            if path != self._path and paths.parent(path) == self._path:
                yield paths.name(path), item
