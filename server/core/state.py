"""The state of a server: the tree, the sessions, the watches, the zxid and the time. Operations change nothing else.

The operations (``ops/``) work on a :class:`ServerState`. The engine, a subclass, adds the dispatch of requests and
events that depend on time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Final

from ...protocol.acl import READ_ACL_UNSAFE
from .acls import Acls
from .client_connection import ClientConnection, Session
from .expiry import Expiry
from .journal import Applied, Detail, Journal, RequestBatch
from .metrics import Metrics
from .quota import Quota
from .sessions import Sessions, first_session_id
from .settings import EngineSettings
from .throttle import ConnectionThrottle
from .tree import Tree
from .warnings import LogFunction, Warnings
from .watches import Watches

MAX_ZXID: Final = (1 << 63) - (1 << 40)
"""The highest zxid from which a server can start. Higher zxids are left for its own transactions."""
_YEAR_2020: Final = 1_577_836_800_000  # start of 2020 in milliseconds since the epoch


def first_zxid(now: int) -> int:
    """Return the initial zxid of a server without data: milliseconds since 2020, and 20 bits for a count.

    It is higher than every zxid of an earlier server at the same address, unless the earlier server made more than a
    million writes per millisecond of its life, or the clock was set back. So fencing tokens, which are zxids, grow
    across restarts, and clients of the earlier server can connect. ZooKeeper itself starts at 0, but it always keeps
    its data.
    """
    return max(0, now - _YEAR_2020) << 20


def next_epoch(zxid: int, now: int) -> int:
    """Return the epoch to continue with after *zxid*: the next one, or the epoch of a new server if that is higher.

    A server that is restored from a backup must not repeat zxids, which are fencing tokens. The lost server may have
    used further epochs since the backup, but they are all lower than the epoch of a server that starts now.
    """
    return max((zxid >> 32) + 1, first_zxid(now) >> 32)


class ServerState:
    """All state of one server.

    It has two times, which may drift apart. ``now``, wall-clock milliseconds since the epoch, is used for Stats.
    ``monotonic_ms`` is used for sessions and other deadlines. The owner calls :meth:`set_time` before anything else.

    Args:
        settings: The configuration; by default ZooKeeper's default configuration.
        now: Current time in milliseconds since the epoch.
        monotonic_ms: Current time of a monotonic clock, in milliseconds.
        zxid: The last zxid that was used before.
        server_id: The number of the server, from 0 to 127, which becomes the top byte of its session ids.
        rng: Source of randomness for nonces and for the key of the session passwords. Use a ``SystemRandom`` unless the
            run has to be repeatable.
        log: Receiver of warnings for the operator, in ``%`` style.

    Attributes:
        zxid: The last zxid that was used.
        read_only: Whether writes are rejected, and only clients that accept read-only mode are served.
        connections: All connections, in order of opening.
        pending_output: Connections with output other than replies to their own requests, such as events, in order. The
            owner of the sockets sends the output and clears this.
        journal: The transactions to write to a log; None if transactions are not logged.
        record: A function that is called with each applied transaction, or None.
        on_requests: A function that is called with each batch of successful requests, as received, if at least one of
            them used up a zxid; or None.
        on_applied: A function that is called with each transaction that no request caused, such as an expiry; or None.
        details: Facts about the requests of the current batch that their bytes do not contain (:meth:`add_detail`).
        failed: Number of failed requests that have used up a zxid.
        partial_requests: Bytes of incomplete requests that all connections have buffered.
        on_session: A function that is called when a session is ``opened``, ``resumed``, ``closed``, ``expired`` or
            ``refused``, with that word, the session id, and the connection if there is one; or None.
        has_quorum: A function that returns whether most of the voters with the given numbers can be reached. A single
            server is one voter.
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
        self.settings = settings or EngineSettings()
        self.rng = rng
        self.metrics = Metrics()
        self.warnings = Warnings(log, lambda: self.monotonic_ms)
        self.acls = Acls(self.settings, self.metrics, self.warnings)
        self.tree = Tree(config_acl=self.acls.intern(READ_ACL_UNSAFE))
        self.quota = Quota(self.tree, self.settings, self.metrics, self.warnings)
        self.pending_output: dict[ClientConnection, None] = {}
        self.watches = Watches(self.acls, self.settings, self.metrics, self.warnings, self.pending_output)
        rounding = 0 if self.settings.exact_deadlines else self.settings.tick_time
        secret = None if self.settings.compat.predictable_passwords else rng.randbytes(32)
        self.sessions = Sessions(rounding, first_session_id(server_id, now), secret)
        self.connections: dict[ClientConnection, None] = {}
        self.read_only = False
        self.journal: Journal | None = None
        self.record: Callable[[Applied], object] | None = None
        self.on_requests: Callable[[RequestBatch], object] | None = None
        self.on_applied: Callable[[Applied], object] | None = None
        self.details: list[Detail] = []
        self.failed: int = 0
        self.zxid = zxid
        self.now = now
        self.monotonic_ms = self.started = monotonic_ms
        self.trace_mask = 306  # the answer to gtmk
        self.partial_requests = 0
        self.on_session: Callable[[str, int, ClientConnection | None], object] | None = None
        self.has_quorum: Callable[[Collection[int]], bool] = lambda voters: len(voters) <= 1
        self._throttle = ConnectionThrottle(self.settings, monotonic_ms)
        self._sessionless: Expiry[ClientConnection] = Expiry(self.settings.sessionless_timeout)

    def set_time(self, now: int, monotonic_ms: int) -> None:
        """Set the current time, which is used until the next call."""
        self.now = now
        self.monotonic_ms = monotonic_ms

    def use_journal(self, journal: Journal) -> None:
        """Start adding the transactions to a journal."""
        self.journal, self.record = journal, journal.entries.append

    def log_failure(self, session_id: int, xid: int, code: int) -> None:
        """Log a failed request if it used up a zxid, because a log with a gap cannot be replayed."""
        if self.journal is not None:
            self.journal.add_failure(session_id, xid, self.zxid, self.now, code)

    def add_detail(self, text: str) -> None:
        """Record a fact that the bytes of the current request do not contain, for a history.

        Args:
            text: The path of a sequential node, a new configuration, or an empty text for a multi that failed.
        """
        if self.on_requests is not None:
            self.details.append((self.zxid, text))

    def notify_requests(self, buf: bytes, start: int, end: int, session: Session | None, zxid: int) -> None:
        """Pass successful requests and their details to ``on_requests`` if they used up a zxid.

        Args:
            buf: Bytes that contain the frames of the requests.
            start: Position of the first frame.
            end: Position after the last frame.
            session: The session that sent the requests.
            zxid: The last zxid before these requests.
        """
        if self.on_requests is None or self.zxid == zxid:
            return
        details: tuple[Detail, ...] = ()
        if self.details:
            details = tuple(self.details)
            self.details.clear()
        if start < end:
            frames = buf if end - start == len(buf) else buf[start:end]
            self.on_requests((frames, session.id if session is not None else 0, self.now, zxid, details))

    # --- transactions ---

    # The tree comes first, because the other parts use its state after the commit or rollback. Quotas and ACL lists are
    # only called if they changed, because each call would cost a multi of three operations 2 % of its time.

    def begin(self) -> None:
        """Start a transaction. Transactions of the server do not nest, unlike transactions of the tree."""
        self.tree.begin()
        self.watches.begin()
        self.quota.in_transaction = self.acls.in_transaction = True

    def commit(self) -> None:
        """Keep the changes since :meth:`begin`, and send their events."""
        self.tree.commit()
        quota, acls = self.quota, self.acls
        quota.in_transaction = acls.in_transaction = False
        if quota.changes is not None:
            quota.commit(quota.changes)
        self.watches.commit()
        if acls.changes is not None:
            acls.release_all(acls.changes.released)

    def roll_back(self) -> None:
        """Undo every change since :meth:`begin` and discard its events."""
        self.tree.roll_back()
        quota, acls = self.quota, self.acls
        quota.in_transaction = acls.in_transaction = False
        if quota.changes is not None:
            quota.roll_back(quota.changes)
        self.watches.roll_back()
        if acls.changes is not None:
            acls.release_all(acls.changes.interned)

    # --- connections ---

    def connect(self, client: ClientConnection) -> None:
        """Add a connection. It has to open or resume a session within ``sessionless_timeout``."""
        self.connections[client] = None
        self._sessionless.touch(client, self.monotonic_ms, self.settings.sessionless_timeout)

    def disconnect(self, client: ClientConnection) -> None:
        """Remove a lost connection and its watches. Its session stays alive."""
        if not client.closing:
            client.closing = True
            self.watches.forget(client)
        self.connections.pop(client, None)
        self.pending_output.pop(client, None)
        self._sessionless.remove(client)
        session, client.session = client.session, None
        if session is not None and session.client is client:
            session.client = None

    def close_connection(self, client: ClientConnection) -> None:
        """Close a connection from this side, once its outbox has been sent."""
        self.disconnect(client)
        self.pending_output[client] = None

    def allow_session(self) -> bool:
        """Return whether the connection throttle allows opening or resuming a session now. If so, use up a token."""
        return self._throttle.try_acquire(self.monotonic_ms)

    def bind_session(self, session: Session, client: ClientConnection) -> None:
        """Make *client* the connection that serves a session."""
        self._sessionless.remove(client)
        session.client, client.session = client, session
        client.since = self.now
        self.sessions.touch(session, self.monotonic_ms)

    def pop_sessionless(self) -> ClientConnection | None:
        """Return a connection that has not opened a session in time, and remove its deadline.

        Return None if none is due.
        """
        return self._sessionless.pop_due(self.monotonic_ms)

    def next_sessionless(self) -> int | None:
        """Return the first deadline of a sessionless connection in monotonic milliseconds, or None."""
        return self._sessionless.next()
