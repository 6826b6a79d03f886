"""Transactions and watches of the client for threads."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Self

from ..aio.watcher import Watcher
from ..serializers import C, V
from ..wire.states import Event
from ..wire.transaction import Transaction
from .loop_thread import LoopThread


class BlockingTransaction(Generic[V]):
    """A transaction of a blocking client; see :class:`~zoolet.client.wire.transaction.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: Transaction[V]) -> None:
        self._thread = thread
        self._transaction = transaction
        self.check = transaction.check
        self.create = transaction.create
        self.set = transaction.set
        self.delete = transaction.delete

    @property
    def results(self) -> list[Any]:
        """The result of each operation."""
        return self._transaction.results

    def commit(self) -> list[Any]:
        """Apply all operations or none."""
        return self._thread.run(self._transaction.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()


class BlockingWatcher(Generic[C]):
    """A watch of a blocking client: a context manager, and an iterator inside it."""

    def __init__(self, thread: LoopThread, watcher: Watcher[C]) -> None:
        self._thread = thread
        self._watcher = watcher

    @property
    def initial(self) -> C:
        """The value that was read when a one-shot watch was set; None for other watches."""
        return self._watcher.initial

    @property
    def pending(self) -> int:
        """Number of waiting events."""
        return self._watcher.pending

    @property
    def resyncing(self) -> bool:
        """Whether a recursive watch is still listing its subtree, to find changes that it missed while disconnected."""
        return self._watcher.resyncing

    def next(self, timeout: float | None = None) -> Event:
        """Wait for the next event.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            TimeoutError: No event arrived within *timeout* seconds.
        """
        return self._thread.run(self._watcher.next, timeout)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        async def ask() -> Event | None:
            try:
                return await anext(self._watcher)
            except StopAsyncIteration:
                return None

        event = self._thread.run(ask)
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        self._thread.run(self._watcher.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await self._watcher.__aexit__(kind, error, trace)

        if self._thread.running:
            self._thread.run(leave)
