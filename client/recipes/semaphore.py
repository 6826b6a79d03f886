"""A semaphore: a limited number of leases, each with one holder."""

from __future__ import annotations

import contextlib
from typing import Any

from ...protocol import paths
from ...protocol.errors import BadVersionError, ClosedError, NoNodeError, SessionExpiredError
from ...protocol.recipe_names import Naming, matches_kind, prefix, semaphore_at
from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..aio.reliable import create_protected, delete_protected, ensure_container
from ..aio.supervision import first_event
from ..aio.watcher import Watcher
from ..wire.arguments import checked_count, checked_timeout
from ..wire.states import State
from ._base import checked_client, checked_naming
from ._contender import NODE_LOST_REASON
from ._follow import parse_shared_number, read_children, set_shared_number, watch_list
from ._lease import Lease
from ._lock_base import LockBase, OnLost
from .lock import Lock


class Semaphore(LockBase[Lease]):
    """A limit on the number of simultaneous holders: ``async with Semaphore(zk, "/pool", 3) as lease:``.

    Znodes, naming ``kazoo``: ``PATH/<hex>`` ephemeral, one per lease. PATH contains the number of leases as text. A
    waiter holds the lock ``PATH-__lock__``. Naming ``curator``: ``PATH/leases/_c_<uuid>-lease-<seq>`` ephemeral and
    sequential. A waiter holds the lock ``PATH/locks``. kazoo's Semaphore and Curator's InterProcessSemaphoreV2 use the
    same nodes. PATH and the parents of the leases and waiters are containers, which the server deletes some time after
    their last child. The exception is PATH with ``leases=None``, because its number must be kept.

    Guarantees: leases never exceed the limit, and are granted in the order of the requests. Only the first in line
    watches the leases, so only one client wakes up when a lease is released. Several leases are acquired together or
    not at all.

    Limits: all clients must use the same number of leases. Naming ``kazoo`` checks this. A lease is lost like a Lock's
    lease. Leases that were acquired together are lost when one of their nodes is lost. ``lease.token`` distinguishes
    holders but does not order them. After :meth:`resize` to a lower number, clients keep the leases that they hold.

    Args:
        client: Client whose session holds the leases.
        path: Path of the semaphore.
        leases: Number of leases, at least 1, or None for the number set by :meth:`resize`, which can be called at any
            time. Curator stores its number in a different place.
        timeout: Longest wait in seconds, or None for no limit.
        naming: ``kazoo`` or ``curator``.
        on_lost: As for Lock.
        data: Human-readable data of the nodes, by default host and process id, as for Lock.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        leases: int | None = 1,
        *,
        timeout: float | None = None,
        naming: Naming = "kazoo",
        on_lost: OnLost = "cancel",
        data: bytes | None = None,
    ) -> None:
        client = checked_client(client)
        super().__init__(on_lost, client)
        client.add_chroot(path)
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._leases = None if leases is None else checked_count("leases", leases, 1)
        self._timeout = checked_timeout(timeout)
        self._naming = checked_naming(naming)
        self._is_kazoo = naming == "kazoo"
        places = semaphore_at(naming, path)
        self._parent = places.leases
        self._line_lock = Lock(client, places.lock, naming=naming, on_lost="flag", data=data)
        self._data = self._line_lock.data
        self._line_lock.levels = self._levels = 1 if self._is_kazoo or leases is None else 2

    is_exclusive = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._leases or 'a shared number'}>"

    async def acquire(self, timeout: float | None = None, *, count: int = 1) -> Lease:
        """Wait for a lease, or for *count* leases that are acquired and released as one.

        Args:
            timeout: Longest wait in seconds, or None for the semaphore's own timeout.
            count: Number of leases, at least 1.

        Raises:
            TimeoutError: Too few leases were free in time, or no number has been set yet.
            ValueError: Another client uses a different number of leases, or the semaphore has fewer than *count*.
        """
        self._check_count(count)
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquire_nowait(seconds, count=count)) is not None:
            return lease
        try:
            of_all = f" of {self._leases}" if self._leases else ""
            text = f"{self._path} had fewer than {count} free lease{'s' * (count != 1)}{of_all}"
            async with timeout_with_message(seconds, lambda: text):
                async with self._line_lock as turn:
                    if self._leases is not None:
                        await self._agree_on_number()
                    await self._wait_for_free_leases(turn, count)
                    lease = await self._create_lease(turn, count)
            return lease
        except BaseException:  # a cancelled task also has to delete its nodes
            if lease is not None:  # the lease was acquired, but the caller cannot receive it
                lease.release_nowait()
            raise

    async def attempt(self, *, count: int = 1) -> Lease | None:
        """Acquire a lease, or *count* leases, if they are free and no client waits. Otherwise return None.

        If None is returned, a node was created only if another client was faster during the attempt.

        Raises:
            ConnectionLossError: No connection was available in time.
            SessionExpiredError: The session ended during the attempt.
            ValueError: As for :meth:`acquire`.
        """
        self._check_count(count)
        if len(await self.holders()) + count > await self._agree_on_number():
            return None
        turn = await self._line_lock.attempt()
        if turn is None:
            return None
        try:
            if len(await self.holders()) + count > await self._agree_on_number():
                return None
            return await self._create_lease(turn, count)
        finally:
            turn.release_nowait()

    async def resize(self, leases: int) -> None:
        """Change the number of leases for all semaphores with ``leases=None``. Waiting clients see it immediately.

        Raises:
            ValueError: *leases* is less than 1, or this semaphore was created with a number.
        """
        if self._leases is not None:
            raise ValueError(f"{self._path} has a fixed number of leases ({self._leases}); resize() needs leases=None")
        await set_shared_number(self._client, self._path, checked_count("leases", leases, 1))

    def _check_count(self, count: int) -> None:
        checked_count("count", count, 1)
        if self._leases is not None and count > self._leases:
            raise self._too_many_error(count, self._leases)

    def _too_many_error(self, count: int, leases: int) -> ValueError:
        return ValueError(f"count is {count}, but {self._path} has only {leases} leases")

    async def _agree_on_number(self) -> int:
        """Return the number of leases; 0 if no number is set.

        If the semaphore was created without a number, return the number in the node. With naming ``kazoo``, compare the
        semaphore's number with that number, and write it if the node has none.

        Raises:
            ValueError: The clients use different numbers.
        """
        if self._leases is not None and not self._is_kazoo:
            return self._leases
        while True:
            try:
                data, stat = await self._client.get(self._path)
                if data or self._leases is None:
                    break
                await self._client.set(self._path, str(self._leases).encode(), stat.version)
            except NoNodeError:
                if self._leases is None:
                    return 0
                await self._create_parent(self._path)
            except BadVersionError:  # another client has set its number
                continue
        number = parse_shared_number(self._path, data, "leases")
        if self._leases is not None and number != self._leases:
            raise ValueError(
                f"{self._path} has {number} leases, not {self._leases}; use the same number in every client"
            )
        return number or 0

    async def _create_parent(self, path: str) -> None:
        """Create the parent node of the leases: a container, unless it must keep the number of leases."""
        if self._leases is None and path == self._path:
            await self._client.ensure_path(path)
        else:
            await ensure_container(self._client, path, levels=self._levels)

    async def _wait_for_free_leases(self, turn: Lease, count: int) -> None:
        """Wait until *count* leases are free."""
        client = self._client
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    watches: list[Watcher[Any]] = [await stack.enter_async_context(watch_list(client, self._parent))]
                    held, limit = len(self._lease_names(watches[0].initial or [])), self._leases
                    if limit is None:
                        watches.append(await stack.enter_async_context(client.watch_data(self._path)))
                        limit = parse_shared_number(self._path, watches[1].initial[0], "leases")
                    if limit is not None and count > limit:
                        raise self._too_many_error(count, limit)
                    if limit is not None and held + count <= limit:
                        return
                    await first_event(turn.lost.wait(), *watches)
            except NoNodeError:
                await self._create_parent(self._path)
            if turn.lost._happened and client.state is State.CLOSED:
                raise ClosedError(self._path)
            if turn.lost._happened:
                raise SessionExpiredError(self._path, f"lost the place in the queue: {turn.lost.reason}")

    async def _create_lease(self, turn: Lease, count: int) -> Lease:
        """Create the nodes of a lease, unless the place in line was lost, for example with the session."""
        client = self._client
        own = prefix(self._naming, "lease", client._core.new_uuid())
        common = own[:26] if self._is_kazoo else own

        async def create() -> str:
            transaction = client.transaction(guards=turn.proof_nodes(), guard_failed=self._place_lost_error)
            for number in range(count):
                path = paths.join(self._parent, f"{common}{number:06x}" if self._is_kazoo else common)
                transaction.create(path, self._data, ephemeral=True, sequential=not self._is_kazoo)
            return str((await transaction.commit())[0])

        node = await create_protected(client, self._parent, common, create, create_parent=self._create_parent)
        try:
            nodes = [node]
            if count > 1:
                nodes = [path for path in await self.holders() if common in path]
            stat = await client.exists(node)
            if stat is None or len(nodes) < count:
                raise SessionExpiredError(node, NODE_LOST_REASON)
        except BaseException:  # a cancelled task also has to delete its nodes
            client._core.spawn(delete_protected(client, self._parent, common))
            raise
        first, *others = sorted(nodes)
        return self._record_holder(Lease(client, first, stat.czxid, more_nodes=[(path, stat.czxid) for path in others]))

    def _place_lost_error(self) -> SessionExpiredError:
        return SessionExpiredError(self._path, "the place in line was lost")

    async def holders(self) -> list[str]:
        """Return the paths of the held leases."""
        names = self._lease_names(await read_children(self._client, self._parent))
        return [paths.join(self._parent, name) for name in names]

    def _lease_names(self, names: list[str]) -> list[str]:
        return [name for name in names if matches_kind(self._naming, "lease", name)]


class SemaphoreLock(Semaphore):
    """A lock that belongs to no task: any task that has the lease may release it. It cannot be entered twice.

    It is a :class:`Semaphore` with one lease and takes its arguments. With naming ``curator`` it is compatible with
    Curator's InterProcessSemaphoreMutex.
    """

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        *,
        timeout: float | None = None,
        naming: Naming = "kazoo",
        on_lost: OnLost = "cancel",
        data: bytes | None = None,
    ) -> None:
        super().__init__(client, path, 1, timeout=timeout, naming=naming, on_lost=on_lost, data=data)
