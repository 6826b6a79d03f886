"""The core that all views of one client share: the session, its connection, the chroot, listeners and background tasks.

A :class:`~zoolet.client.client.Client` is a view of a core (:class:`~zoolet.client.aio.view.View`). Views are
lightweight and copy nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import warnings
import weakref
from collections.abc import Callable, Coroutine, Hashable, Iterator
from random import Random
from typing import Any, Final, TypeVar

from ...protocol import paths
from ...protocol.codec import pack_int, put_str
from ...protocol.enums import WatcherType
from ...protocol.errors import (
    ClosedError,
    SessionExpiredError,
    ThrottledOpError,
    ZooKeeperError,
)
from ...protocol.operations import OPERATIONS, OpCode
from ..wire.backoff import REFUSAL_BACKOFF, Backoff
from ..wire.hosts import Hosts
from ..wire.operations import decode_nothing
from ..wire.requests import PendingCall, copy_error, drop, fail
from ..wire.session import ClientSession
from ..wire.states import State, StateListener
from . import fork
from .call import Call, RequestCall, wrong_thread_error
from .connection import CLOSE_TIMEOUT, Connection
from .hooks import EXPECTED_ERRORS, GuardedHook, RequestHook, RequestInfo

T = TypeVar("T")
_log = logging.getLogger("zoolet.client")
DROP_CHECK_SECONDS: Final = 0.05
"""Seconds between checks whether all calls of a dropped client have completed."""
_MAX_CACHED_PATHS: Final = 4096
"""Maximum number of paths in the cache of checked and encoded paths. When it is full, it is cleared."""


def _do_nothing() -> None:
    """Do nothing. This is the default of ``ClientCore.on_drop``."""


class Owner:
    """A shared reference to a core, held by all views of a client and by all other objects that use the client.

    When the last of them is freed, the program can no longer close the client. So the owner closes it.
    """

    __slots__ = ("core",)

    def __init__(self, core: ClientCore) -> None:
        self.core = core

    def __del__(self) -> None:
        self.core.close_dropped(self)


class ClientCore:
    """The shared state of one client: a session and the connection that serves it.

    Args:
        hosts: The servers and the chroot.
        session_timeout: The session timeout to request, in seconds.
        read_only: Whether to accept a server in read-only mode.
        login: User and password for SASL DIGEST-MD5.
        auth: Initial credentials.
        tls: TLS context for the connections; None for connections without TLS.
        backoff: Delays between rounds over all hosts.
        max_request: Maximum size of a request in bytes.
        rng: Random generator for host order, jitter and names of protected nodes.
        on_request: Hook that is called for each request.
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
        """Pending requests that remove watches from the server, by path."""
        self.session = ClientSession(
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
        # 1000 or more are probably milliseconds, because servers grant at most 40 s by default.
        self._seems_milliseconds = session_timeout >= 1000
        self._tls = tls
        self._backoff = backoff
        self._max_request = max_request
        self._on_request = None if on_request is None else GuardedHook(on_request)
        self._encoded_paths: dict[str, bytes] = {}
        self._shared: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
        # A dictionary, because listeners are called in order, which keeps simulations reproducible.
        self._listeners: dict[weakref.ref[StateListener], None] = {}
        self.tasks: set[asyncio.Task[Any]] = set()
        self.postponed: dict[RequestCall[Any], asyncio.TimerHandle] = {}
        self._removal_timers: dict[str, asyncio.TimerHandle] = {}  # timers of repeated removals of watches, by path
        self._forked = False
        self.on_drop: Callable[[], object] = _do_nothing
        """Function that is called in the event loop after a dropped client has been closed."""

    def __repr__(self) -> str:
        servers = ",".join(map(str, self.hosts.addresses))
        return f"<zoolet Client {servers}{self.chroot} {self.session.state.value}>"

    # --- start and close ---

    def start(self) -> Connection:
        """Start connecting in the background, and return the connection.

        Raises:
            RuntimeError: The client was started before.
        """
        if self.connection is not None:
            raise RuntimeError("this Client has already been started; create a new one")
        self.loop = asyncio.get_running_loop()
        self.connection = Connection(self.hosts, self.session, self.loop, self.rng, self._backoff, self._tls)
        fork.register(self)
        self.connection.start()
        return self.connection

    async def aclose(self) -> None:
        """Stop the background tasks, close the session and the connection, and wait at most one second for each."""
        if self._forked:
            return
        self.check_loop()
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

    def close_dropped(self, owner: Owner) -> None:
        """Close a client that the program dropped without closing it, and warn. Any thread may call this."""
        loop, connection = self.loop, self.connection
        was_closed = self.terminal_error is not None and self.session.fatal_error is None
        if loop is None or connection is None or was_closed or loop.is_closed():
            return
        is_open = self.terminal_error is None  # read first, because the loop may run in a different thread
        with contextlib.suppress(RuntimeError):  # the loop may have been closed since
            loop.call_soon_threadsafe(self._finish_dropped, connection, loop)
        if is_open:
            text = f"{self!r} was dropped without being closed, so it ends; use a block, aclose() or close()"
            warnings.warn(text, ResourceWarning, source=owner, stacklevel=1)

    def _finish_dropped(self, connection: Connection, loop: asyncio.AbstractEventLoop) -> None:
        if self.session.has_calls or self.postponed:  # a program may still await these calls
            loop.call_later(DROP_CHECK_SECONDS, self._finish_dropped, connection, loop)
            return
        for task in self.tasks:
            task.cancel()
        connection.close_nowait()
        fork.unregister(self)
        self.on_drop()

    def invalidate_after_fork(self) -> None:
        """Reject all calls, because this is a forked child and the connection belongs to its parent."""
        self._forked = True
        self.session.terminal_error = RuntimeError(fork.FORKED_MESSAGE)

    # --- states ---

    @property
    def terminal_error(self) -> Exception | None:
        """The error that all calls raise because the client can no longer be used; None while it can."""
        return self.session.terminal_error

    def valid_for(self) -> float:
        """Return the number of seconds that the session is guaranteed to survive. See the client's ``valid_for()``."""
        session = self.session
        if session.id == 0 or self.connection is None or session.terminal_error is not None:
            return 0.0
        connection = self.connection
        now = connection.loop.time() + connection.suspensions.total()  # now() is inlined for speed
        left = session.last_confirmed + session.timeout_ms / 1000 - now
        return left if left > 0.0 else 0.0

    def _on_state(self, state: State, reason: str) -> None:
        bad = state in (State.SUSPENDED, State.LOST) or (state is State.CONNECTED and reason)
        level = logging.WARNING if bad else logging.INFO
        _log.log(level, "%r is %s%s", self, state.value, f": {reason}" if reason else "")
        if state is State.CONNECTED and self._seems_milliseconds:
            text = "timeout=%g is in seconds, and the server granted %g s; if you meant milliseconds, use timeout=%g"
            granted, wanted = self.session.timeout_ms / 1000, self.session_timeout
            _log.warning(text, wanted, granted, wanted / 1000)
            self._seems_milliseconds = False
        for ref in list(self._listeners):
            try:
                if (listener := ref()) is not None:
                    listener.on_state(state)
            except Exception:  # a faulty listener must not close the connection that all other callers use
                _log.exception("a listener of %r failed", self)
        if state in (State.LOST, State.CLOSED):
            self._fail_postponed(reason)
        if state is State.CLOSED:
            for registration in list(self.session.watches):
                registration.wake()

    def add_listener(self, listener: StateListener) -> None:
        """Notify an object of every new state. Only a weak reference to it is kept."""
        self._listeners[weakref.ref(listener, self._listeners.pop)] = None

    # --- for recipes ---

    def share(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the object that this client's recipes share under *key*. Create it with *make* if it does not exist.

        The object is freed with the last recipe that uses it.
        """
        value: T | None = self._shared.get(key)
        if value is None:
            value = self._shared[key] = make()
        return value

    def new_uuid(self) -> str:
        """Return a random UUID, from this client's random generator."""
        bits = f"{self.rng.getrandbits(128) & ~(0xF000 << 64) | 0x4000 << 64:032x}"
        return f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"

    def spawn(
        self, job: Coroutine[Any, Any, T], *, on_failure: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[T | None]:
        """Run a coroutine in the background until it returns or fails, or the client is closed.

        ClosedError and SessionExpiredError end it silently. Any other error is logged with its traceback and passed to
        *on_failure*. If a future that the coroutine awaits is cancelled, but not the task, this counts as an error.

        Args:
            job: Coroutine to run.
            on_failure: Function that is called with an error that was logged; None to only log it.

        Returns:
            The task. Its result is None after one of the two silent errors.

        Raises:
            RuntimeError: The call comes from a different thread or event loop.
        """

        async def run() -> T | None:
            try:
                return await job
            except (ClosedError, SessionExpiredError):
                return None

        def over(task: asyncio.Task[T | None]) -> None:
            self.tasks.discard(task)
            job.close()  # the client may have been closed before the coroutine started
            if not task.cancelled():
                error = task.exception()
            else:
                error = None if task.cancelling() else RuntimeError("a future that the task awaited was cancelled")
            if isinstance(error, Exception):
                _log.error("a background task of %r failed", self, exc_info=error)
                if on_failure is not None:
                    on_failure(error)

        assert self.loop is not None
        try:
            self.check_loop()
        except RuntimeError:
            job.close()
            raise
        task = self.loop.create_task(run(), name="zoolet-client-task")
        self.tasks.add(task)
        task.add_done_callback(over)
        return task

    # --- paths ---

    def add_chroot(self, path: str) -> str:
        """Return the path on the server, which includes the chroot.

        Raises:
            TypeError: *path* is not a string.
            ValueError: *path* is not a valid path.
        """
        if not (path.__class__ is str and path in self._encoded_paths):
            self._check_path(path)
        if not self.chroot:
            return path
        return self.chroot if path == "/" else self.chroot + path

    def _check_path(self, path: str) -> None:
        if not isinstance(path, str):
            raise TypeError(f"path must be a string, not {path!r}")
        slash = path.rfind("/")
        known = slash == 0 or path[:slash] in self._encoded_paths  # most parents have already been checked
        if not known or not paths.is_valid_name(path[slash + 1 :]):
            paths.check(path)

    def strip_chroot(self, path: str) -> str:
        """Return the path without the chroot, as the client uses it."""
        if not self.chroot:
            return path
        return path[len(self.chroot) :] or "/" if path.startswith(self.chroot) else path

    def encoded_path(self, path: str) -> bytes:
        """Check a path, add the chroot and encode it, or return the cached result."""
        try:
            return self._encoded_paths[path]
        except (KeyError, TypeError):
            encoded = put_str(self.add_chroot(path))
        if len(self._encoded_paths) >= _MAX_CACHED_PATHS:
            self._encoded_paths.clear()
        self._encoded_paths[path] = encoded
        return encoded

    def sequential_path(self, path: str) -> str:
        """Check the path of a sequential create, and add the chroot.

        The path may end with a slash. In that case, the node's name consists only of the number.
        """
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
        """Submit a request, which is sent at the end of this iteration of the event loop.

        Args:
            op: The op code.
            body: The encoded request, without its header.
            decode: Function that decodes the body of the reply.
            path: The node, for error messages.
            operation_timeout: Seconds that the request may wait for a connection.
            then: Function that is called with the result or the error, in order with other replies and events.
            of_recipe: Whether a recipe makes the request; see
                :meth:`~zoolet.client.aio.view.View._for_recipe`.

        Raises:
            ValueError: The request is longer than *max_request* of the client.
            RuntimeError: The client was not started, or belongs to a different event loop.
            ZooKeeperError: The client is closed.
        """
        connection, loop, session = self.connection, self.loop, self.session
        # Checked here first, because calling connected_loop() would add 1% to the time of a request.
        if connection is None or loop is None or asyncio._get_running_loop() is not loop:
            connection, loop = self.connected_loop()
        if len(body) > self._max_request - 8:
            raise ValueError(
                f"{path or OPERATIONS[op].name}: the request has {len(body) + 8} bytes; "
                f"the limit is {self._max_request} (max_request)"
            )
        idempotent = OPERATIONS[op].idempotent
        deadline = loop.time() + connection.suspensions.known + operation_timeout
        call = RequestCall(loop, op, body, decode, path, deadline, idempotent, then, of_recipe)
        session.submit(call)
        if not connection.flush_scheduled:
            connection.schedule_flush()
        if self._on_request is not None:
            self._on_request.call(RequestInfo(OPERATIONS[op].name, path, EXPECTED_ERRORS if of_recipe else ()), call)
        return call

    def _postpone(self, call: PendingCall) -> None:
        """Send a call again later, because the server was too busy to try it."""
        assert isinstance(call, RequestCall)
        assert self.loop is not None
        if self.terminal_error is not None:  # a client that is closing cannot send the call again
            fail(call, ClosedError(call.path, "the server was too busy, and the client is closing"))
            return
        if call.retry_delays is None:
            call.retry_delays = REFUSAL_BACKOFF.delays(self.rng)
        delay = next(call.retry_delays)
        self.postponed[call] = self.loop.call_later(delay, self._resubmit, call, self.session.id)

    def _resubmit(self, call: RequestCall[Any], session_id: int) -> None:
        connection, _ = self.connected_loop()
        del self.postponed[call]
        if call.done():
            drop(call)
        elif session_id != self.session.id:
            fail(call, SessionExpiredError(call.path, "the session expired before the request could be repeated"))
        else:
            call.deadline += connection.now() - call.sent_at  # the pause does not count as waiting
            self.session.submit(call)
            connection.schedule_flush()

    def _fail_postponed(self, reason: str) -> None:
        for timer in self._removal_timers.values():  # the server removes watches when the session ends
            timer.cancel()
        self._removal_timers.clear()
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
            RuntimeError: The client was not started, or belongs to a different event loop.
            ZooKeeperError: The client is closed.
        """
        if self.connection is None or self.loop is None:
            if self.terminal_error is not None:
                raise copy_error(self.terminal_error)
            raise RuntimeError("this Client was not started; use it as 'async with Client(...) as zk:'")
        if asyncio._get_running_loop() is not self.loop:
            self.check_loop()
        return self.connection, self.loop

    @property
    def is_open(self) -> bool:
        """Whether the client was started and not closed."""
        return self.loop is not None and self.terminal_error is None

    def check_open(self) -> None:
        """Check that the client was started, is open, and belongs to the running event loop.

        Raises:
            RuntimeError: The client was not started, or belongs to a different event loop.
            ZooKeeperError: The client is closed.
        """
        self.connected_loop()
        if self.terminal_error is not None:
            raise copy_error(self.terminal_error)

    def check_loop(self) -> None:
        """Check that the call does not come from outside the client's event loop.

        Raises:
            RuntimeError: The call comes from a different thread or event loop.
        """
        running = asyncio._get_running_loop()
        if running is self.loop or self.loop is None or self._forked:
            return
        if self.loop.is_running():
            raise wrong_thread_error(self)
        if running is not None:  # without a running event loop, the result cannot be awaited, so no error is needed
            ended = ", which is closed" if self.loop.is_closed() else ""
            raise RuntimeError(
                f"this Client belongs to a different event loop{ended}; create one in this loop (with pytest, a "
                "fixture and its tests need the same loop scope)"
            )

    def add_auth(self, scheme: str, auth: bytes, operation_timeout: float) -> Call[None]:
        """Authenticate with a credential, now and after each reconnect."""
        connection, loop = self.connected_loop()
        deadline = connection.now() + operation_timeout
        call = RequestCall(loop, OpCode.AUTH, b"", decode_nothing, None, deadline, False)
        self.session.add_credential(scheme, auth, call)
        connection.schedule_flush()
        return call

    def flush(self) -> None:
        """Send submitted calls immediately, instead of at the end of this iteration of the event loop."""
        if self.connection is not None:
            self.connection.flush()

    def rewatch(self, path: str) -> None:
        """Register the watches of a path again. The path includes the chroot."""
        self.session.rewatch(path)
        if self.connection is not None:
            self.connection.schedule_flush()

    def remove_watches(self, path: str, kind: WatcherType, delays: Iterator[float] | None = None) -> Call[None] | None:
        """Remove watches from the server that the client no longer needs.

        If the server is too busy, a new request is made later. The same request is not repeated, because it would also
        remove watches that were registered since.

        Args:
            path: The path, including the chroot.
            kind: Type of the watches to remove.
            delays: Delays before further requests; None for the default.

        Returns:
            The request; None if the client is closed.
        """
        if self.terminal_error is not None:
            return None

        def done(call: asyncio.Future[None]) -> None:
            if self.removals.get(path) is call:
                del self.removals[path]
            if not call.cancelled() and isinstance(call.exception(), ThrottledOpError):
                self._schedule_removal(path, delays or REFUSAL_BACKOFF.delays(self.rng))

        body, name = put_str(path) + pack_int(kind), self.strip_chroot(path)
        call = self.call(OpCode.REMOVE_WATCHES, body, decode_nothing, name, 0.0, of_recipe=True)
        call.retries_throttled = False
        self.removals[path] = call
        call.add_done_callback(done)
        return call

    def _schedule_removal(self, path: str, delays: Iterator[float]) -> None:
        def remove() -> None:
            del self._removal_timers[path]
            if self.session.watches.is_needed(path):
                self.session.watches.add_orphan(path)
            else:
                self.remove_watches(path, WatcherType.ANY, delays)

        assert self.loop is not None
        if path not in self._removal_timers and self.terminal_error is None:
            self._removal_timers[path] = self.loop.call_later(next(delays), remove)
