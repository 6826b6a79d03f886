"""The last file descriptors of the process are reserved for four-letter commands, which lets an operator diagnose the
shortage.
"""

from __future__ import annotations

import resource
import socket
import tempfile
import time
from contextlib import suppress

import pytest
from support.daemon import DaemonProcess
from support.frames import HELLO
from support.live_server import Serve
from support.waiting import DEADLINE_S, until

from zoolet.server.net.connections import SOCKETS_PER_CHECK, SPARE_DESCRIPTORS, Connections
from zoolet.server.net.protocol import ServerProtocol
from zoolet.testing import Server


def _is_last(connections: Connections, socket: ServerProtocol) -> bool:
    connections.last_descriptor = 0
    connections.warn_of_descriptors()
    return True


@pytest.fixture
def last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every connection use one of the last descriptors."""
    monkeypatch.setattr("zoolet.server.net.connections.Connections.is_last_descriptor", _is_last)


@pytest.mark.usefixtures("last_descriptors")
@pytest.mark.parametrize("word", [b"srvr", b"ruok"])
async def test_last_descriptors_serve_four_letter_words(serve: Serve, word: bytes) -> None:
    server = await serve(whitelist=["*"])
    client = await server.dial()

    client.send(word)

    assert await client.rest() != b""


@pytest.mark.usefixtures("last_descriptors")
async def test_last_descriptors_open_no_session(serve: Serve) -> None:
    server = await serve()
    client = await server.dial()

    client.send(HELLO)

    assert await client.rest() == b""
    assert not server.engine.sessions.alive


@pytest.mark.usefixtures("last_descriptors")
async def test_silent_client_releases_reserved_descriptor(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.protocol.COMMAND_SECONDS", 0.01)
    server = await serve()

    client = await server.dial()
    client.send(b"mn")

    with suppress(ConnectionError):
        assert await client.rest() == b""
    await server.settle()


@pytest.mark.usefixtures("last_descriptors")
async def test_exhausted_descriptors_are_logged_once(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve()

    clients = [await server.dial() for _ in range(10)]
    await until(lambda: len(server.daemon.connections.open) == 10)

    assert len([line for line in caplog.messages if "running out of file descriptors" in line]) == 1
    assert len(clients) == 10


@pytest.mark.parametrize(("above", "last"), [(-1, False), (0, True), (SPARE_DESCRIPTORS - 1, True)])
async def test_last_eight_descriptors_are_reserved(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, above: int, last: bool
) -> None:
    connections = (await serve()).daemon.connections
    monkeypatch.setattr(ServerProtocol, "descriptor", lambda _: connections.last_descriptor + above)

    assert connections.is_last_descriptor(ServerProtocol(connections)) is last


# --- when the number of descriptors is looked up ---


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The descriptors that were looked up. The list starts with the number that all connections have."""
    numbers = [10]

    def descriptor(_: ServerProtocol) -> int:
        numbers.append(numbers[0])
        return numbers[0]

    monkeypatch.setattr(ServerProtocol, "descriptor", descriptor)
    return numbers


def accept_connections(connections: Connections, count: int) -> list[bool]:
    """Accept connections, and return which of them have one of the last descriptors."""
    accepted = [connections.try_accept("127.0.0.1") for _ in range(count)]
    assert all(accepted)
    return [connections.is_last_descriptor(ServerProtocol(connections)) for _ in accepted]


async def test_low_descriptors_are_looked_up_only_at_intervals(serve: Serve, looked_up: list[int]) -> None:
    connections = (await serve(max_client_cnxns=0)).daemon.connections
    connections.last_descriptor = 1_000

    accept_connections(connections, 2 * SOCKETS_PER_CHECK)

    assert len(looked_up) == 1 + 2


async def test_each_descriptor_is_looked_up_above_half_of_limit(serve: Serve, looked_up: list[int]) -> None:
    connections = (await serve(max_client_cnxns=0)).daemon.connections
    connections.last_descriptor = 100
    accept_connections(connections, 51)
    looked_up[:] = [100]

    assert all(accept_connections(connections, 10))


async def test_descriptor_of_each_connection_is_read_after_high_one(serve: Serve, looked_up: list[int]) -> None:
    connections = (await serve(max_client_cnxns=0)).daemon.connections
    connections.last_descriptor = 1_000
    looked_up[:] = [500]
    accept_connections(connections, 1)
    looked_up[:] = [1_000]

    assert all(accept_connections(connections, 10))


def is_handshake_accepted(link: socket.socket) -> bool:
    """Return whether the server accepts a handshake."""
    link.settimeout(1.5)
    with suppress(OSError):
        link.sendall(HELLO)
        return len(link.recv(41)) == 41
    return False


def wait_for_mntr(daemon: DaemonProcess) -> str:
    """Send mntr until it is answered, because other connections may hold the last descriptors for a second each."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((daemon.host, daemon.port), 1) as link:
            link.sendall(b"mntr")
            if answer := b"".join(iter(lambda: link.recv(65536), b"")):
                return answer.decode()
    return ""


@pytest.mark.slow
def test_daemon_without_descriptors_answers_mntr() -> None:
    with tempfile.TemporaryFile() as log:
        daemon = DaemonProcess("-Dzookeeper.4lw.commands.whitelist=*", "-Dzookeeper.maxClientCnxns=0", stderr=log)
        daemon.command = ["/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *daemon.command]
        with daemon:
            links = [socket.create_connection((daemon.host, daemon.port), DEADLINE_S) for _ in range(80)]
            held = [link for link in links if is_handshake_accepted(link)]
            answer = wait_for_mntr(daemon)
            for link in links:
                link.close()
        log.seek(0)
        lines = [line for line in log.read().decode().splitlines() if "descriptor" in line]

    assert 20 < len(held) <= 64 - SPARE_DESCRIPTORS
    assert "zk_max_file_descriptor_count\t64" in answer
    assert len(lines) == 1


@pytest.mark.slow
def test_daemon_raises_soft_limit_to_hard_limit() -> None:
    with tempfile.TemporaryFile() as log:
        daemon = DaemonProcess("-Dzookeeper.4lw.commands.whitelist=*", stderr=log)
        daemon.command = ["/bin/sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$@"', "sh", *daemon.command]
        with daemon:
            answer = wait_for_mntr(daemon)
        log.seek(0)
        lines = log.read().decode()

    assert "zk_max_file_descriptor_count\t200\n" in answer
    assert "raised the limit of open files from 100 to 200" in lines


async def test_embedded_server_does_not_change_descriptor_limits() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1] - 1, limits[1]))

    try:
        async with Server():
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1] - 1, limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
