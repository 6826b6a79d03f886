"""Leader election by one ephemeral node: the candidate that creates it leads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._follow import observe
from zoolet.client.recipes._lock_base import OnLost
from zoolet.client.recipes._owned_node import OwnedNode
from zoolet.client.recipes.election import lead_for_life
from zoolet.client.recipes.trylock import TryLock
from zoolet.protocol.errors import NoNodeError


class NodeElection:
    """One leader and no order among the others: ``async with NodeElection(zk, "/leader", b"host-1") as leadership:``.

    Znodes: those of a TryLock; the data of PATH is the leader's name.

    Guarantees: one leader at a time; ``leadership.token`` grows from leader to leader.

    Limits: all that wait wake up when the leader goes. For many there is Election.

    Args:
        client: Whose session it is in.
        path: What is led.
        name: The candidate's name.
        timeout: Seconds that ``async with`` waits for leadership at most; None for no limit.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        name: bytes = b"",
        *,
        timeout: float | None = None,
        on_lost: OnLost = "cancel",
    ) -> None:
        self._client = checked_client(client).with_serializer(serializers.raw)
        self._path = path
        self._lock = TryLock(client, path, timeout=timeout, on_lost=on_lost, data=name)

    async def lead(self, timeout: float | None = None) -> OwnedNode:
        """Wait for leadership; ``release()`` of the result resigns."""
        return await self._lock.acquire(timeout)

    async def attempt(self) -> OwnedNode | None:
        """Lead if nobody does; None if somebody does, and then no node was created."""
        return await self._lock.attempt()

    async def run(self, lead: Callable[..., Awaitable[Any]]) -> None:
        """Lead whenever elected, for life; as :meth:`Election.run`."""
        await lead_for_life(self, lead)

    async def leader(self) -> bytes | None:
        """Return the leader's name; None if there is no leader."""
        try:
            return bytes((await self._client.get(self._path))[0])
        except NoNodeError:
            return None

    async def observe(self) -> AsyncIterator[bytes | None]:
        """Iterate the leader's name: now, and after each change; None while there is none."""
        watch = self._client.watch_exists
        async for leader in observe(self._client, lambda: watch(self._path), self.leader, self._path):
            yield leader

    async def __aenter__(self) -> OwnedNode:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)
