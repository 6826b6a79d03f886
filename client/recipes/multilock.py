"""Several locks acquired as one: all of them or none."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence
from typing import Any

from ...protocol.errors import ZooKeeperError
from ...protocol.recipe_names import Namings
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..wire.arguments import checked_timeout
from ._base import checked_client
from ._lease import Lease
from ._lock_base import LockBase, OnLost
from .lock import Lock


class MultiLease(Lease):
    """The lease of several locks.

    Attributes:
        parts: Lease of each lock, sorted by path.
        tokens: Token of each lock, by path. ``token`` is the token of the last lock, which was acquired while all
            others were held.
    """

    def __init__(self, client: BaseClient[Any], parts: dict[str, Lease]) -> None:
        self.parts: list[Lease] = list(parts.values())
        self.tokens: dict[str, int] = {path: part.token for path, part in parts.items()}
        last = self.parts[-1]
        super().__init__(client, last.path, last.czxid, token=last.token)
        ref: weakref.ref[MultiLease] = weakref.ref(self)
        self._followers = [client._core.spawn(_follow(ref, part)) for part in self.parts]

    def raise_if_lost(self) -> None:
        """Check that all parts are guaranteed to be still held.

        Raises:
            LockLostError: A part was lost or released, or may have been lost.
        """
        super().raise_if_lost()
        for part in self.parts:
            part.raise_if_lost()

    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release of a part, or None."""
        return next((part.release_error for part in self.parts if part.release_error is not None), None)

    def proof_nodes(self) -> list[str]:
        """Return the proof nodes of all parts."""
        return [node for part in self.parts for node in part.proof_nodes()]

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Release all parts, the last one first."""
        return super().release_nowait() or self._delete_nodes()

    def _delete_nodes(self) -> list[asyncio.Future[None]]:
        for follower in self._followers:
            follower.cancel()
        return [call for part in reversed(self.parts) for call in part.release_nowait()]


async def _follow(ref: weakref.ref[MultiLease], part: Lease) -> None:
    reason = await part.lost
    if (lease := ref()) is not None:
        lease._mark_lost(f"{part.path}: {reason}")


class MultiLock(LockBase[MultiLease]):
    """A lock on several paths together: ``async with MultiLock(zk, ["/a", "/b"]) as lease:``.

    Znodes: for each path, the nodes of a :class:`~zoolet.client.recipes.lock.Lock`.

    Guarantees: the paths are locked in sorted order, so two MultiLocks never deadlock. If one path cannot be locked,
    none stays locked. The lease is lost when any part is lost.

    Limits: as for Lock. Deadlocks with plain Locks that are acquired in a different order are possible.

    Args:
        client: Client whose session holds the locks.
        paths: Paths to lock, at least one. Duplicates are ignored.
        timeout: Longest wait in seconds for all paths together, or None for no limit.
        naming: As for Lock.
        on_lost: As for Lock.

    Raises:
        ValueError: *paths* is empty or is a string, or another argument is invalid.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        paths: Sequence[str],
        *,
        timeout: float | None = None,
        naming: Namings = "kazoo",
        on_lost: OnLost = "cancel",
    ) -> None:
        client = checked_client(client)
        super().__init__(on_lost, client)
        if isinstance(paths, str) or not paths:
            raise ValueError(f"paths must be a list of at least one path, not {paths!r}")
        self._client = client
        self._timeout = checked_timeout(timeout)
        self._locks = {path: Lock(client, path, naming=naming, on_lost="flag") for path in sorted(set(paths))}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._locks)}>"

    async def acquire(self, timeout: float | None = None) -> MultiLease:
        """Wait for all locks, and return their common lease.

        Raises:
            DeadlockError: The calling task holds one of the locks and would wait for itself.
            TimeoutError: A lock was not free in time. No lock is kept.
        """
        leases: dict[str, Lease] = {}
        path = ""
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquire_nowait(seconds)) is not None:
            return lease
        try:
            async with timeout_with_message(seconds, lambda: f"{path} was not free"):
                for path, lock in self._locks.items():
                    leases[path] = await lock.acquire()
        except BaseException:  # a cancellation also has to clean up
            self._give_up(leases)
            raise
        return self._record_holder(MultiLease(self._client, leases))

    async def attempt(self) -> MultiLease | None:
        """Acquire all locks if they are all free, and return their lease. Otherwise keep no lock, and return None.

        Raises:
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended during the attempt.
        """
        leases: dict[str, Lease] = {}
        if not all([await lock.is_free() for lock in self._locks.values()]):
            return None
        try:
            for path, lock in self._locks.items():
                lease = await lock.attempt()
                if lease is None:
                    break
                leases[path] = lease
            else:
                return self._record_holder(MultiLease(self._client, leases))
        except BaseException:  # a cancellation also has to clean up
            self._give_up(leases)
            raise
        self._give_up(leases)
        return None

    def _give_up(self, leases: dict[str, Lease]) -> None:
        for lease in reversed(leases.values()):
            self._client._core.spawn(lease.release())
