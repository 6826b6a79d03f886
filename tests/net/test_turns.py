"""Turns: nobody keeps the server for long, and nothing is lost, answered twice or out of order because of that.

First one connection without sockets, whose time is a function; then several on sockets, with turns so short that a turn
is one request, and a server so busy that everybody has to queue.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import chain, repeat
from random import Random
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import int_at, pack_int
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.server_connection import CHECK_AFTER, ServerConnection
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import Daemon

DEADLINE_S: Final = 5.0  # only ever reached on failure
HELLO: Final = frame(ConnectRequest(timeout_ms=30_000).encode())
TINY: Final = 1e-5
"""A turn that is over about as soon as it has begun: one costly request, or eight kilobytes of replies."""

STAT_SIZE: Final = 68
"""Bytes of a reply to exists."""


# --- requests ---


def request(xid: int, op: int, body: bytes = b"") -> bytes:
    return frame(r.RequestHeader(xid, op).encode() + body)


def exists(xid: int, path: str = "/") -> bytes:
    return request(xid, OpCode.EXISTS, r.ExistsRequest(path, False).encode())


def get(xid: int, path: str) -> bytes:
    return request(xid, OpCode.GET_DATA, r.GetDataRequest(path, False).encode())


def create(xid: int, path: str, data: bytes = b"") -> bytes:
    return request(xid, OpCode.CREATE, r.CreateRequest(path, data, OPEN_ACL_UNSAFE, 0).encode())


def set_data(xid: int, path: str, data: bytes = b"") -> bytes:
    return request(xid, OpCode.SET_DATA, r.SetDataRequest(path, data, -1).encode())


# --- one connection, without sockets ---


class Time:
    """A clock that says what it is told; beyond that, that it is late.

    Args:
        moments: What it says first.
    """

    def __init__(self, *moments: float) -> None:
        self._moments = chain(moments, repeat(2.0))
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return next(self._moments)


UNTIL: Final = 1.0
"""The end of a turn, on a clock that says 2 when it is late."""


@pytest.fixture
def connection() -> ServerConnection:
    return opened(Engine())


def opened(engine: Engine) -> ServerConnection:
    connection = ServerConnection(engine, ClientConnection())
    connection.receive_data(HELLO)
    connection.client.outbox.clear()
    return connection


def xids(connection: ServerConnection) -> list[int]:
    """The xids of the replies that are in the outbox, which is empty then."""
    payloads = Frames(limit=None).feed(b"".join(connection.client.outbox))
    connection.client.outbox.clear()
    return [int_at(payload)[0] for payload in payloads]


COSTLY: Final = {
    "create": (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()),
    "create2": (OpCode.CREATE2, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode()),
    "delete": (OpCode.DELETE, r.DeleteRequest("/a", -1).encode()),
    "setData": (OpCode.SET_DATA, r.SetDataRequest("/", b"", -1).encode()),
    "setACL": (OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, -1).encode()),
    "multi": (OpCode.MULTI, wire.encode_operations([(OpCode.CHECK, r.CheckVersionRequest("/", -1))])),
    "multiRead": (OpCode.MULTI_READ, wire.encode_operations([(OpCode.GET_DATA, r.GetDataRequest("/", False))])),
    "getACL": (OpCode.GET_ACL, r.GetACLRequest("/").encode()),
    "getEphemerals": (OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/").encode()),
    "getAllChildrenNumber": (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/").encode()),
    "setWatches": (OpCode.SET_WATCHES, r.SetWatches(0, [], [], []).encode()),
    "setWatches2": (OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], [], []).encode()),
    "whoAmI": (OpCode.WHO_AM_I, b""),
    "auth": (OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p").encode()),
    "sasl": (OpCode.SASL, r.GetSASLRequest(b"").encode()),
}
CHEAP: Final = {
    "exists": (OpCode.EXISTS, r.ExistsRequest("/", False).encode()),
    "getData": (OpCode.GET_DATA, r.GetDataRequest("/", False).encode()),
    "getChildren": (OpCode.GET_CHILDREN, r.GetChildrenRequest("/", False).encode()),
    "sync": (OpCode.SYNC, r.SyncRequest("/").encode()),
    "ping": (OpCode.PING, b""),
}


@pytest.mark.parametrize("name", COSTLY)
def test_after_a_costly_request_the_clock_is_read(connection: ServerConnection, name: str) -> None:
    op, body = COSTLY[name]

    left = connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), UNTIL, Time())

    assert left
    assert xids(connection) == [1]


@pytest.mark.parametrize("name", COSTLY)
def test_what_is_left_of_costly_requests_is_answered_in_later_turns_one_each(
    connection: ServerConnection, name: str
) -> None:
    op, body = COSTLY[name]
    connection.receive_data(b"".join(request(xid, op, body) for xid in range(1, 4)), UNTIL, Time())
    xids(connection)

    turns = [(connection.receive_data(b"", UNTIL, Time()), xids(connection)) for _ in range(3)]

    assert turns == [(True, [2]), (False, [3]), (False, [])]


def test_eight_kilobytes_of_replies_are_given_between_looks_at_the_clock(connection: ServerConnection) -> None:
    clock = Time()

    left = connection.receive_data(exists(1) * 1_000, UNTIL, clock)

    assert left
    assert clock.reads == 1
    assert len(xids(connection)) == CHECK_AFTER // STAT_SIZE + 1


def test_requests_that_fail_use_up_a_turn_as_well(connection: ServerConnection) -> None:
    missing = request(1, OpCode.EXISTS, r.ExistsRequest("/none", False).encode())

    left = connection.receive_data(missing * 1_000, UNTIL, Time())

    assert left
    assert len(xids(connection)) < 100


@pytest.mark.parametrize("name", CHEAP)
def test_cheap_requests_are_answered_without_a_look_at_the_clock_each(connection: ServerConnection, name: str) -> None:
    op, body = CHEAP[name]
    clock = Time(*[0.0] * 1_000)

    connection.receive_data(request(-2, op, body) * 1_000, UNTIL, clock)

    assert clock.reads <= 50
    assert len(xids(connection)) == 1_000


def test_cheap_requests_go_on_for_as_long_as_it_is_not_late(connection: ServerConnection) -> None:
    one = exists(1)
    clock = Time(0.1, 0.5, 1.0)

    connection.receive_data(one * 1_000, UNTIL, clock)

    assert clock.reads == 4
    assert len(xids(connection)) == 4 * (CHECK_AFTER // STAT_SIZE + 1)


def test_a_turn_that_ends_at_this_very_moment_has_not_ended(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/"), UNTIL, Time(UNTIL))

    assert not left
    assert xids(connection) == [1, 2]


def test_without_an_end_everything_is_answered(connection: ServerConnection) -> None:
    left = connection.receive_data(b"".join(set_data(xid, "/") for xid in range(500)))

    assert not left
    assert xids(connection) == list(range(500))


def test_a_turn_that_ends_with_the_last_request_leaves_none(connection: ServerConnection) -> None:
    assert not connection.receive_data(set_data(1, "/"), UNTIL, Time())


def test_a_part_of_a_request_is_no_whole_request_that_is_left(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + set_data(2, "/")[:-1], UNTIL, Time())

    assert not left
    assert xids(connection) == [1]


def test_the_rest_of_a_request_that_comes_behind_a_turn_makes_it_whole(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + set_data(2, "/") + set_data(3, "/")[:-5], UNTIL, Time())

    connection.receive_data(set_data(3, "/")[-5:], UNTIL, Time())
    connection.receive_data(b"", UNTIL, Time())

    assert xids(connection) == [1, 2, 3]


def test_what_is_behind_the_end_of_a_session_is_not_answered_in_a_later_turn(connection: ServerConnection) -> None:
    connection.receive_data(set_data(1, "/") + request(2, OpCode.CLOSE_SESSION) + set_data(3, "/"), UNTIL, Time())

    turns = [connection.receive_data(b"", UNTIL, Time()) for _ in range(2)]

    assert turns == [False, False]
    assert xids(connection) == [1, 2]


def test_a_frame_that_can_be_none_behind_the_end_of_a_turn_closes(connection: ServerConnection) -> None:
    left = connection.receive_data(set_data(1, "/") + pack_int(-1), UNTIL, Time())

    assert (left, connection.client.closing) == (False, True)


def test_what_is_left_for_later_turns_is_counted_until_it_is_answered(connection: ServerConnection) -> None:
    one = set_data(1, "/")

    connection.receive_data(one * 3, UNTIL, Time())
    left = connection.engine.partial_requests
    connection.receive_data(b"")

    assert (left, connection.engine.partial_requests) == (2 * len(one), 0)


steps = st.sampled_from(
    [
        lambda xid: exists(xid),
        lambda xid: get(xid, "/a"),
        lambda xid: set_data(xid, "/a", b"x" * (xid % 50)),
        lambda xid: create(xid, f"/n{xid % 7}"),
        lambda xid: request(xid, OpCode.DELETE, r.DeleteRequest(f"/n{xid % 7}", -1).encode()),
        lambda xid: request(xid, OpCode.GET_ACL, r.GetACLRequest("/").encode()),
        lambda xid: request(-2, OpCode.PING),
        lambda xid: request(xid, OpCode.GET_CHILDREN, b"\xff"),
        lambda xid: request(xid, OpCode.EXISTS, r.ExistsRequest("/n1", True).encode()),
    ]
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=40), st.lists(st.integers(1, 300), max_size=20), st.lists(st.booleans(), max_size=200))
def test_however_a_pipeline_is_cut_and_interrupted_its_bytes_are_the_same(
    pipeline: list[Callable[[int], bytes]], sizes: list[int], late: list[bool]
) -> None:
    data = b"".join(step(xid) for xid, step in enumerate(pipeline, 1))
    whole, cut = opened(Engine()), opened(Engine())
    clock = Time(*(2.0 * flag for flag in late))

    whole.receive(data)
    for piece in pieces(data, sizes):
        receive_in_turns(cut, piece, clock)

    assert b"".join(cut.client.outbox) == b"".join(whole.client.outbox)
    assert cut.engine.zxid == whole.engine.zxid


def pieces(data: bytes, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield data[at : at + size]
        at += size
    yield data[at:]


def receive_in_turns(connection: ServerConnection, data: bytes, clock: Time) -> None:
    """Return a connection bytes and then turns, until nothing is left."""
    while connection.receive_data(data, UNTIL, clock):
        data = b""


# --- several connections, on sockets ---


class Client:
    """A client reduced to its socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def payload(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            (length,) = int_at(await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def replies(self, count: int) -> list[tuple[int, int, bytes]]:
        """Wait for so many replies: their xids, errors and bodies."""
        payloads = [await self.payload() for _ in range(count)]
        heads = [r.ReplyHeader.decode(payload) for payload in payloads]
        return [(head.xid, head.err, payload[16:]) for head, payload in zip(heads, payloads, strict=True)]

    async def order(self, count: int) -> list[int]:
        """Wait for so many replies; return their xids."""
        return [xid for xid, _, _ in await self.replies(count)]

    async def rest(self) -> bytes:
        """Wait for the server to close; return all that came before."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()

    async def shake_hands(self) -> ConnectResponse:
        self.send(HELLO)
        return ConnectResponse.decode(await self.payload())

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()

    def reset(self) -> None:
        """Close as a machine that crashed does, with RST."""
        link: socket.socket = self.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Dial = Callable[..., Awaitable[Client]]


@pytest.fixture(params=["tiny turns", "always busy"])
def _busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose turns are tiny; or one that has always been busy too, so that all have to queue."""
    monkeypatch.setattr("zoolet.server.net.protocol.SHORT_TURN", TINY)
    if request.param == "always busy":
        monkeypatch.setattr("zoolet.server.net.protocol._PAUSE", 1e12)
        monkeypatch.setattr("zoolet.server.net.protocol.BUSY", -1.0)
        monkeypatch.setattr("zoolet.server.net.protocol.CHEAP", 1e-12)


@pytest.fixture
async def listener(_busy: None) -> AsyncIterator[Daemon]:
    clock = RealClock()
    now, monotonic_ms = clock.read()
    listener = Daemon(
        Engine(now=now, monotonic_ms=monotonic_ms), clock, four_letter_commands(["*"]), max_per_host=0, turn=TINY
    )
    await listener.start("127.0.0.1", 0)
    yield listener
    await listener.stop(patient=False)


@pytest.fixture
async def dial(listener: Daemon) -> AsyncIterator[Dial]:
    """A function that connects; unless told otherwise it opens a session too."""
    clients: list[Client] = []

    async def connect(*, session: bool = True, room: int = 0) -> Client:
        link = socket.socket()
        if room:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        link.setblocking(False)
        await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", listener.port))
        client = Client(*await asyncio.open_connection(sock=link, limit=room or 1 << 16))
        clients.append(client)
        if session:
            await client.shake_hands()
        return client

    yield connect
    for client in clients:
        await client.close()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


class Pipeline:
    """Random requests of one client that works on a node of its own, and what their replies have to say.

    Args:
        name: The node.
        random: Where chance comes from.
        count: How many requests, the create of the node included.
    """

    def __init__(self, name: str, rng: Random, count: int) -> None:
        self.expected: list[tuple[int, int]] = [(0, 0)]  # xid, and the version in the reply's Stat
        self.requests = [create(0, name)]
        version = 0
        for xid in range(1, count):
            if rng.random() < 0.4:
                version += 1
                self.requests.append(set_data(xid, name, rng.randbytes(rng.choice([0, 10, 3_000]))))
            else:
                self.requests.append(exists(xid, name))
            self.expected.append((xid, version))

    def pieces(self, rng: Random) -> Iterator[bytes]:
        """The bytes, cut anywhere."""
        data = b"".join(self.requests)
        at = 0
        while at < len(data):
            size = rng.choice([1, 7, 100, 5_000, 50_000])
            yield data[at : at + size]
            at += size


def version_of(body: bytes) -> int:
    """The version in the Stat of a reply; 0 for one to a create."""
    return r.Stat.decode(body).version if len(body) == 68 else 0


async def talk(client: Client, pipeline: Pipeline, rng: Random) -> list[tuple[int, int]]:
    """Send a pipeline piece by piece, with pauses, while reading; return what came, as ``expected`` has it."""

    async def send() -> None:
        for piece in pipeline.pieces(rng):
            client.send(piece)
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    replies = await client.replies(len(pipeline.requests))
    await sending
    return [(xid, version_of(body)) for xid, error, body in replies if not error]


@pytest.mark.parametrize("seed", range(3))
async def test_random_pipelines_of_several_clients_are_answered_in_order_and_once(dial: Dial, seed: int) -> None:
    rng = Random(seed)
    clients = [await dial() for _ in range(5)]
    pipelines = [Pipeline(f"/n{number}", rng, 150) for number in range(5)]

    talks = zip(clients, pipelines, strict=True)
    answers = await asyncio.gather(*(talk(client, pipeline, Random(seed)) for client, pipeline in talks))

    assert answers == [pipeline.expected for pipeline in pipelines]


async def test_a_handshake_and_a_pipeline_in_one_piece_are_answered(dial: Dial) -> None:
    client = await dial(session=False)

    client.send(HELLO + create(1, "/a") + b"".join(set_data(xid, "/a") for xid in range(2, 102)))
    await client.payload()

    assert await client.order(101) == list(range(1, 102))


async def test_one_who_asks_for_little_does_not_wait_for_one_who_asks_for_much(listener: Daemon, dial: Dial) -> None:
    greedy, modest = await dial(), await dial()

    greedy.send(b"".join(create(xid, f"/n{xid}") for xid in range(1_000)))
    modest.send(exists(1))
    await modest.order(1)
    made = listener.engine.tree.size - 4

    assert made < 1_000
    assert await greedy.order(1_000) == list(range(1_000))


async def test_those_who_ask_for_much_are_served_by_turns(listener: Daemon, dial: Dial) -> None:
    clients = [await dial() for _ in range(3)]

    for number, client in enumerate(clients):
        client.send(b"".join(create(xid, f"/{number}-{xid}") for xid in range(200)))
    for client in clients:
        await client.order(200)
    order = [name[0] for name in listener.engine.tree.root.children or () if name != "zookeeper"]
    first_to_end = min(len(order) - order[::-1].index(number) for number in "012")

    assert [order[:first_to_end].count(number) >= 100 for number in "012"] == [True] * 3


async def test_a_client_that_closes_its_side_gets_all_its_answers(dial: Dial) -> None:
    client = await dial()
    data = create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300))

    client.send(data)
    client.writer.write_eof()
    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(300))


