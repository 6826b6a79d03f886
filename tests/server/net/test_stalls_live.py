"""Time for which a live server was paused: its loop is blocked, or its process stopped."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

import pytest
from support.daemon import DaemonProcess
from support.engine import make_daemon, make_engine
from support.frames import ping
from support.socket_client import SocketClient
from support.waiting import DEADLINE_S

from zoolet.protocol.codec import int_at
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.server import Server
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.settings import Settings
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.server.net.protocol import ServerProtocol

# --- a manual clock ---


async def test_with_a_manual_clock_a_session_ends_at_its_moment_whatever_the_loop_did() -> None:
    async with Server(clock="manual") as server:
        client = SocketClient(await asyncio.to_thread(socket.create_connection, ("127.0.0.1", server.port)))
        await client.shake_hands(10_000)
        server._runner.daemon.next_tick -= 60

        server.advance(9.999)
        before = len(server.sessions())
        server.advance(0.001)

        assert (before, len(server.sessions())) == (1, 0)
        client.link.close()


# --- a loop that is blocked ---


Serve = Callable[..., Awaitable[tuple[Daemon, SocketClient]]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """A function that starts a server with short ticks, and a client with a session of so many milliseconds."""
    started: list[tuple[Daemon, SocketClient]] = []

    async def start(tick: int, timeout_ms: int) -> tuple[Daemon, SocketClient]:
        clock = RealClock()
        now, monotonic_ms = clock.read()
        settings = Settings(tick_time=tick, min_session_timeout=1)
        daemon = make_daemon(make_engine(settings, now=now, monotonic_ms=monotonic_ms), clock)
        port = await daemon.start("127.0.0.1", 0)
        link = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
        client = SocketClient(link)
        started.append((daemon, client))
        await client.shake_hands(timeout_ms)
        return daemon, client

    yield start
    for daemon, client in started:
        client.link.close()
        await daemon.stop(gracefully=False)


async def next_tick(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for the next tick."""
    ticked = asyncio.Event()
    tick = daemon.tick

    def noticed() -> None:
        tick()
        ticked.set()

    with monkeypatch.context() as patched:
        patched.setattr(daemon, "tick", noticed)
        async with asyncio.timeout(DEADLINE_S):
            await ticked.wait()


@pytest.mark.slow
async def test_a_blocked_loop_ends_no_session_of_a_client_that_pings(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, client = await serve(100, 200)

    client.ping_for(0.6)
    await next_tick(daemon, monkeypatch)

    assert len(daemon.engine.sessions.alive) == 1
    assert daemon.engine.metrics.stalls >= 1


async def ping_on(client: SocketClient) -> None:
    """Ping while the loop runs."""
    while True:
        client.ping()
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_a_block_between_two_ticks_ends_no_session_of_a_client_that_pings(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, client = await serve(200, 100)
    pinging = asyncio.create_task(ping_on(client))
    await next_tick(daemon, monkeypatch)
    await next_tick(daemon, monkeypatch)
    before = len(daemon.engine.sessions.alive)
    left = daemon.next_tick - daemon.connections.loop.time()

    client.ping_for(left + 0.03)
    await next_tick(daemon, monkeypatch)
    after = len(daemon.engine.sessions.alive)
    pinging.cancel()

    assert (before, after) == (1, 1)


def stop_the_loop(seconds: float) -> None:
    """Keep the loop from running, while all clients are silent."""
    time.sleep(seconds)


@pytest.mark.slow
async def test_a_dead_client_of_a_loop_that_was_blocked_is_gone_soon(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, _ = await serve(50, 100)

    stop_the_loop(0.4)
    released = time.monotonic()
    async with asyncio.timeout(DEADLINE_S):
        while daemon.engine.sessions.alive:
            await next_tick(daemon, monkeypatch)

    assert time.monotonic() - released < 1.0


# --- a process that is stopped ---


@pytest.fixture
def process() -> Iterator[DaemonProcess]:
    with DaemonProcess("-Dzookeeper.tickTime=200", "-Dzookeeper.4lw.commands.whitelist=*") as running:
        yield running


def dial(process: DaemonProcess) -> tuple[socket.socket, int]:
    """Open a session of 400 ms; return its socket and id."""
    link = socket.create_connection((process.host, process.port), DEADLINE_S)
    link.sendall(frame(ConnectRequest(timeout_ms=400).encode()))
    return link, ConnectResponse.decode(link.recv(4096)[4:]).session_id


def ask(process: DaemonProcess, word: bytes) -> str:
    with socket.create_connection((process.host, process.port), DEADLINE_S) as link:
        link.sendall(word)
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def ping_for(link: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        link.sendall(ping())
        time.sleep(0.05)


@pytest.mark.slow
def test_a_stopped_process_ends_only_the_sessions_of_clients_that_do_not_ping(
    process: DaemonProcess,
) -> None:
    pinging, living = dial(process)
    silent, dead = dial(process)

    process.process.send_signal(signal.SIGSTOP)
    ping_for(pinging, 1.5)
    process.process.send_signal(signal.SIGCONT)
    ping_for(pinging, 1.0)

    sessions = ask(process, b"dump")
    figures = dict(line.split("\t") for line in ask(process, b"mntr").splitlines())
    assert f"0x{living:x}" in sessions
    assert f"0x{dead:x}" not in sessions
    assert int_at(pinging.recv(4096), 0) == (16,)
    assert int(figures["zk_zoolet_stalls"]) >= 1
    assert 1_000 <= int(figures["zk_zoolet_stalled_ms"]) <= 3_000
    with suppress(OSError):
        pinging.close()
        silent.close()


# --- a handshake that outlasts a tick ---


async def test_time_passes_for_a_connection_that_opens_after_an_idle_tick() -> None:
    clock = RealClock()
    now, monotonic_ms = clock.read()
    daemon = make_daemon(make_engine(now=now, monotonic_ms=monotonic_ms), clock)
    client = ClientConnection()
    daemon.connections.try_accept(client.host)  # as for TLS, before the handshake
    daemon.ticked(0.0)
    assert daemon.next_tick is None

    daemon.connections.add(client, ServerProtocol(daemon.connections, counted=True))

    assert daemon.next_tick is not None
    daemon.connections.remove(client, ServerProtocol(daemon.connections, counted=True))
    await daemon.stop(gracefully=False)
