"""Base class of all locks: their blocks, and which tasks hold them, to detect a task that waits for itself."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Final, Generic, Literal, TypeVar, cast, get_args

from ..aio.blocks import Block, ExceptionKind, ends_block, entered_block
from ..aio.call import current_caller
from ..aio.operations import BaseClient
from ..wire.arguments import checked_choice, checked_timeout
from ._base import INTERNAL
from ._lease import Lease, lease_ref, wait_for_answers

OnLost = Literal["cancel", "flag"]
_ON_LOST_CHOICES: Final[tuple[str, ...]] = get_args(OnLost)
L = TypeVar("L", bound=Lease)


class DeadlockError(RuntimeError, TimeoutError):
    """The error of a task that would wait for a lock that it holds itself. It fails immediately instead of waiting."""


class Holdings(dict[weakref.ref[Lease], None]):
    """The leases of one client at one path, from all its lock objects, in the order of their acquisition.

    A lease that is released or dropped removes itself.
    """


class LockBase(Generic[L]):
    """A lock that an ``async with`` block holds. Several tasks may use it, one after another or at the same time.

    Its holder is the task that acquires it. With a blocking client it is the calling task, or outside of tasks the
    calling thread.

    Args:
        on_lost: ``cancel`` cancels the task inside the block when its lease is lost, and the block raises
            LockLostError; ``flag`` only triggers ``lease.lost``.
        client: Client whose session holds the lock.
        *key: Key of the client's locks that exclude each other; without it, this lock excludes no other.

    Attributes:
        holdings: Leases that the client holds with any lock of the same key.

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
        self._cancels = checked_choice("on_lost", on_lost, _ON_LOST_CHOICES) == "cancel"
        self.holdings: Holdings = client._core.share(key, Holdings) if key else Holdings()
        # The blocks that were entered and not left. Each holds its lease, and the argument for its _exit_block.
        self._blocks: dict[Block, None] = {}

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    async def acquire(self, timeout: float | None = None) -> L:
        """Wait until the lock is free, acquire it, and return the lease."""
        raise NotImplementedError

    async def attempt(self) -> L | None:
        """Acquire the lock if it is free, and return the lease. Return None if it is not free."""
        raise NotImplementedError

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* would wait for itself if it acquired this lock."""
        return True

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether holding *held* includes everything that this lock grants."""
        return True

    def _record_holder(self, lease: L) -> L:
        """Record that the caller holds *lease*, and return it."""
        lease._cancels_block, lease._held_lock = self._cancels, self
        caller, thread = current_caller(lease._client._core.loop)
        lease._owner = weakref.ref(caller)
        if thread is not None:
            lease._thread = weakref.ref(thread)
        if self.is_exclusive:
            self.holdings[lease_ref(lease, self.holdings.pop)] = None
        return lease

    def _enter_own_lease(self) -> L | None:
        """Return the lease that the caller already holds and may share, entered once more; otherwise return None.

        Raises:
            DeadlockError: The caller, or a different task of its thread, holds the lock and could not release it.
        """
        if not self.holdings:
            return None
        caller, thread = current_caller()
        for ref in reversed(list(self.holdings)):
            lease = ref()
            if lease is None:
                continue
            is_own = lease._owner() is caller
            if not is_own and (thread is None or lease._thread() is not thread):
                continue
            if is_own and self.reentrant and self.includes(lease._held_lock):
                lease.raise_if_lost()
                lease.depth += 1
                return cast("L", lease)
            if self.excludes(lease._held_lock) and not lease.lost._happened:
                holder = "thread" if thread is not None else "task"
                hint = "" if self.reentrant else " (use reentrant=True to allow this)"
                raise DeadlockError(
                    f"this {holder} already holds {lease._held_lock!r}; waiting for it would deadlock{hint}"
                )
        return None

    async def _acquire_nowait(self, timeout: float | None, **options: int) -> L | None:
        """If *timeout* is 0, acquire the lock without waiting, and return its lease. Otherwise, return None.

        Raises:
            TimeoutError: The lock is not free.
        """
        if timeout is None or checked_timeout(timeout) != 0:
            return None
        lease = await self.attempt(**options)
        if lease is None:
            raise TimeoutError(f"{self!r} is not free{await self._holder_facts()}")
        return lease

    async def _holder_facts(self) -> str:
        """Return a description of the holder, for error messages."""
        return ""

    async def __aenter__(self, _block: Block | None = None) -> L:
        block = _block or entered_block(self)
        if block is None:
            block = Block()
            block.entered_manually = True
        lease = await self.acquire()
        block.held = lease, lease._enter_block(self._cancels)
        self._blocks[block] = None
        return lease

    async def _leave(
        self, block: Block, kind: ExceptionKind, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the lock at the end of a block."""
        if block not in self._blocks and block.entered is None:  # the program calls __aexit__ itself
            block = self._find_caller_block()
        if block.held is None:  # the block was already left
            return
        lease, cancelled = block.held
        deletions = lease.release_nowait()  # first: if this refuses the wrong thread, the block can still be left
        del self._blocks[block]
        block.held = None
        try:
            if self.waits_for_release:
                await wait_for_answers(deletions)
        finally:
            if cancelled is not None:
                lease._exit_block(cancelled, kind, error)

    __aexit__ = ends_block(_leave)

    def _find_caller_block(self) -> Block:
        """Return the latest block that the caller has entered with ``__aenter__``, or else with an exit stack.

        If the caller has none, return the only block that was entered with ``__aenter__``, or the latest block whose
        caller is done.

        Raises:
            RuntimeError: No such block exists, or several callers have one.
        """
        caller, _ = current_caller()
        entered_manually = [block for block in self._blocks if block.entered_manually]
        own = [block for block in self._blocks if block.held[0]._owner() is caller]
        found = [block for block in own if block.entered_manually] or [block for block in own if block.is_ambiguous]
        if not found and (own or len(entered_manually) != 1):
            found = [block for block in entered_manually if block.held[0]._owner_is_done()]
        elif not found:
            found = entered_manually
        if not found:
            who = "was not entered" if not entered_manually else "was not entered by this task, but by several others"
            raise RuntimeError(f"{self!r} {who}; use it in `async with` (`with` for threads)")
        return found[-1]
