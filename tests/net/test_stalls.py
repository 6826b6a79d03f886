"""Time for which the server stood still does not count against its clients.

A tick that comes late says so. Most tests tell it that it is late by moving what it goes by, so that nothing has to
wait; a few block the loop or stop the process.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Final

import pytest
from support.daemon import DaemonProcess
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.core.engine import Engine
from zoolet.server.core.sessions import Session
from zoolet.server.core.settings import Settings
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import RECOVERY, STALL, Daemon
from zoolet.server.testing.clock import ManualClock

DEADLINE_S: Final = 10.0  # only ever reached on failure
TICK: Final = 1_000
TIMEOUT: Final = 4_000
PING: Final = frame(r.RequestHeader(-2, OpCode.PING).encode())


# --- what the tests say it with ---


class HandClock(RealClock):
    """The server's own clock, over a monotonic one that is moved by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.milliseconds = 1_000_000

    def read(self, *_: object) -> tuple[int, int]:  # type: ignore[override]
        return super().read(lambda: 0, lambda: self.milliseconds * 1_000_000)


class Stage:
    """A listener whose ticks come when the test says so.

    Attributes:
        log: What the operator reads.
    """

    def __init__(self) -> None:
        self.clock = HandClock()
        self.log: list[str] = []
        self.engine = Engine(
            Settings(tick_time=TICK, min_session_timeout=1),
            monotonic_ms=self.clock.read()[1],
            log=lambda message, *arguments: self.log.append(message % arguments),
        )
        self.listener = Daemon(self.engine, self.clock, four_letter_commands(["*"]))
        self.engine.set_time(*self.clock.read())

    def client(self) -> Peer:
        """A client with a session."""
        peer = Peer(self.engine)
        peer.connect(timeout=TIMEOUT)
        return peer

    def tick(self, late: float = 0.0) -> None:
        """Let the tick come, so many seconds late; time has passed accordingly."""
        listener = self.listener
        listener._tick_due = listener.loop.time() - late
        if listener._tick is not None:
            listener._tick.cancel()
        listener._ticked()

    def ticks(self, count: int) -> None:
        """Let so many ticks come in time, a second apart."""
        for _ in range(count):
            self.clock.milliseconds += TICK
            self.tick()

    def stand_still(self, milliseconds: int) -> None:
        """Do not run for so long; the first thing that happens then is the tick that is late."""
        self.clock.milliseconds += milliseconds
        self.tick(milliseconds / 1000)

    def ping(self, peer: Peer) -> None:
        """Read a ping that has arrived."""
        self.engine.set_time(*self.clock.read())
        peer.feed(PING)

    @property
    def alive(self) -> list[Session]:
        return list(self.engine.sessions.alive.values())


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    yield made
    if made.listener._tick is not None:
        made.listener._tick.cancel()


# --- a late tick ---


async def test_a_tick_that_is_late_ends_no_session(stage: Stage) -> None:
    stage.client()

    stage.stand_still(60_000)

    assert len(stage.alive) == 1


async def test_a_late_tick_takes_the_time_out_of_the_clock(stage: Stage) -> None:
    _, before = stage.clock.read()

    stage.stand_still(9_000)

    assert stage.clock.read()[1] - before == pytest.approx(0, abs=50)


async def test_a_late_tick_leaves_the_wall_clock_as_it_is() -> None:
    clock = RealClock()

    clock.forgive(60_000)

    assert clock.read(lambda: 5_000_000, lambda: 70_000_000_000) == (5, 10_000)


async def test_what_came_meanwhile_has_fifty_milliseconds_to_be_read(stage: Stage) -> None:
    started = stage.listener.loop.time()

    stage.stand_still(9_000)

    assert RECOVERY == 0.05
    assert stage.listener._recovering
    assert stage.listener._tick_due - started == pytest.approx(RECOVERY, abs=0.02)


async def test_the_tick_after_a_late_one_ends_sessions_again(stage: Stage) -> None:
    stage.client()
    stage.stand_still(9_000)

    stage.ticks(5)

    assert stage.alive == []


async def test_a_client_whose_ping_waited_lives_its_full_timeout_from_then_on(stage: Stage) -> None:
    peer = stage.client()
    stage.ticks(3)
    stage.stand_still(9_000)

    stage.ping(peer)
    stage.ticks(4)

    assert len(stage.alive) == 1


