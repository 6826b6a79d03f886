"""Leases and recipes for threads: the asyncio objects, behind objects whose methods wait for the result.

Nothing of a recipe is written twice. A :class:`Blocking` object has the attributes of the asyncio object that it
stands for, and what a call returns is made blocking in turn:

==============================  ====================================================================
asyncio                         here
==============================  ====================================================================
a coroutine                     its result; ``timeout=`` is accepted by all, and raises TimeoutError
an asynchronous iterator        an iterator
``async with``                  ``with``
a lease, recipe, one-shot event the same, blocking
a live mapping of a cache       a copy of it
a handler that is given         an ordinary function, called in a thread of its own
==============================  ====================================================================

A block is not cancelled when a lease is lost or a background task fails: a thread cannot be. Call
``lease.raise_if_lost()`` before a critical step; the error of a background task is raised at the end of the block.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Final, Generic, Self, TypeVar, cast

from zoolet.client.aio.one_shot_event import OneShotEvent
from zoolet.client.aio.watcher import Watcher
from zoolet.client.blocking.context import BlockingTransaction, BlockingWatcher
from zoolet.client.blocking.loop_thread import LoopThread
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._lease import Lease
from zoolet.client.recipes._lock_base import LockBase
from zoolet.client.recipes.election import Election
from zoolet.client.recipes.locking_queue import Entry
from zoolet.client.recipes.node_election import NodeElection
from zoolet.client.recipes.rwlock import ReadWriteLock
from zoolet.client.wire.transaction import Transaction

T = TypeVar("T")
WRAPPED: Final = (Lease, LockBase, Recipe, ReadWriteLock, Election, NodeElection, Entry, OneShotEvent)
"""What is made blocking when a call or an attribute is one."""


def blocking(thread: LoopThread, value: Any) -> Any:
    """Return a value of the asyncio client as threads have it."""
    if isinstance(value, Watcher):
        return BlockingWatcher(thread, value)
    if isinstance(value, Transaction):
        return BlockingTransaction(thread, value)
    if isinstance(value, WRAPPED):
        return face_of(type(value)).of(thread, value)
    if isinstance(value, AsyncIterator):
        return BlockingIterator(thread, value)
    if isinstance(value, list) and value and isinstance(value[0], WRAPPED):
        return [blocking(thread, item) for item in value]
    return dict(value) if isinstance(value, MappingProxyType) else value


def unwrapped(value: Any) -> Any:
    """Return what the asyncio client takes in place of an argument."""
    return value.asyncio_object if isinstance(value, Blocking) else value


_FACES: Final[dict[type, type[Blocking]]] = {}


def face_of(kind: type, *mixed_in: type) -> type[Blocking]:
    """Return the class for threads of an asyncio class, which is made once."""
    face = _FACES.get(kind)
    if face is None:
        bases = (*mixed_in, *(face_of(base) for base in kind.__bases__ if base is Lease), Blocking)
        members = {"asyncio_class": kind, "__doc__": kind.__doc__, "__module__": "zoolet.client.blocking.recipes"}
        face = _FACES[kind] = cast("type[Blocking]", type(kind.__name__, bases, members))
    return face


class Blocking:
    """An object of the asyncio client, for threads.

    Attributes:
        asyncio_object: The object that it stands for; to be used in the client's loop alone.
    """

    def __init__(self, thread: LoopThread, asyncio_object: Any) -> None:
        self._thread = thread
        self.asyncio_object = asyncio_object

    @classmethod
    def of(cls, thread: LoopThread, asyncio_object: Any) -> Self:
        """Return the object that stands for another one."""
        self = cls.__new__(cls)
        Blocking.__init__(self, thread, asyncio_object)
        return self

    def __repr__(self) -> str:
        return f"<blocking {self.asyncio_object!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Blocking) and other.asyncio_object is self.asyncio_object

    def __hash__(self) -> int:
        return hash(self.asyncio_object)

    def __bool__(self) -> bool:
        return bool(self.asyncio_object)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self.asyncio_object) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self.asyncio_object).__name__} has no attribute {name!r}")
        member = getattr(type(self.asyncio_object), name, None)
        if callable(member):
            return self._method(name)

        async def read() -> Any:
            return blocking(self._thread, getattr(self.asyncio_object, name))

        if isinstance(member, property) or isinstance(value := getattr(self.asyncio_object, name), MappingProxyType):
            return self._thread.run(read)  # it may change while it is read
        return blocking(self._thread, value)

    def _method(self, name: str) -> Callable[..., Any]:
        method = getattr(self.asyncio_object, name)
        signature = inspect.signature(method)
        has_timeout = "timeout" in signature.parameters

        def call(*args: Any, **options: Any) -> Any:
            timeout = None if has_timeout else options.pop("timeout", None)
            bound = bound_arguments(self._thread, signature, args, options)

            async def do() -> Any:
                result = method(*bound.args, **bound.kwargs)
                if inspect.isawaitable(result):
                    result = await result
                return blocking(self._thread, result)

            return self._thread.run(do, timeout)

        call.__name__, call.__doc__ = name, method.__doc__
        return call

    def __enter__(self) -> Any:
        async def enter() -> Any:
            entered = await self.asyncio_object.__aenter__()
            return self if entered is self.asyncio_object else blocking(self._thread, entered)

        return self._thread.run(enter)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def leave() -> None:
            await self.asyncio_object.__aexit__(kind, error, trace)

        if self._thread.running:  # otherwise all has gone with the session
            self._thread.run(leave)


class HasThread:
    """A client for threads, as far as recipes need one.

    Attributes:
        asyncio_client: The asyncio client that it runs; to be used in its loop alone.
        loop_thread: The thread with the loop in which that runs.
    """

    asyncio_client: Any
    loop_thread: LoopThread


class BlockingIterator(Generic[T]):
    """An asynchronous iterator, for threads."""

    def __init__(self, thread: LoopThread, iterator: AsyncIterator[T]) -> None:
        self._thread = thread
        self._iterator = iterator
        self._asked: asyncio.Future[T | object] | None = None  # for the next item

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Return the next item.

        Raises:
            StopIteration: There is none.
            TimeoutError: None came within so many seconds.
        """
        end = object()

        async def ask() -> Any:
            # A task of its own: a timeout must not cancel it, which would end the iteration.
            if self._asked is None:
                self._asked = asyncio.ensure_future(_first(self._iterator, end))
            await asyncio.wait((self._asked,), timeout=timeout)
            if not self._asked.done():
                raise TimeoutError
            asked, self._asked = self._asked, None
            return blocking(self._thread, asked.result())

        item = self._thread.run(ask)
        if item is end:
            raise StopIteration
        return cast("T", item)

    def close(self) -> None:
        """End the iteration."""

        async def end() -> None:
            if self._asked is not None:
                self._asked.cancel()
                await asyncio.wait((self._asked,))
            aclose = getattr(self._iterator, "aclose", None)
            if aclose is not None:
                await aclose()

        if self._thread.running:
            self._thread.run(end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _first(iterator: AsyncIterator[Any], end: object) -> Any:
    return await anext(iterator, end)


def in_thread(thread: LoopThread, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls an ordinary function in a thread of its own, with blocking arguments."""
    if inspect.iscoroutinefunction(handler):
        return handler

    @functools.wraps(handler)
    async def call(*args: Any) -> Any:
        # Not the loop's own threads: those resolve host names, and a few long handlers would end the connecting.
        loop, result = asyncio.get_running_loop(), concurrent.futures.Future[Any]()

        result.set_running_or_notify_cancel()  # a thread cannot be cancelled: its result may come when nobody waits

        def work() -> None:
            try:
                result.set_result(handler(*[blocking(thread, value) for value in args]))
            except BaseException as error:  # the caller's to handle, whatever it is
                result.set_exception(error)

        threading.Thread(target=work, name="zoolet-handler", daemon=True).start()
        return await asyncio.wrap_future(result, loop=loop)

    return call


HANDLERS: Final = ("handler", "on_command", "lead")
"""Parameters of recipes and their methods that are given a coroutine function."""


def bound_arguments(
    thread: LoopThread, signature: inspect.Signature, args: tuple[Any, ...], options: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Return the arguments of a call as asyncio's objects, with its handlers in threads."""
    bound = signature.bind(*map(unwrapped, args), **{name: unwrapped(value) for name, value in options.items()})
    for name in HANDLERS:
        if bound.arguments.get(name) is not None:
            bound.arguments[name] = in_thread(thread, bound.arguments[name])
    return bound
