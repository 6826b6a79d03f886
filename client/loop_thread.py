"""An event loop in a thread of its own, for blocking callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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

    @property
    def running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._loop is not None

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
        """Stop the loop and wait for the thread; harmless when it does not run."""
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None and self._ended is not None:
            loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def run(self, do: Callable[[], Coroutine[Any, Any, T]], timeout: float | None = None) -> T:
        """Do something in the loop, and wait for the result.

        Args:
            do: Called in the loop.
            timeout: Seconds after which it is cancelled and TimeoutError raised.

        Raises:
            RuntimeError: The loop does not run, or this is its own thread.
        """
        terminal_error = self._terminal_error()
        if isinstance(terminal_error, RuntimeError):  # this is a fork, which does not have the thread that would answer
            raise terminal_error
        if self._loop is None:
            raise terminal_error or RuntimeError("this Client does not run; use it as 'with Client(...) as zk:'")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call in the client's own loop would wait forever")

        async def call() -> T:
            return await do()

        future = asyncio.run_coroutine_threadsafe(call(), self._loop)
        try:
            return future.result(timeout)
        except BaseException:  # interrupted by a signal, too: what nobody waits for must not go on
            future.cancel()
            raise