async def test_a_client_that_closes_its_side_is_sent_no_events_any_more(
    dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    watcher, other, *crowd = [await dial() for _ in range(12)]
    for client in crowd:  # the watcher's end is seen before its turn comes
        client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 20)))
    watcher.send(request(0, OpCode.ADD_WATCH, r.AddWatchRequest("/b", 0).encode()) * 2)
    watcher.writer.write_eof()
    await watcher.order(2)

    other.send(create(1, "/b") + set_data(2, "/b"))
    await other.order(2)

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_client_that_closes_its_side_and_reads_late_gets_all_its_answers(listener: Daemon, dial: Dial) -> None:
    client = await dial(room=16 << 10)
    client.send(create(0, "/a", b"x" * 100_000) + b"".join(get(xid, "/a") for xid in range(1, 41)))
    client.writer.write_eof()
    await until(lambda: any(transport._choked for transport in listener.open))

    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(41))


async def test_a_client_that_does_not_read_gets_its_answers_in_order_once_it_does(listener: Daemon, dial: Dial) -> None:
    slow, other = await dial(room=16 << 10), await dial()
    slow.send(create(0, "/a", b"x" * 100_000) + b"".join(get(xid, "/a") for xid in range(1, 41)))
    await until(lambda: any(transport._choked for transport in listener.open))
    other.send(exists(1))
    await other.order(1)

    assert await slow.order(41) == list(range(41))


