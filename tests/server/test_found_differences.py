"""Every difference from a real ZooKeeper that tests/differential ever found, as a test of its own."""

from __future__ import annotations

import struct

import pytest
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id
from zoolet.protocol.codec import put_str
from zoolet.protocol.errors import InvalidACLError, MarshallingError
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8, V3_9, Compat
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import Settings


@pytest.fixture
def old() -> Peer:
    """A client of a server that answers as 3.8 does."""
    peer = Peer(Engine(Settings(compat=V3_8)))
    peer.connect()
    return peer


@pytest.fixture
def new() -> Peer:
    """A client of a server that answers as 3.9 does."""
    peer = Peer(Engine())
    peer.connect()
    return peer


def test_in_3_8_flags_that_need_a_ttl_fail_a_multi_only_when_their_turn_comes(old: Peer) -> None:
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 6)),
        ]
    )

    (reply,) = old.send(OpCode.MULTI, operations)

    assert reply.err == 0


def test_in_3_9_flags_that_need_a_ttl_fail_a_multi_as_a_whole(new: Peer) -> None:
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 6)),
        ]
    )

    (reply,) = new.send(OpCode.MULTI, operations)

    assert (reply.err, reply.body) == (-5, b"")


def test_a_ttl_create_with_other_flags_inside_a_multi_makes_a_plain_node(new: Peer) -> None:
    ((kind, made),) = new.multi((OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 0, 7)))

    assert (kind, made) == (OpCode.CREATE, r.CreateResponse("/a"))


@pytest.mark.parametrize("release", ["old", "new"])
def test_a_reconfig_that_does_not_decode_takes_no_zxid(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)
    before = peer.engine.zxid

    (reply,) = peer.send(OpCode.RECONFIG, b"")

    assert (reply.err, reply.zxid) == (-5, before)


@pytest.mark.parametrize("release", ["old", "new"])
def test_a_multi_that_does_not_decode_takes_a_zxid_in_every_release(
    release: str, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    before = peer.engine.zxid

    (reply,) = peer.send(OpCode.MULTI, b"\0\0")

    assert (reply.err, reply.zxid) == (-5, before + 1)


def test_a_null_scheme_that_would_be_compared_with_another_entry_does_not_decode(new: Peer) -> None:
    same_perms = (ACL(16, Id("ip", "127.0.0.1/")), ACL(16, Id(None, "x")))

    with pytest.raises(MarshallingError):
        new.create("/a", acl=same_perms)


def test_a_null_scheme_that_is_not_compared_is_an_invalid_acl(new: Peer) -> None:
    other_perms = (ACL(1, Id("ip", "127.0.0.1")), ACL(16, Id(None, "x")))

    with pytest.raises(InvalidACLError):
        new.create("/a", acl=other_perms)


def test_in_3_8_a_recursive_watch_takes_the_place_of_a_child_watch(old: Peer) -> None:
    old.children("/", watch=True)
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    old.create("/a")

    assert old.receive() == [(1, "/a")]


def test_in_3_8_a_recursive_watch_that_lost_its_place_still_hears_of_deletes(old: Peer) -> None:
    old.create("/a")
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))
    old.get("/", watch=True)

    old.set("/a", b"1")
    old.delete("/a")

    assert old.receive() == [(2, "/a")]


def test_in_3_9_a_recursive_watch_and_a_child_watch_coexist(new: Peer) -> None:
    new.children("/", watch=True)
    new.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    new.create("/a")

    assert new.receive() == [(1, "/a"), (4, "/")]


def test_in_3_8_a_check_of_a_relative_path_stumbles_where_there_are_recursive_watches(old: Peer) -> None:
    before = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("a/b", 1).encode())
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    after = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("a/b", 1).encode())

    assert [reply.err for reply in before + after] == [-121, -5]


def test_in_3_8_a_check_of_a_path_without_any_slash_always_stumbles(old: Peer) -> None:
    (reply,) = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("rel", 3).encode())

    assert reply.err == -5


NULL_PATH = bytes.fromhex("ffffffff")
STATS = "/zookeeper/quota/a/zookeeper_stats"


def watch_request(kind: int) -> bytes:
    """The body of a checkWatches or removeWatches request on a null path."""
    return NULL_PATH + struct.pack(">i", kind)


@pytest.mark.parametrize("release", ["old", "new"])
def test_a_watch_on_a_null_path_that_is_to_be_removed_is_looked_for(
    release: str, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)

    (reply,) = peer.send(OpCode.REMOVE_WATCHES, watch_request(3))

    assert (reply.err, reply.body) == (-121, b"")


def test_in_3_8_a_check_of_a_null_path_stumbles(old: Peer) -> None:
    (reply,) = old.send(OpCode.CHECK_WATCHES, watch_request(3))

    assert reply.err == -5


