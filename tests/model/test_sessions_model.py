"""Sessions and time: a session and everything it owns expire after its timeout, by at most one tick.

The clock is manual. For each session, the model stores when its client last sent something and how long it may be
silent. Between the timeout and a tick after it, the model accepts both outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from support.engine import make_engine
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import NO_PASSWORD, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

NOW = 1_700_000_000_000
TICK = 2000
EPHEMERAL = 1
REFUSED = ConnectResponse(0, 0, NO_PASSWORD, False)


@dataclass
class Session:
    """The model's facts about a session, and its current connection, if any."""

    id: int
    password: bytes
    timeout: int
    heard: int
    peer: Peer | None
    alive: bool = True

    @property
    def path(self) -> str:
        """The path of the session's ephemeral node."""
        return f"/s{self.id}"

    def must_live(self, monotonic_ms: int) -> bool:
        return self.alive and monotonic_ms - self.heard <= self.timeout

    def must_be_gone(self, monotonic_ms: int) -> bool:
        return not self.alive or monotonic_ms - self.heard >= self.timeout + TICK


def granted_timeout(wanted: int) -> int:
    return min(max(wanted, 2 * TICK), 20 * TICK)


timeouts = st.sampled_from([4000, 4000, 4001, 5999, 6000, 10_000, 0, -1])
which = st.integers(0, 4)
durations = st.one_of(st.integers(0, 6000), st.sampled_from([1, 1999, 2000, 2001, 3999, 4000, 4001, 15_000]))


