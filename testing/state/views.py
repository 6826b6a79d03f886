"""Views of a server's state for tests, which are immutable copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from ...protocol import paths
from ...protocol.acl import AclList
from ...protocol.errors import NoNodeError
from ...protocol.paths import is_internal
from ...protocol.records import Stat
from ...server.core.engine import Engine
from ...server.core.node import Node
from ...server.core.watches import CHILD, DATA, watch_kinds
from ..frames.requests import RecordedRequest


@dataclass(frozen=True, slots=True)
class NodeView:
    """An immutable copy of one node of a server.

    Args:
        path: Path of the node.
        data: Data of the node, or None for null.
        acl: ACL list of the node.
        version: Number of changes of the data.
        cversion: Number of children that were created or deleted.
        aversion: Number of changes of the ACL list.
        czxid: Zxid of the transaction that created the node.
        mzxid: Zxid of the last change of the data.
        pzxid: Zxid of the last create or delete of a child.
        ctime: Time of creation, in seconds since the epoch.
        mtime: Time of the last change of the data, in seconds since the epoch.
        ephemeral_owner: Id of the session that owns the node, or 0 if it is not ephemeral.
        num_children: Number of children.
        container: Whether the node is a container, which is deleted after its last child.
        ttl: Seconds without change after which the node is deleted, or None for never.
        children: Names of the children, sorted.
    """

    path: str
    data: bytes | None
    acl: AclList
    version: int
    cversion: int
    aversion: int
    czxid: int
    mzxid: int
    pzxid: int
    ctime: float
    mtime: float
    ephemeral_owner: int
    num_children: int
    container: bool
    ttl: float | None
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SessionView:
    """An immutable copy of one session that is alive.

    Args:
        id: Id of the session.
        timeout: Negotiated timeout in seconds.
        client: Peer address of the session's connection, or None while it has no connection.
        ephemerals: Paths of the session's ephemeral nodes, in order of creation.
        watches: Number of watches of the session's connection.
        expires_in: Seconds until the session expires if its client sends nothing.
    """

    id: int
    timeout: float
    client: str | None
    ephemerals: tuple[str, ...]
    watches: int
    expires_in: float

    @property
    def connected(self) -> bool:
        """Whether the session has a connection."""
        return self.client is not None


@dataclass(frozen=True, slots=True)
class WatchView:
    """An immutable copy of one watch of a server.

    Args:
        path: The watched path. The node need not exist.
        session: Id of the session that set the watch.
        kind: ``data`` or ``child`` for a standard watch, or ``persistent`` or ``recursive``.
    """

    path: str
    session: int
    kind: str


def tree(engine: Engine, path: str = "/") -> Mapping[str, NodeView]:
    """Return a node and all nodes below it by path, parents first.

    The root and ``/zookeeper`` are included only if *path* names them.
    """
    shown: dict[str, NodeView] = {}
    try:
        nodes = list(engine.tree.walk(path))
    except NoNodeError:
        return MappingProxyType(shown)
    for node_path, node in nodes:
        if path == "/" and (node_path == "/" or is_internal(node_path)):
            continue
        shown[node_path] = _node_view(engine, node_path, node)
    return MappingProxyType(shown)


def node_at(engine: Engine, path: str) -> NodeView | None:
    """Return one node, or None if it does not exist."""
    node = engine.tree.get(path)
    return None if node is None else _node_view(engine, path, node)


def check_path(path: object) -> None:
    """Raise a ValueError unless *path* can be the path of a node."""
    reason = paths.path_error(path) if isinstance(path, str) else "expected text"
    if reason is not None:
        raise ValueError(f"{path!r} is not a path: {reason}")


def _node_view(engine: Engine, path: str, node: Node) -> NodeView:
    stat = Stat.decode(node.stat())
    ttl = node.ttl()
    return NodeView(
        path,
        node.data,
        engine.acls.list(node.acl),
        stat.version,
        stat.cversion,
        stat.aversion,
        stat.czxid,
        stat.mzxid,
        stat.pzxid,
        stat.ctime / 1000,
        stat.mtime / 1000,
        stat.ephemeralOwner,
        stat.numChildren,
        node.is_container(),
        None if ttl is None else ttl / 1000,
        tuple(sorted(node.children or ())),
    )


def sessions(engine: Engine) -> Mapping[int, SessionView]:
    """Return all sessions that are alive, by id."""
    shown = {}
    for session in engine.sessions.alive.values():
        client = session.client
        shown[session.id] = SessionView(
            session.id,
            session.timeout_ms / 1000,
            client.address if client is not None else None,
            tuple(engine.tree.ephemerals.get(session.id, ())),
            sum(map(len, client.modes)) if client is not None else 0,
            max(0, session.deadline - engine.monotonic_ms) / 1000,
        )
    return MappingProxyType(shown)


def watches(engine: Engine) -> tuple[WatchView, ...]:
    """Return all watches, by connection."""
    shown = []
    for client in engine.connections:
        owner = client.session_id
        for store in (DATA, CHILD):
            for path, modes in client.modes[store].items():
                shown += [WatchView(path, owner, kind) for kind in watch_kinds(store, modes)]
    return tuple(dict.fromkeys(shown))  # a persistent watch is in both stores, but is listed once


def select(
    requests: Sequence[RecordedRequest], count: int, last: int | None, since: int | None
) -> Sequence[RecordedRequest]:
    """Return the latest recorded requests, up to two limits.

    Args:
        requests: The recorded requests, oldest first.
        count: Total number of requests, including ones that are no longer recorded.
        last: Maximum number of requests to return, or None for all.
        since: Number of requests to skip from the start of the total, or None to skip none.
    """
    newest = len(requests)
    if since is not None:
        newest = min(newest, max(count - since, 0))
    if last is not None:
        newest = min(newest, last)
    return requests[len(requests) - newest :]
