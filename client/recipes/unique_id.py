"""Unique numbers, reserved in blocks from one node."""

from __future__ import annotations

from typing import Any

from ...protocol.errors import NoNodeError
from ..aio.operations import BaseClient
from ..wire.arguments import checked_count
from ._base import Recipe


class UniqueId(Recipe):
    """Generates unique numbers: ``number = await ids.next()``, different for every caller.

    Znodes: PATH, empty. Its version is the last number: each number is one setData.

    Guarantees: no number is returned twice, and each call returns a higher number than calls that completed before it.
    A number costs one request, however many callers there are.

    Limits: 2**31 - 1 numbers. A number whose reply was lost is skipped. After the node is deleted, numbers start at 1
    again.

    Args:
        client: Client that reserves the numbers.
        path: Path of the node.
        block: Count of numbers to reserve with one request, at least 1. They are in order within one client only.
    """

    def __init__(self, client: BaseClient[Any], path: str, *, block: int = 1) -> None:
        super().__init__(client, path)
        self._block = checked_count("block", block, 1)
        self._left = range(0)

    async def next(self) -> int:
        """Return a number; the first one is 1, or *block* with blocks."""
        while not self._left:
            try:
                version = (await self._client.retry(lambda: self._client.set(self._path, b""))).version
                self._left = range(version * self._block, (version + 1) * self._block)
            except NoNodeError:
                await self._client.ensure_path(self._path)
        number, self._left = self._left[0], self._left[1:]
        return number
