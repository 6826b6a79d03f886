"""Snapshots of a server that keeps serving requests.

Like ZooKeeper, the server takes a snapshot incrementally, while the tree changes. All changes after the zxid of the
snapshot are in the log, and applying them again leads to the same state. The snapshot omits nodes that were created
after its zxid, because replaying the log creates them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..core.acls import NOBODY, SNAPSHOT_OPEN_KEY
from ..core.engine import Engine
from ..core.node import Node
from ..core.tree import Tree
from .snapshot import Snapshot, StoredNode


def snapshot_tables(engine: Engine) -> Snapshot:
    """Return a snapshot with the zxid, the sessions and the ACL lists of an engine, but without nodes.

    The ACL list with the highest key grants nothing. It is for nodes whose list is set after this call.
    """
    acls = engine.acls.lists()
    acls[max(acls, default=0) + 1] = NOBODY
    sessions = {session.id: session.timeout_ms for session in engine.sessions.alive.values()}
    return Snapshot(engine.zxid, [], sessions, acls)


def snapshot_nodes(tree: Tree, tables: Snapshot) -> Iterator[StoredNode]:
    """Yield the nodes that existed at the zxid of a snapshot, parents first. The tree may change during the iteration.

    Args:
        tree: The tree.
        tables: The zxid and the ACL lists, from :func:`snapshot_tables`.
    """
    acls, zxid, nobody = tables.acls, tables.zxid, max(tables.acls)
    yield _stored_node("", tree.root, acls, nobody)
    pending: list[tuple[str, Node, Iterator[str]]] = [("/", tree.root, iter(list(tree.root.children or ())))]
    while pending:
        prefix, parent, names = pending[-1]
        name = next(names, None)
        if name is None:
            pending.pop()
            continue
        node = parent.children.node(name) if parent.children else None
        if node is None or node.czxid > zxid:
            continue
        path = prefix + name
        yield _stored_node(path, node, acls, nobody)
        if node.children:
            pending.append((path + "/", node, iter(list(node.children))))


def _stored_node(path: str, node: Node, acls: Collection[int], nobody: int) -> StoredNode:
    key = (node.acl if node.acl in acls else nobody) if node.acl else SNAPSHOT_OPEN_KEY
    fields = (node.czxid, node.mzxid, node.ctime, node.mtime, node.version, node.creates, node.aversion)
    return StoredNode(path, node.data, key, *fields, node.owner, node.pzxid)


def take_snapshot(engine: Engine) -> Snapshot:
    """Return the whole state of an engine as a snapshot."""
    snapshot = snapshot_tables(engine)
    snapshot.nodes += snapshot_nodes(engine.tree, snapshot)
    return snapshot
