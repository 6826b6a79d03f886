"""Bases of recipes: a client and a path, a follower that keeps them up to date, or supervised tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar, TypeVar

from zoolet.client.aio.client import Client
from zoolet.client.aio.supervision import Follower, SupervisedBlock
from zoolet.client.serializers import Serializer
from zoolet.protocol import paths

F = TypeVar("F", bound="FollowingRecipe")
S = TypeVar("S", bound="SupervisedRecipe")


def checked_client(client: Client) -> Client:
    """Return the client as recipes use it: what the server was too busy to try is tried again.

    Raises:
        TypeError: It is not a client for asyncio.
    """
    if isinstance(client, Client):
        return client.for_recipe()
    if hasattr(client, "asyncio_client"):
        raise TypeError("this is a client for threads: its recipes are those of zoolet.client.blocking.recipes")
    raise TypeError(f"a recipe needs a zoolet.client.Client, not {client!r}")


class Recipe:
    """A recipe that concerns one path and what is below it.

    Args:
        client: Whose session, and unless the recipe says otherwise whose serializer, it uses.
        path: The node.
    """

    _serializer: ClassVar[Serializer | None] = None
    """How its values become bytes; None for the client's serializer."""

    def __init__(self, client: Client, path: str) -> None:
        client = checked_client(client)
        client.add_chroot(path)
        self._client = client if self._serializer is None else client.with_serializer(self._serializer)
        self._path = path

    def _not_entered(self) -> RuntimeError:
        """Return the error of what only works inside the block."""
        name = f"this {type(self).__name__} of {self._path}"
        return RuntimeError(f"{name} was not entered; use it inside its `async with` block (`with` for threads)")

    def _at(self, *names: str) -> str:
        """Return the path of a node below."""
        return paths.join(self._path, "/".join(names))


class FollowingRecipe(Recipe):
    """A recipe that keeps a copy up to date inside its ``async with`` block."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, path)
        self._follower = Follower(client, self._follow)

    async def _follow(self) -> None:
        """Watch and read until something breaks."""
        raise NotImplementedError

    def _current(self) -> Any:
        """Return what :meth:`changes` yields."""
        raise NotImplementedError

    def _check_entered(self) -> None:
        """Raise an error if nothing was ever followed: what is known would be nothing, forever."""
        if not self._follower.begun:
            raise self._not_entered()

    async def changes(self) -> AsyncIterator[Any]:
        """Iterate what is known: now, and after each change; changes that come fast may be one.

        Raises:
            Exception: The following failed; no further change would be seen.
            RuntimeError: It was not entered.
        """
        self._check_entered()
        async for _ in self._follower.changes():
            yield self._current()

    async def start(self, block: SupervisedBlock) -> None:
        """Begin inside the block of another recipe, which fails if this one does."""
        await self._follower.start(block.fail)

    async def stop(self) -> None:
        """End what :meth:`start` began."""
        await self._follower.stop()

    async def __aenter__(self: F) -> F:  # not Self: completion in editors takes that for this class
        await self._follower.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class SupervisedRecipe(Recipe):
    """A recipe whose ``async with`` block is cancelled, and raises the error, when a background task fails."""

    def __init__(self, client: Client, path: str) -> None:
        super().__init__(client, path)
        self._block = SupervisedBlock(client)
        self._entered = False

    def _check_entered(self) -> None:
        """Raise an error outside of the block: no background task would go on, and nothing would clean up."""
        if not self._entered:
            raise self._not_entered()

    async def _begin(self) -> None:
        """Start the background tasks."""

    async def start(self, block: SupervisedBlock) -> None:
        """Begin inside the block of another recipe, which fails if this one does."""
        self._block = block
        self._entered = True
        await self._begin()

    async def stop(self) -> None:
        """Clean up what was begun; the tasks of the block have been cancelled."""
        self._entered = False

    async def __aenter__(self: S) -> S:
        await self._begin()
        self._entered = True
        self._block.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._entered = False
        try:
            self._block.exit(kind)
        finally:
            await self.stop()
