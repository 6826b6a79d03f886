"""The text format of quotas. A quota limits the number of nodes and bytes in a subtree.

A quota on ``/a/b`` is the pair of ordinary nodes ``/zookeeper/quota/a/b/zookeeper_limits`` and ``.../zookeeper_stats``.
The first node contains the limits, and the second node the current amounts, as text::

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
MAX_TEXT_BYTES: Final = 256
"""Maximum size of the data of a limits or stats node in bytes. The longest text with all four numbers has 117 bytes."""


class Amount(NamedTuple):
    """The numbers in a limits or stats node. -1 stands for a missing number."""

    nodes: int = -1
    size: int = -1
    others: tuple[tuple[str, int], ...] = ()
    """All numbers except ``count`` and ``bytes``, sorted by key. They are preserved when a stats node is updated."""

    @property
    def node_hard_limit(self) -> int:
        """The hard limit on the number of nodes; -1 for no limit."""
        return self._other("countHardLimit")

    @property
    def byte_hard_limit(self) -> int:
        """The hard limit on the number of bytes; -1 for no limit."""
        return self._other("byteHardLimit")

    def _other(self, key: str) -> int:
        # Every write below a quota calls this method. With few keys, a loop is faster than a dictionary.
        for name, number in self.others:
            if name == key:
                return number
        return -1

    def numbers(self) -> dict[str, int]:
        """Return all numbers by key, as in the text."""
        return {"count": self.nodes, "bytes": self.size, **dict(self.others)}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, int]) -> Amount:
        """Return an amount with the given numbers by key, as :meth:`numbers` returns them."""
        others = tuple(sorted((key, number) for key, number in numbers.items() if key not in ("count", "bytes")))
        return cls(numbers.get("count", -1), numbers.get("bytes", -1), others)

    @classmethod
    def parse(cls, data: bytes | None) -> Amount:
        """Parse the text of a limits or stats node. In empty data, all numbers are missing.

        Raises:
            ValueError: The data is null or too long, or its form is not ``key=number,key=number``.

        Source: StatsTrack.
        """
        if data is None:
            raise ValueError("the data is null")
        if len(data) > MAX_TEXT_BYTES:
            raise ValueError(f"the text has {len(data)} bytes (limit {MAX_TEXT_BYTES})")
        return _parse(data)

    def plus(self, nodes: int, size: int) -> Amount:
        """Return this amount plus *nodes* and *size* bytes. The sums wrap around at 64 bits, as in Java."""
        return self._replace(nodes=to_signed_64(self.nodes + nodes), size=to_signed_64(self.size + size))

    def encode(self) -> bytes:
        """Return the text of a limits or stats node. Older releases of ZooKeeper stop reading at the second ``=`` after
        ``bytes``, so they ignore the numbers after it.
        """
        text = f"count={self.nodes},bytes={self.size}" + ("=" if self.others else "")
        return (text + "".join(f";{key}={number}" for key, number in self.others)).encode()


@lru_cache(maxsize=1024)  # at most 256 kB of texts; entries never become invalid, because the text is the key
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
    return Amount.from_numbers(numbers)


def _split(separator: str, text: str) -> list[str]:
    """Split like Java's String.split, which omits empty parts at the end."""
    parts = re.split(separator, text)
    while parts and not parts[-1]:
        parts.pop()
    return parts
