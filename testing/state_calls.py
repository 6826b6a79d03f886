"""The calls of servers whose state a test reads and changes: a server, a cluster, and each member of a cluster.

Subclasses define the differences: which engine shows the state, and which one a test changes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from ..server.config import ServerConfig
from ..server.core.client_connection import Session
from ..server.core.engine import Engine
from ..server.net.clock import Clock
from .endpoint import Endpoint
from .run import arguments, clients
from .run.named_waits import NamedWaits
from .state import changes, report, views
from .state.populate import populate
from .state.report import Sections

OWNER_TIMEOUT_MS: Final = 0x7FFFFFFF
"""Timeout, in milliseconds, of the session that owns the nodes of create(ephemeral=True): 24 days."""


class StateCalls(Endpoint, NamedWaits):
    """The base class of one or several servers that share one state.

    Args:
        host: The address to listen on.
        port: The port, or 0 for a free port.
        seed: The seed of all randomness.
        clock: The clock.
        config: The configuration.

    Attributes:
        tls_ca: PEM file of the certificate authority that clients must trust, or None if TLS is off.
    """

    def __init__(self, host: str, port: int, seed: int, clock: Clock, config: ServerConfig) -> None:
        super().__init__(host, port, seed, clock)
        self.tls_ca: str | None = None
        self._host = host
        self._config = config
        self._control: Any = None
        self._owner_session: Session | None = None  # session that owns the nodes of create(ephemeral=True)

    def supports_chaos(self, kind: str) -> bool:
        """Return whether this endpoint supports a kind of chaos. Only ``"expire_sessions"`` is supported."""
        return kind == "expire_sessions"

    @property
    @abstractmethod
    def _engine(self) -> Engine:
        """The engine whose state the views show."""

    @property
    def _writer(self) -> Engine:
        """The engine that a test changes."""
        return self._engine

    def _engines(self) -> list[Engine]:
        """Return all engines that may hold leaks of clients."""
        return [self._engine]

    def _use_tls(self) -> None:
        from .run.own_tls import make_tls  # the import is slow

        self._runner.context, self.tls_ca = make_tls(self)

    # --- the console and the control API ---

    def _serve_admin(self, on: bool) -> None:
        if on and find_spec("h11") is None:
            raise ValueError("admin=True requires h11; install zoolet with the extra 'admin'")
        self._serves_admin = on

    @property
    def admin_url(self) -> str | None:
        """The URL of the console. The control API is at the path ``commands`` below it.

        None if ``admin`` is false, and while the server is not running.
        """
        return f"{self._control.url}/" if self._control is not None else None

    async def _open_admin(self) -> None:
        if self._serves_admin:
            from .control.control import Control
            from .control.http import ControlServer

            self._control = await ControlServer(Control(self), host=self._host).__aenter__()

    async def _close_admin(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            await control.__aexit__()

    # --- sessions and time ---

    def _session_ids(self, who: object) -> set[int]:
        return {session.id for session in clients.matching_sessions(self._engine, who)}

    def skew_clock(self, seconds: float) -> None:
        """Set the wall clock ahead, or back by a negative number of seconds, until :meth:`heal`.

        The change affects the times of nodes and the expiry of TTL nodes. It does not affect sessions, which expire by
        a clock that cannot be set.

        Args:
            seconds: Difference from the original time in seconds, which replaces an earlier difference.

        Raises:
            ValueError: *seconds* is not a number, or is beyond a billion in either direction.
        """
        arguments.check_seconds("skew_clock: seconds", seconds, -arguments.MAX_SECONDS)

        def skew() -> None:
            self._clock.skew_ms = round(seconds * 1000)
            for daemon in self._daemons():
                daemon.connections.set_time()

        self._runner.call(skew)

    def heal(self) -> None:
        """End all faults, pauses and clock skew, and accept connections.

        Held requests are executed now, and withheld events are lost.
        """
        super().heal()
        self.skew_clock(0)

    # --- state ---

    def populate(self, nodes: Mapping[str, Any]) -> None:
        """Create nodes: ``{"/app": b"x", "/app/workers": {"w1": "a", "w2": "b"}}``.

        Args:
            nodes: The nodes by path or name. A value is bytes, text, None, a :class:`~zoolet.testing.Znode`, or
                a dict of the nodes below. Missing parents are created with empty data.

        Raises:
            ValueError: A path or a value is invalid, or a path occurs twice. No node is created.
        """
        self._runner.call(lambda: populate(self._writer, nodes))

    def create(
        self, path: str, data: bytes | str | None = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node, as another client would: watches fire, but no permission is needed.

        Missing parents are created.

        Args:
            path: The path of the node.
            data: Data of the node.
            ephemeral: Create an ephemeral node of a session that no client uses, for example to simulate another
                holder of a lock. The session is the ``ephemeral_owner`` of the node in :meth:`tree`.
                ``expire(session)`` and ``reset()`` end it. The node is not reported as a leak.
            sequential: Append a number to the path.

        Returns:
            The path of the node.

        Raises:
            ValueError: The path or the data is invalid.
            NodeExistsError: The node exists already.
            NoChildrenForEphemeralsError: The parent is ephemeral.
        """

        def create() -> str:
            engine = self._writer
            if ephemeral and (self._owner_session is None or self._owner_session.id not in engine.sessions.alive):
                self._owner_session = engine.open_session(OWNER_TIMEOUT_MS)
            owner = self._owner_session.id if ephemeral and self._owner_session is not None else 0
            return changes.create(engine, path, data, owner, sequential=sequential)

        return self._runner.call(create)

    def set(self, path: str, data: bytes | str | None) -> None:
        """Set a node's data, as another client would: its version grows, and watches fire. No permission is needed.

        Raises:
            ValueError: The data is neither bytes, text nor None.
            NoNodeError: The node does not exist. Use :meth:`populate` to create nodes.
        """
        self._runner.call(lambda: changes.set_data(self._writer, path, data))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a node, as another client would: watches fire. No permission is needed.

        Args:
            path: The node.
            recursive: Whether to delete the nodes below it as well.

        Raises:
            NoNodeError: The node does not exist.
            NotEmptyError: The node has children, and *recursive* is false.
            BadArgumentsError: The node is one that every server has, such as ``/zookeeper``.
        """
        self._runner.call(lambda: changes.delete(self._writer, path, recursive=recursive))

    def set_quota(self, path: str, *, count: int | None = None, bytes: int | None = None, hard: bool = True) -> None:
        """Limit the number of nodes and bytes at and below a node. This replaces an earlier quota of the node.

        Args:
            path: The node, which need not exist yet.
            count: Maximum number of nodes, including the node itself. None for no limit.
            bytes: Maximum number of bytes of data. None for no limit.
            hard: Refuse writes that exceed the quota with a QuotaExceededError, as with ``enforceQuota``. Otherwise
                such writes are only logged.

        Raises:
            ValueError: The path or a limit is invalid, or both limits are missing.
        """
        self._runner.call(lambda: changes.set_quota(self._writer, path, count, bytes, hard=hard))

    # --- views ---

    def tree(self, path: str = "/") -> Mapping[str, views.NodeView]:
        """Return a node and all nodes below it, by path.

        The root and ``/zookeeper`` are included only if *path* names them.
        """
        return self._runner.call(lambda: views.tree(self._engine, path))

    def sessions(self) -> Mapping[int, views.SessionView]:
        """Return the sessions that are alive, by id."""
        return self._runner.call(self._session_views)

    def _session_views(self) -> Mapping[int, views.SessionView]:
        return views.sessions(self._engine)

    def watches(self) -> tuple[views.WatchView, ...]:
        """Return all watches."""
        return self._runner.call(lambda: tuple(watch for each in self._engines() for watch in views.watches(each)))

    def zxid(self) -> int:
        """Return the zxid of the last transaction."""
        return self._runner.call(lambda: self._engine.zxid)

    def report(self) -> str:
        """Return the state as human-readable text, which is shown when a test fails."""
        return report.as_text(self._shown_seed, self._runner.call(self._sections))

    def _sections(self) -> Sections:
        return report.server_report(self._engine, self._interceptor, self._session_views())

    def leaks(self) -> list[str]:
        """Return a line for each session, ephemeral node, lock contender or watch that clients have left."""
        return self._runner.call(
            lambda: [*dict.fromkeys(leak for each in self._engines() for leak in report.leaks(each))]
        )

    # --- for the named waits ---

    def _node_at(self, path: str) -> views.NodeView | None:
        return self._runner.call(lambda: views.node_at(self._engine, path))

    def _sessions_of_clients(self) -> Mapping[int, views.SessionView]:
        others = 0 if self._owner_session is None else self._owner_session.id
        return {id: view for id, view in self.sessions().items() if id != others}
