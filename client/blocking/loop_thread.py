"""An event loop in a separate thread, for blocking callers.

A signal handler, or a finalizer that the garbage collector calls, may interrupt a blocking call at any point, make
another call, or raise an error. So the waiting thread and the loop share only operations that cannot be interrupted
halfway (set operations, and ``call_soon_threadsafe``), and one lock for each call, which the thread acquires and the
loop releases. The loop never waits for that lock. Everything else happens in the loop.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar

from ...protocol.errors import ClosedError
from ..aio.call import callers
from ..wire.arguments import checked_timeout
from ..wire.requests import fresh

T = TypeVar("T")
Undo = Callable[[T], Coroutine[Any, Any, object]]
_log = logging.getLogger("zoolet.client")
INTERRUPT_TIMEOUT: Final = 1.0
"""Seconds that the end of a block continues after an interrupt. After that, it is cancelled."""
EXIT_TIMEOUT: Final = 5.0
"""Maximum time in seconds until a thread ends at the end of the interpreter. Clients close in less."""


class LoopThread:
    """A thread with an event loop that runs coroutines for any number of other threads.

    Args:
        terminal_error: Function that returns the error to raise once calls are no longer accepted; None before.
        close_client: Coroutine function that closes the client.
    """

    def __init__(
        self, terminal_error: Callable[[], Exception | None], close_client: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._terminal_error = terminal_error
        self._close_client = close_client
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event | None = None
        self._stopped = False  # whether calls are refused
        self._calls: set[_Call] = set()
        self._posted: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> bool:
        """Whether the thread was started and not stopped. It is False in a forked child."""
        return self._loop is not None and not self._stopped and not isinstance(self._terminal_error(), RuntimeError)

    @property
    def has_ended(self) -> bool:
        """Whether the thread was stopped. Then this waits for its end, which is near."""
        if not self._stopped or self._thread is None:
            return False
        if threading.current_thread() is not self._thread:
            self._thread.join(INTERRUPT_TIMEOUT)
        return True

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
        started = threading.Lock()
        started.acquire()
        self._stopped, self._failure, self._loop, self._ended = False, None, None, None
        try:
            self._thread = threading.Thread(target=self._serve, args=(started,), name="zoolet-client", daemon=True)
            # In another thread, which signals do not interrupt: otherwise Thread.start() could stop halfway.
            try:
                _thread.start_new_thread(self._start_thread, (self._thread, started))
            except RuntimeError as refused:  # for example because the interpreter is ending
                if refused.__traceback__ is not None and refused.__traceback__.tb_next is not None:
                    raise  # by a signal handler
                self._failure = _no_thread(refused)
            else:
                started.acquire()
            if self._failure is None:
                _running.add(self)
        except BaseException:  # an interrupt also has to stop the thread
            self.stop()
            raise
        if self._failure is not None:
            self._thread = None
            raise self._failure

    def _start_thread(self, thread: threading.Thread, started: threading.Lock) -> None:
        try:
            thread.start()
        except RuntimeError as refused:  # for example because no more threads are allowed
            self._failure = _no_thread(refused)
            started.release()

    def _serve(self, started: threading.Lock) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            ended = self._ended = asyncio.Event()
            started.release()
            if not self._stopped:  # start() was not interrupted
                await ended.wait()

        runner = asyncio.Runner()
        try:
            loop = runner.get_loop()
        except BaseException as failure:  # start() raises it
            self._failure = failure
            return started.release()
        try:
            # A user's function may raise these inside a task. They end run_until_complete(), and would end this thread.
            # But they are also the result of the task, so they still reach the thread that waits for it.
            with contextlib.suppress(SystemExit, KeyboardInterrupt), runner:
                serving = loop.create_task(main())
                while not serving.done():
                    with contextlib.suppress(SystemExit, KeyboardInterrupt):
                        loop.run_until_complete(serving)
        finally:
            self._stopped = True
            for call in list(self._calls):  # the loop stopped before it started or completed these calls
                call.finish(None, asyncio.CancelledError())

    async def close(self) -> None:
        """Close the client and end the thread; run this in the loop."""
        try:
            await self._close_client()
        finally:
            self.end()

    def stop(self, timeout: float | None = None) -> None:
        """Stop the loop and wait for the thread, if it is running. Calls that still wait are cancelled."""
        try:
            self._stop(timeout)
        except BaseException:  # an interrupt; the thread has to end nevertheless
            self._stop(INTERRUPT_TIMEOUT)
            raise

    def _stop(self, timeout: float | None) -> None:
        self._stopped = True  # before _ended is read: the thread may just be starting, and sets _ended first
        if self._thread is None or self._loop is None or self._ended is None:
            return
        self._in_loop(self._ended.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)

    # --- calls ---

    def run(
        self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None, undo: Undo[T] | None = None
    ) -> T:
        """Run a coroutine in the loop, and wait for its result.

        Args:
            do: Function that returns the coroutine. It is called in the loop.
            timeout: Time limit in seconds; None for no limit.
            undo: Coroutine function that is called with the result if an interrupt keeps the caller from receiving it.
                None to do nothing.

        Raises:
            ClosedError: The client was closed before or during the call.
            TimeoutError: The coroutine did not complete within *timeout* seconds, and was cancelled.
            ValueError: *timeout* is negative or not a number.
            RuntimeError: The loop is not running, or the call comes from its own thread.
        """
        call = self._new_call(do, checked_timeout(timeout), undo)
        try:
            try:
                result: T = self._result(call)
            finally:
                self._calls.discard(call)
            return result
        except BaseException:
            if not call.has_failed:  # a signal interrupted the wait
                try:
                    self._in_loop(call.abandon)
                except BaseException:  # a second signal
                    self._in_loop(call.abandon)
                    raise
            raise

    def run_to_the_end(self, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine like :meth:`run`. If a signal interrupts the wait, the coroutine still has
        :data:`INTERRUPT_TIMEOUT` to complete, and the interrupt is raised afterwards.
        """
        interrupt: BaseException | None = None
        call = self._new_call(do, None, None)
        try:
            while True:
                try:
                    result: T = self._result(call)
                    break
                except BaseException as error:
                    if call.has_failed and interrupt is not None:
                        raise interrupt from error
                    if call.has_failed:
                        raise
                    interrupt = error
                    self._in_loop(call.limit)
        finally:
            self._calls.discard(call)
        if interrupt is not None:
            raise interrupt
        return result

    def post(self, do: Callable[[], Coroutine[Any, Any, object]], dropped: object = None) -> None:
        """Run a coroutine in the loop without waiting for it. Errors are logged.

        Args:
            do: Function that returns the coroutine.
            dropped: The dead weak reference, if this is called as its callback. It is ignored.
        """
        if self.running:  # in a forked child, the loop belongs to the parent
            self._in_loop(self._post, do)

    def _post(self, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if not self._stopped:
            _start(do, self._posted)

    def end(self) -> None:
        """End the thread soon; call this in the loop."""
        self._stopped = True
        if self._ended is not None:
            self._ended.set()

    def _in_loop(self, step: Callable[..., object], *args: object) -> bool:
        """Call a function in the loop soon. Return False if the loop was never started, or is closed."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(step, *args)
        except RuntimeError:
            if not self._loop.is_closed():  # a signal handler may raise the same error
                raise
            return False
        return True

    def _new_call(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None, undo: Undo[T] | None) -> _Call:
        if isinstance(error := self._terminal_error(), RuntimeError):
            raise fresh(error)  # in a forked child, no thread would answer
        thread = threading.current_thread()
        if thread is self._thread:
            text = "a blocking call in the client's own event loop would wait forever; use the asyncio client there"
            raise RuntimeError(text)
        if self._stopped or self._loop is None:
            not_running = RuntimeError("this Client is not running; use it as 'with Client(...) as zk:'")
            raise fresh(self._terminal_error() or not_running)
        loop = asyncio._get_running_loop()  # a loop of the program, which this call blocks
        task = asyncio.current_task(loop) if loop is not None else None
        return _Call(do, timeout, undo, (task or thread, thread), self._posted)

    def _start_call(self, call: _Call) -> None:
        if self._stopped:  # a new task would never run
            call.finish(None, asyncio.CancelledError())
        else:
            call.start()

    def _result(self, call: _Call) -> Any:
        """Start a call, unless this was done before, and wait for its result."""
        self._calls.add(call)  # first, because a loop that stops cancels these calls
        if not self._in_loop(self._start_call, call):
            call.finish(None, asyncio.CancelledError())
        try:
            return call.wait()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            raise fresh(self._terminal_error() or ClosedError(detail="the client was closed")) from None


_running: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the running clients. Otherwise, calls in later finalizers would wait forever for their stopped threads."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    threads = [thread for thread in list(_running) if thread.running]
    for thread in threads:
        thread.post(thread.close)
    for thread in threads:
        assert thread._thread is not None
        thread._thread.join(max(deadline - time.monotonic(), 0.0))
        thread.stop(0.1)


def _no_thread(refused: RuntimeError) -> RuntimeError:
    """Return the error for Python's refusal to start a thread, for example in a subinterpreter."""
    return RuntimeError(f"cannot start the thread of this Client: {refused}; zoolet.client.Client needs no thread")


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
    """A call that runs in the loop while another thread waits for its result.

    Args:
        do: Function that returns the coroutine.
        timeout: Time limit in seconds; None for no limit.
        undo: Coroutine function that is called with a result that the thread does not receive; None to do nothing.
        caller: The caller, and its thread.
        undoing: Set for the tasks that undo.
    """

    def __init__(
        self,
        do: Callable[[], Coroutine[Any, Any, Any]],
        timeout: float | None,
        undo: Undo[Any] | None,
        caller: tuple[object, threading.Thread],
        undoing: set[asyncio.Task[Any]],
    ) -> None:
        self._do = do
        self._timeout = timeout
        self._undo = undo
        self._caller = caller
        self._undoing = undoing
        self._waiting = threading.Lock()  # not an Event: a signal that interrupts its wait() would block its set()
        self._waiting.acquire()
        self._task: asyncio.Task[Any] | None = None
        self._over = self._abandoned = self._limited = False
        self.has_failed = False
        """Whether the waiting thread received an error of the call. Other errors come from signal handlers."""
        self._result: Any = None
        self._error: BaseException | None = None

    # --- in the loop ---

    def start(self) -> None:
        """Start the call, unless it was started or abandoned."""
        if self._task is None and not self._abandoned and not self._over:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="zoolet-client-call")
            self._task.add_done_callback(self._ended)
            if self._limited:
                self.limit()

    async def _run(self) -> Any:
        task = asyncio.current_task()
        callers[task] = self._caller
        try:
            return await (self._do() if self._timeout is None else _limited(self._do, self._timeout))
        except (SystemExit, KeyboardInterrupt) as error:  # in a task, they would stop the loop and its thread
            raise carried(error) from None
        finally:
            del callers[task], task  # the task refers to the error, and the error to this variable

    def _ended(self, task: asyncio.Task[Any]) -> None:
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
        """Wake the waiting thread."""
        if not self._over:
            self._result, self._error, self._over = result, error, True
            with contextlib.suppress(RuntimeError):  # the waiting thread and the ending loop may both do this
                self._waiting.release()

    def abandon(self) -> None:
        """Cancel or undo the call, because a signal interrupted the wait."""
        if self._abandoned:
            return
        self._abandoned = True
        if self._task is None:
            self._start_undo()
        elif self._task.done():
            self._ended(self._task)  # now, because the next call of the thread must find everything undone
        else:
            self._task.cancel()

    def _start_undo(self) -> None:
        if self._undo is not None and self._over and self._error is None:
            _start(partial(self._undo, self._result), self._undoing)

    def limit(self) -> None:
        """Cancel the call after :data:`INTERRUPT_TIMEOUT`, because a signal interrupted the wait."""
        self._limited = True
        if self._task is not None:
            self._task.get_loop().call_later(INTERRUPT_TIMEOUT, self._task.cancel)

    # --- in the thread that waits ---

    def wait(self) -> Any:
        """Return the result. An interrupted wait may be repeated."""
        if not self._over:  # otherwise the lock may have been acquired before the interrupt
            self._waiting.acquire()
        if self._error is not None:
            self.has_failed = True
            try:
                raise self._error.error if isinstance(self._error, CarriedError) else self._error
            finally:
                self._error = None  # break the reference cycle with this frame
        return self._result


async def _limited(do: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
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


async def release(result: Any) -> None:
    """Release an acquired lease, or the lease of a queue's entry, that the caller did not receive."""
    held = getattr(result, "asyncio_object", result)  # a method of the blocking object would wait for this loop
    held = getattr(held, "lease", held)
    if hasattr(held, "release_nowait"):
        held.release_nowait()


def _start(do: Callable[[], Coroutine[Any, Any, object]], tasks: set[asyncio.Task[Any]]) -> None:
    """Run a coroutine in the background, in the current loop, and log its error."""

    def over(task: asyncio.Task[Any]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ClosedError):
            _log.error("the end of a call failed; a lock or watch may be left until the session ends", exc_info=error)

    task = asyncio.get_running_loop().create_task(do(), name="zoolet-client-undo")
    tasks.add(task)
    task.add_done_callback(over)
