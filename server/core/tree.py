"""The tree of nodes: the only place where a node changes.

A node is stored only in the ``children`` of its parent, so it costs one dictionary entry and one name, but no path. A
look-up follows the path from the root. ``path_cache`` contains up to 65,536 nodes that were looked up. It is cleared
when it is full, and deleting a node removes the node's path.

The tree does not check permissions, versions or arguments, and does not fire watches. The callers of its mutators do.

A transaction records how to undo each change (:data:`UndoRecord`). The tree's transactions nest, which lets a history
keep one open. The server's transactions (in ``ServerState``) do not nest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, cast

from ...protocol.errors import NoNodeError
from ...protocol.paths import CONFIG, QUOTA, ROOT, ZOOKEEPER
from .node import LEAF_HEADER, Children, Node, NodeOrLeaf, OwnedPaths, data_length, int32, is_session, packed, unpacked

UndoRecord = tuple[Callable[..., "UndoRecord"], *tuple[Any, ...]]
"""A function of this module that undoes one change, followed by its arguments after the tree. The function returns the
undo record of its own change.
"""

_PATH_CACHE_SIZE: Final = 1 << 16
"""Maximum number of paths in ``path_cache``. They take about 10 MB."""

_MAX_SINGLES: Final = 64
"""Maximum number of ephemeral nodes of a closed session that are deleted one by one."""
_MAX_FREED_NODES: Final = 20_000
"""Maximum number of nodes of a closed session that are freed together. Freeing them takes three milliseconds."""

RESERVED: Final = frozenset({ROOT, ZOOKEEPER, QUOTA, CONFIG})
"""The nodes that exist in every tree and cannot be deleted."""


class Tree:
    """All nodes, from the root down.

    Args:
        config_acl: The ACL key of ``/zookeeper/config``.
    """

    def __init__(self, config_acl: int = 0) -> None:
        self.root = Node(b"", 0, 0, 0, 0)
        self.size = 4
        """Number of nodes in the tree, including the root."""
        self.data_size = 0
        """Bytes of all paths and data."""
        self.largest = 0
        """Bytes of the largest data that a node has or had."""
        self.ephemerals: dict[int, OwnedPaths] = {}  # as in ZooKeeper, an entry remains until its session is closed
        """The paths of ephemeral nodes by session id, in order of creation."""
        self.expiring: dict[str, Node] = {}
        """The container and TTL nodes by path."""
        self.path_cache: dict[str, Node] = {}
        """Nodes that were looked up, by path. Other paths may also exist in the tree."""
        self.unfreed: list[Node] = []
        """Deleted nodes of sessions with many nodes, which :meth:`free_deleted_nodes` frees in steps."""
        self.packs = True
        """Whether new leaves are packed. A history sets it to False, because it undoes and repeats changes of nodes."""
        self._counts_below = False  # whether Children.below is maintained
        self._undo: list[UndoRecord] | None = None
        self._begun: list[int] = []  # the length of _undo at the start of each transaction, the outermost first
        for path in (ZOOKEEPER, QUOTA, CONFIG):
            # These nodes do not count as creates, so the counters of their parents stay at 0. Therefore the cversion of
            # a new root is -1, as in ZooKeeper.
            parent_path, _, name = path.rpartition("/")
            parent = self.find(parent_path)
            parent.children = parent.children or Children()
            parent.children[name] = Node(b"", 0, 0, 0, 0)
            self.data_size += len(path)
        config = self.find(CONFIG)
        config.acl, config.aversion = config_acl, -1

    @property
    def reported_size(self) -> int:
        """Number of nodes as shown to users. The root is counted twice, as in ZooKeeper."""
        return self.size + 1

    @property
    def reported_bytes(self) -> int:
        """Size of all paths and data in bytes as shown to users. The path of the root is counted, as in ZooKeeper."""
        return self.data_size + 1

    # --- look-up ---

    def find(self, path: str) -> Node:
        """Return the node at exactly this path. The empty string also means the root.

        Raises:
            NoNodeError: The node does not exist, or the path is malformed.

        Source: DataTree.getNode, NodeHashMapImpl.
        """
        node = self.path_cache.get(path)
        return node if node is not None else self._look_up(path)

    @property
    def ephemeral_count(self) -> int:
        """The number of ephemeral nodes."""
        return sum(map(len, self.ephemerals.values()))

    def parent_of(self, path: str) -> Node:
        """Return the node at the parent of a path.

        Raises:
            NoNodeError: The parent does not exist.
        """
        return self.find(path[: path.rindex("/")])

    def get(self, path: str) -> Node | None:
        """Return the node at exactly this path, or None."""
        try:
            return self.find(path)
        except NoNodeError:
            return None

    def _look_up(self, path: str) -> Node:
        cache = self.path_cache
        head, slash, name = path.rpartition("/")
        node: Node | None = self.root
        if path in ("", ROOT):
            pass
        elif slash and head != ROOT and (above := cache.get(head)) is not None:
            node = self._child(above, name)
        elif path[0] != "/":
            node = None
        else:
            for part in path[1:].split("/"):
                if node is None:
                    break
                node = self._child(node, part)
        if node is None:
            raise NoNodeError(path)
        if len(cache) >= _PATH_CACHE_SIZE:
            cache.clear()
        cache[path] = node
        return node

    def _child(self, parent: Node, name: str) -> Node | None:
        """Return a child, or None. A packed child is unpacked in the tree, so changes to it are kept."""
        if not parent.children:
            return None
        child = parent.children.get(name)
        if isinstance(child, bytes):
            child = parent.children[name] = unpacked(child)
        return child

    def count(self, path: str) -> tuple[int, int]:
        """Return the number of nodes at and below *path*, and the number of bytes of their data.

        Both are 0 if the node does not exist. Counting a million nodes takes 0.2 s.
        """
        top = self.get(path)
        nodes, size, pending = 0, 0, [top] if top is not None else []
        while pending:
            node = pending.pop()
            nodes += 1
            size += len(node.data or b"")
            for child in node.children.values() if node.children else ():
                if isinstance(child, bytes):
                    nodes += 1
                    size += len(child) - LEAF_HEADER
                else:
                    pending.append(child)
        return nodes, size

    def walk(self, path: str = ROOT) -> Iterator[tuple[str, Node]]:
        """Yield the node at *path* and all nodes below it with their paths, parents before children.

        Raises:
            NoNodeError: The node does not exist.
        """
        pending: list[tuple[str, NodeOrLeaf]] = [(path, self.find(path))]
        while pending:
            parent_path, child = pending.pop()
            node = unpacked(child) if isinstance(child, bytes) else child
            yield parent_path, node
            if node.children:
                prefix = parent_path if parent_path.endswith("/") else parent_path + "/"
                pending += [(prefix + name, child) for name, child in reversed(node.children.items())]

    def count_below(self, node: Node) -> int:
        """Return the number of nodes below *node*, at any depth.

        The first call counts the whole tree. Afterwards every create and delete updates the counts of all ancestors, so
        further calls are cheap. Before the first call, no counts are maintained.
        """
        if not self._counts_below:
            self._counts_below = True
            pending = [self.root.children] if self.root.children else []
            for children in pending:  # the list grows during the iteration, with parents before their children
                children.below = len(children)
                pending += [child.children for child in children.values() if isinstance(child, Node) and child.children]
            for children in reversed(pending):
                for child in children.values():
                    if isinstance(child, Node) and child.children:
                        children.below += child.children.below
        return node.children.below if node.children else 0

    def _count(self, path: str, change: int) -> None:
        """Add *change* to the counts of all ancestors of *path*, which must exist and have children."""
        node = self.root
        for name in path[1:].split("/"):
            children = node.children
            assert children is not None, path
            children.below += change
            child = children.get(name)
            if isinstance(child, Node):
                node = child

    # --- the mutators ---

    def create(
        self, path: str, name: str, parent: Node, data: bytes | None, acl: int, owner: int, zxid: int, now: int
    ) -> NodeOrLeaf:
        """Add a new node below *parent*, which must not have a child of this name. Return the node or the packed leaf.

        The arguments are not checked.
        """
        node: NodeOrLeaf
        if acl or owner or data is None or not self.packs:
            node = Node(data, acl, owner, zxid, now)
        else:
            node = packed(data, zxid, now)
        children = parent.children
        if children is None:
            children = parent.children = Children()
        if self._undo is not None:
            if owner and owner not in self.ephemerals:
                self._undo.append((_forget_owner, owner))  # the rollback runs _forget_owner after _detach
            self._undo.append((_detach, path, name, parent, node, parent.creates, parent.pzxid))
        children[name] = node
        if children.encoding is not None:
            children.record_added(name)
        creates = parent.creates + 1
        parent.creates = creates if creates < 0x80000000 else int32(creates)
        parent.pzxid = zxid
        parent.encoding = None
        self.size += 1
        size = len(data) if data else 0
        self.data_size += len(path) + size
        if size > self.largest:
            self.largest = size
        if owner:
            self._index_owner(path, cast(Node, node))
        if self._counts_below:
            self._count(path, 1)
        return node

    def delete(self, path: str, name: str, parent: Node, node: NodeOrLeaf, zxid: int) -> None:
        """Remove *node*, which must not have children, from *parent*. *path* and *name* must match the node."""
        if self._undo is not None:
            self._undo.append((_attach, path, name, parent, node, parent.creates, parent.pzxid))
        self._detach(path, name, parent, node)
        parent.pzxid = zxid
        parent.encoding = None

    def delete_owned(self, paths: list[str], session_id: int, zxid: int) -> tuple[list[Node], Collection[str]]:
        """Remove the ephemeral nodes of a session from the tree.

        The effect is the same as if :meth:`delete` was called for each path. Many paths take a third of the time,
        because consecutive paths below one parent share a look-up, the indexes are updated once, and cached lists of
        children are discarded instead of updated.

        Returns:
            The nodes in the order of *paths*, and the paths of their parents (empty for the root).

        Raises:
            NoNodeError: A node or its parent does not exist.
        """
        if len(paths) <= _MAX_SINGLES or self._undo is not None or paths != list(self.ephemerals.get(session_id, ())):
            nodes = [self.find(path) for path in paths]
            for path, node in zip(paths, nodes, strict=True):
                above, _, name = path.rpartition("/")
                self.delete(path, name, self.find(above), node, zxid)
            return nodes, {path[: path.rindex("/")] for path in paths}
        deleted: list[Node] = []
        folders: dict[str, tuple[Node, Children, int]] = {}  # by path: parent, children, their number before
        head, children, size = None, Children(), 0
        for path in paths:
            above, _, name = path.rpartition("/")
            if above != head:
                head = above
                folder = folders.get(above)
                if folder is None:
                    parent = self.find(above)
                    assert parent.children is not None, path
                    folder = folders[above] = parent, parent.children, len(parent.children)
                children = folder[1]
            gone: Any = children.pop(name)  # not packed, because it has an owner
            deleted.append(gone)
            size += len(path) + len(gone.data) if gone.data else len(path)
        for above, (parent, children, count) in folders.items():
            if self._counts_below:
                self._count(f"{above}/", len(children) - count)
            children.encoding = None
            parent.children = children or None
            parent.pzxid = zxid
            parent.encoding = None
        if len(paths) > len(self.path_cache):
            self.path_cache.clear()
        else:
            for path in paths:
                self.path_cache.pop(path, None)
        self.size -= len(paths)
        self.data_size -= size
        self.ephemerals[session_id] = OwnedPaths()
        if len(deleted) > _MAX_FREED_NODES:
            self.unfreed += deleted
        return deleted, folders.keys()

    def free_deleted_nodes(self) -> None:
        """Free up to 20,000 of the nodes that :meth:`delete_owned` has kept, because freeing all of them takes long."""
        del self.unfreed[-_MAX_FREED_NODES:]

    def set_data(self, node: Node, data: bytes | None, version: int, zxid: int, now: int) -> None:
        """Replace a node's data. *version* is the new version."""
        if self._undo is not None:
            self._undo.append((_undo_set_data, node, node.data, node.version, node.mzxid, node.mtime))
        size = len(data) if data else 0
        self.data_size += size - (len(node.data) if node.data else 0)
        if size > self.largest:
            self.largest = size
        node.data = data
        node.version = version
        node.mzxid = zxid
        node.mtime = now
        node.encoding = None

    def set_acl(self, node: Node, acl: int, aversion: int) -> None:
        """Replace a node's ACL key. *aversion* is the new ACL version."""
        if self._undo is not None:
            self._undo.append((_undo_set_acl, node, node.acl, node.aversion))
        node.acl = acl
        node.aversion = aversion
        node.encoding = None

    def place(self, path: str, node: Node) -> None:
        """Add a node that was read from a file, with all its fields, without counting it as a create.

        The parent must exist, and must not have a child of this name. For the nodes that exist in every tree
        (:data:`RESERVED`), the fields are replaced instead.
        """
        size = len(node.data or b"")
        self.largest = max(self.largest, size)
        if path in RESERVED:
            existing = self.find(path)
            self.data_size += size - len(existing.data or b"")
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
        children[path[slash + 1 :]] = node.packed() or node
        children.encoding = None
        parent.encoding = None
        self.size += 1
        self.data_size += len(path) + size
        if node.owner:
            self._index_owner(path, node)

    def set_counters(self, node: Node, creates: int, pzxid: int) -> None:
        """Set a node's pzxid, and the number of children that were ever created below it, for the replay of a log."""
        node.creates = creates
        node.pzxid = pzxid
        node.encoding = None

    def set_data_silently(self, node: Node, data: bytes) -> None:
        """Replace a node's data without changing its version, zxids and times, for the stats of a quota."""
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

    def _detach(self, path: str, name: str, parent: Node, node: NodeOrLeaf) -> None:
        children = parent.children
        assert children is not None, path
        if self._counts_below:
            self._count(path, -1)
        del children[name]
        if not children:
            parent.children = None
        elif children.encoding is not None:
            children.record_removed(name)
        self.path_cache.pop(path, None)
        self.size -= 1
        if isinstance(node, bytes):
            self.data_size -= len(path) + len(node) - LEAF_HEADER
        else:
            self.data_size -= len(path) + (len(node.data) if node.data else 0)
            if node.owner:
                self._drop_owner(path, node)

    def _drop_owner(self, path: str, node: Node) -> None:
        if is_session(node.owner):
            owned = self.ephemerals[node.owner]
            del owned[path]
            owned.sorted = None
        else:
            del self.expiring[path]

    # --- transactions and undo records ---

    def begin(self) -> None:
        """Start a transaction, which records how to undo each change. Transactions may be nested.

        Undoing a delete may change the order of the children. The protocol does not specify this order.
        """
        if self._undo is None:
            self._undo = []
        self._begun.append(len(self._undo))

    def commit(self) -> None:
        """Keep the changes since :meth:`begin`. An enclosing transaction can still undo them."""
        self._begun.pop()
        if not self._begun:
            self._undo = None

    def roll_back(self) -> None:
        """Undo the changes since :meth:`begin`, starting with the last change."""
        start = self._begun.pop()
        assert self._undo is not None
        undo_records, self._undo[start:] = self._undo[start:], []
        self.undo(undo_records)
        if not self._begun:
            self._undo = None

    def pop_undo_records(self) -> list[UndoRecord]:
        """Return the undo records of the outermost transaction for :meth:`undo`, and start a new outermost transaction.

        Call this method only between requests, because no inner transaction may be open.
        """
        assert self._undo is not None, "no transaction was begun"
        assert self._begun == [0], "a transaction is under way"
        undo_records, self._undo = self._undo, []
        return undo_records

    def undo(self, undo_records: list[UndoRecord]) -> list[UndoRecord]:
        """Apply undo records, starting with the last record. Return records that undo this call."""
        return [function(self, *arguments) for function, *arguments in reversed(undo_records)]


