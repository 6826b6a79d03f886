"""Blocks of objects that can be entered several times, by several tasks or threads, and left in any order.

``async with`` and exit stacks look up ``__aexit__`` once for each block, immediately before they call ``__aenter__``,
and call the result at the end of the block. So the result of the look-up identifies the block, whichever task enters it
and whichever task leaves it. The same applies to ``with`` and ``__exit__``.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar, cast

R = TypeVar("R")
Kind = type[BaseException] | None


class Block:
    """One block: the result of a look-up of ``__aexit__`` or ``__exit__``.

    Attributes:
        leave: Function that leaves the block.
        manager: The object that is entered; None if the method was looked up in its class, as exit stacks do.
        kind: The class of that object.
        held: Data of the object; None before the block is entered and after it is left.
        on_drop: A weak reference to the block itself, whose callback is called if Python drops the block; None to do
            nothing. With ``__del__``, each end of a block could lose an error that a signal handler raises.
    """

    leave: Callable[..., Any]
    manager: object
    kind: type
    held: Any = None
    on_drop: weakref.ref[Block] | None = None

    def __call__(self, *args: Any) -> Any:
        """Leave the block."""
        if self.manager is None:
            return self.leave(args[0], self, *args[1:])
        return self.leave(self.manager, self, *args)


class _LookedUp(threading.local):
    """The latest block of this thread, until it is entered."""

    block: Block | None = None


_looked_up: Final = _LookedUp()


class _EndOfBlock:
    def __init__(self, leave: Callable[..., Any]) -> None:
        self._leave = leave
        self.__doc__ = leave.__doc__

    def __get__(self, manager: object, kind: type) -> Block:
        block = _looked_up.block = Block()  # without __init__, because each block of a lock comes here
        block.leave, block.manager, block.kind = self._leave, manager, kind
        return block


def ends_block(
    leave: Callable[[Any, Block, Kind, BaseException | None, TracebackType | None], R],
) -> Callable[[Any, Kind, BaseException | None, TracebackType | None], R]:
    """Make an ``__aexit__`` or ``__exit__`` of a method that also receives the block that ends."""
    return cast("Callable[[Any, Kind, BaseException | None, TracebackType | None], R]", _EndOfBlock(leave))


def entered_block(manager: object) -> Block | None:
    """Return the block that calls the current ``__aenter__`` or ``__enter__``, which must call this first.

    Returns:
        The block; None if a program calls the method itself. Then its ``__aexit__`` does not know the block.
    """
    block, _looked_up.block = _looked_up.block, None
    if block is None or not (block.manager is manager or (block.manager is None and isinstance(manager, block.kind))):
        return None
    return block
