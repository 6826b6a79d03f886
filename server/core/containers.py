"""The search for container and TTL nodes that the server should delete.

- A container is due when its last child was deleted. If ``never_used`` is set, a container that never had a child is
  due when it has not changed for this time.
- A TTL node is due when it has no children and has not changed for its ttl. Only setData restarts the ttl; creating and
  deleting children does not.

Source: ContainerManager.getCandidates.
"""

from __future__ import annotations

from .node import Node
from .tree import Tree


def next_due(tree: Tree, now: int, never_used: int) -> int | None:
    """Return the first time when a node is due, but not before *now*. Return None if no node will become due.

    Args:
        tree: The tree.
        now: Current time in milliseconds since the epoch.
        never_used: Maximum age of a container that never had a child, in milliseconds; 0 for no limit.
    """
    moments = [_due_at(node, never_used) for node in tree.expiring.values()]
    first = min((moment for moment in moments if moment is not None), default=None)
    return None if first is None else max(now, first)


class DueSearch:
    """A search for the nodes that are due, in order of creation. Other requests may be executed between its steps.

    Args:
        tree: The tree.
        limit: Maximum number of nodes to find.
    """

    def __init__(self, tree: Tree, limit: int) -> None:
        self._tree = tree
        self._unchecked = list(reversed(tree.expiring))  # the first path is at the end
        self._left = limit

    def step(self, now: int, never_used: int) -> str | None:
        """Check one node, and return its path if it is due.

        Args:
            now: Current time in milliseconds since the epoch.
            never_used: Maximum age of a container that never had a child, in milliseconds; 0 for no limit.
        """
        path = self._unchecked.pop()
        node = self._tree.expiring.get(path)  # None if the node was deleted during the search
        moment = _due_at(node, never_used) if node is not None else None
        if moment is None or moment > now:
            return None
        self._left -= 1
        return path

    @property
    def is_finished(self) -> bool:
        """Whether all nodes were checked, or the maximum number was found."""
        return not (self._unchecked and self._left)


def _due_at(node: Node, never_used: int) -> int | None:
    """Return the time when a node is due if it does not change before, in milliseconds since the epoch.

    Return None for a node that is not due at any time.
    """
    if node.children:
        return None
    ttl = node.ttl()
    if ttl is not None:
        return node.mtime + ttl + 1
    if node.creates > 0:
        return 0  # a container is due as soon as its last child is deleted
    return node.mtime + never_used + 1 if never_used > 0 else None
