"""Transactions: results, failures, requests that fail as a whole, and the limit for operations.

Source: MultiOperationRecord, PrepRequestProcessor.pRequest, case multi.
"""

from __future__ import annotations

import time

import pytest
from support.calls import (
    NOW,
    add_watch,
    check_op,
    connect_peer,
    create_op,
    delete_op,
    engine_with_settings,
    last_zxid,
    multi,
    request_error,
    request_reply,
    set_op,
)
from support.frames import string, unhex
from support.log import Log
from support.numbers import (
    BAD_ARGUMENTS,
    CONTAINER,
    CREATED,
    END,
    MARSHALLING_ERROR,
    NO_AUTH,
    OK,
    RECURSIVE_WATCH,
    SEQUENTIAL,
)
from support.peer import Peer
from support.private_nodes import PRIVATE, connect_owner

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import NoAuthError
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.server.core.journal import RequestBatch
from zoolet.server.core.ops.received import transactions


def encode_sets(count: int) -> bytes:
    """Return a multi of *count* setData operations."""
    return wire.encode_operations([(OpCode.SET_DATA, r.SetDataRequest("/a", b"x", -1))] * count)


# --- results ---


def test_result_of_check_in_multi_has_its_op_code_and_error_zero(peer):
    reply = multi(peer, check_op("/"))

    assert reply.body == unhex("0000000d 00 00000000" + END)


def test_error_result_of_multi_has_its_code_twice(peer):
    reply = multi(peer, check_op("/none"))

    assert reply.body == unhex("ffffffff 00 ffffff9b ffffff9b" + END)


def test_empty_multi_returns_only_end_header_and_takes_zxid(peer):
    before = last_zxid(peer)

    reply = multi(peer)

    assert (reply.err, reply.zxid, reply.body) == (OK, before + 1, unhex(END))


def test_sequence_number_advances_inside_multi(peer):
    reply = multi(peer, create_op("/a-", SEQUENTIAL), create_op("/b-", SEQUENTIAL))

    assert reply.body == (
        unhex("00000001 00 00000000")
        + string("/a-0000000000")
        + unhex("00000001 00 00000000")
        + string("/b-0000000001")
        + unhex(END)
    )


def test_container_flag_inside_multi_makes_container(engine, peer):
    reply = multi(peer, create_op("/c", CONTAINER))

    z = reply.zxid
    node = engine.tree.get("/c")
    stat = r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z)
    assert reply.body == unhex("0000000f 00 00000000") + string("/c") + stat.encode() + unhex(END)
    assert node is not None
    assert node.is_container()


def test_operations_of_multi_see_each_other(peer):
    reply = multi(
        peer,
        create_op("/p"),
        create_op("/p/c"),
        set_op("/p/c", version=0),
        check_op("/p/c", version=1),
        delete_op("/p/c", version=1),
    )

    z = reply.zxid
    stat = r.Stat(z, z, NOW, NOW, 1, 0, 0, 0, 3, 0, z)
    assert reply.err == OK
    assert reply.body == (
        unhex("00000001 00 00000000")
        + string("/p")
        + unhex("00000001 00 00000000")
        + string("/p/c")
        + unhex("00000005 00 00000000")
        + stat.encode()
        + unhex("0000000d 00 00000000")
        + unhex("00000002 00 00000000")
        + unhex(END)
    )


def test_multi_uses_one_zxid(peer):
    before = last_zxid(peer)

    reply = multi(peer, create_op("/p"), create_op("/p/c"), create_op("/p/d"), delete_op("/p/c"))

    assert reply.zxid == before + 1 == last_zxid(peer)
    assert peer.exists("/p") == r.Stat(reply.zxid, reply.zxid, NOW, NOW, 0, 3, 0, 0, 0, 1, reply.zxid)


def test_create2_inside_multi_answers_path_and_stat(peer):
    reply = multi(peer, (OpCode.CREATE2, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 0)))

    z = reply.zxid
    stat = r.Stat(z, z, NOW, NOW, 0, 0, 0, 0, 0, 0, z)
    assert reply.body == unhex("0000000f 00 00000000") + string("/c") + stat.encode() + unhex(END)


def test_in_3_8_create2_inside_multi_answers_only_path(old):
    reply = multi(old, (OpCode.CREATE2, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, 0)))

    assert reply.body == unhex("00000001 00 00000000") + string("/c") + unhex(END)


# --- failures ---


def test_failed_multi_has_error_zero_in_header(peer):
    before = last_zxid(peer)

    reply = multi(peer, create_op("/a"), delete_op("/none"), create_op("/b"))

    assert (reply.err, reply.zxid) == (OK, before + 1)
    assert reply.body == unhex(
        "ffffffff 00 00000000 00000000"  # would have succeeded
        "ffffffff 00 ffffff9b ffffff9b"  # failed
        "ffffffff 00 fffffffe fffffffe" + END  # was not tried
    )


