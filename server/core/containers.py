"""Container and TTL nodes: which of them are due to be deleted by the server.

A container is due when it has no children but has had one; or, if ``never_used`` is set, when it has never had one and
was not changed for that long. A TTL node is due when it has no children and was not changed for its ttl. Creating and
deleting children does not renew the ttl; only setData does.

Source: ContainerManager.getCandidates.
"""

from __future__ import annotations

from zoolet.server.core.tree import Tree


def next_due(tree: Tree, now: int, never_used: int) -> int | None:
    """Return the first moment, *now* or later, at which :func:`due` will return a path; None if there is none.

    Args:
        tree: The tree.
        now: Milliseconds since the epoch.
        never_used: As for :func:`due`.
    """
    moments = []
    for node in tree.expiring.values():
        if node.children:
            continue
        ttl = node.ttl()
        if ttl is not None:
            moments.append(node.mtime + ttl + 1)
        elif node.creates > 0:
            moments.append(now)
        elif never_used > 0:
            moments.append(node.mtime + never_used + 1)
    return max(now, min(moments)) if moments else None


def due(tree: Tree, now: int, never_used: int) -> list[str]:
    """Return the paths of the nodes that are due, in order of creation.

    Args:
        tree: The tree.
        now: Milliseconds since the epoch.
        never_used: Milliseconds after which a container that never had a child is due; 0 for never.
    """
    paths = []
    for path, node in tree.expiring.items():
        if node.children:
            continue
        ttl = node.ttl()
        if ttl is not None:
            is_due = now - node.mtime > ttl
        else:
            is_due = node.creates > 0 or (never_used > 0 and now - node.mtime > never_used)
        if is_due:
            paths.append(path)
    return paths
