"""Servers with wrong, truncated or missing handshakes and logins, or with extremely short session timeouts.

A relay between the client and an embedded server breaks frames of the first connection, see :mod:`support.relay`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from support.relay import FIRST, HANDSHAKE, Answer, Relay, event, reply, text
from support.simulation import Connect

from zoolet.client import AuthFailedError, Client, ConnectionLossError, State
from zoolet.client.wire.session import ClientSession
from zoolet.protocol.codec import pack_int
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.testing import Server, delay

# --- broken handshakes ---


BROKEN_HANDSHAKES: dict[str, tuple[Answer, str, str]] = {
    "garbage": (lambda payload: b"\xff" * 40, "go on", r"not a ZooKeeper server: received b'\xff\xff"),
    "a huge frame": (
        lambda payload: pack_int(0x7FFFFFFF),
        "go on",
        "not a ZooKeeper server: received b'\\x7f",
    ),
    "HTTP": (
        lambda payload: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "go on",
        "not a ZooKeeper server: received 'HTTP/1.1 400 Bad Request'",
    ),
    "TLS": (
        lambda payload: b"\x15\x03\x03\x00\x02\x02\x50",
        "go on",
        "the port requires TLS",
    ),
    "an empty frame": (lambda payload: frame(b""), "go on", "not a ZooKeeper server"),
    "a short one": (lambda payload: frame(payload[:12]), "go on", "not a ZooKeeper server"),
    "a session that is over": (lambda payload: frame(ConnectResponse().encode()), "go on", "the session expired"),
    "no time": (lambda payload: frame(ConnectResponse(-5, 9).encode()), "go on", "the session expired"),
    "no answer": (
        lambda payload: b"",
        "close",
        "the server closed the connection without an answer; possible causes: maxClientCnxns or maxCnxns is reached",
    ),
    "silence": (lambda payload: b"", "stall", "no answer within 0."),
    "half an answer": (lambda payload: frame(payload)[:20], "stall", "no answer within 0."),
    "an event": (lambda payload: frame(payload) + event(99, text(b"/a")), "go on", "an event of unknown type 99"),
}


@pytest.mark.parametrize("name", BROKEN_HANDSHAKES)
async def test_server_with_broken_handshake_is_retried(
    relay: Relay, connect: Connect, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG, "zoolet.client")
    relay.breaks, relay.then, why = BROKEN_HANDSHAKES[name]
    relay.number = HANDSHAKE

    zk = await connect(f"{relay.hosts},{relay.hosts}", timeout=0.6 if relay.then == "stall" else 10.0)

    assert await zk.exists("/") is not None
    assert why in caplog.text
    assert relay.connections == 2


async def test_start_at_silent_server_names_missing_answer() -> None:
    async def stay_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the client closes the connection
        writer.close()

    async with await asyncio.start_server(stay_silent, "127.0.0.1", 0) as silent:
        host, port = silent.sockets[0].getsockname()

        with pytest.raises(
            ConnectionLossError, match=r"no server was reached within 0.6 s; last attempt: .*no answer within"
        ):
            await Client(f"{host}:{port}", timeout=0.6).start()


async def test_client_tries_next_server_after_silent_server(relay: Relay, server: Server, connect: Connect) -> None:
    relay.number, relay.breaks, relay.then = HANDSHAKE, lambda payload: b"", "stall"

    zk = await connect(f"{relay.hosts},{server.hosts}", timeout=0.3)

    assert zk.state is State.CONNECTED


async def test_connection_lost_in_handshake_is_retried(server: Server, connect: Connect) -> None:
    for length in range(4 + 37):
        async with Relay(server.hosts) as relay:
            relay.number, relay.then, relay.breaks = HANDSHAKE, "close", lambda payload, n=length: frame(payload)[:n]

            zk = await connect(relay.hosts)

            assert relay.connections == 2
            await zk.aclose()


async def test_resumed_session_survives_broken_handshake(relay: Relay, server: Server, connect: Connect) -> None:
    zk = await connect(relay.hosts)
    session_id = zk.session_id
    await zk.create("/here", ephemeral=True)
    relay.connections, relay.number, relay.breaks = 0, HANDSHAKE, lambda payload: b"\xff" * 40

    server.drop(zk)

    assert await zk.ephemerals() == ["/here"]
    assert zk.session_id == session_id


# --- an extremely short session timeout ---


def with_timeout_of_1_ms(payload: bytes) -> bytes:
    """Return the server's answer to the handshake with a session timeout of 1 ms."""
    answer = ConnectResponse.decode(payload)
    return frame(ConnectResponse(1, answer.session_id, answer.password or b"", answer.read_only).encode())


async def test_tiny_granted_timeout_affects_only_one_connection(relay: Relay, server: Server) -> None:
    relay.number, relay.breaks = HANDSHAKE, with_timeout_of_1_ms
    zk = Client(relay.hosts, timeout=5.0)

    with server.fault(delay(0.1), "connect", times=2):
        async with zk:
            await server.until(lambda: zk.session_timeout == 5.0)

            # The session of the first expired after 1 ms; the handshake of the second arrived in time.
            assert relay.connections == 2


def test_session_after_tiny_timeout_requests_full_timeout() -> None:
    session = ClientSession(10_000, Random(1))
    session.start(0.0)
    session.receive(frame(ConnectResponse(1, 9, bytes(16), False).encode()), 0.0)
    granted = session.timeout_ms

    session.lost("it was", 1.0)
    session.expired("it was")

    assert (granted, session.timeout_ms) == (1, 10_000)


# --- logins ---


@pytest.fixture
async def login_server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with one user."""
    path = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path.write_text(f'Server {{ {module} user_bob="secret"; }};\n', encoding="utf-8")
    async with Server(config={"java.security.auth.login.config": str(path)}) as running:
        yield running


@pytest.mark.parametrize("token", [b"", b"\xff\xff", b"realm=x", b'nonce="'], ids=["empty", "bytes", "no nonce", "cut"])
async def test_invalid_challenge_causes_reconnect(
    login_server: Server, connect: Connect, caplog: pytest.LogCaptureFixture, token: bytes
) -> None:
    caplog.set_level(logging.DEBUG, "zoolet.client")
    async with Relay(login_server.hosts) as relay:
        relay.number, relay.breaks = FIRST, lambda payload: reply(0, body=text(token))

        zk = await connect(relay.hosts, login=("bob", "secret"))

        assert "the SASL login failed: " in caplog.text
        assert relay.connections == 2
        await zk.aclose()


async def test_server_that_cannot_prove_password_is_rejected(login_server: Server, connect: Connect) -> None:
    async with Relay(login_server.hosts) as relay:
        relay.number, relay.breaks = FIRST + 1, lambda payload: reply(0, body=text(b"rspauth=" + b"0" * 32))
        zk = Client(relay.hosts, login=("bob", "secret"))
        try:
            await zk.start()
        except AuthFailedError:
            return
        connections = relay.connections
        await zk.aclose()

    assert connections == 2


async def test_login_at_server_without_sasl_is_refused(server: Server) -> None:
    zk = Client(server.hosts, timeout=0.2, login=("bob", "secret"))

    with pytest.raises((AuthFailedError, ConnectionLossError), match=r"bob|SASL|login"):
        await zk.start()
    assert zk.state is State.CLOSED