def test_failed_multi_changes_nothing(peer, other):
    root = peer.exists("/")
    add_watch(other, "/", RECURSIVE_WATCH)

    multi(peer, create_op("/a"), set_op("/zookeeper"), create_op("/s", SEQUENTIAL), delete_op("/none"))

    assert peer.exists("/") == root
    assert peer.exists("/zookeeper").version == 0
    assert peer.create("/s", flags=SEQUENTIAL) == "/s0000000000"
    assert other.receive() == [(CREATED, "/s0000000000")]


# --- requests that fail as a whole ---


def test_unterminated_multi_is_marshalling_error(peer):
    reply = request_reply(peer, OpCode.MULTI, unhex("00000002 00 ffffffff") + r.DeleteRequest("/none", -1).encode())

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


@pytest.mark.parametrize("op", [OpCode.SET_ACL, OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.SYNC])
def test_disallowed_operation_in_multi_is_malformed(peer, op):
    body = wire.encode_operations([(op, r.GetDataRequest("/", False))])

    reply = request_reply(peer, OpCode.MULTI, body)

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


def test_unknown_flag_inside_multi_fails_whole_request(peer):
    reply = multi(peer, create_op("/a"), create_op("/b", flags=99))

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert peer.children("/") == ["zookeeper"]


def test_in_3_8_unknown_flag_fails_only_its_operation(old):
    reply = multi(old, create_op("/a"), create_op("/b", flags=99))

    assert reply.err == OK
    assert reply.body == unhex("ffffffff 00 00000000 00000000 ffffffff 00 fffffff8 fffffff8" + END)


@pytest.mark.parametrize("flags", [5, 6])
def test_ttl_flag_in_plain_create_fails_whole_multi(peer, flags):
    reply = multi(peer, create_op("/a"), create_op("/b", flags))

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert peer.children("/") == ["zookeeper"]


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.CREATE, r.CreateRequest(None, b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest(None, -1)),
        (OpCode.SET_DATA, r.SetDataRequest(None, b"", -1)),
        (OpCode.CHECK, r.CheckVersionRequest(None, -1)),
    ],
)
def test_null_path_fails_whole_multi(peer, op, body):
    reply = multi(peer, create_op("/a"), (op, body))

    assert reply.err == MARSHALLING_ERROR
    assert peer.children("/") == ["zookeeper"]


def test_in_3_8_null_path_in_multi_skips_zxid(old: Peer) -> None:
    before = old.engine.zxid

    (failed,) = old.send(OpCode.MULTI, encode_operations([(OpCode.DELETE, r.DeleteRequest(None, -1))]))
    (created,) = old.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode())

    assert (failed.err, failed.zxid - before, failed.body) == (MARSHALLING_ERROR, 0, wire.END)
    assert created.zxid - before == 2


def test_in_3_8_earlier_error_in_multi_precedes_ttl_flags(old: Peer) -> None:
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 6)),
        ]
    )

    (reply,) = old.send(OpCode.MULTI, operations)

    assert reply.err == 0


def test_in_3_9_flags_needing_ttl_fail_whole_multi(new: Peer) -> None:
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 6)),
        ]
    )

    (reply,) = new.send(OpCode.MULTI, operations)

    assert (reply.err, reply.body) == (-5, b"")


def test_multi_accepts_ttl_create_with_plain_flags(new: Peer) -> None:
    ((kind, made),) = new.multi((OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 0, 7)))

    assert (kind, made) == (OpCode.CREATE, r.CreateResponse("/a"))


@pytest.mark.parametrize("release", ["old", "new"])
def test_undecodable_multi_takes_zxid_in_every_release(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)
    before = peer.engine.zxid

    (reply,) = peer.send(OpCode.MULTI, b"\0\0")

    assert (reply.err, reply.zxid) == (-5, before + 1)


@pytest.mark.parametrize("flags", [0, 5])
def test_in_3_9_null_acl_fails_multi_without_zxid(new: Peer, flags: int) -> None:
    before = new.engine.zxid
    operations = encode_operations(
        [
            (OpCode.DELETE, r.DeleteRequest("/none", -1)),
            (OpCode.CREATE, r.CreateRequest("/a", b"", None, flags)),
        ]
    )

    (reply,) = new.send(OpCode.MULTI, operations)

    assert (reply.err, reply.zxid, reply.body, new.engine.zxid) == (-5, before, b"", before)


