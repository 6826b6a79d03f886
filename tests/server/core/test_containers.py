"""The removal of containers and TTL nodes."""

from __future__ import annotations

from support.calls import connected
from support.engine import make_engine

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import Settings


def test_container_is_deleted_after_last_child() -> None:
    engine = make_engine(Settings(container_check_interval=500))
    peer = connected(engine)
    peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 4))
    peer.create("/c/x")
    peer.delete("/c/x")
    before = engine.zxid
    peer.children("/", watch=True)

    engine.set_time(500, 500)
    engine.tick()

    assert peer.children("/") == ["zookeeper"]
    assert engine.zxid == before + 1
    assert peer.receive() == [(4, "/")]


def test_container_that_never_had_child_stays() -> None:
    engine = make_engine(Settings(container_check_interval=500))
    peer = connected(engine)
    peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 4))

    engine.set_time(10**9, 500)
    engine.tick()

    assert peer.children("/") == ["c", "zookeeper"]


def test_only_setting_its_data_keeps_a_ttl_node_alive() -> None:
    engine = make_engine(Settings(container_check_interval=100))
    peer = connected(engine)
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/kept", b"", OPEN_ACL_UNSAFE, 5, 1000))
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/read", b"", OPEN_ACL_UNSAFE, 5, 1000))
    engine.set_time(900, 900)
    peer.set("/kept", b"")
    peer.get("/read")

    engine.set_time(1500, 1500)
    engine.tick()

    assert peer.children("/") == ["kept", "zookeeper"]
