"""Every difference from a real ZooKeeper that tests/differential ever found, as a test of its own."""

from __future__ import annotations

import pytest
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id
from zoolet.protocol.errors import InvalidACLError, MarshallingError
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.opcodes import OpCode
from zoolet.server.core.compat import V3_8
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
