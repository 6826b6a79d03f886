"""An unfair lock: one ephemeral node that exists or not."""

from __future__ import annotations

from typing import Any

from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..wire.arguments import checked_timeout
from ._base import checked_client
from ._lock_base import LockBase, OnLost
from ._owned_node import OwnedNode, acquire_node


class TryLock(LockBase[OwnedNode]):
    """A lock without a queue: ``lease = await TryLock(zk, "/jobs/nightly").attempt()``.

    The lease is None if the lock is held.

    Znodes: PATH itself, ephemeral, with *data*. ``PATH-<uuid>``, ephemeral, the proof of ownership. The two nodes
    are created and deleted together.

    Guarantees: one holder at a time. An attempt is one transaction.

    Limits: the lock is unfair, and its release wakes all waiters (the herd effect). For many waiters, use Lock.

    Args:
        client: Client whose session holds the lock.
        path: Path of the lock.
        timeout: Longest wait in seconds with ``async with``, or None for no limit.
        on_lost: As for Lock.
        data: Human-readable data of the node.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        *,
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
        data: bytes = b"",
    ) -> None:
        client = checked_client(client)
        super().__init__(on_lost, client, "node", client.add_chroot(path))
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._timeout = checked_timeout(timeout)
        self._data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    async def attempt(self) -> OwnedNode | None:
        """Acquire the lock if it is free, and return the lease. Return None if it is not free.

        Raises:
            ConnectionLossError: No connection was available in time. Created nodes are deleted after a reconnect.
        """
        lease = await acquire_node(self._client, self._path, self._data)
        return None if lease is None else self._record_holder(lease)

    async def acquire(self, timeout: float | None = None) -> OwnedNode:
        """Wait until the lock is free, and acquire it.

        Args:
            timeout: Longest wait in seconds; None for the lock's own timeout; 0 to acquire the lock only if it is free.

        Raises:
            DeadlockError: The calling task holds the lock and would wait for itself.
            TimeoutError: The lock was not free in time.
        """
        self._enter_own_lease()
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquire_nowait(seconds)) is not None:
            return lease
        async with timeout_with_message(seconds, lambda: f"{self._path} was not free"):
            while True:
                if (lease := await self.attempt()) is not None:
                    return lease
                async with self._client.watch_exists(self._path) as watch:
                    if watch.initial is not None:
                        await watch.next()
