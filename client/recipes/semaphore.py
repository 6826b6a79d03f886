"""A number of leases, each held by one."""

from __future__ import annotations

import contextlib

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.aio.reliable import create_protected, delete_protected, ensure_container
from zoolet.client.aio.supervision import first_event_or
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._follow import children_of, set_shared_number, shared_number
from zoolet.client.recipes._lease import Lease
from zoolet.client.recipes._lock_base import LockBase, OnLost
from zoolet.client.recipes._node_names import Naming, checked_naming
from zoolet.client.recipes.lock import Lock
from zoolet.client.wire.arguments import checked_count, checked_timeout
from zoolet.client.wire.states import State
from zoolet.protocol import paths
from zoolet.protocol.errors import BadVersionError, ClosedError, NoNodeError, SessionExpiredError


class Semaphore(LockBase[Lease]):
    """At most so many holders at a time: ``async with Semaphore(zk, "/pool", 3) as lease:``.

    Znodes, naming ``kazoo``: ``PATH/<hex>`` ephemeral, one a lease; PATH holds the number of leases as text; a waiter
    holds the lock ``PATH-__lock__``. Naming ``curator``: ``PATH/leases/_c_<uuid>-lease-<seq>`` ephemeral and
    sequential; a waiter holds the lock ``PATH/locks``. Both are shared with kazoo's Semaphore or Curator's
    InterProcessSemaphoreV2. The nodes above the leases and the waiters are containers, which the server deletes some
    time after their last child; not PATH with ``leases=None``, whose number has to stay.

    Guarantees: never more leases than there are, in the order in which they were asked for. Only the first in line
    watches the leases, so that one client wakes up when one ends. Several are acquired together or not at all.

    Limits: all must name the same number of leases; with naming ``kazoo`` that is checked. A lease is lost as a lock's
    is, and several that were acquired together when one of their nodes is; ``lease.token`` tells holders apart but does
    not order them. After :meth:`resize` to a lower number those that hold more keep them.

    Args:
        client: Whose session holds it.
        path: What is shared.
        leases: How many there are, 1 or more; None for the number that was set by :meth:`resize`, at any time. Curator
            has its number elsewhere.
        timeout: Seconds to wait at most; None for no limit.
        naming: ``kazoo`` or ``curator``.
        on_lost: As for Lock.
        data: What the nodes hold.

    Raises:
        ValueError: An argument is invalid.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        leases: int | None = 1,
        *,
        timeout: float | None = None,
        naming: Naming = "kazoo",
        on_lost: OnLost = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(on_lost)
        client = checked_client(client)
        client.add_chroot(path)
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._leases = None if leases is None else checked_count("leases", leases, 1)
        self._timeout = checked_timeout(timeout)
        self._kazoo = checked_naming(naming) == "kazoo"
        self._data = data
        self._parent = path if self._kazoo else paths.join(path, "leases")
        lock = f"{path}-__lock__" if self._kazoo else paths.join(path, "locks")
        self._line = Lock(client, lock, naming=naming, on_lost="flag", data=data)

    is_exclusive = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._leases or 'a shared number'}>"

    async def acquire(self, timeout: float | None = None, *, count: int = 1) -> Lease:
        """Wait for a lease, or for several that are one.

        Args:
            timeout: Seconds to wait at most; None for what it was made with.
            count: How many, 1 or more.

        Raises:
            TimeoutError: Too few were free in time, or there was no number yet.
            ValueError: Somebody else shares it with another number of leases, or there are fewer than *count*.
        """
        self._check(count)
        seconds = self._timeout if timeout is None else checked_timeout(timeout)
        if (lease := await self._acquired_at_once(seconds, count=count)) is not None:
            return lease
        try:
            total = self._leases or "shared number of"
            text = f"fewer than {count} of the {total} leases of {self._path} were free"
            async with timeout_saying(seconds, lambda: text):
                async with self._line as turn:
                    if self._leases is not None:
                        await self._agree_on_number()
                    await self._wait_for_room(turn, count)
                    lease = await self._create_lease(turn, count)
            return lease
        except BaseException:  # cancelled, too
            if lease is not None:  # it came too late
                lease.release_nowait()
            raise

    async def attempt(self, *, count: int = 1) -> Lease | None:
        """Acquire a lease, or several, if they are free and nobody waits; None otherwise, and then no node was created
        unless another one came first.

        Raises:
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended meanwhile.
            ValueError: As for :meth:`acquire`.
        """
        self._check(count)
        if len(await self.holders()) + count > await self._agree_on_number():
            return None
        turn = await self._line.attempt()
        if turn is None:
            return None
        try:
            if len(await self.holders()) + count > await self._agree_on_number():
                return None
            return await self._create_lease(turn, count)
        finally:
            turn.release_nowait()

    async def resize(self, leases: int) -> None:
        """Change the number of leases, for all that were made with ``leases=None``; those that wait see it at once.

        Raises:
            ValueError: It is less than 1, or this was made with a number.
        """
        if self._leases is not None:
            raise ValueError(f"{self._path} was made with {self._leases} leases here, which cannot change")
        await set_shared_number(self._client, self._path, checked_count("leases", leases, 1))

    def _check(self, count: int) -> None:
        checked_count("count", count, 1)
        if self._leases is not None and count > self._leases:
            raise self._too_many(count, self._leases)

    def _too_many(self, count: int, leases: int) -> ValueError:
        return ValueError(f"count is {count}, and {self._path} has {leases} leases")

    async def _agree_on_number(self) -> int:
        """Return the number of leases, 0 if there is none yet; check that all name the same."""
        if self._leases is not None and not self._kazoo:
            return self._leases
        while True:
            try:
                data, stat = await self._client.get(self._path)
                if data or self._leases is None:
                    break
                await self._client.set(self._path, str(self._leases).encode(), stat.version)
            except NoNodeError:
                await self._create_parent(self._path)
            except BadVersionError:  # another one has set its number
                continue
        number = shared_number(self._path, data, "leases")
        if self._leases is not None and number != self._leases:
            raise ValueError(f"{self._path} has {number} leases, not {self._leases}")
        return number or 0

    async def _create_parent(self, path: str) -> None:
        """Create the node of the leases, which goes with the last of them unless it has a number that has to stay."""
        if self._leases is None:
            await self._client.ensure_path(path)
        else:
            await ensure_container(self._client, path)

    async def _wait_for_room(self, turn: Lease, count: int) -> None:
        """Wait until so many leases are free."""
        client = self._client
        while True:
            try:
                async with contextlib.AsyncExitStack() as stack:
                    watches = [await stack.enter_async_context(client.watch_children(self._parent))]
                    held, limit = len(self._held(watches[0].initial)), self._leases
                    if limit is None:
                        watches.append(await stack.enter_async_context(client.watch_data(self._path)))
                        limit = shared_number(self._path, watches[1].initial[0], "leases")
                    if limit is not None and count > limit:
                        raise self._too_many(count, limit)
                    if limit is not None and held + count <= limit:
                        return
                    await first_event_or(turn.lost.wait(), *watches)
            except NoNodeError:
                await self._create_parent(self._parent)
            if turn.lost.is_set() and client.state is State.CLOSED:
                raise ClosedError(self._path)
            if turn.lost.is_set():
                raise SessionExpiredError(self._path, f"the place in line was lost: {turn.lost.reason}")

    async def _create_lease(self, turn: Lease, count: int) -> Lease:
        """Create the nodes of a lease, if the place in line is still there: a new session has none."""
        client, uuid = self._client, self._client.new_uuid()
        prefix = uuid.replace("-", "")[:26] if self._kazoo else f"_c_{uuid}-lease-"  # what all of them have in common

        async def create() -> str:
            transaction = client.transaction(guards=turn.proof_nodes(), guard_failed=self._place_lost)
            for number in range(count):
                path = paths.join(self._parent, f"{prefix}{number:06x}" if self._kazoo else prefix)
                transaction.create(path, self._data, ephemeral=True, sequential=not self._kazoo)
            return str((await transaction.commit())[0])

        node = await create_protected(client, self._parent, prefix, create, create_parent=self._create_parent)
        try:
            nodes = [node]
            if count > 1:
                nodes = [path for path in await self.holders() if prefix in path]
            stat = await client.exists(node)
            if stat is None or len(nodes) < count:
                raise SessionExpiredError(node, "the lease is gone again")
        except BaseException:  # cancelled, too
            client.spawn(delete_protected(client, self._parent, prefix))
            raise
        first, *others = sorted(nodes)
        return self._acquired(Lease(client, first, stat.czxid, more_nodes=[(path, stat.czxid) for path in others]))

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
        client: Client,
        path: str,
        *,
        timeout: float | None = None,
        naming: Naming = "kazoo",
        on_lost: OnLost = "cancel",
        data: bytes = b"",
    ) -> None:
        super().__init__(client, path, 1, timeout=timeout, naming=naming, on_lost=on_lost, data=data)
