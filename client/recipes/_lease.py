"""Leases: what holding something means, its fencing token, and the moment at which it is lost.

What is held is an ephemeral node. States of a lease, and transitions::

    HELD --release--> RELEASED
      |
      +--the session is over, or the client was closed
      +--the server may have ended the session: nothing that it answered was sent within the session timeout
      +--somebody else deleted the node (watched after 0.05 s, or at once if revocable) --> LOST, with the reason
      +--what watches the node failed

Three detectors run while it is held, and call :meth:`Lease._mark_lost`: the client's states (:meth:`Lease.on_state`), a
timer for the deadline (``_check_deadline``), and a task for each node (``_monitor``). SUSPENDED alone changes nothing:
the session may still exist, until the deadline.

The invariant: while a lease counts as held, no server can have ended its session, if clocks run at the same rate on
both machines, because the time is counted from before the server can have received anything, and goes on while the
machine is suspended. A server in read-only mode confirms nothing. A process that is stopped (SIGSTOP, a garbage
collector, a virtual machine that moves) notices only when it goes on. What must be right even then needs the token, or
:meth:`Lease.transaction`.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
import weakref
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.one_shot_event import OneShotEvent
from zoolet.client.aio.reliable import delete_guaranteed, repeat_despite_errors
from zoolet.client.aio.supervision import CancelledBlock
from zoolet.client.wire.states import State
from zoolet.client.wire.transaction import Transaction
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)

_log = logging.getLogger("zoolet.client")
NODE_GONE: Final = "its node is gone"
GUARD_AFTER: Final = 0.05
"""Seconds after which the node of a lease is watched: for a shorter one that would cost more than it brings."""
CHECK_EVERY: Final = 1.0
"""Seconds after which the deadline of a lease is looked at, at the latest."""
REVOKE: Final = b"__REVOKE__"
"""The data of a node whose owner is asked to release it, as Curator's Revoker writes it."""


