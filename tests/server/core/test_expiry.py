"""The expiry of sessions, and the requests that keep them alive.

Source: ExpiryQueue.roundToNextInterval, SessionTrackerImpl.
"""

from __future__ import annotations

import time

import pytest
from support.calls import REFUSED, connect_peer, last_zxid, pass_time, ping, read_session_id, resume_session, tick_at
from support.engine import make_engine
from support.frames import request
from support.numbers import EPHEMERAL

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import MAX_EXPIRED_PER_TICK
from zoolet.server.core.expiry import NEVER, Expiry

# --- many sessions ---


def test_tick_expires_limited_number_of_sessions(engine, peer):
    for _ in range(MAX_EXPIRED_PER_TICK + 1):
        engine.sessions.open(engine.sessions.new_id(), 4_000, 0)
    tick_at(engine, 5_999)
    before = len(engine.sessions.alive)

    engine.set_time(6_000, 6_000)

    assert engine.tick()
    assert len(engine.sessions.alive) == before - MAX_EXPIRED_PER_TICK
    assert not engine.tick()
    assert len(engine.sessions.alive) == before - MAX_EXPIRED_PER_TICK - 1


def test_sessions_with_many_nodes_expire_over_several_ticks(engine, monkeypatch):
    monkeypatch.setattr("zoolet.server.core.engine.MAX_DELETED_PER_TICK", 10)
    for owner in range(3):
        peer = connect_peer(engine)
        for number in range(6):
            peer.create(f"/{owner}{number}", b"", 1)
    engine.set_time(1_000_000, 1_000_000)

    assert [(engine.tick(), len(engine.sessions.alive)) for _ in range(2)] == [(True, 1), (False, 0)]


def test_expiry_cost_is_independent_of_session_count():
    class Item:
        deadline = NEVER

    def seconds(count: int) -> float:
        expiry: Expiry[Item] = Expiry(1_000)
        for _ in range(count):
            expiry.touch(Item(), 0, 500)
        started = time.process_time()
        while expiry.pop_due(1_000):
            pass
        return time.process_time() - started

    assert seconds(100_000) < 1  # 3 s if each session is searched from the start of the bucket


# --- deadlines ---


@pytest.mark.parametrize(("connect_at", "gone_at"), [(0, 6_000), (1_500, 6_000), (1_999, 6_000), (2_000, 8_000)])
def test_expiry_is_rounded_up_to_tick(engine, peer, connect_at, gone_at):
    tick_at(engine, connect_at)
    connect_peer(engine, timeout=4_000).create("/e", flags=EPHEMERAL)

    tick_at(engine, gone_at - 1)
    before = peer.children("/")
    tick_at(engine, gone_at)
    after = peer.children("/")

    assert before == ["e", "zookeeper"]
    assert after == ["zookeeper"]


def test_session_never_expires_before_timeout(engine):
    peer = connect_peer(engine, timeout=4_000)

    pass_time(engine, 0, 4_000, 1, lambda: None)

    assert not peer.closed
    assert resume_session(peer).welcome == peer.welcome._replace(timeout_ms=40_000)


def test_expiry_is_silent_and_uses_one_zxid(engine, peer):
    silent = connect_peer(engine, timeout=4_000)
    silent.create("/e1", flags=EPHEMERAL)
    silent.create("/e2", flags=EPHEMERAL)
    before = last_zxid(peer)

    tick_at(engine, 6_000)

    assert silent.closed
    assert silent.pop_output() == b""
    assert last_zxid(peer) == before + 1
    assert peer.exists("/").pzxid == before + 1


@pytest.mark.parametrize(("first", "second", "alive"), [(4_000, 20_000, True), (20_000, 4_000, False)])
def test_timeout_of_resumed_session_applies(engine, peer, first, second, alive):
    resume_session(connect_peer(engine, timeout=first), timeout=second).create("/e", flags=EPHEMERAL)

    tick_at(engine, 10_000)

    assert (peer.children("/") == ["e", "zookeeper"]) is alive


# --- heartbeats ---


def test_auth_is_not_a_heartbeat(engine):
    peer = connect_peer(engine, timeout=4_000)

    pass_time(engine, 0, 5_500, 500, lambda: peer.auth("digest", b"u:p"))
    alive = not peer.closed
    tick_at(engine, 6_000)

    assert alive
    assert peer.closed
    assert resume_session(peer).welcome == REFUSED


def test_ping_is_a_heartbeat(engine):
    peer = connect_peer(engine, timeout=4_000)

    pass_time(engine, 0, 20_000, 500, lambda: ping(peer))

    assert not peer.closed


def test_sasl_is_not_a_heartbeat_and_takes_no_zxid(engine, peer):
    silent = connect_peer(engine, timeout=4_000)
    before = last_zxid(peer)

    pass_time(engine, 0, 5_500, 500, lambda: silent.feed(request(5, OpCode.SASL, r.GetSASLRequest(b""))))
    alive = not silent.closed
    after = last_zxid(peer)
    tick_at(engine, 6_000)

    assert alive
    assert after == before
    assert silent.closed


def test_sessions_do_not_expire_while_log_fails() -> None:
    engine = make_engine()
    peer = connect_peer(engine, timeout=6000)
    engine.refuse_writes("the log cannot be written", frozen=True)
    tick_at(engine, 60_000)

    engine.tick()
    assert read_session_id(peer) in engine.sessions.alive

    engine.refuse_writes("", frozen=False)
    tick_at(engine, 120_000)
    assert read_session_id(peer) not in engine.sessions.alive


def test_highest_id_equals_last_assigned_session_id() -> None:
    sessions = make_engine().sessions
    first = sessions.highest_id

    assert [sessions.new_id() - first, sessions.new_id() - first] == [1, 2]
    assert sessions.highest_id - first == 2
