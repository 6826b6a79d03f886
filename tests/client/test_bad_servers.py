"""Servers that lie, stammer, fall silent or hang up: the client says why the connection was lost and makes another.

Between the client and an embedded server stands a relay that passes frames on, and breaks those of the first connection
as the test says.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from zoolet.client import AuthFailedError, Client, ConnectionLossError, State
from zoolet.client.session import Session
from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.server import Server
from zoolet.server.testing import delay

Connect = Callable[..., Awaitable[Client]]
Answer = Callable[[bytes], bytes]
"""From a payload of the server's to the bytes that the client gets in its place."""

DEADLINE_S: Final = 10.0  # only ever reached on failure
HANDSHAKE, FIRST = 0, 1  # numbers of frames that come from a server


class Relay:
    """Passes on what a client and a server say to each other.

    Args:
        server: The honest one.

    Attributes:
        number: Which of the frames of the first connection to break.
        breaks: What to send in its place.
        then: What becomes of the connection after that: ``"go on"``, ``"close"``, ``"reset"``, or ``"stall"``.
        chop: Send every byte by itself.
    """

    def __init__(self, server: Server) -> None:
        self.number = -1
        self.breaks: Answer = frame
        self.then = "go on"
        self.chop = False
        self.connections = 0
        self._server = server
        self._listening: asyncio.Server
        self._running: set[asyncio.Task[None]] = set()
        self.hosts = ""

    async def __aenter__(self) -> Relay:
        self._listening = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.hosts = f"127.0.0.1:{self._listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._listening.close()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    async def _serve(self, mine: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        task: Any = asyncio.current_task()
        self._running.add(task)
        self.connections += 1
        first = self.connections == 1
        ends = [to_client]
        try:
            its, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
            ends.append(to_server)
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask(mine, to_server))
                try:
                    await self._answer(its, to_client, first)
                except (asyncio.IncompleteReadError, OSError):
                    pass
                asking.cancel()
        except asyncio.CancelledError:
            pass  # this task ends here in any case
        finally:
            for end in ends:
                end.close()
            self._running.discard(task)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except OSError:
            pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first: bool) -> None:
        number = -1
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            payload = await reader.readexactly(length)
            number += 1
            broken = first and number == self.number
            data = self.breaks(payload) if broken else frame(payload)
            for at in range(len(data) if self.chop else 1):
                writer.write(data[at : at + 1] if self.chop else data)
                await asyncio.sleep(0)
            if broken and self.then == "reset":
                writer.transport.abort()
            if broken and self.then == "stall":
                await asyncio.Event().wait()
            if broken and self.then in ("close", "reset"):
                return


@pytest.fixture
async def relay(server: Server) -> AsyncIterator[Relay]:
    """A relay before the embedded server."""
    async with Relay(server) as standing:
        yield standing


def reply(xid: int, zxid: int = 1, err: int = 0, body: bytes = b"") -> bytes:
    """Return a reply's frame."""
    return frame(r.ReplyHeader(xid, zxid, err).encode() + body)


def event(kind: int, path: bytes) -> bytes:
    """Return a notification's frame."""
    return reply(-1, -1, 0, pack_int(kind) + pack_int(3) + path)


def text(said: bytes) -> bytes:
    return pack_int(len(said)) + said


# --- in the place of a reply ---

