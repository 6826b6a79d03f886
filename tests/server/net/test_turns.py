"""Turns of several connections: each turn is short, and no request is lost, repeated or reordered.

Either turns are so short that each has only one request, or the server is so busy that all connections have to queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from random import Random
from typing import Final

import pytest
from support.engine import make_daemon, make_engine
from support.frames import HELLO, create, exists, get, request, set_data
from support.live_server import Dial, LiveServer, Serve
from support.waiting import DEADLINE_S, until
from support.wire import StreamWire

from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.server.net import protocol
from zoolet.server.net.clock import RealClock
from zoolet.server.net.daemon import Daemon
from zoolet.testing import Server

MANY: Final = 121
"""Number of replies of 100,000 bytes that exceed the Linux buffers for a client that does not read."""
LARGE: Final = request(1, OpCode.MULTI, encode_operations([(OpCode.SET_DATA, r.SetDataRequest("/", b"", -1))] * 2000))
"""A transaction that takes milliseconds."""
Queued = tuple[LiveServer, list[protocol.ServerProtocol]]
TINY: Final = 1e-5
"""The length of a turn that ends almost immediately: after one costly request, or eight kilobytes of replies."""


# --- several connections ---


@pytest.fixture(params=["tiny turns", "always busy"])
def _busy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make turns tiny, and in one variant the server always busy, which makes all connections queue."""
    monkeypatch.setattr("zoolet.server.net.protocol.SHORT_TURN_SECONDS", TINY)
    if request.param == "always busy":
        monkeypatch.setattr("zoolet.server.net.protocol.PAUSE", 1e12)
        monkeypatch.setattr("zoolet.server.net.protocol.BUSY", -1.0)
        monkeypatch.setattr("zoolet.server.net.protocol.CHEAP", 1e-12)


@pytest.fixture
async def daemon(_busy: None) -> AsyncIterator[Daemon]:
    clock = RealClock()
    now, monotonic_ms = clock.read()
    daemon = make_daemon(make_engine(now=now, monotonic_ms=monotonic_ms), clock, max_per_host=0, turn=TINY)
    await daemon.start("127.0.0.1", 0)
    yield daemon
    await daemon.stop(gracefully=False)


@pytest.fixture
async def dial(daemon: Daemon) -> AsyncIterator[Dial]:
    """A function that connects and, by default, also opens a session."""
    server = LiveServer(daemon)

    async def connect(*, session: bool = True, room: int = 0) -> StreamWire:
        client = await server.dial(room=room)
        if session:
            await client.shake_hands()
        return client

    yield connect
    for client in server.clients:
        await client.close()


