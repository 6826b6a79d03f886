"""A znode, which is an object or a packed leaf, and its cached encodings.

A new persistent node is *packed* if its data is not null and its ACL list grants everything to everyone. Its first
look-up or change unpacks it. When a snapshot is loaded, nodes that have not changed since their creation are packed. In
a tree with a history, which only tests use, no node is packed. A packed leaf is one bytes object, with signed numbers
in big-endian order:

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
:func:`data_length` and :func:`encode_stat` depend on the layout, and code of the tree that inlines them to save a call.

Three results are cached, each in one slot of the object that it is computed from: the encoded Stat (``Node.encoding``,
68 bytes), the encoded list of children (``Children.encoding``) and a session's ephemeral paths in sorted order
(``OwnedPaths.sorted``). A read fills a cache. The mutators of the tree set it to None directly, because a method for
this would cost each write two calls. The encoded list of children is an exception: up to some limits, creates and
deletes are only recorded, and the next read updates the list.
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
"""Number of bytes before the data of a packed leaf."""
pack_leaf: Final = _LEAF.pack
_COUNT_SIZE: Final = 4
"""Number of bytes before the first name of an encoded list."""
_MAX_REMOVED: Final = 24
"""Maximum number of names that are cut out of an encoded list. Each of them is searched for in the whole list."""
_MAX_SEARCHED: Final = 1 << 24
"""Maximum total number of bytes that these searches read. They take about 12 ms."""
_MAX_ADDED: Final = 1024
"""Maximum number of new names between two reads of an encoded list, to which an eighth of all names is added."""

CONTAINER_OWNER: Final = -(1 << 63)
"""The owner of a container node, in place of a session id: 0x8000000000000000."""
_TTL_OWNER: Final = -(1 << 56)
"""The high bits of a TTL node's owner, 0xff00000000000000. Its lower 40 bits are the ttl."""


def is_session(owner: int) -> bool:
    """Return whether an owner is a session id. The session ids of servers with numbers from 128 on are negative."""
    return owner > 0 or CONTAINER_OWNER < owner < _TTL_OWNER


def ttl_owner(ttl: int) -> int:
    """Encode a ttl (1 to 2**40 - 1 milliseconds) as an owner.

    Source: EphemeralType.TTL.
    """
    return _TTL_OWNER | ttl


def decode_ttl(owner: int) -> int | None:
    """Return the ttl that an owner encodes, in milliseconds. Return None for any other owner."""
    return owner & MAX_TTL if _TTL_OWNER <= owner < 0 else None


def int32(value: int) -> int:
    """Wrap a number around as Java's int does."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


class Children(dict[str, "Node | bytes"]):
    """The children of one node by name, with the cached encoding of their names.

    The names are those of the cached list from ``first`` on, without ``removed``, followed by those in ``added``.
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
    """Number of nodes below the node, at any depth. It is updated from the first call of ``Tree.count_below`` on."""

    def __init__(self) -> None:
        self.encoding = None
        self.below = 0

    def encoded(self) -> bytes:
        """Return the vector of names in its wire format, in order of creation.

        If a cached list exists, new names are appended, and deleted names are cut out. This requires one copy of the
        bytes, and one search for each name that was deleted in the middle. For 100,000 names, encoding takes forty
        times as long.
        """
        encoded = self.encoding
        if encoded is not None and self.first == _COUNT_SIZE and not self.added and not self.removed:
            return encoded
        kept = self._remaining_parts(encoded) if encoded is not None else None
        if kept is None:
            encoded = put_strs(list(self))
        else:
            encoded = b"".join((pack_int(len(self)), *kept, *map(put_str, self.added)))
        self.encoding, self.first, self.removed, self.added = encoded, _COUNT_SIZE, [], {}
        return encoded

    def _remaining_parts(self, encoded: bytes) -> list[memoryview] | None:
        """Return the parts of the cached list that remain after the removed names are cut out.

        Return None if a removed name occurs more than once, because one occurrence is inside a different name.
        """
        starts: dict[int, int] = {}
        for name in self.removed:
            start = encoded.index(name, self.first)
            if encoded.find(name, start + 1) != -1:
                return None
            starts[start] = start + len(name)
        names, at, parts = memoryview(encoded), self.first, []  # slices of a memoryview are not copied
        for start in sorted(starts):
            parts.append(names[at:start])
            at = starts[start]
        return [*parts, names[at:]]

    def node(self, name: str) -> Node | None:
        """Return the child *name*, or None. For a packed child, return a copy, whose changes are lost.

        To change a child, use :meth:`Tree.find`, which unpacks the child in the tree.
        """
        child = self.get(name)
        return unpacked(child) if isinstance(child, bytes) else child

    def nodes(self) -> Iterator[Node]:
        """Return an iterator over the children. A packed child is yielded as a copy, whose changes are lost."""
        return (unpacked(child) if isinstance(child, bytes) else child for child in self.values())

    def record_added(self, name: str) -> None:
        """Record a new name for the next update of the cached list.

        Discard the list if there are too many new names.
        """
        self.added[name] = None
        if len(self.added) > _MAX_ADDED + len(self) // 8:
            self.encoding, self.added = None, {}

    def record_removed(self, name: str) -> None:
        """Record a deleted name for the next update of the cached list. Discard the list if too many are deleted."""
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
        """Return the paths that start with *prefix*, sorted. If the sorted list is cached, two bisections find them."""
        paths = self.sorted
        if paths is None:
            paths = self.sorted = sorted(self)
        start = bisect_left(paths, prefix)
        end = bisect_right(paths, prefix, lo=start, key=lambda path: path[: len(prefix)])
        return paths[start:end]


def packed(data: bytes, zxid: int, now: int) -> bytes:
    """Return a new packed leaf: the zxid and the time of its create, followed by its data."""
    return pack_leaf(zxid, now) + data


def unpacked(leaf: bytes) -> Node:
    """Return a new :class:`Node` with the values of a packed leaf."""
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
        """Return the encoded Stat record, 68 bytes. It is encoded on the first call after a change, and then cached."""
        stat = self.encoding
        if stat is None:
            data, children, owner = self.data, self.children, self.owner
            count = len(children) if children else 0
            # cversion is creates + deletes of children. A child that was created and does not exist was deleted, so
            # deletes = creates - count, and cversion = creates * 2 - count. Source: DataNode.copyStat.
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
        """Return the node as a packed leaf, or None if it has changed since its creation or cannot be packed."""
        is_unchanged = self.czxid == self.mzxid == self.pzxid and self.ctime == self.mtime
        has_defaults = not (self.acl or self.owner or self.version or self.aversion or self.creates or self.children)
        if self.data is None or not is_unchanged or not has_defaults:
            return None
        return packed(self.data, self.czxid, self.ctime)

    def is_container(self) -> bool:
        """Return whether the node is a container, which the server deletes after its last child was deleted."""
        return self.owner == CONTAINER_OWNER

    def ttl(self) -> int | None:
        """Return the ttl in milliseconds, or None if the node is not a TTL node. Only setData restarts the ttl."""
        return decode_ttl(self.owner)


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


def data_length(node: NodeOrLeaf) -> int:
    """Return the number of bytes of a node's data."""
    return len(node) - LEAF_HEADER if isinstance(node, bytes) else len(node.data or b"")


def encode_stat(node: NodeOrLeaf) -> bytes:
    """Return the encoded Stat of a node."""
    if isinstance(node, bytes):
        zxid, now = _LEAF.unpack_from(node)
        return _STAT(zxid, zxid, now, now, 0, 0, 0, 0, len(node) - LEAF_HEADER, 0, zxid)
    return node.stat()
