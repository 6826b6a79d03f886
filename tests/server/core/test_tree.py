"""The tree: its initial nodes, and the effect of changes on a node and its parent."""

from __future__ import annotations

import pytest
from support.calls import create, delete, read_acl, tick_at
from support.records import replace

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

# --- initial nodes ---


@pytest.mark.parametrize(
    ("path", "cversion", "aversion", "children"),
    [("/", -1, 0, 1), ("/zookeeper", -2, 0, 2), ("/zookeeper/quota", 0, 0, 0), ("/zookeeper/config", 0, -1, 0)],
)
def test_initial_nodes_have_stats_of_zookeeper(peer, path, cversion, aversion, children):
    data, stat = peer.get(path)

    assert data == b""
    assert stat == r.Stat(0, 0, 0, 0, 0, cversion, aversion, 0, 0, children, 0)


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/", OPEN_ACL_UNSAFE),
        ("/zookeeper", OPEN_ACL_UNSAFE),
        ("/zookeeper/quota", OPEN_ACL_UNSAFE),
        ("/zookeeper/config", READ_ACL_UNSAFE),
    ],
)
def test_first_nodes_have_acls_of_zookeeper(peer, path, acl):
    assert read_acl(peer, path) == acl


def test_first_child_of_root_raises_cversion_to_zero(peer):
    peer.create("/x")

    assert peer.exists("/").cversion == 0


# --- the effect of a change on the parent ---


def test_cversion_counts_creations_and_deletions(peer):
    peer.create("/p")
    peer.create("/p/c")

    deleted = delete(peer, "/p/c")

    stat = peer.exists("/p")
    assert (stat.cversion, stat.numChildren, stat.pzxid) == (2, 0, deleted.zxid)


def test_pzxid_is_creation_of_node_until_first_child(peer):
    made = create(peer, "/p")
    before = peer.exists("/p")
    child = create(peer, "/p/c")

    after = peer.exists("/p")

    assert (before.cversion, before.pzxid) == (0, made.zxid)
    assert (after.cversion, after.pzxid) == (1, child.zxid)


def test_change_below_child_does_not_change_stat_of_grandparent(peer):
    peer.create("/p")
    peer.create("/p/c")
    before = peer.exists("/p")

    peer.create("/p/c/d")
    peer.set("/p/c", b"new")
    peer.delete("/p/c/d")

    assert peer.exists("/p") == before


def test_new_child_changes_three_fields_of_parent(engine, peer):
    peer.create("/p", b"data")
    before = peer.exists("/p")
    tick_at(engine, 100)

    made = create(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=1, numChildren=1, pzxid=made.zxid)


def test_deleted_child_changes_three_fields_of_parent(engine, peer):
    peer.create("/p", b"data")
    peer.create("/p/c")
    before = peer.exists("/p")
    tick_at(engine, 100)

    deleted = delete(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=2, numChildren=0, pzxid=deleted.zxid)


def test_tree_count_includes_packed_and_looked_up_nodes(engine, peer):
    for path, data in (("/a", b"12"), ("/a/b", b"3"), ("/a/c", b"45"), ("/a/c/d", b"")):
        peer.create(path, data)
    peer.get("/a/b")

    assert [engine.tree.count(path) for path in ("/a", "/a/b", "/a/c", "/none")] == [(4, 5), (1, 1), (2, 2), (0, 0)]
