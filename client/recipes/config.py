"""Typed values that are published to all that follow them."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.recipes.node_cache import NodeCache
from zoolet.client.serializers import Serializer
from zoolet.protocol.errors import NodeExistsError, NoNodeError
from zoolet.protocol.records import Stat


class Config(NodeCache):
    """One value that some publish and many follow: ``async with Config(zk, "/config/app") as config: config.value``.

    Znodes: PATH, whose data the serializer writes; JSON by default. Attributes and ``changes()`` are NodeCache's.

    Guarantees: every follower comes to have the latest value, and sees its own at once. ``publish`` with a version
    refuses to overwrite what its caller has not seen.

    Limits: a value has to fit into a request (1 MB).

    Args:
        default: The value while the node does not exist.
        serializer: How values become bytes.
    """

    def __init__(
        self, client: Client, path: str, default: Any = None, *, serializer: Serializer = serializers.json
    ) -> None:
        super().__init__(client, path)
        self._client = self._client.with_serializer(serializer)
        self._value = self._default = default

    @property
    def version(self) -> int:
        """The present version; -1 while the node does not exist."""
        return -1 if self.stat is None else self.stat.version

    async def publish(self, value: Any, version: int | None = None) -> None:
        """Replace the value.

        Args:
            value: The new one.
            version: The version it replaces, -1 for no node; None for any.

        Raises:
            BadVersionError: It is another one by now.
            NodeExistsError: There is a node, although *version* is -1.
        """
        while True:
            try:
                if version == -1:
                    raise NoNodeError
                await self._client.set(self._path, value, -1 if version is None else version)
                return await self.refresh()
            except NoNodeError:
                if version not in (None, -1):
                    raise
            try:
                await self._client.create(self._path, value, parents=True)
                return await self.refresh()
            except NodeExistsError:
                if version == -1:
                    raise

    async def update(self, change: Callable[[Any], Any]) -> tuple[Any, Stat]:
        """Replace the value, or the default, by what a function makes of it, as often as others come in between."""
        while True:
            try:
                updated = await self._client.update(self._path, change)
                await self.refresh()
                return updated
            except NoNodeError:
                value = change(self._default)
                value = await value if inspect.isawaitable(value) else value
            with contextlib.suppress(NodeExistsError):
                await self.publish(value, version=-1)
                if self.stat is not None:
                    return value, self.stat
