"""A call that runs in the event loop of a blocking client while another thread waits for its result."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from ...protocol.errors import ClosedError
from ..aio.call import callers
from .log import log

T = TypeVar("T")
Undo = Callable[[T], Coroutine[Any, Any, object]]
INTERRUPT_TIMEOUT: Final = 1.0
"""Seconds that the end of a block continues after an interrupt. After that, it is cancelled."""


class CarriedError(Exception):
    """A wrapper that carries errors to the waiting thread if a task or future of the loop must not raise them.

    Args:
        error: The error, such as SystemExit or KeyboardInterrupt.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def as_task_error(error: BaseException) -> BaseException:
    """Return an error in a form that a task or a future of the loop may raise."""
    if isinstance(error, StopIteration):
        return RuntimeError("a handler raised StopIteration")
    return error if isinstance(error, Exception | asyncio.CancelledError) else CarriedError(error)


class ThreadCall:
    """A call that runs in the loop while another thread waits for its result.

    Args:
        do: Function that returns the coroutine.
        timeout: Time limit in seconds; None for no limit.
        undo: Coroutine function that is called with a result that the thread does not receive; None to do nothing.
        caller: The caller, and its thread.
        undo_tasks: Set that keeps references to the tasks that run *undo*.
    """

    def __init__(
        self,
        do: Callable[[], Coroutine[Any, Any, Any]],
        timeout: float | None,
        undo: Undo[Any] | None,
        caller: tuple[object, threading.Thread],
        undo_tasks: set[asyncio.Task[Any]],
    ) -> None:
        self._do = do
        self._timeout = timeout
        self._undo = undo
        self._caller = caller
        self._undo_tasks = undo_tasks
        self._done_lock = threading.Lock()  # not an Event: a signal that interrupts its wait() would block its set()
        self._done_lock.acquire()
        self._task: asyncio.Task[Any] | None = None
        self._is_done = self._abandoned = self._limited = False
        self.has_failed = False
        """Whether the waiting thread received an error of the call. Other errors come from signal handlers."""
        self._result: Any = None
        self._error: BaseException | None = None

    # --- in the loop ---

    def start(self) -> None:
        """Start the call, unless it was started or abandoned."""
        if self._task is None and not self._abandoned and not self._is_done:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="zoolet-client-call")
            self._task.add_done_callback(self._on_ended)
            if self._limited:
                self.limit()

    async def _run(self) -> Any:
        task = asyncio.current_task()
        callers[task] = self._caller
        try:
            return await (self._do() if self._timeout is None else _run_with_limit(self._do, self._timeout))
        except (SystemExit, KeyboardInterrupt) as error:  # in a task, they would stop the loop and its thread
            raise as_task_error(error) from None
        finally:
            del callers[task], task  # the task refers to the error, and the error to this variable

    def _on_ended(self, task: asyncio.Task[Any]) -> None:
        if self._task is None:  # abandon() has called this before
            return
        self._task = None  # otherwise the waiting thread would free the task, which could lose an interrupt
        if task.cancelled():
            self.finish(None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.finish(None, error)
        else:
            self.finish(task.result(), None)
            if self._abandoned:
                self._start_undo()

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Store the result or the error, and wake the waiting thread."""
        if not self._is_done:
            self._result, self._error, self._is_done = result, error, True
            with contextlib.suppress(RuntimeError):  # the waiting thread and the ending loop may both do this
                self._done_lock.release()

    def abandon(self) -> None:
        """Cancel or undo the call, because a signal interrupted the wait."""
        if self._abandoned:
            return
        self._abandoned = True
        if self._task is None:
            self._start_undo()
        elif self._task.done():
            self._on_ended(self._task)  # immediately, because the undo must start before the next call of the thread
        else:
            self._task.cancel()

    def _start_undo(self) -> None:
        if self._undo is not None and self._is_done and self._error is None:
            start_task(partial(self._undo, self._result), self._undo_tasks)

    def limit(self) -> None:
        """Cancel the call after :data:`INTERRUPT_TIMEOUT` seconds, because a signal interrupted the wait."""
        self._limited = True
        if self._task is not None:
            self._task.get_loop().call_later(INTERRUPT_TIMEOUT, self._task.cancel)

    # --- in the waiting thread ---

    def wait(self) -> Any:
        """Wait for the result, and return it. If a signal interrupts the wait, this can be called again.

        Raises:
            BaseException: The error of the call.
        """
        if not self._is_done:  # after the end, an interrupted wait may already have acquired the lock
            self._done_lock.acquire()
        if self._error is not None:
            self.has_failed = True
            try:
                raise self._error.error if isinstance(self._error, CarriedError) else self._error
            finally:
                self._error = None  # break the reference cycle with this frame
        return self._result


async def _run_with_limit(do: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
    """Await a coroutine with a time limit. The loop enforces it, so the coroutine either completes or is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await do()
    except TimeoutError as error:
        if not limit.expired() or str(error):
            raise
    finally:
        del limit  # it refers to the task, which refers to the error
    raise TimeoutError(f"no result within {seconds:g} s")  # without the first error, which also refers to the task


def start_task(do: Callable[[], Coroutine[Any, Any, object]], tasks: set[asyncio.Task[Any]]) -> None:
    """Run a coroutine in the background, in the current loop, and log its error unless the client was closed."""

    def over(task: asyncio.Task[Any]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ClosedError):
            log.error(
                "cleaning up after an abandoned call failed; its lock or watch may remain until the session ends",
                exc_info=error,
            )

    task = asyncio.get_running_loop().create_task(do(), name="zoolet-client-undo")
    tasks.add(task)
    task.add_done_callback(over)
