"""A counter that several clients change, kept in one node."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from ...protocol.errors import NodeExistsError, NoNodeError
from .. import serializers
from ..aio.operations import BaseClient
from ..wire.arguments import checked_choice, checked_function
from ._base import Recipe

ENCODINGS: Final = {"text": None, "int": struct.Struct(">i"), "long": struct.Struct(">q")}
"""Formats of the number by name: ``text`` (kazoo's Counter), ``int`` (Curator's SharedCount and
DistributedAtomicInteger) and ``long`` (Curator's DistributedAtomicLong).
"""


class Counter(Recipe):
    """An integer that is changed by compare-and-set: ``await counter.add(1)``.

    Znodes: PATH, with the number as data; the first addition creates it.

    Guarantees: no addition is lost or applied twice. If the connection is lost before the reply, ``add`` raises
    ConnectionLossError, and the addition may have been applied.

    Limits: if many clients add at the same time, most attempts fail and are repeated. For unique numbers use UniqueId.

    Args:
        client: Client that reads and writes the node.
        path: Path of the node.
        start: Number while the node does not exist.
        encoding: ``text``, ``int`` (4 bytes; as kazoo's Counter with ``support_curator``) or ``long`` (8 bytes).
    """

    _serializer = serializers.raw

    def __init__(self, client: BaseClient[Any], path: str, start: int = 0, *, encoding: str = "text") -> None:
        super().__init__(client, path)
        self._start = start
        self._struct = ENCODINGS[checked_choice("encoding", encoding, ENCODINGS)]

    async def value(self) -> int:
        """Read the number from the server, and return it. If the node does not exist, return *start*.

        Raises:
            ValueError: The node does not contain a number.
        """
        try:
            return self._decode((await self._client.get(self._path))[0])
        except NoNodeError:
            return self._start

    async def add(self, amount: int = 1) -> int:
        """Add to the number, and return the sum.

        Raises:
            ConnectionLossError: The connection was lost, and the amount may have been added.
            TypeError: *amount* is not an int.
            ValueError: The node does not contain a number, or the sum does not fit the encoding.
        """
        if not isinstance(amount, int):
            raise TypeError(f"amount must be an int, not {amount!r}")
        return await self.change(lambda number: number + amount)

    async def change(self, how: Callable[[int], int]) -> int:
        """Replace the number with the result of a function, and return the new number.

        Args:
            how: Function from the current number to the new one. It may be called several times.

        Raises:
            ConnectionLossError: The connection was lost, and the number may have been replaced.
            TypeError: *how* is not a function.
            ValueError: The node does not contain a number, or the new number does not fit the encoding.
        """
        checked_function("how", how)
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
            raise ValueError(f"{self._path} does not contain a number: {data[:40]!r}") from None

    def _encode(self, number: int) -> bytes:
        if self._struct is None:
            return str(number).encode()
        try:
            return self._struct.pack(number)
        except struct.error:
            text = f"{number} does not fit into the {self._struct.size} bytes of the counter {self._path}"
            raise ValueError(text) from None
