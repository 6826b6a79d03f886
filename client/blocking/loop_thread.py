"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
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

        asyncio.run(main())

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
            raise terminal_error
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the client's own loop would wait forever")
        call = _Call(do, checked_timeout(timeout))
        with self._lock:
            if self._loop is None:  # why, may have become known in this moment
                not_running = RuntimeError("this Client does not run; use it as 'with Client(...) as zk:'")
                raise self._terminal_error() or not_running
            self._calls.add(call)
            context = copy_context()
            context.run(caller.set, threading.current_thread())
            self._loop.call_soon_threadsafe(call.start, context=context)
        try:
            result: T = call.wait()
        except asyncio.CancelledError:
            if self._loop is not None:
                raise
            raise (self._terminal_error() or ClosedError(detail="the client was closed")).with_traceback(None) from None
        finally:
            self._calls.discard(call)
        return result


class _Call:
    """One call: made in the loop, waited for in another thread."""

    def __init__(self, do: Callable[[], Coroutine[Any, Any, Any]], timeout: float | None) -> None:
        self._do = do
        self._timeout = timeout
        self._done = threading.Event()
        self._task: asyncio.Task[Any] | None = None
        self._abandoned = False
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
        if self._abandoned and hasattr(held, "release_nowait"):
            held.release_nowait()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._done.is_set():
            self.finish(self._result, self._error)

    # --- in the thread that waits ---

    def wait(self) -> Any:
        """Return the result; cancel the call if the wait is interrupted by a signal."""
        try:
            self._done.wait()
        except BaseException:
            self._abandoned = True
            loop = self._task.get_loop() if self._task is not None else None
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(self._cancel)
            raise
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # it refers to this frame
        return self._result
