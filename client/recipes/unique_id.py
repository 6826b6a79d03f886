"""Unique numbers."""

from __future__ import annotations

from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import Recipe
from zoolet.client.wire.arguments import checked_count
from zoolet.protocol.errors import NoNodeError


class UniqueId(Recipe):
    """A naming service: ``number = await ids.next()``, different for every caller.

    Znodes: PATH, empty. Its version is the last number: each number is one setData.

    Guarantees: no number is returned twice, and a call that begins after another one has returned gets a higher one.
    A number costs one request, however many callers there are.

    Limits: 2**31 - 1 numbers. A number whose reply was lost is skipped. Deleting the node begins again at 1.

    Args:
        block: Numbers to reserve with one request, 1 or more. They are in order within one client only.
    """

    def __init__(self, client: Client, path: str, *, block: int = 1) -> None:
        super().__init__(client, path)
        self._block = checked_count("block", block, 1)
        self._left = range(0)

    async def next(self) -> int:
        """Return a number, from 1 (or with blocks, from *block*) on."""
        while not self._left:
            try:
                version = (await self._client.retry(lambda: self._client.set(self._path, b""))).version
                self._left = range(version * self._block, (version + 1) * self._block)
            except NoNodeError:
                await self._client.ensure_path(self._path)
        number, self._left = self._left[0], self._left[1:]
        return number
