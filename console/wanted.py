"""The filter of the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ..server.admin.history import HistoryEntry
from ..server.admin.lasting import ENDS

KINDS: Final[dict[str, frozenset[str]]] = {
    "create": frozenset({"create"}),
    "set": frozenset({"set"}),
    "delete": frozenset({"delete"}),
    "acl": frozenset({"set ACL"}),
    "start": frozenset({"opened", "resumed"}),
    "end": ENDS,
}
"""The kinds that a request can select, with the kinds of changes or entries that they contain."""


class HistoryFilter(NamedTuple):
    """The transactions that a request selects.

    Args:
        path: Only changes of this node; empty for all.
        below: Whether changes of the nodes below *path* are included.
        session_id: Only transactions of this session; None for all.
        kind: A key of :data:`KINDS`; empty for all.
        since: Only transactions at or after this time in milliseconds; 0 for all.
        until: Only transactions at or before this time in milliseconds; 0 for all.
    """

    path: str = ""
    below: bool = False
    session_id: int | None = None
    kind: str = ""
    since: int = 0
    until: int = 0

    def includes(self, entry: HistoryEntry) -> bool:
        """Return whether the entry itself is wanted, whatever its changes are."""
        return (
            self.session_id in (None, entry.session_id)
            and self.since <= entry.time
            and not 0 < self.until < entry.time
            and (self.kind not in ("start", "end") or entry.kind in KINDS[self.kind])
        )

    def changes(self, parts: Iterable[Any]) -> list[Any]:
        """Return the wanted changes of a transaction."""
        ops = KINDS[self.kind] if self.kind not in ("", "start", "end") else None
        path, below = self.path, self.path.rstrip("/") + "/" if self.below else None
        return [
            part
            for part in parts
            if (ops is None or part[0] in ops)
            and (not path or part[1] == path or (below is not None and part[1].startswith(below)))
        ]

    def needs_change(self) -> bool:
        """Return whether a transaction must have a wanted change."""
        return bool(self.path) or self.kind not in ("", "start", "end")

    def matches(self, entry: HistoryEntry) -> bool:
        """Return whether a transaction is wanted."""
        return self.includes(entry) and (not self.needs_change() or bool(self.changes(entry.parts)))
