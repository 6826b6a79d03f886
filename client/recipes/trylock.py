"""An unfair lock: one ephemeral node that is there or not."""

from __future__ import annotations

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._owned_node import OwnedNode, acquire_node
from zoolet.client.wire.arguments import checked_timeout


class TryLock(LockBase[OwnedNode]):
    """The cheapest lock: ``lease = await TryLock(zk, "/jobs/nightly").attempt()``, which is None if it is held.

    Znodes: PATH itself, ephemeral, with *data*; and ``PATH-<uuid>``, ephemeral, which proves whose PATH is. They are
    created together and deleted together.

    Guarantees: one holder at a time. An attempt is one transaction.

    Limits: unfair; all that wait wake up when it ends (the herd effect). For many that wait there is Lock.

    Args:
        client: Whose session holds it.
        path: What is locked.
        timeout: Seconds that ``async with`` waits at most; None for no limit.
        on_lost: As for Lock.
        data: What the node holds, for people to read.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(on_lost)
        client = checked_client(client)
        self._share_holdings(client, "node", client.add_chroot(path))
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._timeout = checked_timeout(timeout)
        self._data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    async def attempt(self) -> OwnedNode | None:
        """Acquire it if it is free; None if it is not.

        Raises:
            ConnectionLossError: There was no connection in time; nodes that were created are deleted once there is one.
        """
        lease = await acquire_node(self._client, self._path, self._data)
        return None if lease is None else self._acquired(lease)

    async def acquire(self, timeout: float | None = None) -> OwnedNode:
        """Wait until it is free, and acquire it.

        Raises:
            DeadlockError: This task holds it, and would wait for itself.
            TimeoutError: It was not free in time.
        """
        self._own_lease()
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquired_at_once(seconds)) is not None:
            return lease
        async with timeout_saying(seconds, lambda: f"{self._path} was not free"):
            while True:
                if (lease := await self.attempt()) is not None:
                    return lease
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is not None:
                        await watch.next()
