"""The dispatch of requests: operation codes, malformed bodies, headers of replies, and which requests use a zxid."""

from __future__ import annotations

import pytest
from support.calls import connect_peer, create, last_zxid, read_session_id, request_error, request_reply, resume_session
from support.engine import make_engine
from support.frames import request, string, unhex
from support.numbers import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    CONTAINER,
    EPHEMERAL,
    INVALID_ACL,
    MARSHALLING_ERROR,
    NO_AUTH,
    NO_NODE,
    NODE_EXISTS,
    OK,
    RECONFIG_DISABLED,
)
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8
from zoolet.server.core.settings import EngineSettings

# --- zxids that requests consume ---


def test_failed_writes_consume_a_zxid(peer):
    first = create(peer, "/x")

    second = create(peer, "/x")

    assert (second.err, second.body, second.zxid) == (NODE_EXISTS, b"", first.zxid + 1)
    assert last_zxid(peer) == first.zxid + 1


@pytest.mark.parametrize(
    ("op", "body", "err"),
    [
        (OpCode.CREATE, r.CreateRequest("/x", b"", OPEN_ACL_UNSAFE, 99), BAD_ARGUMENTS),
        (OpCode.CREATE, r.CreateRequest(None, b"", OPEN_ACL_UNSAFE, 0), MARSHALLING_ERROR),
        (OpCode.CREATE, r.CreateRequest("x", b"", OPEN_ACL_UNSAFE, 0), BAD_ARGUMENTS),
        (OpCode.CREATE, r.CreateRequest("/x", b"", (), 0), INVALID_ACL),
        (OpCode.CREATE, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 0), NO_NODE),
        (OpCode.CREATE, r.CreateRequest("/zookeeper/config/x", b"", OPEN_ACL_UNSAFE, 0), NO_AUTH),
        (OpCode.CREATE2, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 0), NO_NODE),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/no/x", b"", OPEN_ACL_UNSAFE, 4), NO_NODE),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/x", b"", OPEN_ACL_UNSAFE, 5, 0), BAD_ARGUMENTS),
        (OpCode.DELETE, r.DeleteRequest("/no", -1), NO_NODE),
        (OpCode.DELETE, r.DeleteRequest("/zookeeper", -1), BAD_ARGUMENTS),
        (OpCode.SET_DATA, r.SetDataRequest("/no", b"", -1), NO_NODE),
        (OpCode.SET_DATA, r.SetDataRequest("/", b"", 7), BAD_VERSION),
        (OpCode.SET_DATA, r.SetDataRequest(None, b"", -1), BAD_ARGUMENTS),
        (OpCode.SET_ACL, r.SetACLRequest("/", OPEN_ACL_UNSAFE, 7), BAD_VERSION),
        (OpCode.RECONFIG, r.ReconfigRequest(None, None, None, -1), RECONFIG_DISABLED),
    ],
)
def test_each_failed_write_operation_consumes_zxid(peer, op, body, err):
    before = last_zxid(peer)

    reply = request_reply(peer, op, body)

    assert (reply.err, reply.zxid, reply.body) == (err, before + 1, b"")
    assert last_zxid(peer) == before + 1


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.GET_DATA, r.GetDataRequest("/no", False)),
        (OpCode.EXISTS, r.ExistsRequest("/no", False)),
        (OpCode.SYNC, r.SyncRequest("/no")),
        (OpCode.CHECK_WATCHES, r.CheckWatchesRequest("/no", 3)),
        (OpCode.WHO_AM_I, b""),
        (OpCode.MULTI_READ, wire.END),
    ],
)
def test_successful_and_failed_reads_consume_no_zxid(peer, op, body):
    before = last_zxid(peer)

    reply = request_reply(peer, op, body)

    assert reply.zxid == before
    assert last_zxid(peer) == before


# --- headers of replies ---


def test_error_replies_have_no_body(peer):
    raw = peer.feed(request(7, OpCode.GET_DATA, r.GetDataRequest("/none", False)))

    assert raw == unhex("00000010 00000007 0000000000000001 ffffff9b")


def test_reply_to_failed_write_is_only_a_header(peer):
    raw = peer.feed(request(8, OpCode.CREATE2, r.CreateRequest("/", b"", OPEN_ACL_UNSAFE, 0)))

    assert raw == unhex("00000010 00000008 0000000000000002 ffffff92")


def test_ping_reply_has_xid_minus_two(peer):
    raw = peer.feed(request(77, OpCode.PING))

    assert raw == unhex("00000010 fffffffe 0000000000000001 00000000")


