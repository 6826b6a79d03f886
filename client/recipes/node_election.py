"""Leader election with one ephemeral node: the candidate that creates it leads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from ...protocol.errors import NoNodeError
from ..aio.operations import BaseClient
from ._follow import observe
from ._lock_base import OnLost
from ._owned_node import OwnedNode
from .election import ElectionBase
from .trylock import TryLock


class NodeElection(ElectionBase[OwnedNode]):
    """An election among unordered candidates: ``async with NodeElection(zk, "/leader", b"host-1") as leadership:``.

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
        super().__init__(client, path, TryLock(client, path, timeout=timeout, on_lost=on_lost, data=name))

    async def leader(self) -> bytes | None:
        """Return the leader's name, or None while no candidate leads."""
        try:
            return bytes((await self._client.get(self._path))[0])
        except NoNodeError:
            return None

    def observe(self) -> AsyncIterator[bytes | None]:
        """Yield the leader's name, and yield it again after each change. The name is None while no candidate leads."""
        return observe(lambda: self._client.watch_exists(self._path), self.leader)
