"""Base of all locks: their blocks, and which tasks hold them, so that none waits for itself."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast, get_args

from zoolet.client.aio.call import current_caller
from zoolet.client.aio.client import Client
from zoolet.client.recipes._lease import Lease
from zoolet.client.wire.arguments import checked_choice, checked_timeout

OnLost = Literal["cancel", "flag"]
_ON_LOST: Final[tuple[str, ...]] = get_args(OnLost)
L = TypeVar("L", bound=Lease)


class DeadlockError(RuntimeError, TimeoutError):
    """The task that waits for a lock holds it itself: it would wait forever, or for its timeout, and ends at once."""


class _Holding(NamedTuple):
    """A lease, and how it came to be held.

    Args:
        owner: Whose it is: a task, or a thread of a blocking client.
        lease: It, weakly if it was acquired without a block: its holder is to notice if it drops it.
        entered: The lock whose block it is held for; None for none.
        ends_block: Whether the end of this block is the end of what the loss of the lease cancels.
    """

    owner: object
    lease: weakref.ref[Lease] | Lease
    entered: LockBase[Any] | None = None
    ends_block: bool = False

    def held(self) -> Lease | None:
        """Return the lease, or what has taken its place, if that is still there and was not released."""
        lease = self.lease if isinstance(self.lease, Lease) else self.lease()
        lease = None if lease is None else lease._current()
        return None if lease is None or lease.released else lease


class Holdings:
    """The leases of one client at one path, whichever of its lock objects they were acquired with.

    Attributes:
        inside: Those in whose blocks tasks are.
        acquired: Those that were acquired without a block, or are about to be entered.
    """

    def __init__(self) -> None:
        self.inside: list[_Holding] = []
        self.acquired: list[_Holding] = []


class LockBase(Generic[L]):
    """A lock that is held for the length of an ``async with`` block, by several tasks in turn or at once.

    Args:
        on_lost: ``cancel`` cancels the task inside the block when its lease is lost, and the block raises
            LockLostError; ``flag`` only makes ``lease.lost`` happen.

    Attributes:
        holdings: What the client holds at this path, shared with its other locks that exclude each other there.

    Raises:
        ValueError: It is neither.
    """

    reentrant = False
    """Whether the task that holds it may acquire it once more."""
    is_exclusive = True
    """Whether one that a task holds may make the next acquire of that task wait for itself."""
    waits_for_release = False
    """Whether the end of a block waits for the server's answer to the release."""

    def __init__(self, on_lost: OnLost) -> None:
        self._cancels = checked_choice("on_lost", on_lost, _ON_LOST) == "cancel"
        self.holdings = Holdings()

    def _share_holdings(self, client: Client, *key: Hashable) -> None:
        """Know what other locks of this client hold that exclude this one: those with the same key."""
        self.holdings = client.shared(key, Holdings)

    async def acquire(self) -> L:
        """Wait until it can be held; return the lease."""
        raise NotImplementedError

    async def attempt(self) -> L | None:
        """Return a lease if it can be held at once; None if not."""
        raise NotImplementedError

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* would wait for itself here."""
        return True

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* has what it would acquire here."""
        return True

    def _acquired(self, lease: L) -> L:
        """Return a lease that this task has acquired, which is known as its own from now on."""
        lease._cancels_block, lease._held_as = self._cancels, self
        if not self.is_exclusive:
            return lease
        acquired = self.holdings.acquired
        if acquired:
            acquired[:] = [holding for holding in acquired if holding.held() is not None]
        acquired.append(_Holding(current_caller(), weakref.ref(lease)))
        return lease

    def _own_lease(self) -> L | None:
        """Return the lease that this task has already and may share; None if it has none.

        Raises:
            DeadlockError: The task would wait for itself.
        """
        holdings = self.holdings
        if not (holdings.inside or holdings.acquired):
            return None
        owner = current_caller()
        for holding in (*reversed(holdings.inside), *holdings.acquired):
            if holding.owner is not owner or (lease := holding.held()) is None:
                continue
            if self.reentrant and self.includes(lease._held_as):
                lease.raise_if_lost()
                lease.depth += 1
                return cast("L", lease)
            if self.excludes(lease._held_as) and not lease.lost.is_set():
                who = "task" if isinstance(owner, asyncio.Task) else "thread"
                hint = "" if self.reentrant else "; there is reentrant=True"
                raise DeadlockError(f"this {who} holds {lease._held_as!r}, and would wait for itself{hint}")
        return None

    async def _acquired_at_once(self, timeout: float | None, **options: int) -> L | None:
        """Return a lease if *timeout* is 0, which is to take what is there; None for every other timeout.

        Raises:
            TimeoutError: It is not free.
        """
        if timeout is None or checked_timeout(timeout) != 0:
            return None
        lease = await self.attempt(**options)
        if lease is None:
            raise TimeoutError(f"{self!r} is not free{await self._facts()}")
        return lease

    async def _facts(self) -> str:
        """Return what can be said about who holds it."""
        return ""

    async def __aenter__(self) -> L:
        lease = await self.acquire()
        begins = lease._begin_block()
        self.holdings.inside.append(_Holding(current_caller(), lease, self, begins))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner, inside = current_caller(), self.holdings.inside
        entered = [place for place, holding in enumerate(inside) if holding.entered is self]
        own = [place for place in entered if inside[place].owner is owner]
        if not entered:
            raise RuntimeError(f"{self!r} was not entered; use it in `async with` (`with` for threads)")
        holding = inside.pop((own or entered)[-1])  # another task may leave for the one that has entered
        assert isinstance(holding.lease, Lease)
        lease = holding.lease
        try:
            if self.waits_for_release:
                await lease.release()
            else:
                lease.release_nowait()
        finally:
            if holding.ends_block:
                lease._current()._end_block(kind, error)
