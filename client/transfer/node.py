"""A node on its way from one place to another."""

from __future__ import annotations

from typing import NamedTuple

from zoolet.protocol import paths
from zoolet.protocol.acl import AclList


class TransferNode(NamedTuple):
    """A node, with a path below what is transferred.

    Args:
        path: Its path below the root of the transfer; empty for the root itself.
        data: Its data; None for null.
        acl: Its ACL list; None for that of the target, or for everyone if it is created.
        creates: How many children were created below it, ever: the number of its next sequential child.
        ttl: Milliseconds without change after which it is deleted; None for never, or if that is not known.
        container: Whether it is known to be a container.
        implied: Whether it is only the parent of others: it is created if it is missing, and never changed.
    """

    path: str
    data: bytes | None
    acl: AclList | None = None
    creates: int = 0
    ttl: int | None = None
    container: bool = False
    implied: bool = False


def joined(root: str, path: str) -> str:
    """Return the path of a node below another root."""
    return (root.rstrip("/") + path) or "/"


def problem_of(path: str) -> str | None:
    """Return what is wrong with a path below a root; None for nothing."""
    return paths.path_error(path) if path else None
