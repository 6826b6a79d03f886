"""The way from the connections of a member to the leader, and the sessions that are known to the member only."""

from __future__ import annotations

from collections.abc import Callable

from zoolet.protocol.handshake import ConnectRequest
from zoolet.server.core.client_connection import Session
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.testing.cluster.ensemble import Ensemble
from zoolet.server.testing.cluster.preparing import Forwarded
from zoolet.server.testing.cluster.replica import Replica


class Gateway:
    """The way from a member's connections to the leader, and the member's local sessions.

    Args:
        replica: The member.
        ensemble: The ensemble.
        local: Whether sessions are known to this member only, until they have an ephemeral node.
        upgrades: Whether they may have one.

    Attributes:
        replica: As given.
    """

    def __init__(self, replica: Replica, ensemble: Ensemble, *, local: bool, upgrades: bool) -> None:
        self.replica = replica
        self._ensemble = ensemble
        self._serves_local = local
        self._upgrades = upgrades
        self._local: dict[int, Session] = {}

    def touch(self, session_id: int) -> None:
        """Extend the session of a client that was heard."""
        local = self._local.get(session_id)
        if local is not None:
            local.heard = self.replica.engine.monotonic_ms
        else:
            self._ensemble.touch(self.replica, session_id)

    def forward(self, request: Forwarded) -> None:
        """Forward a request to the leader."""
        self._ensemble.forward(self.replica, request)

    def sync(self, synced: Callable[[], object]) -> None:
        """Call *synced* when all is applied that was prepared until now."""
        self._ensemble.sync(self.replica, synced)

    def new_session_id(self) -> int:
        """Return an id that no session has had."""
        return self.replica.engine.sessions.new_id()

    def open_session(self, session_id: int, timeout_ms: int, opened: Callable[[], object]) -> None:
        """Open a session of the whole ensemble."""
        self._ensemble.open_session(self.replica, session_id, timeout_ms, opened)

    def revalidate(self, session_id: int, timeout_ms: int, answered: Callable[[Session | None], object]) -> None:
        """Ask the leader whether a session is alive that a client resumes here."""
        sessions = self.replica.engine.sessions

        def known(alive: bool) -> None:
            session = sessions.alive.get(session_id)
            if alive and session is None:  # this member lags
                session = sessions.open(session_id, timeout_ms, self.replica.engine.monotonic_ms)
            answered(session if alive else None)

        self._ensemble.revalidate(self.replica, session_id, timeout_ms, known)

    # --- local sessions ---

    @property
    def serves_local_sessions(self) -> bool:
        """Whether sessions are known to this member only, until they have an ephemeral node."""
        return self._serves_local

    def is_local(self, session_id: int) -> bool:
        """Return whether a session is known to this member only."""
        return session_id in self._local

    def local_session(self, inner: ServerConnection, request: ConnectRequest) -> Session | None:
        """Open or resume a local session; None if it is not known here."""
        sessions, engine = self.replica.engine.sessions, self.replica.engine
        if request.session_id == 0:
            session_id = sessions.new_id()
            timeout = engine.settings.negotiate(request.timeout_ms)
            self._local[session_id] = session = sessions.open(session_id, timeout, engine.monotonic_ms)
            return session
        session_ = inner.resumable(request)
        return session_ if session_ is not None and session_.id in self._local else None

    def upgrade(self, session_id: int) -> bool:
        """Make a local session one of the whole ensemble, ahead of what it asks for next; return False if the
        configuration does not allow that.
        """
        if not self._upgrades:
            return False
        session = self._local.pop(session_id)
        self._ensemble.open_session(self.replica, session_id, session.timeout_ms, lambda: None)
        return True

    def next_due(self) -> int | None:
        """Return when the next local session expires, in monotonic milliseconds; None for never."""
        return min((each.heard + each.timeout_ms + 1 for each in self._local.values()), default=None)

    def expire(self, who: object) -> bool:
        """Expire a local session by its id, or all of them; return whether there was one."""
        named = [one for one in self._local if who in (one, "all")]
        for session_id in named:
            self._end(self._local[session_id])
        return bool(named)

    def close_local(self, session_id: int) -> None:
        """Close a local session."""
        session, sessions = self._local.pop(session_id, None), self.replica.engine.sessions
        if session is not None and sessions.alive.get(session_id) is session:  # or the member was given another state
            sessions.close(session)

    def expire_local(self) -> None:
        """Close the local sessions that nobody has heard for too long, and their connections."""
        engine = self.replica.engine
        for session in list(self._local.values()):
            if session.heard + session.timeout_ms < engine.monotonic_ms:
                self._end(session)

    def _end(self, session: Session) -> None:
        """Close a local session, and its connection."""
        client = session.client
        self.close_local(session.id)
        if client is not None:
            self.replica.engine.close_connection(client)

    def close_all_local(self) -> None:
        """Close all local sessions: they end with the leader."""
        for session_id in list(self._local):
            self.close_local(session_id)
