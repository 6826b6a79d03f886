"""What every recipe needs, written once: deletes and creates that survive lost replies, retries, supervised tasks.

A recipe has no loop of its own around ``ConnectionLossError``. It uses

- :func:`delete_guaranteed` and :func:`create_protected` (Curator's guaranteed delete and withProtection),
- :func:`repeat` for what may be done again until it is answered,
- :func:`first_event` to wait for the first of several watches,
- :class:`Follower` to follow something for as long as a block lasts,
- :class:`SupervisedBlock` for background tasks whose failure cancels the block that started them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from zoolet.client.states import State, StateListener, WatchOverflowError
from zoolet.client.watcher import Watcher
from zoolet.protocol import paths
from zoolet.protocol.errors import (
    AuthFailedError,
    ClosedError,
    ConnectionLossError,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)

T = TypeVar("T")
_log = logging.getLogger("zoolet.client")
PAUSE: Final = 0.05
"""Seconds between two tries of what is repeated."""
LONGEST_PAUSE: Final = 5.0
"""Seconds between two tries of what a server refuses again and again."""


class ReliableClient(Protocol):
    """What this module needs of a client."""

    @property
    def session_id(self) -> int:
        """The id of the session; 0 while there is none."""
        ...

    @property
    def state(self) -> State:
        """The state of the client."""
        ...

    @property
    def terminal_error(self) -> Exception | None:
        """Why no call is taken any more."""
        ...

    def spawn(
        self, job: Coroutine[Any, Any, Any], *, on_failure: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[Any]:
        """Run a supervised task."""
        ...

    def add_listener(self, listener: StateListener) -> None:
        """Notify an object of every new state, for as long as something else keeps it alive."""
        ...

    def children(self, path: str) -> Awaitable[list[str]]:
        """List children."""
        ...

    def sync(self, path: str = "/") -> Awaitable[None]:
        """Wait until the server is up to date."""
        ...

    def delete(self, path: str) -> Awaitable[None]:
        """Delete a node."""
        ...

    def ensure_path(self, path: str) -> Awaitable[None]:
        """Create a node and those above it."""
        ...


# --- one request, however often its reply is lost ---


async def repeat(
    do: Callable[[], Awaitable[T]], *, done: tuple[type[Exception], ...] = (), while_expired: bool = True
) -> T | None:
    """Repeat a request until the server has answered; only one that may be applied twice.

    Args:
        do: Makes the request; called for each try.
        done: Errors that mean that there is nothing left to do; the result is None then.
        while_expired: Go on in the next session when one ends.

    Raises:
        ClosedError: The client was closed.
        SessionExpiredError: The session ended, if *while_expired* is False.
    """
    while True:
        try:
            return await do()
        except done:
            return None
        except (ConnectionLossError, SessionExpiredError) as error:
            if isinstance(error, SessionExpiredError) and not while_expired:
                raise
            await asyncio.sleep(PAUSE)


async def repeat_despite_errors(
    do: Callable[[], Awaitable[T]], client: ReliableClient, *, done: tuple[type[Exception], ...] = ()
) -> T | None:
    """Repeat what may be done again in this session until the server has done it, whatever else it answers.

    The pauses grow to :data:`LONGEST_PAUSE`; the first error is logged.

    Args:
        do: Makes the requests; called for each attempt.
        client: Whose they are, for the log.
        done: Errors that mean that there is nothing left to do; the result is None then.

    Raises:
        ClosedError: The client was closed.
        SessionExpiredError: The session ended.
    """
    pause = PAUSE
    while True:
        try:
            return await repeat(do, done=done, while_expired=False)
        except (ClosedError, AuthFailedError, SessionExpiredError):
            raise
        except ZooKeeperError as error:
            if pause == PAUSE:
                _log.warning("%r cannot go on, and tries again: %s", client, error)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


async def delete_guaranteed(client: ReliableClient, path: str) -> None:
    """Delete a node, however often the connection is lost and whatever the server answers, until the client is closed.

    Source: Curator's guaranteed delete.
    """
    await until_gone(lambda: client.delete(path))


async def until_gone(delete: Callable[[], Awaitable[Any]]) -> None:
    """Delete something until it is gone or the client takes no more calls, whatever the server answers."""
    while True:
        try:
            await delete()
            return
        except (NoNodeError, ClosedError, AuthFailedError):
            return
        except ZooKeeperError:  # whatever it is, it may pass
            await asyncio.sleep(PAUSE)


def delete_in_background(client: ReliableClient, path: str) -> None:
    """Delete a node, guaranteed, without waiting for it; nothing is done once the client is closed."""
    if client.terminal_error is None:
        client.spawn(delete_guaranteed(client, path))


async def find_protected(client: ReliableClient, parent: str, protection_id: str) -> str | None:
    """Look for a node by the protection id in its name, at a server that knows all that was done before."""
    synced = asyncio.ensure_future(client.sync(parent))
    listed = asyncio.ensure_future(client.children(parent))
    try:
        await synced
        names = await listed
    except NoNodeError:
        return None
    finally:
        synced.cancel()
        listed.cancel()
    return next((paths.join(parent, name) for name in names if protection_id in name), None)


async def delete_protected(client: ReliableClient, parent: str, protection_id: str) -> None:
    """Delete, guaranteed, a node that may have been created, by the protection id in its name."""

    async def delete() -> None:
        path = await find_protected(client, parent, protection_id)
        if path is not None:
            await client.delete(path)

    await until_gone(delete)


async def create_protected(
    client: ReliableClient,
    parent: str,
    protection_id: str,
    create: Callable[[], Awaitable[str]],
    *,
    ephemeral: bool = True,
    parents: bool = True,
) -> str:
    """Create a node that is known by a unique id in its name, whatever happens to the reply.

    If the caller gives up, a background task deletes the node.

    Args:
        client: Whose session creates it.
        parent: The node above it.
        protection_id: A text in its name and in no other's.
        create: Creates it.
        ephemeral: It ends with the session.
        parents: Create the nodes above it that are missing.

    Returns:
        Its path.

    Raises:
        ConnectionLossError: It may have been created; there was no connection in time. It is deleted later.
        SessionExpiredError: The session has ended; if the node was ephemeral, it is gone.

    Source: Curator's withProtection.
    """
    session_id = client.session_id
    sent = False
    lost: ConnectionLossError | None = None  # of the last try whose reply was lost
    try:
        while True:
            try:
                sent = True
                return await create()
            except NoNodeError:
                sent = False
                if not parents:
                    raise
                await client.ensure_path(parent)
            except (ConnectionLossError, NodeExistsError) as error:  # it exists: the try whose reply was lost did it
                if isinstance(error, ConnectionLossError) and not error.maybe_applied:
                    sent = False
                    raise
                lost = error if isinstance(error, ConnectionLossError) else lost
                try:
                    path = await find_protected(client, parent, protection_id)
                except ConnectionLossError as unreachable:  # which says of itself that nothing was applied
                    raise lost or unreachable from None
                if path is not None:
                    return path
                if ephemeral and session_id and client.session_id != session_id:
                    raise SessionExpiredError(parent, "the session ended while the node was created") from None
    except BaseException as error:  # cancelled, too
        gone = ephemeral and isinstance(error, SessionExpiredError | ClosedError)
        if sent and not gone and client.terminal_error is None:
            client.spawn(delete_protected(client, parent, protection_id))
        raise


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


# --- background tasks ---


class Follower:
    """Follows something in the background: a step that watches and reads, again and again until it is stopped.

    A step that fails with a ZooKeeperError is repeated, unless it is the first, and failed although there was a
    connection; unless the connection or the session was lost, the error is logged, once until a step completes again.
    Another error ends the following: before the first complete step it is raised by :meth:`start`, after it
    by :meth:`changes`, and given to the owner.

    Args:
        client: Whose tasks run it.
        step: Follows until something breaks; calls :meth:`mark_ready` once what it follows is complete.
    """

    def __init__(self, client: ReliableClient, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._client = client
        self._step = step
        self._ready = asyncio.Event()
        self._changed = asyncio.Event()
        self._count = 0
        self._error: Exception | None = None
        self._on_failure: Callable[[Exception], None] | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False
        self._refused = False

    def mark_ready(self) -> None:
        """Record that what is followed is complete."""
        self._ready.set()
        self._refused = False

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
                raise self._error or ClosedError(detail="the client is closed")
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
            self._error = self._client.terminal_error or ClosedError(detail="the client is closed")
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
                if not self._refused:
                    self._refused = True
                    _log.warning("%r cannot go on, and tries again every %g s: %s", self._client, PAUSE, error)
                await asyncio.sleep(PAUSE)


class CancelledBlock:
    """A block that is cancelled from outside, and ends with an error in place of that cancellation.

    The task that enters is remembered; :meth:`cancel` cancels it, and :meth:`uncancelled` tells at the end of the block
    whether the cancellation that arrives there is that one.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self._cancelled = False

    def cancel(self, reason: str) -> None:
        """Cancel the block, unless its task is the one that runs now: that one gets an error anyway."""
        task = self._task
        if task is not None and not task.done() and task is not asyncio.current_task():
            self._cancelled = True
            task.cancel(reason)

    def uncancelled(self, kind: type[BaseException] | None) -> bool:
        """Return whether the block ends because of :meth:`cancel`; take the cancellation back if so."""
        task, self._task = self._task, None
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

    def __init__(self, client: ReliableClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[Any]] = set()
        self._block: CancelledBlock | None = None
        self._error: Exception | None = None
        client.add_listener(self)

    def on_state(self, state: State) -> None:
        """Receive the client's state."""
        if state is State.CLOSED:
            self.fail(self._client.terminal_error or ClosedError(detail="the client is closed"))

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
