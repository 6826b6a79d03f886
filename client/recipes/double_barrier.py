"""A double barrier: all begin together and all end together."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from zoolet.client import serializers
from zoolet.client.reliable import create_protected, delete_guaranteed
from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.client.watcher import Watcher
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)


class DoubleBarrier:
    """Begins when enough are there, ends when all are done: ``async with DoubleBarrier(zk, "/step", 3): ...``.

    Znodes: ``PATH/<hex>`` ephemeral, one a member; ``PATH/ready`` persistent, made by whoever completes the number and
    removed by whoever leaves last. The layout is that of kazoo's and Curator's.

    Guarantees: nobody is inside before the number is complete; nobody comes out before all have left or their sessions
    have ended. A member whose session ends while it waits raises SessionExpiredError.

    Limits: a path is used for one round at a time. Do not mix it with kazoo's in one round: it removes ``ready`` first.

    Args:
        client: Whose session it is in.
        path: The barrier.
        members: How many must come, 1 or more.
        timeout: Seconds that entering and leaving each wait at the most; None for ever.

    Raises:
        ValueError: *members* is less than 1.
    """

    def __init__(self, client: ClientSurface, path: str, members: int, *, timeout: float | None = None) -> None:
        client.add_chroot(path)
        if not isinstance(members, int) or members < 1:
            raise ValueError(f"members is {members!r}; it must be 1 or more")
        self._client = client.with_serializer(serializers.raw)
        self._path = path
        self._ready = paths.join(path, "ready")
        self._members = members
        self._timeout = timeout
        self._name = client.new_uuid().replace("-", "")
        self._mine = paths.join(path, self._name)
        self._session_id = 0
        self._watch: Watcher | None = None

    def on_state(self, state: State) -> None:
        """Hear of the client's state."""
        if state is State.LOST and self._watch is not None:
            self._watch.fail(SessionExpiredError(self._path, "the session ended at the barrier"))

    async def enter(self) -> None:
        """Come, and wait until all have come.

        Raises:
            TimeoutError: Too few came in time; one has left again.
            SessionExpiredError: The session ended meanwhile.
        """
        self._name = self._client.new_uuid().replace("-", "")  # a release that is still under way is of another one
        self._mine = paths.join(self._path, self._name)
        self._client.add_listener(self)
        try:
            async with asyncio.timeout(self._timeout):
                await self._come()
        except BaseException:
            self._client.spawn(delete_guaranteed(self._client, self._mine))
            raise

    async def _come(self) -> None:
        client = self._client
        self._session_id = client.session_id

        async def make() -> str:
            try:
                return await client.create(self._mine, ephemeral=True)
            except NodeExistsError:  # a UUID of ours: made by the try whose reply was lost
                return self._mine

        await create_protected(client, self._path, self._name, make)
        while True:
            async with client.watch_exists(self._ready) as watch:
                self._watch = watch
                if watch.initial is not None:
                    return
                if len(self._others(await client.children(self._path))) >= self._members:
                    try:
                        await client.create(self._ready)
                    except NodeExistsError:
                        return
                    except ConnectionLossError:
                        continue
                    return
                await watch.next()
                self._still_in()

    def _still_in(self) -> None:
        if self._client.session_id != self._session_id:
            raise SessionExpiredError(self._path, "the session ended at the barrier")

    def _others(self, names: list[str]) -> list[str]:
        return [name for name in names if name != "ready"]

    async def leave(self) -> None:
        """Be done, and wait until all are.

        Raises:
            TimeoutError: Others were not done in time; one is.
        """
        self._client.spawn(delete_guaranteed(self._client, self._mine))  # whatever becomes of this task
        async with asyncio.timeout(self._timeout):
            while True:
                try:
                    async with self._client.watch_children(self._path) as watch:
                        if not self._others(watch.initial):
                            break
                        await watch.next()
                except NoNodeError:
                    return
            try:
                await self._client.delete(self._ready)
            except NoNodeError:
                return
            except ConnectionLossError:
                self._client.spawn(delete_guaranteed(self._client, self._ready))

    async def __aenter__(self) -> Self:
        await self.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.leave()
        except (ClosedError, SessionExpiredError):
            if kind is None:
                raise
