"""Snapshots of a tree that cost nothing to take, and as much to go back to as was changed since.

While a journal is on, each change leaves a note of how to undo it. A snapshot is a place in the history; undoing yields
the notes to do it again, so that every snapshot can be reached from every other, backwards and forwards::

    pristine --notes--> populated --notes--> now
                             +------notes--> some other time
"""

from __future__ import annotations

from zoolet.server.core.engine import Engine
from zoolet.server.core.tree import UndoRecord


class Snapshot:
    """The tree as it was at some time. It belongs to the server that made it.

    Args:
        journal: Who made it.
        before: The place in history from which its notes lead.
    """

    __slots__ = ("before", "history", "undo_records")

    def __init__(self, history: History, before: Snapshot | None) -> None:
        self.history = history
        self.before = before
        self.undo_records: list[UndoRecord] = []
        """While the tree is at this place or beyond, how to get to ``before``; otherwise how to get here from there."""


class History:
    """The history of an engine's tree, from the moment this is made.

    Args:
        engine: Whose tree it is. Its ACL lists are kept for good from now on, for nodes may come back.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        engine.acls.keep = True
        engine.tree.begin()
        self.current = Snapshot(self, None)
        self.start = self.current

    def take(self) -> Snapshot:
        """Return the present place in history; as long as nothing changes it is the same."""
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
        way = _back_to_the_start(target)
        while self.current not in way:
            self.current.undo_records = tree.undo(self.current.undo_records)
            assert self.current.before is not None
            self.current = self.current.before
        for place in reversed(way[: way.index(self.current)]):
            place.undo_records = tree.undo(place.undo_records)
            self.current = place
        self._drop_orphaned_ephemerals()
        self._engine.quota.reload()

    def _drop_orphaned_ephemerals(self) -> None:
        """Remove the ephemeral nodes of sessions that are no more, without a word; that is history, too."""
        tree = self._engine.tree
        for owner in [owner for owner in tree.ephemerals if owner not in self._engine.sessions.alive]:
            for path in list(tree.ephemerals[owner]):
                tree.delete(path, self._engine.zxid)


def _back_to_the_start(place: Snapshot) -> list[Snapshot]:
    way = [place]
    while (before := way[-1].before) is not None:
        way.append(before)
    return way
