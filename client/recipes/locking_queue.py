"""A queue whose entries come back when their consumer dies."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from zoolet.client import serializers
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._lease import LockLostError
from zoolet.client.recipes._owned_node import OwnedNode, acquire_node
from zoolet.client.recipes.priority_queue import PriorityQueue
from zoolet.client.reliable import first_event
from zoolet.client.serializers import UndecodableError
from zoolet.client.surface import ClientSurface
from zoolet.protocol import paths
from zoolet.protocol.errors import NoNodeError, SessionExpiredError


class LockingQueue(PriorityQueue):
    """At least once::

        async with await queue.acquire() as entry:
            work(entry.value)      # the entry is gone when the block ends well, and back when it raises

    Znodes: ``PATH/entries/entry-<prio>-<seq>`` persistent and sequential; ``PATH/taken/<same name>`` ephemeral, as
    kazoo's LockingQueue; ``PATH/taken/<same name>-<uuid>`` ephemeral, the proof node of the lease.

    Guarantees: an entry has one consumer at a time, and another one if that one dies. It is deleted only together with
    the consumer's node, in one transaction: a consumer that has lost it cannot acknowledge it. An entry that the
    serializer cannot read blocks nobody: it has an ``error``.

    Limits: a consumer that is stopped longer than its session timeout may work on an entry while another one does; its
    acknowledgement fails.
    """

    def __init__(self, client: ClientSurface, path: str) -> None:
        client.add_chroot(path)
        super().__init__(client, paths.join(path, "entries"))
        self._taken = paths.join(path, "taken")

    async def get(self, timeout: float | None = None) -> Any:
        """Acquire and acknowledge the first entry at once; raises as :meth:`acquire` and :meth:`Entry.acknowledge`.

        Raises:
            UndecodableError: The serializer cannot read the entry, which is off the queue; the error has its bytes.
        """
        return await (await self.acquire(timeout)).consume()

    async def _pop_first(self, names: list[str]) -> list[Any]:
        entry = await self._acquire_first(names, await children_of(self._client, self._taken))
        return [] if entry is None else [await entry.consume()]

    async def acquire(self, timeout: float | None = None) -> Entry:
        """Acquire the first entry that has no consumer; wait for one if there is none.

        Raises:
            TimeoutError: None came in time.
        """
        watch = self._client.watch_children
        entry: Entry | None = None
        try:
            async with asyncio.timeout(timeout):
                while entry is None:
                    try:
                        async with watch(self._path) as put, watch(self._taken) as taken:
                            entry = await self._acquire_first(put.initial, taken.initial)
                            if entry is None:
                                await first_event(put, taken)
                    except NoNodeError:
                        for path in (self._path, self._taken):
                            await self._client.ensure_path(path)
        except BaseException:  # cancelled, too
            if entry is not None:
                entry.lease.release_nowait()
            raise
        return entry

    async def _acquire_first(self, names: list[str], taken: list[str]) -> Entry | None:
        client = self._client
        for path in self._entries(set(names).difference(taken)):
            node = paths.join(self._taken, path.rpartition("/")[2])
            lease = await acquire_node(client.with_serializer(serializers.raw), node, client.new_uuid().encode())
            if lease is None:
                continue
            try:
                try:
                    return Entry(path, (await client.get(path))[0], lease)
                except UndecodableError as error:
                    return Entry(path, None, lease, error)
            except BaseException as error:  # cancelled, too
                lease.release_nowait()
                if not isinstance(error, NoNodeError):  # which it is if another has acknowledged the entry
                    raise
        return None


class Entry:
    """An entry and its lease; ``async with`` acknowledges it, or releases it if the block raises.

    Attributes:
        value: What was put; None if it cannot be read.
        error: Why it cannot be read: its bytes are in ``error.data``. To acknowledge it takes it off the queue.
        lease: Its lease, with ``lost``, ``token``, ``raise_if_lost()`` and ``transaction()``.
    """

    def __init__(self, path: str, value: Any, lease: OwnedNode, error: UndecodableError | None = None) -> None:
        self._path = path
        self.value = value
        self.lease = lease
        self.error = error

    async def acknowledge(self) -> None:
        """Delete the entry.

        Raises:
            LockLostError: The lease is lost: it has another consumer, or had one.
            ConnectionLossError: It may have been deleted.
        """
        try:
            async with self.lease.transaction() as transaction:
                for path in (self._path, self.lease.path, self.lease.proof_node):
                    transaction.delete(path)
        except SessionExpiredError:
            raise LockLostError(self._path, "the session is over") from None
        except BaseException as error:
            self.lease.release_nowait()  # if it was not deleted, another consumer is to have it
            if isinstance(error, NoNodeError):
                raise LockLostError(self._path, "another consumer has acknowledged it") from None
            raise
        self.lease.mark_released()

    async def consume(self) -> Any:
        """Acknowledge it, and return its value.

        Raises:
            UndecodableError: The serializer cannot read it.
        """
        await self.acknowledge()
        if self.error is not None:
            raise self.error
        return self.value

    async def release(self) -> None:
        """Leave it to another consumer."""
        await self.lease.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await (self.acknowledge() if kind is None else self.release())
