"""What a test may see of a server: copies that change nothing and are changed by nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from zoolet.protocol.acl import AclList
from zoolet.protocol.errors import ErrorCode, NoNodeError
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import Stat
from zoolet.server.core.engine import Engine
from zoolet.server.core.tree import ZOOKEEPER
from zoolet.server.core.watches import CHILD, DATA, PERSISTENT, RECURSIVE, STANDARD
from zoolet.server.testing.faults import CONNECT, paths_in
from zoolet.server.testing.interceptor import RecordedRequest


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    Args:
        path: Where it is.
        data: What it holds; None for null.
        acl: Who may do what.
        version: Changes of its data.
        cversion: Changes of its children.
        aversion: Changes of its ACL list.
        czxid: The transaction that made it.
        mzxid: The one that last changed its data.
        pzxid: The one that last changed its children.
        ctime: When it was made, in seconds since the epoch.
        mtime: When its data was last changed.
        ephemeral_owner: The session it belongs to; 0 for none.
        num_children: Nodes right below it.
        container: It goes away after its last child.
        ttl: Seconds without change after which it goes away; None for never.
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
        id: As clients tell it.
        timeout: Seconds, as negotiated.
        client: The address of the connection that serves it; None while there is none.
        ephemerals: Paths of its ephemeral nodes, in order of creation.
        watches: How many watches its connection has.
        expires_in: Seconds that are left if nothing is heard of it.
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
        path: What is watched; it need not exist.
        session: Whose it is.
        kind: ``data`` or ``child`` for those that fire once; ``persistent`` or ``recursive``.
    """

    path: str
    session: int
    kind: str


@dataclass(frozen=True, slots=True)
class OpView:
    """One request that was read.

    Args:
        op: Its operation, such as ``getData``; ``connect`` for the first of a connection.
        path: What it was about; the first of several, None for none.
        session: Who asked; 0 if it had no session yet.
        error: Its error code, 0 if it succeeded; None if nothing was answered.
        zxid: The server's last zxid afterwards.
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
            known = self.error in ErrorCode.__members__.values()
            outcome = ErrorCode(self.error).name if known else str(self.error)
        said = [f"0x{self.session:x}", self.op, *([self.path] if self.path else []), "->", outcome]
        return " ".join([*said, f"zxid=0x{self.zxid:x}", *([f"[{self.fault}]"] if self.fault else [])])


def tree(engine: Engine, path: str = "/") -> Mapping[str, NodeView]:
    """Show a node and all below it by path, parents first; the root and ``/zookeeper`` only if asked for by name."""
    shown: dict[str, NodeView] = {}
    try:
        found = list(engine.tree.walk(path))
    except NoNodeError:
        return MappingProxyType(shown)
    for at, node in found:
        if path == "/" and (at in ("/", ZOOKEEPER) or at.startswith(ZOOKEEPER + "/")):
            continue
        stat = Stat.decode(node.stat())
        ttl = node.ttl()
        shown[at] = NodeView(
            at,
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
    """Show all sessions that are alive, by id."""
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
    """Show all watches, by session."""
    shown = []
    for client in engine.connections:
        owner = client.session.id if client.session is not None else 0
        for store, once in ((DATA, "data"), (CHILD, "child")):
            for path, modes in client.modes[store].items():
                kinds = ((STANDARD, once), (PERSISTENT, "persistent"), (RECURSIVE, "recursive"))
                shown += [WatchView(path, owner, kind) for mode, kind in kinds if modes & mode]
    return tuple(dict.fromkeys(shown))  # one persistent watch stands in both stores


def ops(seen: Iterable[RecordedRequest]) -> tuple[OpView, ...]:
    """Show requests in the order in which they were read."""
    return tuple(
        OpView(
            op_name(one.opcode),
            next(iter(paths_in(one.opcode, one.body)), None),
            one.session,
            one.error,
            one.zxid,
            one.faults_applied,
        )
        for one in seen
    )


def select(
    requests: Sequence[RecordedRequest], count: int, last: int | None, since: int | None
) -> Sequence[RecordedRequest]:
    """Return the newest of some requests.

    Args:
        requests: Those that were kept, oldest first.
        count: How many there have been so far.
        last: How many to return at the most; None for all.
        since: The count from which on to return them; None for all.
    """
    newest = len(requests)
    if since is not None:
        newest = min(newest, max(count - since, 0))
    if last is not None:
        newest = min(newest, last)
    return requests[len(requests) - newest :]


def op_name(opcode: int) -> str:
    """Name an operation as ZooKeeper does: ``getData``, ``createSession`` being ``connect``."""
    if opcode == CONNECT:
        return "connect"
    try:
        first, *rest = OpCode(opcode).name.lower().split("_")
    except ValueError:
        return f"op {opcode}"
    return first + "".join(part.capitalize() for part in rest)
