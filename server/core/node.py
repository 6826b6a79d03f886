"""A znode, and what is cached for it.

Three results are cached, each in one slot of the object that it is computed from: the encoded Stat (``Node.encoding``,
68 bytes), the encoded list of children (``Children.encoding``) and a session's ephemeral paths in sorted order
(``OwnedPaths.sorted``). A cache is filled by a read. The mutators of the tree, which alone change what it is computed
from, set it to None (a method for that would cost each write two calls).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from zoolet.protocol.codec import NULL, pack_int, put_strs, struct_of
from zoolet.protocol.enums import MAX_TTL
from zoolet.protocol.records import Stat

_STAT = struct_of(Stat).pack

CONTAINER_OWNER: Final = -(1 << 63)
"""The owner of a container node, in place of a session id: 0x8000000000000000."""
_TTL_OWNER: Final = -(1 << 56)
"""The high bits of a TTL node's owner, 0xff00000000000000; its lower 40 bits are the ttl."""


def is_session(owner: int) -> bool:
    """Return whether an owner is a session: the ids of servers from number 128 on are negative."""
    return owner > 0 or CONTAINER_OWNER < owner < _TTL_OWNER


def ttl_owner(ttl: int) -> int:
    """Encode a ttl (1 to 2**40 - 1 milliseconds) as an owner.

    Source: EphemeralType.TTL.
    """
    return _TTL_OWNER | ttl


def int32(value: int) -> int:
    """Wrap a number around as Java's int does."""
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


class Children(dict[str, "Node"]):
    """The children of one node by name, and the cached encoding of the list of their names."""

    __slots__ = ("below", "encoding")
    encoding: bytes | None
    """The cached list; None if it has to be encoded again."""
    below: int
    """Nodes below the node, at any depth; kept up to date once the tree counts them (``Tree.count_below``)."""

    def __init__(self) -> None:
        self.encoding = None
        self.below = 0

    def encoded(self) -> bytes:
        """Return the vector of names in its wire format, in order of creation."""
        encoded = self.encoding
        if encoded is None:
            encoded = self.encoding = put_strs(list(self))
        return encoded


class OwnedPaths(dict[str, None]):
    """The ephemeral paths of one session in order of creation, and a cached sorted list of them."""

    __slots__ = ("sorted",)
    sorted: list[str] | None
    """The cached list; None if it has to be sorted again."""

    def __init__(self) -> None:
        self.sorted = None

    def with_prefix(self, prefix: str) -> list[str]:
        """Return the paths that start with *prefix*, sorted: two bisections and one copy."""
        paths = self.sorted
        if paths is None:
            paths = self.sorted = sorted(self)
        start = bisect_left(paths, prefix)
        end = bisect_right(paths, prefix, lo=start, key=lambda path: path[: len(prefix)])
        return paths[start:end]


class Node:
    """A node's data, children and the fields of its Stat.

    Only the mutators of :class:`~zoolet.server.core.tree.Tree` may write to a node; each of them clears ``encoding``.

    Args:
        data: Its data; null and empty are different.
        acl: A key of :class:`~zoolet.server.core.acls.Acls`; 0 is the list that grants everything to everyone.
        owner: 0 for a persistent node, the session id for an ephemeral one; below 0 for containers and TTL nodes.
        zxid: The transaction that creates it.
        now: The time of that transaction, in milliseconds since the epoch.
    """

    # No more slots than necessary: each costs 8 MB in a tree of a million nodes.
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
        self.creates = 0  # creates of children, ever; the next sequence number
        self.children: Children | None = None
        self.encoding: bytes | None = None  # the Stat; None if it has to be encoded again

    def stat(self) -> bytes:
        """Return the encoded Stat record, 68 bytes; it is encoded at most once between two changes."""
        stat = self.encoding
        if stat is None:
            data, children, owner = self.data, self.children, self.owner
            count = len(children) if children else 0
            # cversion counts the creates and the deletes of children. Every child that was created and is not there
            # any more was deleted, so creates + deletes = creates + (creates - count). Source: DataNode.copyStat.
            cversion = self.creates * 2 - count
            stat = self.encoding = _STAT(
                self.czxid,
                self.mzxid,
                self.ctime,
                self.mtime,
                self.version,
                cversion if -0x80000000 <= cversion < 0x80000000 else int32(cversion),
                self.aversion,
                owner if owner > 0 or CONTAINER_OWNER < owner < _TTL_OWNER else 0,  # is_session, inline
                len(data) if data else 0,
                count,
                self.pzxid,
            )
        return stat

    def encoded_data(self) -> bytes:
        """Return the data in its wire format."""
        data = self.data
        return NULL if data is None else pack_int(len(data)) + data

    def is_container(self) -> bool:
        """Return whether the node is a container, which is deleted after its last child."""
        return self.owner == CONTAINER_OWNER

    def ttl(self) -> int | None:
        """Return the milliseconds without change after which a TTL node is due; None for other nodes."""
        return self.owner & MAX_TTL if _TTL_OWNER <= self.owner < 0 else None
