"""The frames of a connection: invalid lengths, requests in pieces, and the limit for bytes of unfinished requests."""

from __future__ import annotations

import itertools
import time
import tracemalloc

import pytest
from support.calls import connect_peer, engine_with_settings, resume_session
from support.engine import make_engine
from support.frames import HELLO, create, unhex
from support.log import Log
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int, put_str
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.server_connection import ServerConnection
from zoolet.server.core.settings import EngineSettings

# --- lengths of frames ---


@pytest.mark.parametrize("payload", [b"", b"\0", b"\0\0", bytes(4), bytes(7)])
def test_frame_too_short_for_header_is_closed_silently(peer, payload):
    raw = peer.feed(frame(payload))

    assert raw == b""
    assert peer.closed
    assert resume_session(peer).welcome == peer.welcome


@pytest.mark.parametrize("length", ["ffffffff", "80000000", "00100000", "7fffffff"])
def test_invalid_frame_length_closes_connection(peer, length):
    raw = peer.feed(unhex(length))

    assert raw == b""
    assert peer.closed


def test_oversized_frame_is_counted_and_logged() -> None:
    log = Log()
    engine = engine_with_settings(log)
    connection = ServerConnection(engine, ClientConnection("192.0.2.7", 4711))

    connection.receive_data(b"\x7f\0\0\0")

    assert engine.metrics.refused["frames"] == 1
    assert log == ["closing 192.0.2.7:4711: received a request of 2130706432 bytes (limit 1048575, jute.maxbuffer)"]


@pytest.mark.parametrize(("first", "name"), [(b"GET / HTTP/1.1", "HTTP"), (b"\x16\x03\x01\x02\0", "TLS")])
def test_log_names_foreign_protocol(first: bytes, name: str) -> None:
    log = Log()
    connection = ServerConnection(engine_with_settings(log), ClientConnection("192.0.2.7", 4711))

    connection.receive_data(first)

    assert connection.client.closing
    assert log == [f"closing 192.0.2.7:4711: received {name}, but this port expects the ZooKeeper protocol"]


def test_frame_at_limit_is_accepted(peer):
    header = r.RequestHeader(4, OpCode.PING).encode()

    raw = peer.feed(unhex("000fffff") + header + bytes(0xFFFFF - len(header)))

    assert raw == unhex("00000010 fffffffe 0000000000000001 00000000")


# --- unfinished requests ---


def test_small_partial_request_is_kept_next_to_large_one() -> None:
    engine = make_engine(EngineSettings(max_partial_request_bytes=1_000))
    hog, small = ServerConnection(engine, ClientConnection()), ServerConnection(engine, ClientConnection())
    hog.receive_data((100_000).to_bytes(4, "big") + bytes(990))

    small.receive_data(frame(ConnectRequest().encode())[:20])

    assert not small.client.closing


def send_partial_request(peer: Peer, size: int) -> None:
    """Announce a long request, and send *size* bytes of it, including the length."""
    peer.feed(pack_int(1_000_000) + bytes(size - 4))


