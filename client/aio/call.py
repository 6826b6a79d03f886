"""Calls: the objects that the user awaits and that the session completes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from threading import Thread
from types import TracebackType
from typing import Any, Final, TypeVar

from ...protocol.errors import ZooKeeperError

T = TypeVar("T")
callers: Final[dict[asyncio.Task[Any] | None, tuple[object, Thread]]] = {}
"""The caller and the waiting thread of each call of a blocking client, by the task that runs the call."""


def current_caller(loop: asyncio.AbstractEventLoop | None = None) -> tuple[object, Thread | None]:
    """Return the current caller, and the thread that waits for the result; None if this is not a blocking call.

    Normally, the caller is the current task. But a blocking client runs each call in a new task. The caller of such a
    call is the task that made it, or the thread if no task was running there. Tasks that the call starts are callers
    themselves.

    Args:
        loop: The running loop, if the caller knows it.
    """
    task = asyncio.current_task(loop)
    return callers[task] if task in callers else (task, None)


def wrong_thread_error(used: object) -> RuntimeError:
    """Return the error for the use of an object outside the thread of its event loop."""
    return RuntimeError(
        f"{used!r} was called outside the thread of its event loop; wrap the call in a coroutine and pass that "
        "to asyncio.run_coroutine_threadsafe(), or use zoolet.client.blocking"
    )


class Call(asyncio.Future[T], Coroutine[Any, Any, T]):
    """The call of a client's method. It starts immediately, even before it is awaited.

    So you can make a thousand calls before you await the first, and all are sent in one write. A call is both a future
    and a coroutine, so you can pass it to ``create_task``, ``gather``, ``wait_for`` or a ``TaskGroup``.
    """

    # With slots, a get takes a tenth fewer instructions than with a dictionary for each call.
    __slots__ = ("_steps", "zxid")

    zxid: int
    """Zxid in the server's reply. For a write, this is the zxid of the write itself. It is 0 until the reply
    arrives, and for a call that makes several requests.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self.zxid = 0
        self._steps: Any = None

    def send(self, value: Any) -> Any:
        """Run one step, as the coroutine of a task."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(
        self,
        typ: Any,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> Any:
        """Raise an exception at the point where the coroutine waits. Before its first step, this cancels the call."""
        if self._steps is None:
            self._abandon()
            self._steps = self.__await__()
        return self._steps.throw(typ) if val is None else self._steps.throw(typ, val, tb)

    def close(self) -> None:
        """Cancel the call, if it is not done."""
        self.cancel()

    def _abandon(self) -> None:
        """Cancel the call, because its caller was cancelled before it received the result."""
        self.cancel()

    def error(self) -> BaseException | None:
        """Return the error of a completed call. Unlike after ``exception()``, an unawaited error is still logged."""
        return asyncio.CancelledError() if self.cancelled() else self._exception


class RequestCall(Call[T]):
    """A call of one request to the server.

    Args:
        loop: The client's loop.
        op: The op code.
        body: The encoded request, without its header.
        decode: Function that decodes the body of the reply.
        path: The node, for error messages.
        deadline: Time, on the loop's clock, until which the call waits for a connection.
        idempotent: Whether the request may be sent again if the connection is lost before the reply.
        then: Function that is called with the result or the error, in order with other replies and events, before the
            caller resumes.

    Attributes:
        fallback: An error class that counts as success, and the result to return for it.
        retries_throttled: Whether the request is sent again, with growing pauses, if the server was too busy to try it.
        retry_delays: Iterator over these pauses; None until the first pause.
    """

    _FIELDS = (  # not in __slots__ itself, because pyright would treat decode as a method
        "op", "body", "decode", "path", "deadline", "idempotent", "then", "fallback", "retries_throttled",
        "retry_delays", "xid", "sent_at",
    )  # fmt: skip
    __slots__ = _FIELDS

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        op: int,
        body: bytes,
        decode: Callable[[bytes, int, int], T],
        path: str | None,
        deadline: float,
        idempotent: bool,
        then: Callable[[Any, ZooKeeperError | None], None] | None = None,
        retries_throttled: bool = False,
    ) -> None:
        asyncio.Future.__init__(self, loop=loop)  # Call.__init__ is inlined, because every request makes a call
        self.zxid = 0
        self._steps: Any = None
        self.op = op
        self.body = body
        self.decode = decode
        self.path = path
        self.deadline = deadline
        self.idempotent = idempotent
        self.then = then
        self.fallback: tuple[type[ZooKeeperError], Any] | None = None
        self.retries_throttled = retries_throttled
        self.retry_delays: Iterator[float] | None = None
        self.xid = 0
        self.sent_at = 0.0

    def refuse(self, error: ZooKeeperError) -> None:
        """Complete the call with an error that the server returned."""
        if self.fallback is not None and isinstance(error, self.fallback[0]):
            self.set_result(self.fallback[1])
        else:
            self.set_exception(error)


class CompoundCall(Call[T]):
    """A call that makes several requests, one after the other.

    Args:
        loop: The client's loop.
        steps: Coroutine that awaits the first request and makes the others.
        first: The first request, which was already submitted; None if there is none.
        undo: Function that is called with the result if the caller is cancelled before it receives the result.
    """

    __slots__ = ("_coroutine", "_first", "_task", "_undo")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        steps: Coroutine[Any, Any, T],
        first: Call[Any] | None,
        undo: Callable[[T], None] | None = None,
    ) -> None:
        super().__init__(loop)
        self._coroutine = steps
        self._first = first
        self._undo = undo
        self._task = loop.create_task(steps, name="zoolet-client-call")
        self._task.add_done_callback(self._complete)

    def __await__(self) -> Generator[Any, None, T]:
        try:
            result = yield from super().__await__()
            self._undo = None
            return result
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            del self  # otherwise, the call's error would refer to this frame, and the frame to the call

    def _abandon(self) -> None:
        if not self.done():
            self.cancel()
        elif self._undo is not None and not self.cancelled() and self.error() is None:
            self._undo(self.result())

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel the current request. The call is done only after its steps have cleaned up."""
        # A task that is cancelled before its first step never runs its coroutine, which has to clean up. So until then
        # only the first request is cancelled, and the coroutine receives the cancellation when it awaits the request.
        begun = inspect.getcoroutinestate(self._coroutine) != inspect.CORO_CREATED
        if not begun and self._first is not None and self._first.cancel(msg):
            return True
        return self._task.cancel(msg)

    def _complete(self, task: asyncio.Task[T]) -> None:
        self._first = None
        if task.cancelled():
            super().cancel()
        elif (error := task.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(task.result())


def ignore_result(call: asyncio.Future[Any]) -> None:
    """Retrieve the error of a call that is never awaited, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
