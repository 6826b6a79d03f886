"""A znode, in one of two forms, and its cached encodings.

A new persistent node is *packed* if its data is not null and its ACL list grants everything to everyone. It is
unpacked at its first look-up or change. A tree with a history, in a test, does not pack nodes. Loading a snapshot packs
nodes that have not changed since their creation. A packed leaf is one bytes object, with signed numbers in big-endian
order:

====== ===== ==========================================================
offset bytes content
====== ===== ==========================================================
0      8     zxid of its create: czxid, mzxid and pzxid
8      8     time of its create in milliseconds: ctime and mtime
16     n     data
====== ===== ==========================================================

All other fields have their defaults: 0, no children, and the ACL list that grants everything to everyone. A packed
leaf takes 180 bytes less than a :class:`Node`, and no time in a garbage collection. :meth:`Tree.find
<zoolet.server.core.tree.Tree.find>` replaces it by a Node. Only :func:`packed`, :func:`unpacked`,
:func:`size_of` and :func:`stat_of` know the layout, and two places in the tree that inline them to save a call.

Three results are cached, each in one slot of the object that it is computed from: the encoded Stat (``Node.encoding``,
68 bytes), the encoded list of children (``Children.encoding``) and a session's ephemeral paths in sorted order
(``OwnedPaths.sorted``). A cache is filled by a read. The mutators of the tree set it to None, because only they change
the values that it is computed from; a method for this would cost each write two calls. An exception is the encoded
list of children: up to some limits, creates and deletes are only recorded, and the next read updates the list.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from ...protocol.codec import NULL, Long, combined_struct, pack_int, put_str, put_strs
from ...protocol.enums import MAX_TTL
from ...protocol.records import Stat

_STAT = combined_struct(Stat).pack
_LEAF: Final = combined_struct(Long, Long)
LEAF_HEADER: Final = _LEAF.size
"""The bytes of a packed leaf before its data."""
pack_leaf: Final = _LEAF.pack
_COUNT_SIZE: Final = 4
"""The bytes before the first name of an encoded list."""
_MAX_REMOVED: Final = 24
"""Maximum number of names that are cut out of an encoded list. Each is searched in the whole list."""
_MAX_SEARCHED: Final = 1 << 24
"""Maximum number of bytes that these searches read together, in about 12 ms."""
_MAX_ADDED: Final = 1024
"""Maximum number of new names, plus an eighth of all names, between two reads of an encoded list."""

CONTAINER_OWNER: Final = -(1 << 63)
"""The owner of a container node, in place of a session id: 0x8000000000000000."""
_TTL_OWNER: Final = -(1 << 56)
"""The high bits of a TTL node's owner, 0xff00000000000000. Its lower 40 bits are the ttl."""


def is_session(owner: int) -> bool:
    """Return whether an owner is a session. Session ids of servers with numbers of 128 or more are negative."""
    return owner > 0 or CONTAINER_OWNER < owner < _TTL_OWNER


def ttl_owner(ttl: int) -> int:
    """Encode a ttl (1 to 2**40 - 1 milliseconds) as an owner.

    Source: EphemeralType.TTL.
    """
    return _TTL_OWNER | ttl


def ttl_of(owner: int) -> int | None:
    """Return the ttl in milliseconds; None for an owner that encodes none."""
    return owner & MAX_TTL if _TTL_OWNER <= owner < 0 else None


