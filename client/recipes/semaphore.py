"""A number of leases, each held by one."""

from __future__ import annotations

import asyncio

from zoolet.client import serializers
from zoolet.client.recipes._lease import Lease, LockBase, checked_timeout
from zoolet.client.recipes._node_names import checked_naming
from zoolet.client.recipes.lock import Lock
from zoolet.client.reliable import create_protected, delete_guaranteed
from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ClosedError, NodeExistsError, NoNodeError, SessionExpiredError


class Semaphore(LockBase[Lease]):
    """At most so many holders at a time: ``async with Semaphore(zk, "/pool", 3) as held:``.

    Znodes, layout ``kazoo``: ``PATH/<hex>`` ephemeral, one a lease; PATH holds the number of leases as text; whoever
    waits holds the lock ``PATH-__lock__``. Layout ``curator``: ``PATH/leases/_c_<uuid>-lease-<seq>`` ephemeral and
    sequential; whoever waits holds the lock ``PATH/locks``. Both are shared with kazoo's Semaphore or Curator's
    InterProcessSemaphoreV2.

    Guarantees: never more holders than leases, in the order in which they asked. Only the first in line watches the
    leases, so that one client wakes up when one ends.

    Limits: all must name the same number of leases; with layout ``kazoo`` that is checked. A lease is lost as a lock
    is, see :mod:`zoolet.client.recipes._lease`; ``held.token`` tells holders apart but does not order them.

    Args:
        client: Whose session holds it.
        path: What is shared.
        leases: How many may hold it, 1 or more.
        timeout: Seconds to wait at the most; None for ever.
        layout: ``kazoo`` or ``curator``.
        on_lost: As for Lock.
        data: What the nodes hold.

    Raises:
        ValueError: An argument makes no sense.
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
        if not isinstance(leases, int) or leases < 1:
            raise ValueError(f"leases is {leases!r}; it must be 1 or more")
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._leases = leases
        self._timeout = checked_timeout(timeout)
        self._kazoo = checked_naming(naming) == "kazoo"
        self._data = data
        self._under = path if self._kazoo else paths.join(path, "leases")
        guard = f"{path}-__lock__" if self._kazoo else paths.join(path, "locks")
        self._line = Lock(client, guard, naming=naming, on_lost="flag", data=data)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path} of {self._leases}>"

    async def acquire(self, timeout: float | None = None) -> Lease:
        """Wait for a lease.

        Args:
            timeout: Seconds to wait at the most; None for what it was made with.

        Raises:
            TimeoutError: None was free in time.
            ValueError: Somebody else shares it with another number of leases.
        """
        leased: list[Lease] = []
        try:
            async with asyncio.timeout(self._timeout if timeout is None else timeout):
                async with self._line as turn:
                    if self._kazoo:
                        await self._agree()
                    await self._room(turn)
                    leased.append(await self._lease())
            return leased[0]
        except BaseException:
            for held in leased:  # it came too late
                held.release_nowait()
            raise

    async def _agree(self) -> None:
        text = str(self._leases).encode()
        try:
            found, _ = await self._client.get(self._path)
        except NoNodeError:
            await self._client.ensure_path(self._path)
            found = b""
        if not found:
            await self._client.set(self._path, text)
        elif found != text:
            raise ValueError(f"{self._path} has {found.decode(errors='replace')} leases, not {self._leases}")

    async def _room(self, turn: Lease) -> None:
        """Wait until there are fewer leases than allowed."""
        while True:
            try:
                async with self._client.watch_children(self._under) as watch:
                    if len(self._holders(watch.initial)) < self._leases:
                        return
                    change = asyncio.ensure_future(watch.next())
                    lost = asyncio.ensure_future(turn.lost.wait())
                    try:
                        await asyncio.wait((change, lost), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        change.cancel()
                        lost.cancel()
                    if turn.lost.is_set() and self._client.state is State.CLOSED:
                        raise ClosedError(self._path)
                    if turn.lost.is_set():
                        raise SessionExpiredError(self._path, f"the place in line was lost: {turn.lost.reason}")
            except NoNodeError:
                await self._client.ensure_path(self._under)

    async def _lease(self) -> Lease:
        client, new_uuid = self._client, self._client.new_uuid()
        name = new_uuid.replace("-", "") if self._kazoo else f"_c_{new_uuid}-lease-"
        mark = name

        czxid = 0

        async def make() -> str:
            nonlocal czxid
            try:
                node, stat = await client.create_and_stat(
                    paths.join(self._under, name), self._data, ephemeral=True, sequential=not self._kazoo
                )
            except NodeExistsError:  # a UUID of ours: made by the try whose reply was lost
                return paths.join(self._under, name)
            czxid = stat.czxid
            return node

        node = await create_protected(client, self._under, mark, make)
        if not czxid:
            try:
                stat = await client.exists(node)
            except BaseException:
                client.spawn(delete_guaranteed(client, node))
                raise
            if stat is None:
                raise SessionExpiredError(node, "the lease is gone again")
            czxid = stat.czxid
        return Lease(client, node, czxid)

    async def holders(self) -> list[str]:
        """Return the paths of the leases that are held."""
        try:
            names = await self._client.children(self._under)
        except NoNodeError:
            return []
        return [paths.join(self._under, name) for name in self._holders(names)]

    def _holders(self, names: list[str]) -> list[str]:
        if self._kazoo:
            return [name for name in names if len(name) == 32 and set(name) <= set("0123456789abcdef")]
        return [name for name in names if "-lease-" in name]


class SemaphoreLock(Semaphore):
    """A lock that belongs to nobody: whoever has the handle may release it; it cannot be entered twice.

    Znodes, guarantees and limits: those of a :class:`Semaphore` of one lease; with layout ``curator`` shared with
    Curator's InterProcessSemaphoreMutex.

    Args:
        client: Whose session holds it.
        path: What is locked.
        **options: As for Semaphore.
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
