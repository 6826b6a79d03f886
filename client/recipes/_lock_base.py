"""What all locks have in common: their blocks, and which tasks hold what, so that none waits for itself."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Hashable
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from zoolet.client.arguments import checked_choice
from zoolet.client.recipes._lease import Lease
from zoolet.client.surface import ClientSurface

ON_LOST: Final = ("cancel", "flag")
L = TypeVar("L", bound=Lease)


class DeadlockError(TimeoutError):
    """The task that waits for a lock holds it itself: it could only end by a timeout, and ends at once."""


class _Holding(NamedTuple):
    """A lease, and how it came to be held.

    Args:
        task: Whose it is.
        lease: It, weakly if it was acquired without a block: its holder is to notice if it drops it.
        lock: What it was acquired with.
    """

    task: asyncio.Task[Any] | None
    lease: weakref.ref[Lease] | Lease
    lock: LockBase[Any]

    def held(self) -> Lease | None:
        """Return the lease, if it is still there and was not released."""
        lease = self.lease if isinstance(self.lease, Lease) else self.lease()
        return None if lease is None or lease.released else lease


class Holdings:
    """The leases of one client at one path, whichever of its lock objects they were acquired with.

    Attributes:
        inside: Those in whose blocks tasks are.
        acquired: Those of reentrant locks that were acquired without a block.
    """

    def __init__(self) -> None:
        self.inside: list[_Holding] = []
        self.acquired: list[_Holding] = []
        self._of_thread: threading.local | None = None

    @property
    def of_thread(self) -> threading.local:
        """``inside``, for each thread of a blocking client: its leases, and what they were acquired with."""
        if self._of_thread is None:
            self._of_thread = threading.local()
        return self._of_thread


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
    waits_for_release = False
    """Whether the end of a block waits for the server's answer to the release."""

    def __init__(self, on_lost: str) -> None:
        self._cancels = checked_choice("on_lost", on_lost, ON_LOST) == "cancel"
        self.holdings = Holdings()

    def _share_holdings(self, client: ClientSurface, *key: Hashable) -> None:
        """Know what other locks of this client hold that exclude this one: those with the same key."""
        self.holdings = client.shared(key, Holdings)

    async def acquire(self) -> L:
        """Wait until it can be held; return the lease."""
        raise NotImplementedError

    def excludes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* would wait for itself here."""
        return True

    def includes(self, held: LockBase[Any]) -> bool:
        """Return whether a task that holds *held* has what it would acquire here."""
        return True

    def _acquired(self, lease: L) -> L:
        """Return a lease that this task has acquired; if the lock is reentrant, it can be shared from now on."""
        lease.cancels_block = self._cancels
        if self.reentrant:
            acquired = self.holdings.acquired
            acquired[:] = [holding for holding in acquired if holding.held() is not None]
            acquired.append(_Holding(asyncio.current_task(), weakref.ref(lease), self))
        return lease

    def _own_lease(self) -> L | None:
        """Return the lease that this task has already and may share; None if it has none.

        Raises:
            DeadlockError: The task would wait for itself.
        """
        task, holdings = asyncio.current_task(), self.holdings
        for holding in (*reversed(holdings.inside), *holdings.acquired):
            if holding.task is not task or (lease := holding.held()) is None:
                continue
            if self.reentrant and self.includes(holding.lock):
                lease.raise_if_lost()
                lease.depth += 1
                return cast("L", lease)
            if self.excludes(holding.lock):
                raise DeadlockError(
                    f"this task holds {holding.lock!r}, and would wait for itself; there is reentrant=True"
                )
        return None

    async def __aenter__(self) -> L:
        lease = self._own_lease()
        if lease is None:
            lease = await self.acquire()
            lease.begin_block()
        self.holdings.inside.append(_Holding(asyncio.current_task(), lease, self))
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, inside = asyncio.current_task(), self.holdings.inside
        entered = [place for place, holding in enumerate(inside) if holding.lock is self]
        own = [place for place in entered if inside[place].task is task]
        lease = inside.pop((own or entered)[-1]).lease  # another task leaves for it: a blocking client's
        assert isinstance(lease, Lease)
        try:
            if self.waits_for_release:
                await lease.release()
            else:
                lease.release_nowait()
        finally:
            if lease.released:
                lease.end_block(kind, error)
