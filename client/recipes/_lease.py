"""What holding something means: a token, and the moment at which it is lost.

Whatever is held is an ephemeral node. It is lost when the first of these happens:

- the server says that the session is over, or the client is closed;
- the server may have ended the session: nothing that it answered was sent within the session timeout. The node may
  still be there then; but nobody can know, so it does not count;
- somebody else deleted the node.

A server can only end a session later than this says, if clocks run at the same rate on both machines: the time is
counted from before the server can have heard of the client. A process that is stopped (SIGSTOP, a garbage collector, a
virtual machine that moves) notices only when it goes on. What must be right even then needs the token, or
:meth:`Held.transaction`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar

from zoolet.client import serializers
from zoolet.client.reliable import delete_guaranteed
from zoolet.client.states import State
from zoolet.client.surface import ClientSurface
from zoolet.client.transaction import Transaction
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeperError,
)

GUARD_AFTER: Final = 0.05
"""Seconds after which the node of what is held is watched: what is held more shortly does not pay for that."""
REVOKE: Final = b"__REVOKE__"
"""The data of a node whose owner is asked to let go, as Curator's Revoker writes it."""


class LockLostError(Exception):
    """What was held is not held any more.

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


def _present_task() -> asyncio.Task[Any] | None:
    """Return the task that runs now: it hears of a loss by the error that it gets, and need not be cancelled."""
    return asyncio.current_task()


class OneShotEvent:
    """Something that happens once: ``await`` it, or ask ``is_set()``.

    Attributes:
        reason: Why it happened; empty until then.
    """

    def __init__(self) -> None:
        self._happened = False
        self._event: asyncio.Event | None = None  # made for the first who waits: mostly there is nobody
        self.reason = ""

    def set(self, reason: str) -> None:
        """Let it happen; the first reason counts."""
        if not self._happened:
            self._happened = True
            self.reason = reason
            if self._event is not None:
                self._event.set()

    def is_set(self) -> bool:
        """Return whether it has happened."""
        return self._happened

    async def wait(self) -> str:
        """Wait until it happens, and give the reason."""
        if not self._happened:
            if self._event is None:
                self._event = asyncio.Event()
            await self._event.wait()
        return self.reason

    def __await__(self) -> Generator[Any, None, str]:
        return self.wait().__await__()


class Lease:
    """Something that is held until :meth:`release`, or until it is lost.

    Args:
        client: Whose session holds it.
        path: The node.
        token: Its czxid.
        revocable: Watch for wishes that it be released.

    Attributes:
        path: The node.
        token: A number that is higher than that of everybody who held this before, and lower than that of everybody
            after: the czxid of the node. Who stores it with what is written can refuse a holder of old (fencing).
        lost: Happens when it is lost.
        revoked: Happens when somebody asks that it be released; only if it is revocable.
    """

    def __init__(self, client: ClientSurface, path: str, token: int, *, revocable: bool = False) -> None:
        self.path = path
        self.proof_node = path
        """The node whose existence proves that this is held; other holders have others."""
        self.token = token
        self.lost = OneShotEvent()
        self.revoked = OneShotEvent()
        self.depth = 1
        """How often its holder has entered it."""
        self._client = client
        self._session_id = client.session_id
        self._released = False
        self._revocable = revocable
        self._exchanging = False
        self._guards: list[asyncio.Task[Any]] = []
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False
        loop = asyncio.get_running_loop()
        # One timer to begin with: most of what is held is released before it rings.
        first = 0.0 if revocable else min(GUARD_AFTER, client.valid_for())
        self._timer = loop.call_later(first, self._start_guard)
        client.add_listener(self)
        if client.valid_for() <= 0:  # this process stood still while the turn came
            self._lose("the server may have ended the session by now")

    def __repr__(self) -> str:
        how = "lost" if self.lost.is_set() else "released" if self._released else "held"
        return f"<{type(self).__name__} {self.path} token {self.token} {how}>"

    # --- how it is ---

    def raise_if_lost(self) -> None:
        """Do nothing if it is still held for certain.

        Raises:
            LockLostError: It is not.
        """
        if not self.lost.is_set() and not self._released and self._client.valid_for() <= 0:
            self._lose("the server may have ended the session by now")
        if self.lost.is_set() or self._released:
            raise LockLostError(self.path, self.lost.reason or "it was released")

    def valid_for(self) -> float:
        """Return for how many seconds it is still held for certain, if nothing more is heard of the server."""
        if self.lost.is_set() or self._released or self._client.session_id != self._session_id:
            return 0.0
        return self._client.valid_for()

    def transaction(self) -> LeaseTransaction:
        """Collect operations that happen together, and only if this is still held when the server does them.

        Raises:
            LockLostError: It is lost; at the commit too.
        """
        self.raise_if_lost()
        return LeaseTransaction(self, self._client.transaction())

    # --- losing it ---

    def on_state(self, state: State) -> None:
        """Hear of the client's state."""
        if state is State.LOST:
            self._lose("the session is over")
        elif state is State.CLOSED:
            self._lose("the client was closed")

    def _check_deadline(self) -> None:
        left = self._client.valid_for()
        if left <= 0:
            self._lose("the server may have ended the session by now")
        else:
            self._timer = asyncio.get_running_loop().call_later(left, self._check_deadline)

    def _lose(self, reason: str) -> None:
        if self._released or self.lost.is_set():
            return
        self.lost.set(reason)
        self._end_guard()
        if self._task is not None and not self._task.done() and self._task is not _present_task():
            self._cancelled = True
            self._task.cancel(f"{self.path} is lost: {reason}")

    def _start_guard(self) -> None:
        self._check_deadline()
        if not self._released and not self.lost.is_set() and not self._exchanging:
            self._guards = [self._client.spawn(self._monitor(*one)) for one in self._nodes()]

    def _end_guard(self) -> None:
        self._timer.cancel()
        for guard in self._guards:
            if guard is not asyncio.current_task():
                guard.cancel()

    def _nodes(self) -> list[tuple[str, int]]:
        """Return the nodes that all have to be there, each with its czxid."""
        return [(self.path, self.token)]

    def proof_nodes(self) -> list[str]:
        """Return the nodes whose existence proves that this is held."""
        return [self.proof_node]

    async def _monitor(self, path: str, czxid: int) -> None:
        """Notice when somebody deletes a node, or asks that it be released."""
        while True:
            try:
                async with self._client.with_serializer(serializers.raw).watch_data(path) as watch:
                    data, stat = watch.initial
                    if stat.czxid != czxid:
                        self._lose("somebody deleted its node")
                        return
                    if self._revocable and data == REVOKE:
                        self.revoked.set("somebody asks for it")
                    event = await watch.next()
                    if event.type == EventType.NODE_DELETED:
                        self._lose("somebody deleted its node")
                        return
            except NoNodeError:
                self._lose("somebody deleted its node")
                return
            except ConnectionLossError:
                await asyncio.sleep(0.05)

    # --- letting go ---

    def release_nowait(self) -> list[asyncio.Future[None]]:
        """Let go of it without waiting for the server's answer: the request is on its way when this returns.

        If the connection is lost meanwhile, a job in the background sees to it. The end of an ``async with`` block does
        this: to wait would tell nothing more, for whether the answer comes or not, the node goes.

        Returns:
            What :meth:`release` waits for.
        """
        if self._released:
            return []
        self._released = True
        self._end_guard()
        client = self._client
        if client.state is State.CLOSED or (self.lost.is_set() and client.session_id != self._session_id):
            return []
        call = self._delete()
        call.add_done_callback(self._answered)
        client.flush()
        return [call]

    def _answered(self, call: asyncio.Future[None]) -> None:
        error = None if call.cancelled() else call.exception()
        gone = isinstance(error, NoNodeError | SessionExpiredError | ClosedError)
        if (call.cancelled() or (error is not None and not gone)) and self._client.state is not State.CLOSED:
            self._client.spawn(self._delete_guaranteed())

    def _delete(self) -> asyncio.Future[None]:
        """Ask that the node be deleted."""
        return asyncio.ensure_future(self._client.delete(self.path))

    async def _delete_guaranteed(self) -> None:
        """Delete the node for certain."""
        await delete_guaranteed(self._client, self.path)

    async def release(self) -> None:
        """Let go of it, and wait until the server has answered."""
        for call in self.release_nowait():
            try:
                await call
            except ZooKeeperError:
                continue  # the background sees to it, where there is anything left

    def mark_lost(self, reason: str) -> None:
        """Count it as lost: it is not known any more whether its node is there."""
        self._lose(reason)

    def stop_watching(self) -> None:
        """Heed no more what happens to the node: its holder is about to exchange it for another one."""
        for guard in self._guards:
            guard.cancel()
        self._guards = []
        self._exchanging = True

    def mark_released(self) -> None:
        """Record that its node has been deleted by its holder in another way than :meth:`release`."""
        self._released = True
        self._end_guard()

    # --- as a context ---

    def cancel_when_lost(self) -> None:
        """Cancel the present task when this is lost; :meth:`convert` makes a LockLostError of it."""
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0

    def convert(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """Raise LockLostError if *error* is the cancellation that the loss caused."""
        victim, self._task = self._task, None
        if not self._cancelled or victim is None:
            return
        left = victim.uncancel()
        if kind is None or (kind is asyncio.CancelledError and left <= self._cancelling):
            raise LockLostError(self.path, self.lost.reason) from error


class LeaseTransaction:
    """A :class:`~zoolet.client.transaction.Transaction` that first checks that something is still held."""

    def __init__(self, held: Lease, transaction: Transaction) -> None:
        self._held = held
        self._transaction = transaction
        proof_nodes = held.proof_nodes()
        for proof_node in proof_nodes:
            transaction.check(proof_node)
        self._checks = len(proof_nodes)
        self.check = transaction.check
        self.create = transaction.create
        self.set = transaction.set
        self.delete = transaction.delete

    @property
    def results(self) -> list[Any]:
        """What became of each operation."""
        return self._transaction.results[self._checks :]

    async def commit(self) -> list[Any]:
        """Do all of it or nothing.

        Raises:
            LockLostError: The node is gone: nothing was done.
        """
        try:
            await self._transaction.commit()
        except NoNodeError as error:
            if error.path in self._held.proof_nodes():
                self._held._lose("its node is gone")  # noqa: SLF001 - a part of Held
                raise LockLostError(self._held.path, "its node is gone; nothing was done") from None
            raise
        return self.results

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.commit()


ON_LOST: Final = ("cancel", "flag")
H = TypeVar("H", bound=Lease)


class LockBase(Generic[H]):
    """What can be held for the length of an ``async with`` block, by several tasks in turn or at once.

    Args:
        on_lost: ``cancel`` cancels the task inside the block when what it holds is lost, and the block raises
            LockLostError; ``flag`` only lets ``held.lost`` happen.

    Raises:
        ValueError: It is neither.
    """

    def __init__(self, on_lost: str) -> None:
        if on_lost not in ON_LOST:
            raise ValueError(f"on_lost is {on_lost!r}; it must be one of {', '.join(ON_LOST)}")
        self._on_lost = on_lost
        self._inside: list[tuple[asyncio.Task[Any] | None, H]] = []

    async def acquire(self) -> H:
        """Wait until it can be held; give what is held."""
        raise NotImplementedError

    def _again(self, task: asyncio.Task[Any] | None) -> H | None:
        """Return what the task holds already, if it may enter once more."""
        return None

    async def __aenter__(self) -> H:
        task = asyncio.current_task()
        held = self._again(task)
        if held is not None:
            held.depth += 1
            return held
        held = await self.acquire()
        if self._on_lost == "cancel":
            held.cancel_when_lost()
        self._inside.append((task, held))
        return held

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        mine = [place for place, (owner, _) in enumerate(self._inside) if owner is task]
        place = mine[-1] if mine else len(self._inside) - 1  # another task leaves for it: a blocking client's
        held = self._inside[place][1]
        held.depth -= 1
        if held.depth:
            return
        del self._inside[place]
        held.release_nowait()
        held.convert(kind, error)


def checked_timeout(timeout: float | None) -> float | None:
    """Return the timeout back if it is one.

    Raises:
        ValueError: It is negative.
    """
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout is {timeout!r} s; it must be 0 or more, or None")
    return timeout
