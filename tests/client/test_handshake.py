"""Servers whose handshakes and logins are wrong, cut or missing, or that grant next to no time.

Between the client and an embedded server stands a relay that breaks frames of the first connection, see
:mod:`support.relay`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from support.relay import FIRST, HANDSHAKE, Answer, Relay, event, reply, text
from support.simulation import Connect

from zoolet.client import AuthFailedError, Client, ConnectionLossError, State
from zoolet.client.wire.session import Session
from zoolet.protocol.codec import pack_int
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.server import Server
from zoolet.server.testing import delay

# --- in the place of the answer ---


BROKEN_HANDSHAKES: dict[str, tuple[Answer, str, str]] = {
    "garbage": (lambda payload: b"\xff" * 40, "go on", "the server sent a malformed message: a frame of -1 bytes"),
    "a huge frame": (
        lambda payload: pack_int(0x7FFFFFFF),
        "go on",
        "the server sent a malformed message: a frame of 2147483647 bytes",
    ),
    "HTTP": (lambda payload: b"HTTP/1.1 400 Bad Request\r\n\r\n", "go on", "the server sent a malformed message"),
    "TLS": (lambda payload: b"\x15\x03\x03\x00\x02\x02\x50", "go on", "the server sent a malformed message"),
    "an empty frame": (lambda payload: frame(b""), "go on", "the server sent a malformed message"),
    "a short one": (lambda payload: frame(payload[:12]), "go on", "the server sent a malformed message"),
    "a session that is over": (lambda payload: frame(ConnectResponse().encode()), "go on", "the session has expired"),
    "no time": (lambda payload: frame(ConnectResponse(-5, 9).encode()), "go on", "the session has expired"),
    "no answer": (
        lambda payload: b"",
        "close",
        "the server closed the connection in place of an answer: it may",
    ),
    "silence": (lambda payload: b"", "stall", "no answer to the handshake within 0."),
    "half an answer": (lambda payload: frame(payload)[:20], "stall", "no answer to the handshake within 0."),
    "an event": (lambda payload: frame(payload) + event(99, text(b"/a")), "go on", "an event of unknown type 99"),
}


@pytest.mark.parametrize("name", BROKEN_HANDSHAKES)
async def test_a_server_that_cannot_shake_hands_is_asked_again(
    relay: Relay, connect: Connect, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG, "zoolet.client")
    relay.breaks, relay.then, why = BROKEN_HANDSHAKES[name]
    relay.number = HANDSHAKE

    zk = await connect(f"{relay.hosts},{relay.hosts}", timeout=0.6 if relay.then == "stall" else 10.0)

    assert await zk.exists("/") is not None
    assert why in caplog.text
    assert relay.connections == 2


async def test_a_start_at_a_silent_server_says_what_was_missing(relay: Relay) -> None:
    relay.number, relay.breaks, relay.then = HANDSHAKE, lambda payload: b"", "stall"

    with pytest.raises(
        ConnectionLossError, match=r"no server was reached within 0.1 s; the last: .*no answer to the handshake"
    ):
        await Client(relay.hosts, timeout=0.1).start()


async def test_a_silent_server_is_given_up_for_the_next(relay: Relay, server: Server, connect: Connect) -> None:
    relay.number, relay.breaks, relay.then = HANDSHAKE, lambda payload: b"", "stall"

    zk = await connect(f"{relay.hosts},{server.hosts}", timeout=0.3)

    assert zk.state is State.CONNECTED


async def test_a_connection_that_ends_within_the_handshake_is_made_again_wherever_it_ends(
    server: Server, connect: Connect
) -> None:
    for length in range(4 + 37):
        async with Relay(server.hosts) as relay:
            relay.number, relay.then, relay.breaks = HANDSHAKE, "close", lambda payload, n=length: frame(payload)[:n]

            zk = await connect(relay.hosts)

            assert relay.connections == 2
            await zk.aclose()


async def test_a_resumed_session_survives_a_broken_handshake(relay: Relay, server: Server, connect: Connect) -> None:
    zk = await connect(relay.hosts)
    session_id = zk.session_id
    await zk.create("/here", ephemeral=True)
    relay.connections, relay.number, relay.breaks = 0, HANDSHAKE, lambda payload: b"\xff" * 40

    server.drop(zk)

    assert await zk.ephemerals() == ["/here"]
    assert zk.session_id == session_id


# --- a server that grants next to no time ---


def of_a_millisecond(payload: bytes) -> bytes:
    """The server's answer to the handshake, with a session timeout of 1 ms."""
    answer = ConnectResponse.decode(payload)
    return frame(ConnectResponse(1, answer.session_id, answer.password or b"", answer.read_only).encode())


async def test_a_timeout_of_a_millisecond_leaves_later_connections_the_time_they_need(
    relay: Relay, server: Server
) -> None:
    relay.number, relay.breaks = HANDSHAKE, of_a_millisecond
    zk = Client(relay.hosts, timeout=5.0)

    with server.fault(delay(0.1), "connect", times=2):
        async with zk:
            await server.until(lambda: zk.session_timeout == 5.0)

            assert relay.connections == 2  # the first was over after a millisecond; the next had time to answer


def test_a_session_after_one_of_a_millisecond_asks_for_what_was_wanted() -> None:
    session = Session(10_000, Random(1))
    session.begin(0.0)
    session.receive(frame(ConnectResponse(1, 9, bytes(16), False).encode()), 0.0)
    granted = session.timeout_ms

    session.lost("it was", 1.0)
    session.expired("it was")

    assert (granted, session.timeout_ms) == (1, 10_000)


# --- logins ---


@pytest.fixture
async def strict(tmp_path: Path) -> AsyncIterator[Server]:
    """A server with one user."""
    path = tmp_path / "jaas.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule required"
    path.write_text(f'Server {{ {module} user_bob="secret"; }};\n', encoding="utf-8")
    async with Server(config={"java.security.auth.login.config": str(path)}) as running:
        yield running


@pytest.mark.parametrize("token", [b"", b"\xff\xff", b"realm=x", b'nonce="'], ids=["empty", "bytes", "no nonce", "cut"])
async def test_a_challenge_that_is_invalid_is_a_reason_to_try_again(
    strict: Server, connect: Connect, caplog: pytest.LogCaptureFixture, token: bytes
) -> None:
    caplog.set_level(logging.DEBUG, "zoolet.client")
    async with Relay(strict.hosts) as relay:
        relay.number, relay.breaks = FIRST, lambda payload: reply(0, body=text(token))

        zk = await connect(relay.hosts, login=("bob", "secret"))

        assert "SASL: " in caplog.text
        assert relay.connections == 2
        await zk.aclose()


async def test_a_server_that_does_not_know_the_password_is_not_believed(strict: Server, connect: Connect) -> None:
    async with Relay(strict.hosts) as relay:
        relay.number, relay.breaks = FIRST + 1, lambda payload: reply(0, body=text(b"rspauth=" + b"0" * 32))
        zk = Client(relay.hosts, login=("bob", "secret"))
        try:
            await zk.start()
        except AuthFailedError:
            return
        connections = relay.connections
        await zk.aclose()

    assert connections == 2


async def test_a_login_at_a_server_without_logins_is_refused_with_a_reason(server: Server) -> None:
    zk = Client(server.hosts, timeout=0.2, login=("bob", "secret"))

    with pytest.raises((AuthFailedError, ConnectionLossError), match=r"bob|SASL|login"):
        await zk.start()
    assert zk.state is State.CLOSED