class SessionMachine(RuleBasedStateMachine):
    """A state machine of clients that connect, send, fall silent, lose connections and reconnect, while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = make_engine(EngineSettings(tick_time=TICK), now=NOW, monotonic_ms=777)
        self.now, self.monotonic_ms = NOW, 777
        self.sessions: list[Session] = []
        self.zxid = 0
        self.witness = Peer(self.engine)
        self.witness.connect(timeout=20 * TICK)
        self.zxid += 1

    def one(self, at: int) -> Session | None:
        return self.sessions[at % len(self.sessions)] if self.sessions else None

    def served(self, at: int) -> Session | None:
        """Return a session with a connection, or None."""
        served = [one for one in self.sessions if one.alive and one.peer is not None]
        return served[at % len(served)] if served else None

    def heard_of(self, one: Session) -> None:
        one.heard = self.monotonic_ms

    # --- connections ---

    @precondition(lambda self: len(self.sessions) < 5)
    @rule(timeout=timeouts)
    def open(self, timeout: int) -> None:
        peer = Peer(self.engine)

        welcome = peer.connect(timeout)

        assert welcome is not None
        assert welcome.timeout_ms == granted_timeout(timeout)
        assert welcome.session_id not in [0, *(one.id for one in self.sessions)]
        self.sessions.append(
            Session(welcome.session_id, welcome.password or b"", granted_timeout(timeout), self.monotonic_ms, peer)
        )
        peer.create(self.sessions[-1].path, flags=EPHEMERAL)
        self.zxid += 2

    @rule(at=which, timeout=timeouts, forged=st.integers(0, 3))
    def resume(self, at: int, timeout: int, forged: int) -> None:
        if (one := self.one(at)) is None:
            return
        before, peer = one.peer, Peer(self.engine)

        welcome = peer.connect(timeout, one.id, bytes(16) if forged == 0 else one.password)

        if before is not None:
            assert before.closed  # a forged password also closes the earlier connection
            assert before.pop_output() == b""
            one.peer = None
        if forged == 0 or not one.alive:
            assert (welcome, peer.closed) == (REFUSED, True)
            return
        assert welcome == ConnectResponse(granted_timeout(timeout), one.id, one.password, False)
        one.peer, one.timeout = peer, granted_timeout(timeout)
        self.heard_of(one)

    @rule(at=which)
    def cut(self, at: int) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            self.engine.disconnect(one.peer.client)
            one.peer = None

    # --- requests that do and do not extend a session ---

    @rule(at=which, op=st.sampled_from([OpCode.PING, OpCode.EXISTS, OpCode.GET_DATA, OpCode.SYNC, OpCode.WHO_AM_I]))
    def speak(self, at: int, op: OpCode) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            assert len(one.peer.send(op, r.ExistsRequest("/none", False).encode())) == 1
            self.heard_of(one)

    @rule(at=which)
    def say_something_that_makes_no_sense(self, at: int) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            assert [reply.err for reply in one.peer.send(OpCode.GET_DATA, b"\x00")] == [-5]
            self.heard_of(one)

    @rule(at=which, scheme=st.sampled_from(["digest", "ip"]))
    def prove_who_one_is(self, at: int, scheme: str) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            assert one.peer.auth(scheme, b"u:p").err == 0  # a login does not extend the session

    @rule(at=which)
    def fail_to_prove_who_one_is(self, at: int) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            assert one.peer.auth("world", b"").err == -115
            assert one.peer.closed
            one.peer = None

    @rule(at=which)
    def send_half_a_frame(self, at: int) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            assert one.peer.feed(b"\x00\x00") == b""
            self.engine.disconnect(one.peer.client)
            one.peer = None

    @rule(at=which)
    def close(self, at: int) -> None:
        if (one := self.served(at)) is not None and one.peer is not None:
            self.zxid += 1

            (reply,) = one.peer.close()

            assert (reply.err, reply.zxid, one.peer.closed) == (0, self.zxid, True)
            one.alive, one.peer = False, None

    # --- passing time ---

    @rule(milliseconds=durations, wall=st.sampled_from([0, 1, -86_400_000, 10**9]))
    def let_time_pass(self, milliseconds: int, wall: int) -> None:
        """Sessions expire only by the monotonic clock; the wall clock may be set arbitrarily."""
        self.witness.send(OpCode.PING)
        self.monotonic_ms += milliseconds
        self.now += milliseconds + wall
        self.engine.set_time(self.now, self.monotonic_ms)

        self.engine.tick()

        for one in self.sessions:
            there = self.witness.send(OpCode.EXISTS, r.ExistsRequest(one.path, False).encode())[0].err == 0
            assert there or not one.must_live(self.monotonic_ms), "expired too early"
            assert not (there and one.must_be_gone(self.monotonic_ms)), "expired too late"
            if one.alive and not there:
                self.zxid += 1
                self.expired(one)

    def expired(self, one: Session) -> None:
        """Check that the connection was closed silently when its session expired."""
        one.alive = False
        if one.peer is not None:
            assert one.peer.closed
            assert one.peer.feed(b"") == b""
            one.peer = None

    # --- invariants ---

    @invariant()
    def the_ephemerals_are_those_of_the_living(self) -> None:
        here = [name for name in self.witness.children("/") if name != "zookeeper"]

        assert here == sorted(one.path[1:] for one in self.sessions if one.alive)

    @invariant()
    def every_opening_closing_and_write_took_one_zxid_and_nothing_else_did(self) -> None:
        (reply,) = self.witness.send(OpCode.PING)

        assert reply.zxid == self.zxid

    @invariant()
    def only_the_connections_that_serve_a_session_are_open(self) -> None:
        assert not any(one.peer.closed for one in self.sessions if one.peer is not None)
        assert {one.id for one in self.sessions if one.peer is not None} == {
            session.id
            for session in self.engine.sessions.alive.values()
            if session.client not in (None, self.witness.client)
        }


@pytest.mark.slow
def test_sessions_live_as_long_as_in_model() -> None:
    run_state_machine_as_test(SessionMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None))


# --- one silent client, to the millisecond ---


def find_end_time(engine: Engine, peer: Peer, start: int, step: int) -> int:
    """Advance the time in steps until the server closes the connection; return that monotonic time."""
    monotonic_ms = start
    while not peer.closed:
        monotonic_ms += step
        engine.set_time(NOW, monotonic_ms)
        engine.tick()
    return monotonic_ms


silences = given(
    start=st.integers(0, 20_000),
    timeout=st.integers(4000, 12_000),
    tick=st.sampled_from([500, 2000, 3000]),
    step=st.integers(50, 400),
)


@silences
@settings(max_examples=50, deadline=None)
def test_silent_session_expires_within_one_more_tick(start: int, timeout: int, tick: int, step: int) -> None:
    engine = make_engine(
        EngineSettings(tick_time=tick, min_session_timeout=1, max_session_timeout=60_000), monotonic_ms=start
    )
    peer = Peer(engine)
    peer.connect(timeout)

    lived = find_end_time(engine, peer, start, step) - start

    assert timeout < lived <= timeout + tick + step


@silences
@settings(max_examples=50, deadline=None)
def test_session_expires_at_first_tick_after_timeout(start: int, timeout: int, tick: int, step: int) -> None:
    engine = make_engine(
        EngineSettings(tick_time=tick, min_session_timeout=1, max_session_timeout=60_000), monotonic_ms=start
    )
    peer = Peer(engine)
    peer.connect(timeout)
    deadline = ((start + timeout) // tick + 1) * tick

    engine.set_time(NOW, deadline - 1)
    engine.tick()
    assert not peer.closed

    engine.set_time(NOW, deadline)
    engine.tick()
    assert peer.closed


talks = given(
    start=st.integers(0, 20_000),
    timeout=st.integers(4000, 8000),
    gaps=st.lists(st.integers(1, 4000), min_size=8, max_size=20),
)


@talks
@settings(max_examples=50, deadline=None)
def test_session_with_timely_pings_never_expires(start: int, timeout: int, gaps: list[int]) -> None:
    engine = make_engine(monotonic_ms=start)
    peer = Peer(engine)
    peer.connect(timeout)

    for gap in gaps:
        engine.set_time(NOW, engine.monotonic_ms + gap)
        engine.tick()
        assert [reply.err for reply in peer.send(OpCode.PING)] == [0]

    assert not peer.closed


@talks
@settings(max_examples=50, deadline=None)
def test_authentication_alone_does_not_keep_session(start: int, timeout: int, gaps: list[int]) -> None:
    engine = make_engine(monotonic_ms=start)
    peer, silent = Peer(engine), Peer(engine)
    peer.connect(timeout)
    silent.connect(timeout)

    for gap in gaps:
        engine.set_time(NOW, engine.monotonic_ms + gap)
        engine.tick()
        assert peer.closed == silent.closed
        peer.feed(frame(r.RequestHeader(-4, OpCode.AUTH).encode() + r.AuthPacket(0, "digest", b"u:p").encode()))

    assert peer.closed == (((start + timeout) // TICK + 1) * TICK <= engine.monotonic_ms)


@pytest.mark.parametrize("start", [0, 1, 9999, 10_000, 12_345])
def test_connection_without_handshake_is_closed(start: int) -> None:
    engine = make_engine(monotonic_ms=start)
    peer = Peer(engine)

    lived = find_end_time(engine, peer, start, 100) - start

    assert 10_000 < lived <= 20_100
    assert peer.pop_output() == b""


def test_each_session_of_joint_expiry_takes_zxid() -> None:
    engine = make_engine()
    silent = [Peer(engine) for _ in range(3)]
    for peer in silent:
        peer.connect(4000)
    witness = Peer(engine)
    witness.connect(40_000)
    before = engine.zxid

    engine.set_time(NOW, 6000)
    engine.tick()

    assert [peer.closed for peer in silent] == [True, True, True]
    assert witness.send(OpCode.PING)[0].zxid == before + 3