BROKEN: dict[str, tuple[Answer, str, str]] = {
    "garbage": (lambda payload: b"\xff" * 40, "go on", "makes no sense: a frame of -1 bytes"),
    "a huge frame": (lambda payload: pack_int((64 << 20) + 1), "go on", "makes no sense: a frame of 67108865 bytes"),
    "HTTP": (
        lambda payload: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        "go on",
        "makes no sense: a frame of 1213486160 bytes",
    ),
    "an empty frame": (lambda payload: frame(b""), "go on", "a reply of 0 bytes"),
    "a short reply": (lambda payload: frame(payload[:15]), "go on", "a reply of 15 bytes"),
    "a wrong xid": (lambda payload: reply(77), "go on", "answered request 77, and 1 was next"),
    "the next xid": (lambda payload: reply(2), "go on", "answered request 2, and 1 was next"),
    "a ping nobody sent": (lambda payload: reply(-2), "go on", "answered request -2, and 1 was next"),
    "an auth nobody sent": (lambda payload: reply(-4), "go on", "answered request -4, and 1 was next"),
    "watches nobody set": (lambda payload: reply(-8), "go on", "answered request -8, and 1 was next"),
    "an unknown event": (lambda payload: event(99, text(b"/a")), "go on", "an event of unknown type 99"),
    "half an event": (lambda payload: event(1, pack_int(50) + b"/a"), "go on", "makes no sense"),
    "an event without a path": (lambda payload: event(1, pack_int(-1)), "go on", "makes no sense"),
    "half a body": (lambda payload: frame(payload[:-5]), "go on", "the server's answer makes no sense"),
    "no body": (lambda payload: frame(payload[:16]), "go on", "the server's answer makes no sense"),
    "no answer": (lambda payload: b"", "close", "the server closed the connection"),
    "a reset": (lambda payload: b"", "reset", "the connection was lost: "),
    "silence": (lambda payload: b"", "stall", "nothing was heard of the server for 0."),
    "half an answer": (lambda payload: frame(payload)[:30], "stall", "nothing was heard of the server for 0."),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_write_is_lost_and_says_why_and_the_client_goes_on(relay: Relay, connect: Connect, name: str) -> None:
    relay.breaks, relay.then, why = BROKEN[name]
    relay.number = FIRST
    zk = await connect(relay.hosts, timeout=0.15 if relay.then == "stall" else 10.0)

    with pytest.raises(ConnectionLossError) as caught:
        await zk.set("/", b"v")

    assert why in str(caught.value)
    assert caught.value.path == "/"
    assert caught.value.maybe_applied
    value, stat = await zk.get("/")
    assert (value, stat.version, relay.connections) == (b"v", 1, 2)


@pytest.mark.parametrize("name", [name for name in BROKEN if "body" not in name])
async def test_a_read_is_sent_to_the_next_connection(relay: Relay, connect: Connect, name: str) -> None:
    relay.breaks, relay.then, _ = BROKEN[name]
    relay.number = FIRST
    zk = await connect(relay.hosts, timeout=0.15 if relay.then == "stall" else 10.0)

    assert await zk.children("/") == ["zookeeper"]
    assert relay.connections == 2


async def test_a_read_whose_answer_makes_no_sense_is_not_tried_for_ever(relay: Relay, connect: Connect) -> None:
    relay.breaks, relay.number = (lambda payload: frame(payload[:-5])), FIRST
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match="/: the connection was lost: the server's answer makes no sense"):
        await zk.get("/")
    assert await zk.exists("/") is not None


async def test_the_reason_names_the_server(relay: Relay, connect: Connect) -> None:
    relay.number, relay.then, relay.breaks = FIRST, "close", lambda payload: b""
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match=f"^/: the connection was lost: {relay.hosts}: the server closed"):
        await zk.set("/", b"")


async def test_a_connection_that_ends_within_a_reply_is_lost_wherever_it_ends(server: Server, connect: Connect) -> None:
    for length in range(4 + 16 + 68):
        async with Relay(server) as relay:
            relay.number, relay.then, relay.breaks = FIRST, "close", lambda payload, n=length: frame(payload)[:n]
            zk = await connect(relay.hosts)

            with pytest.raises(ConnectionLossError, match="the server closed the connection"):
                await zk.set("/", b"")
            assert await zk.exists("/") is not None
            await zk.aclose()


async def test_replies_that_come_byte_by_byte_are_replies(relay: Relay, connect: Connect) -> None:
    relay.chop = True
    zk = await connect(relay.hosts)

    async with zk.watch("/a") as events:
        await zk.create("/a", b"v")
        assert (await events.next()).path == "/a"
    assert (await zk.get("/a"))[0] == b"v"
    assert relay.connections == 1


