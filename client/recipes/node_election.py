"""Leader election with one ephemeral node: the candidate that creates it leads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ...protocol.errors import NoNodeError
from .. import serializers
from ..aio.operations import BaseClient
from ._base import checked_client
from ._follow import observe
from ._lock_base import OnLost
from ._owned_node import OwnedNode
from .election import lead_for_life
from .trylock import TryLock


class NodeElection:
    """Elects a leader of unordered candidates: ``async with NodeElection(zk, "/leader", b"host-1") as leadership:``.

    Znodes: as for TryLock. The data of PATH is the leader's name.

    Guarantees: one leader at a time. ``leadership.token`` grows from leader to leader.

    Limits: all candidates wake up when the leader stops. For many candidates, use Election.

    Args:
        client: Client whose session the candidate uses.
        path: Path of the election.
        name: Name of the candidate.
        timeout: Longest wait for leadership in seconds with ``async with``, or None for no limit.
        on_lost: As for Lock.
    """

    def __init__(
        self,
        client: BaseClient[Any],
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
        """Wait for leadership. To resign, call ``release()`` of the result.

        Raises:
            TimeoutError: Others led during the whole time.
        """
        return await self._lock.acquire(timeout)

    async def attempt(self) -> OwnedNode | None:
        """Lead if the leadership is free, or return None without creating a node."""
        return await self._lock.attempt()

    async def run(self, lead: Callable[..., Awaitable[Any]]) -> None:
        """Lead whenever elected, until cancelled, as :meth:`Election.run`."""
        await lead_for_life(self, lead)

    async def leader(self) -> bytes | None:
        """Return the leader's name, or None without a leader."""
        try:
            return bytes((await self._client.get(self._path))[0])
        except NoNodeError:
            return None

    def observe(self) -> AsyncIterator[bytes | None]:
        """Yield the leader's name, and yield it again after each change. The name is None without a leader."""
        return observe(lambda: self._client.watch_exists(self._path), self.leader)

    async def __aenter__(self) -> OwnedNode:
        return await self._lock.__aenter__()

    async def __aexit__(self, *error: Any) -> None:
        await self._lock.__aexit__(*error)
