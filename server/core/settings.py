"""What the core can be told. Files, environment and command line are read elsewhere (``server/config.py``)."""

from __future__ import annotations

from dataclasses import dataclass

from zoolet.protocol.enums import MAX_FRAME
from zoolet.server.core.compat import V3_9, Compat


@dataclass(slots=True)
class Settings:
    """All times are milliseconds, all sizes bytes.

    Args:
        tick_time: Sessions end on multiples of this.
        min_session_timeout: Default twice ``tick_time``.
        max_session_timeout: Default twenty times ``tick_time``.
        max_frame: ``jute.maxbuffer``; a longer request closes its connection.
        sessionless_timeout: A connection that has not said who it is by then is closed.
        max_output_per_turn: A connection's replies in one turn; when they exceed it, others get their turn first.
        max_write_buffer: Events that may wait for one client to read them before it is disconnected.
        max_write_buffer_total: The same for the replies and events of all clients that do not read.
        max_partial_requests: Bytes of unfinished requests that may be kept for all connections together.
        max_acl_entries: Entries of one ACL list, once ``auth`` is replaced by the identities it stands for; they may
            have ``jute.maxbuffer`` bytes together.
        max_identities: Identities that one connection may have.
        max_watches: Watches that all connections may have together; one on a path of more than 128 characters counts
            as several, one for each 128.
        max_watches_per_connection: The same for one connection.
        max_multi_operations: Operations of one multi or multiRead, which nothing can interrupt.
        max_set_watches: Watches of one setWatches request; Java's client sends 128 kB at a time, which is less.
        max_multi_read: Bytes of the results of one multiRead.
        compat: Whose bytes to answer with.
        expire_clients_ahead: The tree was empty at the start, so a client that resumes a session from before it is
            told that it expired, rather than cut off for being ahead, again and again (ZooKeeper does that).
        exact_deadlines: Do not round the deadlines of sessions up to whole ticks: for a clock that is moved by hand.
        skip_acl: Let everybody do everything.
        super_digest: ``user:hash`` whose owner may do everything.
        reconfig_enabled: Answer reconfig as the only voter of an ensemble would; otherwise it is refused.
        sasl_users: The password of each user that may log in with SASL DIGEST-MD5; None where there is no SASL.
        super_users: SASL users who may do everything.
        require_auth: Schemes of which a connection must have proved one before it may do anything else.
        allow_failed_sasl: Keep a connection whose SASL login failed, as nobody in particular.
        container_check_interval: Between two looks for container and TTL nodes that are due.
        container_never_used: After this a container that never had a child goes too; 0 for never.
        container_max_per_minute: Container and TTL nodes deleted in a minute at the most.
        throttle_tokens: Sessions that may be opened at once before clients are turned away; 0 for no limit.
        throttle_fill_time: Between two refills of the tokens.
        throttle_fill_count: Tokens in a refill.
        extended_types: Offer TTL nodes; containers are always offered.
        enforce_quota: Refuse writes that exceed a hard limit.
        digest_enabled: Accept logins with scheme ``digest``.
        digest_algorithm: How scheme ``digest`` hashes; a name of ``hashlib``.
    """

    tick_time: int = 2000
    min_session_timeout: int = -1
    max_session_timeout: int = -1
    max_frame: int = MAX_FRAME
    sessionless_timeout: int = 10_000
    max_output_per_turn: int = 256 << 10
    max_write_buffer: int = 64 << 20
    max_write_buffer_total: int = 96 << 20
    max_partial_requests: int = 128 << 20
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

    def negotiate(self, wanted: int) -> int:
        """Return the session timeout for a client that wants *wanted* milliseconds."""
        return min(max(wanted, self.min_session_timeout), self.max_session_timeout)
