"""A double barrier: all begin together and all end together."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self

from zoolet.client import serializers
from zoolet.client.arguments import checked_count
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._follow import SessionGuard
from zoolet.client.reliable import create_protected, delete_guaranteed, delete_in_background
from zoolet.client.surface import ClientSurface
from zoolet.protocol.errors import ClosedError, NoNodeError, SessionExpiredError


class DoubleBarrier(Recipe):
    """Begins when enough members have come, ends when all are done: ``async with DoubleBarrier(zk, "/step", 3): ...``.

    Znodes: ``PATH/<hex>`` ephemeral, one a member; ``PATH/ready`` persistent, created by the member that completes the
    number and deleted by the last to leave. Shared with kazoo's and Curator's DoubleBarrier.

    Guarantees: no member begins before the number is complete; none ends before all have left or their sessions have
    ended. A member whose session ends while it waits raises SessionExpiredError.

    Limits: a path is used for one round at a time. Do not mix it with kazoo's in one round: it deletes ``ready`` first.

    Args:
        members: How many must come, 1 or more.
        timeout: Seconds that entering and leaving each wait at most; None for no limit.
    """

    _serializer = serializers.raw

    def __init__(self, client: ClientSurface, path: str, members: int, *, timeout: float | None = None) -> None:
        super().__init__(client, path)
        self._ready = self._at("ready")
        self._members = checked_count("members", members, 1)
        self._timeout = timeout
        self._node: str | None = None
        self._guard: SessionGuard | None = None

    async def enter(self) -> None:
        """Come, and wait until all have come.

        Raises:
            TimeoutError: Too few came in time; this member has left again.
            SessionExpiredError: The session ended meanwhile.
        """
        client, session_id = self._client, self._client.session_id
        name = client.new_uuid().replace("-", "")  # in each round another: a delete may still be under way
        self._node = node = self._at(name)
        try:
            async with asyncio.timeout(self._timeout):
                await create_protected(client, self._path, name, lambda: client.create(node, ephemeral=True))
                await self._wait_for_members(session_id)
        except BaseException:  # cancelled, too
            delete_in_background(client, node)
            raise

    async def _wait_for_members(self, session_id: int) -> None:
        client = self._client
        while True:
            async with client.watch_exists(self._ready) as watch:
                self._guard = SessionGuard(client, watch, self._path, session_id)
                if watch.initial is not None:
                    return
                if len(set(await client.children(self._path)) - {"ready"}) >= self._members:
                    return await client.ensure_path(self._ready)
                await watch.next()

    async def leave(self) -> None:
        """Leave, and wait until all have left.

        Raises:
            TimeoutError: Others had not left in time; this member has.
        """
        if self._node is not None:
            delete_in_background(self._client, self._node)  # even if this is cancelled
        async with asyncio.timeout(self._timeout):
            with contextlib.suppress(NoNodeError):  # somebody deleted the barrier itself
                while True:
                    async with self._client.watch_children(self._path) as watch:
                        if not set(watch.initial) - {"ready"}:
                            break
                        await watch.next()
            await delete_guaranteed(self._client, self._ready)

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.leave()
        except (ClosedError, SessionExpiredError):
            if kind is None:
                raise
