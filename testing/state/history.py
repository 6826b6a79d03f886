"""Snapshots of a tree. Taking a snapshot is cheap, and restoring it takes time proportional to the changes since.

After the start of a history, each change of the tree adds an undo record. A snapshot is a position in the history.
Undoing changes returns records that redo the changes, so every snapshot can be reached from every other snapshot::

    start --undo records--> populated --undo records--> current
                                +------ undo records--> another snapshot
"""

from __future__ import annotations

from ...protocol import paths
from ...server.core.engine import Engine
from ...server.core.tree import UndoRecord


class TreeSnapshot:
    """A state of the tree that its server can restore.

    Args:
        history: The history that contains the snapshot.
        before: The previous snapshot, or None for the start.
    """

    __slots__ = ("before", "history", "undo_records")

    def __init__(self, history: TreeHistory, before: TreeSnapshot | None) -> None:
        self.history = history
        self.before = before
        self.undo_records: list[UndoRecord] = []
        """While the tree is at this snapshot or later, the records that lead to ``before``. Otherwise the records that
        lead from ``before`` to this snapshot.
        """


class TreeHistory:
    """The history of an engine's tree, which starts when this object is created.

    Args:
        engine: The engine. The history makes it keep all ACL lists, because deleted nodes may be restored.

    Attributes:
        start: The snapshot at the start of the history.
        current: The last snapshot. The tree may have changed since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.acls.keep = True
        engine.tree.packs = False
        engine.tree.begin()
        self.current = TreeSnapshot(self, None)
        self.start = self.current

    def snapshot(self) -> TreeSnapshot:
        """Return a snapshot of the current tree. Until the tree changes, this is the same object."""
        undo_records = self._engine.tree.pop_undo_records()
        if undo_records:
            current = TreeSnapshot(self, self.current)
            current.undo_records = undo_records
            self.current = current
        return self.current

    def restore_to(self, target: TreeSnapshot) -> None:
        """Restore the tree of a snapshot, without the ephemeral nodes of sessions that are no longer alive.

        Raises:
            ValueError: The snapshot belongs to a different server, or to an earlier start of this one.
        """
        if target.history is not self:
            raise ValueError("the snapshot belongs to a different server, or to an earlier start of this one")
        self.snapshot()
        tree = self._engine.tree
        path = _path_from_start(target)
        while self.current not in path:
            self.current.undo_records = tree.undo(self.current.undo_records)
            assert self.current.before is not None
            self.current = self.current.before
        for snapshot in path[path.index(self.current) + 1 :]:
            snapshot.undo_records = tree.undo(snapshot.undo_records)
            self.current = snapshot
        self._drop_orphaned_ephemerals()
        self._engine.quota.reload()

    def _drop_orphaned_ephemerals(self) -> None:
        """Delete the ephemeral nodes of sessions that are not alive, without events. The history records the change."""
        tree = self._engine.tree
        for owner in [owner for owner in tree.ephemerals if owner not in self._engine.sessions.alive]:
            for path in list(tree.ephemerals[owner]):
                tree.delete(path, paths.name(path), tree.parent_of(path), tree.find(path), self._engine.zxid)
            tree.ephemerals.pop(owner, None)


def _path_from_start(snapshot: TreeSnapshot) -> list[TreeSnapshot]:
    path = [snapshot]
    while (before := path[-1].before) is not None:
        path.append(before)
    return path[::-1]
