"""Input that makes no sense, on a live port: each piece gets exactly what ZooKeeper gives it, nobody else notices, and
nothing is logged as an error of ours.

Source: the framing, handshake and error tables of the wire specification (NIOServerCnxn.readLength, readPayload;
ZooKeeperServer.processConnectRequest, processPacket).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

import pytest

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.enums import MAX_FRAME
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server.app import assemble
from zoolet.server.config import Config
from zoolet.server.core.settings import Settings
from zoolet.server.net.daemon import Daemon

DEADLINE_S: Final = 5.0  # only ever reached on failure
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
MARSHALLING_ERROR: Final = -5
UNIMPLEMENTED: Final = -6
NULL: Final = pack_int(-1)


# --- what the tests say it with ---


class ManualClock:
    """Time that only passes when told."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def read(self) -> tuple[int, int]:
        """Return milliseconds since the epoch, and milliseconds on a steady clock."""
        return self.ms, self.ms


@dataclass
class Live:
    """A server in this loop."""

    listener: Daemon
    port: int
    clock: ManualClock

    def advance(self, ms: int) -> None:
        """Let time pass, and do what is due."""
        self.clock.ms += ms
        self.listener.tick()


@dataclass(frozen=True)
class Answer:
    """One reply frame."""

    xid: int
    zxid: int
    err: int
    body: bytes


class Client:
    """A client reduced to its socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.welcome: ConnectResponse | None = None

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    def end(self) -> None:
        """Send nothing more: half-close."""
        self.writer.write_eof()

    async def payload(self) -> bytes:
        """Wait for one frame."""
        async with asyncio.timeout(DEADLINE_S):
            (length,) = int_at(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def answer(self) -> Answer:
        """Wait for one reply."""
        payload = await self.payload()
        header = r.ReplyHeader.decode(payload)
        return Answer(header.xid, header.zxid, header.err, payload[16:])

    async def answers(self, count: int) -> list[Answer]:
        """Wait for that many replies."""
        return [await self.answer() for _ in range(count)]

    async def rest(self) -> bytes:
        """Wait for the server to close; return all that came before."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def shake_hands(self) -> None:
        """Open a session."""
        self.send(HELLO)
        self.welcome = ConnectResponse.decode(await self.payload())

    async def close(self) -> None:
        """Close the socket."""
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


Dial = Callable[..., Awaitable[Client]]


@pytest.fixture
async def live(request: pytest.FixtureRequest) -> AsyncIterator[Live]:
    """A server; indirect parameters are its settings."""
    clock = ManualClock()
    settings = Settings(**getattr(request, "param", {}))
    listener = assemble(Config(host="127.0.0.1", max_client_cnxns=0, settings=settings), clock=clock)
    yield Live(listener, await listener.start("127.0.0.1", 0), clock)
    await listener.stop()


