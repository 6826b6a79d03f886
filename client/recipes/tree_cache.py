"""A node and all below it, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, NamedTuple, Self

from zoolet.client.recipes.node_cache import ended, started
from zoolet.client.states import Event, State, WatchOverflowError
from zoolet.client.surface import ClientSurface, Stat
from zoolet.protocol import paths
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ClosedError, NoAuthError, NoNodeError, ZooKeeperError


class Cached(NamedTuple):
    """What is known of one node.

    Args:
        value: What it holds.
        stat: Its Stat.
    """

    value: Any
    stat: Stat


class TreeCache:
    """All nodes from a path down: ``async with TreeCache(zk, "/app") as cache: cache.nodes["/app/x"].value``.

    Znodes: none. One persistent recursive watch on PATH (ZooKeeper 3.6 and newer).

    Guarantees: ``nodes`` comes to be what the tree is. While disconnected it is what it was; what happened meanwhile is
    found out as soon as the client is back, also in a new session.

    Limits: all values are kept in memory. States that last shorter than a round trip may never be seen. A node that
    may not be read, or whose value the codec cannot read, is left out.

    Args:
        client: Whose watch it is; its codec reads the values.
        path: The uppermost node; it need not exist.
        limit: Changes that may wait to be looked at; one more, and all is read anew.

    Attributes:
        nodes: What is known, by path; it cannot be changed, and changes by itself.
    """

    def __init__(self, client: ClientSurface, path: str, *, limit: int = 100_000) -> None:
        client.add_chroot(path)
        self._client = client
        self._path = path
        self._limit = limit
        self._known: dict[str, Cached] = {}
        self._job: asyncio.Task[Any] | None = None
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._count = 0
        self.nodes: Mapping[str, Cached] = MappingProxyType(self._known)

    async def _follow(self) -> None:
        while True:
            try:
                async with self._client.watch(self._path, recursive=True, limit=self._limit) as events:
                    await self._read_all()
                    self._ready.set()
                    async for event in events:
                        await self._take(event)
            except ClosedError:
                raise
            except (ZooKeeperError, WatchOverflowError):
                if not self._ready.is_set() and self._client.state is State.CONNECTED:
                    raise  # whoever enters is to hear of it
                await asyncio.sleep(0.05)

    async def _read_all(self) -> None:
        found: dict[str, None] = {}
        pending = [self._path]
        while pending:
            listed = [(path, self._client.children(path)) for path in pending]
            for path in pending:
                found[path] = None
            pending = []
            answers = await asyncio.gather(*[call for _, call in listed], return_exceptions=True)
            for (path, _), names in zip(listed, answers, strict=True):
                if isinstance(names, NoNodeError | NoAuthError):
                    found.pop(path)
                elif isinstance(names, BaseException):
                    raise names
                else:
                    pending += [paths.join(path, name) for name in names]
        for path in [path for path in self._known if path not in found]:
            self._set(path, None)
        reads = await asyncio.gather(*[self._read(path) for path in found], return_exceptions=True)
        for error in reads:
            if error is not None:
                raise error

    async def _take(self, event: Event) -> None:
        if event.type == EventType.NODE_DELETED:
            self._set(event.path, None)
        else:
            await self._read(event.path)

    async def _read(self, path: str) -> None:
        try:
            value, stat = await self._client.get(path)
        except (NoNodeError, NoAuthError, ValueError):
            self._set(path, None)
        else:
            self._set(path, Cached(value, stat))

    def _set(self, path: str, cached: Cached | None) -> None:
        before = self._known.get(path)
        if cached is None:
            if before is None:
                return
            del self._known[path]
        else:
            if before is not None and before.stat.mzxid >= cached.stat.mzxid:
                return
            self._known[path] = cached
        self._count += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self) -> AsyncIterator[Mapping[str, Cached]]:
        """Iterate the nodes: now, and whenever something has changed; changes that come fast may be one."""
        seen = -1
        while True:
            if seen != self._count:
                seen = self._count
                yield self.nodes
                continue
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        self._job = await started(self._client, self._follow(), self._ready)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await ended(self._job)
