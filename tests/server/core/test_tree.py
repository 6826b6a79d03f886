"""The tree: what the first nodes look like, and what a change does to a node and to its parent."""

from __future__ import annotations

import pytest
from support.calls import acl_of, at, create, delete
from support.records import replace

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

# --- the first nodes ---


@pytest.mark.parametrize(
    ("path", "cversion", "aversion", "children"),
    [("/", -1, 0, 1), ("/zookeeper", -2, 0, 2), ("/zookeeper/quota", 0, 0, 0), ("/zookeeper/config", 0, -1, 0)],
)
def test_the_first_nodes_have_the_versions_of_zookeeper_and_times_of_zero(peer, path, cversion, aversion, children):
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
def test_the_first_nodes_have_the_acls_of_zookeeper(peer, path, acl):
    assert acl_of(peer, path) == acl


def test_the_first_child_of_the_root_lifts_its_cversion_to_zero(peer):
    peer.create("/x")

    assert peer.exists("/").cversion == 0


# --- what a change does to the parent ---


def test_cversion_counts_creations_and_deletions(peer):
    peer.create("/p")
    peer.create("/p/c")

    deleted = delete(peer, "/p/c")

    stat = peer.exists("/p")
    assert (stat.cversion, stat.numChildren, stat.pzxid) == (2, 0, deleted.zxid)


def test_pzxid_is_the_creation_of_the_node_until_it_gets_a_child(peer):
    made = create(peer, "/p")
    before = peer.exists("/p")
    child = create(peer, "/p/c")

    after = peer.exists("/p")

    assert (before.cversion, before.pzxid) == (0, made.zxid)
    assert (after.cversion, after.pzxid) == (1, child.zxid)


def test_a_change_below_a_child_does_not_touch_the_grandparent(peer):
    peer.create("/p")
    peer.create("/p/c")
    before = peer.exists("/p")

    peer.create("/p/c/d")
    peer.set("/p/c", b"new")
    peer.delete("/p/c/d")

    assert peer.exists("/p") == before


def test_a_new_child_changes_only_cversion_children_and_pzxid_of_its_parent(engine, peer):
    peer.create("/p", b"data")
    before = peer.exists("/p")
    at(engine, 100)

    made = create(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=1, numChildren=1, pzxid=made.zxid)


def test_a_lost_child_changes_only_cversion_children_and_pzxid_of_its_parent(engine, peer):
    peer.create("/p", b"data")
    peer.create("/p/c")
    before = peer.exists("/p")
    at(engine, 100)

    deleted = delete(peer, "/p/c")

    assert peer.exists("/p") == replace(before, cversion=2, numChildren=0, pzxid=deleted.zxid)
