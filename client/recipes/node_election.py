"""Leader election by one ephemeral node: whoever makes it first."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from zoolet.client import serializers
from zoolet.client.recipes._owned_node import OwnedNode
from zoolet.client.recipes.trylock import TryLock
from zoolet.client.surface import ClientSurface
from zoolet.protocol.errors import NoNodeError


class NodeElection:
    """One leader and no order among the others: ``async with NodeElection(zk, "/leader", b"host-1") as leadership:``.

    Znodes: those of a TryLock; the data of PATH is the leader's name.

    Guarantees: one leader at a time; ``leadership.token`` grows from leader to leader.

    Limits: all who wait wake up when the leader goes. For many there is Election.

    Args:
        client: Whose session it is in.
        path: What is led.
        name: Who this is.
        timeout: Seconds that ``async with`` waits for leadership at the most; None for ever.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: ClientSurface,
        path: str,
        name: bytes = b"",
        *,
        timeout: float | None = None,
        on_lost: str = "cancel",
    ) -> None:
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._lock = TryLock(client, path, timeout=timeout, on_lost=on_lost, data=name)

    async def lead(self, timeout: float | None = None) -> OwnedNode:
        """Wait until one leads; ``release()`` of the result resigns."""
        return await self._lock.acquire(timeout)

    async def leader(self) -> bytes | None:
        """Return who leads; None for nobody."""
        try:
            data, _ = await self._client.get(self._path)
        except NoNodeError:
            return None
        return bytes(data)

    async def observe(self) -> AsyncIterator[bytes | None]:
        """Iterate who leads: now, and after each change; None while nobody does."""
        last: Any = self
        while True:
            async with self._client.watch_exists(self._path) as watch:
                leader = await self.leader()
                if leader != last:
                    last = leader
                    yield leader
                await watch.next()

    async def __aenter__(self) -> OwnedNode:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)
