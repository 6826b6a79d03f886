"""Background tasks of recipes, and what their failure means.

- :class:`Follower` follows something for as long as a block lasts.
- :class:`SupervisedBlock` has background tasks whose failure cancels the block that started them.
- :class:`CancelledBlock` is what both that and a lost lease cancel with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Final

from zoolet.client.aio.client import Client
from zoolet.client.aio.reliable import PAUSE, delays_after_refusal
from zoolet.client.aio.watcher import Watcher
from zoolet.client.wire.states import State, WatchOverflowError
from zoolet.protocol.errors import ClosedError, ConnectionLossError, SessionExpiredError, ZooKeeperError

_log = logging.getLogger("zoolet.client")
_CLOSED: Final = "the client is closed"


class Follower:
    """Follows something in the background: a step that watches and reads, again and again until it is stopped.

    A step that fails with a ZooKeeperError is repeated, unless it is the first, and failed although there was a
    connection. If the server refuses it, the pauses grow, and the error is logged, once until a step completes again.
    Another error ends the following: before the first complete step it is raised by :meth:`start`, after it
    by :meth:`changes`, and given to the owner.

    Args:
        client: Whose tasks run it.
        step: Follows until something breaks; calls :meth:`mark_ready` once what it follows is complete.
    """

    def __init__(self, client: Client, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._client = client
        self._step = step
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._count = 0
        self._error: Exception | None = None
        self._on_failure: Callable[[Exception], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        self._delays: Iterator[float] | None = None  # once a step was refused, until one completes

    @property
    def begun(self) -> bool:
        """Whether it was begun, and not stopped since."""
        return self._task is not None and not self._stopped

    def mark_ready(self) -> None:
        """Record that what is followed is complete."""
        self._ready.set()
        self._delays = None

    def mark_changed(self) -> None:
        """Wake those that iterate the changes: there is one."""
        self._count += 1
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changes(self) -> AsyncIterator[None]:
        """Yield now, and after each change, until :meth:`stop`; changes that come fast may be one.

        Raises:
            ClosedError: The client was closed.
            Exception: Whatever else ended the following.
        """
        seen = -1
        while True:
            if self._error is not None:
                raise self._error
            if seen != self._count:
                seen = self._count
                yield
                continue
            if self._stopped:
                return
            await self._changed.wait()

    async def start(self, on_failure: Callable[[Exception], None] | None = None) -> None:
        """Begin, and wait until what is followed is complete.

        Args:
            on_failure: Called with the error that ends the following later.

        Raises:
            ZooKeeperError: The first step failed although there was a connection.
            ClosedError: The client is closed.
        """
        self._ready.clear()
        self._error, self._on_failure, self._stopped = None, on_failure, False
        self._task = task = self._client.spawn(self._run(), on_failure=self._fail)
        task.add_done_callback(self._ended)
        ready = asyncio.ensure_future(self._ready.wait())
        try:
            await asyncio.wait((ready, task), return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.is_set():
                raise self._error or ClosedError(detail=_CLOSED)
        except BaseException:  # cancelled, too: nothing may go on in the background
            task.cancel()
            raise
        finally:
            ready.cancel()

    async def stop(self) -> None:
        """End it."""
        self._stopped = True
        self._wake()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._on_failure is not None and self._ready.is_set():
            self._on_failure(error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Wake those that iterate the changes: there will be no more."""
        if task is not self._task:
            return
        if self._error is None and not self._stopped:
            self._error = self._client.terminal_error or ClosedError(detail=_CLOSED)
        self._wake()

    async def _run(self) -> None:
        while True:
            try:
                await self._step()
            except ClosedError:
                raise
            except (ConnectionLossError, SessionExpiredError, WatchOverflowError):
                await asyncio.sleep(PAUSE)
            except ZooKeeperError as error:
                if self._client.terminal_error is not None:  # refused credentials, for example: no step will succeed
                    raise
                if not self._ready.is_set() and self._client.state is State.CONNECTED:
                    self._error = error  # start() raises it
                    return
                if self._delays is None:
                    self._delays = delays_after_refusal(self._client, error)
                await asyncio.sleep(next(self._delays))


class CancelledBlock:
    """A block that is cancelled from outside, and ends with an error in place of that cancellation.

    The task that enters is remembered; :meth:`cancel` cancels it, and :meth:`uncancelled` tells at the end of the block
    whether the cancellation that arrives there is that one.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._cancelled = self._missed = False

    def cancel(self, reason: str) -> None:
        """Cancel the block, unless its task is the one that runs now: that one gets an error anyway."""
        task = self._task
        if task is not None and task.done():  # it entered for a thread, which cannot be cancelled
            self._missed = True
        elif task is not None and task is not asyncio.current_task():
            self._cancelled = True
            task.cancel(reason)

    def uncancelled(self, kind: type[BaseException] | None) -> bool:
        """Return whether the block ends because of :meth:`cancel`, or would have; take the cancellation back if so."""
        task, self._task = self._task, None
        if self._missed:
            return kind is None
        if not self._cancelled or task is None:
            return False
        left = task.uncancel()
        return kind is None or (kind is asyncio.CancelledError and left <= self._cancelling)


class SupervisedBlock:
    """The background tasks of an ``async with`` block: an error in one of them, or the end of the client, cancels the
    block, which raises the error.

    Args:
        client: Whose tasks they are.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[Any]] = set()
        self._block: CancelledBlock | None = None
        self._error: Exception | None = None
        client.add_listener(self)

    def on_state(self, state: State) -> None:
        """Receive the client's state."""
        if state is State.CLOSED:
            self.fail(self._client.terminal_error or ClosedError(detail=_CLOSED))

    def enter(self) -> None:
        """Begin the block: the present task is cancelled when a background task fails, or has failed already."""
        self._block = CancelledBlock()
        if self._error is not None:
            asyncio.get_running_loop().call_soon(self._cancel_block)

    def spawn(self, job: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a task until it ends or the block does."""
        task = self._client.spawn(job, on_failure=self.fail)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def fail(self, error: Exception) -> None:
        """Cancel the block because of an error; the first one counts."""
        if self._error is None:
            self._error = error
            self._cancel_block()

    def _cancel_block(self) -> None:
        if self._block is not None:
            self._block.cancel(f"the background tasks ended: {self._error!r}")

    def exit(self, kind: type[BaseException] | None) -> None:
        """End the block, and cancel its tasks.

        Raises:
            Exception: The error of a task that failed, unless the block raised another one; or ClosedError, if the
                end of the client cancelled the block.
        """
        for task in list(self._tasks):
            task.cancel()
        block, self._block = self._block, None
        error, self._error = self._error, None
        cancelled = block is not None and block.uncancelled(kind)
        if error is not None and (cancelled or (kind is None and not isinstance(error, ClosedError))):
            raise error


# --- several watches ---


async def first_event(*watchers: Watcher) -> None:
    """Wait until one of several watches has an event.

    Raises:
        ClosedError: The client was closed, or whatever else a watch fails with.
    """
    await _first(*[watcher.next() for watcher in watchers])


async def first_event_or(other: Coroutine[Any, Any, Any], *watchers: Watcher) -> None:
    """Wait until one of several watches has an event, or something else is done; errors as for :func:`first_event`."""
    await _first(other, *[watcher.next() for watcher in watchers])


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