# The functions in undo records. Each is a part of Tree, and returns the undo record of its own change.


def _detach(tree: Tree, path: str, name: str, parent: Node, node: NodeOrLeaf, creates: int, pzxid: int) -> UndoRecord:
    undo_record = (_attach, path, name, parent, node, parent.creates, parent.pzxid)
    tree._detach(path, name, parent, node)  # noqa: SLF001 - this function is a part of Tree
    parent.creates, parent.pzxid = creates, pzxid
    parent.encoding = None
    return undo_record


def _forget_owner(tree: Tree, owner: int) -> UndoRecord:
    if owner in tree.ephemerals and not tree.ephemerals[owner]:
        del tree.ephemerals[owner]  # before the undone create, the session had no entry
    return (_restore_owner, owner)


def _restore_owner(tree: Tree, owner: int) -> UndoRecord:
    return (_forget_owner, owner)  # no change is needed here: _attach adds the entry of the owner


def _attach(tree: Tree, path: str, name: str, parent: Node, node: NodeOrLeaf, creates: int, pzxid: int) -> UndoRecord:
    undo_record = (_detach, path, name, parent, node, parent.creates, parent.pzxid)
    children = parent.children = parent.children or Children()
    children[name] = node
    if children.encoding is not None:
        children.record_added(name)
    parent.creates, parent.pzxid = creates, pzxid
    parent.encoding = None
    tree.size += 1
    tree.data_size += len(path) + data_length(node)
    if isinstance(node, Node) and node.owner:
        tree._index_owner(path, node)  # noqa: SLF001 - this function is a part of Tree
    if tree._counts_below:  # noqa: SLF001 - this function is a part of Tree
        tree._count(path, 1)  # noqa: SLF001 - this function is a part of Tree
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
