"""Watches and their events as the user has them: an async context manager, and an async iterator inside it.

States of a watcher, and transitions::

    NEW --enter--> REGISTERING --reply--> ACTIVE --one-shot event--> FIRED
                        |                    |                         |
                        +------- exit -------+---------- exit ---------+--> ENDED

What keeps them sound:

- The server may have the watch from the moment the request is sent, so until the reply the path is *expected* in the
  :class:`~zoolet.client.wire.watches.WatchTable`: a removal that another watcher requests meanwhile is put off.
- The registration is added in the very place of the reply among the events, by the call's ``then``: an event that the
  server sends right behind it finds it.
- If the watcher has ended before the reply, the watch is an orphan at the server, and is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Final, Self

from zoolet.client.aio.call import Call, RequestCall, ignore_result
from zoolet.client.aio.core import ClientCore
from zoolet.client.serializers import Serializer
from zoolet.client.wire import operations
from zoolet.client.wire.arguments import checked_count
from zoolet.client.wire.operations import NO_WATCH, WATCH
from zoolet.client.wire.resync import SubtreeResync
from zoolet.client.wire.states import Event, State, WatchOverflowError
from zoolet.client.wire.watches import Kind, Registration
from zoolet.protocol import records as r
from zoolet.protocol.codec import put_str
from zoolet.protocol.enums import AddWatchMode, WatcherType
from zoolet.protocol.errors import (
    ClosedError,
    ConnectionLossError,
    NoAuthError,
    NoNodeError,
    NoWatcherError,
    SessionExpiredError,
    ThrottledOpError,
    ZooKeeperError,
)
from zoolet.protocol.operations import OpCode

ONE_SHOT: Final = frozenset({Kind.DATA, Kind.EXIST, Kind.CHILD})
"""The kinds of watch that fire once."""
RESYNC_TIMEOUT: Final = 3600.0
"""Seconds that a listing of a subtree waits for a connection: as long as it takes, for it is repeated after each."""
REMOVAL_TIMEOUT: Final = 0.2
"""Seconds that a block that ends with an error waits for the removal of its watch; it goes on all the same."""
ASK_AGAIN: Final = 0.1
"""Seconds until a listing that was throttled is asked for again."""


class Phase(Enum):
    """The state of a watcher; the transitions are drawn above."""

    NEW = 1
    REGISTERING = 2
    ACTIVE = 3
    FIRED = 4
    ENDED = 5


class Watcher:
    """A watch and its events.

    When it ends, the server removes the watch, unless another watcher of this client needs it.

    Attributes:
        initial: Of a watch that fires once: what was read when it was set.
    """

    def __init__(
        self,
        core: ClientCore,
        serializer: Serializer,
        operation_timeout: float,
        kind: Kind,
        path: str,
        limit: int,
        of_recipe: bool = False,
    ) -> None:
        checked_count("limit", limit, 1)
        self._of_recipe = of_recipe
        self._core = core
        self._serializer = serializer
        self._operation_timeout = operation_timeout
        self._path = path
        self._registration = Registration(kind, core.add_chroot(path), limit, self._wake)
        self._watches = core.session.watches
        self._phase = Phase.NEW
        self._waiters: list[asyncio.Future[None]] = []
        self._error: Exception | None = None
        self.initial: Any = None

    # --- beginning and end ---

    async def __aenter__(self) -> Self:
        self._phase = Phase.REGISTERING
        try:
            if self._registration.kind in ONE_SHOT:
                self.initial = await self._read()
            elif self._registration.kind is Kind.RECURSIVE:
                await self._register_recursive()
            else:
                await self._register_persistent()
        except BaseException:  # cancelled too: the server must not keep the watch
            self._end()
            raise
        if self._phase is Phase.REGISTERING:
            self._phase = Phase.ACTIVE
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        removal = self._end()
        if removal is None:
            return
        if kind is not None:  # do not wait long after an error: the server may be stalled
            removed = asyncio.shield(removal)  # a plain future: wait() takes a Call for a coroutine
            removed.add_done_callback(ignore_result)
            await asyncio.wait((removed,), timeout=REMOVAL_TIMEOUT)
            return
        try:
            await asyncio.shield(removal)
        except (NoWatcherError, ConnectionLossError, SessionExpiredError, ClosedError, ThrottledOpError):
            return  # it fired in this very moment, was dropped with the connection, or is removed later

    def _end(self) -> Call[None] | None:
        """End it, and return the removal of the watch at the server, if it is under way."""
        if self._phase is Phase.ENDED:
            return None
        self._phase = Phase.ENDED
        self._wake()
        if self._registration.resync is not None:
            self._registration.resync.stop()
        removal = self._remove_at_server(self._watches.remove(self._registration))
        if self._registration.kind is Kind.RECURSIVE and self._watches.has_any(self._registration.path):
            self._core.rewatch(self._registration.path)  # what its events have fired needs watches of its own
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

    def _covered(self) -> bool:
        """Return whether the events of another watch of this path, one that stays, fire this one too. A 3.8 server
        would put this one in its place, so it is not set at the server then.
        """
        has, path = self._watches.has, self._registration.path
        return (self._registration.kind in ONE_SHOT and has(Kind.PERSISTENT, path)) or (
            self._registration.kind is not Kind.RECURSIVE and has(Kind.RECURSIVE, path)
        )

    def _registered(self, *, was_set: bool) -> None:
        """Add the registration, in the place of the reply that says that the watch is there.

        Args:
            was_set: It was set at the server; otherwise another watch covered it when the request was made.
        """
        if self._phase is Phase.ENDED:
            self._watches.add_orphan(self._registration.path)
            return
        self._watches.add(self._registration)
        if self._registration.resync is not None:
            self._registration.resync.start(None)
        if self._covered() == was_set:  # another one has come, and was replaced by this one, or has ended
            self._core.rewatch(self._registration.path)

    def _read(self) -> Call[Any]:
        """Read with the watch flag."""
        registration, watches = self._registration, self._watches
        was_set = not self._covered()

        def registered(result: Any, error: ZooKeeperError | None) -> None:
            if registration.kind is Kind.EXIST and error is None:
                registration.kind = Kind.DATA
            if error is None or (registration.kind is Kind.EXIST and isinstance(error, NoNodeError)):
                self._registered(was_set=was_set)
            watches.finish(registration.path)

        body = self._core.encoded_path(self._path) + (WATCH if was_set else NO_WATCH)
        watches.expect(registration.path)
        if registration.kind is Kind.DATA:
            return self._call(OpCode.GET_DATA, body, operations.decode_data(self._path, self._serializer), registered)
        if registration.kind is Kind.CHILD:
            return self._call(OpCode.GET_CHILDREN, body, operations.decode_children, registered)
        call = self._call(OpCode.EXISTS, body, operations.decode_stat, registered)
        call.fallback = NoNodeError, None
        return call

    def _add_watch(self, mode: AddWatchMode) -> Call[None]:
        """Set the watch with a request that does nothing else."""
        registration, watches = self._registration, self._watches

        def registered(result: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                self._registered(was_set=True)
            watches.finish(registration.path)

        body = operations.watch_request(self._core.encoded_path(self._path), mode)
        watches.expect(registration.path)
        return self._call(OpCode.ADD_WATCH, body, operations.decode_nothing, registered)

    async def _register_persistent(self) -> None:
        """Set the watch, unless another one covers it, and find out whether the node exists."""
        registration, watches = self._registration, self._watches
        added = None if self._covered() else self._add_watch(AddWatchMode.PERSISTENT)

        def record_existence(result: Any, error: ZooKeeperError | None) -> None:
            registration.exists = error is None
            if added is None and (error is None or isinstance(error, NoNodeError)):
                self._registered(was_set=False)
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
        """Add the watch, and list what is below the node: without that nothing could be found after an absence."""
        registration, core = self._registration, self._core
        registration.resync = resync = SubtreeResync(registration.path, registration.put, self._ask)
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
                    raise core.terminal_error.with_traceback(None)
                if loop.time() >= deadline and core.session.state not in (State.CONNECTED, State.READ_ONLY):
                    raise ConnectionLossError(self._path, "there was no connection in time to list what is below it")
                await self._pause()
        finally:
            timer.cancel()

    def _ask(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        """Ask for the children of a node below the watched one; *path* is as the server names it."""
        core = self._core

        def then(result: Any, error: ZooKeeperError | None) -> None:
            if error is None:
                answered(result)
            elif isinstance(error, NoNodeError | NoAuthError):
                answered(None)  # a node that may not be read is not there for this watch
            elif not isinstance(error, ConnectionLossError | SessionExpiredError | ClosedError):
                assert core.loop is not None
                core.loop.call_later(ASK_AGAIN, self._ask_again, path, answered)  # it was throttled, or such
            # After a lost connection all is listed again on the next one.

        body = put_str(path) + NO_WATCH
        shown = core.strip_chroot(path)
        call = core.call(OpCode.GET_CHILDREN2, body, operations.decode_children2, shown, RESYNC_TIMEOUT, then)
        call.add_done_callback(ignore_result)

    def _ask_again(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        if self._phase is not Phase.ENDED and self._core.terminal_error is None:
            self._ask(path, answered)

    # --- events ---

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _pause(self) -> None:
        """Wait until there may be something new."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._phase is Phase.NEW:
            reason = "was not entered; use it inside its `async with` block (`with` for threads)"
            raise RuntimeError(f"the watch of {self._path} {reason}")
        event: Event | None = None
        while self._phase is not Phase.ENDED and (event := self._pop()) is None:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._core.terminal_error is not None:
                raise self._core.terminal_error.with_traceback(None)
            if self._phase is Phase.FIRED:
                raise StopAsyncIteration
            await self._pause()
        if event is None:
            raise StopAsyncIteration
        if self._registration.kind in ONE_SHOT and self._phase is Phase.ACTIVE:
            self._phase = Phase.FIRED
        path = self._core.strip_chroot(event.path)
        return event if path == event.path else Event(event.type, path, event.zxid)

    def _pop(self) -> Event | None:
        try:
            return self._registration.pop()
        except WatchOverflowError as error:
            raise WatchOverflowError(self._path, error.limit) from None

    def deliver_to(self, receive: Callable[[Event], None]) -> None:
        """Call a function with each event at once, inside the loop, in place of iterating; call this before entering.

        It is called in the order of the events of all watches of the client, with their paths as the server names them.
        Watches of one path that an event reaches are called with the same object.
        """
        self._registration.receive = receive

    @property
    def pending(self) -> int:
        """How many events wait to be taken."""
        return len(self._registration.events)

    @property
    def resyncing(self) -> bool:
        """Whether what happened during an absence is still being found out; only of a recursive watch."""
        resync = self._registration.resync
        return resync is not None and resync.running

    def fail(self, error: Exception) -> None:
        """Raise an error in place of further events, from now on."""
        self._error = error
        self._wake()

    async def next(self) -> Event:
        """Wait for the next event.

        Raises:
            WatchOverflowError: Events were dropped.
            ClosedError: The client was closed.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise RuntimeError("this watch has fired, and fires once; set it again to receive more") from None