@pytest.fixture
def _no_free_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of uncounted bytes per connection to 0, so unfinished requests count from their first byte."""
    monkeypatch.setattr("zoolet.server.core.server_connection.FREE_PARTIAL_BYTES", 0)


@pytest.mark.usefixtures("_no_free_bytes")
def test_bytes_of_unfinished_requests_are_limited_in_total(log: Log) -> None:
    engine = engine_with_settings(log, max_partial_request_bytes=10_000)
    first, second = connect_peer(engine), connect_peer(engine)

    send_partial_request(first, 6_000)
    send_partial_request(second, 4_001)

    assert (first.closed, second.closed) == (False, True)
    assert engine.partial_requests == 6_000
    assert engine.metrics.refused["partial_requests"] == 1
    assert len(log.with_word("zoolet.maxPartialRequestBytes")) == 1


def test_unfinished_requests_at_limit_are_kept() -> None:
    engine = engine_with_settings(max_partial_request_bytes=10_000)
    first, second = connect_peer(engine), connect_peer(engine)

    send_partial_request(first, 6_000)
    send_partial_request(second, 4_000)

    assert (first.closed, second.closed, engine.partial_requests) == (False, False, 10_000)


@pytest.mark.usefixtures("_no_free_bytes")
def test_each_piece_of_unfinished_request_counts_toward_limit() -> None:
    engine = engine_with_settings(max_partial_request_bytes=10_000)
    peer = connect_peer(engine)
    send_partial_request(peer, 1_000)

    pieces = [(peer.feed(bytes(3_000)), peer.closed)[1] for _ in range(4)]

    assert pieces == [False, False, False, True]
    assert engine.partial_requests == 0


def test_request_in_tiny_pieces_takes_little_memory() -> None:
    peer = connect_peer(make_engine())
    peer.feed(pack_int(1_000_000))

    tracemalloc.start()
    for _ in range(100_000):
        peer.feed(b"xx")
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used < 300_000  # 7 MB if each piece were kept as an object


def test_request_in_pieces_of_every_size_is_answered() -> None:
    peer = connect_peer(make_engine())
    data = bytes(range(256)) * 1_000
    peer.create("/a")
    body = r.SetDataRequest("/a", data, -1).encode()
    whole = frame(r.RequestHeader(1, OpCode.SET_DATA).encode() + body)

    sizes = itertools.cycle([1, 3, 5_000, 2, 70_000, 4_096, 4_095, 1])
    place = 0
    while place < len(whole):
        size = next(sizes)
        peer.feed(whole[place : place + size])
        place += size

    assert peer.get("/a")[0] == data


def test_completed_request_releases_its_unfinished_bytes() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    whole = frame(r.RequestHeader(1, OpCode.EXISTS).encode() + put_str("/" + "a" * 5_000) + b"\0")

    peer.feed(whole[:3_000])
    before = engine.partial_requests
    answer = peer.feed(whole[3_000:])

    assert (before, engine.partial_requests) == (3_000, 0)
    assert len(answer) == 20


def test_unfinished_bytes_after_complete_request_are_counted() -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    whole = frame(r.RequestHeader(1, OpCode.EXISTS).encode() + put_str("/") + b"\0")

    peer.feed(whole + whole[:10])

    assert engine.partial_requests == 10


@pytest.mark.parametrize("size", [2, 4, 10, 5_000])
def test_lost_client_has_no_unfinished_bytes(size: int) -> None:
    engine = engine_with_settings()
    peer = connect_peer(engine)
    peer.feed((pack_int(1_000_000) + bytes(5_000))[:size])
    assert engine.partial_requests == size

    peer.connection.connection_lost()

    assert engine.partial_requests == 0


@pytest.mark.usefixtures("_no_free_bytes")
def test_unfinished_handshake_counts_toward_limit() -> None:
    engine = engine_with_settings(max_partial_request_bytes=10)
    peer = Peer(engine)

    peer.feed(HELLO[:11])

    assert (peer.closed, engine.partial_requests) == (True, 0)


@pytest.mark.usefixtures("_no_free_bytes")
def test_refused_partial_request_releases_its_bytes() -> None:
    engine = engine_with_settings(max_partial_request_bytes=10_000)
    first, second = connect_peer(engine), connect_peer(engine)
    send_partial_request(first, 6_000)
    first.feed(bytes(6_000))

    send_partial_request(second, 9_000)

    assert (first.closed, second.closed) == (True, False)


# --- frames in pieces ---


def feed_byte_by_byte(size: int) -> float:
    """Feed a frame of *size* bytes to a connection byte by byte. Return the seconds of CPU."""
    connection = ServerConnection(make_engine(), ClientConnection())
    connection.receive_data(HELLO)
    connection.client.outbox.clear()
    crumbs = [bytes([byte]) for byte in create(3, "/a", bytes(size))]
    started = time.process_time()
    for crumb in crumbs:
        connection.receive_data(crumb)
    took = time.process_time() - started
    assert r.ReplyHeader.decode(connection.client.outbox[0][4:]).err == 0
    return took


def test_cost_of_byte_by_byte_frame_is_linear() -> None:
    small = min(feed_byte_by_byte(20_000) for _ in range(3))
    large = min(feed_byte_by_byte(320_000) for _ in range(2))

    assert large < 64 * small  # the factor is 16 if linear, 256 if every byte copies all earlier ones
