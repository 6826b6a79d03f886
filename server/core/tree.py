"""The tree of nodes: the only place where a node changes.

A node is in the ``children`` of its parent and nowhere else, so that a million nodes cost one dictionary entry and one
name each, not a path. Looking up a path means walking it. ``path_cache`` has the nodes that were found, up to 65,536 of
them: deleting a node removes its path, and the cache is cleared when it is full.

The tree does not check permissions, versions or arguments and does not fire watches: the caller of a mutator does.

A transaction records how to undo each change (:data:`UndoRecord`). The tree's transactions nest, so that a history
can be one; the server's (``ServerState.begin``) do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from zoolet.protocol.errors import NoNodeError
from zoolet.protocol.paths import CONFIG, QUOTA, ROOT, ZOOKEEPER
from zoolet.server.core.node import Children, Node, OwnedPaths, int32, is_session

UndoRecord = tuple[Callable[..., "UndoRecord"], *tuple[Any, ...]]
"""How to undo one change: a function of this module and its arguments. It returns the undo record of the undoing."""

_PATH_CACHE_SIZE: Final = 1 << 16
"""The most paths in ``path_cache``, which has about 10 MB then."""

RESERVED: Final = frozenset({ROOT, ZOOKEEPER, QUOTA, CONFIG})
"""The nodes that every tree has and that cannot be deleted."""


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
        self.ephemerals: dict[int, OwnedPaths] = {}  # a session that had some is there until it ends, as in ZooKeeper
        """The paths of ephemeral nodes by session id, in order of creation."""
        self.expiring: dict[str, Node] = {}
        """The container and TTL nodes by path."""
        self.path_cache: dict[str, Node] = {}
        """Nodes that were looked up, by path. A path that is missing here may exist in the tree."""
        self._counts_below = False  # whether Children.below is maintained
        self._undo: list[UndoRecord] | None = None
        self._begun: list[int] = []  # the length of _undo at the beginning of each transaction, the outermost first
        for path in (ZOOKEEPER, QUOTA, CONFIG):
            # These are not counted as creates: the counters of their parents stay at 0, as in a new ZooKeeper, where
            # the cversion of the root is -1.
            parent_path, _, name = path.rpartition("/")
            parent = self.find(parent_path)
            parent.children = parent.children or Children()
            parent.children[name] = Node(b"", 0, 0, 0, 0)
            self.data_size += len(path)
        config = self.find(CONFIG)
        config.acl, config.aversion = config_acl, -1

    # --- look-up ---

    def find(self, path: str) -> Node:
        """Return the node at exactly this path; the empty string is the root, too.

        Raises:
            NoNodeError: There is no such node, or the path is malformed.

        Source: DataTree.getNode; NodeHashMapImpl.
        """
        node = self.path_cache.get(path)
        return node if node is not None else self._walk(path)

    def parent_of(self, path: str) -> Node:
        """Return the parent of a path.

        Raises:
            NoNodeError: There is no such node.
        """
        return self.find(path[: path.rindex("/")])

    def get(self, path: str) -> Node | None:
        """Return the node at exactly this path, or None."""
        try:
            return self.find(path)
        except NoNodeError:
            return None

    def _walk(self, path: str) -> Node:
        cache = self.path_cache
        head, slash, name = path.rpartition("/")
        node: Node | None = self.root
        if path in ("", ROOT):
            pass
        elif slash and head != ROOT and (above := cache.get(head)) is not None:
            node = above.children.get(name) if above.children else None
        elif path[0] != "/":
            node = None
        else:
            for part in path[1:].split("/"):
                node = node.children.get(part) if node is not None and node.children else None
        if node is None:
            raise NoNodeError(path)
        if len(cache) >= _PATH_CACHE_SIZE:
            cache.clear()
        cache[path] = node
        return node

    def walk(self, path: str = ROOT) -> Iterator[tuple[str, Node]]:
        """Yield the node at *path* and all nodes below it with their paths, parents before children.

        Raises:
            NoNodeError: There is no such node.
        """
        pending = [(path, self.find(path))]
        while pending:
            parent_path, node = pending.pop()
            yield parent_path, node
            if node.children:
                prefix = parent_path if parent_path.endswith("/") else parent_path + "/"
                pending += [(prefix + name, child) for name, child in reversed(node.children.items())]

    def count_below(self, node: Node) -> int:
        """Return the number of nodes below *node*, at any depth.

        The first call counts the whole tree; from then on every create and delete updates the counts of its ancestors,
        so that further calls are cheap. Most programs never call it, and for those writes cost no more.
        """
        if not self._counts_below:
            self._counts_below = True
            pending = [self.root.children] if self.root.children else []
            for children in pending:  # grows during the iteration: parents precede their children
                children.below = len(children)
                pending += [child.children for child in children.values() if child.children]
            for children in reversed(pending):
                children.below += sum([child.children.below for child in children.values() if child.children])
        return node.children.below if node.children else 0

    def _count(self, path: str, change: int) -> None:
        """Add *change* to the counts of all ancestors of *path*, which all exist and have children."""
        node = self.root
        for name in path[1:].split("/"):
            children = node.children
            assert children is not None, path
            children.below += change
            if name in children:
                node = children[name]

    # --- the mutators ---

    def create(self, path: str, parent: Node, data: bytes | None, acl: int, owner: int, zxid: int, now: int) -> Node:
        """Add a new node to the tree, below its parent, which has no child of that name."""
        node = Node(data, acl, owner, zxid, now)
        children = parent.children
        if children is None:
            children = parent.children = Children()
        if self._undo is not None:
            if owner and owner not in self.ephemerals:
                self._undo.append((_forget_owner, owner))  # after the node is gone: undo records are applied backwards
            self._undo.append((_detach, path, parent, node, parent.creates, parent.pzxid))
        children[path[path.rindex("/") + 1 :]] = node
        children.encoding = None
        creates = parent.creates + 1
        parent.creates = creates if creates < 0x80000000 else int32(creates)
        parent.pzxid = zxid
        parent.encoding = None
        self.size += 1
        self.data_size += len(path) + (len(data) if data else 0)
        if owner:
            self._index_owner(path, node)
        if self._counts_below:
            self._count(path, 1)
        return node

    def delete(self, path: str, parent: Node, zxid: int) -> Node:
        """Remove a node that has no children from the tree, where it is below *parent*, and return it."""
        children = parent.children
        assert children is not None, path
        node = children[path[path.rindex("/") + 1 :]]
        if self._undo is not None:
            self._undo.append((_attach, path, parent, node, parent.creates, parent.pzxid))
        self._detach(path, parent, node)
        parent.pzxid = zxid
        parent.encoding = None
        return node

    def set_data(self, node: Node, data: bytes | None, version: int, zxid: int, now: int) -> None:
        """Replace a node's data; *version* is the new one."""
        if self._undo is not None:
            self._undo.append((_undo_set_data, node, node.data, node.version, node.mzxid, node.mtime))
        self.data_size += (len(data) if data else 0) - (len(node.data) if node.data else 0)
        node.data = data
        node.version = version
        node.mzxid = zxid
        node.mtime = now
        node.encoding = None

    def set_acl(self, node: Node, acl: int, aversion: int) -> None:
        """Replace a node's ACL key; *aversion* is the new one."""
        if self._undo is not None:
            self._undo.append((_undo_set_acl, node, node.acl, node.aversion))
        node.acl = acl
        node.aversion = aversion
        node.encoding = None

    def place(self, path: str, node: Node) -> None:
        """Add a node that was read from a file, with all its fields: the counters of its parent stay. Its parent exists
        and has no child of that name; the nodes that every tree has are replaced.
        """
        if path in RESERVED:
            existing = self.find(path)
            self.data_size += len(node.data or b"") - len(existing.data or b"")
            for name in ("data", "acl", "owner", "czxid", "mzxid", "pzxid", "ctime", "mtime", "version", "aversion"):
                setattr(existing, name, getattr(node, name))
            existing.creates = node.creates
            existing.encoding = None
            return
        slash = path.rindex("/")
        parent = self.find(path[:slash])
        children = parent.children
        if children is None:
            children = parent.children = Children()
        children[path[slash + 1 :]] = node
        children.encoding = None
        parent.encoding = None
        self.size += 1
        self.data_size += len(path) + len(node.data or b"")
        if node.owner:
            self._index_owner(path, node)

    def set_counters(self, node: Node, creates: int, pzxid: int) -> None:
        """Set how many children were created below a node, and its pzxid: for the replay of a log."""
        node.creates = creates
        node.pzxid = pzxid
        node.encoding = None

    def set_data_silently(self, node: Node, data: bytes) -> None:
        """Replace a node's data without changing its version, zxids and times: for the stats of a quota."""
        if self._undo is not None:
            self._undo.append((_undo_set_data, node, node.data, node.version, node.mzxid, node.mtime))
        self.data_size += len(data) - len(node.data or b"")
        node.data = data
        node.encoding = None

    def _index_owner(self, path: str, node: Node) -> None:
        if is_session(node.owner):
            owned = self.ephemerals.get(node.owner)
            if owned is None:
                owned = self.ephemerals[node.owner] = OwnedPaths()
            owned[path] = None
            owned.sorted = None
        else:
            self.expiring[path] = node

    def _detach(self, path: str, parent: Node, node: Node) -> None:
        children = parent.children
        assert children is not None, path
        if self._counts_below:
            self._count(path, -1)
        del children[path[path.rindex("/") + 1 :]]
        if children:
            children.encoding = None
        else:
            parent.children = None
        self.path_cache.pop(path, None)
        self.size -= 1
        self.data_size -= len(path) + (len(node.data) if node.data else 0)
        if not node.owner:
            return
        if is_session(node.owner):
            owned = self.ephemerals[node.owner]
            del owned[path]
            owned.sorted = None
        else:
            del self.expiring[path]

    # --- all or nothing ---

    def begin(self) -> None:
        """Begin a transaction: record how to undo each change from now on. Transactions nest.

        Only the order of children may differ after a delete was undone; the protocol specifies no order.
        """
        if self._undo is None:
            self._undo = []
        self._begun.append(len(self._undo))

    def commit(self) -> None:
        """Keep the changes since :meth:`begin`; an enclosing transaction can still undo them."""
        self._begun.pop()
        if not self._begun:
            self._undo = None

    def roll_back(self) -> None:
        """Undo the changes since :meth:`begin`, last one first."""
        start = self._begun.pop()
        assert self._undo is not None
        undo_records, self._undo[start:] = self._undo[start:], []
        self.undo(undo_records)
        if not self._begun:
            self._undo = None

    def pop_undo_records(self) -> list[UndoRecord]:
        """Return the undo records of the outermost transaction, and begin it again; for :meth:`undo`.

        Call it between requests only: no transaction may be open inside the outermost one.
        """
        assert self._undo is not None, "no transaction was begun"
        assert self._begun == [0], "a transaction is under way"
        undo_records, self._undo = self._undo, []
        return undo_records

    def undo(self, undo_records: list[UndoRecord]) -> list[UndoRecord]:
        """Apply undo records, last one first; return the records that undo this in turn."""
        return [function(self, *arguments) for function, *arguments in reversed(undo_records)]


