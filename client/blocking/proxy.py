"""Clients, leases and recipes for threads: proxies for the asyncio objects, whose methods wait for the result.

No code is duplicated. :func:`blocking_class` creates the blocking class for an asyncio class, with a method for each of
its methods. The results of calls are also made blocking:

==============================  ====================================================================
asyncio                         threads
==============================  ====================================================================
a coroutine                     its result; all accept ``timeout=``, which raises TimeoutError
an asynchronous iterator        an iterator
``async with``                  ``with``
a lease, recipe, one-shot event the same, blocking
a live mapping of a cache       a copy of it
a client with other options     the same for threads
a handler argument              an ordinary function, which is called in a separate thread
any other function argument     called in the client's event loop: it must be short and not use the client
==============================  ====================================================================

A thread cannot be cancelled, so a lost lease or a failed background task does not cancel a block. Call
``lease.raise_if_lost()`` before a critical step. The error of a background task is raised at the end of the block.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import re
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping
from contextvars import copy_context
from types import FunctionType, GenericAlias, MappingProxyType, NoneType
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from ...protocol.records import Stat
from ..aio.one_shot_event import OneShotEvent
from ..aio.watcher import Watcher
from ..client import Client
from ..recipes._base import INTERNAL, Recipe
from ..recipes._lease import Lease
from ..recipes._lock_base import LockBase
from ..recipes._queue_entry import QueueEntry
from ..recipes.election import Election
from ..recipes.node_election import NodeElection
from ..recipes.rwlock import ReadWriteLock
from ..wire.transaction import Transaction
from .context import BlockingTransaction, BlockingWatcher, BlockMixin
from .loop_thread import LoopThread, release, start_thread
from .thread_call import as_task_error

T = TypeVar("T")
PROXIED_TYPES: Final = (
    Client,
    Lease,
    LockBase,
    Recipe,
    ReadWriteLock,
    Election,
    NodeElection,
    QueueEntry,
    OneShotEvent,
)
"""Types of results and attributes that get a blocking proxy."""
ACQUIRING_METHODS: Final = frozenset({"acquire", "attempt", "downgrade", "lead"})
"""Methods that return a new lease, or enter a lease again. If a signal interrupts them, the lease is released."""
UNCHANGED_TYPES: Final = frozenset({NoneType, bool, bytes, int, str, tuple, Stat})
"""Types of most results, which threads use unchanged."""
BLOCKING_DEFAULTS: Final = {"on_lost": "flag"}
"""Parameters whose defaults differ for threads, because a thread cannot be cancelled."""


def to_blocking(thread: LoopThread, value: Any) -> Any:
    """Return a value of the asyncio client in its form for threads."""
    if type(value) in UNCHANGED_TYPES:
        return value
    if isinstance(value, Watcher):
        return BlockingWatcher(thread, value)
    if isinstance(value, Transaction):
        return BlockingTransaction(thread, value)
    if isinstance(value, PROXIED_TYPES):
        return blocking_class(type(value)).of(thread, value)
    if isinstance(value, AsyncIterator):
        return BlockingIterator(thread, value)
    if isinstance(value, list) and value and isinstance(value[0], PROXIED_TYPES):
        return [to_blocking(thread, item) for item in value]
    return dict(value) if isinstance(value, MappingProxyType) else value


def to_asyncio(value: Any) -> Any:
    """Return an argument in its form for the asyncio client."""
    return value.asyncio_object if isinstance(value, Blocking) else value


_BLOCKING_CLASSES: Final[dict[type, type[Blocking]]] = {}


def blocking_class(
    kind: type,
    mixed_in: type | None = None,
    *,
    hidden: Container[str] = (),
    direct: Container[str] = (),
    module: str = "zoolet.client.blocking.recipes",
    doc: str = "",
) -> type[Blocking]:
    """Return the blocking class for an asyncio class. It is created once.

    Args:
        kind: The asyncio class.
        mixed_in: A base class whose members replace members of *kind*.
        hidden: Names of members of *kind* that the blocking class does not have.
        direct: Names of members that do not use the event loop, and are read and called in the caller's thread.
        module: Name of the module of the class.
        doc: Docstring of the class. The default is the docstring of *kind*.
    """
    face = _BLOCKING_CLASSES.get(kind)
    if face is None:
        own = (mixed_in,) if mixed_in is not None else ()
        bases = (*own, *(blocking_class(base) for base in kind.__bases__ if base is Lease))
        bases = bases if any(issubclass(base, Blocking) for base in bases) else (*bases, Blocking)
        members: dict[str, Any] = {"asyncio_class": kind, "__doc__": doc or kind.__doc__, "__module__": module}
        members |= _blocking_members(kind, mixed_in or Blocking, hidden, direct)
        if hasattr(kind, "__class_getitem__"):
            members["__class_getitem__"] = classmethod(GenericAlias)
        if hasattr(kind, "__aenter__") and not any(hasattr(base, "__enter__") for base in bases):
            bases = (*bases, BlockMixin)
            members["_is_held"] = issubclass(kind, Lease | QueueEntry)
        face = _BLOCKING_CLASSES.setdefault(kind, cast("type[Blocking]", type(kind.__name__, bases, members)))
    return face


def _blocking_members(
    kind: type, own: type, hidden: Container[str], direct: Container[str]
) -> Iterator[tuple[str, Any]]:
    """Yield the blocking methods and properties of a class, except those that are hidden or defined by *own*."""
    for name in dir(kind):
        if name.startswith("_") or name in hidden or hasattr(own, name) or hasattr(Blocking, name):
            continue
        member = inspect.getattr_static(kind, name)
        if isinstance(member, FunctionType):
            yield name, _direct_method(name, member) if name in direct else _blocking_method(name, member)
        elif isinstance(member, property):
            yield name, _blocking_property(name, member, name in direct)


def _blocking_method(name: str, method: FunctionType) -> Callable[..., Any]:
    """Return the blocking version of an asyncio method, which calls it in the loop and waits for its result."""
    code = method.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    has_timeout = "timeout" in parameters
    is_awaited = is_asynchronous(method)
    defaults = {name: value for name, value in BLOCKING_DEFAULTS.items() if name in parameters}
    has_handler = any(handler in parameters for handler in HANDLER_PARAMETERS)

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        timeout = options.pop("timeout", None) if is_awaited and not has_timeout else None
        if defaults:
            options = {**defaults, **options}
        thread, bound = self._thread, getattr(self.asyncio_object, name)
        if has_handler:
            arguments = bound_arguments(thread, name, inspect.signature(bound), args, options)
            args, options = arguments.args, arguments.kwargs
        elif args or options:
            args = tuple(map(to_asyncio, args))
            options = {name: to_asyncio(value) for name, value in options.items()}

        if not is_awaited:
            return thread.call(lambda: to_blocking(thread, bound(*args, **options)))

        async def do() -> Any:  # the call is not stored, because its error would refer to the variable
            return to_blocking(thread, await bound(*args, **options))

        return thread.run(do, timeout, release if name in ACQUIRING_METHODS else None)

    call.__signature__ = _blocking_signature(method, defaults, adds_timeout=is_awaited and not has_timeout)  # type: ignore[attr-defined]
    call.__annotations__ = {}  # the asyncio annotations would be wrong; the stubs contain the types
    return call


def is_asynchronous(method: Callable[..., Any]) -> bool:
    """Return whether the result of a method must be awaited, according to its definition."""
    returned = str(method.__annotations__.get("return"))
    return inspect.iscoroutinefunction(method) or returned.startswith(("Call[", "Awaitable[", "Coroutine["))


def _blocking_signature(
    method: Callable[..., Any], defaults: Mapping[str, Any], *, adds_timeout: bool
) -> inspect.Signature:
    """Return the blocking signature of an asyncio method."""
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
    """Return the blocking version of a method that does not use the event loop."""

    @functools.wraps(method)
    def call(self: Blocking, *args: Any, **options: Any) -> Any:
        result = getattr(self.asyncio_object, name)(*args, **options)
        return type(self).of(self._thread, result) if isinstance(result, Client) else to_blocking(self._thread, result)

    return call


def _blocking_property(name: str, member: property, direct: bool) -> property:
    """Return the blocking version of a property. It is read in the loop unless it is *direct*."""

    def read(self: Blocking) -> Any:
        def value() -> Any:
            return to_blocking(self._thread, getattr(self.asyncio_object, name))

        return value() if direct else self._thread.call(value)

    return property(read, doc=member.__doc__)


class Blocking:
    """A proxy through which threads use an asyncio object.

    Its subclasses, which :func:`blocking_class` creates, add the methods of the object.

    Attributes:
        asyncio_object: The asyncio object. Use it only in the client's event loop.
    """

    asyncio_class: ClassVar[type]

    def __init__(self, thread: LoopThread, asyncio_object: Any) -> None:
        self._thread = thread
        self.asyncio_object = asyncio_object

    @classmethod
    def of(cls, thread: LoopThread, asyncio_object: Any) -> Self:
        """Return the proxy for an asyncio object."""
        self = cls.__new__(cls)
        Blocking.__init__(self, thread, asyncio_object)
        return self

    def _to_blocking(self, value: Any) -> Any:
        return to_blocking(self._thread, value)

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
        return sorted({*object.__dir__(self), *public} - INTERNAL - {"asyncio_class", "of"})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "asyncio_object":  # asyncio_object is missing while a proxy is copied
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

        if isinstance(value := getattr(self.asyncio_object, name), MappingProxyType):
            # The loop copies the mapping, because only the loop changes it.
            return self._thread.call(lambda: to_blocking(self._thread, value))
        return to_blocking(self._thread, value)


_END: Final = object()
"""Marker for the end of an iteration."""


class BlockingIterator(Generic[T]):
    """An iterator for threads over an asynchronous iterator. Each item is returned to one thread only."""

    def __init__(self, thread: LoopThread, iterator: AsyncIterator[T]) -> None:
        self._thread = thread
        self._iterator = iterator
        self._turn = asyncio.Lock()
        self._item_request: asyncio.Future[T | object] | None = None  # the request for the next item
        self._returned: deque[Any] = deque()  # items that a thread did not receive, because a signal interrupted it
        self._closed = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self.next()

    def next(self, timeout: float | None = None) -> T:
        """Wait for the next item, and return it.

        Args:
            timeout: Seconds to wait; None for no limit.

        Raises:
            StopIteration: There are no more items, or the iterator was closed.
            TimeoutError: No item arrived within *timeout* seconds.
        """

        async def ask() -> Any:
            async with self._turn:
                if self._returned:
                    return self._returned.popleft()
                if self._closed:
                    return _END
                # The request is a separate task, because a timeout must not cancel it: that would end the iteration.
                asked = self._item_request = self._item_request or asyncio.ensure_future(_next_item(self._iterator))
                await asyncio.wait((asked,))
                self._item_request = None
                return _END if asked.cancelled() else to_blocking(self._thread, asked.result())

        async def return_item(item: object) -> None:
            if item is not _END:
                self._returned.append(item)

        item = self._thread.run(ask, timeout, return_item)
        if item is _END:
            raise StopIteration
        return item  # type: ignore[no-any-return] # without cast(): a signal could interrupt its call, and lose the item

    def close(self) -> None:
        """End the iteration, for all threads."""

        async def close() -> None:
            self._closed = True
            if self._item_request is not None:
                self._item_request.cancel()
                await asyncio.wait((self._item_request,))
            aclose = getattr(self._iterator, "aclose", None)
            if aclose is not None:
                await aclose()

        if self._thread.running:
            self._thread.run_to_completion(close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _next_item(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _END)


def run_in_thread(thread: LoopThread, handler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a coroutine function that calls an ordinary function in a separate thread, with blocking arguments.

    A coroutine function is returned unchanged.

    Raises:
        TypeError: *handler* is not callable. The returned function raises it if *handler* returns a coroutine.
    """
    if not callable(handler):
        raise TypeError(f"a handler must be a function, not {handler!r}")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return handler

    @functools.wraps(handler)
    async def call(*args: Any) -> Any:
        # The loop's own threads are not used, because a few long handlers would occupy them all.
        loop, context = asyncio.get_running_loop(), copy_context()
        result = loop.create_future()

        def finish(value: Any, error: BaseException | None) -> None:
            if result.done():  # a thread cannot be cancelled, so it may finish after its caller
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def work() -> None:
            value, failure = None, None
            try:
                value = handler(*[to_blocking(thread, value) for value in args])
                if inspect.iscoroutine(value):
                    value.close()
                    raise TypeError(f"handler {handler!r} returned {value!r}; define it with def or async def")
            except BaseException as error:  # the caller handles every error
                failure = as_task_error(error)
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, value, failure)

        worker = threading.Thread(target=context.run, args=(work,), name="zoolet-handler", daemon=True)
        start_thread(worker, lambda refused: loop.call_soon_threadsafe(finish, None, refused))
        return await result

    return call


HANDLER_PARAMETERS: Final = ("handler", "on_command", "lead")
"""Parameters of recipes and their methods that expect a coroutine function."""


def bound_arguments(
    thread: LoopThread,
    function: str,
    signature: inspect.Signature,
    args: tuple[Any, ...],
    options: Mapping[str, Any],
) -> inspect.BoundArguments:
    """Return the arguments of a call in their form for asyncio, with handlers that run in threads.

    Raises:
        TypeError: The arguments do not match the *signature* of *function*.
    """
    try:
        bound = signature.bind(*map(to_asyncio, args), **{name: to_asyncio(value) for name, value in options.items()})
    except TypeError as error:
        problem = re.sub(r"missing a required (?:[a-z-]+ )?argument: '(\w+)'", r"needs \1", str(error))
        problem = problem.replace("got an unexpected keyword argument", "has no argument")
        raise TypeError(f"{function}() {problem}") from None
    for name in HANDLER_PARAMETERS:
        if bound.arguments.get(name) is not None:
            bound.arguments[name] = run_in_thread(thread, bound.arguments[name])
    return bound
