"""Locks below a node: holders, waiters, and clients that wait for each other."""

from __future__ import annotations

from ...protocol.deadlocks import LockStatus, Wait
from .. import serializers
from ._base import Recipe
from ._shared import ClientReader, find_deadlocks, read_lock_lines


class LockTable(Recipe):
    """The locks below a node: ``for line in await LockTable(zk, "/locks").read(): print(line)``.

    Znodes: none. It reads the nodes of Lock, ReadWriteLock, Election and the lines of semaphores, including kazoo's and
    Curator's.

    Limits: every node below PATH is listed, except contenders and queue entries. Locks with unreadable nodes are
    omitted.

    Args:
        client: Client that reads the tree.
        path: Path of the node above the locks.
    """

    _serializer = serializers.raw

    async def read(self) -> list[LockStatus]:
        """Return the locks, sorted by path. Each is a consistent snapshot, but not all are from the same moment."""
        reader = ClientReader(self._client, self._path)
        return sorted(await read_lock_lines(reader, await reader.listing()))

    async def deadlocks(self) -> list[list[Wait]]:
        """Return the deadlocks: cycles of clients that wait for each other. A cycle never resolves by itself.

        A cycle involves at least two locks. It consists of sessions: a client that holds one lock in one task and
        waits for another lock in another task is included, although its first task may still continue.
        """
        return await find_deadlocks(ClientReader(self._client, self._path), await self.read())
