"""Read-only mode: which clients are served, and which requests are refused."""

from __future__ import annotations

import pytest
from support.calls import connect_peer
from support.engine import make_engine
from support.logins import SUPER
from support.peer import Peer
from support.private_nodes import PRIVATE

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import ErrorCode, NoAuthError, NotReadOnlyError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings


def test_read_only_server_serves_only_reads() -> None:
    engine = make_engine()
    connect_peer(engine).create("/a", b"1")
    engine.set_read_only(True)
    peer = connect_peer(engine, read_only=True)

    assert peer.welcome is not None
    assert peer.welcome.read_only is True
    assert peer.get("/a")[0] == b"1"
    with pytest.raises(NotReadOnlyError):
        peer.set("/a", b"2")
    with pytest.raises(NotReadOnlyError):
        peer.call(OpCode.SYNC, r.SyncRequest("/a"))


def test_read_only_server_refuses_writing_clients() -> None:
    engine = make_engine()
    engine.set_read_only(True)

    peer = Peer(engine)
    welcome = peer.connect()

    assert welcome is None
    assert peer.closed


def test_switch_to_read_only_cuts_connections_and_keeps_sessions() -> None:
    engine = make_engine()
    before = connect_peer(engine)
    before.create("/mine", flags=1)
    assert before.welcome is not None

    engine.set_read_only(True)
    engine.set_read_only(False)
    after = Peer(engine)
    after.connect(session=before.welcome.session_id, password=before.welcome.password or b"")

    assert before.closed
    assert after.exists("/mine").ephemeralOwner == before.welcome.session_id
    after.set("/mine", b"writes again")


@pytest.mark.parametrize(
    ("op", "request_"),
    [
        (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest("/kept", -1)),
        (OpCode.SET_DATA, r.SetDataRequest("/kept", b"x", -1)),
        (OpCode.SET_ACL, r.SetACLRequest("/kept", PRIVATE, -1)),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 4)),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 5, 1000)),
        (OpCode.RECONFIG, r.ReconfigRequest(None, None, None, -1)),
    ],
    ids=lambda value: getattr(value, "name", None) or None,
)
def test_super_user_cannot_write_in_read_only_mode(op: OpCode, request_: r.Stat) -> None:
    engine = make_engine(EngineSettings(super_digest=SUPER, reconfig_enabled=True))
    connect_peer(engine).create("/kept")
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)
    peer.auth("digest", b"super:pw")
    before = engine.zxid

    (reply,) = peer.send(op, request_.encode())

    assert (reply.err, engine.zxid) == (ErrorCode.NOT_READ_ONLY, before)


def test_multi_in_read_only_mode_writes_nothing() -> None:
    engine = make_engine()
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)

    (reply,) = peer.send(
        OpCode.MULTI, wire.encode_operations([(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))])
    )

    assert reply.err == ErrorCode.NOT_READ_ONLY
    assert engine.tree.get("/a") is None


def test_acls_apply_in_read_only_mode(private: Peer) -> None:
    engine = private.engine
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)

    with pytest.raises(NoAuthError):
        peer.get("/private")
