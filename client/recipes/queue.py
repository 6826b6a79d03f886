"""A queue whose entries are consumed at most once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any, Final

from zoolet.client import serializers
from zoolet.client.aio.reliable import ensure_container
from zoolet.client.aio.watcher import Watcher
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._node_names import sorted_by_sequence
from zoolet.client.wire.arguments import checked_node_name, checked_timeout
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NodeExistsError, NoNodeError, UnimplementedError

REMEMBER_KEYS: Final = 86_400.0
"""Seconds for which the key of a value is known after it was put."""
_ENTRY: Final = re.compile(r"entry-(\d+)-(-?\d+)")


class Queue(Recipe):
    """First in, first out: ``await queue.put(value)``, ``value = await queue.get()``.

    Znodes: ``PATH/entry-100-<seq>``, persistent and sequential, as kazoo's Queue; ``PATH-keys/<key>`` with a TTL, the
    keys of what was put with one.

    Guarantees: an entry goes to one consumer at most.

    Limits: if the consumer dies or is cancelled, or the reply to its delete is lost (ConnectionLossError), the entry is
    gone; LockingQueue is at least once. All that wait wake up when an entry comes. An entry that the serializer cannot
    read is consumed, and raised as an UndecodableError, which has its bytes. The nodes of keys stay for a day; on a
    server without TTL nodes until somebody deletes them.
    """

    async def put(self, value: Any, *, key: str | None = None) -> str:
        """Put a value at the end; return the entry's name.

        Args:
            key: The caller's name for this value. A value with a key that was put before, in the last day, is not put
                again, consumed or not, and the name is empty then. So it can be repeated after any error.

        Raises:
            ConnectionLossError: It may have been put.
            SessionExpiredError: It may have been put.
            ValueError: The key is not a node's name.
        """
        return await self._put(value, 100, key)

    async def _put(self, value: Any, priority: int, key: str | None) -> str:
        prefix = self._at(f"entry-{priority:03d}-")
        if key is not None:
            return await self._put_once(prefix, value, checked_node_name(key))
        while True:
            try:
                return paths.name(await self._client.create(prefix, value, sequential=True))
            except NoNodeError:
                await self._create_parent(self._path)

    async def _create_parent(self, path: str) -> None:
        """Create the node above the entries."""
        await self._client.ensure_path(path)

    async def _put_once(self, prefix: str, value: Any, key: str) -> str:
        """Put a value in one transaction with a node for its key."""
        client = self._client.with_serializer(serializers.raw)
        ttl: float | None = REMEMBER_KEYS
        data, keys = self._client.serializer.encode(value), f"{self._path}-keys"
        while True:
            transaction = client.transaction()
            transaction.create(f"{keys}/{key}", ttl=ttl)
            transaction.create(prefix, data, sequential=True)
            try:
                return paths.name((await transaction.commit())[1])
            except NodeExistsError:
                return ""
            except NoNodeError:
                await ensure_container(client, keys)
                await self._create_parent(self._path)
            except UnimplementedError:
                ttl = None

    async def get(self, timeout: float | None = None) -> Any:
        """Consume the first entry; wait for one if there is none.

        Raises:
            TimeoutError: None came in time.
            ConnectionLossError: An entry may have been consumed and lost.
        """
        checked_timeout(timeout)
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            try:
                async with self._client.watch_children(self._path) as watch:
                    if popped := await self._pop_first(watch.initial):
                        return popped[0]
                    await self._wait(watch, deadline)
            except NoNodeError:
                await self._create_parent(self._path)

    async def _wait(self, watch: Watcher, deadline: float | None) -> None:
        """Wait for a change; nothing else has a timeout here: what is consumed is returned."""
        try:
            async with asyncio.timeout_at(deadline):
                await watch.next()
        except TimeoutError:
            raise TimeoutError(f"{self._path} had no entry in time") from None

    async def get_nowait(self) -> Any:
        """Consume the first entry.

        Raises:
            LookupError: There is none.
        """
        if popped := await self._pop_first(await children_of(self._client, self._path)):
            return popped[0]
        raise LookupError(f"{self._path}: the queue has no entry that is free")

    async def _pop_first(self, names: list[str]) -> list[Any]:
        """Consume the first of the entries that is still there; return no value or one."""
        for path in self._entries(names):
            try:
                data, stat = await self._client.with_serializer(serializers.raw).get(path)
                await self._client.delete(path, stat.version)
            except NoNodeError:
                continue
            except ConnectionLossError as error:
                error.add_note(f"the entry {path} may have been taken off the queue")
                raise
            return [self._client.serializer.read(path, data)]
        return []

    async def size(self) -> int:
        """Count the entries."""
        return len(self._entries(await children_of(self._client, self._path)))

    def _entries(self, names: Iterable[str]) -> list[str]:
        """Return the paths of the entries in order, without foreign children."""
        by_priority: dict[int, list[tuple[str, int]]] = {}
        for name in names:
            if (match := _ENTRY.fullmatch(name)) is not None:
                by_priority.setdefault(int(match[1]), []).append((self._at(name), int(match[2])))
        return [path for _, numbered in sorted(by_priority.items()) for path in sorted_by_sequence(numbered)]
