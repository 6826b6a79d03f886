"""The gateway between the clients of a member and the leader, which manages the member's local sessions."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.handshake import ConnectRequest
from ...server.core.client_connection import Session
from ...server.core.server_connection import ServerConnection
from .ensemble import Ensemble
from .preparing import ForwardedRequest
from .replica import Replica


class Gateway:
    """The link between a member's connections and the leader, which also holds the member's local sessions.

    Args:
        replica: The member.
        ensemble: The ensemble.
        local: Whether new sessions stay local to this member until they create an ephemeral node.
        upgrades: Whether local sessions may create ephemeral nodes, which makes them global.

    Attributes:
        replica: The member.
    """

    def __init__(self, replica: Replica, ensemble: Ensemble, *, local: bool, upgrades: bool) -> None:
        self.replica = replica
        self._ensemble = ensemble
        self._serves_local = local
        self._upgrades = upgrades
        self._local: dict[int, Session] = {}

    def touch(self, session_id: int) -> None:
        """Extend a session after data from its client arrived."""
        if not self._extend_if_local(session_id):
            self._ensemble.touch(self.replica, session_id)

    def _extend_if_local(self, session_id: int) -> bool:
        """Extend a session if it is local. Return whether it is local."""
        local = self._local.get(session_id)
        if local is not None:
            local.heard = self.replica.engine.monotonic_ms
        return local is not None

    def forward(self, request: ForwardedRequest) -> None:
        """Forward a request to the leader and extend the client's session."""
        self._extend_if_local(request.session_id)
        self._ensemble.forward(self.replica, request)

    def knows_moved(self, session_id: int) -> bool:
        """Return whether this member leads, and a session that was connected to it belongs to a different member."""
        replica, owners = self.replica, self._ensemble.preparing.owners
        return self._ensemble.leader is replica and owners.get(session_id, replica.number) != replica.number

    def sync(self, session_id: int, synced: Callable[[], object]) -> None:
        """Call *synced* when everything prepared so far has been applied, and extend the session of the sync."""
        self._extend_if_local(session_id)
        self._ensemble.sync(self.replica, session_id, synced)

    def new_session_id(self) -> int:
        """Return an unused session id."""
        return self.replica.engine.sessions.new_id()

    def open_session(self, session_id: int, timeout_ms: int, opened: Callable[[], object]) -> None:
        """Open a global session. *opened* is called once this member knows the session."""
        self._ensemble.open_session(self.replica, session_id, timeout_ms, opened)

    def revalidate(self, session_id: int, timeout_ms: int, answered: Callable[[Session | None], object]) -> None:
        """Call *answered* with a session that a client resumes here, or with None if it is not alive at the leader."""
        sessions = self.replica.engine.sessions

        def known(alive: bool) -> None:
            session = sessions.alive.get(session_id)
            if alive and session is None:  # this member lags behind the leader
                session = sessions.open(session_id, timeout_ms, self.replica.engine.monotonic_ms)
            answered(session if alive else None)

        self._ensemble.revalidate(self.replica, session_id, timeout_ms, known)

    # --- local sessions ---

    @property
    def serves_local_sessions(self) -> bool:
        """Whether new sessions are local to this member until they create an ephemeral node."""
        return self._serves_local

    def is_local(self, session_id: int) -> bool:
        """Return whether a session is local to this member."""
        return session_id in self._local

    def open_or_resume_local(self, inner: ServerConnection, request: ConnectRequest) -> Session | None:
        """Open or resume a local session. Return None if the session to resume is unknown here."""
        sessions, engine = self.replica.engine.sessions, self.replica.engine
        if request.session_id == 0:
            session_id = sessions.new_id()
            timeout = engine.settings.negotiate(request.timeout_ms)
            self._local[session_id] = session = sessions.open(session_id, timeout, engine.monotonic_ms)
            return session
        session_ = inner.take_over(request)
        return session_ if session_ is not None and session_.id in self._local else None

    def upgrade(self, session_id: int) -> bool:
        """Make a local session global before its next request. Return False if the configuration forbids it."""
        if not self._upgrades:
            return False
        session = self._local.pop(session_id)
        self._ensemble.open_session(self.replica, session_id, session.timeout_ms, lambda: None)
        return True

    def next_due(self) -> int | None:
        """Return when the next local session expires, in monotonic milliseconds, or None if there is none."""
        return min((each.heard + each.timeout_ms + 1 for each in self._local.values()), default=None)

    def expire(self, who: object) -> bool:
        """Expire the local session with the id *who*, or all for ``"all"``. Return whether any session was expired."""
        named = [one for one in self._local if who in (one, "all")]
        for session_id in named:
            self._close_with_connection(self._local[session_id])
        return bool(named)

    def close_local(self, session_id: int) -> None:
        """Close a local session."""
        session, sessions = self._local.pop(session_id, None), self.replica.engine.sessions
        if session is not None and sessions.alive.get(session_id) is session:  # a copy of the state lacks the session
            sessions.close(session)

    def expire_local(self) -> None:
        """Close the local sessions that have timed out, and their connections."""
        engine = self.replica.engine
        for session in list(self._local.values()):
            if session.heard + session.timeout_ms < engine.monotonic_ms:
                self._close_with_connection(session)

    def _close_with_connection(self, session: Session) -> None:
        """Close a local session and its connection."""
        client = session.client
        self.close_local(session.id)
        if client is not None:
            self.replica.engine.close_connection(client)

    def close_all_local(self) -> None:
        """Close all local sessions, because they do not survive a change of the leader."""
        for session_id in list(self._local):
            self.close_local(session_id)
