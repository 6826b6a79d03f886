"""The rows of the history: one for each selected transaction, or one for repeated sets of a node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from ..protocol.hexadecimal import hexadecimal
from ..server.admin.history import HistoryEntry
from .source import Answer, Pace, truncated_text
from .wanted import HistoryFilter

MAX_CHANGES: Final = 200
"""Maximum number of changes that are shown of one transaction."""
CHANGES_PER_CHECK: Final = 1_000
"""Number of changes that are compared between two checks of the clock."""


class HistoryRows:
    """The rows of an answer about the history.

    Args:
        wanted: The filter.
        limit: Maximum number of rows.
        fold: Whether sets of a node by one session share a row, unless a different change of the node is in between.

    Attributes:
        rows: The rows, the latest first.
        last: The last entry that belongs to a row; None for an empty answer.
        is_full: Whether more rows than *limit* were found.
    """

    def __init__(self, wanted: HistoryFilter, limit: int, *, fold: bool) -> None:
        self.rows: list[Answer] = []
        self.last: HistoryEntry | None = None
        self.is_full = False
        self._wanted = wanted
        self._limit = limit
        self._fold = fold
        self._runs: dict[str, dict[int, Answer]] = {}  # by path and session: the row for further sets

    async def fill(self, entries: Iterable[HistoryEntry | None], pace: Pace) -> None:
        """Add the entries that the filter selects, in time slices, until the rows are full.

        Args:
            entries: Entries, the latest first; None is skipped.
            pace: The time slices.
        """
        for entry in entries:
            await pace.rest()
            if entry is None or not self._wanted.includes(entry):
                continue
            parts: list[Any] = []
            for start in range(0, len(entry.parts), CHANGES_PER_CHECK):
                parts += self._wanted.changes(entry.parts[start : start + CHANGES_PER_CHECK])[
                    : MAX_CHANGES - len(parts)
                ]
                if len(parts) == MAX_CHANGES:
                    break
                await pace.rest()
            if (parts or not self._wanted.needs_change()) and not self._add(entry, parts):
                self.is_full = True
                return

    def _add(self, entry: HistoryEntry, parts: list[Any]) -> bool:
        """Add an entry to the rows. Return False if the rows are full."""
        run = None
        if self._fold and entry.kind == "set":
            run = self._runs.setdefault(parts[0][1], {}).get(entry.session_id)
        elif len(parts) == MAX_CHANGES:
            self._runs.clear()
        else:
            for part in parts:
                self._runs.pop(part[1], None)
        if run is not None:
            run["times"] += 1
            run["first"] = entry.time
        elif len(self.rows) == self._limit:
            return False
        else:
            if len(entry.parts) <= MAX_CHANGES:  # a larger transaction is shown without its unwanted changes
                parts += [part for part in entry.parts if part not in parts]
            self.rows.append(_row(entry, parts))
            if self._fold and entry.kind == "set":
                self._runs[parts[0][1]][entry.session_id] = self.rows[-1]
        self.last = entry
        return True


def _row(entry: HistoryEntry, parts: list[Any]) -> Answer:
    return {
        "number": entry.number,
        "zxid": hexadecimal(entry.zxid) if entry.zxid else None,
        "time": entry.time,
        "first": entry.time,
        "times": 1,
        "session": hexadecimal(entry.session_id) if entry.session_id else None,
        "address": entry.address,
        "kind": entry.kind,
        "changes": [(op, truncated_text(path), size) for op, path, size in parts],
        "left_out": entry.left_out + len(entry.parts) - len(parts),
        "why": entry.why,
    }
