"""setWatches and setWatches2: a reconnected client sets its watches again and receives the missed events.

Source: DataTree.setWatches.
"""

from __future__ import annotations

import struct
from typing import Final

import pytest
from support.calls import connect_peer, create, delete, engine_with_settings, request_error, single_entry_acl
from support.frames import NULL_VALUE, long, request, unhex
from support.log import Log
from support.numbers import CHANGED, CHILDREN, CREATED, DELETED, MARSHALLING_ERROR, OK, THROTTLED_OP
from support.peer import Peer
from support.watch_tables import NO_LEFTOVERS, count_leftovers

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import put_str
from zoolet.protocol.enums import Perm
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode

ROOT: Final = r.ExistsRequest("/", False)

# --- missed events ---


def set_watches(
    peer: Peer, zxid: int, data: list[str] | None = None, exist: list[str] | None = None, child: list[str] | None = None
) -> bytes:
    """Set watches again like a reconnected client. Return all bytes of the answer."""
    return peer.feed(request(-8, OpCode.SET_WATCHES, r.SetWatches(zxid, data or [], exist or [], child or [])))


def reply_without_events(zxid: int) -> bytes:
    """Return the bytes of the answer to set_watches if no event was missed."""
    return frame(unhex("fffffff8") + long(zxid) + unhex("00000000"))


def test_data_watch_set_again_at_last_change_is_silent(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid, data=["/d"])
    other.set("/d", b"new")

    assert raw == reply_without_events(made.zxid)
    assert peer.receive() == [(CHANGED, "/d")]


def missed(kind: int, path: str) -> bytes:
    """Return the notification of an event that the client missed."""
    return frame(unhex("ffffffff ffffffffffffffff 00000000") + r.WatcherEvent(kind, 3, path).encode())


def test_outdated_data_watch_fires_before_reply(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid - 1, data=["/d"])
    other.set("/d", b"new")

    assert raw == missed(CHANGED, "/d") + reply_without_events(made.zxid)
    assert peer.receive() == []


def test_exist_watch_set_again_on_present_node_fires(peer, other):
    made = create(peer, "/d")

    raw = set_watches(peer, made.zxid + 100, exist=["/d"])
    other.set("/d", b"new")

    assert raw == missed(CREATED, "/d") + reply_without_events(made.zxid)
    assert peer.receive() == []


def test_exist_watch_set_again_on_missing_node_is_silent(peer, other):
    raw = set_watches(peer, 0, exist=["/d"])
    other.create("/d")

    assert raw == reply_without_events(2)
    assert peer.receive() == [(CREATED, "/d")]


def test_watch_set_again_on_missing_node_reports_deletion(peer, other):
    raw = set_watches(peer, 0, data=["/d"], child=["/c"])
    other.create("/d")
    other.create("/c")

    assert raw == missed(DELETED, "/d") + missed(DELETED, "/c") + reply_without_events(2)
    assert peer.receive() == []


def test_child_watch_set_again_at_last_child_is_silent(peer, other):
    peer.create("/p")
    child = create(peer, "/p/c")

    raw = set_watches(peer, child.zxid, child=["/p"])
    other.delete("/p/c")

    assert raw == reply_without_events(child.zxid)
    assert peer.receive() == [(CHILDREN, "/p")]


def test_child_watch_set_again_before_last_child_fires(peer, other):
    peer.create("/p")
    child = create(peer, "/p/c")

    raw = set_watches(peer, child.zxid - 1, child=["/p"])
    other.delete("/p/c")

    assert raw == missed(CHILDREN, "/p") + reply_without_events(child.zxid)
    assert peer.receive() == []


def test_child_watch_set_again_sees_deleted_child(peer):
    peer.create("/p")
    child = create(peer, "/p/c")
    deleted = delete(peer, "/p/c")

    raw = set_watches(peer, child.zxid, child=["/p"])

    assert raw == missed(CHILDREN, "/p") + reply_without_events(deleted.zxid)


def test_watch_lists_are_processed_in_order(peer):
    peer.create("/p")
    peer.create("/q")
    last = create(peer, "/p/c").zxid

    raw = set_watches(peer, 0, data=["/q", "/p"], exist=["/p"], child=["/p"])

    assert raw == (
        missed(CHANGED, "/q")
        + missed(CHANGED, "/p")
        + missed(CREATED, "/p")
        + missed(CHILDREN, "/p")
        + reply_without_events(last)
    )