# The functions in undo records; each is a part of Tree and returns the undo record of its own change.


def _detach(tree: Tree, path: str, parent: Node, node: Node, creates: int, pzxid: int) -> UndoRecord:
    undo_record = (_attach, path, parent, node, parent.creates, parent.pzxid)
    tree._detach(path, parent, node)  # noqa: SLF001 - a part of Tree
    parent.creates, parent.pzxid = creates, pzxid
    parent.encoding = None
    return undo_record


def _forget_owner(tree: Tree, owner: int) -> UndoRecord:
    if owner in tree.ephemerals and not tree.ephemerals[owner]:
        del tree.ephemerals[owner]  # the session has created none
    return (_know_owner, owner)


def _know_owner(tree: Tree, owner: int) -> UndoRecord:
    return (_forget_owner, owner)  # attaching its node does the rest


def _attach(tree: Tree, path: str, parent: Node, node: Node, creates: int, pzxid: int) -> UndoRecord:
    undo_record = (_detach, path, parent, node, parent.creates, parent.pzxid)
    parent.children = parent.children or Children()
    parent.children[path[path.rindex("/") + 1 :]] = node
    parent.children.encoding = None
    parent.creates, parent.pzxid = creates, pzxid
    parent.encoding = None
    tree.size += 1
    tree.data_size += len(path) + len(node.data or b"")
    if node.owner:
        tree._index_owner(path, node)  # noqa: SLF001 - a part of Tree
    if tree._counts_below:  # noqa: SLF001 - a part of Tree
        tree._count(path, 1)  # noqa: SLF001 - a part of Tree
    return undo_record


def _undo_set_data(tree: Tree, node: Node, data: bytes | None, version: int, mzxid: int, mtime: int) -> UndoRecord:
    undo_record = (_undo_set_data, node, node.data, node.version, node.mzxid, node.mtime)
    tree.data_size += len(data or b"") - len(node.data or b"")
    node.data, node.version, node.mzxid, node.mtime = data, version, mzxid, mtime
    node.encoding = None
    return undo_record


def _undo_set_acl(tree: Tree, node: Node, acl: int, aversion: int) -> UndoRecord:
    undo_record = (_undo_set_acl, node, node.acl, node.aversion)
    node.acl, node.aversion = acl, aversion
    node.encoding = None
    return undo_record
