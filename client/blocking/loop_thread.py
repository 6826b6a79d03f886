"""An event loop in a separate thread, for blocking callers."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Final, TypeVar

from ...protocol.errors import ClosedError
from ..aio.call import caller
from ..wire.arguments import checked_timeout

T = TypeVar("T")
INTERRUPT_TIMEOUT: Final = 1.0
"""Seconds that the end of a block continues after an interrupt. After that, it is cancelled."""
EXIT_TIMEOUT: Final = 5.0
"""Maximum time in seconds until a thread ends at the end of the interpreter. Clients close in less."""


class LoopThread:
    """A thread with an event loop that runs coroutines for any number of other threads.

    Args:
        terminal_error: Function that returns the error to raise once calls are no longer accepted; None before.
        at_exit: Coroutine function that closes the client at the end of the interpreter.
    """

    def __init__(
        self, terminal_error: Callable[[], Exception | None], at_exit: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._terminal_error = terminal_error
        self._at_exit = at_exit
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event | None = None
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()

    @property
    def running(self) -> bool:
        """Whether the thread was started and not stopped. It is False in a forked child."""
        return self._loop is not None and not isinstance(self._terminal_error(), RuntimeError)

    @property
    def has_ended(self) -> bool:
        """Whether the thread was stopped. Nothing runs in the loop any more then."""
        return self._loop is None and self._thread is not None

    @property
    def alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, and return when its loop is running.

        Raises:
            RuntimeError: The thread was started before, or Python cannot start a thread.
            OSError: No event loop can be created, for example because no file descriptors are left.
        """
        if self._thread is not None:
            raise RuntimeError("this Client has already been started; create a new one")
        if sys.is_finalizing():  # a new thread would never run
            raise RuntimeError("this Client cannot be started, because the interpreter is ending")
        started = threading.Event()
        try:
            self._thread = threading.Thread(target=self._serve, args=(started,), name="zoolet-client", daemon=True)
            self._thread.start()
        except RuntimeError as refused:  # for example because subinterpreters have no daemon threads
            self._thread = None
            raise RuntimeError(f"{refused}; zoolet.client.Client needs no thread") from None
        started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        _running.add(self)

    def _serve(self, started: threading.Event) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            ended = self._ended = asyncio.Event()
            started.set()
            await ended.wait()

        runner = asyncio.Runner()
        try:
            loop = runner.get_loop()
        except BaseException as failure:  # start() raises it
            self._failure = failure
            return started.set()
        with runner:
            serving = loop.create_task(main())
            while not serving.done():
                # A user's function may raise these inside a task. They end run_until_complete(), and would end this
                # thread. But they are also the result of the task, so they still reach the thread that waits for it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_until_complete(serving)

    def stop(self, timeout: float | None = None) -> None:
        """Stop the loop and wait for the thread, if it is running. Calls that still wait are cancelled."""
        with self._lock:  # no call is submitted after _loop is None
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None or self._ended is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed, because its task was cancelled
            loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(timeout)
        for call in list(self._calls):  # the loop stopped before it started or completed these calls
            call.finish(None, asyncio.CancelledError())

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Run a coroutine in the loop, and wait for its result.

        Args:
            do: Function that returns the coroutine. It is called in the loop.
            timeout: Time limit in seconds; None for no limit.

        Raises:
            ClosedError: The client was closed before or during the call.
            TimeoutError: The coroutine did not complete within *timeout* seconds, and was cancelled.
            ValueError: *timeout* is negative or not a number.
            RuntimeError: The loop is not running, or the call comes from its own thread.
        """
        terminal_error = self._terminal_error()
        if isinstance(terminal_error, RuntimeError):  # a forked child does not have the thread that would answer
            raise terminal_error.with_traceback(None)
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the client's own event loop would wait forever")
        call = _Call(do, checked_timeout(timeout))
        with self._lock:
            if self._loop is None:  # the terminal error may have been set since the check above
                not_running = RuntimeError("this Client is not running; use it as 'with Client(...) as zk:'")
                raise (self._terminal_error() or not_running).with_traceback(None)
            self._calls.add(call)
            loop = self._loop
        try:
            try:
                context = copy_context()
                context.run(caller.set, threading.current_thread())
                try:
                    loop.call_soon_threadsafe(call.start, context=context)
                except RuntimeError:  # the loop was closed after the check above
                    raise asyncio.CancelledError from None
                result: T = call.wait()
            finally:
                self._calls.discard(call)
            return result
        except asyncio.CancelledError:
            if self._loop is not None:
                raise
            raise (self._terminal_error() or ClosedError(detail="the client was closed")).with_traceback(None) from None
        except BaseException:
            if not call.has_failed:  # a signal interrupted the wait
                call.abandon(loop)
            raise

    def run_to_the_end(self, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine like :meth:`run`. If a signal interrupts the wait, the coroutine still has
        :data:`INTERRUPT_TIMEOUT` to complete, and the interrupt is raised afterwards.
        """
        interrupt: BaseException | None = None
        work: asyncio.Task[T] | None = None

        async def once() -> T:
            nonlocal work
            if work is None:
                work = asyncio.ensure_future(do())
            return await asyncio.shield(work)

        while True:
            try:
                result = self.run(once, None if interrupt is None else INTERRUPT_TIMEOUT)
            except BaseException as error:
                is_done = work is not None and work.done()
                if interrupt is not None and isinstance(error, TimeoutError) and work is not None and not is_done:
                    work.get_loop().call_soon_threadsafe(work.cancel)
                is_result = isinstance(error, Exception | asyncio.CancelledError) or is_done
                if not is_result:
                    interrupt = error
                    continue
                if interrupt is not None:
                    raise interrupt from error
                raise
            if interrupt is not None:
                raise interrupt
            return result


