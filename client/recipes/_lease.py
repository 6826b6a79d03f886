"""Leases: proof that a lock or another resource is held, its fencing token, and the detection of its loss.

A lease is held as long as its ephemeral node exists. States of a lease, and transitions::

    HELD --release--> RELEASED
      |
      +--> LOST, because:
           - the session ended, or the client was closed
           - the server may have expired the session: no request was answered that was sent within the timeout
           - another client deleted the node (watched after 0.05 s, or immediately if revocable)
           - the task that watches the node failed

Three detectors run while a lease is held, and call :meth:`Lease._mark_lost`: the client's states
(:meth:`Lease.on_state`), a timer for the deadline (``_check_deadline``), and a task for each node (``_monitor``).
SUSPENDED alone changes nothing: the session may still exist, until the deadline.

A lost lease deletes its nodes, unless they ended with the session. Otherwise, a session that still exists would keep
them.

The invariant: while a lease counts as held, no server can have expired its session, if clocks run at the same rate on
both machines. This holds because the time counts from the sending of the latest answered request, which the server
cannot have received earlier. It keeps counting while the machine is suspended. A server in read-only mode confirms
nothing. A process that is stopped (SIGSTOP, a garbage collector, a virtual machine that moves) notices the loss only
when it resumes. Work that must be correct even then needs the token, or :meth:`Lease.transaction`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from ...protocol.enums import EventType
from ...protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)
from .. import serializers
from ..aio.one_shot_event import OneShotEvent
from ..aio.operations import BaseClient
from ..aio.reliable import delete_guaranteed, repeat_despite_errors
from ..aio.supervision import CancellableBlock
from ..wire.states import State
from ..wire.transaction import Transaction
from ._base import INTERNAL

_log = logging.getLogger("zoolet.client")
NODE_GONE: Final = "its node no longer exists"
WATCH_DELAY: Final = 0.05
"""Seconds before the node of a new lease is watched. A shorter lease is not worth the cost of a watch."""
CHECK_INTERVAL: Final = 1.0
"""Maximum interval in seconds between checks of a lease's deadline."""
REVOKE_DATA: Final = b"__REVOKE__"
"""Data of a node whose owner should release it, as written by Curator's Revoker."""

lease_ref: Callable[..., weakref.ref[Lease]] = weakref.ref
"""Function that returns a weak reference to a lease, typed for leases of any class."""


