"""A typed value that clients publish and follow."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

from ...protocol.errors import NodeExistsError, NoNodeError
from ...protocol.records import Stat
from .. import serializers
from ..aio.operations import BaseClient
from ..serializers import C, Serializer
from .node_cache import NodeCache

T = TypeVar("T")


class Config(NodeCache[C]):
    """One value with publishers and followers: ``async with Config(zk, "/config/app") as config: config.value``.

    Znodes: PATH, with data written by the serializer; JSON by default. Attributes and ``changes()`` as in NodeCache.

    Guarantees: every follower eventually sees the latest value, and its own changes immediately. ``publish`` with a
    version refuses to overwrite a value that the caller has not seen.

    Limits: a value must fit into one request (1 MB).

    Args:
        client: Client that reads, watches and writes the node.
        path: Path of the node.
        default: Value while the node does not exist.
        serializer: Serializer for the value; JSON by default.
    """

    @overload
    def __init__(self: Config[Any], client: BaseClient[Any], path: str, default: Any = ...) -> None: ...

    @overload
    def __init__(self, client: BaseClient[Any], path: str, default: C, *, serializer: Serializer[C]) -> None: ...

    @overload
    def __init__(
        self: Config[T | None], client: BaseClient[Any], path: str, default: None = ..., *, serializer: Serializer[T]
    ) -> None: ...

    def __init__(
        self, client: BaseClient[Any], path: str, default: Any = None, *, serializer: Serializer[Any] = serializers.json
    ) -> None:
        super().__init__(client, path)  # type: ignore[misc] # the value is the default instead of None
        self._client = self._client.with_serializer(serializer)
        self._value = self._default = default

    @property
    def version(self) -> int:
        """Current version of the node; -1 while the node does not exist."""
        return -1 if self.stat is None else self.stat.version

    async def publish(self, value: C, version: int | None = None) -> None:
        """Replace the value.

        Args:
            value: The new value.
            version: Version to replace; -1 if the node must not exist; None for any version.

        Raises:
            BadVersionError: The value has changed since *version*.
            NodeExistsError: *version* is -1, but the node exists.
            NoNodeError: *version* is 0 or higher, but the node does not exist.
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

    async def update(self, change: Callable[[C], C | Awaitable[C]]) -> tuple[C, Stat]:
        """Replace the value, or the default, with the result of *change*. Retry if the value has changed since.

        Args:
            change: Function or coroutine function of the current value. It may be called several times.

        Returns:
            The new value and its Stat.
        """
        while True:
            try:
                updated = await self._client.update(self._path, change)
                await self.refresh()
                return updated
            except NoNodeError:
                changed: Any = change(self._default)
                value = await changed if inspect.isawaitable(changed) else changed
            with contextlib.suppress(NodeExistsError):
                await self.publish(value, version=-1)
                if self.stat is not None:
                    return value, self.stat
