"""A queue: whoever takes an entry first has it; an entry is taken at most once."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

from zoolet.client import serializers
from zoolet.client.recipes._node_names import sorted_by_sequence
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import ConnectionLossError, NoNodeError

_ENTRY: Final = re.compile(r"entry-(\d+)-(-?\d+)")


class Queue:
    """First in, first out: ``await queue.put(value)``, ``value = await queue.get()``.

    Znodes: ``PATH/entry-100-<seq>``, persistent and sequential, as kazoo's Queue.

    Guarantees: an entry is given to one taker at the most. Those that wait share one watch each on PATH.

    Limits: at most once: if the taker dies or is cancelled, or the reply to its delete is lost, the entry is gone
    (``get`` raises ConnectionLossError then). For at least once there is LockingQueue. A put whose reply was lost may
    have been done. All who wait wake up when an entry comes. An entry that the codec cannot read is taken, and raised
    as an UndecodableError, which has its bytes.

    Args:
        client: Whose session it uses; its codec writes the values.
        path: The queue.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        self._client = client
        self._path = path

    def _name(self, priority: int) -> str:
        return f"entry-{priority:03d}-"

    async def put(self, value: Any) -> str:
        """Put a value at the end; give the entry's name.

        Raises:
            ConnectionLossError: It may have been put.
        """
        return await self._put(value, 100)

    async def _put(self, value: Any, priority: int) -> str:
        path = paths.join(self._path, self._name(priority))
        node = await self._client.create(path, value, sequential=True, parents=True)
        return node.rpartition("/")[2]

    async def get(self, timeout: float | None = None) -> Any:
        """Take the first entry; wait for one if there is none.

        Raises:
            TimeoutError: None came in time.
            ConnectionLossError: An entry may have been taken and lost.
        """
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            try:
                async with self._client.watch_children(self._path) as watch:
                    for name in self._sorted(watch.initial):
                        taken, value = await self._take(paths.join(self._path, name))
                        if taken:
                            return value
                    async with asyncio.timeout_at(deadline):  # nothing but the wait: what is taken is given
                        await watch.next()
            except NoNodeError:
                await self._client.ensure_path(self._path)

    async def get_nowait(self) -> Any:
        """Take the first entry.

        Raises:
            LookupError: There is none.
        """
        try:
            names = await self._client.children(self._path)
        except NoNodeError:
            names = []
        for name in self._sorted(names):
            taken, value = await self._take(paths.join(self._path, name))
            if taken:
                return value
        raise LookupError(f"{self._path}: the queue is empty")

    async def _take(self, path: str) -> tuple[bool, Any]:
        try:
            data, stat = await self._client.with_serializer(serializers.raw).get(path)
            await self._client.delete(path, stat.version)
        except NoNodeError:
            return False, None
        except ConnectionLossError as error:
            error.add_note(f"the entry {path} may have been taken off the queue")
            raise
        return True, self._client.serializer.read(path, data)

    async def size(self) -> int:
        """Count the entries."""
        try:
            return len(self._sorted(await self._client.children(self._path)))
        except NoNodeError:
            return 0

    def _sorted(self, names: list[str]) -> list[str]:
        """Put the entries in order; foreign children are passed over."""
        lines: dict[int, list[tuple[str, int]]] = {}
        for name in names:
            if (match := _ENTRY.fullmatch(name)) is not None:
                lines.setdefault(int(match[1]), []).append((name, int(match[2])))
        return [name for priority in sorted(lines) for name in sorted_by_sequence(lines[priority])]