def test_persistent_watches_are_set_again_silently(peer, other):
    peer.create("/p")
    body = r.SetWatches2(0, [], [], [], ["/p"], ["/r"])

    raw = peer.feed(request(-8, OpCode.SET_WATCHES2, body))
    other.create("/p/c")
    other.create("/p/d")
    other.create("/r")
    other.create("/r/c")

    assert raw == reply_without_events(3)
    assert peer.receive() == [(CHILDREN, "/p"), (CHILDREN, "/p"), (CREATED, "/r"), (CREATED, "/r/c")]


# --- permissions, and null lists or paths ---


def test_set_watches_needs_no_right(peer):
    made = create(peer, "/d", acl=single_entry_acl(Perm.WRITE))

    raw = set_watches(peer, 0, data=["/d"])

    assert raw == missed(CHANGED, "/d") + reply_without_events(made.zxid)


def test_null_watch_list_fails_after_earlier_lists(peer):
    body = r.SetWatches(0, ["/missing"], None, [])

    replies = peer.send(OpCode.SET_WATCHES, body.encode(), xid=-8)

    assert [(reply.xid, reply.err) for reply in replies] == [(-1, OK), (-8, MARSHALLING_ERROR)]
    assert peer.receive() == [(DELETED, "/missing")]


@pytest.mark.parametrize("release", ["old", "new"])
def test_null_path_in_set_watches_fails_after_earlier_watches(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)
    peer.create("/a")
    paths = struct.pack(">i", 3) + put_str("/a") + NULL_VALUE + put_str("/a")

    event, reply = peer.send(OpCode.SET_WATCHES, bytes(8) + paths + bytes(8), xid=-8)

    assert event.body == bytes.fromhex("00000003 00000003 00000002 2f61")
    assert (event.xid, event.zxid, reply.xid, reply.err) == (-1, -1, -8, -5)


@pytest.mark.parametrize("release", ["old", "new"])
def test_null_path_of_persistent_watch_is_accepted(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)

    (reply,) = peer.send(OpCode.SET_WATCHES2, bytes(20) + (struct.pack(">i", 1) + NULL_VALUE) * 2, xid=-8)

    assert (reply.xid, reply.err) == (-8, 0)


# --- limits ---


def test_set_watches_at_limit_sets_all() -> None:
    engine = engine_with_settings(max_set_watches=4)
    peer = connect_peer(engine)

    code = request_error(peer, OpCode.SET_WATCHES2, r.SetWatches2(0, [], ["/a"], ["/"], ["/b"], ["/c"]))

    assert (code, peer.closed) == (0, False)
    assert engine.watches.active == 5  # five, because the persistent watch is in both stores


def test_oversized_set_watches_disconnects(log: Log) -> None:
    engine = engine_with_settings(log, max_set_watches=4)
    peer = connect_peer(engine)

    code = request_error(peer, OpCode.SET_WATCHES2, r.SetWatches2(0, ["/"], ["/a"], ["/"], ["/b"], ["/c"]))

    assert (code, peer.closed) == (THROTTLED_OP, True)
    assert engine.metrics.refused["set_watches"] == 1
    assert count_leftovers(engine) == NO_LEFTOVERS
    assert len(log.with_word("closing 127.0.0.1:40000")) == 1


def test_set_watches_over_connection_limit_sets_none() -> None:
    engine = engine_with_settings(max_watches_per_connection=3)
    peer = connect_peer(engine)

    code = request_error(peer, OpCode.SET_WATCHES, r.SetWatches(0, [], [f"/{number}" for number in range(5)], []))

    assert (code, peer.closed) == (THROTTLED_OP, True)
    assert count_leftovers(engine) == NO_LEFTOVERS


def test_requests_after_refused_set_watches_are_ignored() -> None:
    engine = engine_with_settings(max_set_watches=1)
    peer = connect_peer(engine)
    refused = r.RequestHeader(1, OpCode.SET_WATCHES).encode() + r.SetWatches(0, [], ["/a", "/b"], []).encode()
    behind = r.RequestHeader(2, OpCode.CREATE).encode() + r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 0).encode()
    more = r.RequestHeader(3, OpCode.EXISTS).encode() + r.ExistsRequest("/w", True).encode()

    peer.feed(frame(refused) + frame(behind) + frame(more))

    assert engine.tree.get("/late") is None
    assert count_leftovers(engine) == NO_LEFTOVERS


def test_session_survives_oversized_set_watches() -> None:
    engine = engine_with_settings(max_set_watches=1)
    peer = connect_peer(engine)

    request_error(peer, OpCode.SET_WATCHES, r.SetWatches(0, [], ["/a", "/b"], []))

    assert len(engine.sessions.alive) == 1


# --- more watches than fit into one turn ---


