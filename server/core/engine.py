"""The state machine: it owns the tree, the sessions, the watches and the zxid, and nothing else has state.

Given the same calls with the same times it does the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from zoolet.server.core import (
    containers,
    ops,
)
from zoolet.server.core.acls import Acls
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.expiry import Expiry
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.ops.dispatch import APPLIES, build_dispatch, zxid_on_decode_error
from zoolet.server.core.quota import Quota
from zoolet.server.core.sessions import Session, Sessions, first_session_id
from zoolet.server.core.settings import Settings
from zoolet.server.core.throttle import ConnectionThrottle
from zoolet.server.core.tree import CONFIG, Tree
from zoolet.server.core.warnings import Warnings
from zoolet.server.core.watches import Watches

if TYPE_CHECKING:
    from zoolet.server.core.ops.dispatch import Answers


class Engine:
    """A ZooKeeper server without a clock and without sockets.

    There are two times, for they may run apart: ``now``, milliseconds since the epoch, stands in Stats;
    ``monotonic_ms``, milliseconds on a clock that is never set, ends sessions. Whoever drives the engine calls
    :meth:`set_time` before anything else.

    Args:
        settings: What it was told to be.
        now: Milliseconds since the epoch.
        uptime: Milliseconds on a steady clock.
        server_id: The top byte of session ids, 0 to 127.
        random: Where nonces and the key of the session passwords come from: a ``SystemRandom`` unless the run has to be
            repeatable.
        log: Receives warnings for the operator, in ``%`` style.

    Attributes:
        table: What answers each op code now; another one while the server is read-only.
        read_only: Whether writes are refused and only clients that accept it are served.
        zxid_on_decode_error: The op codes that take a zxid even if their body does not decode.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        now: int = 0,
        monotonic_ms: int = 0,
        server_id: int = 1,
        rng: Random | None = None,
        log: Callable[..., None] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.rng = rng or Random(now)
        self.metrics = Metrics()
        self.acls = Acls(self.settings, self.metrics)
        self.tree = Tree(config_acl=self.acls.intern(READ_ACL_UNSAFE))
        self.warnings = Warnings(log, monotonic_ms)
        self.quota = Quota(self.tree, self.settings, self.warnings)
        self.watches = Watches(self.acls, self.settings, self.metrics, self.warnings)
        rounding = 0 if self.settings.exact_deadlines else self.settings.tick_time
        secret = None if self.settings.compat.predictable_passwords else self.rng.randbytes(32)
        self.sessions = Sessions(rounding, first_session_id(server_id, now), secret)
        self.connections: dict[ClientConnection, None] = {}
        self.table: Answers = build_dispatch()
        self.read_only = False
        self.zxid_on_decode_error = zxid_on_decode_error(self.settings.compat)
        self._next_reap = monotonic_ms + self.settings.container_check_interval
        self._tokens = ConnectionThrottle(self.settings, monotonic_ms)
        self.zxid = 0
        self.now = now
        self.monotonic_ms = self.started = monotonic_ms
        self._sessionless: Expiry[ClientConnection] = Expiry(self.settings.sessionless_timeout)
        self.trace_mask = 306  # what gtmk answers with
        self.partial_requests = 0  # bytes of requests that have not arrived as a whole, of all connections
        if self.settings.reconfig_enabled:
            only = {server_id: "localhost:2888:3888:participant;0.0.0.0:2181"}
            self.tree.set_data_silently(self.tree.find(CONFIG), ops.reconfig.encode_config(only, 0))

    def set_time(self, now: int, monotonic_ms: int) -> None:
        """Set the time of all that follows."""
        self.now = now
        self.monotonic_ms = self.warnings.monotonic_ms = monotonic_ms

    # --- read-only mode ---

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off; connections are closed either way, as when a server loses or finds its
        quorum, and their sessions live on.

        Source: ReadOnlyZooKeeperServer, ReadOnlyRequestProcessor.
        """
        if on == self.read_only:
            return
        self.read_only = on
        self.table = build_dispatch(read_only=on)
        self.zxid_on_decode_error = frozenset() if on else zxid_on_decode_error(self.settings.compat)
        for client in list(self.connections):
            self.close_connection(client)

    # --- transactions ---

    def apply(self, txn: Record, session_id: int) -> object:
        """Do what a transaction record says, at the engine's zxid and time, for a session; it cannot fail."""
        return APPLIES[type(txn)](self, txn, session_id)

    # --- all or nothing: the tree first, for the others need what is left of it ---

    def begin(self) -> None:
        """Begin a transaction; they do not nest."""
        self.tree.begin()
        self.quota.begin()
        self.watches.begin()
        self.acls.begin()

    def commit(self) -> None:
        """Keep what was changed since :meth:`begin`, and send the events."""
        self.tree.commit()
        self.quota.commit()
        self.watches.commit()
        self.acls.commit()

    def roll_back(self) -> None:
        """Undo every change since :meth:`begin`, events included."""
        self.tree.roll_back()
        self.quota.roll_back()
        self.watches.roll_back()
        self.acls.roll_back()

    # --- connections ---

    def connect(self, client: ClientConnection) -> None:
        """A connection was made; it has ``sessionless_timeout`` to say who it is."""
        self.connections[client] = None
        self._sessionless.touch(client, self.monotonic_ms, self.settings.sessionless_timeout)

    def disconnect(self, client: ClientConnection) -> None:
        """A connection is gone: its watches too, but not its session."""
        if not client.closing:
            client.closing = True
            self.watches.forget(client)
        self.connections.pop(client, None)
        self.watches.pending_output.pop(client, None)
        self._sessionless.remove(client)
        session, client.session = client.session, None
        if session is not None and session.client is client:
            session.client = None

    def close_connection(self, client: ClientConnection) -> None:
        """Close a connection from this side, once what is in its outbox has been sent."""
        self.disconnect(client)
        self.watches.pending_output[client] = None

    def allow_session(self) -> bool:
        """Return whether a session may be opened or resumed now, as the connection throttle sees it."""
        return self._tokens.take(self.monotonic_ms)

    # --- sessions ---

    def open_session(self, timeout_ms: int) -> Session:
        """Open a session; takes a zxid."""
        self.zxid += 1
        session_id = self.sessions.new_id()
        self.apply(CreateSessionTxn(timeout_ms), session_id)
        return self.sessions.alive[session_id]

    def bind_session(self, session: Session, client: ClientConnection) -> None:
        """Let *caller* be the connection of a session from now on."""
        self._sessionless.remove(client)
        session.client, client.session = client, session
        client.since = self.now
        self.sessions.touch(session, self.monotonic_ms)

    def close_session(self, session: Session) -> None:
        """End a session: its ephemeral nodes go, with events; takes a zxid."""
        self.zxid += 1
        self.apply(CloseSessionTxn(list(self.tree.ephemerals.get(session.id, ()))), session.id)

    def expire(self, session: Session) -> None:
        """End a session and hang up on its client without a word."""
        client = session.client
        self.close_session(session)
        if client is not None:
            self.close_connection(client)

    def tick(self) -> None:
        """Do what is due at the engine's time: end sessions, oldest deadline first, and silent connections.

        Source: SessionTrackerImpl.run; NIOServerCnxnFactory.ConnectionExpirerThread.
        """
        # One at a time: should one fail, the others are still there for the next tick.
        while (session := self.sessions.expiry.pop_due(self.monotonic_ms)) is not None:
            self.expire(session)
        while (client := self._sessionless.pop_due(self.monotonic_ms)) is not None:
            self.close_connection(client)
        if self.watches.unswept:
            self.watches.sweep()
        if self.monotonic_ms >= self._next_reap:
            self._next_reap = self.monotonic_ms + self.settings.container_check_interval
            self.reap()

    def idle(self) -> bool:
        """Return whether nothing can become due unless somebody connects or calls first."""
        return not (self.connections or self.sessions.alive or self.tree.expiring)

    def next_due(self) -> int | None:
        """Return the first moment, in milliseconds of uptime, at which a session, a silent connection or a node has
        reached its end; None if none ever will.
        """
        reap = containers.next_due(self.tree, self.now, self.settings.container_never_used)
        moments = [self.sessions.expiry.next(), self._sessionless.next()]
        if reap is not None:
            moments.append(self.monotonic_ms + reap - self.now)
        return min((moment for moment in moments if moment is not None), default=None)

    def reap(self) -> None:
        """Delete the container and TTL nodes that are due, each with a zxid of its own; no permission is asked for."""
        most = max(1, self.settings.container_max_per_minute * self.settings.container_check_interval // 60_000)
        for path in containers.due(self.tree, self.now, self.settings.container_never_used)[:most]:
            self.zxid += 1
            self.apply(DeleteTxn(path), 0)
