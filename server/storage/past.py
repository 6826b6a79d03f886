"""The transactions in the logs of a data directory, the last one first: what happened to a node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zoolet.protocol.codec import Record
from zoolet.server.core.journal import TYPES
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.txnlog import Log, LogEntry

Past = tuple[int, int, int, int, list[tuple[int, Record]]]
"""A transaction: its session, zxid, time in milliseconds since the epoch, type; op code and record of each change."""


def past(directory: DataDir, path: str | None, session_id: int | None, before: int, limit: int) -> list[Past]:
    """Return transactions of the logs, the last one first. All logs may be read, a second for 100,000 transactions.

    Args:
        directory: The files, as they are now; they may grow and be deleted meanwhile.
        path: Of this node only.
        session_id: Of this session only.
        before: Of zxids below this one only; 0 for all.
        limit: How many at most.

    Raises:
        OSError: A log cannot be read.
    """
    found: list[Past] = []
    for start in sorted(directory.logs, reverse=True):
        if before and start >= before:
            continue
        here: deque[Past] = deque(maxlen=limit - len(found))
        try:
            for entry in Log.open(directory.logs[start]):
                if (not before or entry.header.zxid < before) and _matches(entry, path, session_id):
                    header = entry.header
                    changes = [(TYPES[type(record)], record) for record in entry.records]
                    here.append((header.clientId, header.zxid, header.time, header.type, changes))
        except (StorageError, FileNotFoundError):  # what comes before the damage is shown; it was purged meanwhile
            pass
        found += reversed(here)
        if len(found) >= limit:
            break
    return found


def _matches(entry: LogEntry, path: str | None, session_id: int | None) -> bool:
    if not entry.records or (session_id is not None and entry.header.clientId != session_id):
        return False
    return path is None or any(path in _paths(record) for record in entry.records)


def _paths(record: Record) -> Iterable[str]:
    of_one = getattr(record, "path", None)
    return (of_one,) if of_one is not None else getattr(record, "paths2Delete", None) or ()