def int32(value: int) -> int:
    """Wrap a number around as Java's int does."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


class Children(dict[str, "Node | bytes"]):
    """The children of one node by name, with the cached encoding of their names.

    The names are in the cached list from ``first`` on, except ``removed``, and then in ``added``.
    """

    __slots__ = ("added", "below", "encoding", "first", "removed")
    encoding: bytes | None
    """The encoded list of names; None if it has to be encoded again."""
    first: int
    """Offset in the cached list of the first name that remains."""
    removed: list[bytes]
    """Encoded names that were deleted since the list was cached, other than those before ``first``."""
    added: dict[str, None]
    """Names that were added since the list was cached, in order."""
    below: int
    """Number of nodes below the node, at any depth. It is maintained once the tree counts (``Tree.count_below``)."""

    def __init__(self) -> None:
        self.encoding = None
        self.below = 0

    def encoded(self) -> bytes:
        """Return the vector of names in its wire format, in order of creation.

        The cached list is updated: new names are appended and deleted names are cut out. For 100,000 names this costs
        one copy of the bytes, and one search for each name that was deleted in the middle: a fortieth of the time that
        encoding all names takes.
        """
        encoded = self.encoding
        if encoded is not None and self.first == _COUNT_SIZE and not self.added and not self.removed:
            return encoded
        kept = self._kept(encoded) if encoded is not None else None
        if kept is None:
            encoded = put_strs(list(self))
        else:
            encoded = b"".join((pack_int(len(self)), *kept, *map(put_str, self.added)))
        self.encoding, self.first, self.removed, self.added = encoded, _COUNT_SIZE, [], {}
        return encoded

    def _kept(self, encoded: bytes) -> list[memoryview] | None:
        """Return the parts of the cached list that remain, or None if a removed name occurs in it more than once: then
        one occurrence is inside a different name.
        """
        starts: dict[int, int] = {}
        for name in self.removed:
            start = encoded.index(name, self.first)
            if encoded.find(name, start + 1) != -1:
                return None
            starts[start] = start + len(name)
        names, at, parts = memoryview(encoded), self.first, []  # the memoryview avoids a second copy in the join
        for start in sorted(starts):
            parts.append(names[at:start])
            at = starts[start]
        return [*parts, names[at:]]

    def node(self, name: str) -> Node | None:
        """Return a child, or None. A packed child is returned as a copy, and changes to the copy are lost. To change
        it, use :meth:`Tree.find`, which unpacks it in the tree.
        """
        child = self.get(name)
        return unpacked(child) if isinstance(child, bytes) else child

    def nodes(self) -> Iterator[Node]:
        """Yield the children. Changes of a packed child are lost."""
        return (unpacked(child) if isinstance(child, bytes) else child for child in self.values())

    def record_added(self, name: str) -> None:
        """Record a new name for the next update of the cached list. With too many new names, the list is discarded."""
        self.added[name] = None
        if len(self.added) > _MAX_ADDED + len(self) // 8:
            self.encoding, self.added = None, {}

    def record_removed(self, name: str) -> None:
        """Record a deleted name for the next update of the cached list. With too many, the list is discarded."""
        encoded, name_bytes = self.encoding, put_str(name)
        if encoded is not None and not self.removed and encoded.startswith(name_bytes, self.first):
            self.first += len(name_bytes)
        elif name in self.added:
            del self.added[name]
        elif encoded is not None and len(self.removed) < min(_MAX_REMOVED, _MAX_SEARCHED // len(encoded)):
            self.removed.append(name_bytes)
        else:
            self.encoding, self.added = None, {}


class OwnedPaths(dict[str, None]):
    """The ephemeral paths of one session in order of creation, with a cached sorted list."""

    __slots__ = ("sorted",)
    sorted: list[str] | None
    """The sorted list; None if it has to be sorted again."""

    def __init__(self) -> None:
        self.sorted = None

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the paths that start with *prefix*, sorted. This takes two bisections and one copy."""
        paths = self.sorted
        if paths is None:
            paths = self.sorted = sorted(self)
        start = bisect_left(paths, prefix)
        end = bisect_right(paths, prefix, lo=start, key=lambda path: path[: len(prefix)])
        return paths[start:end]


def packed(data: bytes, zxid: int, now: int) -> bytes:
    """Return a new leaf that everyone may change: the zxid and the time of its create, and its data."""
    return pack_leaf(zxid, now) + data


def unpacked(leaf: bytes) -> Node:
    """Return the node of a packed leaf."""
    zxid, now = _LEAF.unpack_from(leaf)
    return Node(leaf[LEAF_HEADER:], 0, 0, zxid, now)


