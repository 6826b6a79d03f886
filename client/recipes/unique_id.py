"""Unique numbers, reserved in blocks from one node."""

from __future__ import annotations

from typing import Any

from ...protocol.errors import NoNodeError
from ..aio.operations import BaseClient
from ..wire.arguments import checked_count
from ._base import Recipe


class UniqueId(Recipe):
    """A generator of unique numbers: ``number = await ids.next()``, different for every caller.

    Znodes: PATH, empty. Each setData reserves a block of *block* numbers: its number is the version of the node.

    Guarantees: no number is returned twice. With *block* 1, each call returns a higher number than all calls that
    completed before it. A block costs one request, even if many clients reserve blocks at the same time.

    Limits: 2**31 - 1 blocks. A block whose reply was lost is skipped, and so are numbers that a client does not use.
    After the node is deleted, the numbers start again from the first.

    Args:
        client: Client that reserves the numbers.
        path: Path of the node.
        block: Count of numbers to reserve with one request, at least 1. All clients of a path must use the same
            number. With more than 1, the order is kept only within one client.
    """

    def __init__(self, client: BaseClient[Any], path: str, *, block: int = 1) -> None:
        super().__init__(client, path)
        self._block = checked_count("block", block, 1)
        self._reserved_numbers = range(0)

    async def next(self) -> int:
        """Return the next number. The first number of a new node is *block*, which is 1 by default.

        Raises:
            ConnectionLossError: All five attempts to reserve numbers failed.
        """
        while not self._reserved_numbers:
            try:
                version = (await self._client.retry(lambda: self._client.set(self._path, b""))).version
                self._reserved_numbers = range(version * self._block, (version + 1) * self._block)
            except NoNodeError:
                await self._client.ensure_path(self._path)
        number, self._reserved_numbers = self._reserved_numbers[0], self._reserved_numbers[1:]
        return number
