"""Base classes of recipes: a client and a path, a follower that keeps a copy up to date, or supervised tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final, Generic, TypeVar

from ...protocol import paths
from ...protocol.recipe_names import NAMINGS, Naming, Namings
from ..aio.operations import BaseClient
from ..aio.supervision import Follower, SupervisedBlock
from ..serializers import C, Serializer
from ..wire.arguments import checked_choice

D = TypeVar("D")
F = TypeVar("F", bound="FollowingRecipe[Any]")
S = TypeVar("S", bound="SupervisedRecipe[Any]")
_NAMINGS_BY_CHOICE: Final[dict[Namings, tuple[Naming, ...]]] = {
    **{naming: (naming,) for naming in NAMINGS},
    "both": NAMINGS,
}
STOP_TIMEOUT: Final = 1.0
"""Default time in seconds to wait for the server when a block is left. The session's end deletes the nodes anyway."""

INTERNAL: Final = frozenset(
    """
    excludes holdings includes is_exclusive kind kinds mark_renewed namings on_state proof_nodes release_nowait rule
    start stop waits_for_release
    """.split()
)
"""Members that only recipes and their parts use. ``dir()`` does not list them."""


def checked_client(client: BaseClient[C]) -> BaseClient[C]:
    """Return a view of *client* for a recipe. It retries requests that the server was too busy to try.

    Raises:
        TypeError: *client* is not an asyncio client.
    """
    if isinstance(client, BaseClient):
        return client._for_recipe()
    if hasattr(client, "asyncio_client"):
        raise TypeError("this is a blocking client; use the recipes in zoolet.client.blocking.recipes")
    raise TypeError(f"a recipe needs a zoolet.client.Client, not {client!r}")


def checked_naming(naming: Naming) -> Naming:
    """Check a naming and return it.

    Raises:
        ValueError: The naming is unknown.
    """
    return checked_choice("naming", naming, NAMINGS)


def resolve_namings(naming: Namings) -> tuple[Naming, ...]:
    """Return the namings that *naming* stands for: the naming itself, or all for ``both``.

    Raises:
        ValueError: The naming is unknown.
    """
    checked_choice("naming", naming, _NAMINGS_BY_CHOICE)
    return _NAMINGS_BY_CHOICE[naming]


class Recipe(Generic[C]):
    """Base of recipes that use one path and the nodes below it.

    Args:
        client: Client whose session the recipe uses. Most recipes also use its serializer.
        path: Path of the recipe's node.
    """

    _serializer: ClassVar[Serializer[Any] | None] = None
    """Serializer for the recipe's values; None for the client's serializer."""

    def __init__(self, client: BaseClient[C], path: str) -> None:
        client = checked_client(client)
        client.add_chroot(path)
        self._client = client if self._serializer is None else client.with_serializer(self._serializer)
        self._path = path

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    def _not_entered_error(self) -> RuntimeError:
        """Return the error for calls that only work inside the block."""
        name = f"this {type(self).__name__} of {self._path}"
        return RuntimeError(f"{name} was not entered; use it inside its `async with` block (`with` for threads)")

    def _child_path(self, *names: str) -> str:
        """Return the path of a descendant node."""
        return paths.join(self._path, "/".join(names))


class FollowingRecipe(Recipe, Generic[D]):
    """A recipe that keeps a copy of its nodes up to date inside its ``async with`` block."""

    def __init__(self, client: BaseClient[Any], path: str) -> None:
        super().__init__(client, path)
        self._follower = Follower(client, self._follow)

    async def _follow(self) -> None:
        """Watch and read until an error occurs, and record changes in the follower."""
        raise NotImplementedError

    def _current(self) -> D:
        """Return the next item for :meth:`changes`."""
        raise NotImplementedError

    def _check_entered(self) -> None:
        """Check that the recipe was entered and has not failed. Otherwise, its data would never change."""
        if not self._follower.is_started:
            raise self._not_entered_error()
        self._follower.raise_if_failed()

    async def changes(self) -> AsyncIterator[D]:
        """Yield the current content, and again after each change. Several quick changes may be combined.

        Raises:
            Exception: The background task failed, so no further change would be seen.
            RuntimeError: The recipe was not entered.
        """
        self._check_entered()
        async for _ in self._follower.changes():
            yield self._current()

    async def start(self, block: SupervisedBlock) -> None:
        """Start as part of *block*, which belongs to a different recipe and fails if this recipe fails."""
        await self._follower.start(block.fail)

    async def stop(self) -> None:
        """Stop the background task that :meth:`start` started."""
        await self._follower.stop()

    async def __aenter__(self: F) -> F:  # not Self, because editors would complete the names of this class only
        await self._follower.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class SupervisedRecipe(Recipe[C]):
    """A recipe whose ``async with`` block is cancelled, and raises the error, when a background task fails."""

    def __init__(self, client: BaseClient[C], path: str) -> None:
        super().__init__(client, path)
        self._block = SupervisedBlock(client)
        self._entered = False

    def _check_entered(self) -> None:
        """Check that the recipe is used inside its block. Outside, nothing would stop its tasks or clean up."""
        if not self._entered:
            raise self._not_entered_error()

    async def _start_tasks(self) -> None:
        """Start the background tasks of the block. Subclasses override this."""

    async def start(self, block: SupervisedBlock) -> None:
        """Start as part of *block*, which belongs to a different recipe and fails if this recipe fails."""
        self._block = block
        self._entered = True
        await self._start_tasks()

    async def stop(self) -> None:
        """Clean up after the tasks of the block have been cancelled."""
        self._entered = False

    async def __aenter__(self: S) -> S:
        self._client._core.check_open()
        await self._start_tasks()
        self._entered = True
        self._block.enter()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._entered = False
        try:
            self._block.exit(kind)
        finally:
            await self.stop()
