"""The engine, the state machine of a server: its state, the dispatch of requests, and events that depend on time.

It is deterministic: the same calls with the same times and the same randomness produce the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from ...protocol.acl import READ_ACL_UNSAFE
from ...protocol.codec import Record
from ...protocol.errors import MarshallingError, ZooKeeperError
from ...protocol.framing import frame
from ...protocol.handshake import ConnectRequest
from ...protocol.members import encode_config
from ...protocol.operations import OPERATIONS
from ...protocol.paths import CONFIG
from ...protocol.records import RequestHeader
from ...protocol.txns import CloseSessionTxn, CreateSessionTxn, DeleteTxn
from . import containers, ops
from .client_connection import ClientConnection, Session
from .journal import TYPES
from .ops.dispatch import APPLIES, Decode, Dispatch, build_dispatch, zxid_on_decode_error
from .quota import Quota
from .settings import EngineSettings
from .state import ServerState
from .tree import Tree
from .warnings import LogFunction

assert ops  # importing the package registers the handlers
MAX_EXPIRED_PER_TICK: Final = 1_000
"""Maximum number of sessions that expire in one tick. Expiring them takes about ten milliseconds."""
MAX_DELETED_PER_TICK: Final = 4_000
"""A tick that has deleted this number of ephemeral nodes expires no further session. Deleting them takes about 3 ms."""
MAX_CHECKED_PER_TICK: Final = 10_000
"""Maximum number of container and TTL nodes that are checked in one tick. This takes about three milliseconds."""
MAX_REAPED_PER_TICK: Final = 2_000
"""Maximum number of container and TTL nodes that are deleted in one tick. This takes about five milliseconds."""


class Engine(ServerState):
    """A ZooKeeper server without a clock and without sockets.

    Args:
        settings: Settings of the server.
        now: Current time in milliseconds since the epoch.
        monotonic_ms: Current time of a monotonic clock, in milliseconds.
        zxid: The last zxid that is already used.
        server_id: The number of the server, which becomes the top byte of its session ids.
        rng: Source of randomness.
        log: Receiver of warnings.

    Attributes:
        dispatch: The dispatch table. It is replaced when the set of rejected operations changes.
        refusal: The reason, in one line, why writes of clients are rejected because they cannot be logged; empty while
            writes are accepted.
        frozen: Whether sessions and nodes do not expire, because an expiry cannot be logged either.
        zxid_on_decode_error: The op codes of requests that use up a zxid even if their body cannot be decoded.
    """

    def __init__(
        self,
        settings: EngineSettings | None = None,
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
        self._search: containers.DueSearch | None = None
        self._server_id = server_id
        self._write_config()

    def _write_config(self) -> None:
        if self.settings.reconfig_enabled:
            members = {self._server_id: "localhost:2888:3888:participant;0.0.0.0:2181"}
            self.write_config(encode_config(members, 0))

    def write_config(self, data: bytes) -> None:
        """Set the initial data of ``/zookeeper/config``, without a transaction."""
        self.tree.set_data_silently(self.tree.find(CONFIG), data)

    def clear(self) -> None:
        """Remove all nodes and sessions and close all connections, without events and without using a zxid."""
        for client in list(self.connections):
            self.close_connection(client)
        for session in list(self.sessions.alive.values()):
            self.sessions.close(session)
        self.clear_tree()

    def clear_tree(self) -> None:
        """Remove all nodes, without events and without using a zxid."""
        for _, node in self.tree.walk():
            self.acls.release(node.acl)
        self.tree = Tree(config_acl=self.acls.intern(READ_ACL_UNSAFE))
        self._search = None  # the nodes of the search were in the removed tree
        self.quota = Quota(self.tree, self.settings, self.metrics, self.warnings)
        self._write_config()

    def set_read_only(self, on: bool) -> None:
        """Switch read-only mode on or off. If the mode changes, close all connections. Sessions stay alive.

        ZooKeeper also closes the connections of a server that loses or regains its quorum.

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
        """Reject writes, as in read-only mode, because they cannot be logged, or accept writes again.

        Connections stay open.

        Args:
            refusal: The reason in one line; empty to accept writes again.
            frozen: Whether sessions and nodes do not expire, and clients cannot close their sessions. Otherwise a
                different client could acquire the locks of a session that is alive again after a crash.
        """
        if self.frozen and not frozen:  # clients may have waited for answers, so their sessions are extended
            self.sessions.touch_all(self.monotonic_ms)
        self.refusal, self.frozen = refusal, frozen
        self._rebuild_dispatch()

    def wrap_dispatch(self, wrap: Callable[[Dispatch], Dispatch]) -> None:
        """Wrap the dispatch table, now and whenever it is rebuilt.

        Args:
            wrap: A function that returns a table to use in place of its argument, for example to write an audit log.
        """
        self._wrap = wrap
        self._rebuild_dispatch()

    def _rebuild_dispatch(self) -> None:
        self.dispatch = self._wrap(build_dispatch(read_only=self.read_only, writable=not self.refusal))

    def execute(self, client: ClientConnection, xid: int, op: int, body: bytes) -> bytes:
        """Execute a write for a client, and return the body of its reply.

        Connections do not call this method: their loop contains an inlined copy, to save a call per request.

        Args:
            client: The connection to act for.
            xid: The xid of the request.
            op: The op code, which must be in ``dispatch``.
            body: The encoded body of the request.

        Raises:
            ZooKeeperError: The request failed. Its zxid, if it used one, is logged.
        """
        decode, handle, *_ = self.dispatch[op]
        client.last_xid, before = xid, self.zxid
        try:
            reply = handle(self, client, decode(body, 0, len(body)))
        except ZooKeeperError as error:
            self.fail(client.session_id, xid, error.code, op, decode, body, 0, len(body))
            raise
        if self.on_requests is not None:
            framed = frame(RequestHeader(xid, op).encode() + body)
            self.notify_requests(framed, 0, len(framed), client.session, before)
        return reply

    def fail(
        self, session_id: int, xid: int, code: int, op: int, decode: Decode, buf: bytes, offset: int, end: int
    ) -> None:
        """Record a request whose decoder or handler raised an error: count a failed write, and log its zxid.

        The handler of a write uses up a zxid even if it fails. If the body cannot be decoded, no handler is called. In
        this case the method itself uses up a zxid, provided that the imitated release does.

        Args:
            session_id: The session that sent the request.
            xid: The xid of the request.
            code: The error code of the reply.
            op: The op code.
            decode: The decoder of the operation.
            buf: Bytes that contain the body of the request.
            offset: Start of the body.
            end: End of the body.
        """
        if op in self.zxid_on_decode_error:
            try:
                decode(buf, offset, end)
            except MarshallingError:
                self.zxid += 1
        self.failed += OPERATIONS[op].takes_zxid
        if self.journal is not None:  # log_failure() is inlined to save a call
            self.journal.add_failure(session_id, xid, self.zxid, self.now, code)

    def apply(self, txn: Record, session_id: int) -> object:
        """Apply a transaction record for a session, at the engine's zxid and time. This cannot fail."""
        outcome = APPLIES[type(txn)](self, txn, session_id)
        notify = self.record or self.on_applied
        if notify is not None:
            notify((session_id, 0, self.zxid, self.now, TYPES[type(txn)], txn))
        return outcome

    # --- sessions ---

    def allow_client(self, request: ConnectRequest) -> bool:
        """Return whether a client may have a session here. In read-only mode it must accept this mode."""
        return request.read_only is True or not self.read_only

    def open_session(self, timeout_ms: int) -> Session:
        """Open a session with the next zxid."""
        self.zxid += 1
        session_id = self.sessions.new_id()
        self.apply(CreateSessionTxn(timeout_ms), session_id)
        return self.sessions.alive[session_id]

    def close_session(self, session: Session) -> None:
        """Close a session with the next zxid, and delete its ephemeral nodes, with events."""
        self.zxid += 1
        self.apply(CloseSessionTxn(list(self.tree.ephemerals.get(session.id, ()))), session.id)

    def take_zxid(self, session_id: int = 0, xid: int = 0, code: int = 0) -> None:
        """Use up the next zxid without changing a node, for example for an injected error.

        The request counts as a failed write. The zxid is logged, because a log with a gap cannot be replayed.

        Args:
            session_id: The session that made the request; 0 for none.
            xid: The xid of the request.
            code: The error code of the reply.
        """
        self.zxid += 1
        self.failed += 1
        self.log_failure(session_id, xid, code)

    def expire(self, session: Session) -> None:
        """Expire a session: delete its ephemeral nodes with the next zxid, and close its connection without a reply."""
        client = session.client
        self.metrics.sessions_expired += 1
        if self.on_session is not None:
            self.on_session("expired", session.id, client)
        self.close_session(session)
        if client is not None:
            self.close_connection(client)

    # --- time ---

    def tick(self) -> bool:
        """Process a part of the work that is due at the engine's time:

        - Expire sessions, in order of their deadlines.
        - Close connections that have not opened a session in time.
        - Remove watches of closed connections.
        - Delete container and TTL nodes.

        Returns:
            Whether more work is due. A tick is limited, because clients are served between two ticks.

        Source: SessionTrackerImpl.run, NIOServerCnxnFactory.ConnectionExpirerThread.
        """
        # Sessions are popped one at a time. If an error interrupts this loop, the next tick continues with the rest.
        deleted = 0
        for _ in range(MAX_EXPIRED_PER_TICK if not self.frozen else 0):
            if deleted >= MAX_DELETED_PER_TICK or (session := self.sessions.expiry.pop_due(self.monotonic_ms)) is None:
                break
            deleted += len(self.tree.ephemerals.get(session.id, ()))
            self.expire(session)
        while (client := self.pop_sessionless()) is not None:
            self.metrics.sessionless_expired += 1
            self.close_connection(client)
        self.metrics.rotate(self.monotonic_ms)
        self.tree.free_deleted_nodes()
        if self.watches.unswept:
            self.watches.sweep()
        if self.frozen:
            return bool(self.tree.unfreed)
        if self.monotonic_ms >= self._next_reap and self._search is None:
            self._next_reap = self.monotonic_ms + self.settings.container_check_interval
            self.start_search()
        self._continue_search()
        next_expiry = self.sessions.expiry.next()
        is_due = next_expiry is not None and next_expiry <= self.monotonic_ms
        return is_due or self._search is not None or bool(self.tree.unfreed)

    def is_idle(self) -> bool:
        """Return whether no work can become due before a client connects or a method is called."""
        return not (self.connections or self.sessions.alive or self.tree.expiring)

    def next_due(self) -> int | None:
        """Return the first time when a session, a sessionless connection or a node is due, in monotonic milliseconds.

        Return None if none of these will become due.
        """
        reap = containers.next_due(self.tree, self.now, self.settings.container_never_used)
        moments = [self.sessions.expiry.next(), self.next_sessionless()]
        if reap is not None:
            moments.append(self.monotonic_ms + reap - self.now)
        return min((moment for moment in moments if moment is not None), default=None)

    def reap(self) -> None:
        """Delete the container and TTL nodes that are due, each with its own zxid and without a permission check."""
        self.start_search()
        while self._search is not None:
            self._continue_search()

    def start_search(self) -> None:
        """Start a search for the container and TTL nodes that are due. The next ticks continue it."""
        settings = self.settings
        most = max(1, settings.container_max_per_minute * settings.container_check_interval // 60_000)
        self._search = containers.DueSearch(self.tree, most)

    def _continue_search(self) -> None:
        search, deleted = self._search, 0
        if search is None:
            return
        for _ in range(MAX_CHECKED_PER_TICK):
            if search.is_finished:
                self._search = None
                return
            path = search.step(self.now, self.settings.container_never_used)
            if path is not None:
                self.zxid += 1
                self.apply(DeleteTxn(path), 0)
                deleted += 1
                if deleted == MAX_REAPED_PER_TICK:
                    return
