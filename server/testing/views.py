"""Views of a server's state for tests: immutable copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from zoolet.protocol.acl import AclList
from zoolet.protocol.errors import ErrorCode, NoNodeError
from zoolet.protocol.operations import name_of
from zoolet.protocol.records import Stat
from zoolet.server.core.engine import Engine
from zoolet.server.core.tree import ZOOKEEPER
from zoolet.server.core.watches import CHILD, DATA, PERSISTENT, RECURSIVE, STANDARD
from zoolet.server.testing.faults import paths_in
from zoolet.server.testing.interceptor import RecordedRequest


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


@dataclass(frozen=True, slots=True)
class OpView:
    """One request that was read.

    Args:
        op: Its operation, such as ``getData``; ``connect`` for a connect request.
        path: Its path, or the first of several; None for none.
        session: The id of the client's session; 0 if there was none yet.
        error: The error code of the reply, 0 if it succeeded; None if there was no reply.
        zxid: The server's last zxid after it.
        fault: The actions that were applied to it; empty for none.
    """

    op: str
    path: str | None
    session: int
    error: int | None
    zxid: int
    fault: str = ""

    def __str__(self) -> str:
        if self.error is None:
            outcome = "no reply"
        elif self.error == 0:
            outcome = "ok"
        else:
            has_name = self.error in ErrorCode.__members__.values()
            outcome = ErrorCode(self.error).name if has_name else str(self.error)
        request = [f"0x{self.session:x}", self.op, *([self.path] if self.path else [])]
        return " ".join(
            [*request, "->", outcome, f"zxid=0x{self.zxid:x}", *([f"[{self.fault}]"] if self.fault else [])]
        )


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
        stat = Stat.decode(node.stat())
        ttl = node.ttl()
        shown[node_path] = NodeView(
            node_path,
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
            stat.ephemeralOwner if node.owner > 0 else 0,
            stat.numChildren,
            node.is_container(),
            None if ttl is None else ttl / 1000,
        )
    return MappingProxyType(shown)


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
        owner = client.session.id if client.session is not None else 0
        for store, once in ((DATA, "data"), (CHILD, "child")):
            for path, modes in client.modes[store].items():
                kinds = ((STANDARD, once), (PERSISTENT, "persistent"), (RECURSIVE, "recursive"))
                shown += [WatchView(path, owner, kind) for mode, kind in kinds if modes & mode]
    return tuple(dict.fromkeys(shown))  # a persistent watch is in both stores


def ops(requests: Iterable[RecordedRequest]) -> tuple[OpView, ...]:
    """Return the views of recorded requests, in the same order."""
    return tuple(
        OpView(
            name_of(request.opcode),
            next(iter(paths_in(request.opcode, request.body)), None),
            request.session,
            request.error,
            request.zxid,
            request.faults_applied,
        )
        for request in requests
    )


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
