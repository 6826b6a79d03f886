"""The limits for the watches of one connection, and of all connections."""

from __future__ import annotations

import pytest
from support.calls import connect_peer, engine_with_settings, request_error
from support.log import Log
from support.numbers import BAD_ARGUMENTS, PERSISTENT_WATCH, RECURSIVE_WATCH, THROTTLED_OP
from support.peer import Peer
from support.watch_tables import NO_LEFTOVERS, count_leftovers

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.server.core.watches import DATA, weight

ANY = 3


def watch(peer: Peer, path: str) -> int:
    """Set a one-shot watch on a node that need not exist. Return 0, or the error if a limit is exceeded."""
    code = request_error(peer, OpCode.EXISTS, r.ExistsRequest(path, True))
    return 0 if code == -101 else code


def test_connection_sets_watches_up_to_limit(log: Log) -> None:
    engine = engine_with_settings(log, max_watches_per_connection=3)
    peer = connect_peer(engine)

    codes = [watch(peer, f"/{number}") for number in range(4)]

    assert codes == [0, 0, 0, THROTTLED_OP]
    assert (engine.watches.active, peer.client.watch_weight) == (3, 3)
    assert engine.metrics.refused["watches_per_connection"] == 1
    assert not peer.closed


def test_number_of_watches_of_all_connections_is_limited(log: Log) -> None:
    engine = engine_with_settings(log, max_watches=3)
    first, second = connect_peer(engine), connect_peer(engine)

    codes = [watch(first, "/1"), watch(first, "/2"), watch(second, "/1"), watch(second, "/2")]

    assert codes == [0, 0, 0, THROTTLED_OP]
    assert engine.metrics.refused["watches"] == 1
    assert engine.watches.active == 3


@pytest.mark.parametrize(
    ("setting", "key"),
    [("max_watches_per_connection", "zoolet.maxWatchesPerConnection"), ("max_watches", "zoolet.maxWatches")],
)
def test_refused_watches_are_logged_once(log: Log, setting: str, key: str) -> None:
    engine = engine_with_settings(log, **{setting: 1})
    peer = connect_peer(engine)

    for number in range(100):
        watch(peer, f"/{number}")

    assert len(log.with_word(key)) == 1


def test_repeated_watch_counts_once_toward_limit() -> None:
    peer = connect_peer(engine_with_settings(max_watches_per_connection=1))

    codes = [watch(peer, "/a") for _ in range(5)]

    assert codes == [0] * 5


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 1), (127, 1), (128, 2), (129, 2), (255, 2), (256, 3), (128_000, 1001)]
)
def test_watch_on_long_path_counts_as_several_watches(length: int, expected: int) -> None:
    assert weight("/" * length) == expected


def test_long_path_of_ten_watches_reaches_limit() -> None:
    engine = engine_with_settings(max_watches_per_connection=10)
    peer = connect_peer(engine)

    codes = [watch(peer, "/" + "a" * 1151), watch(peer, "/b"), watch(peer, "/c")]

    assert codes == [0, THROTTLED_OP, THROTTLED_OP]
    assert (engine.watches.active, engine.watches._weight) == (1, 10)


def test_fired_watch_no_longer_counts_toward_limit() -> None:
    engine = engine_with_settings(max_watches_per_connection=1)
    peer = connect_peer(engine)
    watch(peer, "/a")
    peer.create("/a")

    assert watch(peer, "/b") == 0
    assert engine.watches._weight == 1


def test_removed_watch_no_longer_counts_toward_limit() -> None:
    engine = engine_with_settings(max_watches_per_connection=2)
    peer = connect_peer(engine)
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/a", PERSISTENT_WATCH))

    peer.send(OpCode.REMOVE_WATCHES, r.RemoveWatchesRequest("/a", ANY).encode())

    assert count_leftovers(engine) == NO_LEFTOVERS
    assert [watch(peer, "/b"), watch(peer, "/c")] == [0, 0]


def test_read_with_refused_watch_is_refused() -> None:
    peer = connect_peer(engine_with_settings(max_watches_per_connection=1))
    peer.create("/a", b"x")
    watch(peer, "/b")

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/a", True).encode())

    assert (reply.err, reply.body) == (THROTTLED_OP, b"")


def test_persistent_watch_counts_as_two_watches() -> None:
    engine = engine_with_settings(max_watches_per_connection=1)
    peer = connect_peer(engine)

    code = request_error(peer, OpCode.ADD_WATCH, r.AddWatchRequest("/a", PERSISTENT_WATCH))

    assert code == THROTTLED_OP
    assert count_leftovers(engine) == NO_LEFTOVERS
    assert peer.client.modes == ({}, {})


def test_persistent_watch_beyond_limit_is_not_set() -> None:
    engine = engine_with_settings(max_watches=1)
    peer = connect_peer(engine)

    request_error(peer, OpCode.ADD_WATCH, r.AddWatchRequest("/a", PERSISTENT_WATCH))
    peer.create("/a")

    assert peer.receive() == []
    assert count_leftovers(engine) == NO_LEFTOVERS


def test_recursive_watch_on_very_deep_path_is_refused() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)

    codes = [
        request_error(peer, OpCode.ADD_WATCH, r.AddWatchRequest("/a" * levels, mode))
        for levels, mode in ((2_000, RECURSIVE_WATCH), (2_001, PERSISTENT_WATCH), (2_001, RECURSIVE_WATCH))
    ]

    assert codes == [0, 0, BAD_ARGUMENTS]
    assert len(engine.watches._recursive[DATA]) == 1
    assert engine.metrics.refused["watches"] == 1


def test_refused_recursive_watch_reports_nothing() -> None:
    engine = engine_with_settings(max_watches_per_connection=1)
    peer = connect_peer(engine)
    watch(peer, "/other")

    request_error(peer, OpCode.ADD_WATCH, r.AddWatchRequest("/", RECURSIVE_WATCH))
    peer.create("/a")

    assert peer.receive() == []
    assert len(engine.watches._recursive[DATA]) == 0


def test_watches_of_lost_connections_are_removed() -> None:
    engine = engine_with_settings()
    peers = [connect_peer(engine) for _ in range(3)]
    for peer in peers:
        for path in ("/a", "/" + "b" * 1000, "/c/d"):
            watch(peer, path)
            peer.call(OpCode.ADD_WATCH, r.AddWatchRequest(path, PERSISTENT_WATCH))
            peer.call(OpCode.ADD_WATCH, r.AddWatchRequest(path, RECURSIVE_WATCH))

    for peer in peers:
        peer.connection.connection_lost()
    engine.watches.sweep()

    assert count_leftovers(engine) == NO_LEFTOVERS
    assert [peer.client.watch_weight for peer in peers] == [0, 0, 0]
    assert [len(index) for index in engine.watches._recursive] == [0, 0]


def test_watches_of_lost_connection_do_not_count_toward_limit() -> None:
    engine = engine_with_settings(max_watches=2)
    first = connect_peer(engine)
    watch(first, "/a")
    watch(first, "/b")

    first.connection.connection_lost()
    second = connect_peer(engine)

    assert [watch(second, "/a"), watch(second, "/b")] == [0, 0]
