"""A node and all its descendants, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Generic, NamedTuple

from ...protocol.enums import EventType
from ...protocol.errors import NoAuthError, NoNodeError
from ...protocol.records import Stat
from ..aio.operations import BaseClient
from ..aio.subtree import request_each, walk_subtree
from ..serializers import UndecodableError, V
from ._base import FollowingRecipe
from ._follow import SessionGuard


class CachedNode(NamedTuple, Generic[V]):
    """A node in a cache: its value and its Stat."""

    value: V
    stat: Stat


class TreeCache(FollowingRecipe[Mapping[str, CachedNode[V]]]):
    """A copy of a node and its descendants: ``async with TreeCache(zk, "/app") as cache: cache.nodes["/app/x"].value``.

    Znodes: none. One persistent recursive watch on PATH (ZooKeeper 3.6 and newer).

    Guarantees: ``nodes`` eventually equals the tree. While disconnected it stays unchanged, and changes are found as
    soon as the client reconnects. In a new session everything is read again, so nothing stays stale if the server was
    restarted without its data, or with older data.

    Limits: all values are kept in memory. States that last shorter than a round trip may never be seen. Unreadable
    nodes are omitted; a node with a value that the serializer cannot read is listed in ``errors`` instead.

    Args:
        client: Client that reads and watches the tree.
        path: Path of the topmost node, which need not exist.
        limit: Maximum number of changes that wait to be processed. Beyond that, everything is read again.
    """

    def __init__(self, client: BaseClient[V], path: str, *, limit: int = 100_000) -> None:
        super().__init__(client, path)
        self._limit = limit
        self._nodes: dict[str, CachedNode[V]] = {}
        self._guard: SessionGuard | None = None  # a new session reads everything again
        self._errors: dict[str, UndecodableError] = {}
        self._nodes_view: Mapping[str, CachedNode[V]] = MappingProxyType(self._nodes)
        self._errors_view: Mapping[str, UndecodableError] = MappingProxyType(self._errors)

    @property
    def nodes(self) -> Mapping[str, CachedNode[V]]:
        """Read-only live view of the nodes, by path.

        Raises:
            RuntimeError: The cache was not entered, or its block has ended.
            Exception: The background task failed, or the client was closed, so the copy may be outdated.
        """
        self._check_entered()
        return self._nodes_view

    @property
    def errors(self) -> Mapping[str, UndecodableError]:
        """Read-only live view of the errors of nodes whose values cannot be read, by path.

        Raises:
            RuntimeError: The cache was not entered, or its block has ended.
            Exception: The background task failed, or the client was closed, so the copy may be outdated.
        """
        self._check_entered()
        return self._errors_view

    async def _follow(self) -> None:
        async with self._client.watch(self._path, recursive=True, limit=self._limit) as events:
            self._guard = SessionGuard(self._client, events, self._path, self._client.session_id)
            await self._read_all()
            self._follower.mark_ready()
            async for event in events:
                # Waiting events are processed together, so each node is read only once.
                latest = {one.path: one.type for one in (event, *events._pop_all())}
                for path, kind in latest.items():
                    if kind == EventType.NODE_DELETED:
                        self._set(path, None)
                await request_each(
                    self._read, [path for path, kind in latest.items() if kind != EventType.NODE_DELETED]
                )

    async def _read_all(self) -> None:
        existing = {path async for path, _ in walk_subtree(self._client, self._path)}
        for path in (self._nodes.keys() | self._errors.keys()) - existing:
            self._set(path, None)
        await request_each(self._read, sorted(existing))

    async def _read(self, path: str) -> None:
        try:
            self._set(path, CachedNode(*await self._client.get(path)))
        except (NoNodeError, NoAuthError):
            self._set(path, None)
        except UndecodableError as error:
            self._set(path, None, error)

    def _set(self, path: str, cached: CachedNode[V] | None, error: UndecodableError | None = None) -> None:
        before, error_before = self._nodes.get(path), self._errors.pop(path, None)
        if error is not None:
            self._errors[path] = error
        if cached is None:
            self._nodes.pop(path, None)
        # The zxids need not be higher, because the server may have lost or restored its data.
        elif before is None or _zxids(before.stat) != _zxids(cached.stat):
            self._nodes[path] = cached
        else:
            return
        if (before, error_before) != (cached, error):
            self._follower.mark_changed()

    def _current(self) -> Mapping[str, CachedNode[V]]:
        return self.nodes


def _zxids(stat: Stat) -> tuple[int, int]:
    return stat.czxid, stat.mzxid
