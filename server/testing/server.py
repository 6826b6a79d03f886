"""An embedded ZooKeeper server: in its own thread for blocking code, in the running event loop for asyncio code.

This is the public interface; the other modules implement it. What a server shares with a proxy is in :mod:`.endpoint`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any, ClassVar, Final

from zoolet.server.app import assemble
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.turns import TURN
from zoolet.server.testing.endpoint import Endpoint
from zoolet.server.testing.frames.core_executor import CoreExecutor
from zoolet.server.testing.frames.frame_queue import Executor, FrameQueue
from zoolet.server.testing.frames.interceptor import Interceptor
from zoolet.server.testing.run import arguments, clients
from zoolet.server.testing.run.named_waits import NamedWaits
from zoolet.server.testing.signatures import ClockName, CompatName, Timer, Who
from zoolet.server.testing.state import changes, report, views
from zoolet.server.testing.state.clock import ManualClock, SkewedClock, advance
from zoolet.server.testing.state.history import History, Snapshot
from zoolet.server.testing.state.populate import populate

if TYPE_CHECKING:
    from zoolet.server.storage.opening import OpenDirectory

OTHERS_TIMEOUT: Final = 0x7FFFFFFF
"""Milliseconds of the session of what create(ephemeral=True) makes: 24 days."""


class Server(Endpoint, NamedWaits):
    """A ZooKeeper for tests.

    ``with Server() as server:`` serves in its own thread, ``async with Server() as server:`` in the running event loop.
    All methods are plain calls that have taken effect when they return, in blocking and in asyncio code and from any
    thread; the methods ``wait_for...`` block, and ``until...`` are their twins to await. All methods except
    ``start`` and ``stop`` raise a RuntimeError while the server does not run.

    Args:
        host: The address to listen on.
        port: The port; 0 for a free one, which the server keeps when it is stopped and started again.
        clock: ``"real"``, or ``"manual"`` for a clock that only :meth:`advance` moves.
        seed: The seed of all randomness; by default a random one. The same seed leads to the same faults, and with a
            manual clock to the same session ids and times.
        data_dir: The data directory, which is created if it is missing: the server begins with what it has, and what
            it changes outlives the server and this process. One server uses it at a time. None for memory.
        begin_from: A data directory with whose tree, sessions and zxid the server begins, without one of its own.
            Nothing is written to it.
        tls: Speak TLS on the port, with a certificate that is made for this server (this needs ``cryptography``);
            clients trust the authority in :attr:`tls_ca`.
        admin: Serve the console and the control API, at :attr:`admin_url` (this needs ``h11``).
        sasl_users: The passwords of those who may log in with SASL DIGEST-MD5, by their names; None for no SASL.
        config: A zoo.cfg's path, or a dict of its keys and values.
        compat: The release whose behaviour to reproduce, ``"3.8"`` or ``"3.9"``; None for the newest.
        initial_zxid: The last zxid of a server that this one replaces. By default zxids begin at 0 with a seed or a
            manual clock, and otherwise above those of every server that was started before.

    Attributes:
        seed: The seed, given or random.
        tls_ca: With ``tls=True``, the file of the authority that clients trust, in PEM; otherwise None.

    Raises:
        ValueError: An argument is invalid; at the start also that the files of a directory are.
    """

    turn: ClassVar[float] = TURN
    """Seconds for which one connection is served before the others get their turn."""

    _history: History

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: ClockName = "real",
        seed: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        begin_from: str | os.PathLike[str] | None = None,
        tls: bool = False,
        admin: bool = False,
        sasl_users: Mapping[str, str] | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        compat: CompatName | None = None,
        initial_zxid: int | None = None,
    ) -> None:
        arguments.check_numbers(seed, initial_zxid)
        arguments.check_directories(data_dir, begin_from)
        arguments.check_users(sasl_users)
        super().__init__(host, port, SystemRandom().getrandbits(32) if seed is None else seed)
        self._data_dir, self._begin_from = data_dir, begin_from
        self._data: OpenDirectory | None = None
        self._runner.before_stop, self._runner.after_stop = self._save, self._release
        self._host = host
        self._control: Any = None
        if admin:
            if find_spec("h11") is None:
                raise ValueError("admin=True needs h11: pip install h11")
            self._runner.after_start = self._open_admin
        self.tls_ca: str | None = None
        if tls:
            self._use_tls()
        self._clock = SkewedClock(arguments.make_clock(clock, seed))
        self._config = arguments.read_config(config, compat)
        if sasl_users is not None:
            self._config.settings.sasl_users = dict(sasl_users)
        self._config.settings.exact_deadlines = clock == "manual"
        repeatable = seed is not None or clock == "manual"
        self._downtime: Timer | None = None
        self._unsaved = False
        self._others: Session | None = None  # that of create(ephemeral=True)
        self._initial_zxid = 0 if initial_zxid is None and repeatable else initial_zxid

    def _assemble(self) -> Daemon:
        daemon = assemble(
            self._config,
            clock=self._clock,
            rng=Random(self.seed),
            initial_zxid=self._initial_zxid,
            connection_factory=self._frame_queue,
            turn=self.turn,
            data=self._open(),
        )
        if self._data is None and self._initial_zxid is None and (before := self._runner.last_engine) is not None:
            daemon.engine.zxid = max(daemon.engine.zxid, before.zxid + 1)  # it was started in this very millisecond
        engine, loop, clock = daemon.engine, asyncio.get_running_loop(), self._clock.inner
        call_later = clock.call_later if isinstance(clock, ManualClock) else loop.call_later
        self._intercept(Interceptor(call_later, lambda: engine.now / 1000), partial(self._filter_events, engine))
        if self._begin_from is not None:
            from zoolet.server.storage.recovery import recover

            recover(engine, os.fspath(self._begin_from))
        self._history = History(engine)  # reset() returns to this state
        return daemon

    def _frame_queue(self, connection: ServerConnection, resume: Callable[[], None]) -> FrameQueue:
        settings = connection.engine.settings
        return FrameQueue(
            self._interceptor,
            connection.client,
            resume,
            lambda queue: self._executor(queue, connection),
            max_frame=settings.max_frame,
            max_output=settings.max_output_per_turn,
        )

    def _executor(self, queue: FrameQueue, connection: ServerConnection) -> Executor:
        return CoreExecutor(queue, connection)

    # --- files ---

    def _open(self) -> OpenDirectory | None:
        """Return the data directory, locked; None for a server in memory."""
        if self._data_dir is None:
            return None
        from zoolet.server.storage.opening import OpenDirectory
        from zoolet.server.storage.settings import StorageSettings

        self._release()  # if a start has failed
        # What is acknowledged outlives the process; a test does not wait for the disk.
        self._data = OpenDirectory(StorageSettings(os.fspath(self._data_dir), fsync="never", preallocated=0))
        return self._data

    def _store_again(self) -> None:
        """Write all of the state, because it was changed otherwise than by transactions."""
        store = self._runner.daemon.connections.log
        if store is not None:
            self._engine.take_zxid()  # later than all that was logged
            self._unsaved = True
            store.snapshot_soon()

    async def _save(self) -> None:
        await self._close_admin()
        store = self._runner.daemon.connections.log
        if store is not None and self._unsaved:
            await store.snapshot_written()
        self._unsaved = False

    def _release(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            data.release()

    def _use_tls(self) -> None:
        from zoolet.server.net import tls
        from zoolet.server.net.tls_settings import TlsSettings

        try:
            from zoolet.server.testing.run.certificates import Authority
        except ModuleNotFoundError as error:
            raise ValueError(f"tls=True needs {error.name}: pip install cryptography") from None
        folder = tempfile.mkdtemp(prefix="zoolet-tls-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        authority = Authority(Path(folder))
        self.tls_ca = str(authority.path)
        self._runner.context = tls.context(TlsSettings(str(authority.issue("server"))))

    def _filter_events(self, engine: Engine, active: bool) -> None:
        interceptor = self._interceptor

        def is_withheld(client: ClientConnection, path: str, event: int, frame: bytes) -> bool:
            def send() -> None:
                if not client.closing:
                    client.outbox.append(frame)
                    engine.pending_output[client] = None

            session_id = client.session_id
            return interceptor.withhold(session_id, (event, path), send)

        engine.watches.event_filter = is_withheld if active else None

    @property
    def _engine(self) -> Engine:
        """The engine whose state is shown."""
        return self._runner.daemon.engine

    @property
    def _writer(self) -> Engine:
        """The engine that a test changes."""
        return self._engine

    @property
    def admin_url(self) -> str | None:
        """The URL of the console, and with ``commands`` behind it of the control API; None without ``admin=True``, and
        while the server does not run.
        """
        return f"{self._control.url}/" if self._control is not None else None

    @property
    def daemon(self) -> Daemon:
        """The daemon in the server's event loop, for the console."""
        return self._runner.daemon

    async def _open_admin(self) -> None:
        opening = import_module("zoolet.server.testing.control.opening")  # by name: it imports this module
        self._control = await opening.control_server(self, self._host).__aenter__()

    async def _close_admin(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.__aexit__()

    # --- sessions and connections ---

    def expire(self, who: Who) -> None:
        """Expire sessions: when this returns, their ephemeral nodes are deleted, the watches of other clients have
        fired, and their connections are closed.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not alive on this server, or the client has none.
        """
        self._runner.call(lambda: clients.expire(self._interceptor, self._engine, who))

    def _sessions_of(self, who: object) -> set[int]:
        return {session.id for session in clients.sessions_of(self._engine, who)}

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off: all clients are disconnected, and those that accept the mode reconnect."""
        self._runner.call(lambda: self._engine.set_read_only(on))

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Stop serving and begin again on the same port: all connections are closed, and with them all watches and
        identities end. Faults and pauses stay.

        Args:
            keep: Keep tree and sessions, as a server with a data directory does; sessions get their whole timeout
                again. Otherwise the server is empty, and to clients it answers that their sessions have expired.
            downtime: Seconds of the server's clock for which it refuses connections. This call does not wait for that.

        Raises:
            ValueError: *downtime* is negative.
        """
        arguments.check_seconds(f"restart(downtime={downtime!r})", downtime)

        def restart() -> None:
            self._end_downtime()
            clients.drop(self._runner.daemon, set(), everybody=True)
            if not keep:
                self._clear()
            changes.extend_sessions(self._engine, downtime)
            self._set_refusing(down=downtime > 0)
            if downtime:
                self._downtime = self._interceptor.call_later(downtime, self._serve_again)

        self._runner.call(restart)

    def _serve_again(self) -> None:
        """End a downtime, unless the server was stopped."""
        if self._runner.is_ours():
            self._runner.call(lambda: self._set_refusing(down=False))

    def _end_downtime(self) -> None:
        """Have nothing come back later: it is there, or another downtime begins."""
        if self._downtime is not None:
            self._downtime.cancel()
            self._downtime = None

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Advance a manual clock: sessions, TTL nodes and containers that are due on the way expire, each in time.

        Args:
            seconds: By how much; 0 or more.

        Raises:
            ValueError: *seconds* is negative, or the clock is the real one.
        """
        arguments.check_seconds(f"advance({seconds!r})", seconds)
        self._runner.call(lambda: advance(self._engine, self._clock, seconds))

    def skew_clock(self, seconds: float) -> None:
        """Set the wall clock ahead of what it was at first, or with a negative number back, until :meth:`heal`.

        The times of nodes show it, and TTL nodes count by it. Sessions do not: they expire by a clock that cannot be
        set.

        Raises:
            ValueError: *seconds* is not a number.
        """
        arguments.check_seconds(f"skew_clock({seconds!r})", seconds, -arguments.MAX_SECONDS)

        def skew() -> None:
            self._clock.skew_ms = round(seconds * 1000)
            self._runner.daemon.connections.set_time()

        self._runner.call(skew)

    def heal(self) -> None:
        """End all faults and pauses, accept connections, and set the clock right: requests that were held are executed
        now, and events that were withheld are lost.
        """
        super().heal()
        self._end_downtime()
        self.skew_clock(0)

    # --- state ---

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Create nodes: ``{"/app": b"x", "/app/workers": {"w1": "a", "w2": "b"}}``.

        Args:
            nodes: The nodes by path or name. A value is bytes, text, None, a :class:`~zoolet.server.testing.Znode`, or
                a dict of the nodes below. Missing parents are created with empty data.

        Raises:
            ValueError: A path or a value is invalid; no node is created then.
        """
        self._runner.call(lambda: populate(self._writer, nodes))

    def create(
        self, path: str, data: bytes | str | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node, as another client would: watches fire, no permission is needed. Missing parents are created.

        Args:
            path: The node; the server appends a number to that of a sequential one.
            data: What it holds.
            ephemeral: Whose session is somebody else's: "another one holds it". ``expire(session)`` ends the session,
                which is the ``ephemeral_owner`` of the node in :meth:`tree`; :meth:`reset` does, too. It is no leak.
            sequential: Append a number.

        Returns:
            The path of the node.

        Raises:
            ValueError: The path or the data is invalid.
            NodeExistsError: There is such a node.
            NoChildrenForEphemeralsError: The parent is ephemeral.
        """

        def create() -> str:
            engine = self._writer
            if ephemeral and (self._others is None or self._others.id not in engine.sessions.alive):
                self._others = engine.open_session(OTHERS_TIMEOUT)
            owner = self._others.id if ephemeral and self._others is not None else 0
            return changes.create(engine, path, data, owner, sequential=sequential)

        return self._runner.call(create)

    def set(self, path: str, data: bytes | str | None) -> None:
        """Set a node's data, as another client would: its version grows, and watches fire. No permission is needed.

        Raises:
            ValueError: The data is neither bytes, text nor None.
            NoNodeError: There is no such node; :meth:`populate` creates nodes.
        """
        self._runner.call(lambda: changes.set_data(self._writer, path, data))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a node, as another client would: watches fire. No permission is needed.

        Args:
            path: The node.
            recursive: Whether the nodes below it are deleted, too.

        Raises:
            NoNodeError: There is no such node.
            NotEmptyError: It has children, and *recursive* is false.
            BadArgumentsError: It is one of the nodes that every server has.
        """
        self._runner.call(lambda: changes.delete(self._writer, path, recursive=recursive))

    def set_quota(self, path: str, *, count: int | None = None, bytes: int | None = None, hard: bool = True) -> None:
        """Limit how many nodes and bytes may be at and below a node; the last quota that was set there is replaced.

        Args:
            path: The node; it need not exist yet.
            count: The most nodes, itself included; None for no limit.
            bytes: The most bytes of data; None for no limit.
            hard: Refuse writes that exceed it, with a QuotaExceededError, as with ``enforceQuota``; otherwise a write
                that exceeds it is only logged.

        Raises:
            ValueError: The path, a limit or both limits are missing or invalid.
        """
        self._runner.call(lambda: changes.set_quota(self._writer, path, count, bytes, hard=hard))

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the tree, in constant time."""
        return self._runner.call(lambda: self._history.snapshot())

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the tree of a snapshot, in time proportional to the changes since.

        Sessions, watches, the zxid and the clock are not changed, and no watch fires. Ephemeral nodes of sessions that
        have ended since are not restored.

        Raises:
            ValueError: The snapshot is of another server.
        """
        if not isinstance(snapshot, Snapshot):
            raise ValueError(f"restore({snapshot!r}): this is not a snapshot; snapshot() returns one")

        def restore() -> None:
            self._history.restore_to(snapshot)
            self._store_again()

        self._runner.call(restore)

    def reset(self) -> None:
        """Remove all sessions, connections, faults, pauses and nodes, accept connections, and end read-only mode. The
        clock, zxids and session ids continue.

        Unless the port was chosen, it changes: a client from before, which somebody has forgotten to stop, never gets
        in again. With a chosen port it is answered that its session has expired.
        """

        def reset() -> None:
            self._interceptor.reset()
            self._end_downtime()
            self._clock.skew_ms = 0
            self._engine.set_read_only(False)
            self._engine.quota.enforced = self._engine.settings.enforce_quota
            clients.drop(self._runner.daemon, set(), everybody=True)
            self._clear()
            self._set_refusing(by_test=False, down=False)
            self._runner.move()
            self._faults_made = 0

        self._runner.call(reset)

    def _clear(self) -> None:
        """Remove all sessions and nodes."""
        for session in list(self._engine.sessions.alive.values()):
            self._engine.close_session(session)
        self._history.restore_to(self._history.start)
        self._others = None
        self._store_again()

    # --- views ---

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path; the root and ``/zookeeper`` only if *path* names them."""
        return self._runner.call(lambda: views.tree(self._engine, path))

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, by id."""
        return self._runner.call(lambda: views.sessions(self._engine))

    def watches(self) -> tuple[views.WatchView, ...]:
        """Return all watches."""
        return self._runner.call(lambda: views.watches(self._engine))

    def zxid(self) -> int:
        """Return the zxid of the last transaction."""
        return self._runner.call(lambda: self._engine.zxid)

    def report(self) -> str:
        """Return the state as text, for people: what a failing test shows of it."""
        return report.as_text(
            self._shown_seed, self._runner.call(lambda: report.of_server(self._engine, self._interceptor))
        )

    def leaks(self) -> list[str]:
        """Return a line for each thing that clients have left: a session, an ephemeral node, a lock contender, a
        watch.
        """
        return self._runner.call(lambda: report.leaks(self._engine))

    # --- for the named waits ---

    def _node_at(self, path: str) -> views.NodeView | None:
        return self._runner.call(lambda: views.node_at(self._engine, path))

    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        others = 0 if self._others is None else self._others.id
        return {id: view for id, view in self.sessions().items() if id != others}