async def test_a_dead_client_lives_no_longer_than_its_timeout_a_tick_and_the_stall(stage: Stage) -> None:
    stage.client()
    stage.ticks(2)

    stage.stand_still(9_000)
    stage.ticks(2)
    before = len(stage.alive)
    stage.ticks(1)

    assert (before, len(stage.alive)) == (1, 0)  # 4 s and up to a tick, the stall not counted


async def test_a_session_does_not_end_before_its_time_however_often_the_server_stands_still(stage: Stage) -> None:
    stage.client()

    for _ in range(20):
        stage.stand_still(3_000)
        stage.tick()  # the recovery is over

    assert len(stage.alive) == 1


async def test_a_second_stall_within_the_recovery_is_taken_out_too(stage: Stage) -> None:
    stage.client()
    stage.stand_still(9_000)

    stage.stand_still(9_000)

    assert len(stage.alive) == 1
    assert stage.engine.metrics.stalls == 2


async def test_a_tick_that_is_a_little_late_is_no_stall(stage: Stage) -> None:
    stage.clock.milliseconds += TICK

    stage.tick(late=STALL * 0.5)

    assert (stage.engine.metrics.stalls, stage.listener._recovering) == (0, False)


async def test_ticks_in_time_end_a_dead_session_in_time(stage: Stage) -> None:
    stage.client()

    stage.ticks(4)
    before = len(stage.alive)
    stage.ticks(1)

    assert (before, len(stage.alive), stage.engine.metrics.stalls) == (1, 0, 0)


async def test_one_who_has_not_said_who_it_is_gets_the_time_too(stage: Stage) -> None:
    silent = Peer(stage.engine)

    stage.stand_still(60_000)
    stage.tick()

    assert not silent.closed


# --- metrics and log ---


async def test_stalls_are_counted_and_added_up(stage: Stage) -> None:
    stage.stand_still(2_000)
    stage.tick()
    stage.stand_still(3_000)

    text = Peer(stage.engine, four_letter_commands=four_letter_commands(["*"])).feed(b"mntr").decode()
    figures = dict(line.split("\t") for line in text.splitlines())

    assert figures["zk_zoolet_stalls"] == "2"
    assert int(figures["zk_zoolet_stalled_ms"]) == pytest.approx(5_000, abs=100)


async def test_a_stall_of_a_second_is_logged(stage: Stage) -> None:
    stage.stand_still(2_500)

    assert stage.log == ["the server stood still for 2.5 s; sessions get that much longer"]


async def test_a_stall_of_less_is_only_counted(stage: Stage) -> None:
    stage.stand_still(500)

    assert (stage.log, stage.engine.metrics.stalls) == ([], 1)


# --- a tick that fails ---


async def test_ticking_goes_on_after_a_tick_that_failed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.client()
    with monkeypatch.context() as broken:
        broken.setattr(type(stage.engine), "tick", fail)
        with pytest.raises(RuntimeError, match="a defect"):
            stage.tick()

    assert stage.listener._tick is not None
    stage.ticks(5)
    assert stage.alive == []


async def test_a_session_whose_end_failed_keeps_no_other_alive(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
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


def fail(*_: object) -> None:
    raise RuntimeError("a defect")


# --- other clocks ---


def test_a_manual_clock_forgives_nothing() -> None:
    clock = ManualClock()
    before = clock.read()

    clock.forgive(5_000)

    assert clock.read() == before


async def test_with_a_manual_clock_a_session_ends_at_its_moment_whatever_the_loop_did() -> None:
    async with Server(clock="manual") as server:
        client = Client(await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server.port)))
        await client.shake_hands(10_000)
        server._listener._tick_due -= 60

        server.advance(9.999)
        before = len(server.sessions())
        server.advance(0.001)

        assert (before, len(server.sessions())) == (1, 0)
        client.link.close()


# --- a loop that is blocked ---


class Client:
    """A client reduced to a socket."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        link.setblocking(False)
        self.loop = asyncio.get_running_loop()

    async def shake_hands(self, timeout_ms: int) -> ConnectResponse:
        await self.loop.sock_sendall(self.link, frame(ConnectRequest(timeout_ms=timeout_ms).encode()))
        async with asyncio.timeout(DEADLINE_S):
            payload = await self.loop.sock_recv(self.link, 4096)
        return ConnectResponse.decode(payload[4:])

    def ping(self) -> None:
        """Send a ping, whoever runs or does not."""
        self.link.send(PING)


Serve = Callable[..., Awaitable[tuple[Daemon, Client]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server with short ticks, and a client with a session of so many milliseconds."""
    started: list[tuple[Daemon, Client]] = []

    async def start(tick: int, timeout_ms: int) -> tuple[Daemon, Client]:
        clock = RealClock()
        now, monotonic_ms = clock.read()
        settings = Settings(tick_time=tick, min_session_timeout=1)
        listener = Daemon(Engine(settings, now=now, monotonic_ms=monotonic_ms), clock, four_letter_commands(["*"]))
        port = await listener.start("127.0.0.1", 0)
        link = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
        client = Client(link)
        started.append((listener, client))
        await client.shake_hands(timeout_ms)
        return listener, client

    yield start
    for listener, client in started:
        client.link.close()
        await listener.stop(patient=False)


