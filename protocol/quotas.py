"""The text of quotas, which limit the number of nodes and bytes in a subtree.

A quota on ``/a/b`` is the pair of ordinary nodes ``/zookeeper/quota/a/b/zookeeper_limits`` and ``.../zookeeper_stats``.
The first contains the limits, and the second the current amounts, both as text::

    count=3,bytes=800=;byteHardLimit=1000;countHardLimit=5

``count`` and ``bytes`` are soft limits. A missing number, or -1, means no limit.

Source: StatsTrack, Quotas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from .hexadecimal import to_signed_64

LIMITS: Final = "/zookeeper_limits"
STATS: Final = "/zookeeper_stats"
MAX_TEXT: Final = 256
"""Maximum size of a limits or stats node in bytes. The longest text with all four numbers has 117 bytes."""


class Amount(NamedTuple):
    """The numbers of a limits or stats node. -1 means no number."""

    nodes: int = -1
    size: int = -1
    others: tuple[tuple[str, int], ...] = ()
    """All numbers except ``count`` and ``bytes``, sorted by key. They are preserved when a stats node is updated."""

    @property
    def count_hard(self) -> int:
        """The hard limit of the number of nodes; -1 for no limit."""
        return self._other("countHardLimit")

    @property
    def size_hard(self) -> int:
        """The hard limit of the number of bytes; -1 for no limit."""
        return self._other("byteHardLimit")

    def _other(self, key: str) -> int:
        # A loop instead of a dictionary, because each write below a quota calls this method.
        for name, number in self.others:
            if name == key:
                return number
        return -1

    def numbers(self) -> dict[str, int]:
        """Return all numbers by their keys in the text."""
        return {"count": self.nodes, "bytes": self.size, **dict(self.others)}

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> Amount:
        """Return the amount with these numbers."""
        others = tuple(sorted((key, number) for key, number in numbers.items() if key not in ("count", "bytes")))
        return cls(numbers.get("count", -1), numbers.get("bytes", -1), others)

    @classmethod
    def parse(cls, data: bytes | None) -> Amount:
        """Parse the text of a limits or stats node. Empty data means no numbers.

        Raises:
            ValueError: The data is null or too long, or its form is not ``key=number,key=number``.

        Source: StatsTrack.
        """
        if data is None:
            raise ValueError("the data is null")
        if len(data) > MAX_TEXT:
            raise ValueError(f"the text has {len(data)} bytes (limit {MAX_TEXT})")
        return _parse(data)

    def plus(self, nodes: int, size: int) -> Amount:
        """Return the amount with more nodes and bytes. The numbers wrap around as in Java."""
        return self._replace(nodes=to_signed_64(self.nodes + nodes), size=to_signed_64(self.size + size))

    def encode(self) -> bytes:
        """Return the text. Older releases stop reading at the ``=`` after the bytes, and ignore the other numbers."""
        text = f"count={self.nodes},bytes={self.size}" + ("=" if self.others else "")
        return (text + "".join(f";{key}={number}" for key, number in self.others)).encode()


@lru_cache(maxsize=1024)  # entries never become invalid, because the text is the key (at most 256 kB)
def _parse(data: bytes) -> Amount:
    if not data:
        return Amount()
    numbers: dict[str, int] = {}
    for pair in _split("[,;]+", data.decode("utf-8", "replace")):
        key, *texts = _split("=", pair) or [""]
        if not texts:
            raise ValueError(f"expected key=number, found {pair!r}")
        number = texts[0] or "-1"
        if not re.fullmatch(r"[+-]?\d+", number) or to_signed_64(int(number)) != int(number):
            raise ValueError(f"expected a 64-bit number, found {number!r}")
        numbers[key] = int(number)
    return Amount.of(numbers)


def _split(separator: str, text: str) -> list[str]:
    """Split like Java's String.split, which omits empty parts at the end."""
    parts = re.split(separator, text)
    while parts and not parts[-1]:
        parts.pop()
    return parts