class Pipeline:
    """Random requests of one client on its own node, and their correct replies.

    Args:
        name: Path of the node.
        rng: Source of randomness.
        count: Number of requests, including the create of the node.
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
        """Yield the bytes, cut at random places."""
        data = b"".join(self.requests)
        at = 0
        while at < len(data):
            size = rng.choice([1, 7, 100, 5_000, 50_000])
            yield data[at : at + size]
            at += size


def version_of(body: bytes) -> int:
    """Return the version in the Stat of a reply, or 0 for a reply to a create."""
    return r.Stat.decode(body).version if len(body) == 68 else 0


async def exchange_pipeline(client: StreamWire, pipeline: Pipeline, rng: Random) -> list[tuple[int, int]]:
    """Send a pipeline in pieces with pauses while reading. Return the replies in the form of ``expected``."""

    async def send() -> None:
        for piece in pipeline.pieces(rng):
            client.send(piece)
            await asyncio.sleep(0)

    sending = asyncio.create_task(send())
    replies = await client.answers(len(pipeline.requests))
    await sending
    return [(reply.xid, version_of(reply.body)) for reply in replies if not reply.err]


@pytest.mark.parametrize("seed", range(3))
async def test_random_pipelines_get_expected_answers(dial: Dial, seed: int) -> None:
    rng = Random(seed)
    clients = [await dial() for _ in range(5)]
    pipelines = [Pipeline(f"/n{number}", rng, 150) for number in range(5)]

    talks = zip(clients, pipelines, strict=True)
    answers = await asyncio.gather(*(exchange_pipeline(client, pipeline, Random(seed)) for client, pipeline in talks))

    assert answers == [pipeline.expected for pipeline in pipelines]


async def test_handshake_and_pipeline_may_come_in_one_piece(dial: Dial) -> None:
    client = await dial(session=False)

    client.send(HELLO + create(1, "/a") + b"".join(set_data(xid, "/a") for xid in range(2, 102)))
    await client.payload()

    assert await client.xids(101) == list(range(1, 102))


@pytest.fixture
async def queued(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Queued:
    """A server that is always busy, and the connections that it has queued."""
    monkeypatch.setattr(protocol, "PAUSE", 1e12)
    monkeypatch.setattr(protocol, "BUSY", -1.0)
    monkeypatch.setattr(protocol, "SHORT_TURN_SECONDS", 60.0)
    live, queued = await serve(), []
    queue = live.daemon.connections.turns
    queue.seconds = 60.0
    enqueue = queue.enqueue

    def record(connection: protocol.ServerProtocol, *, is_light: bool = False) -> None:
        queued.append(connection)
        enqueue(connection, is_light=is_light)

    monkeypatch.setattr(queue, "enqueue", record)
    return live, queued


@pytest.mark.parametrize(
    ("first", "replies", "turns"),
    [
        (HELLO, 1, 0),
        (HELLO + exists(1), 2, 0),
        (HELLO + exists(1) + exists(2), 3, 1),
        (HELLO + request(1, OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/")), 2, 1),
        (frame(ConnectRequest(0, 30_000, 0, bytes(400)).encode()) + exists(1), 2, 1),
        (b"ruok", 0, 0),
        (b"mntr", 0, 1),
    ],
    ids=["handshake", "light", "two", "getEphemerals", "long", "cheap word", "word"],
)
async def test_light_request_after_handshake_needs_no_turn(
    queued: Queued, first: bytes, replies: int, turns: int
) -> None:
    live, connections = queued
    client = await live.dial()

    client.send(first)
    await (client.xids(replies) if replies else client.rest())

    assert len(connections) == turns


async def test_request_after_resumed_session_waits_for_turn(queued: Queued) -> None:
    live, connections = queued
    welcome = await (await live.dial()).shake_hands()
    client = await live.dial()

    resume = ConnectRequest(0, 30_000, welcome.session_id, welcome.password)
    client.send(frame(resume.encode()) + request(1, OpCode.CLOSE_SESSION))
    await client.xids(2)

    assert len(connections) == 1


async def test_small_request_does_not_wait_for_large_ones(daemon: Daemon, dial: Dial) -> None:
    greedy, modest = await dial(), await dial()

    greedy.send(b"".join(create(xid, f"/n{xid}") for xid in range(1_000)))
    modest.send(exists(1))
    await modest.xids(1)
    made = daemon.engine.tree.size - 4

    assert made < 1_000
    assert await greedy.xids(1_000) == list(range(1_000))


async def test_small_request_overtakes_many_heavy_requests() -> None:
    clock = RealClock()
    daemon = make_daemon(make_engine(monotonic_ms=clock.read()[1]), clock, max_per_host=0)
    port = await daemon.start("127.0.0.1", 0)
    *many, modest = [StreamWire(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(21)]
    for client in (*many, modest):
        await client.shake_hands()
        for xid in range(5):  # short turns, after which the server serves this connection without queueing it
            client.send(exists(xid))
            await client.xids(1)
    for client in many:
        client.send(LARGE[:-1])
    await until(lambda: daemon.engine.partial_requests == 20 * (len(LARGE) - 1))

    for client in many:
        client.send(LARGE[-1:])
    modest.send(exists(9))
    await modest.xids(1)
    done_before = daemon.engine.metrics.packets_received
    answers = [await client.xids(1) for client in many]
    done_after = daemon.engine.metrics.packets_received
    for client in (*many, modest):
        await client.close()
    await daemon.stop(gracefully=False)

    assert done_after - done_before > 10
    assert answers == [[1]] * 20


async def test_busy_clients_are_served_in_turns(daemon: Daemon, dial: Dial) -> None:
    clients = [await dial() for _ in range(3)]

    for number, client in enumerate(clients):
        client.send(b"".join(create(xid, f"/{number}-{xid}") for xid in range(200)))
    for client in clients:
        await client.xids(200)
    order = [name[0] for name in daemon.engine.tree.root.children or () if name != "zookeeper"]
    first_to_end = min(len(order) - order[::-1].index(number) for number in "012")

    assert [order[:first_to_end].count(number) >= 100 for number in "012"] == [True] * 3


async def test_half_closed_client_gets_all_answers(dial: Dial) -> None:
    client = await dial()
    data = create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300))

    client.send(data)
    client.end()
    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(300))


async def test_half_closed_client_gets_no_more_events(dial: Dial, caplog: pytest.LogCaptureFixture) -> None:
    watcher, other, *crowd = [await dial() for _ in range(12)]
    for client in crowd:  # delays the watcher's turn until its disconnect is noticed
        client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 20)))
    watcher.send(request(0, OpCode.ADD_WATCH, r.AddWatchRequest("/b", 0).encode()) * 2)
    watcher.end()
    await watcher.xids(2)

    other.send(create(1, "/b") + set_data(2, "/b"))
    await other.xids(2)

    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


async def test_half_closed_late_reader_gets_all_replies(daemon: Daemon, dial: Dial) -> None:
    client = await dial(room=16 << 10)
    client.send(create(0, "/a", b"x" * 100_000) + b"".join(get(xid, "/a") for xid in range(1, MANY)))
    client.end()
    await until(lambda: any(protocol.write_paused for protocol in daemon.connections.open.values()))

    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(MANY))


async def test_late_reader_gets_replies_in_order(daemon: Daemon, dial: Dial) -> None:
    slow, other = await dial(room=16 << 10), await dial()
    slow.send(create(0, "/a", b"x" * 100_000) + b"".join(get(xid, "/a") for xid in range(1, MANY)))
    await until(lambda: any(protocol.write_paused for protocol in daemon.connections.open.values()))
    other.send(exists(1))
    await other.xids(1)

    assert await slow.xids(MANY) == list(range(MANY))


async def test_requests_after_session_end_are_not_done(daemon: Daemon, dial: Dial) -> None:
    client = await dial()
    before = b"".join(create(xid, f"/n{xid}") for xid in range(50))

    client.send(before + request(50, OpCode.CLOSE_SESSION) + create(51, "/late"))
    answer = await client.rest()

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == list(range(51))
    assert daemon.engine.tree.get("/late") is None


async def test_client_lost_while_waiting_for_turn_is_forgotten(daemon: Daemon, dial: Dial) -> None:
    crashing, other = await dial(), await dial()
    crashing.send(b"".join(create(xid, f"/n{xid}") for xid in range(2_000)))
    await until(lambda: daemon.connections.turns.queued)

    await crashing.reset()
    other.send(b"".join(create(xid, f"/m{xid}") for xid in range(50)))

    assert await other.xids(50) == list(range(50))
    await until(lambda: len(daemon.connections.open) == 1)
    assert (list(daemon.connections.turns.queued), daemon.engine.partial_requests) == ([], 0)


async def test_stop_works_while_connections_wait_for_turns(daemon: Daemon, dial: Dial) -> None:
    clients = [await dial() for _ in range(3)]
    for client in clients:
        client.send(b"".join(exists(xid) for xid in range(5_000)))
    await until(lambda: daemon.connections.turns.queued)

    async with asyncio.timeout(DEADLINE_S):
        await daemon.stop(gracefully=False)

    assert not daemon.connections.open


@pytest.mark.parametrize("word", [b"ruok", b"srvr", b"mntr", b"wchp"])
async def test_four_letter_word_is_answered_on_busy_server(dial: Dial, word: bytes) -> None:
    greedy, asker = await dial(), await dial(session=False)

    greedy.send(b"".join(create(xid, f"/n{xid}") for xid in range(300)))
    asker.send(word)

    assert len(await asker.rest()) >= 1
    assert await greedy.xids(300) == list(range(300))


async def test_four_letter_word_in_pieces_is_answered_on_busy_server(dial: Dial) -> None:
    asker = await dial(session=False)

    for letter in (b"r", b"u", b"o", b"k"):
        asker.send(letter)
        await asyncio.sleep(0)

    assert await asker.rest() == b"imok"


async def test_events_precede_reply_to_later_request(dial: Dial) -> None:
    watcher, writer = await dial(), await dial()
    watcher.send(request(1, OpCode.ADD_WATCH, r.AddWatchRequest("/", 1).encode()))
    await watcher.xids(1)

    writer.send(b"".join(create(xid, f"/n{xid}") for xid in range(100)))
    await writer.xids(100)
    watcher.send(exists(2))

    assert await watcher.xids(101) == [-1] * 100 + [2]


async def test_internal_error_closes_only_its_connection(
    daemon: Daemon, dial: Dial, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broken, other = await dial(), await dial()
    op = int(OpCode.GET_ACL)

    def fail(*_: object) -> bytes:
        raise RuntimeError("a defect")

    decode, _, costly, _ = daemon.engine.dispatch[op]
    monkeypatch.setitem(daemon.engine.dispatch, op, (decode, fail, costly, None))

    broken.send(exists(1) + request(2, op, r.GetACLRequest("/").encode()) + exists(3))
    answer = await broken.rest()
    other.send(exists(1))

    assert [int_at(payload)[0] for payload in Frames(limit=None).feed(answer)] == [1]
    assert await other.xids(1) == [1]
    assert "internal error" in caplog.text


async def test_requests_progress_despite_turns_of_a_nanosecond() -> None:
    clock = RealClock()
    daemon = make_daemon(make_engine(monotonic_ms=clock.read()[1]), clock, turn=1e-9)
    client = StreamWire(*await asyncio.open_connection("127.0.0.1", await daemon.start("127.0.0.1", 0)))
    await client.shake_hands()

    client.send(b"".join(create(xid, f"/n{xid}") for xid in range(100)))
    answered = await asyncio.gather(client.xids(100), return_exceptions=True)
    await client.close()
    await daemon.stop(gracefully=False)

    assert answered == [list(range(100))]


# --- pause and resume ---


@pytest.fixture
async def server(_busy: None) -> AsyncIterator[Server]:
    made = Server()
    made._turn = TINY
    async with made as running:
        yield running


async def test_resumed_client_gets_all_replies_in_order(server: Server) -> None:
    client = StreamWire(*await asyncio.open_connection("127.0.0.1", server.port))
    welcome = await client.shake_hands()
    client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300)))
    before = await client.xids(10)

    server.pause(welcome.session_id)
    client.send(b"".join(set_data(xid, "/a") for xid in range(300, 400)))
    await asyncio.sleep(0.01)
    server.resume(welcome.session_id)
    after = await client.xids(390)

    assert before + after == list(range(400))
    assert server.tree()["/a"].version == 399
    await client.close()


async def test_repeated_pauses_neither_lose_nor_repeat_replies(server: Server) -> None:
    client = StreamWire(*await asyncio.open_connection("127.0.0.1", server.port))
    welcome = await client.shake_hands()
    client.send(create(0, "/a") + b"".join(set_data(xid, "/a") for xid in range(1, 300)))
    reading = asyncio.create_task(client.xids(300))

    for _ in range(50):
        server.pause(welcome.session_id)
        await asyncio.sleep(0)
        server.resume(welcome.session_id)
        await asyncio.sleep(0)

    assert await reading == list(range(300))
    await client.close()
