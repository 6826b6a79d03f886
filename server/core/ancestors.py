"""An index that finds the ancestors of a path among many stored paths, in time linear in the length of the path.

Looking up each ancestor by its own text would take time quadratic in the depth, and a path in a frame may have half a
million levels. Instead, each path is stored under a rolling hash, ``hash((hash of the parent, name))``. One pass over
the parts of a path computes the hashes of all its ancestors. Candidates are compared as text, so hash collisions are
harmless.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Generic, TypeVar

V = TypeVar("V")
_ROOT = 0


class AncestorIndex(Generic[V]):
    """A mapping from paths to values, with a look-up of all ancestors of a path.

    Only absolute paths can be ancestors. Any other text can be stored, but only :meth:`get` finds it.
    """

    __slots__ = ("_by_hash", "_values")

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._by_hash: dict[int, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, path: str) -> bool:
        return path in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, path: str) -> V | None:
        """Return the value of exactly this path, or None."""
        return self._values.get(path)

    def put(self, path: str, value: V) -> None:
        """Set the value of a path."""
        if path not in self._values and path[:1] == "/":
            self._by_hash.setdefault(_hashes(path)[-1], {})[path] = None
        self._values[path] = value

    def remove(self, path: str) -> None:
        """Remove a path.

        Raises:
            KeyError: The path is not stored.
        """
        del self._values[path]
        if path[:1] == "/":
            key = _hashes(path)[-1]
            paths = self._by_hash[key]
            del paths[path]
            if not paths:
                del self._by_hash[key]

    def search_ancestors(self, path: str) -> Iterator[tuple[str, V]]:
        """Yield the stored paths among *path* and its ancestors with their values, from the root down."""
        by_hash = self._by_hash
        for key in _hashes(path):
            for candidate in by_hash.get(key, ()):
                if candidate == path or candidate == "/" or path.startswith(candidate + "/"):
                    yield candidate, self._values[candidate]


def _hashes(path: str) -> list[int]:
    """Return the hashes of an absolute path's ancestors, from the root down, and the hash of the path itself."""
    names = path[1:].split("/") if path != "/" else ()
    return list(accumulate(names, lambda key, name: hash((key, name)), initial=_ROOT))