def start_long_set_watches(peer: Peer, data: list[str], exist: list[str]) -> bool:
    """Send many watches and an exists, in turns that end immediately, until watches are set. Return whether requests
    remain.
    """
    zxid, before = peer.engine.zxid, peer.engine.watches.active
    frames = request(-8, OpCode.SET_WATCHES, r.SetWatches(zxid, data, exist, [])) + request(7, OpCode.EXISTS, ROOT)
    remains = peer.connection.receive_data(frames, 0.0, lambda: 1)
    while remains and peer.engine.watches.active == before:
        remains = peer.connection.receive_data(b"", 0.0, lambda: 1)
    return remains


def test_long_set_watches_precedes_later_requests(peer):
    before = peer.engine.watches.active

    remains = start_long_set_watches(peer, [], [f"/{number}" for number in range(2000)])
    set_first, answered_first = peer.engine.watches.active - before, peer.pop_output()
    replies = peer._sort(peer.feed(b""))

    assert remains
    assert 0 < set_first < 1000
    assert answered_first == b""
    assert peer.engine.watches.active - before == 2000
    assert [(reply.xid, reply.err) for reply in replies] == [(-8, OK), (7, OK)]


def test_changes_during_set_watches_are_reported(peer, other):
    create(peer, "/first")
    start_long_set_watches(peer, ["/first"], [*(f"/{number}" for number in range(2000)), "/last"])

    other.set("/first", b"")
    other.create("/last")
    peer._sort(peer.feed(b""))

    assert peer.receive() == [(CHANGED, "/first"), (CREATED, "/last")]


def test_truncated_long_set_watches_sets_no_watch(peer):
    body = r.SetWatches(0, [], [f"/{number}" for number in range(2000)], []).encode()

    replies = peer._sort(peer.feed(request(-8, OpCode.SET_WATCHES, body[:-1]) + request(7, OpCode.EXISTS, ROOT)))

    assert [(reply.xid, reply.err) for reply in replies] == [(-8, MARSHALLING_ERROR), (7, OK)]
    assert count_leftovers(peer.engine) == NO_LEFTOVERS


def test_interrupted_set_watches_leaves_no_watch(peer):
    start_long_set_watches(peer, [], [f"/{number}" for number in range(2000)])

    peer.connection.connection_lost()
    peer.engine.watches.sweep(2000)

    assert peer.engine.watches.active == 0


def test_watch_limit_reached_in_later_step_closes_connection() -> None:
    peer = connect_peer(engine_with_settings(max_watches_per_connection=1000))

    start_long_set_watches(peer, [], [f"/{number}" for number in range(2000)])
    peer.feed(b"")

    assert peer.closed


def test_requests_after_set_watches_refused_in_steps_are_ignored() -> None:
    peer = connect_peer(engine_with_settings(max_set_watches=1000))
    long = request(-8, OpCode.SET_WATCHES, r.SetWatches(0, [], [f"/{number}" for number in range(2000)], []))
    write = request(2, OpCode.CREATE, r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 1))
    watch = request(3, OpCode.EXISTS, r.ExistsRequest("/w", True))

    remains = peer.connection.receive_data(long + write + watch, 0.0, lambda: 1)
    while remains:
        remains = peer.connection.receive_data(b"", 2.0, lambda: 1)

    assert peer.closed
    assert peer.engine.tree.get("/late") is None
    assert count_leftovers(peer.engine) == NO_LEFTOVERS


def test_deep_recursive_watches_are_set_in_steps(peer: Peer) -> None:
    paths = [f"/{number}" + "/a" * 1000 for number in range(20)]
    data = request(-8, OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], [], paths))

    remains = peer.connection.receive_data(data, 0.0, lambda: 1)

    assert (remains, peer.engine.watches.active) == (True, 2)


def test_clock_is_read_after_each_add_watch(peer: Peer) -> None:
    data = b"".join(request(number, OpCode.ADD_WATCH, r.AddWatchRequest(f"/{number}", 1)) for number in range(1, 4))

    remains = peer.connection.receive_data(data, 0.0, lambda: 1)

    assert (remains, peer.engine.watches.active) == (True, 1)


def test_set_watches_in_steps_removes_watches_of_lost_client() -> None:
    peer = connect_peer(engine := engine_with_settings(max_watches=100))
    lost = connect_peer(engine)
    lost.feed(request(-8, OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], [], [f"/{n}" for n in range(100)])))
    lost.connection.connection_lost()
    data = request(-8, OpCode.SET_WATCHES, r.SetWatches(0, [], ["/a", "/b"], []))

    remains = peer.connection.receive_data(data, 0.0, lambda: 1)

    assert remains
    assert peer.feed(b"") == reply_without_events(engine.zxid)
    assert engine.watches.active == 2