_running: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the running clients. Otherwise, calls in later finalizers would wait forever for their stopped threads."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    threads = [thread for thread in list(_running) if thread.running]
    closing = []
    for thread in threads:
        with contextlib.suppress(RuntimeError):  # it has just been stopped
            if (loop := thread._loop) is not None:
                closing.append(asyncio.run_coroutine_threadsafe(thread._at_exit(), loop))
    concurrent.futures.wait(closing, EXIT_TIMEOUT)
    for thread in threads:
        thread.stop(max(deadline - time.monotonic(), 0.1))


class CarriedError(Exception):
    """A wrapper that carries errors to the waiting thread if a task or future of the loop must not raise them.

    Args:
        error: The error, such as SystemExit or KeyboardInterrupt.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def carried(error: BaseException) -> BaseException:
    """Return an error in a form that a task or a future of the loop may raise."""
    if isinstance(error, StopIteration):
        return RuntimeError("a handler raised StopIteration")
    return error if isinstance(error, Exception | asyncio.CancelledError) else CarriedError(error)


class _Call:
    """A call that runs in the loop while another thread waits for its result."""

    def __init__(self, do: Callable[[], Coroutine[Any, Any, Any]], timeout: float | None) -> None:
        self._do = do
        self._timeout = timeout
        self._done = threading.Event()
        self._task: asyncio.Task[Any] | None = None
        self._abandoned = self._is_released = self.has_failed = False
        self._result: Any = None
        self._error: BaseException | None = None

    # --- in the loop ---

    def start(self) -> None:
        """Start the call."""
        if not self._abandoned:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="zoolet-client-call")
            self._task.add_done_callback(self._ended)
            if self._abandoned:  # the waiting thread may have given up after the first check
                self._task.cancel()

    async def _run(self) -> Any:
        # The loop enforces the timeout, so a call either completes and returns its result, or is cancelled.
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await self._do()
        except TimeoutError as error:
            if limit.expired() and not str(error):
                raise TimeoutError(f"no result within {self._timeout:g} s") from None
            raise
        except (SystemExit, KeyboardInterrupt) as error:  # in a task, they would stop the loop and its thread
            raise carried(error) from None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.finish(None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.finish(None, error)
        else:
            self.finish(task.result(), None)

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Wake the waiting thread. If it no longer waits, release an acquired lease."""
        if not self._done.is_set():
            self._result, self._error = result, error
            self._done.set()
        held = getattr(result, "asyncio_object", result)  # a method of the blocking object would wait for this loop
        if self._abandoned and not self._is_released and hasattr(held, "release_nowait"):
            self._is_released = True
            held.release_nowait()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._done.is_set():
            self.finish(self._result, self._error)

    # --- in the thread that waits ---

    def wait(self) -> Any:
        """Return the result."""
        self._done.wait()
        if self._error is not None:
            self.has_failed = True
            try:
                raise self._error.error if isinstance(self._error, CarriedError) else self._error
            finally:
                self._error = None  # break the reference cycle with this frame
        return self._result

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the call, because a signal interrupted the wait."""
        self._abandoned = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self._cancel)
