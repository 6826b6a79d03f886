"""The runner of a server, in its own thread or in the running event loop, and calls into its loop from any thread.

States and transitions::

    NOT_STARTED, STOPPED, FAILED --start--> RUNNING; or FAILED, if the address cannot be listened on
    RUNNING                      --stop---> STOPPED

A loop for calls exists only in RUNNING. A forked child has a copy of the runner in RUNNING, but the server belongs to
the parent: in the child the address can be read, calls raise RuntimeError, and stopping does nothing.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, wait
from enum import Enum
from random import Random
from typing import Any, Final, TypeVar

from ...protocol.addresses import host_and_port
from ...server.config import build
from ...server.core.engine import Engine
from ...server.net.clock import Clock
from ...server.net.connections import ConnectionFactory, Connections
from ...server.net.daemon import Daemon
from ...server.net.turns import TURN
from ..state.real_time import RealTimeClock, RealTimeLoop
from . import fork

T = TypeVar("T")

CALL_TIMEOUT_SECONDS: Final = 30.0
"""Seconds until a call from a different thread fails. A failure means that the loop is blocked."""
BLOCKED_MESSAGE: Final = "the server's event loop was blocked for %.3g s; is a blocking client running in it?"
"""Message for a blocked loop, with the number of seconds."""
_USED_PORTS: set[int] = set()
"""The ports that servers of this process have used. They are not used again, because clients of a stopped
or reset server must not connect to a later server.
"""


def make_daemon(connect: ConnectionFactory, clock: Clock | None = None, turn: float = TURN) -> Daemon:
    """Return a daemon for the running loop, for a server whose connections, made by *connect*, need no engine.

    The daemon's own engine has nothing to do.
    """
    clock = clock or RealTimeClock()
    now, monotonic_ms = clock.read()
    settings = build().settings
    settings.max_unread_bytes = settings.max_unread_bytes_total = 1 << 40  # no limit: a proxy waits for slow clients
    engine = Engine(settings, now=now, monotonic_ms=monotonic_ms, rng=Random())
    return Daemon(Connections(engine, clock, connect, max_per_host=0, turn=turn))


class RunnerState(Enum):
    """The state of a runner. The values complete the message "this Server is ..."."""

    NOT_STARTED = "not started; use it as 'with Server() as server:'"
    FAILED = "not started; it could not listen"
    RUNNING = "running"
    STOPPED = "stopped"


class Runner:
    """The runner that starts and stops a server, and calls functions in its loop.

    Args:
        assemble: Function that returns a new daemon. It is called inside the server's loop at each start. For a
            cluster it returns None, because the members have their own daemons.
        host: The address to listen on.
        port: The port, or 0 for a free port.

    Attributes:
        daemons: Function that returns the daemons for :meth:`call`, which sets their time and sends their events.
        state: The state. The module's docstring shows the transitions.
        context: The TLS context of the port, or None for a port without TLS.
        after_start: Coroutine function to await inside the loop once the daemon listens.
        before_stop: Coroutine function to await inside the loop before the daemon stops.
        after_stop: Function to call once the daemon has stopped.
        without_waiting: Whether :meth:`open` does not wait, so that it can be called from plain code in the loop.
        after_call: Function to call after each function of :meth:`call`, before its events are sent.
    """

    _loop: asyncio.AbstractEventLoop
    _stopping: asyncio.Event

    def __init__(self, assemble: Callable[[], Daemon | None], host: str, port: int) -> None:
        self.state = RunnerState.NOT_STARTED
        self._assemble = assemble
        self._host = host
        self._requested_port = port
        self._daemon: Daemon | None = None
        self.daemons: Callable[[], list[Daemon]] = lambda: [self.daemon]
        self.context: ssl.SSLContext | None = None
        self.after_start: Callable[[], Awaitable[None]] | None = None
        self.before_stop: Callable[[], Awaitable[None]] | None = None
        self.after_stop: Callable[[], None] = lambda: None
        self.after_call: Callable[[], None] = lambda: None
        self.without_waiting = False
        self._port = 0
        self._pid = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_thread = 0
        self._thread: threading.Thread | None = None

    # --- in the running loop ---

    async def open(self) -> None:
        """Start in the running loop, and return once clients can connect.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
            RuntimeError: The server is already running.
        """
        self._check_not_running()
        before = self._daemon
        try:
            await self._listen()
            if self._daemon is not None:
                self._daemon.stall_warning = BLOCKED_MESSAGE
        except BaseException:  # a cancelled start is a failed start
            self.state = RunnerState.FAILED
            if self._daemon is not None and self._daemon is not before:
                await self._daemon.stop(gracefully=False)
            raise

    async def close(self) -> None:
        """Stop the server that :meth:`open` has started."""
        if self.runs_here():
            self._mark_stopped()
            await self._stop_daemon()

    async def _stop_daemon(self) -> None:
        try:
            if self._tasks:
                await asyncio.wait(self._tasks)
            if self.before_stop is not None:
                await self.before_stop()
            if self._daemon is not None:
                await self._daemon.stop(gracefully=False)
        finally:
            self.after_stop()

    # --- in its own thread ---

    def start(self) -> None:
        """Start in a new thread, and return once clients can connect.

        Raises:
            OSError: The address is in use, or does not belong to this machine.
            RuntimeError: The server is already running, or Python cannot start a thread.
        """
        self._check_not_running()
        opened: Future[None] = Future()
        try:
            self._thread = threading.Thread(target=self._run_thread, args=(opened,), name="zoolet-server", daemon=True)
            self._thread.start()
        except RuntimeError as refused:  # subinterpreters, for example, have no daemon threads
            self._thread = None
            raise RuntimeError(
                f"cannot start the thread of this Server: {refused}; use 'async with', which needs no thread"
            ) from None
        error = opened.exception()
        if error is not None:
            self._thread.join()
            self._thread = None
            self.state = RunnerState.FAILED
            raise error

    def stop(self) -> None:
        """Stop the server that :meth:`start` has started. Do nothing if it is not running, or in a forked child.

        Raises:
            RuntimeError: The server was started by :meth:`open`.
        """
        if not self.runs_here():
            return
        if self._thread is None:
            raise RuntimeError("this Server was started with 'async with', whose end stops it; do not call stop()")
        self._mark_stopped()
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def _run_thread(self, opened: Future[None]) -> None:
        """Serve in this thread until :meth:`stop`."""
        try:
            with asyncio.Runner(loop_factory=RealTimeLoop) as runner:
                runner.run(self._serve(opened))
        except BaseException as error:  # start() waits for *opened*, and raises the error, even KeyboardInterrupt
            if opened.done():
                raise
            opened.set_exception(error)

    async def _serve(self, opened: Future[None]) -> None:
        await self._listen()
        opened.set_result(None)
        await self._stopping.wait()
        await self._stop_daemon()

    # --- in the running loop or in the thread ---

    async def _listen(self) -> None:
        self._daemon = daemon = self._assemble()
        self._stopping = asyncio.Event()
        if daemon is not None:
            port = self._requested_port or self._port
            self._port = await daemon.start(self._host, port, self.context, without_waiting=self.without_waiting)
            if self._port in _USED_PORTS and self.state is RunnerState.NOT_STARTED:
                self.move()
            _USED_PORTS.add(self._port)
        self._pid = os.getpid()
        self._loop_thread = threading.get_ident()
        self._loop = asyncio.get_running_loop()
        self.state = RunnerState.RUNNING
        if self.after_start is not None:
            await self.after_start()
        if daemon is not None:
            fork.register(daemon)

    def move(self) -> None:
        """Listen on a port that no server of this process has used, unless the port was chosen. Call it in the loop."""
        if self._requested_port == 0 and (port := self.daemon.move(_USED_PORTS)) is not None:
            self._port = port
            _USED_PORTS.add(port)

    def _mark_stopped(self) -> None:
        self.state = RunnerState.STOPPED
        if self._daemon is not None:
            fork.unregister(self._daemon)

    def _check_not_running(self) -> None:
        if self.running:
            raise RuntimeError(f"this Server is already running on {self.hosts}")

    # --- state and address ---

    @property
    def daemon(self) -> Daemon:
        """The current daemon. After a stop, the last daemon."""
        assert self._daemon is not None
        return self._daemon

    @property
    def running(self) -> bool:
        """Whether the server was started and has not been stopped since."""
        return self.state is RunnerState.RUNNING

    @property
    def port(self) -> int:
        """The TCP port that clients connect to.

        Raises:
            RuntimeError: The server is not running.
        """
        self.check_running()
        return self._port

    @property
    def hosts(self) -> str:
        """The connection string for clients: ``host:port``.

        Raises:
            RuntimeError: The server is not running.
        """
        return host_and_port(self._host, self.port)

    def runs_here(self) -> bool:
        """Return whether the server runs in this process. A forked child does not run its parent's servers."""
        return self.running and self._pid == os.getpid()

    # --- calls into the loop ---

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's loop. In the server's own thread, it must complete without waiting.

        Raises:
            RuntimeError: The server is not running, or the coroutine has to wait in the server's thread.
            TimeoutError: The coroutine did not complete within :data:`CALL_TIMEOUT_SECONDS`.
        """
        self.check_can_call()
        if not self.in_server_thread():
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_SECONDS)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        coroutine.close()
        raise RuntimeError("this call would block the server's event loop; call it from a different thread")

    def run_soon(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the server's loop. Wait until it is done, unless this is the server's thread."""
        self.check_can_call()
        if self.in_server_thread():
            task = self._loop.create_task(coroutine)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_TIMEOUT_SECONDS)

    def check_can_call(self) -> None:
        """Raise a RuntimeError unless the server runs in this process."""
        __tracebackhide__ = True
        self.check_running()
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this Server belongs to process {self._pid}, not to this forked child; clients may connect to "
                f"{self.hosts}, but only the parent can call its methods"
            )

    def check_running(self) -> None:
        """Raise a RuntimeError unless the server is running."""
        __tracebackhide__ = True
        if not self.running:
            raise RuntimeError(f"this Server is {self.state.value}")

    def in_server_thread(self) -> bool:
        """Return whether the current thread runs the server's loop."""
        return threading.get_ident() == self._loop_thread

    def call(self, function: Callable[[], T]) -> T:
        """Call *function* in the server's thread, at the server's current time, and send the resulting events.

        Raises:
            RuntimeError: The server is not running, or runs in a different process.
            TimeoutError: The loop is blocked.
        """
        __tracebackhide__ = True
        self.check_can_call()
        if self.in_server_thread():
            return self._call_now(function)
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(self._call_now(function))
            except BaseException as error:  # call() raises the error, even KeyboardInterrupt, in its own thread
                outcome.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        if not wait((outcome,), CALL_TIMEOUT_SECONDS).done:
            raise TimeoutError(BLOCKED_MESSAGE % CALL_TIMEOUT_SECONDS)
        return outcome.result()

    def _call_now(self, function: Callable[[], T]) -> T:
        for daemon in self.daemons():
            daemon.connections.set_time()
        try:
            return function()
        finally:
            self.after_call()
            for daemon in self.daemons():
                daemon.connections.deliver()
                daemon.wake()
