"""The state machine: the server's state, the dispatch of requests to it, and what becomes due as time passes.

It is deterministic: the same calls with the same times and the same randomness produce the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.paths import CONFIG
from zoolet.protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from zoolet.server.core import containers, ops
from zoolet.server.core.client_connection import Session
from zoolet.server.core.journal import TYPES
from zoolet.server.core.ops.dispatch import APPLIES, Dispatch, build_dispatch, zxid_on_decode_error
from zoolet.server.core.ops.reconfig import encode_config
from zoolet.server.core.quota import Quota
from zoolet.server.core.settings import Settings
from zoolet.server.core.state import ServerState
from zoolet.server.core.tree import Tree
from zoolet.server.core.warnings import LogFunction

assert ops  # importing the package registers the handlers
MAX_EXPIRED_PER_TICK: Final = 1_000
"""The most sessions that expire in one tick; they take about ten milliseconds."""


class Engine(ServerState):
    """A ZooKeeper server without a clock and without sockets.

    Args:
        settings: As for :class:`ServerState`, like all other arguments.
        now: Milliseconds since the epoch.
        monotonic_ms: Milliseconds on a monotonic clock.
        zxid: The last zxid that was taken before.
        server_id: The top byte of session ids.
        rng: The source of randomness.
        log: Receives warnings.

    Attributes:
        dispatch: The dispatch table; it is replaced when read-only mode begins or ends.
        refusal: Why the writes of clients are refused, in one line, while they cannot be logged; empty otherwise.
        frozen: Whether sessions and nodes do not expire, because that cannot be logged either.
        zxid_on_decode_error: The op codes that take a zxid even if their body does not decode.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        now: int = 0,
        monotonic_ms: int = 0,
        zxid: int = 0,
        server_id: int = 1,
        rng: Random,
        log: LogFunction | None = None,
    ) -> None:
        super().__init__(settings, now=now, monotonic_ms=monotonic_ms, zxid=zxid, server_id=server_id, rng=rng, log=log)
        self._wrap: Callable[[Dispatch], Dispatch] = lambda table: table
        self.dispatch: Dispatch = build_dispatch()
        self.refusal = ""
        self.frozen = False
        self.zxid_on_decode_error = zxid_on_decode_error(self.settings.compat)
        self._next_reap = monotonic_ms + self.settings.container_check_interval
        self._server_id = server_id
        self._write_config()

    def _write_config(self) -> None:
        if self.settings.reconfig_enabled:
            members = {self._server_id: "localhost:2888:3888:participant;0.0.0.0:2181"}
            self.write_config(encode_config(members, 0))

    def write_config(self, data: bytes) -> None:
        """Set the data of ``/zookeeper/config`` at the start, which is no transaction."""
        self.tree.set_data_silently(self.tree.find(CONFIG), data)

    def clear(self) -> None:
        """Remove all nodes and sessions and close all connections, without events and without taking a zxid."""
        for client in list(self.connections):
            self.close_connection(client)
        for session in list(self.sessions.alive.values()):
            self.sessions.close(session)
        self.clear_tree()

    def clear_tree(self) -> None:
        """Remove all nodes, without events and without taking a zxid."""
        for _, node in self.tree.walk():
            self.acls.release(node.acl)
        self.tree = Tree(config_acl=self.acls.intern(READ_ACL_UNSAFE))
        self.quota = Quota(self.tree, self.settings, self.metrics, self.warnings)
        self._write_config()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off. All connections are closed, as when a server loses or regains its quorum;
        their sessions stay alive.

        Source: ReadOnlyZooKeeperServer, ReadOnlyRequestProcessor.
        """
        if on == self.read_only:
            return
        self.read_only = on
        self._rebuild_dispatch()
        self.zxid_on_decode_error = frozenset() if on else zxid_on_decode_error(self.settings.compat)
        for client in list(self.connections):
            self.close_connection(client)

    def refuse_writes(self, refusal: str, *, frozen: bool) -> None:
        """Refuse writes, as in read-only mode, while they cannot be logged. Connections stay open.

        Args:
            refusal: Why, in one line; empty to serve them again.
            frozen: Let no session and no node expire, nor a client close its session: somebody else could take its
                locks, and after a crash the session would be alive again.
        """
        if self.frozen and not frozen:  # what clients have sent meanwhile may not have been answered
            self.sessions.touch_all(self.monotonic_ms)
        self.refusal, self.frozen = refusal, frozen
        self._rebuild_dispatch()

    def wrap_dispatch(self, wrap: Callable[[Dispatch], Dispatch]) -> None:
        """Have a function change the dispatch table, and each later one: for an audit log."""
        self._wrap = wrap
        self._rebuild_dispatch()

    def _rebuild_dispatch(self) -> None:
        self.dispatch = self._wrap(build_dispatch(read_only=self.read_only, writable=not self.refusal))

    def apply(self, txn: Record, session_id: int) -> object:
        """Apply a transaction record for a session, at the engine's zxid and time; this cannot fail."""
        outcome = APPLIES[type(txn)](self, txn, session_id, None)
        if self.record is not None:
            self.record((session_id, 0, self.zxid, self.now, TYPES[type(txn)], txn))
        return outcome

    # --- sessions ---

    def open_session(self, timeout_ms: int) -> Session:
        """Open a session, which takes a zxid."""
        self.zxid += 1
        session_id = self.sessions.new_id()
        self.apply(CreateSessionTxn(timeout_ms), session_id)
        return self.sessions.alive[session_id]

    def close_session(self, session: Session) -> None:
        """Close a session and delete its ephemeral nodes, with events; this takes a zxid."""
        self.zxid += 1
        self.apply(CloseSessionTxn(list(self.tree.ephemerals.get(session.id, ()))), session.id)

    def take_zxid(self, session_id: int = 0, xid: int = 0, code: int = 0) -> None:
        """Take the next zxid for a transaction that changes no node, such as that of an injected error. It is logged:
        a log with a gap cannot be replayed.

        Args:
            session_id: Whose request took it; 0 for nobody's.
            xid: The request's number.
            code: Its error.
        """
        self.zxid += 1
        self.log_failure(session_id, xid, code)

    def expire(self, session: Session) -> None:
        """Close a session whose deadline has passed, and its connection, without a reply."""
        client = session.client
        self.metrics.sessions_expired += 1
        if self.on_session is not None:
            self.on_session("expired", session.id, client)
        self.close_session(session)
        if client is not None:
            self.close_connection(client)

    # --- time ---

    def tick(self) -> bool:
        """Do what is due at the engine's time.

        Sessions expire, oldest deadline first, sessionless connections are closed, watches of closed connections are
        swept, and container and TTL nodes are deleted.

        Returns:
            Whether more sessions are due: at most MAX_EXPIRED_PER_TICK expire, so that others are served in between.

        Source: SessionTrackerImpl.run; NIOServerCnxnFactory.ConnectionExpirerThread.
        """
        # One at a time: if expiring one raises, the next tick finds the others.
        for _ in range(MAX_EXPIRED_PER_TICK if not self.frozen else 0):
            session = self.sessions.expiry.pop_due(self.monotonic_ms)
            if session is None:
                break
            self.expire(session)
        while (client := self.pop_sessionless()) is not None:
            self.metrics.sessionless_expired += 1
            self.close_connection(client)
        self.metrics.rotate(self.monotonic_ms)
        if self.watches.unswept:
            self.watches.sweep()
        if self.monotonic_ms >= self._next_reap and not self.frozen:
            self._next_reap = self.monotonic_ms + self.settings.container_check_interval
            self.reap()
        next_expiry = self.sessions.expiry.next()
        return next_expiry is not None and next_expiry <= self.monotonic_ms and not self.frozen

    def idle(self) -> bool:
        """Return whether nothing can become due before a client connects or a method is called."""
        return not (self.connections or self.sessions.alive or self.tree.expiring)

    def next_due(self) -> int | None:
        """Return the first moment, in monotonic milliseconds, at which a session, a sessionless connection or a node
        becomes due; None if there is none.
        """
        reap = containers.next_due(self.tree, self.now, self.settings.container_never_used)
        moments = [self.sessions.expiry.next(), self.next_sessionless()]
        if reap is not None:
            moments.append(self.monotonic_ms + reap - self.now)
        return min((moment for moment in moments if moment is not None), default=None)

    def reap(self) -> None:
        """Delete the container and TTL nodes that are due, each with its own zxid and without a permission check."""
        limit = max(1, self.settings.container_max_per_minute * self.settings.container_check_interval // 60_000)
        for path in containers.due(self.tree, self.now, self.settings.container_never_used)[:limit]:
            self.zxid += 1
            self.apply(DeleteTxn(path), 0)
