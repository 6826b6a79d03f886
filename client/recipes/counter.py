"""A counter that many add to."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from zoolet.client import serializers
from zoolet.client.surface import ClientSurface
from zoolet.protocol.errors import BadVersionError, NodeExistsError, NoNodeError


class _Format(NamedTuple):
    write: Callable[[int], bytes]
    read: Callable[[bytes], int]


FORMATS: Final = {
    "text": _Format(lambda number: str(number).encode(), lambda data: int(data or b"0")),
    "int": _Format(struct.Struct(">i").pack, lambda data: int(struct.unpack(">i", data)[0])),
    "long": _Format(struct.Struct(">q").pack, lambda data: int(struct.unpack(">q", data)[0])),
}
"""How a number becomes bytes: as text like kazoo's Counter, in 4 bytes like Curator's SharedCount and
DistributedAtomicInteger (and kazoo's Counter with ``support_curator``), in 8 like Curator's DistributedAtomicLong.
"""


class Counter:
    """A whole number that is changed by compare-and-set: ``await counter.add(1)``.

    Znodes: PATH holds the number.

    Guarantees: no addition is lost or done twice, but one: when the connection is lost before the answer came, ``add``
    raises ConnectionLossError, and it may have been done.

    Limits: with many who add at once most tries fail and are made again. For unique numbers there is UniqueId.

    Args:
        client: Whose session it uses.
        path: The node; made by the first addition.
        start: What a missing node counts as.
        layout: ``text``, ``int`` or ``long``.

    Raises:
        ValueError: The encoding is unknown.
    """

    def __init__(self, client: ClientSurface, path: str, start: int = 0, *, encoding: str = "text") -> None:
        client.add_chroot(path)
        if encoding not in FORMATS:
            raise ValueError(f"encoding {encoding!r} is unknown; one of {', '.join(FORMATS)}")
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._start = start
        self._format = FORMATS[encoding]

    async def value(self) -> int:
        """Return the number.

        Raises:
            ValueError: The node holds something else.
        """
        try:
            data, _ = await self._client.get(self._path)
        except NoNodeError:
            return self._start
        return self._read(data)

    def _read(self, data: bytes) -> int:
        try:
            return self._format.read(data)
        except (ValueError, struct.error):
            raise ValueError(f"{self._path} holds no number: {data[:40]!r}") from None

    async def add(self, amount: int = 1) -> int:
        """Add to the number; give what it is then.

        Raises:
            ConnectionLossError: It may have been added.
            ValueError: The node holds something else, or the sum does not fit the encoding.
        """
        if not isinstance(amount, int):
            raise TypeError(f"amount must be an int, not {amount!r}")
        return await self.change(lambda number: number + amount)

    async def change(self, how: Callable[[int], int]) -> int:
        """Replace the number by what a function makes of it; it may be called several times."""
        while True:
            try:
                data, stat = await self._client.get(self._path)
            except NoNodeError:
                number = how(self._start)
                try:
                    await self._client.create(self._path, self._write(number), parents=True)
                except NodeExistsError:
                    continue
                return number
            number = how(self._read(data))
            try:
                await self._client.set(self._path, self._write(number), stat.version)
            except BadVersionError:
                continue
            return number

    def _write(self, number: int) -> bytes:
        try:
            return self._format.write(number)
        except struct.error:
            raise ValueError(f"{number} does not fit into the node's encoding") from None
