"""The filter that selects transactions of the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from ..server.admin.history import HistoryEntry
from ..server.admin.lasting import SESSION_ENDS

KINDS: Final[dict[str, frozenset[str]]] = {
    "create": frozenset({"create"}),
    "set": frozenset({"set"}),
    "delete": frozenset({"delete"}),
    "acl": frozenset({"set ACL"}),
    "start": frozenset({"opened", "resumed"}),
    "end": SESSION_ENDS,
}
"""The kinds that a request can select, with the kinds of changes or entries that they contain."""


class HistoryFilter(NamedTuple):
    """The transactions that a request selects.

    Args:
        path: The node whose changes are selected; empty for all nodes.
        below: Whether changes of the nodes below *path* are also selected.
        session_id: The session whose transactions are selected; None for all sessions.
        kind: The key of :data:`KINDS` that is selected; empty for all kinds.
        since: The earliest selected time in milliseconds since the epoch; 0 for no limit.
        until: The latest selected time in milliseconds since the epoch; 0 for no limit.
    """

    path: str = ""
    below: bool = False
    session_id: int | None = None
    kind: str = ""
    since: int = 0
    until: int = 0

    def includes(self, entry: HistoryEntry) -> bool:
        """Return whether the filter accepts an entry, apart from its changes."""
        return (
            self.session_id in (None, entry.session_id)
            and self.since <= entry.time
            and not 0 < self.until < entry.time
            and (self.kind not in ("start", "end") or entry.kind in KINDS[self.kind])
        )

    def changes(self, parts: Iterable[Any]) -> list[Any]:
        """Return the changes of a transaction that the filter selects."""
        ops = KINDS[self.kind] if self.kind not in ("", "start", "end") else None
        path, below = self.path, self.path.rstrip("/") + "/" if self.below else None
        return [
            part
            for part in parts
            if (ops is None or part[0] in ops)
            and (not path or part[1] == path or (below is not None and part[1].startswith(below)))
        ]

    def needs_change(self) -> bool:
        """Return whether the filter accepts only transactions with a selected change."""
        return bool(self.path) or self.kind not in ("", "start", "end")

    def matches(self, entry: HistoryEntry) -> bool:
        """Return whether the filter accepts a transaction."""
        return self.includes(entry) and (not self.needs_change() or bool(self.changes(entry.parts)))
