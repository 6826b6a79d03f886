"""The state of a server: the tree, the sessions, the watches, the zxid and the time. Operations change nothing else.

The operations (``ops/``) work on a :class:`ServerState`; the engine adds the dispatch of requests and the passing of
time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Final

from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.server.core.acls import Acls
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.expiry import Expiry
from zoolet.server.core.journal import Applied, Journal
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.quota import Quota
from zoolet.server.core.sessions import Sessions, first_session_id
from zoolet.server.core.settings import Settings
from zoolet.server.core.throttle import ConnectionThrottle
from zoolet.server.core.tree import Tree
from zoolet.server.core.warnings import LogFunction, Warnings
from zoolet.server.core.watches import Watches

_YEAR_2020: Final = 1_577_836_800_000  # in milliseconds since the epoch


def first_zxid(now: int) -> int:
    """Return the zxid with which a server begins that has no data: milliseconds since 2020, and 20 bits for a count.

    It is higher than every zxid of a server that was here before, unless that one made more than a million writes per
    millisecond of its life, or the clock was set back. So fencing tokens, which are czxids, grow across a restart, and
    clients that saw the former server's zxids can connect. ZooKeeper itself begins at 0, but never without its data.
    """
    return max(0, now - _YEAR_2020) << 20


class ServerState:
    """All state of one server.

    It has two times, which may drift apart: ``now``, wall-clock milliseconds since the epoch, is used for Stats;
    ``monotonic_ms`` is used for sessions and other deadlines. The owner calls :meth:`set_time` before anything else.

    Args:
        settings: The configuration; by default that of ZooKeeper.
        now: Milliseconds since the epoch.
        monotonic_ms: Milliseconds on a monotonic clock.
        zxid: The last zxid that was taken before.
        server_id: The top byte of session ids, 0 to 127.
        rng: The source of nonces and of the key of the session passwords: a ``SystemRandom`` unless the run has to be
            repeatable.
        log: Receives warnings for the operator, in ``%`` style.

    Attributes:
        zxid: The last zxid that was taken.
        read_only: Whether writes are refused and only clients that accept it are served.
        connections: All connections, in the order in which they were opened.
        pending_output: Connections with output that is not a reply to their own request, such as events, in order; the
            owner of the sockets sends it and clears this.
        journal: The transactions that are to be written to a log; None if there is none.
        record: Called with each transaction that was applied; None for nobody.
        partial_requests: Bytes of incomplete requests that all connections have buffered.
        on_session: Called with what became of a session (``opened``, ``resumed``, ``closed``, ``expired`` or
            ``refused``), its id, and its connection if there is one; None for nobody.
        has_quorum: Returns whether most of the voters with these numbers can be reached; a single server is one.
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
        self.settings = settings or Settings()
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
        """Set the time at which everything happens until the next call."""
        self.now = now
        self.monotonic_ms = monotonic_ms

    def use_journal(self, journal: Journal) -> None:
        """Add the transactions to a journal from now on."""
        self.journal, self.record = journal, journal.entries.append

    def log_failure(self, session_id: int, xid: int, code: int) -> None:
        """Log that a request has failed, if it took a zxid: a log with a gap cannot be replayed."""
        if self.journal is not None:
            self.journal.add_failure(session_id, xid, self.zxid, self.now, code)

    # --- all or nothing ---

    # The tree is first, because the others use it as it is after its commit or rollback. The calls are written out: a
    # loop over the four costs each transaction 0.3 us.

    def begin(self) -> None:
        """Begin a transaction; transactions do not nest."""
        self.tree.begin()
        self.quota.begin()
        self.watches.begin()
        self.acls.begin()

    def commit(self) -> None:
        """Keep the changes since :meth:`begin`, and send their events."""
        self.tree.commit()
        self.quota.commit()
        self.watches.commit()
        self.acls.commit()

    def roll_back(self) -> None:
        """Undo every change since :meth:`begin` and discard its events."""
        self.tree.roll_back()
        self.quota.roll_back()
        self.watches.roll_back()
        self.acls.roll_back()

    # --- connections ---

    def connect(self, client: ClientConnection) -> None:
        """Add a connection, which has ``sessionless_timeout`` to open or resume a session."""
        self.connections[client] = None
        self._sessionless.touch(client, self.monotonic_ms, self.settings.sessionless_timeout)

    def disconnect(self, client: ClientConnection) -> None:
        """Remove a connection that is gone, with its watches; its session stays alive."""
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
        """Close a connection from this side, once what is in its outbox has been sent."""
        self.disconnect(client)
        self.pending_output[client] = None

    def allow_session(self) -> bool:
        """Return whether the connection throttle allows a session to be opened or resumed now."""
        return self._throttle.try_acquire(self.monotonic_ms)

    def bind_session(self, session: Session, client: ClientConnection) -> None:
        """Make *client* the connection that serves a session."""
        self._sessionless.remove(client)
        session.client, client.session = client, session
        client.since = self.now
        self.sessions.touch(session, self.monotonic_ms)

    def pop_sessionless(self) -> ClientConnection | None:
        """Remove and return a connection that has had no session for too long; None if there is none."""
        return self._sessionless.pop_due(self.monotonic_ms)

    def next_sessionless(self) -> int | None:
        """Return the first deadline of a sessionless connection, in monotonic milliseconds; None if there is none."""
        return self._sessionless.next()
