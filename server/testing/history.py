"""Snapshots of a tree that cost nothing to take, and as much to go back to as was changed since.

From the start of a history on, each change of the tree leaves an undo record. A snapshot is a place in the history;
undoing returns the records that redo, so that every snapshot can be reached from every other, backwards and forwards::

    start --undo records--> populated --undo records--> current
                                +------ undo records--> another snapshot
"""

from __future__ import annotations

from zoolet.server.core.engine import Engine
from zoolet.server.core.tree import UndoRecord


class Snapshot:
    """The tree as it was at some time. It belongs to the server that made it.

    Args:
        history: What made it.
        before: The snapshot before it; None for the start.
    """

    __slots__ = ("before", "history", "undo_records")

    def __init__(self, history: History, before: Snapshot | None) -> None:
        self.history = history
        self.before = before
        self.undo_records: list[UndoRecord] = []
        """While the tree is at this place or beyond, how to get to ``before``; otherwise how to get here from it."""


class History:
    """The history of an engine's tree, from the moment this is made.

    Args:
        engine: Whose tree it is. Its ACL lists are kept for good from now on, because nodes may come back.

    Attributes:
        start: The snapshot of the tree when the history began.
        current: The last place that the tree has reached; it may have changed since.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.acls.keep = True
        engine.tree.begin()
        self.current = Snapshot(self, None)
        self.start = self.current

    def take(self) -> Snapshot:
        """Return a snapshot of the tree as it is; the same one as long as nothing changes."""
        undo_records = self._engine.tree.pop_undo_records()
        if undo_records:
            current = Snapshot(self, self.current)
            current.undo_records = undo_records
            self.current = current
        return self.current

    def restore_to(self, target: Snapshot) -> None:
        """Make the tree what it was; ephemeral nodes of sessions that have ended since do not come back.

        Raises:
            ValueError: It is a snapshot of another server.
        """
        if target.history is not self:
            raise ValueError("this snapshot was taken of another server")
        self.take()
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
        """Remove the ephemeral nodes of sessions that have ended, without events; this is part of the history, too."""
        tree = self._engine.tree
        for owner in [owner for owner in tree.ephemerals if owner not in self._engine.sessions.alive]:
            for path in list(tree.ephemerals[owner]):
                tree.delete(path, self._engine.zxid)


def _path_from_start(snapshot: Snapshot) -> list[Snapshot]:
    path = [snapshot]
    while (before := path[-1].before) is not None:
        path.append(before)
    return path[::-1]