class LockLostError(Exception):
    """A lease is not held any more.

    Args:
        path: The node.
        reason: How it was lost.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} is lost: {self.reason}"


class Lease:
    """A hold that lasts until :meth:`release`, or until it is lost.

    Args:
        client: Whose session holds it.
        path: The node.
        czxid: Its czxid.
        token: The fencing token; by default the czxid.
        revocable: Watch for requests to release it.
        more_nodes: Further nodes that all have to be there, each with its czxid.

    Attributes:
        path: The node.
        czxid: The czxid of the node; of a durable lock's that of its proof node.
        nodes: All its nodes, each with its czxid.
        proof_node: The node whose existence proves that this is held; other holders have others.
        token: The fencing token, a zxid at which this was held: higher than that of every earlier holder, and lower
            than that of every later one. A store that keeps it with what is written can refuse an earlier holder.
        lost: Happens when it is lost.
        revoked: Happens when somebody asks that it be released; only if it is revocable.
        depth: How often its holder has entered it.

    Keep it for as long as it is held: nothing else refers to it. Dropping one that is held causes a
    ResourceWarning and a warning in the log, for nobody can release it, or learn that it is lost; what it holds ends
    with the session.
    """

    _outlives_sessions = False
    """Whether it is held after its session has ended, too."""
    _cancels_block = False
    """Whether its ``async with`` block is cancelled, and raises LockLostError, when it is lost."""
    _ends = "the session ends"
    _expired = "the server may have ended the session by now"
    _gone = f"{NODE_GONE}: the session ended, or somebody deleted it"
    _closed = "the client was closed"
    _released = True  # until it is made

    def __init__(
        self,
        client: Client,
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
        self.lost = OneShotEvent()
        self.revoked = OneShotEvent()
        self.depth = 1
        self._held_as: Any = None  # the lock of which it is a lease
        self._successor: Lease | None = None
        self._release_error: ZooKeeperError | None = None
        self._client = client
        self._session_id = client.session_id
        self.nodes: list[tuple[str, int]] = [(path, czxid), *more_nodes]
        self._released = False
        self._revocable = revocable
        self._exchanging = False
        self._monitors: list[asyncio.Task[Any]] = []
        self._block: CancelledBlock | None = None
        # One timer to begin with: most leases are released before it fires.
        first = 0.0 if revocable else min(GUARD_AFTER, self._time_left())
        self._timer = asyncio.get_running_loop().call_later(first, _start_monitors, self._ref())
        client.add_listener(self)
        if self._time_left() <= 0:  # this process was stopped when its turn came
            self._mark_lost(self._expired)

    def __repr__(self) -> str:
        state = "lost" if self.lost.is_set() else "released" if self._released else "held"
        return f"<{type(self).__name__} {self.path} token {self.token} {state}>"

    def __del__(self) -> None:
        if not self._released and not self.lost.is_set():
            message = (
                f"{self!r} was dropped while it is held, which lasts until {self._ends}; "
                "keep it and call release(), or use it in a with block"
            )
            _log.warning("%s", message)
            warnings.warn(message, ResourceWarning, source=self, stacklevel=1)

    def raise_if_lost(self) -> None:
        """Do nothing if it is certainly still held.

        Raises:
            LockLostError: It is not.
        """
        if not self.lost.is_set() and not self._released and self._time_left() <= 0:
            self._mark_lost(self._expired)
        if self.lost.is_set() or self._released:
            raise LockLostError(self.path, self.lost.reason or "it was released")

    def valid_for(self) -> float:
        """Return for how many seconds it is certainly still held, if nothing more is received from the server."""
        return 0.0 if self.lost.is_set() or self._released or self._session_over() else self._time_left()

    def _time_left(self) -> float:
        """Return for how many seconds no server can end it."""
        return self._client.valid_for()

    def _session_over(self) -> bool:
        return not self._outlives_sessions and self._client.session_id != self._session_id

    def transaction(self) -> Transaction:
        """Collect operations that happen together, and only if this is still held when the server does them.

        Raises:
            LockLostError: It is lost; at the commit too, and nothing was applied then.
        """
        self.raise_if_lost()

        def proof_missing() -> LockLostError:
            self._mark_lost(NODE_GONE)
            return LockLostError(self.path, f"{NODE_GONE}; nothing was done")

        return self._client.transaction(guards=self.proof_nodes(), guard_failed=proof_missing)

    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that this is held."""
        return [self.proof_node, *(path for path, _ in self.nodes[1:])]

    # --- losing it ---

    def on_state(self, state: State) -> None:
        """Receive the client's state."""
        if state is State.LOST and not self._outlives_sessions:
            self._mark_lost("the session is over")
        elif state is State.CLOSED:
            self._mark_lost(self._closed)

    def _mark_lost(self, reason: str) -> None:
        """Record that it is lost, unless it was released or lost before."""
        if self._released or self.lost.is_set():
            return
        self.lost.set(reason)
        _log.warning("%s is lost: %s", self.path, reason)
        self._stop_monitors()
        if self._block is not None:
            self._block.cancel(f"{self.path} is lost: {reason}")

    def _mark_gone(self) -> None:
        """Record that its node is gone."""
        self._mark_lost(self._gone)

    def _begin_block(self) -> bool:
        """Begin a block; if it ``_cancels_block``, :meth:`_mark_lost` cancels the present task, and :meth:`_end_block`
        raises LockLostError in place of that.

        Returns:
            Whether the end of this block is to call :meth:`_end_block`: not inside another block of this lease.

        Raises:
            LockLostError: It is lost already: nothing would cancel the block later.
        """
        if not self._cancels_block or self._block is not None:
            return False
        if self.lost.is_set():
            self.release_nowait()
            raise LockLostError(self.path, self.lost.reason)
        self._block = CancelledBlock()
        return True

    def _end_block(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """End the block of the task that is cancelled when this is lost.

        Raises:
            LockLostError: *error* is the cancellation that the loss caused.
        """
        block, self._block = self._block, None
        if block is not None and block.uncancelled(kind):
            raise LockLostError(self.path, self.lost.reason) from error

    def _ref(self) -> weakref.ref[Lease]:
        return weakref.ref(self)

    def _check_deadline(self) -> None:
        """Look whether it may be lost by now, and again later."""
        left = self._time_left()
        if left <= 0:
            self._mark_lost(self._expired)
        else:
            # Not later than in a second: the loop's clock does not count a suspension of the machine, this one does.
            delay, ref = min(left, CHECK_EVERY), self._ref()
            self._timer = asyncio.get_running_loop().call_later(delay, _check_deadline, ref)

    def _start_monitors(self) -> None:
        """Begin to watch the deadline and the nodes."""
        self._check_deadline()
        if not self._released and not self.lost.is_set() and not self._exchanging:
            lease = self._ref()
            self._monitors = [
                self._client.spawn(
                    _monitor(lease, self._client, path, czxid, self._revocable, self._outlives_sessions),
                    on_failure=partial(_monitor_failed, lease),
                )
                for path, czxid in self.nodes
            ]

    def _stop_monitors(self) -> None:
        self._timer.cancel()
        for monitor in self._monitors:
            if monitor is not asyncio.current_task():
                monitor.cancel()

    # --- releasing it ---

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Release it without waiting for the server's answer: the request is on its way when this returns.

        If the connection is lost meanwhile, a background task repeats it. The end of an ``async with`` block does this,
        unless it is asked to wait: that would tell nothing more, for whether the answer comes or not, the node goes.

        Returns:
            What :meth:`release` waits for.
        """
        if self._released:
            return []
        if self.depth > 1:  # its holder has acquired it once more
            self.depth -= 1
            return []
        self._mark_released()
        client = self._client
        if client.terminal_error is not None or (self.lost.is_set() and self._session_over()):
            return []  # closed, or in a forked child, whose parent still holds it
        # All are sent before this returns: the process may end right behind the block.
        calls = [(self._delete(), self._delete_guaranteed)]
        for path, _ in reversed(self.nodes[1:]):
            calls.append((client.delete(path), partial(delete_guaranteed, client, path)))
        for call, repeat_delete in calls:
            call.add_done_callback(partial(self._on_deleted, repeat_delete))
        client.flush()
        return [call for call, _ in calls]

    def _on_deleted(self, repeat_delete: Callable[[], Coroutine[Any, Any, None]], call: asyncio.Future[None]) -> None:
        error = None if call.cancelled() else call.exception()
        if error is None and not call.cancelled():
            return
        if isinstance(error, NoNodeError | ClosedError) or self._client.state is State.CLOSED:
            return
        if isinstance(error, SessionExpiredError) and not self._outlives_sessions:
            return
        if isinstance(error, ZooKeeperError) and not isinstance(error, ConnectionLossError | SessionExpiredError):
            self._release_error = error
            _log.error("%s could not be released; retrying: %s", self.path, error)
        self._client.spawn(repeat_delete())

    def _delete(self) -> asyncio.Future[None]:
        return self._client.delete(self.path)

    async def _delete_guaranteed(self) -> None:
        await delete_guaranteed(self._client, self.path)

    async def __aenter__(self) -> Self:
        self._begin_block()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_nowait()
        if self.released:
            self._current()._end_block(kind, error)

    async def release(self) -> None:
        """Release it, and wait until the server has answered."""
        for call in self.release_nowait():
            try:
                await call
            except ZooKeeperError:
                continue  # a background task repeats it, where there is anything left

    @property
    def release_error(self) -> ZooKeeperError | None:
        """The error with which the server refused the release, if it did; it is tried again with pauses that grow to
        five seconds.
        """
        return self._release_error

    @property
    def released(self) -> bool:
        """Whether it was released."""
        return self._released

    def _become(self, successor: Lease) -> None:
        """Record that another lease has taken its place: from now on a block that this one was held for is cancelled
        when *successor* is lost.

        Raises:
            LockLostError: It is lost already.
        """
        self._successor = successor
        successor._block, self._block = self._block, None
        self._mark_released()
        successor.raise_if_lost()

    def _current(self) -> Lease:
        """Return the lease that has taken its place, or this one."""
        lease = self
        while lease._successor is not None:
            lease = lease._successor
        return lease

    def _mark_released(self) -> None:
        """Record that its holder has deleted its node, or is about to."""
        self._released = True
        self._stop_monitors()

    def _begin_exchange(self) -> None:
        """Ignore what happens to the node: its holder is about to exchange it for another one."""
        for monitor in self._monitors:
            monitor.cancel()
        self._monitors = []
        self._exchanging = True


# What runs for as long as a lease is held refers to it weakly, so that one that is dropped is noticed.


def _start_monitors(ref: weakref.ref[Lease]) -> None:
    if (lease := ref()) is not None:
        lease._start_monitors()


def _check_deadline(ref: weakref.ref[Lease]) -> None:
    if (lease := ref()) is not None:
        lease._check_deadline()


def _monitor_failed(ref: weakref.ref[Lease], error: Exception) -> None:
    if (lease := ref()) is not None:
        lease._mark_lost(f"its monitor failed: {error!r}")


async def _monitor(
    ref: weakref.ref[Lease], client: Client, path: str, czxid: int, revocable: bool, while_expired: bool
) -> None:
    """Notice when somebody deletes a node, or asks that it be released; no answer of the server ends this."""
    raw = client.with_serializer(serializers.raw)

    async def is_there() -> bool:
        async with client.watch_exists(path) as watch:  # which needs no permission
            if watch.initial is None or watch.initial.czxid != czxid:
                return False
            if revocable and (await raw.get(path))[0] == REVOKE and (lease := ref()) is not None:
                lease.revoked.set("somebody asks for it")
                del lease
            return (await watch.next()).type != EventType.NODE_DELETED

    while await repeat_despite_errors(client, is_there, done=(NoNodeError,), while_expired=while_expired):
        continue
    if (lease := ref()) is not None:
        lease._mark_gone()
