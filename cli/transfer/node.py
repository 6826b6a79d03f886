"""The node of a transfer, and paths below its root."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol import paths
from ...protocol.acl import AclList


class TransferNode(NamedTuple):
    """A node, with a path relative to the root of the transfer.

    Args:
        path: Path below the root of the transfer; empty for the root itself.
        data: Data of the node; None for null.
        acl: ACL list; None to keep the target's list, or to allow everyone if the node is created.
        creates: Number of children that were ever created, which is also the number of the next sequential child.
        ttl: Time to live in milliseconds, or None if there is no TTL or it is unknown.
        container: Whether the node is known to be a container.
        implied: Whether the node is only listed as a parent. It is created if it is missing, and never changed.
    """

    path: str
    data: bytes | None
    acl: AclList | None = None
    creates: int = 0
    ttl: int | None = None
    container: bool = False
    implied: bool = False


def join_root(root: str, path: str) -> str:
    """Return the path of a node below a root."""
    return (root.rstrip("/") + path) or "/"


def invalid_path_reason(path: str) -> str | None:
    """Return the reason why a path below a root is invalid, or None if it is valid."""
    return paths.path_error(path) if path else None
