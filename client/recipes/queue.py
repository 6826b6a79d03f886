"""A queue whose entries are consumed at most once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import Any, Final

from zoolet.client import serializers
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._node_names import sorted_by_sequence
from zoolet.protocol.errors import ConnectionLossError, NoNodeError

_ENTRY: Final = re.compile(r"entry-(\d+)-(-?\d+)")


class Queue(Recipe):
    """First in, first out: ``await queue.put(value)``, ``value = await queue.get()``.

    Znodes: ``PATH/entry-100-<seq>``, persistent and sequential, as kazoo's Queue.

    Guarantees: an entry goes to one consumer at most.

    Limits: if the consumer dies or is cancelled, or the reply to its delete is lost (ConnectionLossError), the entry is
    gone; LockingQueue is at least once. All that wait wake up when an entry comes. An entry that the serializer cannot
    read is consumed, and raised as an UndecodableError, which has its bytes.
    """

    async def put(self, value: Any) -> str:
        """Put a value at the end; return the entry's name.

        Raises:
            ConnectionLossError: It may have been put.
        """
        return await self._put(value, 100)

    async def _put(self, value: Any, priority: int) -> str:
        node = await self._client.create(self._at(f"entry-{priority:03d}-"), value, sequential=True, parents=True)
        return node.rpartition("/")[2]

    async def get(self, timeout: float | None = None) -> Any:
        """Consume the first entry; wait for one if there is none.

        Raises:
            TimeoutError: None came in time.
            ConnectionLossError: An entry may have been consumed and lost.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            try:
                async with self._client.watch_children(self._path) as watch:
                    if popped := await self._pop_first(watch.initial):
                        return popped[0]
                    async with asyncio.timeout_at(deadline):  # nothing but the wait: what is consumed is returned
                        await watch.next()
            except NoNodeError:
                await self._client.ensure_path(self._path)

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