def test_in_3_9_unknown_flags_precede_null_acl(new: Peer) -> None:
    before = new.engine.zxid

    (reply,) = new.send(OpCode.MULTI, encode_operations([(OpCode.CREATE, r.CreateRequest("/a", b"", None, 9))]))

    assert (reply.err, reply.zxid) == (-5, before + 1)


def test_in_3_9_null_acl_fails_only_its_ttl_create(new: Peer) -> None:
    results = new.multi((OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", None, 5, 7)))

    assert results == [(-1, r.ErrorResponse(-114))]


# --- the limit for operations ---


def test_multi_at_operation_limit_is_done() -> None:
    peer = connect_peer(engine_with_settings(max_multi_operations=3))
    peer.create("/a")

    assert request_error(peer, OpCode.MULTI, encode_sets(3)) == 0
    assert peer.get("/a")[1].version == 3


def test_multi_above_operation_limit_is_refused_whole(log: Log) -> None:
    engine = engine_with_settings(log, max_multi_operations=3)
    peer = connect_peer(engine)
    peer.create("/a")

    code = request_error(peer, OpCode.MULTI, encode_sets(4))

    assert (code, peer.closed, peer.get("/a")[1].version) == (BAD_ARGUMENTS, False, 0)
    assert engine.metrics.refused["multi_operations"] == 1
    assert len(log.with_word("zoolet.maxMultiOperations")) == 1


def test_repeatedly_oversized_multi_is_logged_once(log: Log) -> None:
    engine = engine_with_settings(log, max_multi_operations=1)
    peer = connect_peer(engine)
    peer.create("/a")

    for _ in range(100):
        request_error(peer, OpCode.MULTI, encode_sets(2))

    assert engine.metrics.refused["multi_operations"] == 100
    assert len(log) == 1


def test_refusal_of_oversized_multi_is_cheap() -> None:
    engine = engine_with_settings(max_multi_operations=10)
    peer = connect_peer(engine)
    peer.create("/a")

    request = encode_sets(30_000)
    took = []
    for _ in range(5):  # one of them may be disturbed by garbage collection
        started = time.process_time()
        assert request_error(peer, OpCode.MULTI, request) == BAD_ARGUMENTS
        took.append(time.process_time() - started)

    assert min(took) < 0.5


# --- ACLs ---


@pytest.mark.parametrize(
    "operation",
    [
        (OpCode.CHECK, r.CheckVersionRequest("/private", 0)),
        (OpCode.CHECK, r.CheckVersionRequest("/private", 99)),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", -1)),
        (OpCode.DELETE, r.DeleteRequest("/private/child", -1)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE2, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 1)),
    ],
    ids=lambda value: value[0].name,
)
def test_operation_without_permission_undoes_whole_multi(private: Peer, operation: tuple[OpCode, r.Stat]) -> None:
    results = private.multi((OpCode.CREATE, r.CreateRequest("/mine", b"", OPEN_ACL_UNSAFE, 0)), operation)

    assert [result.err for _, result in results] == [0, NO_AUTH]
    assert private.engine.tree.get("/mine") is None


def test_set_acl_in_multi_is_refused(private: Peer) -> None:
    header = r.MultiHeader(OpCode.SET_ACL, False, -1).encode()
    body = header + r.SetACLRequest("/private", OPEN_ACL_UNSAFE, -1).encode() + wire.END

    (reply,) = private.send(OpCode.MULTI, body)

    assert reply.err != 0
    assert private.engine.tree.find("/private").acl != 0


def test_failed_multi_keeps_acl_of_deleted_node(private: Peer) -> None:
    engine = private.engine
    owner = connect_owner(engine)

    owner.multi((OpCode.DELETE, r.DeleteRequest("/private/child", -1)), (OpCode.CHECK, r.CheckVersionRequest("/no", 0)))

    with pytest.raises(NoAuthError):
        private.get("/private/child")


def test_node_recreated_in_multi_has_only_new_acl(private: Peer) -> None:
    owner = connect_owner(private.engine)
    owner.create("/open")

    owner.multi(
        (OpCode.DELETE, r.DeleteRequest("/open", -1)),
        (OpCode.CREATE, r.CreateRequest("/open", b"now private", PRIVATE, 0)),
    )

    with pytest.raises(NoAuthError):
        private.get("/open")


def test_reused_zxid_reports_no_changes_of_failed_multi(peer: Peer) -> None:
    heard: list[RequestBatch] = []
    peer.engine.on_requests = heard.append
    multi(peer, create_op("/q", SEQUENTIAL), create_op("/x", acl=None))  # 3.9 gives the zxid back
    path = peer.create("/z", flags=SEQUENTIAL)

    assert [change for *_, changes in transactions(heard[-1]) for change in changes] == [(OpCode.CREATE, path, 0)]
