"""A queue whose entries come back when their taker dies."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self

from zoolet.client import serializers
from zoolet.client.recipes._lease import LockLostError
from zoolet.client.recipes._owned_node import OwnedNode, acquire_node
from zoolet.client.recipes.queue import Queue
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError, SessionExpiredError


class LockingQueue(Queue):
    """At least once::

        async with await queue.take() as entry:
            work(entry.value)      # the entry is gone when the block ends well, and back when it raises

    Znodes: ``PATH/entries/entry-<prio>-<seq>`` persistent and sequential; ``PATH/taken/<same name>`` ephemeral, whose
    data is a unique name of the taker; as kazoo's LockingQueue. And ``PATH/taken/<same name>-<uuid>``, see
    :mod:`.claim`.

    Guarantees: an entry is worked on by one taker at a time, and by another one if that one dies. It is removed only
    together with the taker's node, in one transaction: whoever has lost it cannot acknowledge it.

    Limits: a taker that is stopped longer than its session timeout may work on an entry while another one does; its
    acknowledgement fails. ``entry.held`` is what Lock's is.

    Args:
        client: Whose session it is in; its codec writes the values.
        path: The queue.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        super().__init__(client, paths.join(path, "entries"))
        self._taken = paths.join(path, "taken")

    async def put(self, value: Any, priority: int = 100) -> str:
        """Put a value; give the entry's name.

        Raises:
            ValueError: The priority is not from 0 to 999.
            ConnectionLossError: It may have been put.
        """
        if not isinstance(priority, int) or not 0 <= priority <= 999:
            raise ValueError(f"priority is {priority!r}; it must be from 0 to 999")
        return await self._put(value, priority)

    async def get(self, timeout: float | None = None) -> Any:
        """Take and acknowledge the first entry at once."""
        entry = await self.take(timeout)
        await entry.acknowledge()
        return entry.value

    async def get_nowait(self) -> Any:
        """Take and acknowledge the first entry that nobody works on.

        Raises:
            LookupError: There is none.
        """
        try:
            names = await self._client.children(self._path)
        except NoNodeError:
            names = []
        entry = await self._first_of(names)
        if entry is None:
            raise LookupError(f"{self._path}: there is no entry that nobody works on")
        await entry.acknowledge()
        return entry.value

    async def take(self, timeout: float | None = None) -> Entry:
        """Take the first entry that nobody works on; wait for one if there is none.

        Raises:
            TimeoutError: None came in time.
        """
        claimed: list[Entry] = []
        try:
            async with asyncio.timeout(timeout):
                await self._wait_for_one(claimed)
            return claimed[0]
        except BaseException:
            for entry in claimed:  # it came too late, or its taker is no more
                entry.held.release_nowait()
            raise

    async def _wait_for_one(self, claimed: list[Entry]) -> None:
        client = self._client
        await client.ensure_path(self._path)
        await client.ensure_path(self._taken)
        while True:
            async with client.watch_children(self._path) as put, client.watch_children(self._taken) as freed:
                entry = await self._first_of(put.initial)
                if entry is not None:
                    claimed.append(entry)
                    return
                changes = [asyncio.ensure_future(put.next()), asyncio.ensure_future(freed.next())]
                try:
                    await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for change in changes:
                        change.cancel()

    async def _first_of(self, names: list[str]) -> Entry | None:
        try:
            busy = set(await self._client.children(self._taken))
        except NoNodeError:
            await self._client.ensure_path(self._taken)
            busy = set()
        for name in self._sorted([name for name in names if name not in busy]):
            entry = await self._claim(name)
            if entry is not None:
                return entry
        return None

    async def _claim(self, name: str) -> Entry | None:
        client, path = self._client, paths.join(self._path, name)
        held = await acquire_node(
            client.with_serializer(serializers.raw), paths.join(self._taken, name), client.new_uuid().encode()
        )
        if held is None:
            return None
        try:
            value, _ = await client.get(path)
        except NoNodeError:  # somebody has done with it
            held.release_nowait()
            return None
        except BaseException:
            held.release_nowait()
            raise
        return Entry(path, value, held)


class Entry:
    """An entry that one works on; ``async with`` acknowledges it, or lets it go if the block raises.

    Attributes:
        value: What was put.
        held: The hold on it, with ``lost``, ``token``, ``ensure()`` and ``transaction()``.
    """

    def __init__(self, path: str, value: Any, held: OwnedNode) -> None:
        self._path = path
        self.value = value
        self.held = held

    async def acknowledge(self) -> None:
        """Remove the entry for good.

        Raises:
            LockLostError: It is not one's own any more: another one works on it, or has.
            ConnectionLossError: It may have been removed.
        """
        try:
            async with self.held.transaction() as transaction:
                transaction.delete(self._path)
                transaction.delete(self.held.path)
                transaction.delete(self.held.proof_node)
        except NoNodeError:
            self.held.release_nowait()
            raise LockLostError(self._path, "somebody else has removed it") from None
        except SessionExpiredError:
            raise LockLostError(self._path, "the session is over") from None
        except BaseException:
            self.held.release_nowait()  # if it was not removed, another one is to have it
            raise
        self.held.mark_released()

    async def release(self) -> None:
        """Let another one work on it."""
        await self.held.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.acknowledge()
        else:
            await self.release()