async def test_what_is_behind_the_end_of_a_session_is_not_done(listener: Daemon, dial: Dial) -> None:
    client = await dial()
    before = b"".join(create(xid, f"/n{xid}") for xid in range(50))

    client.send(before + request(50, OpCode.CLOSE_SESSION) + create(51, "/late"))
    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(51))
    assert listener.engine.tree.get("/late") is None


async def test_a_client_that_crashes_while_it_waits_for_its_turn_leaves_nothing(listener: Daemon, dial: Dial) -> None:
    crashing, other = await dial(), await dial()
    crashing.send(b"".join(create(xid, f"/n{xid}") for xid in range(2_000)))
    await until(lambda: listener.queued)

    crashing.reset()
    other.send(b"".join(create(xid, f"/m{xid}") for xid in range(50)))

    assert await other.order(50) == list(range(50))
    await until(lambda: len(listener.open) == 1)
    assert (list(listener.queued), listener.engine.partial_requests) == ([], 0)


async def test_a_stop_while_connections_wait_for_their_turns_ends(listener: Daemon, dial: Dial) -> None:
    clients = [await dial() for _ in range(3)]
    for client in clients:
        client.send(b"".join(exists(xid) for xid in range(5_000)))
    await until(lambda: listener.queued)

    async with asyncio.timeout(DEADLINE_S):
        await listener.stop(patient=False)

    assert not listener.open


