"""Find, among many paths, those at and above another one, in time linear in its length.

Looking each ancestor up by its own text would cost the square of the depth, and a frame has room for half a million
levels. So each path is filed under a hash that is carried on from part to part, ``hash((hash of the parent, name))``:
one pass over the parts of a path gives the hashes of all its ancestors. What is found is compared as text, so that a
collision of hashes changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Generic, TypeVar

V = TypeVar("V")
_ROOT = 0


class AncestorIndex(Generic[V]):
    """Values by path, with a look-up of all ancestors of a path.

    Only absolute paths can be ancestors of a node; any other text can be stored and is found by :meth:`get` alone.
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
        """Store the value of a path, in place of the one it had."""
        if path not in self._values and path[:1] == "/":
            self._by_hash.setdefault(_hashes(path)[-1], {})[path] = None
        self._values[path] = value

    def remove(self, path: str) -> None:
        """Remove a path.

        Raises:
            KeyError: It is not here.
        """
        del self._values[path]
        if path[:1] == "/":
            key = _hashes(path)[-1]
            paths = self._by_hash[key]
            del paths[path]
            if not paths:
                del self._by_hash[key]

    def along(self, path: str) -> Iterator[tuple[str, V]]:
        """Yield the stored paths that are *path* or above it, with their values, the highest first."""
        by_hash = self._by_hash
        for key in _hashes(path):
            for candidate in by_hash.get(key, ()):
                if candidate == path or candidate == "/" or path.startswith(candidate + "/"):
                    yield candidate, self._values[candidate]


def _hashes(path: str) -> list[int]:
    """Return the hash of each ancestor of an absolute path, from the root down to the path itself."""
    names = path[1:].split("/") if path != "/" else ()
    return list(accumulate(names, lambda key, name: hash((key, name)), initial=_ROOT))