class LockLostError(Exception):
    """The lease is no longer held.

    Args:
        path: Path of the lost node.
        reason: Cause of the loss.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"lost the lock {self.path}: {self.reason}"


class Lease:
    """Proof that a lock or a similar resource is held, until :meth:`release` or until it is lost.

    Args:
        client: Client whose session holds the lease.
        path: Path of the lease's node.
        czxid: Creation zxid of the node.
        token: Fencing token; by default *czxid*, because creating the node has granted the lease.
        revocable: Whether to watch for requests to release the lease.
        more_nodes: Further nodes that must all exist, each with its czxid.

    Attributes:
        path: Path of the lease's node.
        czxid: Creation zxid of the node, or of the proof node for a durable lock.
        nodes: All nodes of the lease, each with its czxid.
        proof_node: Node whose existence proves that the lease is held; each holder has a different one.
        token: Fencing token: the zxid of the reply or event that granted the lease. For locks and elections, it is
            higher than the token of every earlier holder. Readers that hold a lock together can share a token,
            and leases of a semaphore are not ordered. A store that saves the token with the data can refuse writes of
            an earlier holder.
        lost: Set when the lease is lost.
        depth: Number of times its holder has entered it.

    Keep a reference to the lease while it is held: nothing else refers to it. Dropping a held lease causes a
    ResourceWarning and a warning in the log, because the program can no longer release it or learn of its loss. It
    stays held until the session ends. Dropping a lost lease causes the same warnings if the program may not have
    noticed the loss: it neither released the lease, nor read ``lost``, nor received a LockLostError.
    """

    _outlives_sessions = False
    """Whether the lease remains held when its session ends."""
    _cancels_block = False
    """Whether losing the lease cancels its ``async with`` block, which then raises LockLostError."""
    _end_text = "the session ends"
    _expired_reason = "the server may have expired the session"
    _gone_reason = f"{NODE_GONE} (session expired, or node deleted by another client)"
    _closed_reason = "the client was closed"
    _released = True  # __del__ reads this even if the constructor fails

    def __init__(
        self,
        client: BaseClient[Any],
        path: str,
        czxid: int,
        *,
        token: int = 0,
        revocable: bool = False,
        more_nodes: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.path = self.proof_node = path
        self.czxid = czxid
        self.token: int = token or czxid
        self.lost = OneShotEvent(client._core.loop)
        self._revoked: OneShotEvent | None = None
        self.depth = 1
        self._held_lock: Any = None  # the lock that the lease belongs to
        # The caller that acquired the lease from that lock, and for a blocking client its thread. These are weak
        # references, because the lease may be the result of the task.
        self._owner: Callable[[], object] = _no_referent
        self._thread: Callable[[], object] = _no_referent
        self._successor: Lease | None = None
        self._release_error: ZooKeeperError | None = None
        self._client = client
        core = client._core
        self._session_id = core.session.id
        self.nodes: list[tuple[str, int]] = [(path, czxid), *more_nodes]
        self._released = False
        # The requests that delete the nodes of a lost lease; None until they are made.
        self._deletions: list[asyncio.Future[None]] | None = None
        self._revocable = revocable
        self._exchanging = False
        self._monitors: list[asyncio.Task[Any]] = []
        self._blocks: dict[CancellableBlock, None] = {}  # blocks to cancel when this lease is lost
        self._entered: tuple[CancellableBlock, ...] = ()  # blocks of `async with lease`, oldest first
        # Start with one timer: most leases are released before it fires.
        left = self._time_left()
        first = 0.0 if revocable else WATCH_DELAY if left > WATCH_DELAY else left
        assert core.loop is not None
        self._timer = core.loop.call_later(first, _start_monitors, lease_ref(self))
        core.add_listener(self)
        if left <= 0:  # this process was suspended when it acquired the lease
            self._mark_lost(self._expired_reason)

    def __repr__(self) -> str:
        state = "lost" if self.lost._happened else "released" if self._released else "held"
        return f"<{type(self).__name__} {self.path} token {self.token} {state}>"

    def __del__(self) -> None:
        if not self._released and self._client._core.is_open:
            for monitor in self._monitors:  # a running monitor would keep a dropped client alive
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    monitor.get_loop().call_soon_threadsafe(monitor.cancel)
        if not self._released and not self.lost._noticed:
            message = (
                f"{self!r} was dropped while held, and stays held until {self._end_text}; "
                "keep a reference and call release(), or use a with block"
            )
            if self.lost._happened:
                why = f"it was lost before ({self.lost.reason}), which the program may not have noticed"
                message = (
                    f"{self!r} was dropped without release(), and {why}; call raise_if_lost(), or use a with block"
                )
            _log.warning("%s", message)
            warnings.warn(message, ResourceWarning, source=self, stacklevel=1)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name not in INTERNAL]

    @property
    def revoked(self) -> OneShotEvent:
        """Set when another client requests the release of a revocable lease."""
        if self._revoked is None:  # created when first used, because few leases are revocable
            self._revoked = OneShotEvent(self._client._core.loop)
        return self._revoked

    def raise_if_lost(self) -> None:
        """Check that the lease is guaranteed to be still held.

        Raises:
            LockLostError: The lease was lost or released, or may have been lost.
        """
        if not self.lost._happened and not self._released and self._time_left() <= 0:
            loop = self._client._core.loop
            if loop is not None and asyncio._get_running_loop() is not loop and loop.is_running():  # in another thread
                with contextlib.suppress(RuntimeError):  # the loop may have been closed since
                    loop.call_soon_threadsafe(self._mark_lost, self._expired_reason)
                raise self._lost_error(self._expired_reason)
            self._mark_lost(self._expired_reason)
        if self.lost._happened or self._released:
            raise self._lost_error(self.lost.reason or "already released")

    def _lost_error(self, reason: str) -> LockLostError:
        """Return the error for the holder, and record that the holder knows of the loss."""
        self.lost._noticed = True
        return LockLostError(self.path, reason)

    def valid_for(self) -> float:
        """Return the number of seconds that the lease is guaranteed to be held, even without further replies."""
        return 0.0 if self.lost._happened or self._released or self._has_session_ended() else self._time_left()

    def _time_left(self) -> float:
        """Return the number of seconds until a server may end the lease."""
        return self._client._core.valid_for()

    def _has_session_ended(self) -> bool:
        return not self._outlives_sessions and self._client._core.session.id != self._session_id

    def transaction(self) -> Transaction[Any]:
        """Return a transaction that the server applies only while this lease is held.

        Raises:
            LockLostError: The lease is lost. If the commit raises it, nothing was applied.
        """
        self.raise_if_lost()

        def proof_missing() -> LockLostError:
            self._mark_lost(NODE_GONE)
            return self._lost_error(f"{NODE_GONE}; nothing was applied")

        return self._client.transaction(guards=self.proof_nodes(), guard_failed=proof_missing)

    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that the lease is held."""
        return [self.proof_node, *(path for path, _ in self.nodes[1:])]

    # --- loss ---

    def on_state(self, state: State) -> None:
        """Mark the lease as lost when the session ends or the client is closed."""
        if state is State.LOST and not self._outlives_sessions:
            self._mark_lost("the session ended")
        elif state is State.CLOSED:
            self.lost._noticed = True
            self._mark_lost(self._closed_reason)

    def _mark_lost(self, reason: str) -> None:
        """Record that the lease is lost, unless it was released or lost before."""
        if self._released or self.lost._happened:
            return
        self.lost.set(reason)
        for block in self._blocks:  # first, because a log handler of the program may raise
            block.cancel(f"lost the lock {self.path}: {reason}")
        _log.warning("lost the lock %s: %s", self.path, reason)
        self._stop_monitors()
        core = self._client._core
        if core.loop is not None and core.is_open and not core.loop.is_closed():
            core.loop.call_soon(self._give_up)  # later, because the constructor may not have completed the lease yet

    def _give_up(self) -> None:
        """Delete the nodes of the lost lease, unless they ended with the session."""
        if self._deletions is None and self._client._core.terminal_error is None:
            self._deletions = [] if self._has_session_ended() else self._delete_nodes()

    def _mark_gone(self) -> None:
        """Record that the node of the lease no longer exists."""
        self._mark_lost(self._gone_reason)

    def _enter_block(self, cancels: bool) -> CancellableBlock | None:
        """Enter a block.

        Args:
            cancels: Whether losing the lease cancels the block, which then raises LockLostError.

        Returns:
            The argument for :meth:`_exit_block`; None if *cancels* is False.

        Raises:
            LockLostError: The lease is already lost, so nothing would cancel the block later.
        """
        if not cancels:
            return None
        if self.lost._happened:
            self.release_nowait()
            raise self._lost_error(self.lost.reason)
        block = CancellableBlock(self._thread is not _no_referent)
        self._blocks[block] = None
        return block

    def _exit_block(
        self, block: CancellableBlock, kind: type[BaseException] | None, error: BaseException | None
    ) -> None:
        """Leave a block that is cancelled when the lease, or its successor, is lost.

        Raises:
            LockLostError: The lease was lost, and the loss cancelled the block or could not cancel it.
        """
        lease = self
        if self._successor is None:
            del self._blocks[block]
        else:
            lease = self._current()
            lease._blocks.pop(block, None)
        if lease.lost._happened and block.undo_cancel(kind):
            raise lease._lost_error(lease.lost.reason) from error

    def _check_deadline(self) -> None:
        """Check whether the lease may be lost, and schedule the next check."""
        left = self._time_left()
        if left <= 0:
            self._mark_lost(self._expired_reason)
        else:
            # At most one second, because the loop's clock, unlike the deadline, stops while the machine is suspended.
            delay, ref = min(left, CHECK_INTERVAL), lease_ref(self)
            self._timer = asyncio.get_running_loop().call_later(delay, _check_deadline, ref)

    def _start_monitors(self) -> None:
        """Start to monitor the deadline and the nodes."""
        self._check_deadline()
        if not self._released and not self.lost._happened and not self._exchanging:
            lease = lease_ref(self)
            self._monitors = [
                self._client._core.spawn(
                    _monitor(lease, self._client, path, czxid, self._revocable, self._outlives_sessions),
                    on_failure=partial(_monitor_failed, lease),
                )
                for path, czxid in self.nodes
            ]

    def _stop_monitors(self) -> None:
        self._timer.cancel()
        for monitor in self._monitors:
            if monitor is not asyncio.current_task(monitor.get_loop()):
                monitor.cancel()

    # --- release ---

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Release the lease without waiting for the server's answer: the request is sent before this returns.

        If the connection is lost before the answer, a background task repeats the request. Leaving an ``async with``
        block does this by default: the node will be deleted whether or not the answer arrives, so there is no need to
        wait for it.

        Returns:
            The requests that :meth:`release` waits for.

        Raises:
            RuntimeError: The call comes from outside the thread of the client's event loop. The lease stays held.
        """
        core = self._client._core
        if asyncio._get_running_loop() is not core.loop and core.terminal_error is None:
            core.check_loop()  # checked first, to change nothing if it raises
        if self._released:
            return []
        if self.depth > 1:  # the holder has entered the lock several times
            self.depth -= 1
            return []
        self._mark_released()
        if core.terminal_error is not None:
            return []  # the client is closed, or the parent of this forked child still holds the lease
        if self.lost._happened:
            self._give_up()
            return self._deletions or []
        return self._delete_nodes()

    def _delete_nodes(self) -> list[asyncio.Future[None]]:
        """Delete all nodes, and return the requests.

        They are sent before the return, because the process may exit right after the block.
        """
        client = self._client
        call = self._delete()
        call.add_done_callback(partial(self._on_deleted, self._delete_guaranteed))
        calls = [call]
        for path, _ in reversed(self.nodes[1:]):
            call = client._delete_own(path)
            call.add_done_callback(partial(self._on_deleted, partial(delete_guaranteed, client, path)))
            calls.append(call)
        client._core.flush()
        return calls

    def _on_deleted(self, repeat_delete: Callable[[], Coroutine[Any, Any, None]], call: asyncio.Future[None]) -> None:
        cancelled = call.cancelled()
        error = None if cancelled else call.exception()
        if error is None and not cancelled:
            return
        if isinstance(error, NoNodeError | ClosedError) or self._client.state is State.CLOSED:
            return
        if isinstance(error, SessionExpiredError) and not self._outlives_sessions:
            return
        if isinstance(error, ZooKeeperError) and not isinstance(error, ConnectionLossError | SessionExpiredError):
            self._release_error = error
            _log.error("%s could not be released; retrying: %s", self.path, error)
        self._client._core.spawn(repeat_delete())

    def _delete(self) -> asyncio.Future[None]:
        return self._client._delete_own(self.path)

    async def _delete_guaranteed(self) -> None:
        await delete_guaranteed(self._client, self.path)

    async def __aenter__(self) -> Self:
        self._client._core.check_loop()
        if (block := self._enter_block(self._cancels_block)) is not None:
            self._entered = (*self._entered, block)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_nowait()
        if self._entered:
            block = ([block for block in self._entered if block.is_current] or self._entered)[-1]
            self._entered = tuple(other for other in self._entered if other is not block)
            self._exit_block(block, kind, error)

    async def release(self) -> None:
        """Release the lease, and wait until the server has answered."""
        await wait_for_answers(self.release_nowait())

    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error that the server returned for the release, or None.

        After an error, the release is retried with delays of up to five seconds.
        """
        return self._release_error

    @property
    def released(self) -> bool:
        """Whether the lease was released."""
        return self._released

    def _replace_with(self, successor: Lease) -> None:
        """Record that *successor* replaces this lease: its loss now cancels the block that this lease was held for.

        Raises:
            LockLostError: *successor* is already lost.
        """
        self._successor = successor
        successor._blocks, self._blocks = self._blocks, {}
        self._mark_released()
        successor.raise_if_lost()

    def _current(self) -> Lease:
        """Return the latest successor of this lease, or this lease if it was not replaced."""
        lease = self
        while lease._successor is not None:
            lease = lease._successor
        return lease

    def _owner_is_done(self) -> bool:
        """Return whether the acquiring task or thread is done, and a different caller has to release it."""
        owner: Any = self._owner()
        return owner is None or (owner.done() if isinstance(owner, asyncio.Task) else not owner.is_alive())

    def _mark_released(self) -> None:
        """Record that the holder has deleted the node, or is about to."""
        self._released = True
        if self._held_lock is not None:
            self._held_lock.holdings.pop(lease_ref(self), None)
        self._stop_monitors()

    def _start_exchange(self) -> None:
        """Stop watching the nodes, because the holder is about to replace them."""
        for monitor in self._monitors:
            monitor.cancel()
        self._monitors = []
        self._exchanging = True


