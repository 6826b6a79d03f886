"""The most common requests of a :class:`~support.peer.Peer`: each is one call that returns the whole reply.

The methods of ``Peer`` return the result and raise errors; these functions return the reply as the server sent it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from support.engine import make_engine
from support.numbers import TTL
from support.peer import Peer, Reply

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList, Id
from zoolet.protocol.codec import Record
from zoolet.protocol.handshake import NO_PASSWORD, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.config import build, parse_properties
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

NOW: Final = 1_700_000_000_000
"""When the engines of the tests start, in milliseconds since the epoch."""
REFUSED: Final = ConnectResponse(0, 0, NO_PASSWORD, False)
"""The connect response for a session that does not exist, or for a wrong password."""


def engine_with_settings(log: Callable[..., None] | None = None, **settings: object) -> Engine:
    """Return an engine whose fields of EngineSettings have these values."""
    return make_engine(EngineSettings(**settings), log=log)  # type: ignore[arg-type]


def parse_settings(text: str) -> EngineSettings:
    """Return the core's settings from a zoo.cfg."""
    return build(parse_properties(text, "zoo.cfg")).settings


# --- sessions ---


def connect_peer(engine: Engine, timeout: int = 40_000, *, host: str = "127.0.0.1", read_only: bool = False) -> Peer:
    """Return a peer with a new session."""
    peer = Peer(engine, host)
    assert peer.connect(timeout=timeout, read_only=read_only) is not None
    return peer


def resume_session(peer: Peer, timeout: int = 40_000, password: bytes | None = None) -> Peer:
    """Resume the session of *peer* from another connection."""
    assert peer.welcome is not None
    second = Peer(peer.engine)
    second.connect(timeout, peer.welcome.session_id, password or peer.welcome.password or b"")
    return second


def read_session_id(peer: Peer) -> int:
    """Return the id of a peer's session."""
    assert peer.welcome is not None
    return peer.welcome.session_id


# --- single requests ---


def request_reply(peer: Peer, op: int, body: Record | bytes = b"") -> Reply:
    """Send a request. Return its reply, without earlier notifications."""
    raw = body if isinstance(body, bytes) else body.encode()
    (reply,) = [reply for reply in peer.send(op, raw) if reply.xid != -1]
    return reply


def request_error(peer: Peer, op: int, body: Record | bytes = b"") -> int:
    """Send a request. Return the error code of its reply."""
    return request_reply(peer, op, body).err


def create(
    peer: Peer,
    path: str | None,
    flags: int = 0,
    acl: AclList | None = OPEN_ACL_UNSAFE,
    op: int = OpCode.CREATE,
    data: bytes = b"",
) -> Reply:
    """Send a create."""
    return request_reply(peer, op, r.CreateRequest(path, data, acl, flags))


def create_ttl(peer: Peer, path: str, ttl: int, flags: int = TTL) -> Reply:
    """Send a create with a TTL in milliseconds."""
    return request_reply(peer, OpCode.CREATE_TTL, r.CreateTTLRequest(path, b"", OPEN_ACL_UNSAFE, flags, ttl))


def delete(peer: Peer, path: str | None, version: int = -1) -> Reply:
    """Send a delete."""
    return request_reply(peer, OpCode.DELETE, r.DeleteRequest(path, version))


def set_data(peer: Peer, path: str | None, version: int = -1) -> Reply:
    """Send a setData."""
    return request_reply(peer, OpCode.SET_DATA, r.SetDataRequest(path, b"new", version))


def set_acl(peer: Peer, path: str, acl: AclList | None, version: int = -1) -> Reply:
    """Send a setACL."""
    return request_reply(peer, OpCode.SET_ACL, r.SetACLRequest(path, acl, version))


def add_watch(peer: Peer, path: str | None, mode: int) -> Reply:
    """Send an addWatch."""
    return request_reply(peer, OpCode.ADD_WATCH, r.AddWatchRequest(path, mode))


def check_watches(peer: Peer, path: str, kind: int) -> int:
    """Send a checkWatches. Return the error code of its reply."""
    return request_error(peer, OpCode.CHECK_WATCHES, r.CheckWatchesRequest(path, kind))


def remove_watches(peer: Peer, path: str, kind: int) -> int:
    """Send a removeWatches. Return the error code of its reply."""
    return request_error(peer, OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest(path, kind))


def ping(peer: Peer) -> Reply:
    """Send a ping."""
    (reply,) = peer.send(OpCode.PING, xid=-2)
    return reply


def last_zxid(peer: Peer) -> int:
    """Return the zxid of the server's last transaction."""
    return ping(peer).zxid


def read_acl(peer: Peer, path: str) -> AclList:
    """Return the ACL of a node as a client reads it."""
    acl = r.GetACLResponse.decode(request_reply(peer, OpCode.GET_ACL, r.GetACLRequest(path)).body).acl
    assert acl is not None
    return acl


def who_am_i(peer: Peer) -> list[tuple[str | None, str | None]]:
    """Return the identities of a peer as the server sees them: schemes and users, sorted."""
    infos = r.WhoAmIResponse.decode(request_reply(peer, OpCode.WHO_AM_I).body).clientInfo
    return sorted((info.scheme, info.user) for info in infos)


def single_entry_acl(perms: int, scheme: str = "world", name: str | None = "anyone") -> AclList:
    """Return an ACL list of one entry."""
    return (ACL(perms, Id(scheme, name)),)


# --- transactions ---


def multi(peer: Peer, *operations: tuple[OpCode, Record]) -> Reply:
    """Send a multi."""
    return request_reply(peer, OpCode.MULTI, wire.encode_operations(list(operations)))


def create_op(path: str, flags: int = 0, acl: AclList | None = OPEN_ACL_UNSAFE) -> tuple[OpCode, Record]:
    """Return a create for a multi."""
    return OpCode.CREATE, r.CreateRequest(path, b"", acl, flags)


def delete_op(path: str, version: int = -1) -> tuple[OpCode, Record]:
    """Return a delete for a multi."""
    return OpCode.DELETE, r.DeleteRequest(path, version)


def check_op(path: str, version: int = -1) -> tuple[OpCode, Record]:
    """Return a check for a multi."""
    return OpCode.CHECK, r.CheckVersionRequest(path, version)


def set_op(path: str, version: int = -1) -> tuple[OpCode, Record]:
    """Return a setData for a multi."""
    return OpCode.SET_DATA, r.SetDataRequest(path, b"new", version)


# --- time ---


def tick_at(engine: Engine, monotonic_ms: int) -> None:
    """Set the monotonic clock of an engine, and run a tick."""
    engine.set_time(NOW + monotonic_ms, monotonic_ms)
    engine.tick()


def pass_time(engine: Engine, start: int, stop: int, step: int, meanwhile: Callable[[], object]) -> None:
    """Advance the time in steps; after each step run a tick of the server and call *meanwhile*."""
    for monotonic_ms in range(start + step, stop + 1, step):
        tick_at(engine, monotonic_ms)
        meanwhile()


# --- four-letter commands ---


def send_command(engine: Engine, name: str) -> str:
    """Send a four-letter command on a new connection. Return the answer."""
    return Peer(engine, four_letter_commands=four_letter_commands(["*"])).feed(name.encode()).decode()


def mntr(engine: Engine) -> dict[str, str]:
    """Return the metrics of ``mntr`` by name."""
    return dict(line.split("\t", 1) for line in send_command(engine, "mntr").splitlines())
