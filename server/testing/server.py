"""A server in one line: in a thread of its own for blocking code, in the running loop for asyncio code."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from random import Random, SystemRandom
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from zoolet.server import config as configuration
from zoolet.server.app import assemble
from zoolet.server.config import Config, Setting
from zoolet.server.core.client_connection import Session
from zoolet.server.core.engine import Engine
from zoolet.server.net.clock import Clock, RealClock
from zoolet.server.net.connections import OpenSocket
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.turns import TURN
from zoolet.server.testing import views
from zoolet.server.testing.actions import Action
from zoolet.server.testing.clock import MANUAL_CLOCK_START, ManualClock
from zoolet.server.testing.faults import Fault
from zoolet.server.testing.history import History, Snapshot
from zoolet.server.testing.interceptor import Interceptor
from zoolet.server.testing.populate import populate

T = TypeVar("T")
_log = logging.getLogger("zoolet.server")

DEFAULTS: Final = {
    "tickTime": "200",
    "minSessionTimeout": "100",
    "maxSessionTimeout": "86400000",
    "maxClientCnxns": "0",
    "4lw.commands.whitelist": "*",
}
"""What a server for tests is told unless the test says otherwise: short ticks, and any session timeout is granted."""
CALL_TIMEOUT: Final = 30.0
"""Seconds after which a call from another thread gives up: only a loop that hangs takes so long."""

_running: weakref.WeakSet[Server] = weakref.WeakSet()


class Server:
    """A ZooKeeper for tests.

    ``with Server() as server:`` serves from a thread of its own, ``async with Server() as server:`` from the running
    loop. All methods are plain calls that have taken effect when they return, from either kind of code and from any
    thread; only :meth:`wait_for` has to be awaited when it is called in the server's own loop.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one.
        clock: ``"real"``, or ``"manual"`` for one that only :meth:`advance` moves.
        seed: Where chance comes from; by default from the system. The same seed gives the same faults, and with a
            manual clock the same session ids and times.
        data_dir: Must be None: this server keeps everything in memory.
        config: A zoo.cfg's path, or a dict of its keys and values.

    Attributes:
        seed: What was given, or was drawn.

    Raises:
        ValueError: An argument makes no sense.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: str = "real",
        seed: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
    ) -> None:
        if clock not in ("real", "manual"):
            raise ValueError(f"clock is {clock!r}; it must be 'real' or 'manual'")
        if not isinstance(host, str) or not host:
            raise ValueError(f"host is {host!r}; it must be an address to listen on")
        if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
            raise ValueError(f"port is {port!r}; it must be from 0, for a free one, to 65535")
        if seed is not None and not isinstance(seed, int):
            raise ValueError(f"seed is {seed!r}; it must be an int")
        if data_dir is not None:
            raise ValueError(f"data_dir is {data_dir!r}; this server keeps everything in memory, leave it out")
        self.seed = SystemRandom().getrandbits(32) if seed is None else seed
        self._host = host
        self._wanted_port = port
        self._config = _configured(config)
        self._clock: Clock
        if clock == "manual":
            self._clock = ManualClock(MANUAL_CLOCK_START if seed is not None else time.time_ns() // 1_000_000)
            self._config.settings.exact_deadlines = True
        else:
            self._clock = RealClock()
        self._turn = TURN
        self._port = 0
        self._rules = 0
        self._state = "not started; use it as 'with Server() as server:'"
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._thread: threading.Thread | None = None
        self._stopping: asyncio.Event
        self._listener: Daemon
        self._interceptor: Interceptor
        self._history: History

    def __repr__(self) -> str:
        return f"<zoolet Server {self.hosts}>" if self._loop is not None else f"<zoolet Server, {self._state}>"

    # --- starting and stopping ---

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        self._begin()
        try:
            await self._open()
        except BaseException:
            self._state = "not started; it could not listen"
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._pid == os.getpid():
            self._state = "stopped"
            self._loop = None
            _running.discard(self)
            await self._listener.stop(gracefully=False)

    def start(self) -> None:
        """Start, in a thread of its own; returns once clients can connect.

        Raises:
            OSError: The address is in use or is not this machine's.
            RuntimeError: It runs already.
        """
        self._begin()
        ready: list[BaseException | None] = []
        started = threading.Event()

        def run() -> None:
            with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
                runner.run(self._serve(ready, started))

        self._thread = threading.Thread(target=run, name="zoolet-server", daemon=True)
        self._thread.start()
        started.wait()
        if ready[0] is not None:
            self._thread.join()
            self._thread = None
            self._state = "not started; it could not listen"
            raise ready[0]

    def stop(self) -> None:
        """Stop; clients are cut off. Nothing happens if it does not run, or in a process forked from the server's."""
        if self._loop is None or self._pid != os.getpid():
            return
        if self._thread is None:
            raise RuntimeError("this Server was started with 'async with'; that block stops it")
        loop, self._loop = self._loop, None
        self._state = "stopped"
        _running.discard(self)
        loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None

    def use_clock(self, clock: Clock) -> None:
        """Take the time from elsewhere; before the start."""
        self._begin()
        self._clock = clock

    def _begin(self) -> None:
        if self._loop is not None:
            raise RuntimeError(f"this Server runs already, on {self.hosts}")

    async def _serve(self, ready: list[BaseException | None], started: threading.Event) -> None:
        try:
            await self._open()
        except BaseException as error:
            ready.append(error)
            return
        finally:
            if not ready and self._loop is not None:
                ready.append(None)
            started.set()
        await self._stopping.wait()
        await self._listener.stop(gracefully=False)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        later = self._clock.call_later if isinstance(self._clock, ManualClock) else loop.call_later
        self._listener = assemble(
            self._config,
            clock=self._clock,
            rng=Random(self.seed),
            connection_factory=lambda connection, resume: self._interceptor.wrap(connection, resume),
            turn=self._turn,
        )
        self._history = History(self._listener.engine)
        self._interceptor = Interceptor(self._listener.engine, later)
        self._stopping = asyncio.Event()
        self._port = await self._listener.start(self._host, self._wanted_port)
        self._pid = os.getpid()
        self._loop_thread = threading.get_ident()
        self._loop = loop
        _running.add(self)

    # --- calls into the loop ---

    def _alive(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(f"this Server is {self._state}")
        if self._pid != os.getpid():
            raise RuntimeError(
                f"this Server belongs to process {self._pid} and not to this fork of it; clients may connect to "
                f"{self.hosts}, all else has to be done there"
            )
        return self._loop

    def _in_server_thread(self) -> bool:
        """Return whether this is the server's own thread."""
        return threading.get_ident() == self._loop_thread

    def _call(self, do: Callable[[], T]) -> T:
        """Do something in the server's thread, at its present time, and send what came of it."""
        loop = self._alive()
        if self._in_server_thread():
            return self._do(do)
        done = threading.Event()
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.extend((self._do(do), None))
            except BaseException as error:
                outcome.extend((None, error))
            done.set()

        loop.call_soon_threadsafe(run)
        if not done.wait(CALL_TIMEOUT):
            raise TimeoutError(f"the server's loop has not answered for {CALL_TIMEOUT} s; is something blocking it?")
        if outcome[1] is not None:
            raise outcome[1]
        return outcome[0]  # type: ignore[no-any-return]

    def _do(self, do: Callable[[], T]) -> T:
        self._engine.set_time(*self._clock.read())
        try:
            return do()
        finally:
            self._listener.connections.deliver()
            self._listener.wake()

    @property
    def _engine(self) -> Engine:
        return self._listener.engine

    # --- where it is ---

    @property
    def port(self) -> int:
        """The port.

        Raises:
            RuntimeError: The server does not run.
        """
        if self._loop is None:
            raise RuntimeError(f"this Server is {self._state}")
        return self._port

    @property
    def hosts(self) -> str:
        """The address as clients take it: ``host:port``.

        Raises:
            RuntimeError: The server does not run.
        """
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def admin_url(self) -> str | None:
        """Where the admin server is: None, for this server has none yet."""
        return None

    # --- sessions and connections ---

    def expire(self, who: Any) -> None:
        """End sessions as if their time were up: when this returns, their ephemeral nodes are gone, the watches of
        others have fired, and their connections are closed.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: There is no such session, or the client has none.
        """

        def do() -> None:
            for session in self._sessions(who):
                self._engine.expire(session)
                self._interceptor.paused.discard(session.id)
            self._interceptor.recheck()

        self._call(do)

    def drop(self, who: Any) -> None:
        """Cut the connections; the sessions live on. Arguments and errors as for :meth:`expire`."""

        def do() -> None:
            ids = {session.id for session in self._sessions(who)}
            for transport in list(self._listener.connections.open.values()):
                self._drop(transport, None if who == "all" else ids)

        self._call(do)

    def _drop(self, transport: OpenSocket, ids: set[int] | None) -> None:
        connection = transport.connection
        if connection is None:
            return
        session = connection.client.session
        if ids is None or (session is not None and session.id in ids):
            connection.connection_lost()
            transport.abort()

    def pause(self, who: Any) -> None:
        """Neither read from a client nor write to it until :meth:`resume`, on this connection and any it makes later:
        what a network that loses everything looks like. Arguments and errors as for :meth:`expire`.
        """

        def do() -> None:
            if who == "all":
                self._interceptor.all_paused = True
            else:
                self._interceptor.paused |= {session.id for session in self._sessions(who)}
            self._interceptor.recheck()

        self._call(do)

    def resume(self, who: Any) -> None:
        """End a pause: what was sent meanwhile is answered now. Arguments and errors as for :meth:`expire`, but a
        session may have ended meanwhile.
        """

        def do() -> None:
            if who == "all":
                self._interceptor.all_paused = False
                self._interceptor.paused.clear()
            else:
                session_id = _session_id(who)
                if session_id not in self._interceptor.paused:
                    raise LookupError(f"{who!r} is not paused")
                self._interceptor.paused.discard(session_id)
            self._interceptor.recheck()

        self._call(do)

    def refuse_connections(self) -> None:
        """Refuse new connections until :meth:`accept_connections`; those there are stay."""
        self._call(self._refuse)

    def accept_connections(self) -> None:
        """Accept connections again."""
        self._call(self._accept)

    def _refuse(self) -> None:
        self._listener.refuse_connections()

    def _accept(self) -> None:
        self._listener.accept_connections()

    def _sessions(self, who: Any) -> list[Session]:
        alive = self._engine.sessions.alive
        if isinstance(who, str) and who == "all":
            return list(alive.values())
        session = alive.get(_session_id(who))
        if session is None:
            raise LookupError(f"{who!r} has no session that is alive here")
        return [session]

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Move a manual clock on: sessions, TTL nodes and containers that are due on the way end at their moments, in
        that order.

        Args:
            seconds: 0 or more.

        Raises:
            ValueError: It is negative, or the clock is the real one.
        """
        clock = self._clock
        if not isinstance(clock, ManualClock):
            raise ValueError("advance() is for Server(clock='manual'); this server has the real clock")
        if not isinstance(seconds, int | float) or not 0 <= seconds < float("inf"):
            raise ValueError(f"advance({seconds!r}): the seconds must be 0 or more")

        def do() -> None:
            engine, target = self._engine, clock.monotonic_ms + round(seconds * 1000)
            while True:
                moments = [moment for moment in (engine.next_due(), clock.next()) if moment is not None]
                moment = min(moments, default=target + 1)
                if moment > target:
                    break
                clock.move_to(moment)
                engine.set_time(*clock.read())
                engine.tick()
                engine.reap()
            clock.move_to(target)
            engine.set_time(*clock.read())

        self._call(do)

    # --- faults ---

    def fault(
        self,
        op: str | int | None = None,
        path: str | None = None,
        session: Any = None,
        nth: int | Collection[int] | None = None,
        probability: float | None = None,
        times: int | None = None,
        *,
        action: Action,
        strict: bool = False,
    ) -> Fault:
        """Let something go wrong, from now until the ``with`` block of the result is left.

        Several faults may apply to one request: it waits for all of them, and of their effects the first counts in
        the order drop_request, error, lose_reply, close_after.

        Args:
            op: An operation, such as ``"create"``, ``"getData"``, ``"get_children2"``, ``"connect"``; None for all.
                A name that clients use for several op codes means all of them. A transaction is a ``"multi"``.
            path: A glob, in which ``*`` matches slashes too; a transaction matches with any of its paths.
            session: Whose requests, or for events who gets them; as *who* of :meth:`expire`, but it need not be
                connected yet.
            nth: Of what matches so far, only the one with this number, counted from 1; or several numbers.
            probability: Of these, each only with this chance.
            times: Of these, only so many.
            action: What happens to them.
            strict: Fail with an AssertionError at the end of the block if nothing was hit.

        Raises:
            ValueError: An argument makes no sense.
        """
        whose = None
        if session is not None and not (isinstance(session, str) and session == "all"):
            if not isinstance(session, int):
                _session_id(session, missing=0)  # complain now, not when it is too late
            whose = partial(_session_id, session, 0)
        self._alive()
        self._rules += 1
        fault = Fault(
            action,
            op=op,
            path=path,
            session=whose,
            nth=nth,
            probability=probability,
            times=times,
            strict=strict,
            rng=Random(f"{self.seed} {self._rules}"),
            end=self._end_fault,
            release=lambda fault: self._call(lambda: self._interceptor.release(fault)),
        )
        self._call(lambda: self._interceptor.add(fault))
        return fault

    def _end_fault(self, fault: Fault) -> None:
        if self._loop is not None and self._pid == os.getpid():
            self._call(lambda: self._interceptor.remove(fault))

    # --- state ---

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Make nodes: ``{"/app": b"x", "/app/workers": {"w1": "a", "w2": "b"}}``.

        Args:
            nodes: By path or name. A value is bytes, text, None, a :class:`~zoolet.server.testing.Znode`, or a dict of
                the nodes below; what is missing on the way is made with empty data.

        Raises:
            ValueError: A path is not legal or a value is none of these; nothing is made then.
        """
        self._call(lambda: populate(self._engine, nodes))

    def snapshot(self) -> Snapshot:
        """Return a handle to the tree as it is; costs nothing, however large it is."""
        return self._call(lambda: self._history.take())

    def restore(self, snapshot: Snapshot) -> None:
        """Make the tree what it was; costs as much as was changed since.

        Sessions, watches, the zxid and the clock stay as they are, and nobody is told. Ephemeral nodes of sessions
        that have ended since do not come back.

        Raises:
            ValueError: It was taken of another server.
        """
        if not isinstance(snapshot, Snapshot):
            raise ValueError(f"restore({snapshot!r}): that is no snapshot; snapshot() gives one")
        self._call(lambda: self._history.restore_to(snapshot))

    def reset(self) -> None:
        """Begin anew: no sessions, no connections, no faults, no pauses, an empty tree. The clock goes on, as do zxids
        and session ids, so that a client left over from before is told that its session has expired.
        """

        def do() -> None:
            self._interceptor.reset()
            for session in list(self._engine.sessions.alive.values()):
                self._engine.close_session(session)
            for transport in list(self._listener.connections.open.values()):
                self._drop(transport, None)
            self._accept()
            self._history.restore_to(self._history.start)
            self._rules = 0

        self._call(do)

    # --- views ---

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Show a node and all below it, by path; the root and ``/zookeeper`` only if asked for by name."""
        return self._call(lambda: views.tree(self._engine, path))

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Show the sessions that are alive, by id."""
        return self._call(lambda: views.sessions(self._engine))

    def watches(self) -> tuple[views.WatchView, ...]:
        """Show all watches."""
        return self._call(lambda: views.watches(self._engine))

    def ops(self, last: int | None = None) -> tuple[views.OpView, ...]:
        """Show the last requests, up to 1,000, oldest first."""
        if last is not None and (not isinstance(last, int) or last < 0):
            raise ValueError(f"last is {last!r}; it must be 0 or more, or None for all")
        seen = self._call(lambda: list(self._interceptor.seen))
        return views.ops(seen if last is None else seen[len(seen) - min(last, len(seen)) :])

    def wait_for(self, predicate: Callable[..., Any], timeout: float = 5.0) -> Any:
        """Wait until a predicate is true, and give what it returned.

        In the server's own loop the result is a coroutine to await; anywhere else the call blocks.

        Args:
            predicate: Called without arguments, or with this server if it takes one.
            timeout: Seconds of real time.

        Raises:
            TimeoutError: It was not true in time; the message has the last operations.
        """
        self._alive()
        ask = partial(predicate, self) if _takes_one(predicate) else predicate
        if self._in_server_thread():
            return self._wait_here(ask, predicate, timeout)
        deadline, pause = time.monotonic() + timeout, 0.0005
        while not (value := ask()):
            if time.monotonic() > deadline:
                raise self._too_late(predicate, timeout)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return value

    async def _wait_here(self, ask: Callable[[], Any], predicate: Callable[..., Any], seconds: float) -> Any:
        now = asyncio.get_running_loop().time  # which may be virtual
        deadline, pause = now() + seconds, 0.0005
        while not (value := ask()):
            if now() > deadline:
                raise self._too_late(predicate, seconds)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        return value

    def _too_late(self, predicate: Callable[..., Any], timeout: float) -> TimeoutError:
        name = getattr(predicate, "__name__", repr(predicate))
        code = getattr(predicate, "__code__", None)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        last = "".join(f"\n  {op}" for op in self.ops(5)) or "\n  none"
        hint = ""
        if _in_a_loop() and not self._in_server_thread():
            hint = (
                "\nthis thread's event loop stood still meanwhile; in asyncio code with a server in another thread, as "
                "the fixture zoolet is: await asyncio.to_thread(server.wait_for, predicate)"
            )
        return TimeoutError(f"{name}{where} was not true within {timeout} s; the last operations were:{last}{hint}")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _takes_one(predicate: Callable[..., Any]) -> bool:
    try:
        inspect.signature(predicate).bind()
    except TypeError:
        return True
    except ValueError:  # a builtin without a signature
        return False
    return False


def _session_id(who: object, missing: int | None = None) -> int:
    """Return the session id of whoever is meant.

    Raises:
        ValueError: It is nobody that has sessions.
        LookupError: It has none now, and *missing* says not what to give then.
    """
    if isinstance(who, int) and not isinstance(who, bool):
        return who
    if hasattr(who, "session_id"):  # a zoolet client
        found = getattr(who, "session_id", None)
    elif hasattr(who, "client_id"):  # a KazooClient, whose client_id is None while it is not connected
        found = getattr(who, "_session_id", None)
    else:
        raise ValueError(f"{who!r} is unknown; give a KazooClient, a zoolet Client, a session id, or 'all'")
    if found:
        return int(found)
    if missing is not None:
        return missing
    raise LookupError(f"{who!r} has no session now")


def _configured(config: str | os.PathLike[str] | Mapping[str, object] | None) -> Config:
    sources: list[Mapping[str, Setting]] = [
        {name: Setting(value, "Server's defaults") for name, value in DEFAULTS.items()}
    ]
    if isinstance(config, Mapping):
        if (odd := next((name for name in config if not isinstance(name, str)), None)) is not None:
            raise ValueError(f"config has the key {odd!r}; the keys are those of zoo.cfg")
        said = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
        sources.append({name: Setting(value, "Server's config") for name, value in said.items()})
    elif isinstance(config, str | os.PathLike):
        sources.append(configuration.read_file(str(Path(config))))
    elif config is not None:
        raise ValueError(f"config is {config!r}; it must be a zoo.cfg's path or a dict of its keys")
    made = configuration.build(*sources, strict=True)
    if made.secure_port is not None:
        raise ValueError("secureClientPort is for the daemon; this server does not speak TLS")
    return made


def _forked() -> None:
    """In a forked child: let go of the parent's sockets, so that they close when the parent closes them.

    The descriptors are pointed elsewhere, not closed: the objects that own them still exist here.
    """
    servers = list(_running)
    if not servers:
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for server in servers:
        for number in server._listener.descriptors():  # noqa: SLF001 - a part of Server
            os.dup2(nowhere, number)
    os.close(nowhere)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
