"""The settings of the core. ``server/config/`` reads them from files and the command line."""

from __future__ import annotations

from ...protocol.enums import MAX_FRAME
from .compat import V3_9, Compat
from .fields import Fields


class EngineSettings(Fields):
    """Settings of the state machine. All times are milliseconds, and all sizes are bytes.

    Args:
        tick_time: Interval to whose multiples session deadlines are rounded up.
        min_session_timeout: Minimum session timeout; below 0 for twice ``tick_time``.
        max_session_timeout: Maximum session timeout; below 0 for twenty times ``tick_time``.
        max_frame: ``jute.maxbuffer``, the maximum size of a request. A longer request closes its connection.
        sessionless_timeout: Time within which a new connection must open or resume a session. Otherwise it is closed.
        max_output_per_turn: Size of a connection's replies in one turn. Beyond it, other connections are served first.
        max_unread_bytes: Size of the events that may be buffered for a client that does not read. A client that exceeds
            it is disconnected.
        max_unread_bytes_total: Size of the replies and events that may be buffered for all such clients together.
        max_partial_request_bytes: Size of incomplete requests that may be buffered for all connections together.
        max_acl_entries: Maximum number of entries in one ACL list, after ``auth`` is replaced by the client's
            identities. Their total size is limited by ``max_frame``.
        max_identities: Maximum number of identities of one connection.
        max_watches: Maximum number of watches of all connections together. A watch on a path of more than 128
            characters counts as one for each 128.
        max_watches_per_connection: Maximum number of watches of one connection, counted in the same way.
        max_multi_operations: Maximum number of operations in one multi or multiRead, which cannot be interrupted.
        max_set_watches: Maximum number of watches in one setWatches request. The Java client sends fewer, because it
            splits them into requests of 128 kB.
        max_multi_read: Maximum size of the results of one multiRead.
        compat: The release of ZooKeeper to imitate.
        expire_clients_ahead: Whether a client that has seen a higher zxid and resumes an unknown session is notified
            that the session has expired. ZooKeeper disconnects it each time, because another member may be ahead.
        exact_deadlines: Whether session deadlines are exact instead of rounded up, for a clock that is moved by hand.
        skip_acl: Whether everyone may do everything.
        super_digest: ``user:hash`` of the super user, who may do everything.
        reconfig_enabled: Whether reconfig is answered like the only voter of an ensemble. Otherwise it is rejected.
        sasl_users: Passwords of the users that may log in with SASL DIGEST-MD5; None if SASL is disabled.
        super_users: SASL users with all permissions.
        x509: Whether client certificates count as identities of scheme ``x509``. This requires TLS.
        x509_super: Distinguished name in the certificate of the super user; None for no such certificate.
        require_auth: Authentication schemes. A connection must first authenticate with one of them; empty for no
            requirement.
        allow_failed_sasl: Whether a connection stays open after a failed SASL login, without a SASL identity.
        container_check_interval: Interval between two searches for container and TTL nodes that are due.
        container_never_used: Maximum age of a container that never had a child, before it is deleted; 0 for no limit.
        container_max_per_minute: Maximum number of container and TTL nodes that are deleted per minute.
        throttle_tokens: Sessions that may be opened in a burst before new ones are rejected; 0 for no limit.
        throttle_fill_time: Interval between two refills of the tokens.
        throttle_fill_count: Number of tokens added by a refill.
        extended_types: Whether TTL nodes are supported. Containers are always supported.
        enforce_quota: Whether writes that exceed a hard limit are rejected.
        digest_enabled: Whether logins with scheme ``digest`` are accepted.
        digest_algorithm: ``hashlib`` name of the hash function of scheme ``digest``.

    Raises:
        ValueError: ``tick_time`` is below 1, or the minimum session timeout is above the maximum.
    """

    tick_time: int = 2000
    min_session_timeout: int = -1
    max_session_timeout: int = -1
    max_frame: int = MAX_FRAME
    sessionless_timeout: int = 10_000
    max_output_per_turn: int = 256 << 10
    max_unread_bytes: int = 64 << 20
    max_unread_bytes_total: int = 96 << 20
    max_partial_request_bytes: int = 128 << 20
    max_acl_entries: int = 10_000
    max_identities: int = 128
    max_watches: int = 400_000
    max_watches_per_connection: int = 100_000
    max_multi_operations: int = 5_000
    max_set_watches: int = 25_000
    max_multi_read: int = 4 << 20
    compat: Compat = V3_9
    expire_clients_ahead: bool = True
    exact_deadlines: bool = False
    skip_acl: bool = False
    super_digest: str | None = None
    reconfig_enabled: bool = False
    sasl_users: dict[str, str] | None = None
    super_users: frozenset[str] = frozenset()
    x509: bool = False
    x509_super: str | None = None
    require_auth: frozenset[str] = frozenset()
    allow_failed_sasl: bool = False
    container_check_interval: int = 60_000
    container_never_used: int = 0
    container_max_per_minute: int = 10_000
    throttle_tokens: int = 0
    throttle_fill_time: int = 1
    throttle_fill_count: int = 1
    extended_types: bool = True
    enforce_quota: bool = False
    digest_enabled: bool = True
    digest_algorithm: str = "sha1"

    def __post_init__(self) -> None:
        if self.tick_time <= 0:
            raise ValueError(f"tickTime must be 1 ms or more, not {self.tick_time}")
        if self.min_session_timeout < 0:
            self.min_session_timeout = 2 * self.tick_time
        if self.max_session_timeout < 0:
            self.max_session_timeout = 20 * self.tick_time
        if self.min_session_timeout > self.max_session_timeout:
            raise ValueError(
                f"minSessionTimeout ({self.min_session_timeout}) must not be larger than "
                f"maxSessionTimeout ({self.max_session_timeout})"
            )

    def negotiate(self, requested: int) -> int:
        """Return the session timeout for a client that requests *requested* milliseconds."""
        return min(max(requested, self.min_session_timeout), self.max_session_timeout)