@pytest.mark.parametrize("xid", [-1, -2, -4, -8, 0, 2**31 - 1, -(2**31)])
def test_reply_to_read_echoes_any_xid(peer, xid):
    raw = peer.feed(request(xid, OpCode.GET_DATA, r.GetDataRequest("/none", False)))

    assert raw == unhex("00000010") + xid.to_bytes(4, "big", signed=True) + unhex("0000000000000001 ffffff9b")


# --- unsupported operations ---


@pytest.mark.parametrize("op", [50, 0, 10, 13, 20, 23, 99, 108, -1, -10, 2**31 - 1])
def test_unknown_operation_disconnects(peer, op):
    raw = peer.feed(request(9, op, r.CheckVersionRequest("/", -1)))

    assert raw == unhex("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed


def test_session_survives_unknown_operation(peer):
    peer.create("/e", flags=EPHEMERAL)
    peer.send(50)

    second = resume_session(peer)

    assert second.welcome == peer.welcome
    assert second.exists("/e").ephemeralOwner == read_session_id(peer)


def test_unknown_operation_takes_no_zxid(peer, other):
    before = last_zxid(other)

    peer.send(50)

    assert last_zxid(other) == before


def test_second_connect_request_is_unknown_operation(peer):
    raw = peer.feed(unhex("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(17))

    assert raw == unhex("00000010 00000000 ffffffffffffffff fffffffa")
    assert peer.closed


def test_delete_container_request_disconnects(peer, other):
    create(peer, "/c", CONTAINER, op=OpCode.CREATE_CONTAINER)

    raw = peer.feed(request(9, OpCode.DELETE_CONTAINER, string("/c")))

    assert raw == unhex("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed
    assert other.children("/") == ["c", "zookeeper"]


def test_in_3_8_internal_container_delete_takes_zxid():
    peer = connect_peer(make_engine(EngineSettings(compat=V3_8)))
    before = last_zxid(peer)

    raw = peer.feed(request(9, OpCode.DELETE_CONTAINER, string("/c")))

    assert raw == unhex("00000010 00000009") + (before + 1).to_bytes(8, "big") + unhex("fffffff8")
    assert not peer.closed


@pytest.mark.parametrize("compat", [{}, {"compat": V3_8}])
@pytest.mark.parametrize("path", ["/", "/none"])
def test_check_outside_multi_disconnects(compat, path):
    peer = connect_peer(make_engine(EngineSettings(**compat)))

    raw = peer.feed(request(9, OpCode.CHECK, r.CheckVersionRequest(path, -1)))

    assert raw == unhex("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed


def test_create_session_request_uses_no_zxid(peer, other):
    raw = peer.feed(request(9, OpCode.CREATE_SESSION, unhex("00002710")))

    assert raw == unhex("00000010 00000009 ffffffffffffffff fffffffa")
    assert peer.closed
    assert last_zxid(other) == 2


# --- malformed bodies ---


def test_undecodable_body_keeps_connection_open(peer):
    raw = peer.feed(request(3, OpCode.SET_DATA, string("/zookeeper")))

    assert raw == unhex("00000010 00000003 0000000000000001 fffffffb")
    assert not peer.closed
    assert peer.exists("/zookeeper").version == 0


def test_undecodable_write_takes_no_zxid(peer):
    before = last_zxid(peer)

    reply = request_reply(peer, OpCode.SET_DATA, string("/"))

    assert reply.zxid == before
    assert last_zxid(peer) == before


@pytest.mark.parametrize("path_length", ["fffffffe", "80000000", "7fffffff", "00000003"])
def test_invalid_length_in_body_is_marshalling_error(peer, path_length):
    reply = request_reply(peer, OpCode.EXISTS, unhex(path_length) + b"/\0")

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")
    assert not peer.closed


def test_bytes_after_body_are_ignored(peer):
    assert request_error(peer, OpCode.EXISTS, string("/") + b"\0" + b"more") == OK


def test_in_3_8_undecodable_write_takes_zxid(old):
    reply = request_reply(old, OpCode.SET_DATA, string("/"))

    assert (reply.err, reply.zxid) == (MARSHALLING_ERROR, 2)
    assert last_zxid(old) == 2


@pytest.mark.parametrize("release", ["old", "new"])
def test_undecodable_reconfig_takes_no_zxid(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)
    before = peer.engine.zxid

    (reply,) = peer.send(OpCode.RECONFIG, b"")

    assert (reply.err, reply.zxid) == (-5, before)
