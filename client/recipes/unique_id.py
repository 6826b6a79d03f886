"""Numbers that nobody else gets."""

from __future__ import annotations

from zoolet.client.surface import ClientSurface
from zoolet.protocol.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError


class UniqueId:
    """A naming service: ``number = await ids.next()``, different for everybody.

    Znodes: PATH, empty. Its version is the last number that was given out: each number is one setData.

    Guarantees: no number is given twice. Numbers grow: a call that begins after another one has returned gets a higher
    one. One request a number, and no retries however many ask.

    Limits: 2**31 - 1 numbers. A number whose reply was lost is given to nobody; ``next`` then asks again. Deleting the
    node begins anew. *block* numbers at a time cost one request together.

    Args:
        client: Whose session it uses.
        path: The node.
        block: Numbers to fetch at a time, 1 or more. They are in order within one client only.

    Raises:
        ValueError: *block* is less than 1.
    """

    def __init__(self, client: ClientSurface, path: str, *, block: int = 1) -> None:
        client.add_chroot(path)
        if not isinstance(block, int) or block < 1:
            raise ValueError(f"block is {block!r}; it must be 1 or more")
        self._client = client
        self._path = path
        self._block = block
        self._left = range(0)

    async def next(self) -> int:
        """Return a number, from 1 (or with blocks, from *block*) on."""
        if not self._left:
            number = await self._fetch()
            self._left = range(number * self._block, (number + 1) * self._block)
        number, self._left = self._left[0], self._left[1:]
        return number

    async def _fetch(self) -> int:
        while True:
            try:
                return (await self._client.retry(lambda: self._client.set(self._path, b""))).version
            except NoNodeError:
                try:
                    await self._client.create(self._path, parents=True)
                except (NodeExistsError, BadVersionError, ConnectionLossError):
                    continue
