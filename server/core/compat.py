"""The differences between releases of ZooKeeper that a client can see; no other module compares releases.

``V3_9`` is the default; ``V3_8`` answers byte for byte as 3.8.0 does (Debian's build of it, which filters events by
READ permission as 3.8.4 and 3.9.2 do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Compat:
    """The behaviour of one release; True where the sentence holds for it."""

    release: str
    event_zxid: bool
    """A notification carries the zxid of its transaction, not -1."""
    exists_needs_read: bool
    """exists on a node that the client may not read is refused."""
    multi_answers_create2: bool
    """create2 inside a multi answers with its own result type and a Stat."""
    multi_checks_flags_first: bool
    """Unknown create flags inside a multi make the whole request undecodable, not the one operation fail."""
    undecodable_write_takes_zxid: bool
    """A write whose body does not decode takes a zxid nevertheless."""
    watch_modes_coexist: bool
    """One connection may have watches of several modes on one path; otherwise the last one set replaces the others."""
    watcher_types_4_and_5: bool
    """checkWatches and removeWatches support the persistent types."""
    check_watches_sees_others: bool
    """checkWatches also finds the watches of other connections."""
    ip6_acls: bool
    """Scheme ip accepts IPv6 addresses."""
    delete_container_refused_with: int
    """The error code that answers a client's deleteContainer; -6 also closes the connection."""
    null_watch_path_unchecked: bool
    """checkWatches on a null path does not decode; otherwise null is looked up as any other path."""
    removal_ends_watching: bool
    """wchs and wchc omit a connection whose last data watch was removed, but not one whose last has fired."""
    predictable_passwords: bool
    """A session's password is computed from its id. All releases of ZooKeeper do that; zoolet does only as 3.8."""
    counts_restores: bool
    """The figures of mntr have those of snapshots and restores that an operator asks for."""


V3_9: Final = Compat(
    "3.9.4",
    event_zxid=True,
    exists_needs_read=True,
    multi_answers_create2=True,
    multi_checks_flags_first=True,
    undecodable_write_takes_zxid=False,
    watch_modes_coexist=True,
    watcher_types_4_and_5=True,
    check_watches_sees_others=False,
    ip6_acls=True,
    delete_container_refused_with=-6,
    null_watch_path_unchecked=False,
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
    watch_modes_coexist=False,
    watcher_types_4_and_5=False,
    check_watches_sees_others=True,
    ip6_acls=False,
    delete_container_refused_with=-8,
    null_watch_path_unchecked=True,
    removal_ends_watching=False,
    predictable_passwords=True,
    counts_restores=False,
)
BY_NAME: Final = {"3.9": V3_9, "3.8": V3_8}
