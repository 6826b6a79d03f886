"""An event loop in a separate thread, for blocking callers.

A signal handler, or a finalizer that the garbage collector calls, may interrupt a blocking call at any point, make
another call, or raise an error. So the waiting thread and the loop share only operations that cannot be interrupted
halfway (set operations, and ``call_soon_threadsafe``), and one lock for each call, which the thread acquires and the
loop releases. The loop never waits for that lock. Everything else happens in the loop.

The interrupted thread may also hold the lock of a log handler, or a lock that threads need to start and to end. So the
loop waits for neither (:mod:`~zoolet.client.blocking.log`, :func:`start_thread`), and :meth:`LoopThread.stop` does not
depend on ``Thread.join()``.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import contextlib
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, TypeVar, cast

from ...protocol.errors import ClosedError
from ..aio.blocks import Block
from ..aio.fork import FORKED_MESSAGE
from ..wire.arguments import checked_timeout
from ..wire.requests import copy_error
from .log import log, loop_record_filter, wait_for_records
from .thread_call import INTERRUPT_TIMEOUT, ThreadCall, Undo, start_task

T = TypeVar("T")
START_TIMEOUT: Final = 5.0
"""Maximum time in seconds until a new thread runs."""
JOIN_TIMEOUT: Final = 0.1
"""Maximum time in seconds until :mod:`threading` notices that a thread has no more code to run."""
EXIT_TIMEOUT: Final = 5.0
"""Maximum time in seconds to wait at interpreter exit until all clients are closed. They usually close faster."""


class LoopThread:
    """A thread with an event loop that runs coroutines for any number of other threads.

    Args:
        terminal_error: Function that returns the error for rejected calls. It returns None while calls are accepted.
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
        self._pid = os.getpid()  # the process of the thread
        self._stopped = False  # whether calls are refused
        self._exit_lock = threading.Lock()  # held by the thread until its end
        self._has_exited = False
        self._calls: set[ThreadCall] = set()
        self._blocks: set[weakref.ref[Block]] = set()
        self._posted: set[asyncio.Task[Any]] = set()

    @property
    def running(self) -> bool:
        """Whether the thread was started and not stopped. It is False in a forked child."""
        return self._loop is not None and not self._stopped and self._pid == os.getpid()

    def _has_ended(self) -> bool:
        """Return whether the thread was stopped. If so, wait briefly until it has exited."""
        if not self._stopped or self._thread is None:
            return False
        self._wait(INTERRUPT_TIMEOUT)
        return True

    @property
    def is_current(self) -> bool:
        """Whether this is the current thread."""
        return threading.current_thread() is self._thread

    @property
    def alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread is not None and self._pid == os.getpid() and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread, and return when its loop is running.

        Raises:
            RuntimeError: The thread was started before, or Python cannot start a thread.
            OSError: No event loop can be created, for example because no file descriptors are left.
        """
        if self._thread is not None:
            raise RuntimeError("this Client has already been started; create a new one")
        if sys.is_finalizing():  # a new thread would never run
            raise RuntimeError("this Client cannot be started, because the interpreter is shutting down")
        for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            log.isEnabledFor(level)  # not first called in the loop, because the first call waits for logging's lock
        started = threading.Lock()
        started.acquire()
        self._stopped, self._failure, self._loop, self._ended = False, None, None, None
        self._exit_lock, self._has_exited, self._pid = threading.Lock(), False, os.getpid()
        self._exit_lock.acquire()
        try:
            self._thread = threading.Thread(target=self._run_loop, args=(started,), name="zoolet-client", daemon=True)
            start_thread(self._thread, partial(self._refuse_start, started))
            if not started.acquire(timeout=START_TIMEOUT):
                raise RuntimeError(f"the thread of this Client did not start within {START_TIMEOUT:g} s")
            if self._failure is None:
                _running.add(self)
        except BaseException:  # an interrupt also has to stop the thread
            self.stop()
            raise
        if self._failure is not None:
            self._thread = None
            raise self._failure

    def _refuse_start(self, started: threading.Lock, refused: RuntimeError) -> None:
        self._failure = _thread_error(refused)
        started.release()

    def _run_loop(self, started: threading.Lock) -> None:
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
        loop_record_filter.threads.add(threading.get_ident())
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
            loop_record_filter.threads.discard(threading.get_ident())
            self._has_exited = True
            self._exit_lock.release()

    async def close(self) -> None:
        """Close the client and end the thread. Run this in the loop."""
        try:
            await self._close_client()
        finally:
            self.end()

    def stop(self, timeout: float | None = None) -> None:
        """Stop the loop and wait for the thread, if it is running. Pending calls are cancelled."""
        try:
            self._stop(timeout)
        except BaseException:  # even after an interrupt, the thread has to end
            self._stop(INTERRUPT_TIMEOUT)
            raise

    def _stop(self, timeout: float | None) -> None:
        self._stopped = True  # before _ended is read, because a thread that is still starting sets _ended first
        if self._thread is None or self._loop is None or self._ended is None:
            return
        self._schedule_in_loop(self._ended.set)
        self._wait(timeout)

    def _wait(self, timeout: float | None) -> None:
        """Wait up to *timeout* seconds until the thread has exited; None for no limit."""
        if self._thread is None or self.is_current or self._pid != os.getpid() or sys.is_finalizing():
            return  # at the end of the interpreter, the thread never runs again
        if not self._has_exited and self._exit_lock.acquire(timeout=-1 if timeout is None else timeout):
            self._exit_lock.release()
        if self._has_exited:
            self._thread.join(JOIN_TIMEOUT)

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
            RuntimeError: The loop is not running, the call comes from its own thread, this is a forked child, or the
                interpreter is shutting down.
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
                    self._schedule_in_loop(call.abandon)
                except BaseException:  # a second signal may have interrupted the first attempt
                    self._schedule_in_loop(call.abandon)
                    raise
            raise

    def run_to_completion(self, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine like :meth:`run`, but let it complete even if a signal interrupts the wait.

        After an interrupt, the coroutine has :data:`INTERRUPT_TIMEOUT` seconds to complete. The interrupt is
        raised afterwards.

        In the loop's own thread, where only a finalizer can call this, the coroutine runs later.
        """
        if self.is_current:
            return cast("T", self.post(do))
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
                    self._schedule_in_loop(call.limit)
        finally:
            self._calls.discard(call)
        if interrupt is not None:
            raise interrupt
        return result

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the loop, or in the current thread once the loop has stopped."""

        async def do() -> T:
            return function()

        if not self._has_ended():
            try:
                return self.run(do)
            except ClosedError:
                if not self._has_ended():  # the thread still runs, so it did not cause the error
                    raise
        return function()

    def watch(self, block: Block, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine in the loop if Python drops a block without leaving it, or if leaving it is interrupted.

        Python ignores errors in ``__del__``, even if a signal handler has raised them there. So a weak reference is
        used. It is kept here, because the collector ignores the callback of a weak reference that is itself garbage.
        """

        def drop(ref: weakref.ref[Block]) -> None:
            self._blocks.discard(ref)
            self.post(do)

        ref = weakref.ref(block, drop)
        self._blocks.add(ref)
        block.on_failure = partial(drop, ref)

    def unwatch(self, block: Block) -> None:
        """Stop watching a block, because it was left."""
        block.on_failure = None
        self._blocks.discard(weakref.ref(block))

    def post(self, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run a coroutine in the loop without waiting for it. Errors are logged.

        Args:
            do: Function that returns the coroutine. It is called in the loop.
        """
        if self.running:  # in a forked child, the loop belongs to the parent
            self._schedule_in_loop(self._post, do)

    def _post(self, do: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if not self._stopped:
            start_task(do, self._posted)

    def end(self) -> None:
        """Make the thread end soon. Call this in the loop."""
        self._stopped = True
        if self._ended is not None:
            self._ended.set()

    def _schedule_in_loop(self, step: Callable[..., object], *args: object) -> bool:
        """Schedule a function call in the loop. Return False if the loop was never started, or is closed."""
        if self._loop is None:
            return False
        try:
            self._loop.call_soon_threadsafe(step, *args)
        except RuntimeError:
            if not self._loop.is_closed():  # a signal handler may raise the same error
                raise
            return False
        return True

    def _new_call(
        self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None, undo: Undo[T] | None
    ) -> ThreadCall:
        thread = threading.current_thread()
        if thread is self._thread:
            text = "a blocking call in the client's own event loop would wait forever; use the asyncio client there"
            raise RuntimeError(text)
        if self._stopped or self._loop is None:
            not_running = RuntimeError("this Client is not running; use it as 'with Client(...) as zk:'")
            raise copy_error(self._terminal_error() or not_running)
        if self._pid != os.getpid():  # the loop belongs to the parent
            raise RuntimeError(FORKED_MESSAGE)
        if sys.is_finalizing():  # the thread never runs again
            raise RuntimeError("this Client cannot be used, because the interpreter is shutting down")
        loop = asyncio._get_running_loop()  # a loop of the program, which this call blocks
        task = asyncio.current_task(loop) if loop is not None else None
        return ThreadCall(do, timeout, undo, (task or thread, thread), self._posted)

    def _start_call(self, call: ThreadCall) -> None:
        if self._stopped:  # a new task would never run
            call.finish(None, asyncio.CancelledError())
        else:
            call.start()

    def _result(self, call: ThreadCall) -> Any:
        """Start a call, unless it was already started, and wait for its result."""
        self._calls.add(call)  # added before the start, because a loop that stops cancels the calls in this set
        if not self._schedule_in_loop(self._start_call, call):
            call.finish(None, asyncio.CancelledError())
        try:
            return call.wait()
        except asyncio.CancelledError:
            if not self._stopped:
                raise
            raise copy_error(self._terminal_error() or ClosedError(detail="the client was closed")) from None


_running: Final[weakref.WeakSet[LoopThread]] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close the running clients. Otherwise, calls in later finalizers would wait forever for their stopped threads."""
    deadline = time.monotonic() + EXIT_TIMEOUT
    threads = [thread for thread in list(_running) if thread.running]
    for thread in threads:
        thread.post(thread.close)
    for thread in threads:
        thread._wait(max(deadline - time.monotonic(), 0.0))
        thread.stop(0.1)
    wait_for_records(max(deadline - time.monotonic(), 0.0))


def start_thread(thread: threading.Thread, refuse: Callable[[RuntimeError], object]) -> None:
    """Start a thread without waiting for it.

    ``Thread.start()`` waits for a lock that an interrupted thread may hold, and an interrupt could stop it halfway. So
    it is called in a separate thread, which signals do not interrupt.

    Args:
        thread: The thread.
        refuse: Function that is called with Python's error if it cannot start the thread, for example because the
            interpreter is exiting.
    """

    def start() -> None:
        try:
            thread.start()
        except RuntimeError as refused:
            refuse(refused)

    try:
        _thread.start_new_thread(start, ())
    except RuntimeError as refused:
        if refused.__traceback__ is not None and refused.__traceback__.tb_next is not None:
            raise  # a signal handler raised this error
        refuse(refused)


def _thread_error(refused: RuntimeError) -> RuntimeError:
    """Return the error for Python's refusal to start a thread, for example in a subinterpreter."""
    return RuntimeError(f"cannot start the thread of this Client: {refused}; zoolet.client.Client needs no thread")


async def release(result: Any) -> None:
    """Release an acquired lease, or the lease of a queue's entry, that the caller did not receive."""
    held = getattr(result, "asyncio_object", result)  # a method of the blocking object would wait for this loop
    held = getattr(held, "lease", held)
    if hasattr(held, "release_nowait"):
        held.release_nowait()
