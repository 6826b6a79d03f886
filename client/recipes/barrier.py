"""A barrier: clients wait while a node exists."""

from __future__ import annotations

from ...protocol.errors import NodeExistsError, NoNodeError
from ..aio.limits import timeout_with_message
from ._base import Recipe


class Barrier(Recipe):
    """A barrier that stops clients in :meth:`wait`, from :meth:`create` until :meth:`remove`.

    Znodes: PATH exists while the barrier is up; shared with kazoo's Barrier and Curator's DistributedBarrier.

    Guarantees: all waiting clients continue when the barrier is removed.

    Limits: the barrier belongs to no session, so it stays up when the client that created it dies.

    Args:
        client: Client that creates, removes or waits for the barrier.
        path: Path of the barrier.
    """

    async def create(self) -> bool:
        """Create the barrier. Return False if it already existed."""
        try:
            await self._client.create(self._path, parents=True)
        except NodeExistsError:
            return False
        return True

    async def remove(self) -> bool:
        """Remove the barrier. Return False if it did not exist."""
        try:
            await self._client.delete(self._path)
        except NoNodeError:
            return False
        return True

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until the barrier is removed.

        Args:
            timeout: Maximum wait in seconds; None for no limit; 0 to raise immediately if the barrier exists.

        Raises:
            TimeoutError: The barrier was not removed in time.
        """
        async with timeout_with_message(timeout, lambda: f"{self._path} was not removed") as limit:
            while True:
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is None:
                        return
                    limit.check_may_wait()
                    await watch.next()