def block(client: Client, seconds: float) -> None:
    """Keep the loop from running, while the client goes on pinging."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client.ping()
        time.sleep(0.01)


def stop_the_loop(seconds: float) -> None:
    """Keep the loop from running, while all clients are silent."""
    time.sleep(seconds)


async def next_tick(listener: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the next tick."""
    ticked = asyncio.Event()
    tick = listener.tick

    def noticed() -> None:
        tick()
        ticked.set()

    with monkeypatch.context() as patched:
        patched.setattr(listener, "tick", noticed)
        async with asyncio.timeout(DEADLINE_S):
            await ticked.wait()


@pytest.mark.slow
async def test_a_blocked_loop_ends_no_session_of_a_client_that_pings(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, client = await serve(100, 200)

    block(client, 0.6)
    await next_tick(listener, monkeypatch)

    assert len(listener.engine.sessions.alive) == 1
    assert listener.engine.metrics.stalls >= 1


@pytest.mark.slow
async def test_a_block_between_two_ticks_ends_no_session_of_a_client_that_pings(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, client = await serve(200, 100)
    pinging = asyncio.create_task(ping_on(client))
    await next_tick(listener, monkeypatch)
    await next_tick(listener, monkeypatch)
    before = len(listener.engine.sessions.alive)
    left = listener._tick_due - listener.loop.time()

    block(client, left + 0.03)
    await next_tick(listener, monkeypatch)
    after = len(listener.engine.sessions.alive)
    pinging.cancel()

    assert (before, after) == (1, 1)


async def ping_on(client: Client) -> None:
    """Ping while the loop runs."""
    while True:
        client.ping()
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_dead_client_of_a_loop_that_was_blocked_is_gone_soon(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, _ = await serve(50, 100)

    stop_the_loop(0.4)
    released = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while listener.engine.sessions.alive:
            await next_tick(listener, monkeypatch)

    assert time.monotonic() - released < 1.0


# --- a process that is stopped ---


@pytest.fixture
def daemon() -> Iterator[DaemonProcess]:
    with DaemonProcess("-Dzookeeper.tickTime=200", "-Dzookeeper.4lw.commands.whitelist=*") as running:
        yield running


def dial(daemon: DaemonProcess) -> tuple[socket.socket, int]:
    """Open a session of 400 ms; return its socket and id."""
    link = socket.create_connection((daemon.host, daemon.port), DEADLINE_S)
    link.sendall(frame(ConnectRequest(timeout_ms=400).encode()))
    return link, ConnectResponse.decode(link.recv(4096)[4:]).session_id


def ask(daemon: DaemonProcess, word: bytes) -> str:
    with socket.create_connection((daemon.host, daemon.port), DEADLINE_S) as link:
        link.sendall(word)
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def ping_for(link: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        link.sendall(PING)
        time.sleep(0.05)


@pytest.mark.slow
def test_a_stopped_process_ends_no_session_of_a_client_that_pings_and_those_of_dead_ones(daemon: DaemonProcess) -> None:
    pinging, living = dial(daemon)
    silent, dead = dial(daemon)

    daemon.process.send_signal(signal.SIGSTOP)
    ping_for(pinging, 1.5)
    daemon.process.send_signal(signal.SIGCONT)
    ping_for(pinging, 1.0)

    sessions = ask(daemon, b"dump")
    figures = dict(line.split("\t") for line in ask(daemon, b"mntr").splitlines())
    assert f"0x{living:x}" in sessions
    assert f"0x{dead:x}" not in sessions
    assert int_at(pinging.recv(4096), 0) == (16,)
    assert int(figures["zk_zoolet_stalls"]) >= 1
    assert 1_000 <= int(figures["zk_zoolet_stalled_ms"]) <= 3_000
    with suppress(OSError):
        pinging.close()
        silent.close()
