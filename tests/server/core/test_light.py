"""Light requests: small requests that even a busy server answers without queueing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from support.calls import connect_peer
from support.engine import make_engine
from support.frames import create, exists, get, request, set_data
from support.numbers import RECURSIVE_WATCH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id
from zoolet.protocol.codec import pack_int
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.server.core.light import is_light
from zoolet.server.core.node import Node

LIST: Final = request(1, OpCode.GET_CHILDREN, r.GetChildrenRequest("/a", False))
LIST2: Final = request(1, OpCode.GET_CHILDREN2, r.GetChildrenRequest("/a", False))
DELETE: Final = request(1, OpCode.DELETE, r.DeleteRequest("/a", -1))
SET_ACL: Final = request(1, OpCode.SET_ACL, r.SetACLRequest("/a", OPEN_ACL_UNSAFE, -1))
CLOSE: Final = request(1, OpCode.CLOSE_SESSION)
MULTI: Final = request(1, OpCode.MULTI, encode_operations([(OpCode.DELETE, r.DeleteRequest("/a", -1))]))
ADD_WATCH: Final = request(1, OpCode.ADD_WATCH, r.AddWatchRequest("/a", 1))
READS: Final = request(1, OpCode.MULTI_READ, encode_operations([(OpCode.GET_DATA, r.GetDataRequest("/a", False))]))
QUOTA: Final = create(1, "/zookeeper/quota/a/zookeeper_stats")


@pytest.fixture
def peer() -> Peer:
    peer = connect_peer(make_engine())
    peer.create("/a", b"x")
    return peer


def light(peer: Peer, data: bytes) -> bool:
    return is_light(peer.engine, peer.client, data)


@pytest.mark.parametrize(
    "data",
    [
        exists(1), get(1, "/a"), LIST, LIST2, create(1, "/a/b"), set_data(1, "/a"), DELETE, CLOSE, MULTI, ADD_WATCH,
        request(-2, 11),
    ],
    ids="exists get children children2 create set delete close multi addwatch ping".split(),
)  # fmt: skip
def test_ordinary_request_is_light(peer: Peer, data: bytes) -> None:
    assert light(peer, data)


def test_add_watch_is_not_light_while_sweep_is_due(peer: Peer) -> None:
    lost = connect_peer(peer.engine)
    lost.send(OpCode.SET_WATCHES, r.SetWatches(0, [], [f"/{number}" for number in range(100)], []).encode())
    lost.connection.connection_lost()

    assert not light(peer, ADD_WATCH)

    peer.engine.watches.sweep()
    assert light(peer, ADD_WATCH)


@pytest.mark.parametrize(
    "data",
    [b"", exists(1)[:-1], exists(1) + exists(2), create(1, "/a", bytes(1000))],
    ids=["nothing", "part", "two", "long"],
)
def test_empty_partial_double_or_long_input_is_not_light(peer: Peer, data: bytes) -> None:
    assert not light(peer, data)


@pytest.mark.parametrize("op", sorted(OpCode))
def test_judging_malformed_request_does_not_raise(peer: Peer, op: OpCode) -> None:
    watch_recursively(peer)

    for body in (b"", b"\xff" * 9, b"\0\0\0\1/", b"\0\0\0\0", b"\0\0\0\3/a\xff", b"\0\0\0\1x", b"\0\0\1\0/a"):
        light(peer, request(1, op, body))


@pytest.mark.parametrize("data", [READS, QUOTA, request(1, OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest("/"))])
def test_request_that_may_read_everything_is_not_light(peer: Peer, data: bytes) -> None:
    assert not light(peer, data)


def test_request_releasing_large_acl_is_not_light(peer: Peer) -> None:
    acl = tuple(ACL(31, Id("ip", f"10.0.0.{number}")) for number in range(101))
    requests = (DELETE, MULTI, CLOSE, SET_ACL)
    judged = []
    for size in (100, 101):
        peer.create(f"/{size}", acl=acl[:size])
        judged.append({light(peer, data) for data in requests})

    assert judged == [{True}, {False}]
    assert light(peer, set_data(1, "/a"))
    peer.delete("/101")
    assert light(peer, DELETE)


def test_data_of_more_than_64_kilobytes_is_not_light(peer: Peer) -> None:
    sizes = []
    for size in (1 << 16, (1 << 16) + 1):
        peer.set("/a", bytes(size))
        sizes.append(light(peer, get(1, "/a")))

    assert sizes == [True, False]


@pytest.mark.parametrize("data", [LIST, LIST2], ids=["getChildren", "getChildren2"])
def test_get_children_is_light_if_list_is_short_or_cached(peer: Peer, data: bytes) -> None:
    for number in range(17):
        peer.create(f"/a/{number}")
    uncached = light(peer, data)
    peer.children("/a")
    cached = light(peer, data)
    peer.create("/a/" + "x" * (1 << 16))
    peer.children("/a")

    assert (uncached, cached, light(peer, data)) == (False, True, False)


def test_get_is_light_if_tree_has_no_large_data(peer: Peer) -> None:
    large = Node(bytes((1 << 16) + 1), 0, 0, 0, 0)
    empty, replaced, added = (make_engine().tree for _ in range(3))
    replaced.place("/", large)
    added.place("/file", large)

    assert [tree.largest for tree in (peer.engine.tree, empty)] == [1, 0]
    assert [tree.largest for tree in (replaced, added)] == [65_537, 65_537]
    assert light(peer, get(1, "/a"))
    peer.create("/large", large.data)
    assert not light(peer, get(1, "/large"))


def test_get_children_is_light_after_few_deletes(peer: Peer) -> None:
    names = [f"{number:05}{'a' * 20}" for number in range(400)]
    for name in names:
        peer.create(f"/a/{name}")
    peer.children("/a")
    judged = []
    for name in names[200:224]:
        judged.append(light(peer, LIST))
        peer.delete(f"/a/{name}")
    judged.append(light(peer, LIST))
    peer.children("/a")

    assert (judged[0], judged[-1], light(peer, LIST)) == (True, False, True)


@pytest.mark.parametrize("data", [create(1, "/a/b"), SET_ACL, MULTI], ids=["create", "setACL", "multi"])
def test_acl_check_with_many_identities_is_not_light(peer: Peer, data: bytes) -> None:
    few = light(peer, data)
    for number in range(4):
        peer.client.add_id("digest", str(number))

    assert (few, light(peer, data)) == (True, False)
    assert light(peer, DELETE)


@pytest.mark.parametrize("data", [get(1, "/a"), LIST, LIST2], ids=["get", "children", "children2"])
def test_read_with_trailing_byte_is_not_light(peer: Peer, data: bytes) -> None:
    peer.create("/large", bytes((1 << 16) + 1))
    longer = pack_int(len(data) - 3) + data[4:] + b"\0"

    assert [light(peer, data), light(peer, longer)] == [True, False]


def test_sequential_create_with_many_watches_is_not_light(peer: Peer) -> None:
    judged = []
    for count in (16, 1):
        for _ in range(count):
            connect_peer(peer.engine).send(OpCode.EXISTS, r.ExistsRequest("/a/x0000000000", True).encode())
        judged.append(light(peer, create(1, "/a/x")))

    assert judged == [True, False]


def test_get_children_with_many_new_or_long_names_is_not_light(peer: Peer) -> None:
    peer.create("/a/first")
    peer.children("/a")
    judged = [light(peer, LIST)]
    for number in range(16):
        peer.create(f"/a/{number}")
    judged.append(light(peer, LIST))
    peer.create("/a/last")
    judged.append(light(peer, LIST))
    peer.delete("/a/first")
    peer.create("/b")
    peer.create("/b/" + "x" * 65_537)

    assert judged == [True, True, False]
    assert not light(peer, request(1, OpCode.GET_CHILDREN, r.GetChildrenRequest("/b", False)))


def watch_data(peer: Peer) -> None:
    peer.get("/a", watch=True)


def watch_children(peer: Peer) -> None:
    peer.children("/a", watch=True)


def watch_recursively(peer: Peer) -> None:
    peer.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", RECURSIVE_WATCH))


@pytest.mark.parametrize(
    ("start", "data"),
    [
        (watch_data, set_data(1, "/a")),
        (watch_data, DELETE),
        (watch_children, create(1, "/a/b")),
        (watch_children, DELETE),
        (watch_recursively, create(1, "/a/b/c")),
    ],
)
def test_write_with_many_watchers_is_not_light(peer: Peer, start: Callable[[Peer], None], data: bytes) -> None:
    judged = []
    for count in (16, 1):
        for _ in range(count):
            start(connect_peer(peer.engine))
        judged.append(light(peer, data))

    assert judged == [True, False]
    assert light(peer, exists(1, "/a"))


def test_multi_or_deep_write_with_watches_is_not_light(peer: Peer) -> None:
    for _ in range(16):
        watch_data(connect_peer(peer.engine))
    few = light(peer, MULTI)
    watch_data(peer)
    long = request(1, OpCode.MULTI, encode_operations([(OpCode.DELETE, r.DeleteRequest("/b", -1))] * 20))

    assert (few, light(peer, MULTI), light(connect_peer(make_engine()), long)) == (True, False, False)
    assert [light(peer, create(1, "/a" * levels)) for levels in (65, 60)] == [False, True]


def test_close_is_light_with_few_nodes_and_events(peer: Peer) -> None:
    judged = [light(peer, CLOSE)]
    for number in range(9):
        peer.create(f"/a/{number}", b"", 1)
    judged.append(light(peer, CLOSE))
    for _ in range(2):
        watch_recursively(connect_peer(peer.engine))
    judged.append(light(peer, CLOSE))

    other = connect_peer(make_engine())
    for number in range(17):
        other.create(f"/{number}", b"", 1)

    assert judged == [True, True, False]
    assert not light(other, CLOSE)


@pytest.mark.parametrize("path", ["/" + "x" * 1_024, "/a" * 65], ids=["long", "deep"])
def test_close_with_long_or_deep_path_is_not_light(path: str) -> None:
    peer = connect_peer(make_engine())
    for end in [at for at in range(1, len(path)) if path[at] == "/"]:
        peer.create(path[:end])
    peer.create(path, b"", 1)

    assert not light(peer, CLOSE)