def test_in_3_9_a_check_of_a_null_path_finds_no_watch(new: Peer) -> None:
    (reply,) = new.send(OpCode.CHECK_WATCHES, watch_request(3))

    assert reply.err == -121


def test_in_3_9_a_watch_on_a_null_path_is_found_and_removed(new: Peer) -> None:
    added = new.send(OpCode.ADD_WATCH, watch_request(0))
    found = new.send(OpCode.CHECK_WATCHES, watch_request(4))
    removed = new.send(OpCode.REMOVE_WATCHES, watch_request(4))
    again = new.send(OpCode.REMOVE_WATCHES, watch_request(4))

    assert [reply.err for reply in added + found + removed + again] == [0, 0, 0, -121]


@pytest.mark.parametrize("release", ["old", "new"])
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN])
def test_a_multi_read_that_fails_has_the_results_so_far_and_an_end(
    release: str, op: OpCode, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    first = "00000008 00 ffffffff 000000012f 00"
    null = f"{op:08x} 00 ffffffff ffffffff 00"

    (reply,) = peer.send(OpCode.MULTI_READ, bytes.fromhex(f"{first} {null} {first} ffffffff 01 ffffffff"))

    names = "00000001 00000009" + b"zookeeper".hex()
    assert (reply.err, reply.body) == (-5, bytes.fromhex(f"00000008 00 00000000 {names} ffffffff 01 ffffffff"))


@pytest.mark.parametrize("release", ["old", "new"])
def test_a_null_path_in_set_watches_fails_it_when_its_turn_comes(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)
    peer.create("/a")
    paths = struct.pack(">i", 3) + put_str("/a") + NULL_PATH + put_str("/a")

    event, reply = peer.send(OpCode.SET_WATCHES, bytes(8) + paths + bytes(8), xid=-8)

    assert event.body == bytes.fromhex("00000003 00000003 00000002 2f61")
    assert (event.xid, event.zxid, reply.xid, reply.err) == (-1, -1, -8, -5)


@pytest.mark.parametrize("release", ["old", "new"])
def test_a_null_path_among_watches_that_stay_is_taken(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)

    (reply,) = peer.send(OpCode.SET_WATCHES2, bytes(20) + (struct.pack(">i", 1) + NULL_PATH) * 2, xid=-8)

    assert (reply.xid, reply.err) == (-8, 0)


@pytest.mark.parametrize("flags", [0, 5])
def test_in_3_9_a_null_acl_list_in_a_multi_fails_it_as_a_whole_and_takes_no_zxid(new: Peer, flags: int) -> None:
    before = new.engine.zxid
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", None, flags)),
        ]
    )

    (reply,) = new.send(OpCode.MULTI, operations)

    assert (reply.err, reply.zxid, reply.body, new.engine.zxid) == (-5, before, b"", before)


def test_in_3_9_unknown_flags_come_before_a_null_acl_list(new: Peer) -> None:
    before = new.engine.zxid

    (reply,) = new.send(OpCode.MULTI, encode_operations([(OpCode.CREATE, r.CreateRequest("/a", b"", None, 9))]))

    assert (reply.err, reply.zxid) == (-5, before + 1)


def test_in_3_9_a_null_acl_list_of_a_ttl_create_fails_in_its_turn(new: Peer) -> None:
    results = new.multi((OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", None, 5, 7)))

    assert results == [(-1, r.ErrorResponse(-114))]


@pytest.mark.parametrize("release", ["old", "new"])
@pytest.mark.parametrize(
    ("text", "after"),
    [
        (b"count=7,bytes=9,foo=3;countHardLimit=9", b"count=8,bytes=11=;countHardLimit=9;foo=3"),
        (b"byteHardLimit=9", b"count=0,bytes=1=;byteHardLimit=9"),
        (b"count=1,bytes=1", b"count=2,bytes=3"),
    ],
)
def test_the_stats_of_a_quota_keep_the_numbers_that_are_not_counted(
    release: str, text: bytes, after: bytes, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    for path in ("/a", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits", STATS):
        peer.create(path)
    peer.set(STATS, text)

    peer.create("/a/b", b"22")

    assert peer.get(STATS)[0] == after


@pytest.mark.parametrize("compat", [V3_8, V3_9])
def test_without_ttl_nodes_a_ttl_create_with_other_flags_has_bad_arguments(compat: Compat) -> None:
    peer = Peer(Engine(Settings(compat=compat, extended_types=False)))
    peer.connect()

    (reply,) = peer.send(OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 0, 5).encode())

    assert reply.err == -8


def test_a_client_that_is_ahead_cannot_resume_a_session_that_lives() -> None:
    engine = Engine()
    first, second = Peer(engine), Peer(engine)
    welcome = first.connect()
    assert welcome is not None

    answer = second.connect(session=welcome.session_id, password=welcome.password, zxid=engine.zxid + 1)

    assert (answer, second.closed, first.closed) == (None, True, False)
