"""delete, setData and setACL: their changes, and the order of their checks.

Source: PrepRequestProcessor.pRequest2Txn.
"""

from __future__ import annotations

import pytest
from support.calls import NOW, connect_peer, delete, request_reply, set_acl, set_data, single_entry_acl, tick_at
from support.numbers import BAD_ARGUMENTS, BAD_VERSION, INVALID_ACL, MARSHALLING_ERROR, NO_AUTH, NO_NODE, NOT_EMPTY, OK
from support.records import replace

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine

# --- delete ---


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"])
def test_initial_nodes_cannot_be_deleted(peer, path):
    assert delete(peer, path).err == BAD_ARGUMENTS
    assert delete(peer, path, version=7).err == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("path", "err"),
    [
        ("/a/", NO_NODE),
        ("/no\x01", NO_NODE),
        ("/a\0", BAD_ARGUMENTS),
        ("x", BAD_ARGUMENTS),
        ("", BAD_ARGUMENTS),
        (None, MARSHALLING_ERROR),
        ("/missing/x", NO_NODE),
        ("//", NO_NODE),
    ],
)
def test_delete_does_not_validate_paths(peer, path, err):
    peer.create("/a")

    assert delete(peer, path).err == err
    assert peer.children("/") == ["a", "zookeeper"]


def test_wrong_version_precedes_error_for_children_in_delete(peer):
    peer.create("/a")
    peer.create("/a/b")

    assert delete(peer, "/a", version=7).err == BAD_VERSION
    assert delete(peer, "/a", version=0).err == NOT_EMPTY


def test_missing_permission_precedes_missing_node_in_delete(peer):
    peer.create("/p", acl=single_entry_acl(Perm.ALL & ~Perm.DELETE))

    assert delete(peer, "/p/none").err == NO_AUTH


@pytest.mark.parametrize("path", ["/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/"])
def test_nodes_of_server_cannot_be_deleted(engine: Engine, path: str) -> None:
    peer = connect_peer(engine)

    with pytest.raises(ZooKeeperError):
        peer.delete(path)

    assert engine.tree.get(path) is not None


@pytest.mark.parametrize(
    "path", ["//zookeeper/config", "zookeeper/config", "/zookeeper//config", "/zookeeper/config/", "/zookeeper/quota/"]
)
def test_alias_of_path_cannot_delete_server_node(engine: Engine, path: str) -> None:
    peer = connect_peer(engine)

    with pytest.raises(ZooKeeperError):
        peer.delete(path)

    assert engine.tree.size == 4


# --- setData ---


def test_set_data_changes_stat_even_with_same_data(engine, peer):
    peer.create("/p", b"data")
    before = peer.exists("/p")
    tick_at(engine, 100)

    reply = request_reply(peer, OpCode.SET_DATA, r.SetDataRequest("/p", b"data", 0))

    stat = r.StatResponse.decode(reply.body).stat
    assert stat == replace(before, version=1, mzxid=reply.zxid, mtime=NOW + 100)


def test_data_of_node_can_be_set_to_null(peer):
    peer.create("/n", b"data")

    stat = peer.set("/n", None)

    assert stat.dataLength == 0
    assert peer.get("/n")[0] is None


@pytest.mark.parametrize("version", [-2, 1, 2**31 - 1, -(2**31)])
def test_given_version_must_match_unless_minus_one(peer, version):
    peer.create("/a")

    assert delete(peer, "/a", version).err == BAD_VERSION
    assert set_data(peer, "/a", version).err == BAD_VERSION
    assert set_acl(peer, "/a", OPEN_ACL_UNSAFE, version).err == BAD_VERSION


@pytest.mark.parametrize("path", ["a", "", "/a/", "//a", "/a/../b", "/a\x01", None])
def test_set_data_and_set_acl_validate_whole_path(peer, path):
    assert set_data(peer, path).err == BAD_ARGUMENTS
    assert set_acl(peer, path, OPEN_ACL_UNSAFE).err == BAD_ARGUMENTS


# --- setACL ---


def test_setting_acl_changes_only_aversion(engine, peer):
    peer.create("/n", b"data")
    peer.create("/n/c")
    before = peer.exists("/n")
    parent = peer.exists("/")
    tick_at(engine, 100)

    stat = r.StatResponse.decode(set_acl(peer, "/n", READ_ACL_UNSAFE).body).stat

    assert stat == replace(before, aversion=1)
    assert peer.exists("/n") == stat
    assert peer.exists("/") == parent


def test_setting_acl_compares_with_aversion(peer):
    peer.create("/n")
    peer.set("/n", b"new")

    assert set_acl(peer, "/n", OPEN_ACL_UNSAFE, version=1).err == BAD_VERSION
    assert set_acl(peer, "/n", OPEN_ACL_UNSAFE, version=0).err == OK


def test_empty_acl_on_missing_node_is_invalid_acl(peer):
    assert set_acl(peer, "/missing", ()).err == INVALID_ACL
    assert set_acl(peer, "/missing", None).err == INVALID_ACL
