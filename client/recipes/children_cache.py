"""A node's children and their values, kept up to date."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from ...protocol import paths
from ...protocol.records import Stat
from ..serializers import UndecodableError, V
from .tree_cache import TreeCache

T = TypeVar("T")


class ChildrenCache(TreeCache[V]):
    """The values of a node's children by name: ``async with ChildrenCache(zk, "/workers") as cache: cache.values``.

    Znodes, guarantees and limits: as for TreeCache. Deeper descendants are also read, but not included.

    Args:
        client: Client that reads and watches the children.
        path: Path of the parent node, which need not exist.
        limit: Maximum number of changes that wait to be processed. Beyond that, everything is read again.
    """

    @property
    def values(self) -> Mapping[str, V]:
        """Values of the children, by name."""
        return {name: cached.value for name, cached in self._children_by_name(self.nodes)}

    @property
    def stats(self) -> Mapping[str, Stat]:
        """Stats of the children, by name."""
        return {name: cached.stat for name, cached in self._children_by_name(self.nodes)}

    @property
    def errors_by_name(self) -> Mapping[str, UndecodableError]:
        """Errors of the children whose values cannot be read, by name."""
        return dict(self._children_by_name(self.errors))

    def _children_by_name(self, by_path: Mapping[str, T]) -> Iterator[tuple[str, T]]:
        for path, item in by_path.items():
            if path != self._path and paths.parent(path) == self._path:
                yield paths.name(path), item
