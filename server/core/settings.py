"""The settings of the core. ``server/config/`` reads them from files and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from zoolet.protocol.enums import MAX_FRAME
from zoolet.server.core.compat import V3_9, Compat


@dataclass(slots=True)
class Settings:
    """All times are milliseconds, all sizes bytes.

    Args:
        tick_time: Session deadlines are rounded up to multiples of this.
        min_session_timeout: Default twice ``tick_time``.
        max_session_timeout: Default twenty times ``tick_time``.
        max_frame: ``jute.maxbuffer``; a longer request closes its connection.
        sessionless_timeout: A connection that has not opened or resumed a session by then is closed.
        max_output_per_turn: A connection's replies in one turn; when they exceed it, the others are served first.
        max_unread_bytes: Events that may be buffered for a client that does not read before it is disconnected.
        max_unread_bytes_total: The same for the replies and events of all such clients together.
        max_partial_request_bytes: Bytes of incomplete requests that may be buffered for all connections together.
        max_acl_entries: Entries of one ACL list, once ``auth`` is replaced by the client's identities; their total size
            is limited by ``max_frame``.
        max_identities: Identities that one connection may have.
        max_watches: Watches that all connections may have together; one on a path of more than 128 characters counts
            as several, one for each 128.
        max_watches_per_connection: The same for one connection.
        max_multi_operations: Operations of one multi or multiRead, which cannot be interrupted.
        max_set_watches: Watches of one setWatches request; the Java client sends 128 kB at a time, which is less.
        max_multi_read: Bytes of the results of one multiRead.
        compat: The release of ZooKeeper whose behaviour to reproduce.
        expire_clients_ahead: The tree was empty at the start, so a client that resumes a session from before the start
            is answered that it has expired, rather than disconnected for having seen a higher zxid each time it
            connects, as ZooKeeper does.
        exact_deadlines: Do not round the deadlines of sessions up to whole ticks: for a clock that is moved by hand.
        skip_acl: Grant all permissions to everyone.
        super_digest: ``user:hash`` of the super user, who has all permissions.
        reconfig_enabled: Answer reconfig as the only voter of an ensemble would; otherwise it is refused.
        sasl_users: The password of each user that may log in with SASL DIGEST-MD5; None if SASL is disabled.
        super_users: The SASL users that have all permissions.
        x509: Certificates of clients are identities: connections are over TLS.
        x509_super: Whose certificate has all permissions, as a distinguished name; None for nobody's.
        require_auth: A connection must authenticate with one of these schemes before anything else; empty for no such
            requirement.
        allow_failed_sasl: Keep a connection whose SASL login failed, without a SASL identity.
        container_check_interval: The interval between two searches for container and TTL nodes that are due.
        container_never_used: The age at which a container that never had a child is deleted, too; 0 for never.
        container_max_per_minute: The most container and TTL nodes that are deleted in a minute.
        throttle_tokens: Sessions that may be opened in one burst before connections are refused; 0 for no limit.
        throttle_fill_time: The interval between two refills of the tokens.
        throttle_fill_count: Tokens in a refill.
        extended_types: Support TTL nodes; containers are always supported.
        enforce_quota: Refuse writes that exceed a hard limit.
        digest_enabled: Accept logins with scheme ``digest``.
        digest_algorithm: The hash of scheme ``digest``; a name of ``hashlib``.
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
    max_multi_read: int = 16 << 20
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
            raise ValueError(f"tickTime is {self.tick_time}; it must be above 0 milliseconds")
        if self.min_session_timeout < 0:
            self.min_session_timeout = 2 * self.tick_time
        if self.max_session_timeout < 0:
            self.max_session_timeout = 20 * self.tick_time
        if self.min_session_timeout > self.max_session_timeout:
            raise ValueError(
                f"minSessionTimeout {self.min_session_timeout} must not be larger than "
                f"maxSessionTimeout {self.max_session_timeout}"
            )

    def negotiate(self, requested: int) -> int:
        """Return the session timeout for a client that asks for *requested* milliseconds."""
        return min(max(requested, self.min_session_timeout), self.max_session_timeout)
