"""The differences between releases of ZooKeeper that a client can see. No other module compares releases.

``V3_9`` is the default. ``V3_8`` produces the same bytes as 3.8.0 in Debian's build, which filters events by READ
permission like 3.8.4 and 3.9.2.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Compat(NamedTuple):
    """The behaviour of one release of ZooKeeper. A flag is True if the sentence below it is true of the release."""

    release: str
    event_zxid: bool
    """A notification carries the zxid of its transaction, not -1."""
    exists_needs_read: bool
    """exists is rejected for a node that the client may not read."""
    multi_answers_create2: bool
    """The result of create2 inside a multi has type create2 and contains a Stat. Otherwise it has type create."""
    multi_checks_flags_first: bool
    """Unknown create flags inside a multi make the whole request undecodable. Otherwise only that operation fails."""
    undecodable_write_takes_zxid: bool
    """A write whose body cannot be decoded uses up a zxid."""
    null_path_in_multi_skips_zxid: bool
    """A multi with a null path skips a zxid: its reply carries the previous zxid and an empty list of results."""
    watch_modes_coexist: bool
    """A connection can have watches of several modes on one path.

    Otherwise a new watch replaces all earlier watches.
    """
    watcher_types_4_and_5: bool
    """checkWatches and removeWatches support the types of persistent watches (4) and recursive watches (5)."""
    check_watches_sees_others: bool
    """checkWatches also finds the watches of other connections."""
    ip6_acls: bool
    """Scheme ip accepts IPv6 addresses."""
    delete_container_refused_with: int
    """The error code in reply to a client's deleteContainer (-6 also closes the connection)."""
    null_watch_path_is_malformed: bool
    """checkWatches with a null path fails with MarshallingError. Otherwise null is looked up like any other path."""
    removal_ends_watching: bool
    """wchs and wchc omit a connection after its last data watch was removed, but not after its last watch has fired."""
    predictable_passwords: bool
    """Session passwords are computed from session ids, as in all releases of ZooKeeper."""
    counts_restores: bool
    """mntr counts snapshots and restores that an operator requested."""


V3_9: Final = Compat(
    "3.9.4",
    event_zxid=True,
    exists_needs_read=True,
    multi_answers_create2=True,
    multi_checks_flags_first=True,
    undecodable_write_takes_zxid=False,
    null_path_in_multi_skips_zxid=False,
    watch_modes_coexist=True,
    watcher_types_4_and_5=True,
    check_watches_sees_others=False,
    ip6_acls=True,
    delete_container_refused_with=-6,
    null_watch_path_is_malformed=False,
    removal_ends_watching=True,
    predictable_passwords=False,
    counts_restores=True,
)
V3_8: Final = Compat(
    "3.8.0",
    event_zxid=False,
    exists_needs_read=False,
    multi_answers_create2=False,
    multi_checks_flags_first=False,
    undecodable_write_takes_zxid=True,
    null_path_in_multi_skips_zxid=True,
    watch_modes_coexist=False,
    watcher_types_4_and_5=False,
    check_watches_sees_others=True,
    ip6_acls=False,
    delete_container_refused_with=-8,
    null_watch_path_is_malformed=True,
    removal_ends_watching=False,
    predictable_passwords=True,
    counts_restores=False,
)
NEWEST: Final = "3.9"
BY_NAME: Final = {NEWEST: V3_9, "3.8": V3_8}