@pytest.fixture
async def dial(live: Live) -> AsyncIterator[Dial]:
    """A function that gives a connected client; with ``shake=False`` it has said nothing yet."""
    clients: list[Client] = []

    async def connect(*, shake: bool = True) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", live.port))
        clients.append(client)
        if shake:
            await client.shake_hands()
        return client

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture(autouse=True)
def no_error_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a client sends, it is never an error of the server."""
    yield
    assert [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR] == []


def request(xid: int, op: int, body: bytes = b"") -> bytes:
    """Write one request, frame and all."""
    return frame(r.RequestHeader(xid, op).encode() + body)


def ping(xid: int = -2) -> bytes:
    """Write a ping."""
    return request(xid, OpCode.PING)


def exists(xid: int, path: str = "/") -> bytes:
    """Write an exists."""
    return request(xid, OpCode.EXISTS, r.ExistsRequest(path, False).encode())


def create(xid: int, path: str, data: bytes = b"") -> bytes:
    """Write a create."""
    return request(xid, OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, 0).encode())


def set_data(xid: int, path: str, data: bytes) -> bytes:
    """Write a setData."""
    return request(xid, OpCode.SET_DATA, r.SetDataRequest(path, data, -1).encode())


def xids(answers: list[Answer]) -> list[int]:
    """Take the xids of replies."""
    return [answer.xid for answer in answers]


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0)


# --- lengths ---

BAD_LENGTHS: Final = [MAX_FRAME + 1, 2**31 - 1, -1, -(2**31)]


@pytest.mark.parametrize("length", BAD_LENGTHS)
async def test_a_bad_length_closes_the_connection_before_its_payload_arrives(dial: Dial, length: int) -> None:
    client = await dial()

    client.send(pack_int(length))

    assert await client.rest() == b""


@pytest.mark.parametrize("length", BAD_LENGTHS)
async def test_a_bad_length_instead_of_a_handshake_closes_the_connection(dial: Dial, length: int) -> None:
    client = await dial(shake=False)

    client.send(pack_int(length))

    assert await client.rest() == b""


async def test_requests_before_a_bad_length_are_answered(dial: Dial) -> None:
    client = await dial()

    client.send(exists(1) + exists(2) + pack_int(-1))

    assert xids(await client.answers(2)) == [1, 2]
    assert await client.rest() == b""


async def test_a_frame_of_exactly_the_limit_is_answered(dial: Dial) -> None:
    client = await dial()
    client.send(create(1, "/big"))
    await client.answer()
    data = b"x" * (MAX_FRAME - len(set_data(2, "/big", b"")) + 4)
    longest = set_data(2, "/big", data)
    assert len(longest) == 4 + MAX_FRAME

    client.send(longest + request(3, OpCode.GET_DATA, r.GetDataRequest("/big", False).encode()))

    assert (await client.answer()).err == 0
    assert r.GetDataResponse.decode((await client.answer()).body).data == data


@pytest.mark.parametrize("live", [{"max_frame": 100}], indirect=True)
@pytest.mark.parametrize(("size", "answered"), [(100, True), (101, False)])
async def test_the_limit_is_the_one_that_was_configured(dial: Dial, size: int, answered: bool) -> None:
    client = await dial()
    body = b"".join([pack_int(1), b"/", b"\0", bytes(size - 8 - 6)])

    client.send(request(7, OpCode.EXISTS, body))
    client.end()

    assert (pack_int(7) in await client.rest()) is answered


@pytest.mark.parametrize("length", range(8))
async def test_a_request_too_short_for_its_header_closes_the_connection(dial: Dial, length: int) -> None:
    client = await dial()

    client.send(frame(bytes(length)))

    assert await client.rest() == b""


@pytest.mark.parametrize("length", range(8))
async def test_what_follows_a_request_too_short_for_its_header_is_not_answered(dial: Dial, length: int) -> None:
    client = await dial()

    client.send(exists(1) + frame(bytes(length)) + exists(2))

    assert (await client.answer()).xid == 1
    assert await client.rest() == b""


# --- the first frame ---


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        bytes(4),
        bytes(27),
        bytes(24) + pack_int(16) + bytes(15),
        bytes(24) + pack_int(-2),
        bytes(24) + pack_int(2**31 - 1),
    ],
    ids=["empty", "version only", "no password", "password cut short", "password of -2", "password of 2 GiB"],
)
async def test_a_connect_request_that_does_not_decode_closes_the_connection(dial: Dial, payload: bytes) -> None:
    client = await dial(shake=False)

    client.send(frame(payload))

    assert await client.rest() == b""


async def test_a_connect_request_without_a_password_is_enough(dial: Dial) -> None:
    client = await dial(shake=False)

    client.send(frame(bytes(24) + NULL))

    assert ConnectResponse.decode(await client.payload()).session_id != 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        bytes.fromhex("16030100c8010000c40303") + bytes(200),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff" * 64,
        exists(1),
        create(1, "/a", b"x" * 100),
        ping(),
    ],
    ids=["HTTP", "TLS", "SSH", "all ones", "a read", "a write", "a ping"],
)
async def test_garbage_instead_of_a_handshake_closes_the_connection(dial: Dial, garbage: bytes) -> None:
    client = await dial(shake=False)

    client.send(garbage)

    assert await client.rest() == b""


async def test_a_second_handshake_is_an_unknown_operation(dial: Dial) -> None:
    client = await dial()

    client.send(HELLO)

    assert await client.answer() == Answer(0, -1, UNIMPLEMENTED, b"")
    assert await client.rest() == b""


async def test_requests_behind_the_handshake_in_one_segment_are_answered(dial: Dial) -> None:
    client = await dial(shake=False)

    client.send(HELLO + exists(1) + exists(2))
    await client.payload()

    assert xids(await client.answers(2)) == [1, 2]


# --- bodies and op codes ---

BAD_BODIES: Final = {
    "nothing": b"",
    "a path of -2 bytes": pack_int(-2),
    "a path beyond the frame": pack_int(100) + b"/",
    "a path of 2 GiB": pack_int(2**31 - 1),
    "a path and no more": pack_int(1) + b"/",
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.SET_DATA, OpCode.CREATE, OpCode.DELETE, OpCode.ADD_WATCH])
async def test_an_undecodable_body_is_refused_and_the_connection_stays(dial: Dial, op: OpCode, body: bytes) -> None:
    client = await dial()

    client.send(request(5, op, body) + ping())

    refusal, pong = await client.answers(2)
    assert refusal == Answer(5, 1, MARSHALLING_ERROR, b"")  # zxid 1 is that of the session: none was taken
    assert (pong.xid, pong.err) == (-2, 0)


@pytest.mark.parametrize(
    ("op", "body"),
    [(OpCode.AUTH, b""), (OpCode.AUTH, pack_int(0) + pack_int(9) + b"dig"), (OpCode.SASL, b"\0"), (OpCode.SASL, NULL)],
    ids=["auth, nothing", "auth, cut short", "sasl, cut short", "sasl, null"],
)
async def test_an_undecodable_login_closes_the_connection(dial: Dial, op: OpCode, body: bytes) -> None:
    client = await dial()

    client.send(request(-4, op, body) + ping())

    assert await client.rest() == b""


@pytest.mark.parametrize("op", [0, 10, 13, 23, 99, 108, 2**31 - 1, -1, -10, -12, -(2**31)])
async def test_an_unknown_op_code_is_refused_and_the_connection_closed(dial: Dial, op: int) -> None:
    client = await dial()

    client.send(exists(1) + request(2, op, b"whatever") + exists(3))

    assert (await client.answer()).xid == 1
    assert await client.answer() == Answer(2, -1, UNIMPLEMENTED, b"")
    assert await client.rest() == b""


async def test_bytes_behind_a_body_are_ignored(dial: Dial) -> None:
    client = await dial()

    client.send(request(1, OpCode.EXISTS, r.ExistsRequest("/", False).encode() + b"more") + exists(2))

    assert [(answer.xid, answer.err) for answer in await client.answers(2)] == [(1, 0), (2, 0)]


# --- ends ---


async def test_a_truncated_request_before_the_end_is_not_carried_out(live: Live, dial: Dial) -> None:
    client = await dial()

    client.send(create(1, "/whole") + create(2, "/truncated")[:-1])
    client.end()

    assert (await client.answer()).xid == 1
    assert await client.rest() == b""
    assert list(live.listener.engine.tree.find("/").children or ()) == ["zookeeper", "whole"]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 20, len(HELLO) - 1])
async def test_a_truncated_handshake_before_the_end_is_not_answered(live: Live, dial: Dial, count: int) -> None:
    client = await dial(shake=False)

    client.send(HELLO[:count])
    client.end()

    assert await client.rest() == b""
    assert live.listener.engine.sessions.alive == {}


async def test_a_client_that_ends_its_side_gets_all_its_replies(dial: Dial) -> None:
    client = await dial()

    client.send(b"".join(exists(xid) for xid in range(500)))
    client.end()

    assert xids(await client.answers(500)) == list(range(500))
    assert await client.rest() == b""


async def test_the_session_of_a_client_that_ends_its_side_lives_on(live: Live, dial: Dial) -> None:
    client = await dial()

    client.end()
    await client.rest()
    await until(lambda: not live.listener.open)

    assert client.welcome is not None
    assert list(live.listener.engine.sessions.alive) == [client.welcome.session_id]


# --- silence ---


@pytest.mark.parametrize("said", [b"", b"ruo", HELLO[:4], HELLO[:-1]], ids=["nothing", "3 bytes", "a length", "most"])
@pytest.mark.parametrize("live", [{"sessionless_timeout": 200}], indirect=True)
async def test_a_client_that_never_finishes_its_handshake_is_closed(live: Live, dial: Dial, said: bytes) -> None:
    client, other = await dial(shake=False), await dial()
    client.send(said)
    await until(lambda: len(live.listener.open) == 2)

    live.advance(401)

    assert await client.rest() == b""
    other.send(exists(1))
    assert (await other.answer()).xid == 1


@pytest.mark.parametrize("live", [{"sessionless_timeout": 200}], indirect=True)
async def test_a_client_has_its_time_to_shake_hands(live: Live, dial: Dial) -> None:
    client = await dial(shake=False)
    await until(lambda: live.listener.open)

    live.advance(199)
    await client.shake_hands()

    assert client.welcome is not None
    assert client.welcome.session_id != 0


async def test_a_client_in_the_middle_of_a_frame_is_closed_when_its_session_ends(live: Live, dial: Dial) -> None:
    client = await dial()
    client.send(pack_int(1000) + bytes(10))

    live.advance(33_000)

    assert await client.rest() == b""
    assert live.listener.engine.sessions.alive == {}


# --- the others ---

NONSENSE: Final = {
    "a long length": pack_int(MAX_FRAME + 1),
    "a negative length": pack_int(-5),
    "an empty frame": frame(b""),
    "a short frame": frame(bytes(7)),
    "half a frame": pack_int(1000) + bytes(10),
    "an undecodable read": request(1, OpCode.GET_DATA, pack_int(-2)),
    "an undecodable write": request(1, OpCode.SET_DATA, pack_int(-2)),
    "an undecodable login": request(1, OpCode.AUTH, b""),
    "an undecodable multi": request(1, OpCode.MULTI, b"\xff" * 5),
    "an unknown operation": request(1, 99),
    "a second handshake": HELLO,
    "a four-letter word": b"ruok",
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
async def test_nobody_else_misses_a_reply(dial: Dial, nonsense: bytes) -> None:
    offender, other = await dial(), await dial()

    other.send(b"".join(exists(xid) for xid in range(100)))
    offender.send(nonsense)
    offender.end()
    other.send(b"".join(exists(xid) for xid in range(100, 200)))
    await offender.rest()

    assert xids(await other.answers(200)) == list(range(200))


@pytest.mark.parametrize("seed", range(20))
async def test_random_bytes_harm_nobody(dial: Dial, seed: int) -> None:
    rng = Random(seed)
    first, behind, other = await dial(shake=False), await dial(), await dial()

    first.send(rng.randbytes(200))
    behind.send(b"".join(scrambled(rng) for _ in range(50)))
    first.end()
    behind.end()
    await asyncio.gather(first.rest(), behind.rest())

    other.send(exists(1))
    assert (await other.answer()).err == 0


def scrambled(rng: Random) -> bytes:
    """Write a frame with a likely op code and a body that is mostly wrong."""
    op = rng.choice([*(op for op in OpCode if op != OpCode.CLOSE_SESSION)])
    good = r.CreateRequest("/a", b"data", OPEN_ACL_UNSAFE, 0).encode()
    body = bytearray(good[: rng.randrange(len(good) + 1)])
    body[rng.randrange(len(body) + 1) :] = rng.randbytes(rng.randrange(8))
    return request(rng.randrange(100), op, bytes(body))
