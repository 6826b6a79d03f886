"""The core that all views of one client share: the session, its connection, the chroot, listeners and background tasks.

A :class:`~zoolet.client.aio.client.Client` is a view of a core (:class:`~zoolet.client.aio.base.BaseClient`).
Views are light, and none copies anything.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from collections.abc import Callable, Coroutine, Hashable, Iterator
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

from zoolet.client.aio import fork
from zoolet.client.aio.call import Call, RequestCall, caller
from zoolet.client.aio.connection import CLOSE_TIMEOUT, Connection
from zoolet.client.aio.hooks import EXPECTED, RequestHook, RequestInfo, call_hook
from zoolet.client.wire.backoff import REFUSED, Backoff
from zoolet.client.wire.hosts import Hosts
from zoolet.client.wire.operations import decode_nothing
from zoolet.client.wire.requests import Request, drop, fail
from zoolet.client.wire.session import Session
from zoolet.client.wire.states import State, StateListener
from zoolet.protocol import paths
from zoolet.protocol.codec import pack_int, put_str
from zoolet.protocol.enums import WatcherType
from zoolet.protocol.errors import (
    ClosedError,
    SessionExpiredError,
    ThrottledOpError,
    ZooKeeperError,
)
from zoolet.protocol.operations import OPERATIONS, OpCode

T = TypeVar("T")
_log = logging.getLogger("zoolet.client")
_CACHED_PATHS: Final = 4096
"""Paths whose check and encoding are kept; when there are more, all are dropped."""


class ClientCore:
    """One client: a session and what keeps it connected.

    Args:
        hosts: The servers and the chroot.
        session_timeout: The session timeout to request, in seconds.
        read_only: Accept a server in read-only mode.
        login: User and password for SASL DIGEST-MD5.
        auth: Credentials to begin with.
        tls: For connections over TLS.
        backoff: How long to wait between rounds over all hosts.
        max_request: Bytes of the longest request that is sent.
        rng: Where host order, jitter and names of protected nodes come from.
    """

    def __init__(
        self,
        hosts: Hosts,
        session_timeout: float,
        *,
        read_only: bool,
        login: tuple[str, str] | None,
        auth: tuple[tuple[str, bytes], ...],
        tls: ssl.SSLContext | None,
        backoff: Backoff,
        max_request: int,
        rng: Random,
        on_request: RequestHook | None = None,
    ) -> None:
        self.hosts = hosts
        self.chroot = hosts.chroot
        self.rng = rng
        self.connection: Connection | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.removals: dict[str, Call[None]] = {}
        """Watches that the server is being asked to remove, by path."""
        self.session = Session(
            round(session_timeout * 1000),
            rng,
            read_only=read_only,
            login=login,
            on_state=self._on_state,
            postpone=self._postpone,
        )
        for scheme, credentials in auth:
            self.session.add_credential(scheme, credentials, None)
        self.session.watches.forget = self.remove_watches
        self.session_timeout = session_timeout
        self._tls = tls
        self._backoff = backoff
        self._max_request = max_request
        self._on_request = on_request
        self._encoded_paths: dict[str, bytes] = {}
        self.shared: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        """Objects that recipes of this client share, for as long as one of them keeps them."""
        self._listeners: weakref.WeakValueDictionary[int, StateListener] = weakref.WeakValueDictionary()
        self._listener_numbers = count()  # in order, so that a simulated run can be repeated
        self.tasks: set[asyncio.Task[Any]] = set()
        self.postponed: dict[RequestCall[Any], asyncio.TimerHandle] = {}
        self._unwatching: dict[str, asyncio.TimerHandle] = {}  # paths of which watches are to be removed again
        self._forked = False

    def __repr__(self) -> str:
        servers = ",".join(map(str, self.hosts.addresses))
        return f"<zoolet Client {servers}{self.chroot} {self.session.state.value}>"

    # --- beginning and end ---

    def begin(self) -> Connection:
        """Begin to connect, and do not wait for it.

        Raises:
            RuntimeError: It was started before.
        """
        if self.connection is not None:
            raise RuntimeError("this Client was started before; make another one")
        self.loop = asyncio.get_running_loop()
        self.connection = Connection(self.hosts, self.session, self.loop, self.rng, self._backoff, self._tls)
        fork.register(self)
        self.connection.start()
        return self.connection

    async def aclose(self) -> None:
        """End the background tasks, the session and the connection; waits at most two seconds for each of them."""
        if self._forked:
            return
        self._check_loop()
        tasks = self.tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        try:
            if self.connection is not None:
                await self.connection.stop()
            elif self.session.terminal_error is None:
                self.session.close("the client was closed")
        finally:
            fork.unregister(self)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_TIMEOUT)

    def invalidate_after_fork(self) -> None:
        """Refuse all calls: this is a forked child, and the connection is its parent's."""
        self._forked = True
        self.session.terminal_error = RuntimeError(
            "this Client belongs to the process that this one was forked from; make another one here"
        )

    # --- states ---

    @property
    def terminal_error(self) -> Exception | None:
        """Why no call is taken any more; None while calls are taken."""
        return self.session.terminal_error

    def _on_state(self, state: State, reason: str) -> None:
        level = logging.WARNING if state in (State.SUSPENDED, State.LOST) else logging.INFO
        _log.log(level, "%r is %s%s", self, state.value, f": {reason}" if reason else "")
        for listener in list(self._listeners.values()):
            try:
                listener.on_state(state)
            except Exception:  # a defect of the listener's must not end the connection that serves all others
                _log.exception("a listener of %r failed", self)
        if state in (State.LOST, State.CLOSED):
            self._fail_postponed(reason)
        if state is State.CLOSED:
            for registration in list(self.session.watches):
                registration.wake()

    def add_listener(self, listener: StateListener) -> None:
        """Notify an object of every new state, for as long as something else keeps it alive."""
        self._listeners[next(self._listener_numbers)] = listener

    # --- background tasks ---

    def spawn(
        self, job: Coroutine[Any, Any, T], *, on_failure: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[T | None]:
        """Run something until it ends or the client is closed; the end of the session ends it silently.

        Any other error is logged with its traceback, and fails the owner of the task. So does a cancellation that
        nobody asked of the task itself: what it awaited was cancelled.

        Args:
            job: What to run.
            on_failure: Called with such an error.
        """

        async def run() -> T | None:
            caller.set(None)  # it is a caller of its own
            try:
                return await job
            except (ClosedError, SessionExpiredError):
                return None

        def over(task: asyncio.Task[T | None]) -> None:
            self.tasks.discard(task)
            job.close()  # if the client was closed before it began
            if not task.cancelled():
                error = task.exception()
            else:
                error = None if task.cancelling() else RuntimeError("what the task awaited was cancelled")
            if isinstance(error, Exception):
                _log.error("a background task of %r failed", self, exc_info=error)
                if on_failure is not None:
                    on_failure(error)

        assert self.loop is not None
        task = self.loop.create_task(run(), name="zoolet-client-task")
        self.tasks.add(task)
        task.add_done_callback(over)
        return task

    # --- paths ---

    def add_chroot(self, path: str) -> str:
        """Return the path as the server names it: below the chroot.

        Raises:
            TypeError: It is not a string.
            ValueError: It is invalid.
        """
        if not isinstance(path, str):
            raise TypeError(f"a path must be a string, not {path!r}")
        slash = path.rfind("/")
        known = slash == 0 or path[:slash] in self._encoded_paths  # most parents have been checked
        if not known or not paths.is_valid_name(path[slash + 1 :]):
            paths.check(path)
        if not self.chroot:
            return path
        return self.chroot if path == "/" else self.chroot + path

    def strip_chroot(self, path: str) -> str:
        """Return the path as the client names it."""
        if not self.chroot:
            return path
        return path[len(self.chroot) :] or "/" if path.startswith(self.chroot) else path

    def encoded_path(self, path: str) -> bytes:
        """Check and encode a path, below the chroot; both once while it is cached."""
        try:
            return self._encoded_paths[path]
        except (KeyError, TypeError):
            encoded = put_str(self.add_chroot(path))
        if len(self._encoded_paths) >= _CACHED_PATHS:
            self._encoded_paths.clear()
        self._encoded_paths[path] = encoded
        return encoded

    def sequential_path(self, path: str) -> str:
        """Check the path of a sequential create, which may end with a slash: the number is its last name then."""
        return self.add_chroot(path + "0")[:-1] if isinstance(path, str) else self.add_chroot(path)

    # --- calls ---

    def call(
        self,
        op: int,
        body: bytes,
        decode: Callable[[bytes, int, int], T],
        path: str | None,
        operation_timeout: float,
        then: Callable[[Any, ZooKeeperError | None], None] | None = None,
        of_recipe: bool = False,
    ) -> RequestCall[T]:
        """Send a request at the end of this turn of the loop; it is under way when this returns.

        Args:
            op: The op code.
            body: The encoded request, without its header.
            decode: Reads the body of the reply.
            path: The node, for errors.
            operation_timeout: Seconds that it may wait for a connection.
            then: Called with the result or the error, in its place among replies and events.
            of_recipe: It is a recipe's; see :meth:`~zoolet.client.aio.base.BaseClient.for_recipe`.
        """
        connection, loop = self.connected_loop()
        if len(body) > self._max_request - 8:
            raise ValueError(
                f"{path}: the request has {len(body) + 8} bytes, and {self._max_request} is the limit (max_request)"
            )
        idempotent = OPERATIONS[op].idempotent
        deadline = connection.about_now() + operation_timeout
        call = RequestCall(loop, op, body, decode, path, deadline, idempotent, then, of_recipe)
        connection.submit(call)
        if self._on_request is not None:
            call_hook(self._on_request, RequestInfo(OPERATIONS[op].name, path, EXPECTED if of_recipe else ()), call)
        return call

    def _postpone(self, call: Request) -> None:
        """Send a call again later: the server was too busy to try it."""
        assert isinstance(call, RequestCall)
        assert self.loop is not None
        if self.terminal_error is not None:  # it would not be sent any more
            fail(call, ClosedError(call.path, "the server was too busy, and the client is closing"))
            return
        if call.retry_delays is None:
            call.retry_delays = REFUSED.delays(self.rng)
        delay = next(call.retry_delays)
        self.postponed[call] = self.loop.call_later(delay, self._submit_again, call, self.session.id)

    def _submit_again(self, call: RequestCall[Any], session_id: int) -> None:
        connection, _ = self.connected_loop()
        del self.postponed[call]
        if call.done():
            drop(call)
        elif session_id != self.session.id:
            fail(call, SessionExpiredError(call.path, "a new session had to be opened"))
        else:
            call.deadline += connection.about_now() - call.sent_at  # it may wait for a connection as long as it could
            connection.submit(call)

    def _fail_postponed(self, reason: str) -> None:
        for timer in self._unwatching.values():  # the watches end with the session
            timer.cancel()
        self._unwatching.clear()
        postponed, self.postponed = self.postponed, {}
        for call, timer in postponed.items():
            timer.cancel()
            if call.done():
                drop(call)
            else:
                fail(call, (SessionExpiredError if self.terminal_error is None else ClosedError)(call.path, reason))

    def connected_loop(self) -> tuple[Connection, asyncio.AbstractEventLoop]:
        """Return the connection and its loop.

        Raises:
            RuntimeError: The client was not started, or another loop runs.
            ZooKeeperError: It is closed.
        """
        if self.connection is None or self.loop is None:
            if self.terminal_error is not None:
                raise self.terminal_error.with_traceback(None)
            raise RuntimeError("this Client was not started; use it as 'async with Client(...) as zk:'")
        try:
            is_ours = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            is_ours = False
        if not is_ours:  # or a function would be called for each request
            self._check_loop()
        return self.connection, self.loop

    def _check_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:  # outside of any loop, where nothing can be awaited
            return
        if running is not self.loop and self.loop is not None:
            ended = ", which has ended" if self.loop.is_closed() else ""
            raise RuntimeError(
                f"this client belongs to another event loop{ended}; make one in this loop (with pytest, a fixture and "
                "its tests need the same loop scope)"
            )

    def add_auth(self, scheme: str, auth: bytes, operation_timeout: float) -> Call[None]:
        """Authenticate with a credential now and after each reconnect."""
        connection, loop = self.connected_loop()
        deadline = connection.now() + operation_timeout
        call = RequestCall(loop, OpCode.AUTH, b"", decode_nothing, None, deadline, False)
        self.session.add_credential(scheme, auth, call)
        connection.wake()
        return call

    def flush(self) -> None:
        """Send the calls that have been made at once, and not at the end of this turn of the loop."""
        if self.connection is not None:
            self.connection.flush()

    def rewatch(self, path: str) -> None:
        """Register the watches of a path, as the server names it, again."""
        self.session.rewatch(path)
        if self.connection is not None:
            self.connection.wake()

    def remove_watches(self, path: str, kind: WatcherType, delays: Iterator[float] | None = None) -> Call[None] | None:
        """Have the server remove watches that nothing here needs any more; *path* is as the server names it.

        If the server is too busy it is asked again later, but not by the same request, which would remove what was
        registered meanwhile, too.

        Args:
            path: The path.
            kind: Which of its watches.
            delays: The delays before it is asked again; None for the default.

        Returns:
            The request; None if the client is closed.
        """
        if self.terminal_error is not None:
            return None

        def done(call: asyncio.Future[None]) -> None:
            if self.removals.get(path) is call:
                del self.removals[path]
            if not call.cancelled() and isinstance(call.exception(), ThrottledOpError):
                self._remove_later(path, delays or REFUSED.delays(self.rng))

        body, name = put_str(path) + pack_int(kind), self.strip_chroot(path)
        call = self.call(OpCode.REMOVE_WATCHES, body, decode_nothing, name, 0.0, of_recipe=True)
        call.retries_throttled = False
        self.removals[path] = call
        call.add_done_callback(done)
        return call

    def _remove_later(self, path: str, delays: Iterator[float]) -> None:
        def remove() -> None:
            del self._unwatching[path]
            if self.session.watches.is_needed(path):
                self.session.watches.add_orphan(path)
            else:
                self.remove_watches(path, WatcherType.ANY, delays)

        assert self.loop is not None
        if path not in self._unwatching and self.terminal_error is None:
            self._unwatching[path] = self.loop.call_later(next(delays), remove)