async def test_everything_that_was_under_way_is_lost_together(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST + 1, lambda payload: reply(77)
    zk = await connect(relay.hosts)

    answered, *lost = await asyncio.gather(*[zk.set("/", b"") for _ in range(10)], return_exceptions=True)

    assert isinstance(answered, r.Stat)
    assert [type(one) for one in lost] == [ConnectionLossError] * 9


async def test_an_answer_that_comes_twice_costs_the_connection_but_not_the_call(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: frame(payload) * 2
    zk = await connect(relay.hosts)
    states = zk.states()

    assert (await zk.set("/", b"v")).version == 1
    assert (await zk.get("/"))[0] == b"v"
    await zk.wait_for(State.CONNECTED)
    await zk.aclose()
    assert [state async for state in states][1:3] == [State.SUSPENDED, State.CONNECTED]


async def test_a_request_that_is_never_answered_though_pings_are_is_lost(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: b""  # all that comes later is passed on
    zk = await connect(relay.hosts, timeout=0.15)

    with pytest.raises(ConnectionLossError):
        async with asyncio.timeout(1.0):
            await zk.set("/", b"v")


async def test_what_was_written_by_a_newer_server_behind_a_body_is_passed_over(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: frame(payload + b"something new")
    zk = await connect(relay.hosts)

    assert (await zk.set("/", b"v")).version == 1
    assert relay.connections == 1


async def test_an_unknown_error_code_is_an_answer(relay: Relay, connect: Connect) -> None:
    from zoolet.client import ZooKeeperError

    relay.number, relay.breaks = FIRST, lambda payload: reply(1, err=-9999)
    zk = await connect(relay.hosts)

    with pytest.raises(ZooKeeperError, match="/: the server answered with unknown error code -9999"):
        await zk.set("/", b"v")
    assert relay.connections == 1


@pytest.mark.parametrize("path", [b"", b"a", b"no/slash"])
async def test_an_event_with_a_path_that_is_none_is_a_reason_to_leave(
    relay: Relay, connect: Connect, path: bytes
) -> None:
    zk = await connect(relay.hosts)
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    async with zk.watch("/zookeeper/quota", recursive=True):
        relay.connections, relay.number = 0, 0
        assert zk._connection is not None
        assert zk._connection._link is not None
        try:
            zk._connection._link.data_received(event(1, text(path)))
        except Exception as error:
            complaints.append(error)

    assert not complaints


async def test_a_multi_read_with_too_few_results_is_lost(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: reply(1, body=r.MultiHeader(-1, True, -1).encode())
    zk = await connect(relay.hosts)

    with pytest.raises(ConnectionLossError, match="makes no sense"):
        await zk.multi_read(("get", "/"), ("get", "/"))


async def test_a_transaction_with_too_few_results_is_lost(relay: Relay, connect: Connect) -> None:
    relay.number, relay.breaks = FIRST, lambda payload: reply(1, body=r.MultiHeader(-1, True, -1).encode())
    zk = await connect(relay.hosts)
    t = zk.transaction()
    t.create("/a")

    with pytest.raises(ConnectionLossError, match="makes no sense"):
        await t.commit()


# --- in the place of the handshake ---

BROKEN_HANDSHAKES: dict[str, tuple[Answer, str, str]] = {
    "garbage": (lambda payload: b"\xff" * 40, "go on", "makes no sense: a frame of -1 bytes"),
    "a huge frame": (lambda payload: pack_int(0x7FFFFFFF), "go on", "makes no sense: a frame of 2147483647 bytes"),
    "HTTP": (lambda payload: b"HTTP/1.1 400 Bad Request\r\n\r\n", "go on", "makes no sense"),
    "TLS": (lambda payload: b"\x15\x03\x03\x00\x02\x02\x50", "go on", "makes no sense"),
    "an empty frame": (lambda payload: frame(b""), "go on", "makes no sense"),
    "a short one": (lambda payload: frame(payload[:12]), "go on", "makes no sense"),
    "a session that is over": (lambda payload: frame(ConnectResponse().encode()), "go on", "the session has expired"),
    "no time": (lambda payload: frame(ConnectResponse(-5, 9).encode()), "go on", "the session has expired"),
    "no answer": (lambda payload: b"", "close", "the server closed the connection"),
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

    with pytest.raises(ConnectionLossError, match=r"no server within 0.1 s; the last: .*no answer to the handshake"):
        await Client(relay.hosts, timeout=0.1).start()


async def test_a_silent_server_is_given_up_for_the_next(relay: Relay, server: Server, connect: Connect) -> None:
    relay.number, relay.breaks, relay.then = HANDSHAKE, lambda payload: b"", "stall"

    zk = await connect(f"{relay.hosts},{server.hosts}", timeout=0.3)

    assert zk.state is State.CONNECTED


async def test_a_connection_that_ends_within_the_handshake_is_made_again_wherever_it_ends(
    server: Server, connect: Connect
) -> None:
    for length in range(4 + 37):
        async with Relay(server) as relay:
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

    with server.fault("connect", times=2, action=delay(0.1)):
        async with zk:
            await server.wait_for(lambda: zk.session_timeout == 5.0)

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
async def test_a_challenge_that_makes_no_sense_is_a_reason_to_try_again(
    strict: Server, connect: Connect, caplog: pytest.LogCaptureFixture, token: bytes
) -> None:
    caplog.set_level(logging.DEBUG, "zoolet.client")
    async with Relay(strict) as relay:
        relay.number, relay.breaks = FIRST, lambda payload: reply(0, body=text(token))

        zk = await connect(relay.hosts, login=("bob", "secret"))

        assert "SASL: " in caplog.text
        assert relay.connections == 2
        await zk.aclose()


async def test_a_server_that_does_not_know_the_password_is_not_believed(strict: Server, connect: Connect) -> None:
    async with Relay(strict) as relay:
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
