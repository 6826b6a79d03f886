"""A number of leases, each held by one."""

from __future__ import annotations

import asyncio
from typing import Any

from zoolet.client import serializers
from zoolet.client.arguments import checked_count, checked_timeout
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._lease import Lease, LockBase
from zoolet.client.recipes._node_names import checked_naming
from zoolet.client.recipes.lock import Lock
from zoolet.client.reliable import create_protected, delete_in_background, first_event_or
from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ClosedError, NoNodeError, SessionExpiredError


class Semaphore(LockBase[Lease]):
    """At most so many holders at a time: ``async with Semaphore(zk, "/pool", 3) as lease:``.

    Znodes, naming ``kazoo``: ``PATH/<hex>`` ephemeral, one a lease; PATH holds the number of leases as text; a waiter
    holds the lock ``PATH-__lock__``. Naming ``curator``: ``PATH/leases/_c_<uuid>-lease-<seq>`` ephemeral and
    sequential; a waiter holds the lock ``PATH/locks``. Both are shared with kazoo's Semaphore or Curator's
    InterProcessSemaphoreV2.

    Guarantees: never more holders than leases, in the order in which they asked. Only the first in line watches the
    leases, so that one client wakes up when one ends.

    Limits: all must name the same number of leases; with naming ``kazoo`` that is checked. A lease is lost as a lock's
    is; ``lease.token`` tells holders apart but does not order them.

    Args:
        client: Whose session holds it.
        path: What is shared.
        leases: How many may hold it, 1 or more.
        timeout: Seconds to wait at most; None for no limit.
        naming: ``kazoo`` or ``curator``.
        on_lost: As for Lock.
        data: What the nodes hold.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        leases: int = 1,
        *,
        timeout: float | None = None,
        naming: str = "kazoo",
        on_lost: str = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(on_lost)
        client.add_chroot(path)
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._leases = checked_count("leases", leases, 1)
        self._timeout = checked_timeout(timeout)
        self._kazoo = checked_naming(naming) == "kazoo"
        self._data = data
        self._parent = path if self._kazoo else paths.join(path, "leases")
        lock = f"{path}-__lock__" if self._kazoo else paths.join(path, "locks")
        self._line = Lock(client, lock, naming=naming, on_lost="flag", data=data)

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return False: there may be another lease."""
        return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._leases}>"

    async def acquire(self, timeout: float | None = None) -> Lease:
        """Wait for a lease.

        Args:
            timeout: Seconds to wait at most; None for what it was made with.

        Raises:
            TimeoutError: None was free in time.
            ValueError: Somebody else shares it with another number of leases.
        """
        lease: Lease | None = None
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                async with self._line as turn:
                    if self._kazoo:
                        await self._agree()
                    await self._wait_for_room(turn)
                    lease = await self._create_lease(turn)
            return lease
        except BaseException:  # cancelled, too
            if lease is not None:  # it came too late
                lease.release_nowait()
            raise

    async def attempt(self) -> Lease | None:
        """Acquire a lease if one is free and nobody waits; None otherwise, and then no node was created unless another
        one came first.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
            ValueError: Somebody else shares it with another number of leases.
        """
        if len(await self.holders()) >= self._leases:
            return None
        turn = await self._line.attempt()
        if turn is None:
            return None
        try:
            if self._kazoo:
                await self._agree()
            if len(await self.holders()) >= self._leases:
                return None
            return await self._create_lease(turn)
        finally:
            turn.release_nowait()

    async def _agree(self) -> None:
        """Check that all name the same number of leases."""
        text = str(self._leases).encode()
        try:
            data, _ = await self._client.get(self._path)
        except NoNodeError:
            await self._client.ensure_path(self._path)
            data = b""
        if not data:
            await self._client.set(self._path, text)
        elif data != text:
            raise ValueError(f"{self._path} has {data.decode(errors='replace')} leases, not {self._leases}")

    async def _wait_for_room(self, turn: Lease) -> None:
        """Wait until there are fewer leases than allowed."""
        while True:
            try:
                async with self._client.watch_children(self._parent) as watch:
                    if len(self._held(watch.initial)) < self._leases:
                        return
                    await first_event_or(turn.lost.wait(), watch)
            except NoNodeError:
                await self._client.ensure_path(self._parent)
            if turn.lost.is_set() and self._client.state is State.CLOSED:
                raise ClosedError(self._path)
            if turn.lost.is_set():
                raise SessionExpiredError(self._path, f"the place in line was lost: {turn.lost.reason}")

    async def _create_lease(self, turn: Lease) -> Lease:
        """Create the node of a lease, if the place in line is still there: a new session has none."""
        client, uuid = self._client, self._client.new_uuid()
        name = uuid.replace("-", "") if self._kazoo else f"_c_{uuid}-lease-"

        async def create() -> str:
            transaction = client.transaction(guards=turn.proof_nodes(), guard_failed=self._place_lost)
            path = paths.join(self._parent, name)
            transaction.create(path, self._data, ephemeral=True, sequential=not self._kazoo)
            return str((await transaction.commit())[0])

        node = await create_protected(client, self._parent, name, create, create_parent=client.ensure_path)
        try:
            stat = await client.exists(node)
            if stat is None:
                raise SessionExpiredError(node, "the lease is gone again")
        except BaseException:  # cancelled, too
            delete_in_background(client, node)
            raise
        return Lease(client, node, stat.czxid)

    def _place_lost(self) -> SessionExpiredError:
        return SessionExpiredError(self._path, "the place in line was lost")

    async def holders(self) -> list[str]:
        """Return the paths of the leases that are held."""
        names = self._held(await children_of(self._client, self._parent))
        return [paths.join(self._parent, name) for name in names]

    def _held(self, names: list[str]) -> list[str]:
        if self._kazoo:
            return [name for name in names if len(name) == 32 and set(name) <= set("0123456789abcdef")]
        return [name for name in names if "-lease-" in name]


class SemaphoreLock(Semaphore):
    """A lock that belongs to no task: any that has the lease may release it; it cannot be entered twice.

    A :class:`Semaphore` of one lease, with its arguments; naming ``curator`` is Curator's InterProcessSemaphoreMutex.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        *,
        timeout: float | None = None,
        naming: str = "kazoo",
        on_lost: str = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(client, path, 1, timeout=timeout, naming=naming, on_lost=on_lost, data=data)
