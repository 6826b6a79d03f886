"""Watches of lost connections: any number of them is ignored immediately and removed incrementally."""

from __future__ import annotations

import time

import pytest
from support.calls import connect_peer, send_command
from support.engine import make_engine
from support.numbers import CREATED, NO_WATCHER, PERSISTENT_WATCH, RECURSIVE_WATCH
from support.peer import Peer
from support.watch_tables import count_watches

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings
from zoolet.server.core.watches import CHILD, DATA
from zoolet.testing.state import views

MANY_WATCHES = 1_001
"""A number of watches that is too large for one step of the removal."""


@pytest.fixture
def writer(engine: Engine) -> Peer:
    return connect_peer(engine)


def watching(engine: Engine, count: int, prefix: str = "/w") -> Peer:
    """Return a client with watches on *count* missing nodes."""
    peer = connect_peer(engine)
    peer.send(OpCode.SET_WATCHES, r.SetWatches(0, [], [f"{prefix}{number}" for number in range(count)], []).encode())
    assert not peer.closed
    return peer


def lost(peer: Peer) -> Peer:
    """Lose the connection of a client."""
    peer.connection.connection_lost()
    peer.pop_output()
    return peer


def make_lost_peer(engine: Engine, count: int = MANY_WATCHES) -> Peer:
    """Return a client that had *count* watches and has lost its connection."""
    return lost(watching(engine, count))


def sweep_once(engine: Engine, limit: int) -> int:
    """Sweep once. Return the number of removed watches."""
    before = count_watches(engine)
    engine.watches.sweep(limit)
    return before - count_watches(engine)


# --- removal in one step, or in slices ---


def test_few_watches_of_lost_connection_are_removed_directly(engine: Engine) -> None:
    make_lost_peer(engine, 16)

    assert (engine.watches.unswept, count_watches(engine), engine.watches._weight) == (False, 0, 0)


def test_many_watches_of_lost_connection_wait_for_sweep(engine: Engine) -> None:
    make_lost_peer(engine, 17)

    assert (engine.watches.unswept, count_watches(engine)) == (True, 17)


@pytest.mark.parametrize(("paths", "unswept"), [(["/a", "/b"], False), (["/" * 100], True)])
def test_deep_recursive_watch_waits_for_sweep(engine: Engine, paths: list[str], unswept: bool) -> None:
    peer = connect_peer(engine)
    for path in paths:
        peer.call(OpCode.ADD_WATCH, r.AddWatchRequest(path, RECURSIVE_WATCH))
    lost(peer)

    assert engine.watches.unswept is unswept


@pytest.mark.parametrize(("levels", "removed"), [(1, [17, 13, 0]), (41, [7, 7, 7])])
def test_recursive_watches_count_by_levels_in_sweep(engine: Engine, levels: int, removed: list[int]) -> None:
    peer = connect_peer(engine)
    paths = ["/a" * (levels - 1) + f"/{number}" for number in range(30)]
    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], [], paths).encode())
    lost(peer)

    assert [sweep_once(engine, 100) for _ in range(3)] == removed


def test_sweep_removes_at_most_given_number(engine: Engine) -> None:
    make_lost_peer(engine, 2_500)

    slices = [sweep_once(engine, 1_000) for _ in range(4)]

    assert slices == [1_000, 1_000, 500, 0]
    assert (engine.watches.unswept, engine.watches._weight) == (False, 0)


def test_sweep_removes_two_thousand_by_default(engine: Engine) -> None:
    make_lost_peer(engine, 5_000)

    engine.watches.sweep()

    assert count_watches(engine) == 3_000


def test_sweep_covers_several_connections(engine: Engine) -> None:
    first, second = watching(engine, 1_500, "/a"), watching(engine, 1_500, "/b")
    lost(first)
    lost(second)

    slices = [sweep_once(engine, 2_000), sweep_once(engine, 2_000)]

    assert slices == [2_000, 1_000]
    assert [first.client.watch_weight, second.client.watch_weight] == [0, 0]


def test_watches_of_every_kind_are_swept(engine: Engine, writer: Peer) -> None:
    peer = connect_peer(engine)
    once, stay, below = ([f"/{kind}{number}" for number in range(300)] for kind in ("once", "stay", "below"))
    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], once, ["/"], stay, below).encode())
    peer.send(OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True).encode())
    lost(peer)
    assert engine.watches.unswept

    engine.watches.sweep(10_000)

    assert engine.watches._stores == ({}, {})
    assert [len(index) for index in engine.watches._recursive] == [0, 0]
    assert peer.client.modes == ({}, {})


def test_tick_sweeps_watches_of_lost_connections(engine: Engine) -> None:
    make_lost_peer(engine)

    engine.tick()

    assert not engine.watches.unswept


def test_connection_closed_by_server_is_swept(engine: Engine) -> None:
    peer = watching(engine, MANY_WATCHES)

    engine.close_connection(peer.client)
    peer.connection.connection_lost()

    assert (engine.watches.unswept, engine.watches.active) == (True, 0)
    assert sweep_once(engine, 10_000) == MANY_WATCHES


