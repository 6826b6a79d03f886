"""A counter that many add to."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import Recipe
from zoolet.client.wire.arguments import checked_choice
from zoolet.protocol.errors import NodeExistsError, NoNodeError

ENCODINGS: Final = {"text": None, "int": struct.Struct(">i"), "long": struct.Struct(">q")}
"""As kazoo's Counter, Curator's SharedCount and DistributedAtomicInteger, and Curator's DistributedAtomicLong."""


class Counter(Recipe):
    """A whole number that is changed by compare-and-set: ``await counter.add(1)``.

    Znodes: PATH holds the number; the first addition creates it.

    Guarantees: no addition is lost or applied twice. Only if the connection is lost before the reply, ``add`` raises
    ConnectionLossError, and it may have been applied.

    Limits: with many that add at once most tries fail and are repeated. For unique numbers there is UniqueId.

    Args:
        start: The number while the node does not exist.
        encoding: ``text``, ``int`` (4 bytes; kazoo's with ``support_curator``) or ``long`` (8 bytes).
    """

    _serializer = serializers.raw

    def __init__(self, client: Client, path: str, start: int = 0, *, encoding: str = "text") -> None:
        super().__init__(client, path)
        self._start = start
        self._struct = ENCODINGS[checked_choice("encoding", encoding, ENCODINGS)]

    async def value(self) -> int:
        """Return the number.

        Raises:
            ValueError: The node holds no number.
        """
        try:
            return self._decode((await self._client.get(self._path))[0])
        except NoNodeError:
            return self._start

    async def add(self, amount: int = 1) -> int:
        """Add to the number; return the sum.

        Raises:
            ConnectionLossError: It may have been added.
            ValueError: The node holds no number, or the sum does not fit the encoding.
        """
        if not isinstance(amount, int):
            raise TypeError(f"amount must be an int, not {amount!r}")
        return await self.change(lambda number: number + amount)

    async def change(self, how: Callable[[int], int]) -> int:
        """Replace the number by what a function makes of it, which may be called several times; raises as ``add``."""
        while True:
            try:
                data, _ = await self._client.update(self._path, lambda data: self._encode(how(self._decode(data))))
                return self._decode(data)
            except NoNodeError:
                data = self._encode(how(self._start))
            try:
                await self._client.create(self._path, data, parents=True)
                return self._decode(data)
            except NodeExistsError:
                continue

    def _decode(self, data: bytes) -> int:
        try:
            return int(data or b"0") if self._struct is None else int(self._struct.unpack(data)[0])
        except (ValueError, struct.error):
            raise ValueError(f"{self._path} holds no number: {data[:40]!r}") from None

    def _encode(self, number: int) -> bytes:
        try:
            return str(number).encode() if self._struct is None else self._struct.pack(number)
        except struct.error:
            raise ValueError(f"{number} does not fit into the node's encoding") from None