def _no_referent() -> None:
    """Return None, like a weak reference whose object no longer exists."""


async def wait_for_answers(deletions: list[asyncio.Future[None]]) -> None:
    """Wait until the requests that release a lease are answered. Errors are ignored."""
    for call in deletions:
        with contextlib.suppress(ZooKeeperError):  # a background task repeats the request if necessary
            await call


# Background tasks of a lease hold only a weak reference to it, to detect a lease that is dropped.


def _start_monitors(ref: weakref.ref[Lease]) -> None:
    if (lease := ref()) is not None:
        lease._start_monitors()


def _check_deadline(ref: weakref.ref[Lease]) -> None:
    if (lease := ref()) is not None:
        lease._check_deadline()


def _monitor_failed(ref: weakref.ref[Lease], error: Exception) -> None:
    if (lease := ref()) is not None:
        lease._mark_lost(f"the task that watches its node failed: {error!r}")


async def _monitor(
    ref: weakref.ref[Lease], client: BaseClient[Any], path: str, czxid: int, revocable: bool, across_sessions: bool
) -> None:
    """Mark a lease as lost when its node is deleted, and as revoked when a client requests its release.

    Errors from the server do not stop this task.
    """
    raw = client.with_serializer(serializers.raw)

    async def is_there() -> bool:
        async with client.watch_exists(path) as watch:  # exists needs no permission
            if watch.initial is None or watch.initial.czxid != czxid:
                return False
            if revocable and (await raw.get(path))[0] == REVOKE_DATA and (lease := ref()) is not None:
                lease.revoked.set("another client requested the release")
                del lease
            return (await watch.next()).type != EventType.NODE_DELETED

    while await repeat_despite_errors(client, is_there, done=(NoNodeError,), across_sessions=across_sessions):
        continue
    if (lease := ref()) is not None:
        lease._mark_gone()
