"""What a server knows: the tree, the sessions, the watches, the zxid and the time. Nothing else has state.

The operations (``ops/``) work on a :class:`ServerState`; the engine adds what answers requests and lets time pass.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.server.core.acls import Acls
from zoolet.server.core.client_connection import ClientConnection, Session
from zoolet.server.core.expiry import Expiry
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.quota import Quota
from zoolet.server.core.sessions import Sessions, first_session_id
from zoolet.server.core.settings import Settings
from zoolet.server.core.throttle import ConnectionThrottle
from zoolet.server.core.tree import Tree
from zoolet.server.core.warnings import LogFunction, Warnings
from zoolet.server.core.watches import Watches


class Transactional(Protocol):
    """A part of the state that takes part in a transaction: it can undo what it did since :meth:`begin`."""

    def begin(self) -> object:
        """Begin a transaction."""
        ...

    def commit(self) -> object:
        """Keep what was done since :meth:`begin`."""
        ...

    def roll_back(self) -> object:
        """Undo what was done since :meth:`begin`."""
        ...


class ServerState:
    """All state of one server.

    Two times are kept, because they may run apart: ``now``, wall-clock milliseconds since the epoch, stands in Stats;
    ``monotonic_ms`` ends sessions. The owner calls :meth:`set_time` before anything else.

    Args:
        settings: How it is configured.
        now: Milliseconds since the epoch.
        monotonic_ms: Milliseconds on a monotonic clock.
        server_id: The top byte of session ids, 0 to 127.
        rng: Where nonces and the key of the session passwords come from: a ``SystemRandom`` unless the run has to be
            repeatable.
        log: Receives warnings for the operator, in ``%`` style.

    Attributes:
        zxid: The last zxid that was taken.
        read_only: Whether writes are refused and only clients that accept it are served.
        connections: All connections, in order of their beginning.
        pending_output: Connections that got something to send by what others did, in order; the owner of the sockets
            sends it and clears this.
        partial_requests: Bytes of requests that have not arrived completely, of all connections.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        now: int = 0,
        monotonic_ms: int = 0,
        server_id: int = 1,
        rng: Random,
        log: LogFunction | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.rng = rng
        self.metrics = Metrics()
        self.acls = Acls(self.settings, self.metrics)
        self.tree = Tree(config_acl=self.acls.intern(READ_ACL_UNSAFE))
        self.warnings = Warnings(log, monotonic_ms)
        self.quota = Quota(self.tree, self.settings, self.warnings)
        self.pending_output: dict[ClientConnection, None] = {}
        self.watches = Watches(self.acls, self.settings, self.metrics, self.warnings, self.pending_output)
        rounding = 0 if self.settings.exact_deadlines else self.settings.tick_time
        secret = None if self.settings.compat.predictable_passwords else rng.randbytes(32)
        self.sessions = Sessions(rounding, first_session_id(server_id, now), secret)
        self.connections: dict[ClientConnection, None] = {}
        self.read_only = False
        self.zxid = 0
        self.now = now
        self.monotonic_ms = self.started = monotonic_ms
        self.trace_mask = 306  # what gtmk answers with
        self.partial_requests = 0
        # In this order: the tree first, because the others look at what is left of it.
        self._transactional: tuple[Transactional, ...] = (self.tree, self.quota, self.watches, self.acls)
        self._throttle = ConnectionThrottle(self.settings, monotonic_ms)
        self._sessionless: Expiry[ClientConnection] = Expiry(self.settings.sessionless_timeout)

    def set_time(self, now: int, monotonic_ms: int) -> None:
        """Set the time of all that follows."""
        self.now = now
        self.monotonic_ms = self.warnings.monotonic_ms = monotonic_ms

    # --- all or nothing ---

    def begin(self) -> None:
        """Begin a transaction; transactions do not nest."""
        for part in self._transactional:
            part.begin()

    def commit(self) -> None:
        """Keep what was changed since :meth:`begin`, and send the events."""
        for part in self._transactional:
            part.commit()

    def roll_back(self) -> None:
        """Undo every change since :meth:`begin`, events included."""
        for part in self._transactional:
            part.roll_back()

    # --- connections ---

    def connect(self, client: ClientConnection) -> None:
        """Record a new connection; it has ``sessionless_timeout`` to open or resume a session."""
        self.connections[client] = None
        self._sessionless.touch(client, self.monotonic_ms, self.settings.sessionless_timeout)

    def disconnect(self, client: ClientConnection) -> None:
        """Forget a connection that is gone, with its watches; its session lives on."""
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
        """Return whether a session may be opened or resumed now, by the connection throttle."""
        return self._throttle.try_acquire(self.monotonic_ms)

    def bind_session(self, session: Session, client: ClientConnection) -> None:
        """Make *client* the connection that serves a session from now on."""
        self._sessionless.remove(client)
        session.client, client.session = client, session
        client.since = self.now
        self.sessions.touch(session, self.monotonic_ms)

    def pop_sessionless(self) -> ClientConnection | None:
        """Remove and return a connection that has had no session for too long, None if there is none."""
        return self._sessionless.pop_due(self.monotonic_ms)

    def next_sessionless(self) -> int | None:
        """Return when a connection will have been without a session for too long, in monotonic milliseconds."""
        return self._sessionless.next()
