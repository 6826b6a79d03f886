"""A node's value, kept up to date."""

from __future__ import annotations

from typing import Any, TypeVar

from ...protocol.errors import NoNodeError
from ...protocol.records import Stat
from ..aio.operations import BaseClient
from ..serializers import C, UndecodableError
from ._base import FollowingRecipe
from ._follow import SessionGuard

T = TypeVar("T")


class NodeCache(FollowingRecipe[C]):
    """The current value of one node: ``async with NodeCache(zk, "/a") as cache: cache.value``.

    Znodes: none. One persistent watch on PATH.

    Guarantees: ``value`` eventually becomes every lasting value, and never goes backwards unless the server does. While
    disconnected it stays unchanged. Changes are read as soon as the client reconnects, including in a new session.

    Limits: values that are quickly replaced may never be seen. The cache lags by the delivery time of events.

    Args:
        client: Client that reads and watches the node.
        path: Path of the node, which need not exist.
    """

    _default: Any = None  # value while the node does not exist

    def __init__(self: NodeCache[T | None], client: BaseClient[T], path: str) -> None:
        super().__init__(client, path)
        self._was_read = False
        self._error: UndecodableError | None = None
        self._value: C = None
        self._stat: Stat | None = None
        self._session_id = 0  # session that read the stat
        self._guard: SessionGuard | None = None  # the guard makes the next session read the node again

    def _check_read(self) -> None:
        if self._follower.is_started or not self._was_read:
            self._check_entered()

    @property
    def value(self) -> C:
        """Value of the node; None if the node does not exist.

        Raises:
            RuntimeError: The cache was neither entered nor refreshed, or its block ended since then.
            Exception: The background task failed, or the client was closed, so the value may be outdated.
        """
        self._check_read()
        return self._value

    @property
    def stat(self) -> Stat | None:
        """Stat of the node; None if the node does not exist.

        Raises:
            RuntimeError: As for ``value``.
            Exception: As for ``value``.
        """
        self._check_read()
        return self._stat

    @property
    def error(self) -> UndecodableError | None:
        """Error of the serializer for the latest value, or None. If it is set, ``value`` is the last readable value.

        Raises:
            RuntimeError: As for ``value``.
            Exception: As for ``value``.
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
        """Read the node now, so that this client's earlier writes are visible afterwards."""
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
                return  # a newer reply overtook this one; in a new session, the server may have restored older data
        self._value, self._stat = value, stat
        if (stat and (stat.czxid, stat.mzxid)) != (before and (before.czxid, before.mzxid)):
            self._follower.mark_changed()

    async def stop(self) -> None:
        """Stop following the node. The value is considered outdated afterwards."""
        await super().stop()
        self._was_read = False

    def _current(self) -> C:
        return self._value
