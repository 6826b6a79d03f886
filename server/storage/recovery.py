"""The state of a server from a data directory: the newest snapshot that is valid, and what the logs have after it.

A snapshot is *fuzzy*: it may have effects of transactions that are later than its zxid. So a transaction of a log is
applied as far as the snapshot does not have it: a node that exists is not created again, and counters only grow.

Source: FileTxnSnapLog.restore, processTransaction; DataTree.processTxn.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from zoolet.protocol import paths
from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Node
from zoolet.server.core.tree import RESERVED
from zoolet.server.storage.directory import DataDir, Progress, no_progress
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import REPORT_EVERY, Snapshot, acl_of
from zoolet.server.storage.txnlog import LogEntry


@dataclass
class Recovered:
    """The result of a recovery.

    Args:
        zxid: The last zxid.
        snapshot_zxid: That of the snapshot; None without one.
        transactions: How many transactions of logs were applied.
        problems: What is wrong with snapshots and transactions that were not used.
    """

    zxid: int
    snapshot_zxid: int | None
    transactions: int
    problems: list[str]


def recover(
    engine: Engine, path: str | Path | DataDir, *, lenient: bool = False, progress: Progress = no_progress
) -> Recovered:
    """Load the state of a data directory into a new engine; nothing is written.

    Args:
        engine: The engine.
        path: The directory, or what was found in it.
        lenient: If there is no data, load nothing instead of raising an error.
        progress: Receives how far it is.

    Raises:
        StorageError: The directory, its snapshots or a log are not what they should be.
    """
    directory = path if isinstance(path, DataDir) else DataDir.find(path)
    if not lenient and not directory.snapshots and not directory.logs:
        raise StorageError(str(directory.path), "there are neither snapshots nor logs")
    now, monotonic_ms = engine.now, engine.monotonic_ms
    with _without_collection():
        snapshot = directory.snapshot(progress)
        if snapshot is not None:
            _load(engine, snapshot, progress)
        transactions = 0
        for entry in directory.entries(engine.zxid if snapshot is not None else -1):
            _apply(engine, entry)
            transactions += 1
            if not transactions % REPORT_EVERY:
                progress("transactions", transactions, 0)
    engine.set_time(now, monotonic_ms)
    _finish(engine)
    snapshot_zxid = None if snapshot is None else snapshot.zxid
    return Recovered(engine.zxid, snapshot_zxid, transactions, directory.problems)


def replace(engine: Engine, snapshot: Snapshot) -> None:
    """Replace the state of an engine that serves by that of a snapshot, and disconnect all clients."""
    engine.clear()
    with _without_collection():
        _load(engine, snapshot, no_progress)
    _finish(engine)


def load_tree(engine: Engine, snapshot: Snapshot) -> None:
    """Replace the tree of an engine by that of a snapshot, without the ephemeral nodes of sessions that have ended."""
    zxid = engine.zxid
    engine.clear_tree()
    _load_nodes(engine, snapshot, no_progress)
    _finish(engine)
    engine.zxid = zxid


def _finish(engine: Engine) -> None:
    """Delete the ephemeral nodes of sessions that are not there, and what malformed files have below them. Count what
    quotas limit.
    """
    tree = engine.tree
    for owner in [owner for owner in tree.ephemerals if owner not in engine.sessions.alive]:
        for node_path in list(tree.ephemerals[owner]):
            below = [path for path, _ in tree.walk(node_path)] if tree.get(node_path) is not None else []
            for path in reversed(below):
                tree.delete(path, tree.parent_of(path), engine.zxid)
        del tree.ephemerals[owner]
    engine.quota.recount_all()


@contextmanager
def _without_collection() -> Iterator[None]:
    """Do not collect garbage meanwhile: there is none, and searching a million nodes for it takes seconds."""
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
        acl = engine.acls.intern(acl_of(snapshot, stored.acl))
        node = Node(stored.data, acl, stored.owner, stored.czxid, stored.ctime)
        node.mzxid, node.mtime, node.pzxid = stored.mzxid, stored.mtime, stored.pzxid
        node.version, node.aversion, node.creates = stored.version, stored.aversion, stored.creates
        engine.tree.place(stored.path or "/", node)


def _apply(engine: Engine, entry: LogEntry) -> None:
    header = entry.header
    engine.zxid = max(engine.zxid, header.zxid)
    engine.set_time(header.time, engine.monotonic_ms)
    for record in entry.records:
        _apply_record(engine, record, header.clientId)


def _apply_record(engine: Engine, record: Record, session_id: int) -> None:
    tree = engine.tree
    if isinstance(record, t.CreateTxn | t.CreateContainerTxn | t.CreateTTLTxn):
        _apply_create(engine, record, session_id)
    elif isinstance(record, t.DeleteTxn):
        node, parent = tree.get(record.path), tree.get(record.path.rpartition("/")[0])
        pzxid = max(parent.pzxid, engine.zxid) if parent is not None else 0
        if node is not None and not node.children and record.path not in RESERVED:
            engine.apply(record, session_id)
        if parent is not None:
            tree.set_counters(parent, parent.creates, pzxid)
    elif isinstance(record, t.SetDataTxn | t.SetACLTxn):
        if tree.get(record.path) is not None:
            engine.apply(record, session_id)
    elif isinstance(record, t.CreateSessionTxn):
        engine.sessions.skip_id(session_id)
        if session_id not in engine.sessions.alive:
            engine.sessions.open(session_id, record.timeOut, engine.monotonic_ms)
    elif isinstance(record, t.CloseSessionTxn):
        engine.sessions.skip_id(session_id)
        for path in {**dict.fromkeys(record.paths2Delete), **dict.fromkeys(tree.ephemerals.get(session_id, ()))}:
            _apply_record(engine, t.DeleteTxn(path), session_id)
        if (session := engine.sessions.alive.get(session_id)) is not None:
            engine.sessions.close(session)


def _apply_create(engine: Engine, record: t.CreateTxn | t.CreateContainerTxn | t.CreateTTLTxn, session_id: int) -> None:
    tree = engine.tree
    if (problem := paths.path_error(record.path)) is not None:
        raise StorageError("", f"the log has the create of a node {record.path!r}, which is not a path: {problem}")
    parent = tree.get(record.path.rpartition("/")[0])
    if parent is None:
        return
    creates, pzxid = parent.creates, parent.pzxid
    if tree.get(record.path) is None:
        engine.apply(record, session_id)
    else:
        node = tree.find(record.path)
        tree.set_acl(node, engine.acls.intern(record.acl or ()), node.aversion)
    # A fuzzy snapshot may have counted this create already.
    count = creates + 1 if record.parentCVersion == -1 else record.parentCVersion
    tree.set_counters(parent, *((count, engine.zxid) if count > creates else (creates, pzxid)))
