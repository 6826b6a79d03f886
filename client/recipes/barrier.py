"""A barrier: all wait while a node exists."""

from __future__ import annotations

from zoolet.client.aio.limits import timeout_saying
from zoolet.client.recipes._base import Recipe
from zoolet.protocol.errors import NodeExistsError, NoNodeError


class Barrier(Recipe):
    """Blocks all that :meth:`wait`, from :meth:`create` to :meth:`remove`.

    Znodes: PATH exists while the barrier is up; shared with kazoo's Barrier and Curator's DistributedBarrier.

    Guarantees: all that wait when it is removed go on.

    Limits: it belongs to no session: it stays up when the client that created it dies.
    """

    async def create(self) -> bool:
        """Create it; return whether there was none."""
        try:
            await self._client.create(self._path, parents=True)
        except NodeExistsError:
            return False
        return True

    async def remove(self) -> bool:
        """Remove it; return whether there was one."""
        try:
            await self._client.delete(self._path)
        except NoNodeError:
            return False
        return True

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until there is none.

        Args:
            timeout: Seconds to wait at most; 0 to find out whether there is none.

        Raises:
            TimeoutError: It was there for longer.
        """
        async with timeout_saying(timeout, lambda: f"{self._path} was not removed") as limit:
            while True:
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is None:
                        return
                    limit.before_waiting()
                    await watch.next()