class Node:
    """A node's data, children and the fields of its Stat.

    Only the mutators of :class:`~zoolet.server.core.tree.Tree` may write to a node. Each of them clears ``encoding``.

    Args:
        data: Data of the node. Null and empty are different.
        acl: A key of :class:`~zoolet.server.core.acls.Acls`; 0 is the list that grants everything to everyone.
        owner: 0 for a persistent node, the session id for an ephemeral node, below 0 for containers and TTL nodes.
        zxid: Zxid of the transaction that creates the node.
        now: Time of that transaction, in milliseconds since the epoch.
    """

    # There are no more slots than necessary, because each costs 8 MB in a tree of a million nodes.
    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "encoding",
        "mtime",
        "mzxid",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(self, data: bytes | None, acl: int, owner: int, zxid: int, now: int) -> None:
        self.data = data
        self.acl = acl
        self.owner = owner
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now
        self.version = self.aversion = 0
        self.creates = 0  # number of children ever created, which is the next sequence number
        self.children: Children | None = None
        self.encoding: bytes | None = None  # the encoded Stat; None if it has to be encoded again

    def stat(self) -> bytes:
        """Return the encoded Stat record, 68 bytes. It is encoded at most once between two changes."""
        stat = self.encoding
        if stat is None:
            data, children, owner = self.data, self.children, self.owner
            count = len(children) if children else 0
            # cversion counts the creates and the deletes of children. Every child that was created and is missing now
            # was deleted, so creates + deletes = creates + (creates - count). Source: DataNode.copyStat.
            cversion = self.creates * 2 - count
            stat = self.encoding = _STAT(
                self.czxid,
                self.mzxid,
                self.ctime,
                self.mtime,
                self.version,
                cversion if -0x80000000 <= cversion < 0x80000000 else int32(cversion),
                self.aversion,
                owner if owner >= 0 or CONTAINER_OWNER < owner < _TTL_OWNER else 0,  # is_session(), inlined
                len(data) if data else 0,
                count,
                self.pzxid,
            )
        return stat

    def encoded_data(self) -> bytes:
        """Return the data in wire format."""
        data = self.data
        return NULL if data is None else pack_int(len(data)) + data

    def packed(self) -> bytes | None:
        """Return the node as a packed leaf; None if it has changed since its creation, or cannot be packed."""
        is_unchanged = self.czxid == self.mzxid == self.pzxid and self.ctime == self.mtime
        has_defaults = not (self.acl or self.owner or self.version or self.aversion or self.creates or self.children)
        if self.data is None or not is_unchanged or not has_defaults:
            return None
        return packed(self.data, self.czxid, self.ctime)

    def is_container(self) -> bool:
        """Return whether the node is a container. A container is deleted after its last child."""
        return self.owner == CONTAINER_OWNER

    def ttl(self) -> int | None:
        """Return the ttl in milliseconds; None for nodes other than TTL nodes. Only setData restarts the ttl."""
        return ttl_of(self.owner)


def restored_node(
    data: bytes | None,
    acl: int,
    czxid: int,
    mzxid: int,
    ctime: int,
    mtime: int,
    version: int,
    creates: int,
    aversion: int,
    owner: int,
    pzxid: int,
) -> Node:
    """Return a node of a snapshot, from its fields in the order of the file. *acl* is the key in the new tree."""
    node = Node(data, acl, owner, czxid, ctime)
    node.mzxid, node.mtime, node.pzxid = mzxid, mtime, pzxid
    node.version, node.aversion, node.creates = version, aversion, creates
    return node


NodeOrLeaf = Node | bytes
"""A node, or a packed leaf (:func:`packed`)."""


def size_of(node: NodeOrLeaf) -> int:
    """Return the number of bytes of a node's data."""
    return len(node) - LEAF_HEADER if isinstance(node, bytes) else len(node.data or b"")


def stat_of(node: NodeOrLeaf) -> bytes:
    """Return the encoded Stat of a node."""
    if isinstance(node, bytes):
        zxid, now = _LEAF.unpack_from(node)
        return _STAT(zxid, zxid, now, now, 0, 0, 0, 0, len(node) - LEAF_HEADER, 0, zxid)
    return node.stat()
