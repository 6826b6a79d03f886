"""A node and all below it, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from zoolet.client.aio.client import Client
from zoolet.client.aio.subtree import ask, subtree
from zoolet.client.recipes._base import FollowingRecipe
from zoolet.client.recipes._follow import SessionGuard
from zoolet.client.serializers import UndecodableError
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import NoAuthError, NoNodeError
from zoolet.protocol.records import Stat


class Cached(NamedTuple):
    """A node in a cache: its value and its Stat."""

    value: Any
    stat: Stat


class TreeCache(FollowingRecipe):
    """All nodes from a path down: ``async with TreeCache(zk, "/app") as cache: cache.nodes["/app/x"].value``.

    Znodes: none. One persistent recursive watch on PATH (ZooKeeper 3.6 and newer).

    Guarantees: ``nodes`` comes to be what the tree is. While disconnected it stays as it was; what happened meanwhile
    is found out as soon as the client is back. In a new session everything is read again, so that nothing stays stale
    if the server was restarted without its data, or with older ones.

    Limits: all values are kept in memory. States that last shorter than a round trip may never be seen. A node that
    may not be read is left out; one whose value the serializer cannot read is in ``errors`` instead.

    Args:
        path: The uppermost node; it need not exist.
        limit: Changes that may wait to be processed; at one more, everything is read again.
    """

    def __init__(self, client: Client, path: str, *, limit: int = 100_000) -> None:
        super().__init__(client, path)
        self._limit = limit
        self._nodes: dict[str, Cached] = {}
        self._guard: SessionGuard | None = None  # in the next session everything is read again
        self._errors: dict[str, UndecodableError] = {}
        self._nodes_view: Mapping[str, Cached] = MappingProxyType(self._nodes)
        self._errors_view: Mapping[str, UndecodableError] = MappingProxyType(self._errors)

    @property
    def nodes(self) -> Mapping[str, Cached]:
        """The nodes, by path; a live view that cannot be changed.

        Raises:
            RuntimeError: It was not entered, or the block has ended.
        """
        self._check_entered()
        return self._nodes_view

    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Why the value of a node cannot be read, by path; a live view, too.

        Raises:
            RuntimeError: It was not entered, or the block has ended.
        """
        self._check_entered()
        return self._errors_view

    async def _follow(self) -> None:
        async with self._client.watch(self._path, recursive=True, limit=self._limit) as events:
            self._guard = SessionGuard(self._client, events, self._path, self._client.session_id)
            await self._read_all()
            self._follower.mark_ready()
            async for event in events:
                if event.type == EventType.NODE_DELETED:
                    self._set(event.path, None)
                else:
                    await self._read(event.path)

    async def _read_all(self) -> None:
        existing = {path async for path, _ in subtree(self._client, self._path)}
        for path in (self._nodes.keys() | self._errors.keys()) - existing:
            self._set(path, None)
        await ask(self._read, sorted(existing))

    async def _read(self, path: str) -> None:
        try:
            self._set(path, Cached(*await self._client.get(path)))
        except (NoNodeError, NoAuthError):
            self._set(path, None)
        except UndecodableError as error:
            self._set(path, None, error)

    def _set(self, path: str, cached: Cached | None, error: UndecodableError | None = None) -> None:
        before, error_before = self._nodes.get(path), self._errors.pop(path, None)
        if error is not None:
            self._errors[path] = error
        if cached is None:
            self._nodes.pop(path, None)
        # Not "newer than": the server may have started over, or have been restored.
        elif before is None or _zxids(before.stat) != _zxids(cached.stat):
            self._nodes[path] = cached
        else:
            return
        if (before, error_before) != (cached, error):
            self._follower.mark_changed()

    def _current(self) -> Mapping[str, Cached]:
        return self.nodes


def _zxids(stat: Stat) -> tuple[int, int]:
    return stat.czxid, stat.mzxid
