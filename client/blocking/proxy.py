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
another function that is given  called in the loop of the client: it must be short, and make no calls of the client
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
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from types import FunctionType, MappingProxyType, NoneType, TracebackType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from zoolet.client.aio.client import Client
from zoolet.client.aio.one_shot_event import OneShotEvent
from zoolet.client.aio.watcher import Watcher
from zoolet.client.blocking.context import BlockingTransaction, BlockingWatcher
from zoolet.client.blocking.loop_thread import LoopThread, carried
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._lease import Lease
from zoolet.client.recipes._lock_base import LockBase
from zoolet.client.recipes._queue_entry import Entry
from zoolet.client.recipes.election import Election
from zoolet.client.recipes.node_election import NodeElection
from zoolet.client.recipes.rwlock import ReadWriteLock
from zoolet.client.wire.transaction import Transaction
from zoolet.protocol.records import Stat

T = TypeVar("T")
WRAPPED: Final = (Client, Lease, LockBase, Recipe, ReadWriteLock, Election, NodeElection, Entry, OneShotEvent)
"""Types of results and attributes that are made blocking."""
PLAIN: Final = frozenset({NoneType, bool, bytes, int, str, tuple, Stat})
"""Types of most results, which are for threads as they are."""
DEFAULTS: Final = {"on_lost": "flag"}
"""Defaults of parameters that are others for threads: a thread cannot be cancelled."""


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


def face_of(
    kind: type,
    mixed_in: type | None = None,
    *,
    hidden: Container[str] = (),
    direct: Container[str] = (),
    module: str = "zoolet.client.blocking.recipes",
    doc: str = "",
) -> type[Blocking]:
    """Return the class for threads of an asyncio class, which is made once.

    Args:
        kind: The asyncio class.
        mixed_in: A base class, whose members take the place of those of *kind*.
        hidden: Members of *kind* that threads do not have.
        direct: Those that touch nothing of the loop's, and are read and called in the caller's thread.
        module: The module in which it is found.
        doc: Its docstring; by default that of *kind*.
    """
    face = _FACES.get(kind)
    if face is None:
        own = (mixed_in,) if mixed_in is not None else ()
        bases = (*own, *(face_of(base) for base in kind.__bases__ if base is Lease))
        bases = bases if any(issubclass(base, Blocking) for base in bases) else (*bases, Blocking)
        members: dict[str, Any] = {"asyncio_class": kind, "__doc__": doc or kind.__doc__, "__module__": module}
        members |= _members(kind, mixed_in or Blocking, hidden, direct)
        if hasattr(kind, "__aenter__") and not hasattr(mixed_in, "__enter__"):
            members |= {"__enter__": _enter, "__exit__": _exit}
        face = _FACES.setdefault(kind, cast("type[Blocking]", type(kind.__name__, bases, members)))
    return face


def _members(kind: type, own: type, hidden: Container[str], direct: Container[str]) -> Iterator[tuple[str, Any]]:
    """Yield the methods and properties for threads of a class, except for hidden ones and those of another class."""
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
    is_awaited = is_asynchronous(method)
    defaults = {name: value for name, value in DEFAULTS.items() if name in parameters}
    has_handler = any(handler in parameters for handler in HANDLERS)

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        timeout = options.pop("timeout", None) if is_awaited and not has_timeout else None
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

        if not is_awaited and thread.has_ended:
            return blocking(thread, bound(*args, **options))
        return thread.run(do, timeout)

    call.__signature__ = _signature(method, defaults, adds_timeout=is_awaited and not has_timeout)  # type: ignore[attr-defined]
    call.__annotations__ = {}  # those of asyncio are not true; the stubs have the types
    return call


def is_asynchronous(method: Callable[..., Any]) -> bool:
    """Return whether the results of a method are awaited, as its definition says."""
    returned = str(method.__annotations__.get("return"))
    return inspect.iscoroutinefunction(method) or returned.startswith(("Call[", "Awaitable[", "Coroutine["))


def _signature(method: Callable[..., Any], defaults: Mapping[str, Any], *, adds_timeout: bool) -> inspect.Signature:
    """Return the signature for threads of an asyncio method."""
    signature = inspect.signature(method)
    parameters = []
    for parameter in signature.parameters.values():
        is_other = parameter.name in defaults
        parameters.append(parameter.replace(default=defaults[parameter.name]) if is_other else parameter)
    if adds_timeout:
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter("timeout", kind, default=None, annotation="float | None"))
    returned = str(signature.return_annotation)
    returned = returned.removeprefix("Call[").removesuffix("]") if returned.startswith("Call[") else returned
    return signature.replace(parameters=parameters, return_annotation=returned)


