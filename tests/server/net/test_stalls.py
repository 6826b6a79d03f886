"""Pauses of the server do not count against its clients: a late tick reveals them.

The tests simulate lateness by moving the server's clock, so they never have to wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import pytest
from support.engine import make_daemon, make_engine
from support.frames import ping
from support.peer import Peer

from zoolet.server.admin.four_letter_commands import four_letter_commands
from zoolet.server.core.sessions import Session
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import MAX_TICK_DELAY_SECONDS, RECOVERY_SECONDS
from zoolet.testing.state.clock import ManualClock

TICK: Final = 1_000
TIMEOUT: Final = 4_000


class HandClock(RealClock):
    """The server's clock, based on a manual monotonic clock."""

    def __init__(self) -> None:
        super().__init__()
        self.milliseconds = 1_000_000

    def read(self) -> tuple[int, int]:
        return 0, self.milliseconds - self._paused_ms


class Stage:
    """A daemon whose ticks are triggered by the test.

    Attributes:
        log: The log for the operator.
    """

    def __init__(self) -> None:
        self.clock = HandClock()
        self.log: list[str] = []
        self.engine = make_engine(
            EngineSettings(tick_time=TICK, min_session_timeout=1),
            monotonic_ms=self.clock.read()[1],
            log=lambda message, *arguments: self.log.append(message % arguments),
        )
        self.daemon = make_daemon(self.engine, self.clock)
        self.engine.set_time(*self.clock.read())

    def client(self) -> Peer:
        """Return a client with a session."""
        peer = Peer(self.engine)
        peer.connect(timeout=TIMEOUT)
        return peer

    def tick(self, late: float = 0.0) -> None:
        """Run a tick that is *late* seconds late; the clock has advanced accordingly."""
        daemon = self.daemon
        daemon.on_tick(late)

    def ticks(self, count: int) -> None:
        """Run *count* punctual ticks, a second apart."""
        for _ in range(count):
            self.clock.milliseconds += TICK
            self.tick()

    def stand_still(self, milliseconds: int) -> None:
        """Simulate a pause of this length; afterwards the late tick runs first."""
        self.clock.milliseconds += milliseconds
        self.tick(milliseconds / 1000)

    def ping(self, peer: Peer) -> None:
        """Process a ping that has arrived."""
        self.engine.set_time(*self.clock.read())
        peer.feed(ping())

    @property
    def alive(self) -> list[Session]:
        return list(self.engine.sessions.alive.values())


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    await made.daemon.stop()


# --- a late tick ---


async def test_late_tick_expires_no_session(stage: Stage) -> None:
    stage.client()

    stage.stand_still(60_000)

    assert len(stage.alive) == 1


async def test_delay_of_late_tick_is_subtracted_from_clock(stage: Stage) -> None:
    _, before = stage.clock.read()

    stage.stand_still(9_000)

    assert stage.clock.read()[1] - before == pytest.approx(0, abs=50)


def test_pause_is_subtracted_from_monotonic_clock_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RealClock()

    clock.subtract_pause(60_000)

    monkeypatch.setattr(clock, "_now_ns", lambda: 5_000_000)
    monkeypatch.setattr(clock, "_monotonic_ns", lambda: 70_000_000_000)
    assert clock.read() == (5, 10_000)


async def test_next_tick_is_50_ms_after_end_of_stall(stage: Stage) -> None:
    started = stage.daemon.connections.loop.time()

    stage.stand_still(9_000)

    assert RECOVERY_SECONDS == 0.05
    assert stage.daemon.recovering
    assert stage.daemon.next_tick - started == pytest.approx(RECOVERY_SECONDS, abs=0.02)


async def test_tick_after_late_one_expires_sessions(stage: Stage) -> None:
    stage.client()
    stage.stand_still(9_000)

    stage.ticks(5)

    assert stage.alive == []


async def test_delayed_ping_renews_full_timeout(stage: Stage) -> None:
    peer = stage.client()
    stage.ticks(3)
    stage.stand_still(9_000)

    stage.ping(peer)
    stage.ticks(4)

    assert len(stage.alive) == 1


