"""The tolerant replay of transactions on a tree that may already contain some of their effects.

A snapshot that was written while its tree changed is *fuzzy*: it may contain effects of transactions after its zxid. So
only the missing effects of these transactions are applied: an existing node is not created again, and counters never
decrease.

Source: DataTree.processTxn.
"""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol import paths
from ....protocol import txns as t
from ....protocol.codec import Record
from ....protocol.errors import BadArgumentsError
from ..engine import Engine
from ..tree import RESERVED


def apply_tolerantly(engine: Engine, zxid: int, time: int, session_id: int, changes: Iterable[Record]) -> None:
    """Apply those effects of a transaction that the tree does not contain yet.

    A change of a node that does not exist is skipped, and so is a create below a parent that does not exist.

    Args:
        engine: The engine whose tree and sessions are changed.
        zxid: The zxid of the transaction.
        time: The time of the transaction in milliseconds since the epoch.
        session_id: The session that made the request.
        changes: The changes of the transaction.

    Raises:
        BadArgumentsError: A path of a new node is not valid.
    """
    engine.zxid = max(engine.zxid, zxid)
    engine.set_time(time, engine.monotonic_ms)
    for record in changes:
        _apply(engine, record, session_id)


def _apply(engine: Engine, record: Record, session_id: int) -> None:
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
            _apply(engine, t.DeleteTxn(path), session_id)
        if (session := engine.sessions.alive.get(session_id)) is not None:
            engine.sessions.close(session)


def _apply_create(engine: Engine, record: t.CreateTxn | t.CreateContainerTxn | t.CreateTTLTxn, session_id: int) -> None:
    tree = engine.tree
    if (problem := paths.path_error(record.path)) is not None:
        raise BadArgumentsError(record.path, problem)
    parent = tree.get(record.path.rpartition("/")[0])
    if parent is None:
        return
    creates, pzxid = parent.creates, parent.pzxid
    if tree.get(record.path) is None:
        engine.apply(record, session_id)
    else:
        node = tree.find(record.path)
        before = node.acl
        tree.set_acl(node, engine.acls.intern(record.acl or ()), node.aversion)
        engine.acls.release(before)
    # A fuzzy snapshot may already have counted this create.
    count = creates + 1 if record.parentCVersion == -1 else record.parentCVersion
    tree.set_counters(parent, *((count, engine.zxid) if count > creates else (creates, pzxid)))
