"""A queue whose entries are consumed at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from ...protocol import paths
from ...protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, UnimplementedError
from ...protocol.recipe_names import prefix, sort_by_arrival
from .. import serializers
from ..aio.reliable import ensure_container
from ..aio.watcher import Watcher
from ..serializers import V
from ..wire.arguments import checked_node_name, checked_timeout
from ._base import Recipe
from ._follow import read_children, watch_list

KEY_LIFETIME_SECONDS: Final = 86_400.0
"""Seconds that the key of a value is remembered after the put."""


class Queue(Recipe[V]):
    """A first-in, first-out queue: ``await queue.put(value)``, ``value = await queue.get()``.

    Znodes: ``PATH/entry-100-<seq>``, persistent and sequential, as in kazoo's Queue. ``PATH-keys/<key>`` with a TTL,
    the keys of values that were put with a key.

    Guarantees: an entry is delivered to at most one consumer.

    Limits: if the consumer dies or is cancelled, or the reply to its delete is lost (ConnectionLossError), the entry is
    lost. LockingQueue delivers at least once. All waiting consumers wake up when an entry is added. An entry that the
    serializer cannot read is consumed, and an UndecodableError with its bytes is raised. The nodes of keys stay for a
    day. On a server without TTL nodes they stay until you delete them.

    Args:
        client: Client that puts and consumes entries.
        path: Path of the queue.
    """

    async def put(self, value: V, *, key: str | None = None) -> str:
        """Put a value at the end, and return the entry's name.

        Args:
            value: Value of the entry.
            key: Name of the value, chosen by the caller. If the key was used in the last day, nothing is put, even if
                the earlier entry has been consumed, and an empty name is returned. So you can repeat the call after
                any error. If your own first call put the value and its reply was lost, the repeated call returns an
                empty name too.

        Raises:
            ConnectionLossError: The connection was lost, and the value may have been put.
            SessionExpiredError: The session ended, and the value may have been put.
            ValueError: The key is not a valid node name.
        """
        return await self._put(value, 100, key)

    async def _put(self, value: V, priority: int, key: str | None) -> str:
        path_prefix = self._child_path(prefix("kazoo", "entry", priority=priority))
        if key is not None:
            return await self._put_once(path_prefix, value, checked_node_name(key))
        while True:
            try:
                return paths.name(await self._client.create(path_prefix, value, sequential=True))
            except NoNodeError:
                await self._create_parent(self._path)

    async def _create_parent(self, path: str) -> None:
        """Create the parent node of the entries."""
        await self._client.ensure_path(path)

    async def _put_once(self, path_prefix: str, value: V, key: str) -> str:
        """Put a value, with a node for its key, and return the entry's name; an empty text for a used key."""
        client = self._client.with_serializer(serializers.raw)
        ttl: float | None = KEY_LIFETIME_SECONDS
        data, keys = self._client.serializer.encode(value), f"{self._path}-keys"
        while True:
            transaction = client.transaction()
            transaction.create(f"{keys}/{key}", ttl=ttl)
            transaction.create(path_prefix, data, sequential=True)
            try:
                return paths.name((await transaction.commit())[1])
            except NodeExistsError:
                return ""
            except NoNodeError:
                await ensure_container(client, keys)
                await self._create_parent(self._path)
            except UnimplementedError:
                ttl = None

    async def get(self, timeout: float | None = None) -> V:
        """Consume the first entry, and return its value. If the queue is empty, wait for an entry.

        Args:
            timeout: Longest wait in seconds, or None for no limit.

        Raises:
            TimeoutError: No entry was put in time.
            ConnectionLossError: The connection was lost, and an entry may have been consumed and lost.
            UndecodableError: The serializer cannot read the entry, which is consumed. The error contains its bytes.
        """
        checked_timeout(timeout)
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            async with watch_list(self._client, self._path) as watch:
                if popped := await self._pop_first(watch.initial or []):
                    return popped[0]
                await self._wait(watch, deadline, timeout)

    async def _wait(self, watch: Watcher, deadline: float | None, timeout: float | None) -> None:
        """Wait for a change until the deadline.

        The timeout applies only to this wait, because a consumed entry must be returned.
        """
        try:
            async with asyncio.timeout_at(deadline):
                await watch.next()
        except TimeoutError:
            raise TimeoutError(f"no entry in {self._path} within {timeout:g} s") from None

    async def get_nowait(self) -> V:
        """Consume the first entry, and return its value. Do not wait for an entry if the queue is empty.

        Raises:
            LookupError: The queue contains no free entry.
            ConnectionLossError: The connection was lost, and an entry may have been consumed and lost.
            UndecodableError: The serializer cannot read the entry, which is consumed. The error contains its bytes.
        """
        if popped := await self._pop_first(await read_children(self._client, self._path)):
            return popped[0]
        raise LookupError(f"no free entry in {self._path}")

    async def _pop_first(self, names: list[str]) -> list[V]:
        """Consume the first remaining entry. Return a list with its value, or an empty list."""
        for path in self._entries(names):
            try:
                data, stat = await self._client.with_serializer(serializers.raw).get(path)
                await self._client.delete(path, stat.version)
            except NoNodeError:
                continue
            except ConnectionLossError as error:
                error.add_note(f"the entry {path} may have been consumed")
                raise
            return [self._client.serializer.read(path, data)]
        return []

    async def size(self) -> int:
        """Return the number of entries."""
        return len(self._entries(await read_children(self._client, self._path)))

    def _entries(self, names: Iterable[str]) -> list[str]:
        """Return the paths of the entries in order, without other children."""
        entries = [node.name for node in sort_by_arrival("kazoo", ("entry",), names)]
        return [self._child_path(name) for name in sorted(entries, key=lambda name: int(name.split("-")[1]))]
