"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from zoolet.client.aio.call import caller
from zoolet.client.wire.arguments import checked_timeout
from zoolet.protocol.errors import ClosedError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in its loop; may be called from any number of threads at once.

    Args:
        terminal_error: Returns why nothing can be run any more, None while something can.
    """

    def __init__(self, terminal_error: Callable[[], Exception | None]) -> None:
        self._terminal_error = terminal_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Event | None = None
        self._lock = threading.Lock()
        self._calls: set[_Call] = set()

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped; in a forked child it does not run."""
        return self._loop is not None and not isinstance(self._terminal_error(), RuntimeError)

    @property
    def has_ended(self) -> bool:
        """Whether it was stopped: nothing runs in the loop any more."""
        return self._loop is None and self._thread is not None

    @property
    def alive(self) -> bool:
        """Whether the thread has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; return once its loop runs.

        Raises:
            RuntimeError: It was started before.
        """
        if self._thread is not None:
            raise RuntimeError("this Client was started before; make another one")
        started = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(started,), name="zoolet-client", daemon=True)
        self._thread.start()
        started.wait()

    def _serve(self, started: threading.Event) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            ended = self._ended = asyncio.Event()
            started.set()
            await ended.wait()

        with asyncio.Runner() as runner:
            loop = runner.get_loop()
            serving = loop.create_task(main())
            while not serving.done():
                # A function of the user's may raise these inside a task. They end run_until_complete(), and would end
                # the thread; but they are the result of that task, too, and so reach the thread that waits for it.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_until_complete(serving)

    def stop(self) -> None:
        """Stop the loop and wait for the thread; harmless when it does not run. Calls that still wait are refused."""
        with self._lock:  # from here on no call is submitted
            loop, self._loop = self._loop, None
        if loop is None or self._thread is None or self._ended is None:
            return
        loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()
        for call in list(self._calls):  # the loop has ended before it came to them
            call.finish(None, asyncio.CancelledError())

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something in the loop, and wait for the result.

        Args:
            do: Called in the loop.
            timeout: Seconds after which it is cancelled and TimeoutError raised.

        Raises:
            ClosedError: The client was closed, before or meanwhile.
            RuntimeError: The loop does not run, or this is its own thread.
        """
        terminal_error = self._terminal_error()
        if isinstance(terminal_error, RuntimeError):  # this is a fork, which does not have the thread that would answer
            raise terminal_error.with_traceback(None)
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the client's own loop would wait forever")
        call = _Call(do, checked_timeout(timeout))
        with self._lock:
            if self._loop is None:  # the reason may have become known just now
                not_running = RuntimeError("this Client does not run; use it as 'with Client(...) as zk:'")
                raise (self._terminal_error() or not_running).with_traceback(None)
            self._calls.add(call)
            loop = self._loop
        try:
            try:
                context = copy_context()
                context.run(caller.set, threading.current_thread())
                loop.call_soon_threadsafe(call.start, context=context)
                result: T = call.wait()
            finally:
                self._calls.discard(call)
            return result
        except asyncio.CancelledError:
            if self._loop is not None:
                raise
            raise (self._terminal_error() or ClosedError(detail="the client was closed")).with_traceback(None) from None
        except BaseException:
            if not call.has_failed:  # interrupted by a signal
                call.abandon(loop)
            raise

    def run_to_the_end(self, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something in the loop as :meth:`run` does; if the wait is interrupted by a signal, it is done all the
        same, and the interrupt raised after it.
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
                result = self.run(once)
            except BaseException as error:
                is_result = isinstance(error, Exception | asyncio.CancelledError) or (work is not None and work.done())
                if not is_result:
                    interrupt = error
                    continue
                if interrupt is not None:
                    raise interrupt from error
                raise
            if interrupt is not None:
                raise interrupt
            return result


class CarriedError(Exception):
    """Carries what must not be raised in a task or a future of the loop to the thread that waits.

    Args:
        error: SystemExit, KeyboardInterrupt or the like.
    """

    def __init__(self, error: BaseException) -> None:
        super().__init__(repr(error))
        self.error = error


def carried(error: BaseException) -> BaseException:
    """Return an error as a task or a future of the loop may raise it."""
    if isinstance(error, StopIteration):
        return RuntimeError("a handler raised StopIteration")
    return error if isinstance(error, Exception | asyncio.CancelledError) else CarriedError(error)


class _Call:
    """One call: made in the loop, waited for in another thread."""

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
        """Make the call."""
        if not self._abandoned:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="zoolet-client-call")
            self._task.add_done_callback(self._ended)
            if self._abandoned:  # in this very moment
                self._task.cancel()

    async def _run(self) -> Any:
        # The timeout is the loop's: what is done in time is returned, and nothing is done that is not returned.
        limit = asyncio.timeout(self._timeout)
        try:
            async with limit:
                return await self._do()
        except TimeoutError as error:
            if limit.expired() and not str(error):
                raise TimeoutError(f"there was no result within {self._timeout:g} s") from None
            raise
        except (SystemExit, KeyboardInterrupt) as error:  # raised in a task, they would end the loop and its thread
            raise carried(error) from None

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self.finish(None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.finish(None, error)
        else:
            self.finish(task.result(), None)

    def finish(self, result: Any, error: BaseException | None) -> None:
        """Wake the thread that waits; if none does any more, release what was acquired."""
        if not self._done.is_set():
            self._result, self._error = result, error
            self._done.set()
        held = getattr(result, "asyncio_object", result)  # what stands for it here would wait for this loop
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
                self._error = None  # it refers to this frame
        return self._result

    def abandon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the call: its wait was interrupted by a signal."""
        self._abandoned = True
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._cancel)