@pytest.mark.slow
def test_many_watches_do_not_delay_disconnection() -> None:
    engine = make_engine(EngineSettings(max_set_watches=100_000))
    peer = watching(engine, 50_000)

    started = time.process_time()
    peer.connection.connection_lost()
    took = time.process_time() - started

    assert took < 0.02  # 10 microseconds; removing them takes 50 ms


# --- requests during the removal ---


def test_unswept_watches_are_not_included_in_watch_count(engine: Engine) -> None:
    stayer = connect_peer(engine)
    stayer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/w0", RECURSIVE_WATCH))

    make_lost_peer(engine)

    assert engine.watches.active == 1


def test_unswept_watches_do_not_count_toward_limit() -> None:
    engine = make_engine(EngineSettings(max_watches=MANY_WATCHES))
    make_lost_peer(engine)
    peer = connect_peer(engine)

    assert peer.send(OpCode.EXISTS, r.ExistsRequest("/a", True).encode())[0].err == -101
    assert engine.watches.unswept  # a new watch fits although only some of the old ones were removed


def test_lost_client_gets_no_event(engine: Engine, writer: Peer) -> None:
    peer = make_lost_peer(engine)

    writer.create("/w0")
    writer.set("/w0", b"x")
    writer.delete("/w0")

    assert peer.pop_output() == b""
    assert peer.client not in engine.pending_output


def test_lost_client_gets_no_event_of_recursive_watch(engine: Engine, writer: Peer) -> None:
    peer = watching(engine, MANY_WATCHES)
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", RECURSIVE_WATCH))
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", PERSISTENT_WATCH))
    lost(peer)

    writer.create("/new")

    assert peer.pop_output() == b""
    assert peer.client not in engine.pending_output


def test_event_on_path_watched_by_lost_client_reaches_others(engine: Engine, writer: Peer) -> None:
    first, stayer = watching(engine, MANY_WATCHES), watching(engine, 3)
    lost(first)

    writer.create("/w0")

    assert stayer.receive() == [(CREATED, "/w0")]


def test_returning_client_gets_each_change_once(engine: Engine, writer: Peer) -> None:
    make_lost_peer(engine)
    back = watching(engine, MANY_WATCHES)

    writer.create("/w0")
    engine.watches.sweep()
    writer.create("/w1")

    assert back.receive() == [(CREATED, "/w0"), (CREATED, "/w1")]
    assert (engine.watches.active, back.client.watch_weight) == (MANY_WATCHES - 2, MANY_WATCHES - 2)


def test_fired_watch_of_lost_client_is_swept(engine: Engine, writer: Peer) -> None:
    peer = make_lost_peer(engine)
    writer.create("/w0")
    writer.create("/w1")

    engine.watches.sweep()

    assert (count_watches(engine), engine.watches.active, peer.client.watch_weight) == (0, 0, 0)


def test_connection_lost_in_transaction_gets_no_event(engine: Engine, writer: Peer) -> None:
    peer = watching(engine, MANY_WATCHES)

    engine.begin()
    writer.create("/w0")
    peer.connection.connection_lost()
    engine.commit()

    assert peer.pop_output() == b""


# --- reports ---


def test_wchs_wchc_and_wchp_omit_lost_client(engine: Engine) -> None:
    stayer = watching(engine, 1, "/stays")
    make_lost_peer(engine)

    assert stayer.welcome is not None
    mine = f"0x{stayer.welcome.session_id:x}"
    assert send_command(engine, "wchp") == f"/stays0\n\t{mine}\n\n"
    assert send_command(engine, "wchc") == f"{mine}\n\t/stays0\n\n"
    assert send_command(engine, "wchs") == "1 connections watching 1 paths\nTotal watches:1\n"


def test_monitoring_counts_no_watches_of_lost_client(engine: Engine) -> None:
    make_lost_peer(engine)

    assert "zk_watch_count\t0\n" in send_command(engine, "mntr")


def test_watches_by_path_omit_lost_client(engine: Engine) -> None:
    peer = watching(engine, MANY_WATCHES)
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", PERSISTENT_WATCH))
    lost(peer)

    assert (engine.watches.by_path(DATA), engine.watches.by_path(CHILD)) == ({}, {})


def test_server_view_shows_no_watch_of_lost_client(engine: Engine) -> None:
    watching(engine, 1, "/stays")
    make_lost_peer(engine)

    assert [one.path for one in views.watches(engine)] == ["/stays0"]


def test_in_3_8_relative_path_ignores_lost_clients() -> None:
    engine = make_engine(EngineSettings(compat=V3_8))
    peer = connect_peer(engine)
    for number in range(4):
        peer.send(OpCode.ADD_WATCH, r.AddWatchRequest(f"/{number}", RECURSIVE_WATCH).encode())
    lost(peer)
    assert engine.watches.unswept

    [reply] = connect_peer(engine).send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("a/b", 2).encode())

    assert reply.err == NO_WATCHER


def test_in_3_8_watch_of_lost_client_is_not_found() -> None:
    engine = make_engine(EngineSettings(compat=V3_8))
    make_lost_peer(engine)
    asker = connect_peer(engine)

    (reply,) = asker.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("/w0", 2).encode())

    assert reply.err == NO_WATCHER
