"""A lock: one holder at a time, in the order in which they asked."""

from __future__ import annotations

import asyncio

from zoolet.client import serializers
from zoolet.client.recipes._contender import Contender, Rule, wait_for_predecessor
from zoolet.client.recipes._lease import REVOKE, Lease, LockBase, checked_timeout
from zoolet.client.recipes._node_names import checked_naming, in_order
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError


class LockLease(Lease):
    """A lock that is held; with layout ``both`` it is two nodes, of which the last is the token's."""

    def __init__(self, client: ClientSurface, places: list[Contender], *, revocable: bool) -> None:
        last = places[-1]
        super().__init__(client, last.node, last.token, revocable=revocable)
        self._others = places[:-1]

    def _nodes(self) -> list[tuple[str, int]]:
        return [*super()._nodes(), *((place.node, place.token) for place in self._others)]

    def proof_nodes(self) -> list[str]:
        """Return all nodes."""
        return [node for node, _ in self._nodes()]

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Let go of both nodes."""
        calls = super().release_nowait()
        for place in reversed(self._others):
            place.leave()
        self._others = []
        return calls


class Lock(LockBase[LockLease]):
    """A fair lock: ``async with Lock(zk, "/locks/p") as held:``, or ``zk.lock("/locks/p")``.

    Znodes: ``PATH/<name>``, ephemeral and sequential, named as kazoo's Lock or Curator's InterProcessMutex; their data
    is *data*. PATH is made if it is missing, and stays.

    Guarantees: holders follow each other in the order of their nodes. When one goes, one waiter is woken. A waiter that
    gives up (timeout, cancellation, lost replies) leaves no node behind. What is got says when it is lost, see
    :mod:`zoolet.client.recipes._lease`.

    Limits: a holder that is stopped for longer than its session timeout does not know that it lost the lock until it
    goes on. Use ``held.token`` or ``held.transaction()`` for what must be right even so.

    Args:
        client: Whose session holds it.
        path: What is locked.
        timeout: Seconds to wait at the most; None for ever.
        layout: ``kazoo`` to exclude kazoo's Lock(path) too, ``curator`` to exclude Curator's InterProcessMutex(path),
            ``both`` to exclude both, at twice the price. (kazoo and Curator themselves do not exclude each other;
            kazoo's with ``extra_lock_patterns=["-lock-"]`` waits for Curator's, and Curator's does not for it.)
        on_lost: ``cancel`` cancels the task inside the ``async with`` block when the lock is lost, and the block
            raises LockLostError; ``flag`` only lets ``held.lost`` happen.
        reentrant: Let the task that holds it take it again; the last exit releases.
        revocable: Let :meth:`revoke` ask the holder to let go: ``held.revoked`` happens.
        data: What the node holds, for people to read.

    Raises:
        ValueError: An argument makes no sense.
    """

    kind = "lock"
    kinds: tuple[str, ...] = ("lock",)
    rule: Rule = staticmethod(wait_for_predecessor)

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        *,
        timeout: float | None = None,
        naming: str = "kazoo",
        on_lost: str = "cancel",
        reentrant: bool = False,
        revocable: bool = False,
        data: bytes = b"",
    ) -> None:
        super().__init__(on_lost)
        client.add_chroot(path)
        self._client = client
        self._path = path
        self._timeout = checked_timeout(timeout)
        self._namings = ("kazoo", "curator") if checked_naming(naming, "both") == "both" else (naming,)
        self._reentrant = reentrant
        self._revocable = revocable
        self._data = data

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path}>"

    async def acquire(self, timeout: float | None = None) -> LockLease:
        """Wait for the lock; give what says how long it is held, and releases it.

        Args:
            timeout: Seconds to wait at the most; None for what the lock was made with.

        Raises:
            TimeoutError: It was not free in time.
            ConnectionLossError: There was no connection in time.
            SessionExpiredError: The session ended while waiting.
        """
        seconds = self._timeout if timeout is None else timeout
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        places: list[Contender] = []
        try:
            for naming in self._namings:
                place = Contender(
                    self._client,
                    self._path,
                    naming=naming,
                    kind=self.kind,
                    kinds=self.kinds,
                    rule=self.rule,
                    data=self._data,
                )
                await place.take(None if deadline is None else max(0.0, deadline - loop.time()))
                places.append(place)
            for place in places[:-1]:  # which nobody watched over while the last one waited
                await place.confirm()
        except BaseException:
            for place in reversed(places):
                place.leave()
            raise
        return LockLease(self._client, places, revocable=self._revocable)

    async def contenders(self) -> list[str]:
        """Return the paths of all nodes in line, the holder's first."""
        try:
            names = await self._client.children(self._path)
        except NoNodeError:
            return []
        return [paths.join(self._path, entry.name) for entry in in_order(self._namings[-1], self.kinds, names)]

    async def revoke(self) -> bool:
        """Ask the holder to let go; what comes of it is the holder's choice.

        Returns:
            Whether there was somebody to ask.
        """
        line = await self.contenders()
        if not line:
            return False
        try:
            await self._client.with_serializer(serializers.raw).set(line[0], REVOKE)
        except NoNodeError:
            return False
        return True

    def _again(self, task: asyncio.Task[object] | None) -> LockLease | None:
        """Return what the task holds already, if it may enter once more."""
        if not self._reentrant:
            return None
        held = next((held for owner, held in self._inside if owner is task), None)
        if held is not None:
            held.raise_if_lost()
        return held
