"""Container and TTL nodes: which of them are due to be deleted by the server.

A container is due when it has no children but has had one; or, if ``never_used`` is set, when it has never had one and
was not changed for that long. A TTL node is due when it has no children and was not changed for its ttl. Creating and
deleting children does not renew the ttl; only setData does.

Source: ContainerManager.getCandidates.
"""

from __future__ import annotations

from zoolet.server.core.node import Node
from zoolet.server.core.tree import Tree


def next_due(tree: Tree, now: int, never_used: int) -> int | None:
    """Return the first moment, *now* or later, at which :func:`due` will return a path; None if there is none.

    Args:
        tree: The tree.
        now: Milliseconds since the epoch.
        never_used: As for :func:`due`.
    """
    moments = [_due_at(node, never_used) for node in tree.expiring.values()]
    first = min((moment for moment in moments if moment is not None), default=None)
    return None if first is None else max(now, first)


def due(tree: Tree, now: int, never_used: int) -> list[str]:
    """Return the paths of the nodes that are due, in order of creation.

    Args:
        tree: The tree.
        now: Milliseconds since the epoch.
        never_used: Milliseconds after which a container that never had a child is due; 0 for never.
    """
    moments = ((path, _due_at(node, never_used)) for path, node in tree.expiring.items())
    return [path for path, moment in moments if moment is not None and moment <= now]


def _due_at(node: Node, never_used: int) -> int | None:
    """Return the moment at which a node is due if nothing changes, in milliseconds since the epoch; None for never."""
    if node.children:
        return None
    ttl = node.ttl()
    if ttl is not None:
        return node.mtime + ttl + 1
    if node.creates > 0:
        return 0  # at once
    return node.mtime + never_used + 1 if never_used > 0 else None
