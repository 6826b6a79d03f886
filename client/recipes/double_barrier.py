"""A double barrier: all begin together and all end together."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Self

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.limits import Limit, timeout_saying
from zoolet.client.aio.reliable import create_protected, delete_in_background, ensure_container, repeat
from zoolet.client.aio.supervision import first_event
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._follow import SessionGuard, set_shared_number, shared_number
from zoolet.client.wire.arguments import checked_count, checked_timeout
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from zoolet.protocol.records import Stat


class DoubleBarrier(Recipe):
    """Begins when enough members have come, ends when all are done: ``async with DoubleBarrier(zk, "/step", 3): ...``.

    Znodes: PATH, a container unless its data are the number; ``PATH/<hex>`` ephemeral, one a member; ``PATH/ready``
    persistent, created by the member that completes the number and deleted by the last to leave. Shared with kazoo's
    and Curator's DoubleBarrier.

    The members of a round are those whose nodes are older than its ``ready``; with each ``ready`` the version of PATH
    goes up by one. So neither a ``ready`` that a crashed round has left nor the members of the next round are mistaken.

    Guarantees: no member begins before the number is complete; none ends before all of its round have left or their
    sessions have ended. Rounds can follow each other at one path. A member whose session ends while it waits raises
    SessionExpiredError. If the block raises, its error surfaces at once, and the others do not wait for this member.

    Limits: do not mix it with kazoo's in one round: that one deletes ``ready`` first, and passes at any ``ready``. A
    :meth:`resize` during a round leaves its ``ready`` until the next one.

    Args:
        members: How many must come, 1 or more; None for the number in the data of PATH, which :meth:`resize` writes.
        timeout: Seconds that entering and leaving each wait at most; None for no limit.
    """

    _serializer = serializers.raw

    def __init__(self, client: Client, path: str, members: int | None = None, *, timeout: float | None = None) -> None:
        super().__init__(client, path)
        self._ready = self._at("ready")
        self._members = None if members is None else checked_count("members", members, 1)
        self._timeout = checked_timeout(timeout)
        self._node: str | None = None
        self._former: set[str] = set()  # own nodes that were given up, and may be there still
        self._round = (0, 0)  # the czxid and the version of PATH in this round
        self._names: set[str] = set()  # of the members of this round
        self._guard: SessionGuard | None = None

    async def enter(self) -> None:
        """Come, and wait until all have come.

        Raises:
            TimeoutError: Too few came in time; this member has left again.
            SessionExpiredError: The session ended meanwhile.
            ValueError: The data of PATH is not a number. (Empty data: wait.)
        """
        client, session_id = self._client, self._client.session_id
        name = client.new_uuid().replace("-", "")  # in each round another: a delete may still be under way
        self._node = node = self._at(name)
        try:
            async with timeout_saying(self._timeout, self._who_came) as limit:
                for former in sorted(self._former):  # which would be counted as another member
                    await repeat(partial(client.delete, former), done=(NoNodeError,))
                    self._former.discard(former)
                create = partial(client.create, node, ephemeral=True)
                await create_protected(client, self._path, name, create, create_parent=self._create_barrier)
                await self._wait_for_members(node, session_id, limit)
        except BaseException:  # cancelled, too
            self._give_up()
            raise

    async def _create_barrier(self, path: str) -> None:
        if self._members is None:  # its data are the number, which must stay
            await self._client.ensure_path(path)
        else:
            await ensure_container(self._client, path)

    def _who_came(self) -> str:
        return f"{self._path}: fewer than {self._members or 'the shared number of'} members came"

    def _give_up(self) -> None:
        """Leave without waiting for the others."""
        if self._node is not None:
            self._former.add(self._node)
            delete_in_background(self._client, self._node)
            self._node = None

    async def resize(self, members: int) -> None:
        """Change how many must come, for all that were made without a number; those that wait see it at once.

        Raises:
            ValueError: It is less than 1, or this was made with a number.
        """
        if self._members is not None:
            raise ValueError(f"{self._path} was made with {self._members} members here, which cannot change")
        await set_shared_number(self._client, self._path, checked_count("members", members, 1))

    async def _wait_for_members(self, node: str, session_id: int, limit: Limit) -> None:
        client = self._client
        while True:
            async with client.watch_data(self._path) as barrier, client.watch_exists(self._ready) as watch:
                data, stat = barrier.initial
                self._guard = SessionGuard(client, watch, self._path, session_id)
                own = await client.exists(node)
                if own is None:
                    raise SessionExpiredError(node, "the session ended, or somebody deleted the node")
                ready: Stat | None = watch.initial
                if ready is not None and ready.czxid > own.czxid:
                    self._names = await self._between(0, ready.czxid)
                    _, now = await client.get(self._path)
                    same = await client.exists(self._ready)
                    if same is not None and same.czxid == ready.czxid:  # not the next round's version
                        self._round = now.czxid, now.version
                        return
                    continue
                complete = self._members or shared_number(self._path, data, "members")
                # An older one is what a round has left that crashed.
                if complete is None or len(await self._between(ready.czxid if ready else 0)) < complete:
                    limit.before_waiting()
                    await first_event(watch, barrier)
                    continue
            await self._complete(data, stat.version, ready)

    async def _between(self, first: int, last: int | None = None) -> set[str]:
        """Return the names of the members whose nodes were created between two zxids."""
        names = [name for name in await self._client.children(self._path) if name != "ready"]
        if not first and last is None:
            return set(names)
        stats = await asyncio.gather(*[self._client.exists(self._at(name)) for name in names])
        return {
            name
            for name, stat in zip(names, stats, strict=True)
            if stat is not None and stat.czxid > first and (last is None or stat.czxid < last)
        }

    async def _complete(self, data: bytes, version: int, old: Stat | None) -> None:
        """Begin the round, unless another member has done so; the caller looks what became of it."""
        transaction = self._client.transaction()
        transaction.set(self._path, data, version)
        if old is not None:
            transaction.delete(self._ready)
        transaction.create(self._ready)
        with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError, ConnectionLossError):
            await transaction.commit()

    async def leave(self) -> None:
        """Leave, and wait until all have left.

        Raises:
            TimeoutError: Others had not left in time; this member has.
        """
        node, self._node = self._node, None
        if node is None:
            return
        delete_in_background(self._client, node)  # even if this is cancelled
        others = self._names - {paths.name(node)}
        async with timeout_saying(self._timeout, lambda: f"{self._path}: others had not left") as limit:
            with contextlib.suppress(NoNodeError):  # somebody deleted the barrier itself
                while True:
                    async with self._client.watch_children(self._path) as watch:
                        if others.isdisjoint(watch.initial):
                            break
                        limit.before_waiting()
                        await watch.next()
            await repeat(self._remove_ready, done=(NoNodeError, BadVersionError))

    async def _remove_ready(self) -> None:
        czxid, version = self._round
        stat = await self._client.exists(self._path)
        if stat is None or stat.czxid != czxid:  # the server has deleted the container, and a later round has another
            return
        async with self._client.transaction() as transaction:
            transaction.check(self._path, version)  # the next round may have its own already
            transaction.delete(self._ready)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.leave()
        else:
            self._give_up()
