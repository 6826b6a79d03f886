"""Pauses of a live server: its event loop is blocked, or its process is stopped."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest
from support.daemon import DaemonProcess
from support.embedded import ask
from support.engine import make_daemon, make_engine
from support.waiting import DEADLINE_S
from support.wire import Wire

from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.settings import EngineSettings
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.protocol import ServerProtocol
from zoolet.testing import Server


def session(port: int, timeout: float) -> Wire:
    """Open a session. Call this in a thread, because the server runs in the event loop."""
    return Wire(port, timeout).welcomed()


def ping_for(client: Wire, seconds: float) -> None:
    """Block the event loop for *seconds*, and send pings during that time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        client.send(OpCode.PING)
        time.sleep(0.01)


# --- a manual clock ---


async def test_advance_expires_session_despite_blocked_loop() -> None:
    async with Server(clock="manual") as server:
        client = await asyncio.to_thread(session, server.port, 10.0)
        server._runner.daemon.next_tick -= 60

        server.advance(9.999)
        before = len(server.sessions())
        server.advance(0.001)

        assert (before, len(server.sessions())) == (1, 0)
        client.close()


# --- a blocked event loop ---


Serve = Callable[..., Awaitable[tuple[Daemon, Wire]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server with short ticks, and a client with the given session timeout."""
    started: list[tuple[Daemon, Wire]] = []

    async def start(tick: int, timeout_ms: int) -> tuple[Daemon, Wire]:
        clock = RealClock()
        now, monotonic_ms = clock.read()
        settings = EngineSettings(tick_time=tick, min_session_timeout=1)
        daemon = make_daemon(make_engine(settings, now=now, monotonic_ms=monotonic_ms), clock)
        port = await daemon.start("127.0.0.1", 0)
        client = await asyncio.to_thread(session, port, timeout_ms / 1000)
        started.append((daemon, client))
        return daemon, client

    yield start
    for daemon, client in started:
        client.close()
        await daemon.stop(gracefully=False)


async def next_tick(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the next tick."""
    on_tick = asyncio.Event()
    tick = daemon.tick

    def noticed() -> None:
        tick()
        on_tick.set()

    with monkeypatch.context() as patched:
        patched.setattr(daemon, "tick", noticed)
        async with asyncio.timeout(DEADLINE_S):
            await on_tick.wait()


@pytest.mark.slow
async def test_blocked_loop_expires_no_pinging_client(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, client = await serve(100, 200)

    ping_for(client, 0.6)
    await next_tick(daemon, monkeypatch)

    assert len(daemon.engine.sessions.alive) == 1
    assert daemon.engine.metrics.stalls >= 1


async def ping_on(client: Wire) -> None:
    """Send pings while the event loop runs."""
    while True:
        client.send(OpCode.PING)
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_loop_blocked_between_ticks_expires_no_pinging_client(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, client = await serve(200, 100)
    pinging = asyncio.create_task(ping_on(client))
    await next_tick(daemon, monkeypatch)
    await next_tick(daemon, monkeypatch)
    before = len(daemon.engine.sessions.alive)
    left = daemon.next_tick - daemon.connections.loop.time()

    ping_for(client, left + 0.03)
    await next_tick(daemon, monkeypatch)
    after = len(daemon.engine.sessions.alive)
    pinging.cancel()

    assert (before, after) == (1, 1)


def stop_the_loop(seconds: float) -> None:
    """Block the event loop while all clients are silent."""
    time.sleep(seconds)


@pytest.mark.slow
async def test_dead_client_expires_soon_after_blocked_loop(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, _ = await serve(50, 100)

    stop_the_loop(0.4)
    ticks = 0
    while daemon.engine.sessions.alive and ticks < 20:  # for at most one second
        await next_tick(daemon, monkeypatch)
        ticks += 1

    assert not daemon.engine.sessions.alive


# --- a stopped process ---


@pytest.fixture
def process() -> Iterator[DaemonProcess]:
    with DaemonProcess("-Dzookeeper.tickTime=200", "-Dzookeeper.4lw.commands.whitelist=*") as running:
        yield running


@pytest.mark.slow
def test_stopped_process_expires_only_silent_sessions(
    process: DaemonProcess,
) -> None:
    pinging, silent = session(process.port, 0.4), session(process.port, 0.4)

    process.process.send_signal(signal.SIGSTOP)
    ping_for(pinging, 1.5)
    process.process.send_signal(signal.SIGCONT)
    ping_for(pinging, 1.0)

    sessions = ask(process.port, b"dump").decode()
    figures = dict(line.split("\t") for line in ask(process.port, b"mntr").decode().splitlines())
    assert f"0x{pinging.id:x}" in sessions
    assert f"0x{silent.id:x}" not in sessions
    assert len(pinging.payload()) == 16
    assert int(figures["zk_zoolet_stalls"]) >= 1
    assert 1_000 <= int(figures["zk_zoolet_stalled_ms"]) <= 3_000
    pinging.close()
    silent.close()


# --- a handshake that outlasts a tick ---


async def test_time_passes_for_connection_added_after_idle_tick() -> None:
    clock = RealClock()
    now, monotonic_ms = clock.read()
    daemon = make_daemon(make_engine(now=now, monotonic_ms=monotonic_ms), clock)
    client = ClientConnection()
    daemon.connections.try_accept(client.host)  # as for TLS, where a connection counts before its handshake
    daemon.on_tick(0.0)
    assert daemon.next_tick is None

    daemon.connections.add(client, ServerProtocol(daemon.connections, counted=True))

    assert daemon.next_tick is not None
    daemon.connections.remove(client, ServerProtocol(daemon.connections, counted=True))
    await daemon.stop(gracefully=False)
