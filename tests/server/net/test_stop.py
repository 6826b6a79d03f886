"""Stopping a server: pending replies are sent, sessions survive, and a client that does not read delays it little."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, suppress

import pytest
from support.daemon import DaemonProcess
from support.frames import HELLO, exists, get, request
from support.live_server import Serve
from support.waiting import DEADLINE_S, until

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at
from zoolet.protocol.operations import OpCode
from zoolet.server.net.daemon import STOP_SECONDS
from zoolet.server.net.protocol import ServerProtocol
from zoolet.testing import Server

# --- an orderly stop ---


async def test_stop_sends_pending_replies(serve: Serve) -> None:
    server = await serve()
    client = await server.dial()
    await client.shake_hands()
    client.send(b"".join(exists(xid) for xid in range(1000)))
    await until(lambda: server.engine.metrics.packets_received >= 1001)

    stopping = asyncio.create_task(server.daemon.stop())
    xids = await client.xids(1000)
    rest = await client.rest()
    await client.close()
    await stopping

    assert (xids, rest) == (list(range(1000)), b"")


async def test_connection_reported_by_loop_after_stop_is_closed(serve: Serve) -> None:
    server = await serve()
    connections = server.daemon.connections
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()

    await server.daemon.stop()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: ServerProtocol(connections), accepted)

    with client:
        client.setblocking(False)
        assert await asyncio.wait_for(loop.sock_recv(client, 1), DEADLINE_S) == b""
    assert not connections.open


async def test_stop_sends_large_reply_whole(serve: Serve) -> None:
    server = await serve()
    client = await server.dial()
    await client.shake_hands()
    body = r.CreateRequest("/big", b"x" * 1_000_000, OPEN_ACL_UNSAFE, 0).encode()
    client.send(request(1, OpCode.CREATE, body) + request(2, OpCode.GET_DATA, r.GetDataRequest("/big", False).encode()))
    await until(lambda: server.engine.metrics.packets_received >= 3)

    stopping = asyncio.create_task(server.daemon.stop())
    created, got = await client.payload(), await client.payload()
    await client.close()
    await stopping

    assert (int_at(created), int_at(got)) == ((1,), (2,))


async def test_stop_does_not_wait_for_half_open_client(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.lingering.LINGER", 0.01)
    server = await serve()
    client = await server.dial()
    await client.shake_hands()

    async with asyncio.timeout(DEADLINE_S):
        await server.daemon.stop()

    assert not server.daemon.connections.open


async def test_stop_keeps_sessions(serve: Serve) -> None:
    server = await serve()
    client = await server.dial()
    welcome = await client.shake_hands()

    stopping = asyncio.create_task(server.daemon.stop())
    await client.rest()
    await client.close()
    await stopping

    assert list(server.engine.sessions.alive) == [welcome.session_id]


async def test_stopped_server_refuses_connections(serve: Serve) -> None:
    server = await serve()

    await server.daemon.stop()

    with pytest.raises(ConnectionRefusedError):
        await server.dial()


async def test_stop_of_server_without_connections_is_immediate(serve: Serve) -> None:
    server = await serve()

    async with asyncio.timeout(DEADLINE_S):
        await server.daemon.stop()

    assert not server.daemon.connections.open


# --- uncooperative clients ---


async def test_stop_disconnects_non_readers_at_its_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("zoolet.server.net.daemon.STOP_SECONDS", 0.02)
    server = await serve()
    server.make_node("/big", 8_000_000)
    await server.dial_without_reading(get(1, "/big"))

    async with asyncio.timeout(DEADLINE_S):
        await server.daemon.stop()

    assert STOP_SECONDS == 4.0
    assert not server.daemon.connections.open
    assert "disconnecting 1 clients that do not read" in caplog.text


async def test_graceful_stop_can_be_aborted(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.daemon.STOP_SECONDS", 2 * DEADLINE_S)
    server = await serve()
    server.make_node("/big", 8_000_000)
    await server.dial_without_reading(get(1, "/big"))

    stopping = asyncio.create_task(server.daemon.stop())
    await asyncio.sleep(0)
    server.daemon.abort_all()
    async with asyncio.timeout(DEADLINE_S):
        await stopping

    assert not server.daemon.connections.open


def connect_without_reading(daemon: DaemonProcess) -> socket.socket:
    """Connect, request 20 MB, and leave the replies unread. Return the socket."""
    link = socket.socket()
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    link.connect((daemon.host, daemon.port))
    create = r.CreateRequest("/big", bytes(1_000_000), OPEN_ACL_UNSAFE, 0).encode()
    link.sendall(HELLO + request(1, OpCode.CREATE, create))
    assert len(link.recv(41, socket.MSG_WAITALL)) == 41
    link.recv(4 + 16 + 4 + 4, socket.MSG_WAITALL)  # the reply to the create
    link.sendall(b"".join(get(xid, "/big") for xid in range(20)))
    link.recv(20, socket.MSG_WAITALL)  # the header of the first reply
    return link


@pytest.mark.slow
def test_sigterm_stops_daemon_with_non_reading_client() -> None:
    with DaemonProcess() as daemon, connect_without_reading(daemon):
        started = time.monotonic()
        daemon.process.terminate()
        code = daemon.process.wait(DEADLINE_S)
        took = time.monotonic() - started

    assert code == 0
    assert took > 1  # the server gave the client time to read


@pytest.mark.slow
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_stops_daemon_immediately(second: signal.Signals) -> None:
    with DaemonProcess() as daemon, connect_without_reading(daemon):
        daemon.process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            daemon.process.wait(0.3)
        sent = time.monotonic()
        daemon.process.send_signal(second)
        code = daemon.process.wait(DEADLINE_S)

    assert code == 0
    assert time.monotonic() - sent < STOP_SECONDS / 2


@pytest.mark.parametrize("rounds", range(5))
async def test_connection_accepted_during_stop_is_closed(rounds: int) -> None:
    with ExitStack() as stack:
        async with Server() as server:
            links = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(50)]
            for _ in range(rounds):
                await asyncio.sleep(0)
        for link in links:
            link.settimeout(DEADLINE_S)

            with suppress(ConnectionResetError):
                assert link.recv(1) == b""
