"""Where releases of ZooKeeper differ in what a client can see: the only place that knows.

``V3_9`` is what zoolet is by default; ``V3_8`` answers byte for byte as 3.8.0 does (Debian's build of it, which filters
events by READ permission as 3.8.4 and 3.9.2 do).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Compat:
    """One release's side of each difference."""

    release: str
    event_zxid: bool
    """A notification carries the zxid of its transaction, not -1."""
    exists_needs_read: bool
    """exists on a node that the caller may not read is refused."""
    multi_answers_create2: bool
    """create2 inside a multi answers with its own result type and a Stat."""
    multi_checks_flags_first: bool
    """Unknown create flags inside a multi make the whole request undecodable, not the one operation fail."""
    undecodable_write_takes_zxid: bool
    """A write whose body does not decode uses up a zxid all the same."""
    watch_modes_coexist: bool
    """One connection may hold watches of several modes on one path; otherwise the last one set replaces the others."""
    watcher_types_4_and_5: bool
    """checkWatches and removeWatches know the persistent types."""
    check_watches_sees_others: bool
    """checkWatches also finds the watches of other connections."""
    ip6_acls: bool
    """Scheme ip takes IPv6 addresses."""
    delete_container_refused_with: int
    """What deleteContainer from a client is answered with; -6 also closes the connection."""
    null_watch_path_unchecked: bool
    """checkWatches on a null path does not decode; otherwise there is no such watch, or there is."""
    removal_ends_watching: bool
    """wchs and wchc leave out a connection whose last data watch was removed; one whose last has fired stays in."""
    predictable_passwords: bool
    """A session's password follows from its id. ZooKeeper does that in every release; here only 3.8 does."""


V3_9: Final = Compat("3.9.4", True, True, True, True, False, True, True, False, True, -6, False, True, False)
V3_8: Final = Compat("3.8.0", False, False, False, False, True, False, False, True, False, -8, True, False, True)
BY_NAME: Final = {"3.9": V3_9, "3.8": V3_8}
