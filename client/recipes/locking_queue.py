"""A queue whose entries come back when their consumer dies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import islice
from typing import Any, Final

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import timeout_saying
from zoolet.client.aio.reliable import ensure_container
from zoolet.client.aio.supervision import first_event
from zoolet.client.aio.suspension import SteadyClock
from zoolet.client.aio.watcher import Watcher
from zoolet.client.recipes._base import checked_client
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._owned_node import OwnedNode, acquire_node
from zoolet.client.recipes._queue_entry import Entry
from zoolet.client.recipes.priority_queue import PriorityQueue
from zoolet.client.serializers import UndecodableError
from zoolet.client.wire.arguments import checked_backoff
from zoolet.client.wire.backoff import Backoff
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
)
from zoolet.protocol.records import Stat

_log = logging.getLogger("zoolet.client")
RETRY: Final = Backoff(first=0.1, longest=60.0)
"""How soon an entry is tried again, and how often, unless the queue is given something else."""


class LockingQueue(PriorityQueue):
    """At least once::

        async with await queue.acquire() as entry:
            work(entry.value)      # the entry is gone when the block ends well, and back when it raises

    Znodes: ``PATH/entries``, ``PATH/taken`` and ``PATH/dead``, containers;
    ``PATH/entries/entry-<prio>-<seq>`` persistent and sequential; ``PATH/taken/<same name>`` ephemeral, as
    kazoo's LockingQueue; ``PATH/taken/<same name>-<uuid>`` ephemeral, the proof node of the lease;
    ``PATH/taken/dead-<name>`` ephemeral, and its proof node, while a dead entry is put back;
    ``PATH/dead/entry-<prio>-<seq>`` persistent, the entries that have failed too often, which is itself a
    :class:`Queue`. In each attempt a child of the entry's node is created and deleted, so that half of its cversion is
    their number; its mtime is when the last one failed, or when that one began whose consumer has died.

    Guarantees: an entry has one consumer at a time, and another one if that one dies. It is deleted only together with
    the consumer's node, in one transaction: a consumer that has lost it cannot acknowledge it. An entry that the
    serializer cannot read blocks nobody: it has an ``error``. Neither does one that fails again and again: others are
    consumed during its delay.

    Limits: a consumer that is stopped longer than its session timeout may work on an entry while another one does; its
    acknowledgement fails. An attempt counts from its beginning, also if the acquire is cancelled in that moment.
    kazoo's consumers neither count attempts nor wait.

    Args:
        retry: The delays before an entry is tried again; with ``tries``, it goes to ``PATH/dead`` when so many attempts
            have failed. By default 0.1 s, doubled up to 60 s, without end.
    """

    def __init__(self, client: Client, path: str, *, retry: Backoff = RETRY) -> None:
        checked_client(client).add_chroot(path)
        super().__init__(client, paths.join(path, "entries"))
        self._taken = paths.join(path, "taken")
        self._dead = paths.join(path, "dead")
        self._retry = checked_backoff(retry)
        self._raw = self._client.with_serializer(serializers.raw)
        self._clock = SteadyClock()
        self._due: dict[str, tuple[float, int]] = {}  # when the delays of entries are over, and of which version
        self._clock_offset: float | None = None  # of the server's clock from this one
        self._refused: set[str] = set()  # dead entries that the server refuses to move

    async def _create_parent(self, path: str) -> None:
        await ensure_container(self._client, path)

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
        """Acquire the first entry that has no consumer and no delay; wait for one if there is none.

        Args:
            timeout: Seconds to wait at most; None for no limit; 0 to acquire one only if it is there.

        Raises:
            TimeoutError: None came in time.
        """
        watch = self._client.watch_children
        entry: Entry | None = None
        try:
            async with timeout_saying(timeout, lambda: f"{self._path} had no free entry") as limit:
                while entry is None:
                    try:
                        async with watch(self._path) as put, watch(self._taken) as taken:
                            entry = await self._acquire_first(put.initial, taken.initial)
                            if entry is None:
                                limit.before_waiting()
                                await self._wait_for_change(put, taken)
                    except NoNodeError:
                        for path in (self._path, self._taken):
                            await self._create_parent(path)
        except BaseException:  # cancelled, too
            if entry is not None:
                entry.lease.release_nowait()
            raise
        return entry

    async def _wait_for_change(self, *watches: Watcher) -> None:
        """Wait until something has changed, or a delay is over."""
        with contextlib.suppress(TimeoutError):
            now = self._clock.now()
            left = min((due - now for due, _ in self._due.values() if due > now), default=None)
            async with asyncio.timeout(left):
                await first_event(*watches)

    async def _acquire_first(self, names: list[str], taken: list[str]) -> Entry | None:
        free = set(names).difference(taken)
        self._due = {name: due for name, due in self._due.items() if name in free}
        for path in self._entries(free):
            name = paths.name(path)
            if self._due.get(name, (0.0, 0))[0] > self._clock.now():
                continue
            try:
                data, stat = await self._raw.get(path)
                if self._is_exhausted(stat.cversion // 2):
                    await self._move_unowned_to_dead(name, stat)
                elif await self._is_due(name, stat) and (entry := await self._attempt(path, data, stat)) is not None:
                    return entry
            except NoNodeError:  # another one has acknowledged the entry
                continue
        return None

    # --- attempts ---

    def _is_exhausted(self, attempts: int) -> bool:
        """Return whether so many attempts are all that an entry gets."""
        return self._retry.tries is not None and attempts >= self._retry.tries

    async def _is_due(self, name: str, stat: Stat) -> bool:
        """Return whether an entry may be tried; remember when, if not."""
        attempts = min(stat.cversion // 2, 1000)  # with so many, every delay is the longest one
        delay = next(islice(self._retry.delays(self._client.rng), attempts - 1, None), 0.0) if attempts else 0.0
        if not delay:
            return True
        if self._clock_offset is None:  # any write brings the server's time; this one notifies nobody
            self._clock_offset = (await self._raw.set(self._taken, b"")).mtime / 1000 - self._clock.now()
        if name in self._due and self._due[name][1] == stat.version:  # which is over
            return True
        now = self._clock.now()
        # Never later than after the whole delay: the server's clock may have been set meanwhile.
        due = min(stat.mtime / 1000 - self._clock_offset, now) + delay
        self._due[name] = due, stat.version
        return due <= now

    async def _attempt(self, path: str, data: bytes, stat: Stat) -> Entry | None:
        """Acquire an entry, and count the attempt; None if another one was first."""
        name = paths.name(path)
        lease = await self._own(paths.join(self._taken, name), path, stat.version)
        if lease is None:
            return None
        try:
            data, stat = await self._count(path, lease)
        except BaseException as error:
            lease.release_nowait()
            if isinstance(error, NoNodeError):
                return None
            raise
        self._due.pop(name, None)
        entry = Entry(self._raw, path, data, lease, stat.cversion // 2 + 1)
        if self._is_exhausted(entry.attempts):
            entry.move_to = self._dead_path(name)
        try:
            entry.value = self._client.serializer.read(path, data)
        except UndecodableError as error:
            entry.error = error
        return entry

    async def _own(self, node: str, path: str, version: int) -> OwnedNode | None:
        """Acquire the right to take or move an entry that was seen with a version; None if another one was first.

        What was read before may be of another entry: when a queue was empty for a while its container goes, and names
        and versions begin again. From here on the entry stays the same, so read it now.
        """
        uuid = self._client.new_uuid().encode()
        return await acquire_node(self._raw, node, uuid, lambda transaction: transaction.check(path, version))

    async def _count(self, path: str, lease: OwnedNode) -> tuple[bytes, Stat]:
        """Count an attempt at an entry that is owned; return its data, and its stat before."""
        data, first = await self._raw.get(path)
        stat = first
        while stat.cversion == first.cversion:  # else it is counted, and the reply was lost
            transaction = lease.transaction()
            transaction.set(path, data, stat.version)
            transaction.create(paths.join(path, "attempt"))
            transaction.delete(paths.join(path, "attempt"))
            try:
                await transaction.commit()
                break
            except ConnectionLossError as error:
                if not error.maybe_applied:
                    raise
                _, stat = await self._raw.get(path)
        return data, first

    # --- dead entries ---

    def _dead_path(self, name: str) -> str:
        """Return the path of a dead entry, without its number: that of its priority, at the end."""
        return paths.join(self._dead, _prefix(name))

    async def _move_unowned_to_dead(self, name: str, stat: Stat) -> None:
        """Move an entry whose last consumer has died to the dead ones, unless it has a consumer again."""
        path = self._at(name)
        lease = await self._own(paths.join(self._taken, name), path, stat.version)
        if lease is None:
            return
        try:
            data, stat = await self._raw.get(path)
            entry = Entry(self._raw, path, data, lease, stat.cversion // 2)
            if self._is_exhausted(entry.attempts):
                entry.move_to = self._dead_path(name)
                lease._begin_exchange()  # its node goes now
                await entry._fail()
                lease._mark_released()
        except NoNodeError:
            return
        except (NoAuthError, NotEmptyError, QuotaExceededError) as error:
            if name not in self._refused:  # the others are not to wait for it
                self._refused.add(name)
                _log.error("%s has failed too often, and cannot be moved to %s: %s", path, self._dead, error)
        finally:
            if not lease.released:
                lease.release_nowait()

    async def dead(self) -> dict[str, Any]:
        """Return the entries that have failed too often: their values by name, None for those that cannot be read."""
        values: dict[str, Any] = {}
        for path in self._entries(await children_of(self._client, self._dead)):
            name = paths.name(path)
            with contextlib.suppress(NoNodeError):
                data, _ = await self._raw.get(paths.join(self._dead, name))
                try:
                    values[name] = self._client.serializer.read(paths.join(self._dead, name), data)
                except UndecodableError:
                    values[name] = None
        return values

    async def requeue(self, name: str) -> None:
        """Put a dead entry back, behind those of its priority, with no attempts; in one transaction.

        Args:
            name: Its name, as in :meth:`dead`.

        Raises:
            NoNodeError: There is no such dead entry, or another client puts it back at this moment.
            ConnectionLossError: It may have been put back.
        """
        path = paths.join(self._dead, name)
        _, stat = await self._raw.get(path)
        lease = await self._own(paths.join(self._taken, f"dead-{name}"), path, stat.version)
        if lease is None:
            raise NoNodeError(path, "another one puts it back")
        try:
            data, _ = await self._raw.get(path)
            await ensure_container(self._client, self._path)
            lease._begin_exchange()  # its node goes now
            async with lease.transaction() as transaction:
                for node in (path, lease.path, lease.proof_node):
                    transaction.delete(node)
                transaction.create(self._at(_prefix(name)), data, sequential=True)
            lease._mark_released()
        finally:
            if not lease.released:
                lease.release_nowait()


def _prefix(name: str) -> str:
    """Return an entry's name without its number, which may be negative."""
    return "-".join([*name.split("-")[:2], ""])
