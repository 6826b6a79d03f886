"""Clients, leases and recipes for threads: the asyncio objects, behind objects whose methods wait for the result.

Nothing is written twice. :func:`face_of` makes the class for threads of an asyncio class, with a method for each of its
methods; what a call returns is made blocking in turn:

==============================  ====================================================================
asyncio                         here
==============================  ====================================================================
a coroutine                     its result; ``timeout=`` is accepted by all, and raises TimeoutError
an asynchronous iterator        an iterator
``async with``                  ``with``
a lease, recipe, one-shot event the same, blocking
a live mapping of a cache       a copy of it
a client with other options     the same for threads
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
from types import FunctionType, MappingProxyType, NoneType, TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from zoolet.client.aio.client import Client
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
from zoolet.protocol.records import Stat

T = TypeVar("T")
WRAPPED: Final = (Client, Lease, LockBase, Recipe, ReadWriteLock, Election, NodeElection, Entry, OneShotEvent)
"""Types of results and attributes that are made blocking."""
PLAIN: Final = frozenset({NoneType, bool, bytes, int, str, tuple, Stat})
"""Types of most results, which are for threads as they are."""


def blocking(thread: LoopThread, value: Any) -> Any:
    """Return a value of the asyncio client as threads have it."""
    if type(value) in PLAIN:
        return value
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


def face_of(kind: type, mixed_in: type | None = None, *, module: str = "", doc: str = "") -> type[Blocking]:
    """Return the class for threads of an asyncio class, which is made once.

    Args:
        kind: The asyncio class.
        mixed_in: A base class with what is its own, and takes the place of what it would have of *kind*.
        module: Where it is found; by default among the recipes.
        doc: Its docstring; by default that of *kind*.
    """
    face = _FACES.get(kind)
    if face is None:
        own = (mixed_in,) if mixed_in is not None else ()
        bases = (*own, *(face_of(base) for base in kind.__bases__ if base is Lease))
        bases = bases if any(issubclass(base, Blocking) for base in bases) else (*bases, Blocking)
        members: dict[str, Any] = {"asyncio_class": kind, "__doc__": doc or kind.__doc__}
        members["__module__"] = module or "zoolet.client.blocking.recipes"
        members |= _members(kind, mixed_in or Blocking)
        face = _FACES[kind] = cast("type[Blocking]", type(kind.__name__, bases, members))
    return face


def _members(kind: type, own: type) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties for threads of a class, but those that a class has of its own."""
    hidden: frozenset[str] = getattr(own, "HIDDEN", frozenset())
    direct: frozenset[str] = getattr(own, "DIRECT", frozenset())
    for name in dir(kind):
        if name.startswith("_") or name in hidden or hasattr(own, name) or hasattr(Blocking, name):
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, FunctionType):
            yield name, _direct_method(name, member) if name in direct else _method(name, member)
        elif isinstance(member, property):
            yield name, _property(name, member, name in direct)


def _method(name: str, method: FunctionType) -> Callable[..., Any]:
    """Return the method for threads of an asyncio method: it is called in the loop, and its result waited for."""
    code = method.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    has_timeout = "timeout" in parameters
    returned = str(method.__annotations__.get("return"))  # what tells of each call would take longer than the rest
    is_awaited = inspect.iscoroutinefunction(method) or returned.startswith(("Call[", "Awaitable[", "Coroutine["))
    defaults = {"on_lost": "flag"} if "on_lost" in parameters else {}  # a thread cannot be cancelled
    has_handler = any(handler in parameters for handler in HANDLERS)

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        timeout = None if has_timeout else options.pop("timeout", None)
        if defaults:
            options = {**defaults, **options}
        thread, bound = self._thread, getattr(self.asyncio_object, name)
        if has_handler:
            arguments = bound_arguments(thread, inspect.signature(bound), args, options)
            args, options = arguments.args, arguments.kwargs
        elif args or options:
            args = tuple(map(unwrapped, args))
            options = {name: unwrapped(value) for name, value in options.items()}

        async def do() -> Any:
            result = bound(*args, **options)
            return blocking(thread, await result if is_awaited else result)

        return thread.run(do, timeout)

    return call


def _direct_method(name: str, method: FunctionType) -> Callable[..., Any]:
    """Return the method for threads of one that touches nothing of the loop's."""

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        return blocking(self._thread, getattr(self.asyncio_object, name)(*args, **options))

    return call


def _property(name: str, member: property, direct: bool) -> property:
    """Return the property for threads of an asyncio class's; it is read in the loop if it may change meanwhile."""

    def read(self: Blocking) -> Any:
        async def do() -> Any:
            return blocking(self._thread, getattr(self.asyncio_object, name))

        return blocking(self._thread, getattr(self.asyncio_object, name)) if direct else self._thread.run(do)

    return property(read, doc=member.__doc__)


class Blocking:
    """An object of the asyncio client, for threads; its methods are those of a class that :func:`face_of` makes.

    Attributes:
        asyncio_object: The object that it stands for; to be used in the client's loop alone.
    """

    asyncio_class: ClassVar[type]

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

        async def copy() -> Any:
            return blocking(self._thread, getattr(self.asyncio_object, name))

        if isinstance(value := getattr(self.asyncio_object, name), MappingProxyType):
            return self._thread.run(copy)  # it may change while it is copied
        return blocking(self._thread, value)

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
