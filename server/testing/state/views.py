"""Views of a server's state for tests: immutable copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from zoolet.protocol import paths
from zoolet.protocol.acl import AclList
from zoolet.protocol.errors import NoNodeError
from zoolet.protocol.paths import ZOOKEEPER
from zoolet.protocol.records import Stat
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Node
from zoolet.server.core.watches import CHILD, DATA, PERSISTENT, RECURSIVE, STANDARD
from zoolet.server.testing.frames.requests import RecordedRequest


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Args:
        path: Its path.
        data: Its data; None for null.
        acl: Its ACL list.
        version: How often its data was changed.
        cversion: How often a child was created or deleted.
        aversion: How often its ACL list was changed.
        czxid: The zxid of the transaction that created it.
        mzxid: The zxid of the last change of its data.
        pzxid: The zxid of the last create or delete of a child.
        ctime: When it was created, in seconds since the epoch.
        mtime: When its data was last changed, in seconds since the epoch.
        ephemeral_owner: The id of the session that it belongs to; 0 for none.
        num_children: The number of its children.
        container: Whether it is a container, which is deleted after its last child.
        ttl: Seconds without change after which it is deleted; None for never.
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


@dataclass(frozen=True, slots=True)
class SessionView:
    """One session that is alive.

    Args:
        id: Its id.
        timeout: The negotiated timeout, in seconds.
        client: The peer address of the connection that serves it; None while there is none.
        ephemerals: The paths of its ephemeral nodes, in order of creation.
        watches: The number of watches of its connection.
        expires_in: Seconds after which it expires if its client sends nothing.
    """

    id: int
    timeout: float
    client: str | None
    ephemerals: tuple[str, ...]
    watches: int
    expires_in: float

    @property
    def connected(self) -> bool:
        """Whether a connection serves it."""
        return self.client is not None


@dataclass(frozen=True, slots=True)
class WatchView:
    """One watch.

    Args:
        path: The watched path; the node need not exist.
        session: The id of the session whose connection has the watch.
        kind: ``data`` or ``child`` for standard watches; ``persistent`` or ``recursive``.
    """

    path: str
    session: int
    kind: str


def tree(engine: Engine, path: str = "/") -> Mapping[str, NodeView]:
    """Return a node and all nodes below it by path, parents first; root and ``/zookeeper`` only if named by *path*."""
    shown: dict[str, NodeView] = {}
    try:
        nodes = list(engine.tree.walk(path))
    except NoNodeError:
        return MappingProxyType(shown)
    for node_path, node in nodes:
        if path == "/" and (node_path in ("/", ZOOKEEPER) or node_path.startswith(ZOOKEEPER + "/")):
            continue
        shown[node_path] = _view(engine, node_path, node)
    return MappingProxyType(shown)


def node_at(engine: Engine, path: str) -> NodeView | None:
    """Return one node; None if there is none."""
    node = engine.tree.get(path)
    return None if node is None else _view(engine, path, node)


def check_path(path: object) -> None:
    """Raise a ValueError unless this can be the path of a node."""
    reason = paths.path_error(path) if isinstance(path, str) else "it is not text"
    if reason is not None:
        raise ValueError(f"{path!r} is not a path: {reason}")


def _view(engine: Engine, path: str, node: Node) -> NodeView:
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
    )


def sessions(engine: Engine) -> Mapping[int, SessionView]:
    """Return all sessions that are alive, by id."""
    shown = {}
    for session in engine.sessions.alive.values():
        client = session.client
        shown[session.id] = SessionView(
            session.id,
            session.timeout_ms / 1000,
            f"{client.host}:{client.port}" if client is not None else None,
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
        for store, once in ((DATA, "data"), (CHILD, "child")):
            for path, modes in client.modes[store].items():
                kinds = ((STANDARD, once), (PERSISTENT, "persistent"), (RECURSIVE, "recursive"))
                shown += [WatchView(path, owner, kind) for mode, kind in kinds if modes & mode]
    return tuple(dict.fromkeys(shown))  # a persistent watch is in both stores


def select(
    requests: Sequence[RecordedRequest], count: int, last: int | None, since: int | None
) -> Sequence[RecordedRequest]:
    """Return the last of the recorded requests.

    Args:
        requests: The requests that are kept, oldest first.
        count: The total number of requests.
        last: The most requests to return; None for all.
        since: How many of the total to skip; None for none.
    """
    newest = len(requests)
    if since is not None:
        newest = min(newest, max(count - since, 0))
    if last is not None:
        newest = min(newest, last)
    return requests[len(requests) - newest :]
