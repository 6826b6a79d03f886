"""A barrier: all wait while a node is there."""

from __future__ import annotations

import asyncio

from zoolet.client.surface import ClientSurface
from zoolet.protocol.errors import NodeExistsError, NoNodeError


class Barrier:
    """Lets nobody pass while it is up.

    Znodes: PATH exists while the barrier is up; shared with kazoo's Barrier and Curator's DistributedBarrier.

    Guarantees: whoever waits when it falls passes.

    Limits: it belongs to nobody: it stays up when whoever put it up dies.

    Args:
        client: Whose session it uses.
        path: The node.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        self._client = client
        self._path = path

    async def create(self) -> bool:
        """Put it up; say whether it was down before."""
        try:
            await self._client.create(self._path, parents=True)
        except NodeExistsError:
            return False
        return True

    async def remove(self) -> bool:
        """Take it down; say whether it was up before."""
        try:
            await self._client.delete(self._path)
        except NoNodeError:
            return False
        return True

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it is down.

        Raises:
            TimeoutError: It was up for longer than *timeout* seconds.
        """
        async with asyncio.timeout(timeout):
            while True:
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is None:
                        return
                    await watch.next()
