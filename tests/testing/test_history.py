"""Snapshots: the state that a restore brings back, and the state that a restore does not change."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest
from support.embedded import all_nodes, node_data
from support.waiting import repeat_until_fast
from support.wire import EPHEMERAL, SEQUENTIAL, Wire

from zoolet.protocol import multi
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, Znode

NO_NODE, NO_AUTH, QUOTA_EXCEEDED = -101, -102, -125


def test_restore_undoes_all_kinds_of_changes(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1", "c": "2"}, "/gone": "x"})
    before = all_nodes(server)
    snapshot = server.snapshot()

    wire.set_data("/a/b", b"new")
    wire.delete("/a/c")
    wire.delete("/gone")
    wire.create("/made")
    wire.create("/made/below")
    wire.ask(OpCode.SET_ACL, r.SetACLRequest("/a", READ_ACL_UNSAFE, -1))
    wire.sequential("/made/s-")
    assert all_nodes(server) != before
    server.restore(snapshot)

    assert all_nodes(server) == before
    assert wire.children("/") == ["a", "gone", "zookeeper"]
    assert wire.children("/a") == ["b", "c"]


def test_snapshots_are_restorable_backwards_and_forwards(server: Server) -> None:
    snapshots, trees = [], []
    for i in range(5):
        server.populate({f"/n{i}": str(i), "/same": str(i)})
        snapshots.append(server.snapshot())
        trees.append(all_nodes(server))

    for i in (0, 4, 2, 3, 1, 4, 0, 0, 2):
        server.restore(snapshots[i])
        assert all_nodes(server) == trees[i]


def test_snapshots_of_all_history_branches_are_restorable(server: Server) -> None:
    root = server.snapshot()
    server.populate({"/left": "1"})
    left = server.snapshot()
    server.restore(root)
    server.populate({"/right": "1"})
    right = server.snapshot()
    server.populate({"/right": "2"})

    for snapshot, found in [(left, {"/left": b"1"}), (right, {"/right": b"1"}), (root, {}), (left, {"/left": b"1"})]:
        server.restore(snapshot)
        assert node_data(server) == found


def test_restore_resets_sequence_number(server: Server, wire: Wire) -> None:
    wire.create("/s")
    assert [wire.sequential("/s/n-") for _ in range(2)] == ["/s/n-0000000000", "/s/n-0000000001"]
    snapshot = server.snapshot()
    assert wire.sequential("/s/n-") == "/s/n-0000000002"

    server.restore(snapshot)

    assert wire.sequential("/s/n-") == "/s/n-0000000002"


def test_zxids_do_not_decrease_after_restore(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    wire.create("/a")
    first = server.tree()["/a"].czxid

    server.restore(snapshot)
    wire.create("/a")

    assert server.tree()["/a"].czxid > first


def test_restore_sends_no_events_and_keeps_watches(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    server.populate({"/a": ""})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    watches = server.watches()

    server.restore(snapshot)
    wire.ask(OpCode.PING)
    assert (wire.events, server.watches()) == ([], watches)
    wire.create("/a")

    assert wire.events == [(1, "/a")]


def test_ephemerals_of_live_sessions_are_restored(server: Server, wire: Wire) -> None:
    wire.create("/e", EPHEMERAL)
    snapshot = server.snapshot()
    wire.delete("/e")

    server.restore(snapshot)

    assert server.tree()["/e"].ephemeral_owner == wire.id
    assert server.sessions()[wire.id].ephemerals == ("/e",)
    server.expire(wire.id)
    assert dict(server.tree()) == {}


def test_ephemerals_of_dead_sessions_do_not_come_back(server: Server, wire: Wire, wires: ExitStack) -> None:
    dead = wires.enter_context(Wire(server)).welcomed()
    wire.create("/p")
    dead.create("/p/e", EPHEMERAL)
    wire.create("/p/stays", EPHEMERAL)
    snapshot = server.snapshot()
    server.expire(dead.id)

    for _ in range(2):
        server.restore(snapshot)
        assert set(server.tree()) == {"/p", "/p/stays"}
        assert server.tree()["/p"].num_children == 1
        assert wire.children("/p") == ["stays"]


def test_restore_removes_later_ephemeral_from_its_session(server: Server, wire: Wire) -> None:
    snapshot = server.snapshot()
    wire.create("/e", EPHEMERAL)

    server.restore(snapshot)

    assert server.sessions()[wire.id].ephemerals == ()
    assert wire.create("/e", EPHEMERAL) == 0
    server.expire(wire.id)
    assert dict(server.tree()) == {}


def test_restored_container_and_ttl_node_still_expire() -> None:
    with Server(clock="manual") as server, Wire(server, 1000).welcomed() as wire:
        server.populate({"/c": Znode(container=True, children={"x": ""}), "/t": Znode(ttl=5)})
        snapshot = server.snapshot()
        wire.delete("/c/x")
        server.advance(100)
        assert dict(server.tree()) == {}

        server.restore(snapshot)
        assert set(server.tree()) == {"/c", "/c/x", "/t"}
        assert server.tree()["/c"].container
        wire.delete("/c/x")
        server.advance(100)

        assert dict(server.tree()) == {}


def test_quotas_are_restored() -> None:
    with Server(config={"enforceQuota": "true"}) as server, Wire(server).welcomed() as wire:
        server.populate({"/q": {}})
        wire.create("/zookeeper/quota/q")
        wire.create("/zookeeper/quota/q/zookeeper_limits", value=b"count=-1,bytes=-1,countHardLimit=3")
        wire.create("/zookeeper/quota/q/zookeeper_stats", value=b"count=1,bytes=0")
        assert wire.create("/q/1") == 0
        before = all_nodes(server)
        snapshot = server.snapshot()
        assert [wire.create(f"/q/{i}") for i in (2, 3)] == [0, QUOTA_EXCEEDED]

        server.restore(snapshot)

        assert all_nodes(server) == before
        assert [wire.create(f"/q/{i}") for i in (2, 3)] == [0, QUOTA_EXCEEDED]


def test_restore_removes_later_quota() -> None:
    with Server(config={"enforceQuota": "true"}) as server, Wire(server).welcomed() as wire:
        server.populate({"/q": {}})
        snapshot = server.snapshot()
        wire.create("/zookeeper/quota/q")
        wire.create("/zookeeper/quota/q/zookeeper_limits", value=b"count=-1,bytes=-1,countHardLimit=1")
        wire.create("/zookeeper/quota/q/zookeeper_stats", value=b"count=1,bytes=0")
        assert wire.create("/q/1") == QUOTA_EXCEEDED

        server.restore(snapshot)

        assert [wire.create(f"/q/{i}") for i in range(3)] == [0, 0, 0]


def test_failed_multi_is_undone_despite_snapshots(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1"}})
    first = server.snapshot()
    before = all_nodes(server)

    parts = [
        (OpCode.CREATE, r.CreateRequest("/new", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a/b", b"2", -1)),
        (OpCode.CREATE, r.CreateRequest("/a/s-", b"", OPEN_ACL_UNSAFE, SEQUENTIAL)),
        (OpCode.DELETE, r.DeleteRequest("/nowhere", -1)),
    ]
    wire.send(OpCode.MULTI, multi.encode_operations(parts))
    wire.reply()
    assert all_nodes(server) == before
    server.populate({"/later": ""})
    server.restore(first)

    assert all_nodes(server) == before
    assert wire.sequential("/a/s-") == "/a/s-0000000001"


def test_restore_undoes_whole_transaction(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": "1"}})
    before = all_nodes(server)
    snapshot = server.snapshot()
    parts = [
        (OpCode.CREATE, r.CreateRequest("/new", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE, r.CreateRequest("/new/below", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a/b", b"2", -1)),
        (OpCode.DELETE, r.DeleteRequest("/a/b", -1)),
    ]
    wire.send(OpCode.MULTI, multi.encode_operations(parts))
    assert wire.reply() == 0
    assert set(server.tree()) == {"/a", "/new", "/new/below"}

    server.restore(snapshot)

    assert all_nodes(server) == before


def test_snapshot_of_second_server_is_refused(server: Server) -> None:
    with Server() as other, pytest.raises(ValueError):
        server.restore(other.snapshot())


def test_snapshot_of_earlier_run_is_refused() -> None:
    server = Server()
    with server:
        snapshot = server.snapshot()
    with server, pytest.raises(ValueError):
        server.restore(snapshot)


@pytest.mark.parametrize("nonsense", [None, 3, {}])
def test_invalid_snapshot_is_refused(server: Server, nonsense: Any) -> None:
    with pytest.raises(ValueError):
        server.restore(nonsense)


@pytest.mark.slow
async def test_restore_after_100_writes_takes_1_ms() -> None:
    async with Server() as server:  # in this thread, so the measurement contains no switch of threads
        server.populate({f"/d{i}": {f"n{j}": "x" for j in range(99)} for i in range(100)})
        assert len(server.tree()) == 10_000
        snapshot = server.snapshot()
        took: list[float] = []
        for _ in repeat_until_fast(took, 0.001):
            server.populate({f"/d{i}/n7": "changed" for i in range(100)})
            began = time.perf_counter()
            server.restore(snapshot)
            took.append(time.perf_counter() - began)
        assert server.tree()["/d7/n7"].data == b"x"

    assert min(took) <= 0.001, took
