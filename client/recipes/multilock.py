"""Several locks as one: all of them or none."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._lease import Lease
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._node_names import Namings
from zoolet.client.recipes.lock import Lock
from zoolet.client.wire.arguments import checked_timeout
from zoolet.protocol.errors import ZooKeeperError


class MultiLease(Lease):
    """Several locks that are held.

    Attributes:
        parts: The lease of each, in sorted order of the paths.
        tokens: The token of each, by path; ``token`` is that of the last one, which was acquired when the others were
            held already.
    """

    def __init__(self, client: Client, parts: dict[str, Lease]) -> None:
        self.parts: list[Lease] = list(parts.values())
        self.tokens: dict[str, int] = {path: part.token for path, part in parts.items()}
        last = self.parts[-1]
        super().__init__(client, last.path, last.czxid, token=last.token)
        ref: weakref.ref[MultiLease] = weakref.ref(self)
        self._followers = [client.spawn(_follow(ref, part)) for part in self.parts]

    def raise_if_lost(self) -> None:
        """Do nothing if all parts are certainly still held.

        Raises:
            LockLostError: One is not.
        """
        super().raise_if_lost()
        for part in self.parts:
            part.raise_if_lost()

    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release of a part; None if it did not."""
        return next((part.release_error for part in self.parts if part.release_error is not None), None)

    def proof_nodes(self) -> list[str]:
        """Return the nodes of all parts."""
        return [node for part in self.parts for node in part.proof_nodes()]

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Release all of them, the last one first."""
        for follower in self._followers:
            follower.cancel()
        self._mark_released()
        return [call for part in reversed(self.parts) for call in part.release_nowait()]


async def _follow(ref: weakref.ref[MultiLease], part: Lease) -> None:
    reason = await part.lost
    if (lease := ref()) is not None:
        lease._mark_lost(f"{part.path}: {reason}")


class MultiLock(LockBase[MultiLease]):
    """Holds several paths at once: ``async with MultiLock(zk, ["/a", "/b"]) as lease:``.

    Znodes: those of a :class:`~zoolet.client.recipes.lock.Lock` for each path.

    Guarantees: the paths are locked in sorted order, so that two MultiLocks never wait for each other. If one cannot be
    acquired, none is kept. It is lost when any of them is.

    Limits: those of Lock. Deadlocks with plain Locks that are acquired in another order are possible.

    Args:
        client: Whose session holds it.
        paths: What is locked, each once.
        timeout: Seconds to wait for all of them at most; None for no limit.
        naming: As for Lock.
        on_lost: As for Lock.

    Raises:
        ValueError: There is no path.
    """

    def __init__(
        self,
        client: Client,
        paths: Sequence[str],
        *,
        timeout: float | None = None,
        naming: Namings = "kazoo",
        on_lost: OnLost = "cancel",
    ) -> None:
        super().__init__(on_lost)
        client = checked_client(client)
        if isinstance(paths, str) or not paths:
            raise ValueError(f"paths is {paths!r}; it must be a list of at least one path")
        self._client = client
        self._timeout = checked_timeout(timeout)
        self._locks = {path: Lock(client, path, naming=naming, on_lost="flag") for path in sorted(set(paths))}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._locks)}>"

    async def acquire(self, timeout: float | None = None) -> MultiLease:
        """Wait for all of them.

        Raises:
            DeadlockError: This task holds one, and would wait for itself.
            TimeoutError: One was not free in time; none is kept.
        """
        leases: dict[str, Lease] = {}
        path = ""
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquired_at_once(seconds)) is not None:
            return lease
        try:
            async with timeout_saying(seconds, lambda: f"{path} was not free"):
                for path, lock in self._locks.items():
                    leases[path] = await lock.acquire()
        except BaseException:  # cancelled, too
            self._give_up(leases)
            raise
        return self._acquired(MultiLease(self._client, leases))

    async def attempt(self) -> MultiLease | None:
        """Acquire all of them if they are free; None if one is not, and none is kept.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
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
                return self._acquired(MultiLease(self._client, leases))
        except BaseException:  # cancelled, too
            self._give_up(leases)
            raise
        self._give_up(leases)
        return None

    def _give_up(self, leases: dict[str, Lease]) -> None:
        for lease in reversed(leases.values()):
            self._client.spawn(lease.release())
