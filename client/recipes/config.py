"""Typed values that are published to everybody."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Any, Self

from zoolet.client import serializers
from zoolet.client.recipes.node_cache import NodeCache
from zoolet.client.serializers import Serializer
from zoolet.client.surface import ClientSurface, Stat
from zoolet.protocol.errors import NodeExistsError, NoNodeError


class Config:
    """One value that some publish and many follow: ``async with Config(zk, "/config/app") as config: config.value``.

    Znodes: PATH, whose data the codec writes; JSON by default.

    Guarantees: every follower comes to have the latest value, and sees its own at once. ``publish`` with a version
    refuses to overwrite what its caller has not seen.

    Limits: a value has to fit into a request (1 MB).

    Args:
        client: Whose session it uses.
        path: The node.
        default: The value while there is no node.
        codec: How values become bytes.
    """

    def __init__(
        self, client: ClientSurface, path: str, default: Any = None, *, serializer: Serializer = serializers.json
    ) -> None:
        self._client = client.with_serializer(serializer)
        self._path = path
        self._default = default
        self._cache = NodeCache(self._client, path)

    @property
    def value(self) -> Any:
        """The present value."""
        return self._default if self._cache.stat is None else self._cache.value

    @property
    def version(self) -> int:
        """The present version; -1 while there is no node."""
        return -1 if self._cache.stat is None else self._cache.stat.version

    async def publish(self, value: Any, version: int | None = None) -> None:
        """Replace the value.

        Args:
            value: The new one.
            version: The version it replaces, -1 for no node; None for any.

        Raises:
            BadVersionError: It is another one by now.
            NodeExistsError: There is a node, and *version* said that there was none.
        """
        while True:
            try:
                if version == -1:
                    raise NoNodeError
                await self._client.set(self._path, value, -1 if version is None else version)
                return await self._cache.refresh()
            except NoNodeError:
                if version not in (None, -1):
                    raise
            try:
                await self._client.create(self._path, value, parents=True)
                return await self._cache.refresh()
            except NodeExistsError:
                if version == -1:
                    raise

    async def update(self, change: Callable[[Any], Any]) -> tuple[Any, Stat]:
        """Replace the value, or the default, by what a function makes of it, as often as others come in between."""
        while True:
            try:
                updated = await self._client.update(self._path, change)
                await self._cache.refresh()
                return updated
            except NoNodeError:
                value = change(self._default)
                if inspect.isawaitable(value):
                    value = await value
            try:
                await self._client.create(self._path, value, parents=True)
            except NodeExistsError:
                continue
            stat = await self._client.exists(self._path)
            if stat is not None:
                await self._cache.refresh()
                return value, stat

    async def changes(self) -> AsyncIterator[Any]:
        """Iterate the value: now, and after each change."""
        async for _ in self._cache.changes():
            yield self.value

    async def __aenter__(self) -> Self:
        await self._cache.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cache.__aexit__(kind, error, trace)
