"""Reads: paths are not validated, null differs from empty, and getEphemerals and getAllChildrenNumber see all nodes.

Source: FinalRequestProcessor, DataTree.
"""

from __future__ import annotations

import pytest
from support.calls import connect_peer, read_acl, request_error, request_reply
from support.frames import string, unhex
from support.numbers import BAD_ARGUMENTS, EPHEMERAL, MARSHALLING_ERROR, NO_NODE, OK

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine

# --- paths ---


@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2, OpCode.EXISTS])
@pytest.mark.parametrize("path", ["nox/", "/a/", "//", "/zookeeper/", "a", "/."])
def test_reads_do_not_validate_paths(peer, op, path):
    assert request_error(peer, op, r.GetDataRequest(path, False)) == NO_NODE


@pytest.mark.parametrize("op", [OpCode.GET_ACL, OpCode.GET_ALL_CHILDREN_NUMBER])
def test_get_acl_and_child_count_do_not_validate_paths(peer, op):
    assert request_error(peer, op, r.GetACLRequest("nox/")) == NO_NODE


def test_empty_path_is_root_for_reads(peer):
    peer.set("/", b"root")

    assert peer.get("") == peer.get("/")
    assert peer.exists("") == peer.exists("/")
    assert peer.children("") == ["zookeeper"]
    assert read_acl(peer, "") == OPEN_ACL_UNSAFE


def test_exists_refuses_nul(peer):
    assert request_error(peer, OpCode.EXISTS, r.ExistsRequest("/a\0", True)) == BAD_ARGUMENTS


def test_reads_except_exists_accept_nul(peer):
    assert request_error(peer, OpCode.GET_DATA, r.GetDataRequest("/a\0", False)) == NO_NODE


@pytest.mark.parametrize(
    "op",
    [
        OpCode.EXISTS,
        OpCode.GET_DATA,
        OpCode.GET_CHILDREN,
        OpCode.GET_CHILDREN2,
        OpCode.GET_ACL,
        OpCode.GET_ALL_CHILDREN_NUMBER,
    ],
)
def test_null_path_in_read_is_marshalling_error(peer, op):
    assert request_error(peer, op, unhex("ffffffff 00")) == MARSHALLING_ERROR


@pytest.mark.parametrize("name", ["cafe\u0301", "caf\u00e9"])
def test_unicode_forms_are_different_nodes(engine: Engine, name: str) -> None:
    peer = connect_peer(engine)
    peer.create("/cafe\u0301", b"1")
    peer.create("/caf\u00e9", b"2")

    assert peer.children("/") == ["cafe\u0301", "caf\u00e9", "zookeeper"]
    assert peer.get(f"/{name}")[0] == {"cafe\u0301": b"1", "caf\u00e9": b"2"}[name]


# --- data ---


def test_null_data_stays_null(peer):
    peer.create("/n", None)

    body = request_reply(peer, OpCode.GET_DATA, r.GetDataRequest("/n", False)).body

    assert body[:4] == unhex("ffffffff")
    assert len(body) == 4 + 68
    assert r.Stat.decode(body, 4).dataLength == 0


def test_empty_data_stays_empty(peer):
    peer.create("/n", b"")

    body = request_reply(peer, OpCode.GET_DATA, r.GetDataRequest("/n", False)).body

    assert body[:4] == unhex("00000000")
    assert r.Stat.decode(body, 4).dataLength == 0


# --- sync ---


def test_sync_echoes_its_path(peer):
    reply = request_reply(peer, OpCode.SYNC, r.SyncRequest("x//y"))

    assert (reply.err, reply.body) == (OK, unhex("00000004 782f2f79"))


def test_sync_echoes_null(peer):
    reply = request_reply(peer, OpCode.SYNC, r.SyncRequest(None))

    assert (reply.err, reply.body) == (OK, unhex("ffffffff"))


@pytest.mark.parametrize(
    ("raw", "read"), [("eda080", "\ufffd"), ("eda0", "\ufffd"), ("ff", "\ufffd"), ("ffff", "\ufffd\ufffd")]
)
def test_sync_echoes_malformed_utf_8_like_java(peer, raw, read):
    sent = unhex(raw)

    reply = request_reply(peer, OpCode.SYNC, len(sent).to_bytes(4, "big") + sent)

    assert reply.body == string(read)


# --- getAllChildrenNumber ---


def test_get_all_children_number_of_fresh_root_is_three(peer):
    body = request_reply(peer, OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/")).body

    assert body == unhex("00000003")


@pytest.mark.parametrize(("path", "number"), [("/", 6), ("", 7), ("/zookeeper", 2), ("/a", 2), ("/a/b/c", 0)])
def test_get_all_children_number_counts_all_descendants(peer, path, number):
    peer.create("/a")
    peer.create("/a/b")
    peer.create("/a/b/c")

    body = request_reply(peer, OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest(path)).body

    assert body == number.to_bytes(4, "big")


# --- getEphemerals ---


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        ("/a/e", ["/a/e", "/a/ex"]),
        ("/a/ex", ["/a/ex"]),
        ("/a", ["/a/e", "/a/ex"]),
        ("/", ["/a/e", "/a/ex", "/b"]),
        (None, ["/a/e", "/a/ex", "/b"]),
        ("", ["/a/e", "/a/ex", "/b"]),
        (" ", ["/a/e", "/a/ex", "/b"]),
        ("/c", []),
    ],
)
def test_get_ephemerals_matches_string_prefix_of_path(peer, other, prefix, found):
    peer.create("/a")
    peer.create("/a/e", flags=EPHEMERAL)
    peer.create("/a/ex", flags=EPHEMERAL)
    peer.create("/b", flags=EPHEMERAL)
    other.create("/a/eother", flags=EPHEMERAL)

    body = request_reply(peer, OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest(prefix)).body

    assert sorted(r.GetEphemeralsResponse.decode(body).ephemerals) == found
