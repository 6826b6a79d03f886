"""Base class of all locks: their blocks, and which tasks hold them, to detect a task that waits for itself."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args

from ..aio.call import current_caller
from ..aio.operations import BaseClient
from ..wire.arguments import checked_choice, checked_timeout
from ._base import INTERNAL
from ._lease import Lease, ref_to

OnLost = Literal["cancel", "flag"]
_ON_LOST: Final[tuple[str, ...]] = get_args(OnLost)
L = TypeVar("L", bound=Lease)


class DeadlockError(RuntimeError, TimeoutError):
    """The task would wait for a lock that it holds itself, until its timeout or forever, so it fails immediately."""


class Holdings(dict[weakref.ref[Lease], None]):
    """The leases of one client at one path, whichever of its lock objects acquired them, in order.

    A lease that is released or dropped removes itself.
    """


class LockBase(Generic[L]):
    """A lock that an ``async with`` block holds. Several tasks may use it, one after another or at the same time.

    Args:
        on_lost: ``cancel`` cancels the task inside the block when its lease is lost, and the block raises
            LockLostError; ``flag`` only triggers ``lease.lost``.
        client: Client whose session holds the lock.
        *key: Key of the client's locks that exclude each other; without it, this lock excludes no other.

    Attributes:
        holdings: Leases of the client that its locks of the same key share.

    Raises:
        ValueError: *on_lost* is neither ``cancel`` nor ``flag``.
    """

    reentrant = False
    """Whether the task that holds the lock may acquire it again."""
    is_exclusive = True
    """Whether a task that holds the lock would wait for itself if it acquired the lock again."""
    waits_for_release = False
    """Whether leaving a block waits for the server's answer to the release."""

    def __init__(self, on_lost: OnLost, client: BaseClient[Any], *key: Hashable) -> None:
        self._cancels = checked_choice("on_lost", on_lost, _ON_LOST) == "cancel"
        self.holdings: Holdings = client._core.share(key, Holdings) if key else Holdings()
        # The lease of each block that a task is inside, and whether the end of the block must call its _end_block.
        self._blocks: list[tuple[L, bool]] = []

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    async def acquire(self) -> L:
        """Wait until the lock is free, acquire it, and return the lease."""
        raise NotImplementedError

    async def attempt(self) -> L | None:
        """Return a lease if the lock is free, or None."""
        raise NotImplementedError

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* would wait for itself if it acquired this lock."""
        return True

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether holding *held* includes everything that this lock grants."""
        return True

    def _acquired(self, lease: L) -> L:
        """Record that the current task holds *lease*, and return it."""
        lease._cancels_block, lease._held_as = self._cancels, self
        lease._owner = weakref.ref(current_caller(lease._client._core.loop))
        if self.is_exclusive:
            self.holdings[ref_to(lease, self.holdings.pop)] = None
        return lease

    def _own_lease(self) -> L | None:
        """Return the lease that the current task already holds and may share, or None.

        Raises:
            DeadlockError: The task holds the lock and would wait for itself.
        """
        if not self.holdings:
            return None
        owner = current_caller()
        for ref in reversed(list(self.holdings)):
            lease = ref()
            if lease is None or lease._owner() is not owner:
                continue
            if self.reentrant and self.includes(lease._held_as):
                lease.raise_if_lost()
                lease.depth += 1
                return cast("L", lease)
            if self.excludes(lease._held_as) and not lease.lost._happened:
                who = "task" if isinstance(owner, asyncio.Task) else "thread"
                hint = "" if self.reentrant else " (use reentrant=True to allow this)"
                raise DeadlockError(f"this {who} already holds {lease._held_as!r}; waiting for it would deadlock{hint}")
        return None

    async def _acquired_at_once(self, timeout: float | None, **options: int) -> L | None:
        """Try to acquire the lock without waiting if *timeout* is 0. Return None for other timeouts.

        Raises:
            TimeoutError: The lock is not free.
        """
        if timeout is None or checked_timeout(timeout) != 0:
            return None
        lease = await self.attempt(**options)
        if lease is None:
            raise TimeoutError(f"{self!r} is not free{await self._facts()}")
        return lease

    async def _facts(self) -> str:
        """Return a description of the holder, for error messages."""
        return ""

    async def __aenter__(self) -> L:
        lease = await self.acquire()
        owner = lease._owner()
        begins = lease._begin_block(owner if isinstance(owner, asyncio.Task) else None)
        self._blocks.append((lease, begins))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        blocks, place = self._blocks, -1
        if not blocks:
            raise RuntimeError(f"{self!r} was not entered; use it in `async with` (`with` for threads)")
        if len(blocks) > 1:  # a task may leave a block that another task has entered, but leaves its own first
            owner = current_caller()
            own = [place for place, (lease, _) in enumerate(blocks) if lease._owner() is owner]
            place = own[-1] if own else -1
        lease, ends = blocks.pop(place)
        try:
            if self.waits_for_release:
                await lease.release()
            else:
                lease.release_nowait()
        finally:
            if ends:
                lease._end_block(kind, error)
