"""Snapshots of a tree: one costs nothing, and restoring it costs as much as the changes since.

From the start of a history on, each change of the tree adds an undo record. A snapshot is a position in the history;
undoing returns the records that redo, so that every snapshot can be reached from every other::

    start --undo records--> populated --undo records--> current
                                +------ undo records--> another snapshot
"""

from __future__ import annotations

from zoolet.server.core.engine import Engine
from zoolet.server.core.tree import UndoRecord


class Snapshot:
    """A state of the tree to which its server can return.

    Args:
        history: The history to which it belongs.
        before: The snapshot before it; None for the start.
    """

    __slots__ = ("before", "history", "undo_records")

    def __init__(self, history: History, before: Snapshot | None) -> None:
        self.history = history
        self.before = before
        self.undo_records: list[UndoRecord] = []
        """The records that lead to ``before`` while the tree is at this snapshot or later; otherwise those that lead
        here from ``before``.
        """


class History:
    """The history of an engine's tree, from its creation on.

    Args:
        engine: The engine. From now on it keeps all ACL lists, because deleted nodes may be restored.

    Attributes:
        start: The snapshot of the tree at the beginning.
        current: The last snapshot; the tree may have changed since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.acls.keep = True
        engine.tree.begin()
        self.current = Snapshot(self, None)
        self.start = self.current

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the present tree; the same one while nothing changes."""
        undo_records = self._engine.tree.pop_undo_records()
        if undo_records:
            current = Snapshot(self, self.current)
            current.undo_records = undo_records
            self.current = current
        return self.current

    def restore_to(self, target: Snapshot) -> None:
        """Restore the tree of a snapshot, without the ephemeral nodes of sessions that have ended since.

        Raises:
            ValueError: The snapshot is of another server.
        """
        if target.history is not self:
            raise ValueError("this snapshot was taken of another server")
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
        """Delete the ephemeral nodes of sessions that have ended, without events; this is part of the history, too."""
        tree = self._engine.tree
        for owner in [owner for owner in tree.ephemerals if owner not in self._engine.sessions.alive]:
            for path in list(tree.ephemerals[owner]):
                tree.delete(path, tree.parent_of(path), self._engine.zxid)
            tree.ephemerals.pop(owner, None)


def _path_from_start(snapshot: Snapshot) -> list[Snapshot]:
    path = [snapshot]
    while (before := path[-1].before) is not None:
        path.append(before)
    return path[::-1]