@pytest.mark.parametrize("word", [b"ruok", b"srvr", b"mntr", b"wchp"])
async def test_a_four_letter_word_is_answered_while_others_keep_the_server_busy(dial: Dial, word: bytes) -> None:
    greedy, asker = await dial(), await dial(session=False)

    greedy.send(b"".join(create(xid, f"/n{xid}") for xid in range(300)))
    asker.send(word)

    assert len(await asker.rest()) >= 1
    assert await greedy.order(300) == list(range(300))


async def test_a_four_letter_word_in_pieces_is_answered(dial: Dial) -> None:
    asker = await dial(session=False)

    for letter in (b"r", b"u", b"o", b"k"):
        asker.send(letter)
        await asyncio.sleep(0)

    assert await asker.rest() == b"imok"


async def test_events_come_before_the_reply_behind_them_also_to_those_who_queue(dial: Dial) -> None:
    watcher, writer = await dial(), await dial()
    watcher.send(request(1, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
    await watcher.order(1)

    writer.send(b"".join(create(xid, f"/n{xid}") for xid in range(100)))
    await writer.order(100)
    watcher.send(exists(2))

    assert await watcher.order(101) == [-1] * 100 + [2]


async def test_an_internal_error_in_a_turn_costs_that_connection_alone(
    listener: Daemon, dial: Dial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = await dial(), await dial()
    op = int(OpCode.GET_ACL)

    def fail(*_: object) -> bytes:
        raise RuntimeError("a defect")

    decode, _, costly = listener.engine.table[op]
    monkeypatch.setitem(listener.engine.table, op, (decode, fail, costly))

    broken.send(exists(1) + request(2, op, r.GetACLRequest("/").encode()) + exists(3))
    answer = await broken.rest()
    other.send(exists(1))

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == [1]
    assert await other.order(1) == [1]
    assert "internal error" in caplog.text


async def test_turns_shorter_than_a_look_at_the_clock_are_turns_all_the_same() -> None:
    clock = RealClock()
    listener = Daemon(Engine(monotonic_ms=clock.read()[1]), clock, four_letter_commands(["*"]), turn=1e-9)
    client = Client(*await asyncio.open_connection("127.0.0.1", await listener.start("127.0.0.1", 0)))
    await client.shake_hands()

    client.send(b"".join(create(xid, f"/n{xid}") for xid in range(100)))
    answered = await asyncio.gather(client.order(100), return_exceptions=True)
    await client.close()
    await listener.stop(patient=False)

    assert answered == [list(range(100))]


# --- the test server ---


@pytest.fixture
async def server(_busy: None) -> AsyncIterator[Server]:
    made = Server()
    made._turn = TINY
    async with made as running:
        yield running


async def test_a_client_that_is_paused_and_resumed_gets_all_its_answers_in_order(server: Server) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    welcome = await client.shake_hands()
    client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300)))
    before = await client.order(10)

    server.pause(welcome.session_id)
    client.send(b"".join(set_data(xid, "/a") for xid in range(300, 400)))
    await asyncio.sleep(0.01)
    server.resume(welcome.session_id)
    after = await client.order(390)

    assert before + after == list(range(400))
    assert server.tree()["/a"].version == 399
    await client.close()


async def test_pauses_and_resumes_without_end_lose_and_repeat_nothing(server: Server) -> None:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    welcome = await client.shake_hands()
    client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300)))
    reading = asyncio.create_task(client.order(300))

    for _ in range(50):
        server.pause(welcome.session_id)
        await asyncio.sleep(0)
        server.resume(welcome.session_id)
        await asyncio.sleep(0)

    assert await reading == list(range(300))
    await client.close()
