"""The text of quotas: how many nodes and bytes may be in a subtree, and how many are.

A quota on ``/a/b`` is the pair of ordinary nodes ``/zookeeper/quota/a/b/zookeeper_limits`` and ``.../zookeeper_stats``.
The first has the limits, the second the present amounts, both as text::

    count=3,bytes=800=;byteHardLimit=1000;countHardLimit=5

``count`` and ``bytes`` of the limits are soft. A missing number, or -1, means no limit.

Source: StatsTrack; Quotas.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

LIMITS: Final = "/zookeeper_limits"
STATS: Final = "/zookeeper_stats"
MAX_TEXT: Final = 256
"""The most bytes of a limits or stats node; all four numbers at their longest have 117."""


@dataclass(frozen=True, slots=True)
class Amount:
    """The numbers of a limits or stats node; -1 means none."""

    count: int = -1
    size: int = -1
    others: tuple[tuple[str, int], ...] = ()
    """All numbers except ``count`` and ``bytes``, sorted by key; they are preserved when a stats node is updated."""

    @property
    def count_hard(self) -> int:
        """The most nodes that there may be."""
        return self._other("countHardLimit")

    @property
    def size_hard(self) -> int:
        """The most bytes that there may be."""
        return self._other("byteHardLimit")

    def _other(self, key: str) -> int:
        for name, number in self.others:  # no dictionary: each write below a quota asks for this
            if name == key:
                return number
        return -1

    def numbers(self) -> dict[str, int]:
        """Return all numbers by the keys that they have in the text."""
        return {"count": self.count, "bytes": self.size, **dict(self.others)}

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> Amount:
        """Return the amount that has these numbers."""
        others = tuple(sorted((key, number) for key, number in numbers.items() if key not in ("count", "bytes")))
        return cls(numbers.get("count", -1), numbers.get("bytes", -1), others)

    @classmethod
    def parse(cls, data: bytes | None) -> Amount:
        """Parse the text of a limits or stats node; empty data means no numbers.

        Raises:
            ValueError: The data is null, too long, or not of the form ``key=number,key=number``.

        Source: StatsTrack.
        """
        if data is None:
            raise ValueError("null data")
        if len(data) > MAX_TEXT:
            raise ValueError(f"a text of {len(data)} bytes; the limit is {MAX_TEXT}")
        return _parse(data)

    def plus(self, count: int, size: int) -> Amount:
        """Return it with more nodes and bytes; the numbers wrap around as Java's do."""
        return replace(self, count=wrapped(self.count + count), size=wrapped(self.size + size))

    def encode(self) -> bytes:
        """Return the text; the = behind the bytes ends it for releases that know no further numbers."""
        text = f"count={self.count},bytes={self.size}" + ("=" if self.others else "")
        return (text + "".join(f";{key}={number}" for key, number in self.others)).encode()


@lru_cache(maxsize=1024)  # by text, so nothing invalidates an entry; at most 256 kB of keys
def _parse(data: bytes) -> Amount:
    if not data:
        return Amount()
    numbers: dict[str, int] = {}
    for pair in _split("[,;]+", data.decode("utf-8", "replace")):
        key, *texts = _split("=", pair) or [""]
        if not texts:
            raise ValueError(f"no number in {pair!r}")
        number = texts[0] or "-1"
        if not re.fullmatch(r"[+-]?\d+", number) or wrapped(int(number)) != int(number):
            raise ValueError(f"not a number of 64 bits: {number!r}")
        numbers[key] = int(number)
    return Amount.of(numbers)


def _split(separator: str, text: str) -> list[str]:
    """Split as Java's String.split does: empty parts at the end are omitted."""
    parts = re.split(separator, text)
    while parts and not parts[-1]:
        parts.pop()
    return parts


def wrapped(number: int) -> int:
    """Wrap a number around as Java's long does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
