"""The history of a node or session, from the logs of a data directory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ..core.journal import Transaction, node_changes
from .directory import DataDir
from .errors import StorageError
from .txnlog import Log

MAX_BYTES: Final = 16 << 20
"""Approximate maximum size in bytes of the transactions of one answer, in memory."""
CHANGE_BYTES: Final = 200
"""Approximate size of a change in bytes, without its path."""


def past(
    directory: DataDir,
    path: str | None,
    session_id: int | None,
    before: int,
    limit: int,
    matches: Callable[[Transaction], object] = lambda transaction: True,
) -> list[Transaction]:
    """Return transactions from the logs, the last one first.

    This may read all logs, which takes about a second per 100,000 transactions. While it runs, files may grow or be
    deleted.

    Args:
        directory: The files of the data directory.
        path: Return only transactions that change this node; None for all nodes.
        session_id: Return only transactions of this session; None for all sessions.
        before: Return only transactions with a lower zxid; 0 for all.
        limit: The maximum number of transactions. Fewer are returned if they would use more than :data:`MAX_BYTES`.
        matches: A function that returns whether to return a transaction.

    Raises:
        OSError: A log cannot be read.
    """
    found: list[Transaction] = []
    kept, is_full = 0, False
    for start in sorted(directory.logs, reverse=True):
        if before and start >= before:
            continue
        here: deque[Transaction] = deque()
        try:
            for entry in Log.open(directory.logs[start]):
                header = entry.header
                if (before and header.zxid >= before) or session_id not in (None, header.clientId):
                    continue
                changes = node_changes(entry.records)
                if entry.records and (path is None or any(each[1] == path for each in changes)):
                    transaction = header.clientId, header.cxid, header.zxid, header.time, header.type, changes
                    if not matches(transaction):
                        continue
                    here.append(transaction)
                    kept += _size_in_memory(here[-1])
                    is_full |= kept > MAX_BYTES
                    while here and (len(found) + len(here) > (1 if kept > MAX_BYTES else limit)):
                        kept -= _size_in_memory(here.popleft())
        except (StorageError, FileNotFoundError):  # keep the transactions before damage, and skip a purged log
            pass
        found += reversed(here)
        if len(found) >= limit or is_full:
            break
    return found


def _size_in_memory(transaction: Transaction) -> int:
    return sum(CHANGE_BYTES + len(path) for _, path, _ in transaction[5])
