"""A double barrier: all members start together and finish together."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Any, Self

from ...protocol import paths
from ...protocol.errors import (
    BadVersionError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)
from ...protocol.recipe_names import READY
from ...protocol.records import Stat
from .. import serializers
from ..aio.limits import Limit, limited_outage, timeout_with_message
from ..aio.operations import BaseClient
from ..aio.reliable import create_protected, delete_in_background, ensure_container, repeat
from ..aio.supervision import first_event
from ..wire.arguments import checked_count, checked_timeout
from ._base import STOP_TIMEOUT, Recipe
from ._contender import NODE_LOST_REASON
from ._follow import SessionGuard, parse_shared_number, set_shared_number


class DoubleBarrier(Recipe):
    """A barrier at which members start and finish together: ``async with DoubleBarrier(zk, "/step", 3): ...``.

    Znodes: PATH, a container unless its data is the number of members; ``PATH/<hex>`` ephemeral, one per member;
    ``PATH/ready`` persistent, created when all members have arrived and deleted by the last to leave.
    kazoo's and Curator's DoubleBarrier use the same nodes.

    The members of a round are those whose nodes are older than its ``ready``. Each new ``ready`` increments the version
    of PATH. A ``ready`` left over from a crashed round, or a member of the next round, therefore causes no confusion.

    Guarantees: no member starts before all have arrived. No member finishes before all members of its round have left
    or lost their sessions. Rounds can follow each other at one path. A member whose session ends while it waits
    raises SessionExpiredError. If the block raises, its error propagates immediately, and the others do not wait for
    this member.

    Limits: do not mix it with kazoo's DoubleBarrier in one round, because kazoo deletes ``ready`` first and accepts any
    ``ready``. If :meth:`resize` is called during a round, its ``ready`` stays until the next round.

    Args:
        client: Client whose session owns the node of the member.
        path: Path of the barrier.
        members: Number of members that must arrive, at least 1. With None, the number is the data of PATH, which
            :meth:`resize` writes.
        timeout: Maximum wait in seconds, separately for entering and for leaving; None for no limit.
    """

    _serializer = serializers.raw

    def __init__(
        self, client: BaseClient[Any], path: str, members: int | None = None, *, timeout: float | None = None
    ) -> None:
        super().__init__(client, path)
        self._ready = self._child_path(READY)
        self._members = None if members is None else checked_count("members", members, 1)
        self._timeout = checked_timeout(timeout)
        self._node: str | None = None
        self._abandoned: set[str] = set()  # abandoned nodes of this member, which may still exist
        self._round = (0, 0)  # czxid and version of PATH in this round
        self._names: set[str] = set()  # members of this round
        self._guard: SessionGuard | None = None

    async def enter(self) -> None:
        """Arrive, and wait until all members have arrived.

        Raises:
            TimeoutError: Too few members arrived in time. This member has left again.
            ConnectionLossError: The client was disconnected for longer than its operation timeout.
            SessionExpiredError: The session ended during the wait.
            ValueError: The data of PATH is not a number. (If the data is empty, the call waits.)
        """
        client, session_id = self._client, self._client.session_id
        name = client._core.new_uuid().replace("-", "")  # unique per round, because the old node may still exist
        self._node = node = self._child_path(name)
        try:
            async with (
                limited_outage(client, client._operation_timeout),
                timeout_with_message(self._timeout, self._timeout_text) as limit,
            ):
                for former in sorted(self._abandoned):  # an abandoned node would count as an additional member
                    await repeat(partial(client.delete, former), done=(NoNodeError,))
                    self._abandoned.discard(former)
                create = partial(client.create, node, ephemeral=True)
                await create_protected(client, self._path, name, create, create_parent=self._create_barrier)
                await self._wait_for_members(node, session_id, limit)
        except BaseException:  # a cancellation also has to clean up
            self._give_up()
            raise

    async def _create_barrier(self, path: str) -> None:
        if self._members is None:  # the number in the node's data must be kept
            await self._client.ensure_path(path)
        else:
            await ensure_container(self._client, path)

    def _timeout_text(self) -> str:
        return f"{self._path}: fewer than {self._members or 'the shared number of'} members arrived"

    def _give_up(self) -> None:
        """Leave without waiting for other members."""
        if self._node is not None:
            self._abandoned.add(self._node)
            delete_in_background(self._client, self._node)
            self._node = None

    async def resize(self, members: int) -> None:
        """Change the number of members for all objects created without a number. Waiting members see it immediately.

        Raises:
            ValueError: *members* is less than 1, or this object was created with a number.
        """
        if self._members is not None:
            raise ValueError(
                f"{self._path} has a fixed number of members ({self._members}); resize() needs members=None"
            )
        await set_shared_number(self._client, self._path, checked_count("members", members, 1))

    async def _wait_for_members(self, node: str, session_id: int, limit: Limit) -> None:
        client = self._client
        while True:
            async with client.watch_data(self._path) as barrier, client.watch_exists(self._ready) as watch:
                data, stat = barrier.initial
                self._guard = SessionGuard(client, watch, self._path, session_id)
                own = await client.exists(node)
                if own is None:
                    raise SessionExpiredError(node, NODE_LOST_REASON)
                ready: Stat | None = watch.initial
                if ready is not None and ready.czxid > own.czxid:
                    self._names = await self._members_between(0, ready.czxid)
                    _, now = await client.get(self._path)
                    same = await client.exists(self._ready)
                    if same is not None and same.czxid == ready.czxid:  # no newer round has started
                        self._round = now.czxid, now.version
                        return
                    continue
                complete = self._members or parse_shared_number(self._path, data, "members")
                # A "ready" node that is older than this member's node is left over from a crashed round.
                if complete is None or len(await self._members_between(ready.czxid if ready else 0)) < complete:
                    limit.check_may_wait()
                    await first_event(watch, barrier)
                    continue
            await self._start_round(data, stat.version, ready)

    async def _members_between(self, first: int, last: int | None = None) -> set[str]:
        """Return the names of the members whose nodes were created between two zxids."""
        names = [name for name in await self._client.children(self._path) if name != READY]
        if not first and last is None:
            return set(names)
        stats = await asyncio.gather(*[self._client.exists(self._child_path(name)) for name in names])
        return {
            name
            for name, stat in zip(names, stats, strict=True)
            if stat is not None and stat.czxid > first and (last is None or stat.czxid < last)
        }

    async def _start_round(self, data: bytes, version: int, old: Stat | None) -> None:
        """Start the round unless another member has done so. The caller checks the result."""
        transaction = self._client.transaction()
        transaction.set(self._path, data, version)
        if old is not None:
            transaction.delete(self._ready)
        transaction.create(self._ready)
        with contextlib.suppress(BadVersionError, NodeExistsError, NoNodeError, ConnectionLossError):
            await transaction.commit()

    async def leave(self) -> None:
        """Leave, and wait until all members have left.

        Raises:
            TimeoutError: Other members did not leave in time. This member has left.
            ConnectionLossError: The server could not be reached for a second. This member leaves in the background.
        """
        node, self._node = self._node, None
        if node is None:
            return
        delete_in_background(self._client, node)  # a cancellation must not stop the deletion
        others = self._names - {paths.name(node)}
        async with (
            limited_outage(self._client, STOP_TIMEOUT),
            timeout_with_message(self._timeout, lambda: f"{self._path}: other members did not leave") as limit,
        ):
            with contextlib.suppress(NoNodeError):  # another client deleted the barrier itself
                while True:
                    async with self._client.watch_children(self._path) as watch:
                        if others.isdisjoint(watch.initial):
                            break
                        limit.check_may_wait()
                        await watch.next()
            await repeat(self._remove_ready, done=(NoNodeError, BadVersionError))

    async def _remove_ready(self) -> None:
        czxid, version = self._round
        stat = await self._client.exists(self._path)
        if stat is None or stat.czxid != czxid:  # a later round has a new container
            return
        async with self._client.transaction() as transaction:
            transaction.check(self._path, version)  # the version protects the "ready" node of the next round
            transaction.delete(self._ready)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            await self.leave()
        else:
            self._give_up()
