"""Leader election by sequential nodes: a leader, and followers in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from zoolet.client import serializers
from zoolet.client.recipes._node_names import checked_naming, in_order
from zoolet.client.recipes.lock import Lock, LockLease
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError


class _Candidacy(Lock):
    """A lock whose nodes are named as an election's."""

    kind = "latch"
    kinds = ("latch",)


class Election:
    """One leader, and the others in the order in which they will follow::

        async with Election(zk, "/leader", b"host-1") as leadership:
            ...  # leads, until the block is left or leadership.lost happens

    Znodes: ``PATH/<name>``, ephemeral and sequential, whose data says who it is; named as kazoo's Election (a Lock) or
    Curator's LeaderLatch.

    Guarantees: whoever stood for election first leads; when it goes, the next does, and only that one is woken.
    ``leadership.token`` grows from leader to leader.

    Limits: those of Lock: a leader that is stopped does not know that it leads no more.

    Args:
        client: Whose session it is in.
        path: What is led.
        name: Who this is, for :meth:`candidates`.
        layout: ``kazoo`` or ``curator``.
        timeout: Seconds that ``async with`` waits for leadership at the most; None for ever.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        name: bytes = b"",
        *,
        naming: str = "kazoo",
        timeout: float | None = None,
        on_lost: str = "cancel",
    ) -> None:
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._naming = checked_naming(naming)
        self._line = _Candidacy(client, path, naming=naming, timeout=timeout, on_lost=on_lost, data=name)

    async def lead(self, timeout: float | None = None) -> LockLease:
        """Stand for election and wait until one leads; ``release()`` of the result resigns.

        Raises:
            TimeoutError: Others led for all that time; one does not stand any more.
        """
        return await self._line.acquire(timeout)

    async def candidates(self) -> list[bytes]:
        """Return who stands for election, the leader first."""
        try:
            names = await self._client.children(self._path)
        except NoNodeError:
            return []
        calls = [
            self._client.get(paths.join(self._path, entry.name)) for entry in in_order(self._naming, ("latch",), names)
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, NoNodeError):
                raise one
        return [one[0] for one in found if not isinstance(one, BaseException)]

    async def leader(self) -> bytes | None:
        """Return who leads; None for nobody."""
        return next(iter(await self.candidates()), None)

    async def observe(self) -> AsyncIterator[bytes | None]:
        """Iterate who leads: now, and after each change; None while nobody does."""
        last: Any = self
        while True:
            try:
                async with self._client.watch_children(self._path) as watch:
                    leader = await self.leader()
                    if leader != last:
                        last = leader
                        yield leader
                    await watch.next()
            except NoNodeError:
                await self._client.ensure_path(self._path)

    async def __aenter__(self) -> LockLease:
        return await self._line.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._line.__aexit__(*error)
