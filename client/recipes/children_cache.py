"""A node's children and their values, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoolet.client.recipes.tree_cache import TreeCache
from zoolet.protocol import paths


class ChildrenCache(TreeCache):
    """The values of a node's children by name: ``async with ChildrenCache(zk, "/workers") as cache: cache.values``.

    Znodes, guarantees and limits: those of TreeCache; what is below the children is read too, and not shown.
    """

    @property
    def values(self) -> Mapping[str, Any]:
        """The children's values by name."""
        return {
            path.rpartition("/")[2]: cached.value
            for path, cached in self.nodes.items()
            if path != self._path and paths.parent(path) == self._path
        }
