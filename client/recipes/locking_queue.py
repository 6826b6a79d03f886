"""A queue that redelivers the entries of dead consumers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import islice
from typing import Final

from ...protocol import paths
from ...protocol.errors import (
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
)
from ...protocol.recipe_names import ENTRIES, TAKEN
from ...protocol.records import Stat
from .. import serializers
from ..aio.limits import timeout_with_message
from ..aio.operations import BaseClient
from ..aio.reliable import MAX_REFUSALS, RefusalCounter, ensure_container
from ..aio.supervision import first_event
from ..aio.suspension import SteadyClock
from ..aio.watcher import Watcher
from ..serializers import UndecodableError, V
from ..wire.arguments import checked_backoff
from ..wire.backoff import Backoff
from ._base import checked_client
from ._contender import process_name
from ._follow import read_children, watch_list
from ._owned_node import OwnedNode, acquire_node
from ._queue_entry import QueueEntry
from .priority_queue import PriorityQueue

_log = logging.getLogger("zoolet.client")
DEFAULT_RETRY: Final = Backoff(first=0.1, longest=60.0)
"""Default delays before a failed entry is delivered again, without a limit on attempts."""


class LockingQueue(PriorityQueue[V]):
    """A queue that delivers each entry at least once::

        async with await queue.acquire() as entry:
            work(entry.value)      # success deletes the entry; an exception puts it back

    Znodes: PATH, ``PATH/entries``, ``PATH/taken`` and ``PATH/dead``, containers.
    ``PATH/entries/entry-<prio>-<seq>``, persistent and sequential; ``PATH/taken/<same name>``, ephemeral, with the host
    and process id of the consumer; both as in kazoo's LockingQueue. ``PATH/taken/<same name>-<uuid>``, ephemeral, the
    proof node of the lease. ``PATH/taken/dead-<name>``, ephemeral, and its proof node, while a dead entry is put back.
    ``PATH/dead/entry-<prio>-<seq>``, persistent, the entries that have failed too often. ``PATH/dead`` is itself a
    :class:`Queue`. Each attempt creates and deletes a child of the entry's node, so half of the node's cversion is the
    number of attempts. Its mtime is when the last attempt failed, or when the attempt of a dead consumer started.

    Guarantees: an entry has one consumer at a time. If the consumer dies, the next one gets the entry. An entry and the
    node of its consumer are deleted in one transaction, so a consumer that has lost its entry cannot acknowledge it.
    An entry that the serializer cannot read does not block the queue: it has an ``error``. Nor does an entry that
    fails repeatedly, because others are consumed during its delay.

    Limits: a consumer that is stopped for longer than its session timeout may work on an entry at the same time as the
    next one, but its acknowledgement fails. An attempt counts from its start, even if the acquire is then cancelled.
    kazoo's consumers neither count attempts nor wait.

    Args:
        client: Client that puts and consumes entries.
        path: Path of the queue.
        retry: Delays before an entry is tried again. With ``tries``, an entry moves to ``PATH/dead`` after that number
            of failed attempts. By default 0.1 s, doubled up to 60 s, without a limit on attempts.
    """

    def __init__(self, client: BaseClient[V], path: str, *, retry: Backoff = DEFAULT_RETRY) -> None:
        checked_client(client).add_chroot(path)
        super().__init__(client, paths.join(path, ENTRIES))
        self._taken = paths.join(path, TAKEN)
        self._dead = paths.join(path, "dead")
        self._retry = checked_backoff(retry)
        self._raw = self._client.with_serializer(serializers.raw)
        self._clock = SteadyClock()
        self._due: dict[str, tuple[float, int]] = {}  # end of each entry's delay, and the entry's version
        self._clock_offset: float | None = None  # server's clock minus this process's clock
        self._refused: set[str] = set()  # dead entries that the server refuses to move
        self._too_large: set[str] = set()  # entries that were put, but are too large to be changed

    async def _create_parent(self, path: str) -> None:
        await ensure_container(self._client, path, levels=2)

    async def get(self, timeout: float | None = None) -> V:
        """Acquire the first entry, acknowledge it and return its value.

        Also raises the errors of :meth:`acquire` and :meth:`QueueEntry.acknowledge`.

        Raises:
            UndecodableError: The serializer cannot read the entry, which is consumed. The error contains its bytes.
        """
        return await (await self.acquire(timeout)).consume()

    async def _pop_first(self, names: list[str]) -> list[V]:
        try:
            taken = await self._client.children(self._taken)
        except NoNodeError:
            taken = None
        entry = await self._acquire_first(names, taken)
        return [] if entry is None else [await entry.consume()]

    async def acquire(self, timeout: float | None = None) -> QueueEntry[V]:
        """Acquire the first entry that has no consumer and no delay, or wait for such an entry.

        Args:
            timeout: Longest wait in seconds; None for no limit; 0 to only acquire an entry that is available now.

        Raises:
            TimeoutError: No entry became available in time.
        """
        entry: QueueEntry[V] | None = None
        try:
            async with timeout_with_message(timeout, lambda: f"no free entry in {self._path}") as limit:
                while entry is None:
                    async with (
                        watch_list(self._client, self._path) as put,
                        watch_list(self._client, self._taken) as taken,
                    ):
                        entry = await self._acquire_first(put.initial or [], taken.initial)
                        if entry is None:
                            limit.check_may_wait()
                            await self._wait_for_change(put, taken)
        except BaseException:  # a cancellation also has to clean up
            if entry is not None:
                entry.lease.release_nowait()
            raise
        return entry

    async def _wait_for_change(self, *watches: Watcher) -> None:
        """Wait for a change, or for the end of a delay."""
        with contextlib.suppress(TimeoutError):
            now = self._clock.now()
            left = min((due - now for due, _ in self._due.values() if due > now), default=None)
            async with asyncio.timeout(left):
                await first_event(*watches)

    async def _acquire_first(self, names: list[str], taken: list[str] | None) -> QueueEntry[V] | None:
        if names and taken is None:
            await self._create_parent(self._taken)
        free = set(names).difference(taken or ())
        self._too_large &= set(names)  # names are used again after the container was deleted
        self._due = {name: due for name, due in self._due.items() if name in free}
        for path in self._entries(free):
            name = paths.name(path)
            if name in self._too_large or self._due.get(name, (0.0, 0))[0] > self._clock.now():
                continue
            try:
                data, stat = await self._raw.get(path)
                if self._is_exhausted(stat.cversion // 2):
                    await self._move_unowned_to_dead(name, stat)
                elif await self._is_due(name, stat) and (entry := await self._attempt(path, data, stat)) is not None:
                    return entry
            except NoNodeError:  # another consumer has acknowledged the entry
                continue
            except (ValueError, ConnectionLossError) as error:
                if isinstance(error, ConnectionLossError) and error.refusals < MAX_REFUSALS:
                    raise
                self._too_large.add(name)  # other entries must not wait for it
                _log.error("skipping the entry %s: too large to consume: %s", path, error)
        return None

    # --- attempts ---

    def _is_exhausted(self, attempts: int) -> bool:
        """Return whether an entry gets no further attempt after this number of attempts."""
        return self._retry.tries is not None and attempts >= self._retry.tries

    async def _is_due(self, name: str, stat: Stat) -> bool:
        """Return whether an entry may be tried now. If not, record the time when it may."""
        attempts = min(stat.cversion // 2, 1000)  # the delay reaches its maximum before 1,000 attempts
        delay = next(islice(self._retry.delays(self._client._core.rng), attempts - 1, None), 0.0) if attempts else 0.0
        if not delay:
            return True
        if self._clock_offset is None:  # a write returns the server's time, and this write triggers no watches
            self._clock_offset = (await self._raw.set(self._taken, b"")).mtime / 1000 - self._clock.now()
        # _acquire_first() has skipped this version until its delay was over.
        if name in self._due and self._due[name][1] == stat.version:
            return True
        now = self._clock.now()
        # The wait is at most the whole delay, because the server's clock may have been changed since.
        due = min(stat.mtime / 1000 - self._clock_offset, now) + delay
        self._due[name] = due, stat.version
        return due <= now

    async def _attempt(self, path: str, data: bytes, stat: Stat) -> QueueEntry[V] | None:
        """Acquire an entry, and count the attempt. Return None if another client was faster."""
        name = paths.name(path)
        lease = await self._acquire_owned(paths.join(self._taken, name), path, stat.version)
        if lease is None:
            return None
        try:
            data, stat = await self._count_attempt(path, lease)
        except BaseException as error:
            lease.release_nowait()
            if isinstance(error, NoNodeError):
                return None
            raise
        self._due.pop(name, None)
        entry: QueueEntry[V] = QueueEntry(self._raw, path, data, lease, stat.cversion // 2 + 1)
        if self._is_exhausted(entry.attempts):
            entry.move_to = self._dead_path(name)
        try:
            entry.value = self._client.serializer.read(path, data)
        except UndecodableError as error:
            entry.error = error
        return entry

    async def _acquire_owned(self, node: str, path: str, version: int) -> OwnedNode | None:
        """Acquire the right to consume or move an entry of this version. Return None if another client was faster.

        Earlier reads may be of a different entry: when the container of an empty queue is deleted, names and
        versions start again. An acquired entry stays the same, so read it only after this call.
        """
        return await acquire_node(self._raw, node, process_name(), lambda transaction: transaction.check(path, version))

    async def _count_attempt(self, path: str, lease: OwnedNode) -> tuple[bytes, Stat]:
        """Count an attempt at an owned entry. Return its data and its previous stat."""
        data, first = await self._raw.get(path)
        stat, refusals = first, RefusalCounter()
        while stat.cversion == first.cversion:  # a changed cversion shows that an attempt without reply counted
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
                refusals.check(error)
                _, stat = await self._raw.get(path)
        return data, first

    # --- dead entries ---

    def _dead_path(self, name: str) -> str:
        """Return the path for creating a dead entry of the same priority. The server appends the number to the path."""
        return paths.join(self._dead, _name_without_number(name))

    async def _move_unowned_to_dead(self, name: str, stat: Stat) -> None:
        """Move an entry whose last consumer has died to the dead entries, unless it has a new consumer."""
        path = self._child_path(name)
        lease = await self._acquire_owned(paths.join(self._taken, name), path, stat.version)
        if lease is None:
            return
        try:
            data, stat = await self._raw.get(path)
            entry: QueueEntry[V] = QueueEntry(self._raw, path, data, lease, stat.cversion // 2)
            if self._is_exhausted(entry.attempts):
                entry.move_to = self._dead_path(name)
                lease._start_exchange()  # the deletion of the node must not count as a loss
                await entry._fail()
                lease._mark_released()
        except NoNodeError:
            return
        except (NoAuthError, NotEmptyError, QuotaExceededError) as error:
            if name not in self._refused:  # other entries must not wait for a refused entry
                self._refused.add(name)
                _log.error(
                    "skipping the entry %s: it failed too often and cannot be moved to %s: %s", path, self._dead, error
                )
        finally:
            if not lease.released:
                lease.release_nowait()

    async def dead(self) -> dict[str, V | None]:
        """Return the values of the dead entries by name. The value of an unreadable entry is None."""
        values: dict[str, V | None] = {}
        for path in self._entries(await read_children(self._client, self._dead)):
            name = paths.name(path)
            with contextlib.suppress(NoNodeError):
                data, _ = await self._raw.get(paths.join(self._dead, name))
                try:
                    values[name] = self._client.serializer.read(paths.join(self._dead, name), data)
                except UndecodableError:
                    values[name] = None
        return values

    async def requeue(self, name: str) -> None:
        """Put a dead entry back in one transaction, after the entries of its priority, with no attempts counted.

        Args:
            name: Name of the entry, as in :meth:`dead`.

        Raises:
            NoNodeError: The dead entry does not exist, or another client is putting it back.
            ConnectionLossError: The connection was lost, and the entry may have been put back.
        """
        path = paths.join(self._dead, name)
        _, stat = await self._raw.get(path)
        lease = await self._acquire_owned(paths.join(self._taken, f"dead-{name}"), path, stat.version)
        if lease is None:
            raise NoNodeError(path, "another client is putting the entry back")
        try:
            data, _ = await self._raw.get(path)
            await self._create_parent(self._path)
            lease._start_exchange()  # the deletion of the node must not count as a loss
            async with lease.transaction() as transaction:
                for node in (path, lease.path, lease.proof_node):
                    transaction.delete(node)
                transaction.create(self._child_path(_name_without_number(name)), data, sequential=True)
            lease._mark_released()
        finally:
            if not lease.released:
                lease.release_nowait()


def _name_without_number(name: str) -> str:
    """Return an entry's name without its sequence number, which may be negative."""
    return "-".join([*name.split("-")[:2], ""])
