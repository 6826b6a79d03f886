"""The last file descriptors of the process: they are for four-letter commands, so that an operator can see what is
wrong.
"""

from __future__ import annotations

import socket
import tempfile
import time
from contextlib import suppress

import pytest
from support.daemon import DaemonProcess
from support.frames import HELLO
from support.live_server import Serve
from support.waiting import DEADLINE_S, until

from zoolet.server.net.connections import SPARE_DESCRIPTORS, Connections


def _is_last(connections: Connections, number: int) -> bool:
    connections.last_descriptor = 0
    connections.warn_of_descriptors()
    return True


@pytest.fixture
def last_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection gets one of the last descriptors."""
    monkeypatch.setattr("zoolet.server.net.connections.Connections.is_last_descriptor", _is_last)


@pytest.mark.usefixtures("last_descriptors")
@pytest.mark.parametrize("word", [b"srvr", b"ruok"])
async def test_a_word_is_answered_with_one_of_the_last_descriptors(serve: Serve, word: bytes) -> None:
    server = await serve(whitelist=["*"])
    client = await server.dial()

    client.send(word)

    assert await client.rest() != b""


@pytest.mark.usefixtures("last_descriptors")
async def test_no_session_is_opened_with_one_of_the_last_descriptors(serve: Serve) -> None:
    server = await serve()
    client = await server.dial()

    client.send(HELLO)

    assert await client.rest() == b""
    assert not server.engine.sessions.alive


@pytest.mark.usefixtures("last_descriptors")
async def test_one_who_says_nothing_keeps_no_last_descriptor(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.net.protocol.COMMAND_SECONDS", 0.01)
    server = await serve()

    client = await server.dial()
    client.send(b"mn")

    with suppress(ConnectionError):
        assert await client.rest() == b""
    await server.settle()


@pytest.mark.usefixtures("last_descriptors")
async def test_one_line_says_that_descriptors_run_out(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    server = await serve()

    clients = [await server.dial() for _ in range(10)]
    await until(lambda: len(server.daemon.connections.open) == 10)

    assert len([line for line in caplog.messages if "running out of file descriptors" in line]) == 1
    assert len(clients) == 10


@pytest.mark.parametrize(("below", "last"), [(-1, False), (0, True), (SPARE_DESCRIPTORS - 1, True)])
async def test_the_last_eight_descriptors_are_the_last(serve: Serve, below: int, last: bool) -> None:
    server = await serve()

    found = server.daemon.connections.is_last_descriptor(server.daemon.connections.last_descriptor + below)

    assert found is last


def shaken_hands(link: socket.socket) -> bool:
    """Shake hands if the server lets one."""
    link.settimeout(1.5)
    with suppress(OSError):
        link.sendall(HELLO)
        return len(link.recv(41)) == 41
    return False


def mntr_in_time(daemon: DaemonProcess) -> str:
    """Ask until there is an answer: others may hold the last descriptors for a second each."""
    until = time.monotonic() + DEADLINE_S
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((daemon.host, daemon.port), 1) as link:
            link.sendall(b"mntr")
            if answer := b"".join(iter(lambda: link.recv(65536), b"")):
                return answer.decode()
    return ""


@pytest.mark.slow
def test_a_daemon_without_descriptors_answers_mntr_and_says_so_once() -> None:
    with tempfile.TemporaryFile() as log:
        daemon = DaemonProcess("-Dzookeeper.4lw.commands.whitelist=*", "-Dzookeeper.maxClientCnxns=0", stderr=log)
        daemon.command = ["/bin/sh", "-c", 'ulimit -n 64; exec "$@"', "sh", *daemon.command]
        with daemon:
            links = [socket.create_connection((daemon.host, daemon.port), DEADLINE_S) for _ in range(80)]
            held = [link for link in links if shaken_hands(link)]
            answer = mntr_in_time(daemon)
            for link in links:
                link.close()
        log.seek(0)
        lines = [line for line in log.read().decode().splitlines() if "descriptor" in line]

    assert 20 < len(held) <= 64 - SPARE_DESCRIPTORS
    assert "zk_max_file_descriptor_count\t64" in answer
    assert len(lines) == 1
