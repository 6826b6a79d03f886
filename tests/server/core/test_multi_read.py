"""multiRead: results, failures, and the maximum length."""

from __future__ import annotations

import pytest
from support.calls import check_watches, connect_peer, engine_with_settings, request_error, request_reply
from support.frames import unhex
from support.log import Log
from support.numbers import BAD_ARGUMENTS, END, MARSHALLING_ERROR, NO_NODE, NO_WATCHER, OK
from support.peer import Peer, Reply

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import put_str
from zoolet.protocol.operations import OpCode


def encode_gets(count: int, path: str = "/a") -> bytes:
    """Return a multiRead of *count* getData operations."""
    return wire.encode_operations([(OpCode.GET_DATA, r.GetDataRequest(path, False))] * count)


def test_multi_read_continues_after_failed_operation(peer):
    peer.create("/d", b"data")
    body = wire.encode_operations(
        [
            (OpCode.GET_DATA, r.GetDataRequest("/none", False)),
            (OpCode.GET_CHILDREN, r.GetChildrenRequest("/d", False)),
        ]
    )

    reply = request_reply(peer, OpCode.MULTI_READ, body)

    assert reply.err == OK
    assert reply.body == unhex("ffffffff 00 ffffff9b ffffff9b 00000008 00 00000000 00000000" + END)


def test_watch_flag_inside_multi_read_is_ignored(peer):
    body = wire.encode_operations(
        [
            (OpCode.GET_DATA, r.GetDataRequest("/", True)),
            (OpCode.GET_CHILDREN, r.GetChildrenRequest("/", True)),
        ]
    )

    reply = request_reply(peer, OpCode.MULTI_READ, body)

    assert reply.err == OK
    assert check_watches(peer, "/", 3) == NO_WATCHER


@pytest.mark.parametrize("release", ["old", "new"])
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN])
def test_malformed_multi_read_has_earlier_results_and_end_header(
    release: str, op: OpCode, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    first = "00000008 00 ffffffff 000000012f 00"
    null = f"{op:08x} 00 ffffffff ffffffff 00"

    (reply,) = peer.send(OpCode.MULTI_READ, bytes.fromhex(f"{first} {null} {first} ffffffff 01 ffffffff"))

    names = "00000001 00000009" + b"zookeeper".hex()
    assert (reply.err, reply.body) == (-5, bytes.fromhex(f"00000008 00 00000000 {names} ffffffff 01 ffffffff"))


def read_all(peer: Peer, *operations: tuple[OpCode, str]) -> Reply:
    """Send a multiRead."""
    body = b"".join(r.MultiHeader(op, False, -1).encode() + put_str(path) + (b"\0") for op, path in operations)
    (reply,) = peer.send(OpCode.MULTI_READ, body + wire.END)
    return reply


@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN])
def test_multi_read_hides_private_node(private: Peer, op: OpCode) -> None:
    reply = read_all(private, (op, "/private"))

    assert reply.err == 0
    assert b"secret" not in reply.body
    assert b"child" not in reply.body


def test_multi_read_above_operation_limit_is_refused(log: Log) -> None:
    engine = engine_with_settings(log, max_multi_operations=3)
    peer = connect_peer(engine)
    peer.create("/a")

    codes = [request_error(peer, OpCode.MULTI_READ, encode_gets(count)) for count in (3, 4)]

    assert codes == [0, BAD_ARGUMENTS]
    assert engine.metrics.refused["multi_operations"] == 1


def test_multi_read_with_results_at_limit_is_answered() -> None:
    peer = connect_peer(engine_with_settings(max_multi_read=3 * (9 + 4 + 1000 + 68)))
    peer.create("/a", b"x" * 1000)

    assert request_error(peer, OpCode.MULTI_READ, encode_gets(3)) == 0


def test_multi_read_with_oversized_results_is_refused(log: Log) -> None:
    engine = engine_with_settings(log, max_multi_read=3 * (9 + 4 + 1000 + 68) - 1)
    peer = connect_peer(engine)
    peer.create("/a", b"x" * 1000)

    (reply,) = peer.send(OpCode.MULTI_READ, encode_gets(3))

    assert (reply.err, reply.body, peer.closed) == (BAD_ARGUMENTS, b"", False)
    assert engine.metrics.refused["multi_read"] == 1
    assert len(log.with_word("zoolet.maxMultiReadBytes")) == 1


def test_children_lists_count_among_multi_read_results() -> None:
    peer = connect_peer(engine_with_settings(max_multi_read=1000))
    peer.create("/a")
    for number in range(100):
        peer.create(f"/a/{number:020}")

    code = request_error(
        peer, OpCode.MULTI_READ, wire.encode_operations([(OpCode.GET_CHILDREN, r.GetChildrenRequest("/a", False))])
    )

    assert code == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("release", "flags", "results"), [("new", 0, unhex(END)), ("new", 5, b""), ("old", 5, unhex(END))]
)
def test_create_in_multi_read_is_always_malformed(
    release: str, flags: int, results: bytes, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    body = wire.encode_operations([(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, flags))])

    reply = request_reply(peer, OpCode.MULTI_READ, body)

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, results)
    assert request_reply(peer, OpCode.EXISTS, r.ExistsRequest("/a", False).encode()).err == NO_NODE
