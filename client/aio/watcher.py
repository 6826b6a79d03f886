"""Watches for users: an async context manager, which is an async iterator of events inside its block.

States of a watcher, and transitions::

    NEW --enter--> REGISTERING --reply--> ACTIVE --one-shot event--> FIRED
                        |                    |                         |
                        +------- exit -------+---------- exit ---------+--> ENDED

Invariants:

- The server may have the watch as soon as the request is sent. So until the reply, the path is *expected* in the
  :class:`~zoolet.client.wire.watches.WatchTable`, and removals that other watchers request are postponed.
- The call's ``then`` adds the registration, in order with replies and events, so an event that the server sends right
  after the reply reaches it.
- If the watcher ended before the reply, the watch is an orphan at the server, and is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Final, Generic, Self

from ...protocol import records as r
from ...protocol.codec import put_str
from ...protocol.enums import AddWatchMode, WatcherType
from ...protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    NoWatcherError,
    SessionExpiredError,
    ThrottledOpError,
    ZooKeeperError,
)
from ...protocol.operations import OpCode
from ..serializers import C, Serializer
from ..wire import operations
from ..wire.arguments import checked_count
from ..wire.operations import NO_WATCH, WATCH
from ..wire.requests import copy_error
from ..wire.resync import SubtreeResync
from ..wire.states import Event, State, WatchOverflowError
from ..wire.watches import Registration, WatchKind
from .call import Call, RequestCall, ignore_result
from .core import Owner

ONE_SHOT_KINDS: Final = frozenset({WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD})
"""The kinds of watch that fire once."""
RESYNC_TIMEOUT: Final = 3600.0
"""Seconds that a listing of a subtree waits for a connection. It is long because each new connection lists again."""
REMOVAL_TIMEOUT: Final = 0.2
"""Maximum time in seconds to wait for the removal of a watch when a block raises. The removal continues after that."""
THROTTLED_RETRY_DELAY: Final = 0.1
"""Seconds before a throttled listing is requested again."""


class WatcherPhase(Enum):
    """The states of a watcher. The module's docstring shows the transitions."""

    NEW = 1
    REGISTERING = 2
    ACTIVE = 3
    FIRED = 4
    ENDED = 5


