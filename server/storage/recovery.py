"""The recovery of a server's state from the newest usable snapshot in a data directory, and the logs after it.

Source: FileTxnSnapLog.restore, processTransaction.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...protocol import paths
from ...protocol.errors import BadArgumentsError
from ..core.engine import Engine
from ..core.node import restored_node
from ..core.ops.tolerant import apply_tolerantly
from .directory import DataDir, Progress, no_progress
from .errors import StorageError
from .snapshot import REPORT_EVERY, Snapshot, find_acl
from .txnlog import LogEntry


@dataclass
class RecoveryResult:
    """The result of a recovery.

    Args:
        zxid: The last zxid.
        snapshot_zxid: The zxid of the snapshot; None if no snapshot was used.
        transactions: Number of transactions that were applied from logs.
        problems: Descriptions of the snapshots and transactions that were not used.
    """

    zxid: int
    snapshot_zxid: int | None
    transactions: int
    problems: list[str]


def recover(
    engine: Engine, path: str | Path | DataDir, *, lenient: bool = False, progress: Progress = no_progress
) -> RecoveryResult:
    """Load the state of a data directory into a new engine. Nothing is written.

    Args:
        engine: The engine.
        path: The directory, or its files.
        lenient: Whether to accept a directory without data. Nothing is loaded from it.
        progress: A function that receives the progress.

    Raises:
        StorageError: The directory, a snapshot or a log is damaged or otherwise unusable.
        OSError: A file cannot be read.
    """
    directory = path if isinstance(path, DataDir) else DataDir.find(path)
    if not lenient and not directory.snapshots and not directory.logs:
        raise StorageError("", f"no snapshots or transaction logs in {directory.path}")
    now, monotonic_ms = engine.now, engine.monotonic_ms
    with _gc_disabled():
        snapshot = directory.snapshot(progress)
        if snapshot is not None:
            _load(engine, snapshot, progress)
        elif directory.logs:
            engine.zxid = 0
        transactions = 0
        if directory.logs:
            progress("transactions", 0, 0)
        for entry in directory.entries(0 if snapshot is None else snapshot.zxid):
            _apply(engine, entry)
            transactions += 1
            if not transactions % REPORT_EVERY:
                progress("transactions", transactions, 0)
    directory.check_complete(0 if snapshot is None and not directory.logs else engine.zxid)
    engine.set_time(now, monotonic_ms)
    _clean_up(engine)
    snapshot_zxid = None if snapshot is None else snapshot.zxid
    return RecoveryResult(engine.zxid, snapshot_zxid, transactions, directory.problems)


def replace(engine: Engine, snapshot: Snapshot) -> None:
    """Replace the state of a running engine with the state in a snapshot, and disconnect all clients."""
    engine.clear()
    with _gc_disabled():
        _load(engine, snapshot, no_progress)
    _clean_up(engine)


def load_tree(engine: Engine, snapshot: Snapshot) -> None:
    """Replace the tree of an engine with the tree in a snapshot. Skip ephemeral nodes whose sessions do not exist."""
    zxid = engine.zxid
    engine.clear_tree()
    _load_nodes(engine, snapshot, no_progress)
    _clean_up(engine)
    engine.zxid = zxid


def _clean_up(engine: Engine) -> None:
    """Delete the ephemeral nodes of sessions that do not exist, and recount the usage of all quotas.

    In malformed files, an ephemeral node may have children. They are deleted with the node.
    """
    tree = engine.tree
    for owner in [owner for owner in tree.ephemerals if owner not in engine.sessions.alive]:
        for node_path in list(tree.ephemerals[owner]):
            below = [path for path, _ in tree.walk(node_path)] if tree.get(node_path) is not None else []
            for path in reversed(below):
                tree.delete(path, paths.name(path), tree.parent_of(path), tree.find(path), engine.zxid)
        del tree.ephemerals[owner]
    engine.quota.recount_all()


@contextmanager
def _gc_disabled() -> Iterator[None]:
    """Disable the garbage collector in the block.

    Loading creates no garbage, and each collection would traverse a million nodes, which takes seconds.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(engine: Engine, snapshot: Snapshot, progress: Progress) -> None:
    _load_nodes(engine, snapshot, progress)
    for session_id, timeout in snapshot.sessions.items():
        engine.sessions.skip_id(session_id)
        engine.sessions.open(session_id, timeout, engine.monotonic_ms)
    engine.zxid = snapshot.zxid


def _load_nodes(engine: Engine, snapshot: Snapshot, progress: Progress) -> None:
    for number, stored in enumerate(snapshot.nodes):
        if not number % REPORT_EVERY:
            progress("nodes", number, len(snapshot.nodes))
        acl = engine.acls.intern(find_acl(snapshot, stored.acl))
        engine.tree.place(stored.path or "/", restored_node(stored.data, acl, *stored[3:]))


def _apply(engine: Engine, entry: LogEntry) -> None:
    header = entry.header
    try:
        apply_tolerantly(engine, header.zxid, header.time, header.clientId, entry.records)
    except BadArgumentsError as error:
        raise StorageError("", f"the log creates a node with the invalid path {error.path!r}: {error.detail}") from None
