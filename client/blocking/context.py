"""Blocks, transactions and watches of the client for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self

from ..aio.blocks import Block, ExceptionKind, ends_block, entered_block
from ..aio.watcher import Watcher
from ..serializers import C, V
from ..wire.states import Event
from ..wire.transaction import Transaction
from .loop_thread import LoopThread


class _BlockExit:
    """A function that leaves one block of an asyncio object. Only its first call has an effect."""

    def __init__(self, leave: Callable[..., Awaitable[object]] | None = None) -> None:
        self._leave = leave  # None until the block is entered, and again after its end
        self._has_ended = False

    async def store_exit(self, leave: Callable[..., Awaitable[object]]) -> None:
        """Store the function that leaves the block. Call it immediately if the block has already ended."""
        self._leave = leave
        if self._has_ended:
            await self._call(_interrupted_exit())

    async def __call__(self, *error: Any) -> None:
        if not self._has_ended:
            self._has_ended = True
            await self._call(error)

    async def undo(self, entered: object = None) -> None:
        """End the block because of an interrupt."""
        await self(*_interrupted_exit())

    async def _call(self, error: Sequence[Any]) -> None:
        leave, self._leave = self._leave, None
        if leave is not None:
            await leave(*error)


def _interrupted_exit() -> Sequence[Any]:
    """Return the arguments of ``__aexit__`` for an interrupted block."""
    return asyncio.CancelledError, asyncio.CancelledError("a signal interrupted the block"), None


class BlockMixin:
    """A mixin with ``__enter__`` and ``__exit__``, for an asyncio object with ``__aenter__`` and ``__aexit__``.

    If a signal handler raises while Python is calling ``__exit__``, the method does not run. But Python then drops the
    block, which :meth:`LoopThread.watch` notices.
    """

    _thread: LoopThread
    asyncio_object: Any
    _is_held = False
    """Whether the object holds something before its block is entered, as a lease does."""

    def _to_blocking(self, entered: Any) -> Any:
        """Return the result of ``__aenter__`` in its form for threads."""
        return entered

    def __enter__(self) -> Any:
        block = entered_block(self)
        end = _BlockExit(self.asyncio_object.__aexit__ if self._is_held else None)

        async def enter() -> Any:
            leave = self.asyncio_object.__aexit__  # looked up before __aenter__, as by `async with`
            if isinstance(leave, Block):
                leave.entered_manually, leave.is_ambiguous = block is None, block is not None and block.is_ambiguous
            entered = await self.asyncio_object.__aenter__()
            await end.store_exit(leave)
            return self if entered is self.asyncio_object else self._to_blocking(entered)

        if block is not None:
            block.held = end
            self._thread.watch(block, end.undo)
        return self._thread.run(enter, undo=end.undo)

    @ends_block
    def __exit__(
        self, block: Block, kind: ExceptionKind, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await (block.held or self.asyncio_object.__aexit__)(kind, error, trace)

        if self._thread.running:  # without a running thread, no session exists and nothing has to be released
            self._thread.run_to_completion(leave)
        self._thread.unwatch(block)


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
        """Apply all operations or none, and return the result of each."""
        return self._thread.run(self._transaction.commit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.commit()


class BlockingWatcher(BlockMixin, Generic[C]):
    """A watch of a blocking client: a context manager, and an iterator inside it."""

    asyncio_object: Watcher[C]

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...

    def __init__(self, thread: LoopThread, watcher: Watcher[C]) -> None:
        self._thread = thread
        self.asyncio_object = watcher

    @property
    def initial(self) -> C:
        """The value that was read when a one-shot watch was set; None for other watches."""
        return self.asyncio_object.initial

    @property
    def pending(self) -> int:
        """Number of waiting events."""
        return self.asyncio_object.pending

    @property
    def resyncing(self) -> bool:
        """Whether a recursive watch is still listing its subtree, to find changes that it missed while disconnected."""
        return self.asyncio_object.resyncing

    def next(self, timeout: float | None = None) -> Event:
        """Wait for the next event.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            TimeoutError: No event arrived within *timeout* seconds.
        """
        return self._thread.run(self.asyncio_object.next, timeout, self._put_back_event)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        async def ask() -> Event | None:
            try:
                return await anext(self.asyncio_object)
            except StopAsyncIteration:
                return None

        event = self._thread.run(ask, undo=self._put_back_event)
        if event is None:
            raise StopIteration
        return event

    async def _put_back_event(self, event: Event | None) -> None:
        """Undo :meth:`next`, because a signal interrupted it."""
        if event is not None:
            self.asyncio_object._put_back_event(event)