class Watcher(Generic[C]):
    """The events of a watch: an async iterator to use inside its ``async with`` block.

    At the end of the block the server removes the watch, unless a different watcher of this client needs it.

    Attributes:
        initial: The value that was read when a one-shot watch was set; None for other watches.
    """

    def __init__(
        self,
        owner: Owner,
        serializer: Serializer[Any],
        operation_timeout: float,
        kind: WatchKind,
        path: str,
        limit: int,
        of_recipe: bool = False,
    ) -> None:
        checked_count("limit", limit, 1)
        self._of_recipe = of_recipe
        self._owner = owner
        self._core = core = owner.core
        self._serializer = serializer
        self._operation_timeout = operation_timeout
        self._path = path
        self._registration = Registration(kind, core.add_chroot(path), limit)
        self._watches = core.session.watches
        self._phase = WatcherPhase.NEW
        self._waiters: list[asyncio.Future[None]] = []
        self._error: Exception | None = None
        self.initial: C = None  # type: ignore[assignment] # until the block is entered

    # --- entering and leaving ---

    async def __aenter__(self) -> Self:
        self._core.check_open()
        self._phase = WatcherPhase.REGISTERING
        self._registration.wake = self._wake
        try:
            if self._registration.kind in ONE_SHOT_KINDS:
                self.initial = await self._read()
            elif self._registration.kind is WatchKind.RECURSIVE:
                await self._register_recursive()
            else:
                await self._register_persistent()
        except BaseException:  # a cancellation must also remove the server's watch
            self._end()
            raise
        if self._phase is WatcherPhase.REGISTERING:
            self._phase = WatcherPhase.ACTIVE
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        removal = self._end()
        if removal is None:
            return
        if kind is not None:  # do not wait long after an error, because the server may be stalled
            removed = asyncio.shield(removal)  # a plain future, because wait() rejects a Call as a coroutine
            removed.add_done_callback(ignore_result)
            await asyncio.wait((removed,), timeout=REMOVAL_TIMEOUT)
            return
        try:
            await asyncio.shield(removal)
        except (NoWatcherError, ConnectionLossError, SessionExpiredError, ClosedError, ThrottledOpError):
            return  # the watch may have fired or been lost with the connection, or is removed later

    def _end(self) -> Call[None] | None:
        """End the watcher, and return the pending removal of the watch from the server; None if there is none."""
        if self._phase is WatcherPhase.ENDED:
            return None
        if self._core.terminal_error is None:
            self._core.check_loop()  # checked first, to change nothing if it raises
        self._phase = WatcherPhase.ENDED
        self._wake()
        if self._registration.resync is not None:
            self._registration.resync.stop()
        self._registration.forget_owner()
        removal = self._remove_at_server(self._watches.remove(self._registration))
        if self._registration.kind is WatchKind.RECURSIVE and self._watches.has_any(self._registration.path):
            self._core.rewatch(self._registration.path)  # covered watches must now be set at the server
        return removal or self._core.removals.get(self._registration.path)

    def _remove_at_server(self, kind: WatcherType | None) -> Call[None] | None:
        if kind is None or self._core.terminal_error is not None:
            return None
        return self._core.remove_watches(self._registration.path, kind)

    # --- registering ---

    def _call(
        self,
        op: int,
        body: bytes,
        decode: operations.Decode[Any],
        then: Callable[[Any, ZooKeeperError | None], None] | None = None,
    ) -> RequestCall[Any]:
        return self._core.call(op, body, decode, self._path, self._operation_timeout, then, self._of_recipe)

    def _is_covered(self) -> bool:
        """Return whether a persistent or recursive watch of this path also delivers the events of this watch.

        Such a watch is not set at the server, because a 3.8 server would replace the other watch with it.
        """
        has, path = self._watches.has, self._registration.path
        return (self._registration.kind in ONE_SHOT_KINDS and has(WatchKind.PERSISTENT, path)) or (
            self._registration.kind is not WatchKind.RECURSIVE and has(WatchKind.RECURSIVE, path)
        )

    def _add_registration(self, *, was_set: bool) -> None:
        """Add the registration, in order with other replies and events.

        Args:
            was_set: Whether the watch was set at the server. It was not if another watch covered it at that time.
        """
        if self._phase is WatcherPhase.ENDED:
            self._watches.add_orphan(self._registration.path)
            return
        self._watches.add(self._registration)
        if self._registration.resync is not None:
            self._registration.resync.start(None)
        if self._is_covered() == was_set:  # the coverage changed while the watch was set; correct it at the server
            self._core.rewatch(self._registration.path)

    def _read(self) -> Call[Any]:
        """Read the node, and set the watch in the same request unless a different watch covers it."""
        registration, watches = self._registration, self._watches
        was_set = not self._is_covered()

        def registered(result: Any, error: ZooKeeperError | None) -> None:
            if registration.kind is WatchKind.EXIST and error is None:
                registration.kind = WatchKind.DATA
            if error is None or (registration.kind is WatchKind.EXIST and isinstance(error, NoNodeError)):
                self._add_registration(was_set=was_set)
            watches.finish(registration.path)

        body = self._core.encoded_path(self._path) + (WATCH if was_set else NO_WATCH)
        watches.expect(registration.path)
        if registration.kind is WatchKind.DATA:
            return self._call(OpCode.GET_DATA, body, operations.decode_data(self._path, self._serializer), registered)
        if registration.kind is WatchKind.CHILD:
            return self._call(OpCode.GET_CHILDREN, body, operations.decode_children, registered)
        call = self._call(OpCode.EXISTS, body, operations.decode_stat, registered)
        call.fallback = NoNodeError, None
        return call

    def _add_watch(self, mode: AddWatchMode) -> Call[None]:
        """Set the watch with an addWatch request."""
        registration, watches = self._registration, self._watches

        def registered(result: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                self._add_registration(was_set=True)
            watches.finish(registration.path)

        body = operations.watch_request(self._core.encoded_path(self._path), mode)
        watches.expect(registration.path)
        return self._call(OpCode.ADD_WATCH, body, operations.decode_nothing, registered)

    async def _register_persistent(self) -> None:
        """Set the watch, unless a different watch covers it, and check whether the node exists."""
        registration, watches = self._registration, self._watches
        added = None if self._is_covered() else self._add_watch(AddWatchMode.PERSISTENT)

        def record_existence(result: Any, error: ZooKeeperError | None) -> None:
            registration.exists = error is None
            if added is None and (error is None or isinstance(error, NoNodeError)):
                self._add_registration(was_set=False)
            watches.finish(registration.path)

        watches.expect(registration.path)
        body = self._core.encoded_path(self._path) + NO_WATCH
        exists = self._call(OpCode.EXISTS, body, operations.decode_stat, record_existence)
        exists.fallback = NoNodeError, None
        try:
            if added is not None:
                await added
            await exists
        finally:
            exists.cancel()

    async def _register_recursive(self) -> None:
        """Add the watch, and list the subtree, which is compared with a new listing after a disconnection."""
        registration, core = self._registration, self._core
        registration.resync = resync = SubtreeResync(registration.path, registration.put, self._request_children)
        listed = False

        def finished() -> None:
            nonlocal listed
            listed = True
            self._wake()

        resync.done = finished
        await self._add_watch(AddWatchMode.PERSISTENT_RECURSIVE)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._operation_timeout
        timer = loop.call_at(deadline, self._wake)
        try:
            while not listed:
                if core.terminal_error is not None:
                    raise copy_error(core.terminal_error)
                if loop.time() >= deadline and core.session.state not in (State.CONNECTED, State.READ_ONLY):
                    raise ConnectionLossError(self._path, f"no connection within {self._operation_timeout:g} s")
                await self._pause()
        finally:
            timer.cancel()

    def _request_children(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        """Request the children of a node below the watched one. *path* includes the chroot."""
        core = self._core

        def then(result: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                answered(result)
            elif isinstance(error, NoNodeError | NoAuthError):
                answered(None)  # this watch treats an unreadable node as missing
            elif not isinstance(error, ConnectionLossError | SessionExpiredError | ClosedError):
                assert core.loop is not None
                # The server refused the request, for example because of throttling.
                core.loop.call_later(THROTTLED_RETRY_DELAY, self._request_children_again, path, answered)
            # The other errors mean that the connection was lost. The next connection lists the whole subtree again.

        body = put_str(path) + NO_WATCH
        shown = core.strip_chroot(path)
        call = core.call(OpCode.GET_CHILDREN2, body, operations.decode_children2, shown, RESYNC_TIMEOUT, then)
        call.add_done_callback(ignore_result)

    def _request_children_again(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        if self._phase is not WatcherPhase.ENDED and self._core.terminal_error is None:
            self._request_children(path, answered)

    # --- events ---

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _pause(self) -> None:
        """Wait for the next wake-up: a new event, an error or a new state."""
        self._core.check_loop()
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._phase is WatcherPhase.NEW:
            reason = "was not entered; use it inside its `async with` block (`with` for threads)"
            raise RuntimeError(f"the watch of {self._path} {reason}")
        event: Event | None = None
        while self._phase is not WatcherPhase.ENDED and (event := self._pop()) is None:
            if self._error is not None:
                raise copy_error(self._error)
            if self._core.terminal_error is not None:
                raise copy_error(self._core.terminal_error)
            if self._phase is WatcherPhase.FIRED:
                raise StopAsyncIteration
            await self._pause()
        if event is None:
            raise StopAsyncIteration
        if self._registration.kind in ONE_SHOT_KINDS and self._phase is WatcherPhase.ACTIVE:
            self._phase = WatcherPhase.FIRED
        return self._without_chroot(event)

    def _without_chroot(self, event: Event) -> Event:
        path = self._core.strip_chroot(event.path)
        return event if path == event.path else Event(event.type, path, event.zxid)

    def _pop(self) -> Event | None:
        try:
            return self._registration.pop()
        except WatchOverflowError as error:
            raise WatchOverflowError(self._path, error.limit) from None

    def _put_back_event(self, event: Event) -> None:
        """Put back *event*, the last event that was returned. The iterator returns it again."""
        self._registration.events.appendleft(Event(event.type, self._core.add_chroot(event.path), event.zxid))
        if self._phase is WatcherPhase.FIRED:
            self._phase = WatcherPhase.ACTIVE
        self._wake()

    def _pop_all(self) -> list[Event]:
        """Remove and return the waiting events, in order. Call this only after the iterator has returned an event."""
        return [self._without_chroot(event) for event in iter(self._pop, None)]

    def _deliver_to(self, receive: Callable[[Event], None]) -> None:
        """Call a function with each event immediately, inside the loop, instead of queueing events for iteration.

        This must be called before the block is entered. The function is called in the order of the events of all
        watches of the client, with paths that include the chroot. All watches of one path get the same event object.
        """
        self._registration.receive = receive

    @property
    def pending(self) -> int:
        """Number of waiting events."""
        return len(self._registration.events)

    @property
    def resyncing(self) -> bool:
        """Whether a recursive watch is still listing its subtree, to find changes that it missed while disconnected."""
        resync = self._registration.resync
        return resync is not None and resync.running

    def _fail(self, error: Exception) -> None:
        """Make the iterator raise *error* after the waiting events."""
        self._error = error
        self._wake()

    async def next(self) -> Event:
        """Wait for the next event.

        Raises:
            WatchOverflowError: Events were dropped.
            ClosedError: The client was closed.
            RuntimeError: The watch is used outside its block, or is a one-shot watch that has already fired.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            text = f"the watch of {self._path} has fired or ended; set it again to receive more events"
            raise RuntimeError(text) from None
