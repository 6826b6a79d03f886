"""Transactions and watches of the client for threads."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from zoolet.client.aio.watcher import Watcher
from zoolet.client.blocking.loop_thread import LoopThread
from zoolet.client.wire.states import Event
from zoolet.client.wire.transaction import Transaction


class BlockingTransaction:
    """A transaction of a blocking client; see :class:`~zoolet.client.wire.transaction.Transaction`."""

    def __init__(self, thread: LoopThread, transaction: Transaction) -> None:
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
        """Apply all of it or nothing."""
        return self._thread.run(self._transaction.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()


class BlockingWatcher:
    """A watch of a blocking client: a context manager, and an iterator inside it."""

    def __init__(self, thread: LoopThread, watcher: Watcher) -> None:
        self._thread = thread
        self._watcher = watcher

    @property
    def initial(self) -> Any:
        """Of a watch that fires once: what was read when it was set."""
        return self._watcher.initial

    @property
    def pending(self) -> int:
        """How many events wait to be taken."""
        return self._watcher.pending

    @property
    def resyncing(self) -> bool:
        """Whether what happened during an absence is still being found out; only of a recursive watch."""
        return self._watcher.resyncing

    def next(self, timeout: float | None = None) -> Event:
        """Wait for the next event.

        Raises:
            TimeoutError: None came within so many seconds.
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
