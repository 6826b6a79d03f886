"""Blocks of objects that can be entered several times, by several tasks or threads, and left in any order.

``async with`` and exit stacks look up ``__aexit__`` once for each block, immediately before they call ``__aenter__``,
and call the result at the end of the block. So the result of the look-up identifies the block, whichever task enters it
and whichever task leaves it. The same applies to ``with`` and ``__exit__``.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")
ExceptionKind = type[BaseException] | None


def returns_coroutine(function: F) -> F:
    """Mark a callable that returns a coroutine without being an ``async def``. Mocks of a lock need this."""
    if sys.version_info >= (3, 12):
        return inspect.markcoroutinefunction(function)
    function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]
    return function


class Block:
    """One block: the result of a look-up of ``__aexit__`` or ``__exit__``.

    Attributes:
        leave: Function that leaves the block.
        manager: The object that is entered; None if the method was looked up in its class, as exit stacks do.
        kind: The class of the look-up, if *manager* is None.
        task: The task that looked up ``__aexit__``, until the block is entered; None for ``__exit__``.
        entered: The object that was entered; None until then.
        entered_manually: Whether the program itself called ``__aenter__`` or ``__enter__``.
            In that case, a different look-up leaves the block.
        is_ambiguous: Whether the look-up in the class may have been for a different object, as in ``ExitStack.push()``.
        held: Data that the entered object keeps for this block; None before the block is entered and after it is left.
        on_failure: Function that is called if leaving the block fails; None to do nothing.
    """

    leave: Callable[..., Any]
    manager: object
    kind: type
    task: asyncio.Task[Any] | None = None
    entered: object = None
    entered_manually: bool = False
    is_ambiguous: bool = False
    held: Any = None
    on_failure: Callable[[], object] | None = None

    def __call__(self, *args: Any) -> Any:
        """Leave the block, with the arguments of ``__aexit__`` or ``__exit__``."""
        if self.entered is None:
            _latest_lookup.block = None  # this block was never entered, so no later __aenter__ may find it
        manager = self.manager
        if manager is None:
            manager, *args = args  # type: ignore[assignment] # a tuple becomes a list
        try:
            # With a look-up in a class, the block of one object may have been entered with another object.
            return self.leave(manager, self if self.entered is manager else Block(), *args)
        except BaseException:
            on_failure, self.on_failure = self.on_failure, None
            if on_failure is not None:
                on_failure()  # already now, because the error may keep this block alive
            raise


@returns_coroutine
class _AsyncBlock(Block):
    """A block of ``async with``."""


class _LatestLookup(threading.local):
    """The block that this thread looked up last and has not entered yet, as a weak reference."""

    block: weakref.ref[Block] | None = None


_latest_lookup: Final = _LatestLookup()


class _BlockExitDescriptor:
    def __init__(self, leave: Callable[..., Any]) -> None:
        kind = Block
        self.__doc__ = leave.__doc__
        self._is_async = inspect.iscoroutinefunction(leave) or hasattr(leave, "_is_coroutine")
        if self._is_async:
            kind = _AsyncBlock
            returns_coroutine(cast("Any", self))
        self._type = cast("type[Block]", type(kind.__name__, (kind,), {"leave": staticmethod(leave)}))

    def __get__(self, manager: object, kind: type) -> Block:
        block = self._type()  # __init__() is skipped for speed, because each use of a lock makes a block
        block.manager = manager
        if manager is None:
            block.kind = kind
        if self._is_async:
            try:
                block.task = asyncio.current_task()
            except RuntimeError:  # no event loop is running
                block.task = None
        _latest_lookup.block = weakref.ref(block)
        return block


def ends_block(
    leave: Callable[[Any, Block, ExceptionKind, BaseException | None, TracebackType | None], R],
) -> Callable[[Any, ExceptionKind, BaseException | None, TracebackType | None], R]:
    """Turn a method that also receives its block into an ``__aexit__`` or ``__exit__``."""
    return cast(
        "Callable[[Any, ExceptionKind, BaseException | None, TracebackType | None], R]", _BlockExitDescriptor(leave)
    )


def entered_block(manager: object) -> Block | None:
    """Return the block that is being entered. ``__aenter__`` and ``__enter__`` must call this first.

    Returns:
        The block; None if the program calls the method itself. Its ``__aexit__`` then has to find the block.
    """
    ref = _latest_lookup.block
    block = ref() if ref is not None else None
    if block is None or (block.task is not None and block.task is not asyncio.current_task()):
        return None  # a different task has looked the block up, and will enter it
    _latest_lookup.block = None
    if block.manager is not manager:
        if block.manager is not None or not isinstance(manager, block.kind):
            return None
        block.is_ambiguous = True
    block.entered, block.task = manager, None
    return block
