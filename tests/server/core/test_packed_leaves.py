"""A new leaf is stored as bytes until it is changed or looked up. Clients cannot notice the difference."""

from __future__ import annotations

import pytest
from support.calls import connect_peer, create, request_reply
from support.engine import make_engine
from support.numbers import EPHEMERAL

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Node, packed, unpacked
from zoolet.server.storage.live import take_snapshot
from zoolet.server.storage.recovery import replace


def root_entry(engine: Engine, name: str) -> object:
    """Return the root's entry for a child: bytes while the child is packed, otherwise its node."""
    assert engine.tree.root.children is not None
    return engine.tree.root.children.get(name)


@pytest.fixture
def engine() -> Engine:
    return make_engine()


def test_new_leaf_is_packed_until_it_is_looked_up(engine: Engine) -> None:
    peer = connect_peer(engine)
    create(peer, "/a", data=b"1")
    assert isinstance(root_entry(engine, "a"), bytes)

    assert peer.call(OpCode.GET_DATA, r.GetDataRequest("/a", False)).data == b"1"

    assert isinstance(root_entry(engine, "a"), Node)


@pytest.mark.parametrize(
    "options", [{"flags": EPHEMERAL}, {"acl": READ_ACL_UNSAFE}, {"data": None}], ids=["owner", "acl", "null"]
)
def test_leaf_with_uncommon_fields_is_not_packed(engine: Engine, options: dict[str, object]) -> None:
    create(connect_peer(engine), "/a", **options)

    assert isinstance(root_entry(engine, "a"), Node)


def test_packed_leaf_becomes_a_parent(engine: Engine) -> None:
    peer = connect_peer(engine)

    create(peer, "/a")
    create(peer, "/a/b", data=b"2")

    assert peer.call(OpCode.EXISTS, r.ExistsRequest("/a", False)).stat.numChildren == 1
    assert peer.call(OpCode.GET_DATA, r.GetDataRequest("/a/b", False)).data == b"2"


def test_delete_of_packed_leaf_checks_its_version(engine: Engine) -> None:
    peer = connect_peer(engine)
    create(peer, "/a", data=b"123")
    size = engine.tree.data_size

    assert request_reply(peer, OpCode.DELETE, r.DeleteRequest("/a", 1)).err == -103
    assert request_reply(peer, OpCode.DELETE, r.DeleteRequest("/a", 0)).err == 0

    assert root_entry(engine, "a") is None
    assert engine.tree.data_size == size - len("/a123")


def test_create2_of_packed_leaf_answers_its_stat(engine: Engine) -> None:
    peer = connect_peer(engine)

    created = peer.call(OpCode.CREATE2, r.CreateRequest("/a", b"12", OPEN_ACL_UNSAFE, 0))

    assert isinstance(root_entry(engine, "a"), bytes)
    assert created.stat == peer.call(OpCode.EXISTS, r.ExistsRequest("/a", False)).stat
    assert created.stat.dataLength == 2


def test_snapshot_keeps_leaves_packed(engine: Engine) -> None:
    peer = connect_peer(engine)
    create(peer, "/a", data=b"1")
    create(peer, "/b", data=b"2")
    peer.call(OpCode.SET_DATA, r.SetDataRequest("/b", b"3", -1))
    other = make_engine()

    replace(other, take_snapshot(engine))

    assert root_entry(other, "a") == root_entry(engine, "a")
    assert isinstance(root_entry(other, "b"), Node)
    assert other.tree.find("/b").stat() == engine.tree.find("/b").stat()


def test_changed_leaf_is_not_packed_again() -> None:
    leaf = packed(b"data", 7, 9)
    assert unpacked(leaf).packed() == leaf
    for name in ("acl", "owner", "mzxid", "pzxid", "mtime", "version", "aversion", "creates"):
        node = unpacked(leaf)
        setattr(node, name, 1)
        assert node.packed() is None, name
