"""An embedded ZooKeeper server: in its own thread for blocking code, in the running event loop for asyncio code.

This is the public interface. The other modules implement it: :mod:`.endpoint` the calls that a server shares with a
proxy, and :mod:`.state_calls` the calls that it shares with a cluster.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from random import Random, SystemRandom
from typing import TYPE_CHECKING, TypedDict

from ..server.app import assemble, new_engine
from ..server.core.engine import Engine
from ..server.net.daemon import Daemon
from .endpoint import ConsoleView
from .frames.core_executor import make_queue
from .frames.interceptor import Interceptor
from .run import arguments, clients
from .signatures import ClockName, CompatName, Who
from .state import changes
from .state.clock import advance
from .state.history import TreeHistory, TreeSnapshot
from .state_calls import StateCalls

if TYPE_CHECKING:
    from ..server.storage.opening import OpenDirectory


class ServerOptions(TypedDict, total=False):
    """The keyword arguments of :class:`Server`, to annotate functions that pass them to a server."""

    clock: ClockName
    seed: int | None
    data_dir: str | os.PathLike[str] | None
    initial_data: str | os.PathLike[str] | None
    tls: bool
    admin: bool
    sasl_users: Mapping[str, str] | None
    config: str | os.PathLike[str] | Mapping[str, object] | None
    compat: CompatName | None
    initial_zxid: int | None


class Server(StateCalls):
    """A ZooKeeper server for tests, which runs in the process of the test.

    ``with Server() as server:`` serves in its own thread, ``async with Server() as server:`` in the running event loop.
    You can call all methods from any thread, in blocking and in asyncio code. A call has taken effect when it returns.
    The methods ``wait_for...`` block. In asyncio code, await ``until...`` instead. All methods except ``start`` and
    ``stop`` raise a RuntimeError while the server is not running.

    Args:
        host: The address to listen on.
        port: The port, or 0 for a free port. The server keeps its port when it is stopped and started again.
        clock: ``"real"``, or ``"manual"`` for a clock that only :meth:`advance` moves.
        seed: The seed of all randomness, by default a random seed. The same seed leads to the same faults, and with a
            manual clock to the same session ids and times.
        data_dir: The data directory, which is created if it is missing. The server starts with its content, and all
            changes outlive the server and this process. Only one server can use it at a time. None: in memory only.
        initial_data: A data directory with the initial tree, sessions and zxid, for a server without its own data
            directory. Nothing is written to it.
        tls: Speak TLS on the port, with a new certificate for this server. Clients must trust the authority in
            ``tls_ca``. This needs ``cryptography``.
        admin: Serve the console and the control API at ``admin_url``. This needs ``h11``.
        sasl_users: Passwords of the users that can log in with SASL DIGEST-MD5, by user name. None disables SASL.
        config: The path of a zoo.cfg, or a dict of its keys and values.
        compat: The release whose behaviour to reproduce, ``"3.8"`` or ``"3.9"``. None for the newest.
        initial_zxid: The last zxid of a server that this one replaces. By default zxids start at 0 with a seed or a
            manual clock. Otherwise they start above the zxids of every server that was started before.

    Attributes:
        seed: The given or random seed.
        tls_ca: With ``tls=True``, the PEM file of the authority that clients must trust. Otherwise None.

    Raises:
        ValueError: An argument is invalid. At the start: the files of a data directory are invalid.
        TypeError: *tls* or *admin* is not a bool.
    """

    _history: TreeHistory

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        clock: ClockName = "real",
        seed: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        initial_data: str | os.PathLike[str] | None = None,
        tls: bool = False,
        admin: bool = False,
        sasl_users: Mapping[str, str] | None = None,
        config: str | os.PathLike[str] | Mapping[str, object] | None = None,
        compat: CompatName | None = None,
        initial_zxid: int | None = None,
    ) -> None:
        arguments.check_numbers(seed, initial_zxid)
        arguments.check_directories(data_dir, initial_data)
        arguments.check_users(sasl_users)
        arguments.check_flags(tls=tls, admin=admin)
        super().__init__(
            host,
            port,
            SystemRandom().getrandbits(32) if seed is None else seed,
            arguments.make_clock(clock, seed),
            arguments.read_config(config, compat, exact=clock == "manual"),
        )
        self._data_dir, self._initial_data = data_dir, initial_data
        self._data: OpenDirectory | None = None
        self._runner.after_start = self._open_admin
        self._runner.before_stop, self._runner.after_stop = self._save, self._release
        self._serve_admin(admin)
        if tls:
            self._use_tls()
        if sasl_users is not None:
            self._config.settings.sasl_users = dict(sasl_users)
        repeatable = seed is not None or clock == "manual"
        self._has_unsaved_state = False
        self._initial_zxid = 0 if initial_zxid is None and repeatable else initial_zxid
        self._last_engine: Engine | None = None  # the engine of the latest start, for the next zxid

    def _assemble(self) -> Daemon:
        config, clock, data = self._config, self._clock, self._open()
        engine = new_engine(config, clock, Random(self.seed), initial_zxid=self._initial_zxid, data=data)
        daemon = assemble(
            config,
            engine,
            clock=clock,
            data=data,
            connection_factory=lambda connection, resume: make_queue(self._interceptor, connection, resume),
            turn=self._place.turn,
        )
        before = self._last_engine
        if data is None and self._initial_zxid is None and before is not None:
            engine.zxid = max(engine.zxid, before.zxid + 1)  # both starts may be in the same millisecond
        self._last_engine = engine
        self._intercept(Interceptor(clock.call_later, lambda: engine.now / 1000))
        self._interceptor.filter_events_of(engine)
        if self._initial_data is not None:
            from ..server.storage.recovery import recover

            recover(engine, os.fspath(self._initial_data))
        self._history = TreeHistory(engine)  # reset() returns to this state
        return daemon

    @property
    def daemon(self) -> Daemon:
        """The daemon in the server's event loop."""
        return self._runner.daemon

    def console_views(self) -> list[ConsoleView]:
        """Return the servers that the console shows: only this server."""
        return [ConsoleView(self.daemon, self.hosts)]

    @property
    def _engine(self) -> Engine:
        return self._runner.daemon.engine

    # --- the data directory ---

    def _open(self) -> OpenDirectory | None:
        """Lock and return the data directory. Return None for a server in memory."""
        if self._data_dir is None:
            return None
        from ..server.storage.opening import OpenDirectory
        from ..server.storage.settings import StorageSettings

        self._release()  # a failed start may have left the directory open
        # Acknowledged changes outlive the process, but not a loss of power: a test should not wait for the disk.
        self._data = OpenDirectory(StorageSettings(os.fspath(self._data_dir), fsync="never", preallocated=0))
        return self._data

    def _store_state(self) -> None:
        """Start to write the whole state to disk, after a change that was not made by a transaction."""
        store = self.daemon.connections.log
        if store is not None:
            self._engine.take_zxid()  # the snapshot needs a later zxid than all logged transactions
            self._has_unsaved_state = True
            store.snapshot_soon()

    async def _save(self) -> None:
        await self._close_admin()
        store = self.daemon.connections.log
        if store is not None and self._has_unsaved_state:
            await store.snapshot_written()
        self._has_unsaved_state = False

    def _release(self) -> None:
        data, self._data = self._data, None
        if data is not None:
            data.release()

    # --- sessions and connections ---

    def expire(self, who: Who) -> None:
        """Expire sessions, and close their connections.

        When this returns, the ephemeral nodes of the sessions are deleted, and the watches of other clients have fired.

        Args:
            who: A KazooClient, a zoolet Client, a session id, or ``"all"``.

        Raises:
            ValueError: *who* is none of these.
            LookupError: The session is not alive on this server, or the client has none.
        """
        self._runner.call(lambda: clients.expire(self._interceptor, self._engine, who))

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off. All clients are disconnected, and clients that accept the mode reconnect.

        Raises:
            TypeError: *on* is not a bool.
        """
        arguments.check_flags(on=on)
        self._runner.call(lambda: self._engine.set_read_only(on))

    def restart(self, *, keep: bool = True, downtime: float = 0.0) -> None:
        """Restart on the same port.

        All connections are closed, and their watches and identities are lost. Faults and pauses stay.

        Args:
            keep: Keep the tree and the sessions, as a server with a data directory does. All session timeouts start
                again. If false, the server starts empty, and old sessions are rejected as expired.
            downtime: Seconds of the server's clock until it accepts connections again. This call does not wait.

        Raises:
            ValueError: *downtime* is negative.
        """
        arguments.check_seconds("downtime", downtime)

        def restart() -> None:
            self._end_downtime()
            clients.drop(self.daemon, set(), all_connections=True)
            if not keep:
                self._clear()
            changes.extend_sessions(self._engine, downtime)
            self._set_refusing(down=downtime > 0)
            if downtime:
                self._downtime = self._interceptor.call_later(downtime, self._end_downtime_if_running)

        self._runner.call(restart)

    def _end_downtime_if_running(self) -> None:
        """End a downtime, unless the server was stopped."""
        if self._runner.runs_here():
            self._runner.call(lambda: self._set_refusing(down=False))

    # --- time and state ---

    def advance(self, seconds: float) -> None:
        """Advance a manual clock. Sessions, TTL nodes and containers expire, each at its exact time on the way.

        Args:
            seconds: Number of seconds, 0 or more.

        Raises:
            ValueError: *seconds* is negative, or the clock is not manual.
        """
        arguments.check_seconds("advance: seconds", seconds)
        self._runner.call(lambda: advance(self._engine, self._clock, seconds))

    def snapshot(self) -> TreeSnapshot:
        """Return a snapshot of the tree, in constant time."""
        return self._runner.call(lambda: self._history.snapshot())

    def restore(self, snapshot: TreeSnapshot) -> None:
        """Restore the tree of a snapshot, in time proportional to the changes since.

        Sessions, watches, the clock and, without a data directory, the zxid stay the same, and no watch fires. The
        ephemeral nodes of sessions that are no longer alive are not restored.

        Raises:
            ValueError: The snapshot belongs to a different server, or to an earlier start of this one.
        """
        if not isinstance(snapshot, TreeSnapshot):
            raise ValueError(f"snapshot must be a result of snapshot(), not {snapshot!r}")

        def restore() -> None:
            self._history.restore_to(snapshot)
            self._store_state()

        self._runner.call(restore)

    def reset(self) -> None:
        """Remove all sessions, connections, faults, pauses and nodes, accept connections, and end read-only mode. The
        clock, zxids and session ids continue.

        The server moves to a new port, so that forgotten clients cannot reconnect. A port that you chose stays the
        same: there, the server rejects the sessions of old clients as expired.
        """

        def reset() -> None:
            self._interceptor.reset()
            self._end_downtime()
            self._clock.skew_ms = 0
            self._engine.set_read_only(False)
            clients.drop(self.daemon, set(), all_connections=True)
            self._clear()
            self._set_refusing(by_test=False, down=False)
            self._runner.move()
            self._faults_made = 0

        self._runner.call(reset)

    def _clear(self) -> None:
        """Remove all sessions, and restore the tree of the latest start."""
        for session in list(self._engine.sessions.alive.values()):
            self._engine.close_session(session)
        self._history.restore_to(self._history.start)
        self._engine.quota.enforced = self._engine.settings.enforce_quota
        self._owner_session = None
        self._store_state()