async def test_stall_extends_dead_session_only_by_its_length(stage: Stage) -> None:
    stage.client()
    stage.ticks(2)

    stage.stand_still(9_000)
    stage.ticks(2)
    before = len(stage.alive)
    stage.ticks(1)

    assert (before, len(stage.alive)) == (1, 0)  # 4 s plus up to a tick, without the stall


async def test_repeated_pauses_expire_no_session(stage: Stage) -> None:
    stage.client()

    for _ in range(20):
        stage.stand_still(3_000)
        stage.tick()  # ends the recovery after the stall

    assert len(stage.alive) == 1


async def test_second_stall_within_recovery_is_subtracted(stage: Stage) -> None:
    stage.client()
    stage.stand_still(9_000)

    stage.stand_still(9_000)

    assert len(stage.alive) == 1
    assert stage.engine.metrics.stalls == 2


async def test_slightly_late_tick_is_not_a_stall(stage: Stage) -> None:
    stage.clock.milliseconds += TICK

    stage.tick(late=MAX_TICK_DELAY_SECONDS * 0.5)

    assert (stage.engine.metrics.stalls, stage.daemon.recovering) == (0, False)


async def test_punctual_ticks_expire_dead_session_on_time(stage: Stage) -> None:
    stage.client()

    stage.ticks(4)
    before = len(stage.alive)
    stage.ticks(1)

    assert (before, len(stage.alive), stage.engine.metrics.stalls) == (1, 0, 0)


async def test_connection_without_session_gets_extra_time_after_stall(stage: Stage) -> None:
    silent = Peer(stage.engine)

    stage.stand_still(60_000)
    stage.tick()

    assert not silent.closed


# --- metrics and log ---


async def test_mntr_shows_number_and_sum_of_stalls(stage: Stage) -> None:
    stage.stand_still(2_000)
    stage.tick()
    stage.stand_still(3_000)

    text = Peer(stage.engine, four_letter_commands=four_letter_commands(["*"])).feed(b"mntr").decode()
    figures = dict(line.split("\t") for line in text.splitlines())

    assert figures["zk_zoolet_stalls"] == "2"
    assert int(figures["zk_zoolet_stalled_ms"]) == pytest.approx(5_000, abs=100)


async def test_stall_of_seconds_is_logged(stage: Stage) -> None:
    stage.stand_still(2_500)

    assert stage.log == ["the server was paused for 2.5 s; sessions are extended by that time"]


async def test_short_stall_is_counted_and_not_logged(stage: Stage) -> None:
    stage.stand_still(500)

    assert (stage.log, stage.engine.metrics.stalls) == ([], 1)


# --- a tick that fails ---


def fail(*_: object) -> None:
    raise RuntimeError("a defect")


async def test_ticking_continues_after_failed_tick(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.client()
    with monkeypatch.context() as broken:
        broken.setattr(type(stage.engine), "tick", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            stage.tick()

    assert stage.daemon.next_tick is not None
    stage.ticks(5)
    assert stage.alive == []


async def test_failed_expiry_of_one_session_does_not_stop_other_expiry(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = stage.client()
    others = [stage.client() for _ in range(3)]
    assert first.welcome is not None
    close = stage.engine.close_session

    def close_all_but_the_first(session: Session) -> None:
        assert first.welcome is not None
        if session.id == first.welcome.session_id:
            raise RuntimeError("a defect")
        close(session)

    monkeypatch.setattr(stage.engine, "close_session", close_all_but_the_first)
    with pytest.raises(RuntimeError, match="a defect"):
        stage.ticks(5)

    stage.ticks(1)

    assert [session.id for session in stage.alive] == [first.welcome.session_id]
    assert [peer.closed for peer in others] == [True] * 3


# --- other clocks ---


def test_pause_is_not_subtracted_from_manual_clock() -> None:
    clock = ManualClock()
    before = clock.read()

    clock.subtract_pause(5_000)

    assert clock.read() == before
