"""The digest of a tree, as ZooKeeper computes it: the sum of the digests of its nodes, in 64 bits.

Source: DigestCalculator.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from .node import Node
from .tree import Tree

_FIELDS = struct.Struct(">qqqqqiiiq")


def node_digest(path: str, data: bytes | None, *fields: int) -> int:
    """Return the digest of a node with these fields, or 0 below ``/zookeeper``.

    Args:
        path: The path; empty for the root.
        data: The data.
        *fields: The node's czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion and owner.
    """
    if path.startswith("/zookeeper/"):
        return 0
    code = zlib.crc32(path.encode())
    if data is not None:
        code = zlib.crc32(data, code)
    return zlib.crc32(_FIELDS.pack(*fields), code)


def digest_node(path: str, node: Node) -> int:
    """Return the digest of the node object *node* at *path*."""
    fields = (node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime)
    return node_digest(
        path if path != "/" else "", node.data, *fields, node.version, node.creates, node.aversion, node.owner
    )


def sum_digests(tree: Tree, paths: Iterable[str]) -> int:
    """Return the sum of the digests of the nodes at *paths*. A missing node counts as 0. Packed leaves stay packed."""
    total = 0
    for path in paths:
        above, _, name = path.rpartition("/")
        if not name:
            total += digest_node("", tree.root)
        elif (parent := tree.get(above)) is not None and parent.children:
            node = parent.children.node(name)
            total += digest_node(path, node) if node is not None else 0
    return total
