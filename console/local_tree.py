"""Walking, counting, exporting and deleting subtrees of a server in this process, in time slices."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import Final

from ..protocol.node_json import JsonNode
from ..protocol.operations import OpCode
from ..protocol.records import DeleteRequest
from ..server.core.client_connection import ClientConnection
from ..server.core.engine import Engine
from ..server.core.node import Children, Node, is_session
from .source import MAX_NAME, MAX_SUBTREE, Pace, RequestRefusedError

NODES_PER_CHECK: Final = 128
"""Number of nodes between two checks of the clock."""


def walk(engine: Engine, top: str) -> Iterator[tuple[str, Node]]:
    """Yield the paths and nodes of a subtree, which may change during the walk. New nodes may be missing."""
    node = engine.tree.find(top)
    yield top, node
    # The list contains only names, because traversing tuples of many children would take the garbage collector 80 ms.
    below: Children = node.children if node.children is not None else Children()
    prefix = top.rstrip("/") + "/"  # one text for all levels, because a client may create thousands of levels
    pending = [(0, below, iter(list(below)))]
    while pending:
        size, children, names = pending[-1]
        for name in names:
            child = children.node(name)
            if child is None:
                continue
            yield prefix + name, child
            if child.children:
                prefix += f"{name}/"
                pending.append((len(name) + 1, child.children, iter(list(child.children))))
                break
        else:
            prefix = prefix[: len(prefix) - size]
            pending.pop()


async def count(engine: Engine, top: str, pace: Pace) -> tuple[int, int, int]:
    """Return the numbers of nodes, bytes and ephemeral nodes of a subtree.

    Counting stops after :data:`MAX_SUBTREE` + 1 nodes.
    """
    nodes = size = ephemerals = 0
    for path, node in walk(engine, top):
        nodes += 1
        size += len(node.data or b"")
        ephemerals += is_session(node.owner)
        if not nodes % NODES_PER_CHECK or len(path) > MAX_NAME:
            await pace.rest()
        if nodes > MAX_SUBTREE:
            break
    return nodes, size, ephemerals


async def export(engine: Engine, top: str, pace: Pace) -> AsyncIterator[tuple[str, JsonNode]]:
    """Yield the nodes of a subtree, except ephemeral nodes. ``children_created`` counts all children ever created."""
    for path, node in walk(engine, top):
        await pace.rest()
        if not is_session(node.owner):
            ttl, acl = node.ttl(), engine.acls.list(node.acl)
            seconds = None if ttl is None else ttl / 1000
            yield path, JsonNode(node.data, acl, seconds, node.is_container(), node.creates)


class Deletion:
    """The deletion of a subtree, one transaction for each node.

    Args:
        engine: The engine.
        client: The connection in whose name the nodes are deleted.
        xid: The xid of the transactions.
        most: Maximum number of nodes.

    Attributes:
        deleted: The number of deleted nodes.
    """

    def __init__(self, engine: Engine, client: ClientConnection, xid: int, most: int) -> None:
        self._engine = engine
        self._client = client
        self._xid = xid
        self._most = most
        self.deleted = 0

    async def run(self, top: str, pace: Pace) -> AsyncIterator[None]:
        """Delete the nodes, children first, and yield after each pause.

        Raises:
            RequestRefusedError: The subtree has more than the maximum number of nodes; some are deleted.
        """
        self._engine.tree.find(top)
        pending = [top]
        while pending:
            path = pending[-1]
            node = self._engine.tree.get(path)
            if node is not None and node.children:
                pending += [f"{path}/{name}" for name in islice(node.children, NODES_PER_CHECK)]
                continue
            pending.pop()
            if node is None:
                continue
            if self.deleted == self._most:
                raise RequestRefusedError(f"deleted {self._most} nodes, and stopped because clients have created more")
            self._engine.execute(self._client, self._xid, OpCode.DELETE, DeleteRequest(path, -1).encode())
            self.deleted += 1
            if await pace.rest():
                yield
