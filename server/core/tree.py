"""The tree of nodes: the only place where a node changes.

A node hangs in the ``children`` of its parent and nowhere else, so a million nodes cost one dictionary entry each and a
name, not a path. Looking a path up means walking it; what was found is kept in ``path_cache`` until it is deleted or
the memo is full.

The tree knows nothing of sessions' rights, watches or versions to expect: whoever calls a mutator has checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from zoolet.protocol.errors import NoNodeError
from zoolet.server.core.node import Children, Node, OwnedPaths, int32

UndoRecord = tuple[Callable[..., "UndoRecord"], *tuple[Any, ...]]
"""How to undo one change: a function of this module and its arguments. It returns the note that does it again."""

_MEMO: Final = 1 << 16
"""Paths kept in ``path_cache``; about 10 MB when full."""

ROOT: Final = "/"
ZOOKEEPER: Final = "/zookeeper"
QUOTA: Final = "/zookeeper/quota"
CONFIG: Final = "/zookeeper/config"
RESERVED: Final = frozenset({ROOT, ZOOKEEPER, QUOTA, CONFIG})
"""The nodes that every tree has and nobody can delete."""


class Tree:
    """All nodes, from the root down.

    Args:
        config_acl: The ACL key of ``/zookeeper/config``.
    """

    def __init__(self, config_acl: int = 0) -> None:
        self.root = Node(b"", 0, 0, 0, 0)
        self.size = 4
        """Nodes in the tree, the root included."""
        self.data_size = 0
        """Bytes of all paths and data."""
        self.ephemerals: dict[int, OwnedPaths] = {}
        """Each session's ephemeral paths, in order of creation."""
        self.expiring: dict[str, Node] = {}
        """Container and TTL nodes by path: what the server itself deletes some day."""
        self.path_cache: dict[str, Node] = {}
        """Some nodes by path: those that were looked up last. A miss means nothing."""
        self._counts_below = False  # whether Children.below is kept up to date
        self._undo: list[UndoRecord] | None = None
        self._begun: list[int] = []  # where in _undo each transaction began, the outermost first
        for path in (ZOOKEEPER, QUOTA, CONFIG):
            # These were never "created": the counters of their parents stay at 0, as on a fresh ZooKeeper.
            parent_path, _, name = path.rpartition("/")
            parent = self.find(parent_path)
            parent.children = parent.children or Children()
            parent.children[name] = Node(b"", 0, 0, 0, 0)
            self.data_size += len(path)
        config = self.find(CONFIG)
        config.acl, config.aversion = config_acl, -1

    # --- looking ---

    def find(self, path: str) -> Node:
        """Return the node at exactly this path; the empty string is the root too.

        Raises:
            NoNodeError: There is none, which goes for every malformed path.

        Source: DataTree.getNode; NodeHashMapImpl.
        """
        node = self.path_cache.get(path)
        return node if node is not None else self._walk(path)

    def get(self, path: str) -> Node | None:
        """Return the node at exactly this path, or None."""
        try:
            return self.find(path)
        except NoNodeError:
            return None

    def _walk(self, path: str) -> Node:
        found = self.path_cache
        head, slash, name = path.rpartition("/")
        node: Node | None = self.root
        if path in ("", ROOT):
            pass
        elif slash and head != ROOT and (above := found.get(head)) is not None:
            node = above.children.get(name) if above.children else None
        elif path[0] != "/":
            node = None
        else:
            for part in path[1:].split("/"):
                node = node.children.get(part) if node is not None and node.children else None
        if node is None:
            raise NoNodeError(path)
        if len(found) >= _MEMO:
            found.clear()
        found[path] = node
        return node

    def walk(self, path: str = ROOT) -> Iterator[tuple[str, Node]]:
        """Return *path* and all below it, parents before children.

        Raises:
            NoNodeError: There is no such node.
        """
        pending = [(path, self.find(path))]
        while pending:
            at, node = pending.pop()
            yield at, node
            if node.children:
                prefix = at if at.endswith("/") else at + "/"
                pending += [(prefix + name, child) for name, child in reversed(node.children.items())]

    def count_below(self, node: Node) -> int:
        """Return the number of nodes below *node*, at any depth.

        The first call counts the whole tree; from then on every create and delete updates the counts of the nodes above
        it, so that a call costs nothing. Few programs ever ask, so the others do not pay for it.
        """
        if not self._counts_below:
            self._counts_below = True
            pending = [self.root.children] if self.root.children else []
            for children in pending:  # grows while it is walked: parents come before their children
                children.below = len(children)
                pending += [child.children for child in children.values() if child.children]
            for children in reversed(pending):
                children.below += sum([child.children.below for child in children.values() if child.children])
        return node.children.below if node.children else 0

    def _count(self, path: str, change: int) -> None:
        """Add *change* to the count of every node above *path*; they all exist and have children."""
        node = self.root
        for name in path[1:].split("/"):
            children = node.children
            assert children is not None, path
            children.below += change
            if name in children:
                node = children[name]

    # --- the mutators ---

    def create(self, path: str, data: bytes | None, acl: int, owner: int, zxid: int, now: int) -> Node:
        """Hang a new node into the tree. Its parent exists and has no child of that name."""
        at = path.rindex("/")
        name = path[at + 1 :]
        parent = self.path_cache.get(path[:at]) or self._walk(path[:at])  # find, without the call
        node = Node(data, acl, owner, zxid, now)
        children = parent.children
        if children is None:
            children = parent.children = Children()
        if self._undo is not None:
            self._undo.append((_unhang, path, parent, node, parent.creates, parent.pzxid))
        children[name] = node
        children.changed()
        creates = parent.creates + 1
        parent.creates = creates if creates < 0x80000000 else int32(creates)
        parent.pzxid = zxid
        parent.changed()
        self.size += 1
        self.data_size += len(path) + (len(data) if data else 0)
        if owner:
            self._index_owner(path, node)
        if self._counts_below:
            self._count(path, 1)
        return node

    def delete(self, path: str, zxid: int) -> Node:
        """Take a node without children out of the tree and return it."""
        at = path.rindex("/")
        parent = self.path_cache.get(path[:at]) or self._walk(path[:at])
        children = parent.children
        assert children is not None, path
        node = children[path[at + 1 :]]
        if self._undo is not None:
            self._undo.append((_hang, path, parent, node, parent.creates, parent.pzxid))
        self._unhang(path, parent, node)
        parent.pzxid = zxid
        parent.changed()
        return node

    def set_data(self, path: str, data: bytes | None, version: int, zxid: int, now: int) -> Node:
        """Replace a node's data; *version* is the new one."""
        node = self.path_cache.get(path) or self._walk(path)
        if self._undo is not None:
            self._undo.append((_put_back, node, node.data, node.version, node.mzxid, node.mtime))
        self.data_size += (len(data) if data else 0) - (len(node.data) if node.data else 0)
        node.data = data
        node.version = version
        node.mzxid = zxid
        node.mtime = now
        node.changed()
        return node

    def set_acl(self, path: str, acl: int, aversion: int) -> Node:
        """Replace a node's ACL key; *aversion* is the new one."""
        node = self.find(path)
        if self._undo is not None:
            self._undo.append((_put_acl_back, node, node.acl, node.aversion))
        node.acl = acl
        node.aversion = aversion
        node.changed()
        return node

    def set_data_silently(self, node: Node, data: bytes) -> None:
        """Replace a node's data and leave no trace of it in its Stat but the length: what quota counts need."""
        if self._undo is not None:
            self._undo.append((_put_back, node, node.data, node.version, node.mzxid, node.mtime))
        self.data_size += len(data) - len(node.data or b"")
        node.data = data
        node.changed()

    def _index_owner(self, path: str, node: Node) -> None:
        if node.owner > 0:
            owned = self.ephemerals.get(node.owner)
            if owned is None:
                owned = self.ephemerals[node.owner] = OwnedPaths()
            owned[path] = None
            owned.changed()
        else:
            self.expiring[path] = node

    def _unhang(self, path: str, parent: Node, node: Node) -> None:
        children = parent.children
        assert children is not None, path
        if self._counts_below:
            self._count(path, -1)
        del children[path[path.rindex("/") + 1 :]]
        if children:
            children.changed()
        else:
            parent.children = None
        self.path_cache.pop(path, None)
        self.size -= 1
        self.data_size -= len(path) + (len(node.data) if node.data else 0)
        if node.owner > 0:
            owned = self.ephemerals[node.owner]
            del owned[path]
            owned.changed()
            if not owned:
                del self.ephemerals[node.owner]
        elif node.owner:
            del self.expiring[path]

    # --- all or nothing ---

    def begin(self) -> None:
        """Let each change note how to undo it, from now on; transactions nest.

        The order of children is the one thing that may differ after an undone delete; no client is promised any.
        """
        if self._undo is None:
            self._undo = []
        self._begun.append(len(self._undo))

    def commit(self) -> None:
        """Keep what was changed since :meth:`begin`; a transaction around this one can still undo it."""
        self._begun.pop()
        if not self._begun:
            self._undo = None

    def roll_back(self) -> None:
        """Undo what was changed since :meth:`begin`, last change first."""
        at = self._begun.pop()
        assert self._undo is not None
        undo_records, self._undo[at:] = self._undo[at:], []
        self.undo(undo_records)
        if not self._begun:
            self._undo = None

    def pop_undo_records(self) -> list[UndoRecord]:
        """Return the notes of the outermost transaction so far, and let it begin anew: for :meth:`undo`.

        Only between requests, for no transaction may be inside it.
        """
        assert self._undo is not None, "no transaction was begun"
        assert self._begun == [0], "a transaction is under way"
        undo_records, self._undo = self._undo, []
        return undo_records

    def undo(self, undo_records: list[UndoRecord]) -> list[UndoRecord]:
        """Do what the notes say, last one first; return the notes with which this is undone in turn."""
        return [how(self, *what) for how, *what in reversed(undo_records)]