def _direct_method(name: str, method: FunctionType) -> Callable[..., Any]:
    """Return the method for threads of one that touches nothing of the loop's."""

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        result = getattr(self.asyncio_object, name)(*args, **options)
        return type(self).of(self._thread, result) if isinstance(result, Client) else blocking(self._thread, result)

    return call


def _property(name: str, member: property, direct: bool) -> property:
    """Return the property for threads of an asyncio class's; it is read in the loop if it may change meanwhile."""

    def read(self: Blocking) -> Any:
        async def do() -> Any:
            return blocking(self._thread, getattr(self.asyncio_object, name))

        is_direct = direct or self._thread.has_ended
        return blocking(self._thread, getattr(self.asyncio_object, name)) if is_direct else self._thread.run(do)

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
        return other.asyncio_object is self.asyncio_object if isinstance(other, Blocking) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.asyncio_object)

    def __bool__(self) -> bool:
        return bool(self.asyncio_object)

    def __dir__(self) -> list[str]:
        public = (name for name in dir(self.asyncio_object) if not name.startswith("_"))
        return sorted({*object.__dir__(self), *public} - {"asyncio_class"})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "asyncio_object":  # also of one that is being copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        async def copy() -> Any:
            return blocking(self._thread, getattr(self.asyncio_object, name))

        if isinstance(value := getattr(self.asyncio_object, name), MappingProxyType):
            return self._thread.run(copy)  # it may change while it is copied
        return blocking(self._thread, value)


def _enter(self: Blocking) -> Any:
    async def enter() -> Any:
        entered = await self.asyncio_object.__aenter__()
        return self if entered is self.asyncio_object else blocking(self._thread, entered)

    return self._thread.run(enter)


def _exit(
    self: Blocking, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    async def leave() -> None:
        await self.asyncio_object.__aexit__(kind, error, trace)

    if self._thread.running:  # otherwise all has gone with the session
        self._thread.run_to_the_end(leave)


class BlockingIterator(Generic[T]):
    """An asynchronous iterator, for threads; each item goes to one of them."""

    def __init__(self, thread: LoopThread, iterator: AsyncIterator[T]) -> None:
        self._thread = thread
        self._iterator = iterator
        self._turn = asyncio.Lock()
        self._asked: asyncio.Future[T | object] | None = None  # for the next item
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Return the next item.

        Raises:
            StopIteration: There is none, or the iteration was ended.
            TimeoutError: None came within so many seconds.
        """
        end = object()

        async def ask() -> Any:
            async with self._turn:
                if self._closed:
                    return end
                # A task of its own: a timeout must not cancel it, which would end the iteration.
                asked = self._asked = self._asked or asyncio.ensure_future(_first(self._iterator, end))
                await asyncio.wait((asked,))
                self._asked = None
                return end if asked.cancelled() else blocking(self._thread, asked.result())

        item = self._thread.run(ask, timeout)
        if item is end:
            raise StopIteration
        return cast("T", item)

    def close(self) -> None:
        """End the iteration, that of other threads too."""

        async def close() -> None:
            self._closed = True
            if self._asked is not None:
                self._asked.cancel()
                await asyncio.wait((self._asked,))
            aclose = getattr(self._iterator, "aclose", None)
            if aclose is not None:
                await aclose()

        if self._thread.running:
            self._thread.run(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _first(iterator: AsyncIterator[Any], end: object) -> Any:
    return await anext(iterator, end)


def in_thread(thread: LoopThread, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls an ordinary function in a thread of its own, with blocking arguments."""
    if not callable(handler):
        raise TypeError(f"a handler must be a function, not {handler!r}")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return handler

    @functools.wraps(handler)
    async def call(*args: Any) -> Any:
        # Not the loop's own threads: those resolve host names, and a few long handlers would end the connecting.
        loop, result = asyncio.get_running_loop(), concurrent.futures.Future[Any]()

        result.set_running_or_notify_cancel()  # a thread cannot be cancelled: its result may come when nobody waits

        def work() -> None:
            try:
                value = handler(*[blocking(thread, value) for value in args])
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(f"{handler!r} returned {value!r}: it must be an ordinary function, or async")
                result.set_result(value)
            except BaseException as error:  # the caller's to handle, whatever it is
                result.set_exception(carried(error))

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
