"""Background tasks of recipes, and the handling of their failures.

- :class:`Follower` follows changes for the duration of a block.
- :class:`SupervisedBlock` runs background tasks whose failure cancels the block that started them.
- :class:`CancellableBlock` cancels a block, for a :class:`SupervisedBlock` and for a lost lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final

from ...protocol.errors import ClosedError, ConnectionLossError, SessionExpiredError, ZooKeeperError
from ..wire.requests import copy_error
from ..wire.states import State, WatchOverflowError
from .call import callers, ignore_result
from .limits import limited_outage
from .operations import BaseClient
from .reliable import RETRY_DELAY, RefusalCounter, delays_after_refusal
from .watcher import Watcher

_log = logging.getLogger("zoolet.client")
_CLOSED_MESSAGE: Final = "the client is closed"
_OTHER_TASK_MESSAGE: Final = (
    "the task that entered it is done; enter and run a block in the same task (to limit the wait, use timeout= "
    "or asyncio.timeout(), not wait_for())"
)


class Follower:
    """A background task that follows changes. It repeats a step, which watches and reads, until it is stopped.

    A step that fails with a ZooKeeperError is repeated, unless it is the first step and failed while the client was
    connected. If the server refuses the request, the pauses grow, and the error is logged once until a step completes
    again. Any other error stops the follower. Before the first complete step, :meth:`start` raises the error. After it,
    :meth:`changes` raises the error, and the owner is notified.

    Args:
        client: The client whose background tasks include the follower.
        step: Function that follows until an error occurs, and calls :meth:`mark_ready` when its data is complete.
    """

    def __init__(self, client: BaseClient[Any], step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._client = client
        self._step = step
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._change_count = 0
        self._error: Exception | None = None
        self._on_failure: Callable[[Exception], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        self._refusals = RefusalCounter()
        self._delays: Iterator[float] | None = None  # delays after a refused step; None once a step completes

    @property
    def is_started(self) -> bool:
        """Whether the follower was started, and not stopped since."""
        return self._task is not None and not self._stopped

    def raise_if_failed(self) -> None:
        """Raise the error that stopped the follower."""
        if self._error is not None:
            raise copy_error(self._error)

    def mark_ready(self) -> None:
        """Record that the followed data is complete."""
        self._ready.set()
        self._delays, self._refusals = None, RefusalCounter()

    def mark_changed(self) -> None:
        """Wake the iterators of :meth:`changes`, because there is a change."""
        self._change_count += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self) -> AsyncIterator[None]:
        """Yield now and after each change, until :meth:`stop`. Several quick changes may be combined.

        Raises:
            ClosedError: The client was closed.
            Exception: Another error stopped the follower.
        """
        seen = -1
        while True:
            self.raise_if_failed()
            if seen != self._change_count:
                seen = self._change_count
                yield
                continue
            if self._stopped:
                return
            await self._changed.wait()

    async def start(self, on_failure: Callable[[Exception], None] | None = None) -> None:
        """Start the follower, and wait until the followed data is complete.

        Args:
            on_failure: Function that is called with an error that stops the follower later.

        Raises:
            ConnectionLossError: The client was not connected in time.
            ZooKeeperError: The first step failed while the client was connected.
            ClosedError: The client is closed.
        """
        self._client._core.check_open()
        self._ready.clear()
        self._delays, self._refusals = None, RefusalCounter()
        self._error, self._on_failure, self._stopped = None, on_failure, False
        self._task = task = self._client._core.spawn(self._run(), on_failure=self._fail)
        task.add_done_callback(self._on_ended)
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            async with limited_outage(self._client, self._client._operation_timeout):
                await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.is_set():
                raise self._error or ClosedError(detail=_CLOSED_MESSAGE)
        except BaseException:  # even after a cancellation, nothing may keep running in the background
            self._stopped = True
            task.cancel()
            raise
        finally:
            ready.cancel()

    async def stop(self) -> None:
        """Stop the follower, and wait for the end of its task."""
        self._stopped = True
        self._wake()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._on_failure is not None and self._ready.is_set():
            self._on_failure(error)

    def _on_ended(self, task: asyncio.Task[Any]) -> None:
        """Wake the iterators of :meth:`changes`, because there will be no more changes."""
        if task is not self._task:
            return
        if self._error is None and not self._stopped:
            self._error = self._client.terminal_error or ClosedError(detail=_CLOSED_MESSAGE)
        self._wake()

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except ClosedError:
                raise
            except (ConnectionLossError, SessionExpiredError, WatchOverflowError) as error:
                self._refusals.check(error)
                await asyncio.sleep(RETRY_DELAY)
            except ZooKeeperError as error:
                if self._client.terminal_error is not None:  # for example, the server rejected the credentials
                    raise
                if not self._ready.is_set() and self._client.state is State.CONNECTED:
                    self._error = error  # start() raises it
                    return
                if self._delays is None:
                    self._delays = delays_after_refusal(self._client, error)
                await asyncio.sleep(next(self._delays))


class CancellableBlock:
    """A block that can be cancelled from outside, and then raises an error in place of the cancellation.

    It remembers the task that enters it. :meth:`cancel` cancels this task. At the end of the block, :meth:`undo_cancel`
    returns whether the block was left because of :meth:`cancel`.

    Args:
        in_thread: Whether the block runs in a thread of a blocking client.
    """

    _cancelled = _missed = False

    def __init__(self, in_thread: bool) -> None:
        self._task = task = asyncio.current_task()
        self._in_thread = in_thread
        self._cancelling = task.cancelling() if task is not None else 0

    @property
    def is_current(self) -> bool:
        """Whether the current task has entered the block."""
        return self._task is asyncio.current_task()

    def cancel(self, reason: str) -> None:
        """Cancel the block, unless its task is the current one, which gets an error anyway.

        A block cannot be cancelled if the task that entered it is done, because the block then runs in a thread or in
        a different task. For a different task, this is logged as an error.
        """
        task = self._task
        if task is not None and task.done():
            self._missed = True
            if not self._in_thread:
                _log.error("%s; the block continues, because it cannot be cancelled: %s", reason, _OTHER_TASK_MESSAGE)
        elif task is None or task is asyncio.current_task(task.get_loop()):
            return
        elif getattr(task.get_coro(), "cr_running", False):  # the task eagerly started the current task
            # Before Python 3.13, a task cannot take back a cancellation that has not reached it.
            self._missed = True
            task.get_loop().call_soon(self._cancel_later, reason)
        else:
            self._cancelled = True
            task.cancel(reason)

    def _cancel_later(self, reason: str) -> None:
        """Cancel the block, unless it has already ended and raised the error."""
        self._missed = False
        self.cancel(reason)

    def undo_cancel(self, kind: type[BaseException] | None) -> bool:
        """Undo the cancellation, and return whether the block must raise its own error.

        It must if :meth:`cancel` cancelled the block, or could not, because the task that entered it is done.
        """
        task, self._task = self._task, None
        if self._missed:
            return kind is None
        if not self._cancelled or task is None:
            return False
        left = task.uncancel()
        return kind is None or (kind is asyncio.CancelledError and left <= self._cancelling)


class SupervisedBlock:
    """The background tasks of an ``async with`` block.

    If a task fails or the client is closed, the block is cancelled and raises the error.

    Args:
        client: The client that runs the tasks.
    """

    def __init__(self, client: BaseClient[Any]) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[Any]] = set()
        self._block: CancellableBlock | None = None
        self._error: Exception | None = None
        client._core.add_listener(self)

    def on_state(self, state: State) -> None:
        """Cancel the block when the client is closed."""
        if state is State.CLOSED:
            self.fail(self._client.terminal_error or ClosedError(detail=_CLOSED_MESSAGE))

    def enter(self) -> None:
        """Start the block. The current task is cancelled if a background task fails or has already failed."""
        self._block = CancellableBlock(asyncio.current_task() in callers)
        if self._error is not None:
            asyncio.get_running_loop().call_soon(self._cancel_block)

    def spawn(self, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background until it returns or the block ends."""
        task = self._client._core.spawn(job, on_failure=self.fail)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fail(self, error: Exception) -> None:
        """Cancel the block because of an error. Only the first error is kept."""
        if self._error is None:
            self._error = error
            self._cancel_block()

    def _cancel_block(self) -> None:
        if self._block is not None:
            self._block.cancel(f"a background task failed: {self._error!r}")

    def exit(self, kind: type[BaseException] | None) -> None:
        """End the block, and cancel its tasks.

        Raises:
            Exception: A task failed with this error, and the block did not raise a different one.
            ClosedError: The block was cancelled because the client was closed.
        """
        for task in list(self._tasks):
            task.cancel()
        block, self._block = self._block, None
        error, self._error = self._error, None
        cancelled = block is not None and block.undo_cancel(kind)
        if error is not None and (cancelled or (kind is None and not isinstance(error, ClosedError))):
            raise error


# --- several watches ---


async def first_event(*waits: Watcher | Coroutine[Any, Any, Any]) -> None:
    """Wait until one of several watches has an event, or a coroutine is done.

    Raises:
        ClosedError: The client was closed.
        Exception: One of the watches or coroutines failed with this error.
    """
    tasks = [asyncio.ensure_future(wait.next() if isinstance(wait, Watcher) else wait) for wait in waits]
    for task in tasks:
        task.add_done_callback(ignore_result)  # several tasks may fail, and only one error is raised
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
