"""A node's value, kept up to date."""

from __future__ import annotations

from typing import Any

from zoolet.client.aio.client import Client
from zoolet.client.recipes._base import FollowingRecipe
from zoolet.client.recipes._follow import SessionGuard
from zoolet.client.serializers import UndecodableError
from zoolet.protocol.errors import NoNodeError
from zoolet.protocol.records import Stat


class NodeCache(FollowingRecipe):
    """The present value of one node: ``async with NodeCache(zk, "/a") as cache: cache.value``.

    Znodes: none. One persistent watch on PATH.

    Guarantees: ``value`` comes to be every value that lasts, and never goes back, unless the server does. While
    disconnected it stays as it was; what changed is read as soon as the client is back, also in a new session.

    Limits: values that are replaced at once may never be seen. It may be behind by as long as an event takes.
    """

    _default: Any = None  # the value while the node does not exist

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, path)
        self._was_read = False
        self._error: UndecodableError | None = None
        self._value: Any = None
        self._stat: Stat | None = None
        self._session_id = 0  # in which the stat was read
        self._guard: SessionGuard | None = None  # in the next session the node is read again

    def _check_read(self) -> None:
        if not self._was_read:
            self._check_entered()

    @property
    def value(self) -> Any:
        """The value of the node; None if there is none.

        Raises:
            RuntimeError: It was neither entered nor refreshed, or the block has ended since.
        """
        self._check_read()
        return self._value

    @property
    def stat(self) -> Stat | None:
        """The node's Stat; None if there is none. Raises as ``value`` does."""
        self._check_read()
        return self._stat

    @property
    def error(self) -> UndecodableError | None:
        """Why the serializer could not read the latest value; ``value`` is the last one that it could. Raises as
        ``value`` does.
        """
        self._check_read()
        return self._error

    async def _follow(self) -> None:
        async with self._client.watch(self._path) as events:
            self._guard = SessionGuard(self._client, events, self._path, self._client.session_id)
            await self.refresh()
            self._follower.mark_ready()
            async for _ in events:
                await self.refresh()

    async def refresh(self) -> None:
        """Read the node now: what this client has written before is seen after it."""
        stat: Stat | None
        try:
            value, stat = await self._client.get(self._path)
        except NoNodeError:
            value, stat = self._default, None
        except UndecodableError as error:
            self._was_read, self._error = True, error
            return
        self._was_read, self._error = True, None
        before = self._stat
        session_id, self._session_id = self._session_id, self._client.session_id
        if stat and before and stat.czxid == before.czxid and stat.mzxid < before.mzxid:
            if session_id == self._session_id:
                return  # a reply that was overtaken; in another session the server may have been restored
        self._value, self._stat = value, stat
        if (stat and (stat.czxid, stat.mzxid)) != (before and (before.czxid, before.mzxid)):
            self._follower.mark_changed()

    async def stop(self) -> None:
        """End what ``start()`` began; what was read is old from now on."""
        await super().stop()
        self._was_read = False

    def _current(self) -> Any:
        return self._value