# What the notes call: the tree's own second half. Each gives the note of its opposite.


def _unhang(tree: Tree, path: str, parent: Node, node: Node, creates: int, pzxid: int) -> UndoRecord:
    note = (_hang, path, parent, node, parent.creates, parent.pzxid)
    tree._unhang(path, parent, node)  # noqa: SLF001 - a part of Tree
    parent.creates, parent.pzxid = creates, pzxid
    parent.changed()
    return note


def _hang(tree: Tree, path: str, parent: Node, node: Node, creates: int, pzxid: int) -> UndoRecord:
    note = (_unhang, path, parent, node, parent.creates, parent.pzxid)
    parent.children = parent.children or Children()
    parent.children[path[path.rindex("/") + 1 :]] = node
    parent.children.changed()
    parent.creates, parent.pzxid = creates, pzxid
    parent.changed()
    tree.size += 1
    tree.data_size += len(path) + len(node.data or b"")
    if node.owner:
        tree._index_owner(path, node)  # noqa: SLF001 - a part of Tree
    if tree._counts_below:  # noqa: SLF001 - a part of Tree
        tree._count(path, 1)  # noqa: SLF001 - a part of Tree
    return note


def _put_back(tree: Tree, node: Node, data: bytes | None, version: int, mzxid: int, mtime: int) -> UndoRecord:
    note = (_put_back, node, node.data, node.version, node.mzxid, node.mtime)
    tree.data_size += len(data or b"") - len(node.data or b"")
    node.data, node.version, node.mzxid, node.mtime = data, version, mzxid, mtime
    node.changed()
    return note


def _put_acl_back(tree: Tree, node: Node, acl: int, aversion: int) -> UndoRecord:
    note = (_put_acl_back, node, node.acl, node.aversion)
    node.acl, node.aversion = acl, aversion
    node.changed()
    return note
