"""The removal of containers and TTL nodes."""

from __future__ import annotations

import pytest
from support.calls import connect_peer
from support.engine import make_engine

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings


def test_container_is_deleted_after_last_child() -> None:
    engine = make_engine(EngineSettings(container_check_interval=500))
    peer = connect_peer(engine)
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


def test_container_that_never_had_a_child_is_kept() -> None:
    engine = make_engine(EngineSettings(container_check_interval=500))
    peer = connect_peer(engine)
    peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 4))

    engine.set_time(10**9, 500)
    engine.tick()

    assert peer.children("/") == ["c", "zookeeper"]


def test_only_set_data_extends_life_of_ttl_node() -> None:
    engine = make_engine(EngineSettings(container_check_interval=100))
    peer = connect_peer(engine)
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/kept", b"", OPEN_ACL_UNSAFE, 5, 1000))
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/read", b"", OPEN_ACL_UNSAFE, 5, 1000))
    engine.set_time(900, 900)
    peer.set("/kept", b"")
    peer.get("/read")

    engine.set_time(1500, 1500)
    engine.tick()

    assert peer.children("/") == ["kept", "zookeeper"]


@pytest.fixture
def three_due(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine with three TTL nodes that are due and one that is not. Each tick checks two nodes."""
    monkeypatch.setattr("zoolet.server.core.engine.MAX_CHECKED_PER_TICK", 2)
    engine = make_engine(EngineSettings(container_check_interval=100))
    peer = connect_peer(engine)
    for name, ttl in (("a", 50), ("b", 5_000), ("c", 50), ("d", 50)):
        peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest(f"/{name}", b"", OPEN_ACL_UNSAFE, 5, ttl))
    engine.set_time(100, 100)
    return engine


def remaining_names(engine: Engine) -> str:
    return "".join(engine.tree.root.children or ()).replace("zookeeper", "")


def test_search_for_due_nodes_takes_several_ticks(three_due: Engine) -> None:
    assert [(three_due.tick(), remaining_names(three_due)) for _ in range(3)] == [
        (True, "bcd"),
        (True, "b"),
        (False, "b"),
    ]


def test_tick_reaps_limited_number_of_nodes(three_due: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.core.engine.MAX_REAPED_PER_TICK", 1)

    assert [(three_due.tick(), remaining_names(three_due)) for _ in range(4)] == [
        (True, "bcd"),
        (True, "bd"),
        (True, "b"),
        (False, "b"),
    ]


def test_search_for_due_nodes_ends_before_next_one_starts(three_due: Engine) -> None:
    three_due.tick()
    three_due.set_time(200, 200)

    assert (three_due.tick(), remaining_names(three_due)) == (True, "b")


def test_due_node_deleted_during_search_is_skipped(three_due: Engine) -> None:
    three_due.tick()
    connect_peer(three_due).delete("/c")

    assert (three_due.tick(), remaining_names(three_due)) == (True, "b")


def test_search_for_due_nodes_stops_when_tree_is_cleared(three_due: Engine) -> None:
    three_due.tick()
    three_due.clear()

    assert (three_due.tick(), remaining_names(three_due)) == (False, "")


def test_reap_deletes_all_due_nodes(three_due: Engine) -> None:
    three_due.reap()

    assert remaining_names(three_due) == "b"
