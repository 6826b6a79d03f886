"""One-shot watches: requests that set them, changes that fire them, the order of events, and missing permissions.

Source: WatchManager, DataTree, FinalRequestProcessor.
"""

from __future__ import annotations

import pytest
from support.calls import (
    add_watch,
    connect_peer,
    create_op,
    delete_op,
    request_error,
    set_acl,
    set_data,
    set_op,
    single_entry_acl,
)
from support.frames import long, request, string, unhex
from support.numbers import CHANGED, CHILDREN, CREATED, DELETED, NO_NODE, PERSISTENT_WATCH, RECURSIVE_WATCH
from support.peer import Peer
from support.private_nodes import PRIVATE, connect_owner

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import AddWatchMode, Perm
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.operations import OpCode

# --- requests that set a watch ---


def test_get_data_of_missing_node_sets_no_watch(peer, other):
    missing = request_error(peer, OpCode.GET_DATA, r.GetDataRequest("/m", True))

    other.create("/m")

    assert missing == NO_NODE
    assert peer.receive() == []


def test_exists_of_missing_node_sets_watch(peer, other):
    missing = request_error(peer, OpCode.EXISTS, r.ExistsRequest("/m", True))

    other.create("/m")

    assert missing == NO_NODE
    assert peer.receive() == [(CREATED, "/m")]


def test_get_data_and_exists_watch_fire_once(peer, other):
    request_error(peer, OpCode.GET_DATA, r.GetDataRequest("/m", True))
    request_error(peer, OpCode.EXISTS, r.ExistsRequest("/m", True))

    other.create("/m")
    other.set("/m", b"new")

    assert peer.receive() == [(CREATED, "/m")]


def test_get_children_of_missing_node_sets_no_watch(peer, other):
    request_error(peer, OpCode.GET_CHILDREN, r.GetChildrenRequest("/m", True))
    request_error(peer, OpCode.GET_CHILDREN2, r.GetChildrenRequest("/m", True))

    other.create("/m")
    other.create("/m/c")
    other.delete("/m/c")
    other.delete("/m")

    assert peer.receive() == []


def test_exists_and_get_data_share_one_watch(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.exists("/m", watch=True)

    other.set("/m", b"1")
    other.set("/m", b"2")

    assert peer.receive() == [(CHANGED, "/m")]


# --- changes that fire a watch ---


def test_deletion_is_sent_once_per_connection(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.children("/m", watch=True)
    peer.children("/", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m"), (CHILDREN, "/")]


def test_one_deletion_uses_up_data_and_child_watch(peer, other):
    peer.create("/m")
    peer.get("/m", watch=True)
    peer.children("/m", watch=True)
    other.delete("/m")
    peer.receive()

    other.create("/m")
    other.create("/m/c")
    other.set("/m", b"new")

    assert peer.receive() == []


def test_child_watch_alone_reports_deletion(peer, other):
    peer.create("/m")
    peer.children("/m", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]


def test_each_connection_is_notified(engine, peer, other):
    third = connect_peer(engine)
    peer.create("/m")
    peer.get("/m", watch=True)
    third.children("/m", watch=True)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]
    assert third.receive() == [(DELETED, "/m")]


def test_recursive_and_child_watch_share_deletion_event(peer, other):
    peer.create("/m")
    peer.children("/m", watch=True)
    add_watch(peer, "/", RECURSIVE_WATCH)

    other.delete("/m")

    assert peer.receive() == [(DELETED, "/m")]


def test_setting_acl_fires_no_watch(peer, other):
    peer.create("/n")
    other.get("/n", watch=True)
    other.children("/n", watch=True)
    other.children("/", watch=True)
    add_watch(other, "/n", PERSISTENT_WATCH)
    add_watch(other, "/", RECURSIVE_WATCH)

    set_acl(peer, "/n", OPEN_ACL_UNSAFE)

    assert other.receive() == []


# --- events ---


def test_notification_has_bytes_of_zookeeper(peer, other):
    peer.create("/h")
    peer.get("/h", watch=True)

    changed = set_data(other, "/h")

    assert peer.pop_output() == unhex("0000001e ffffffff") + long(changed.zxid) + unhex(
        "00000000 00000003 00000003 00000002 2f68"
    )


def test_event_precedes_reply_of_causing_write(peer):
    peer.create("/p")
    peer.children("/p", watch=True)

    replies = peer.send(OpCode.CREATE, r.CreateRequest("/p/x", b"", OPEN_ACL_UNSAFE, 0).encode(), xid=9)

    assert [(reply.xid, reply.body) for reply in replies] == [
        (-1, unhex("00000004 00000003") + string("/p")),
        (9, string("/p/x")),
    ]


def test_events_of_multi_keep_order_and_precede_reply(peer):
    peer.create("/own")
    request_error(peer, OpCode.EXISTS, r.ExistsRequest("/n1", True))
    peer.get("/own", watch=True)
    peer.children("/", watch=True)

    operations = wire.encode_operations([create_op("/n1"), set_op("/own"), delete_op("/n1")])
    replies = peer.send(OpCode.MULTI, operations, xid=9)

    assert [reply.xid for reply in replies] == [-1, -1, -1, 9]
    assert peer.receive() == [(CREATED, "/n1"), (CHILDREN, "/"), (CHANGED, "/own")]


def test_event_precedes_read_showing_change(peer, other):
    peer.create("/p")
    peer.get("/p", watch=True)
    other.set("/p", b"new")

    replies = peer.send(OpCode.GET_DATA, r.GetDataRequest("/p", False).encode(), xid=9)

    assert [reply.xid for reply in replies] == [-1, 9]


def test_in_3_8_zxid_of_notification_is_minus_one(old):
    old.create("/h")
    old.get("/h", watch=True)

    raw = old.feed(request(9, OpCode.SET_DATA, r.SetDataRequest("/h", b"", -1)))

    assert raw[:34] == unhex("0000001e ffffffff ffffffffffffffff 00000000 00000003 00000003 00000002 2f68")


# --- unreadable nodes ---


def test_dropped_event_of_private_node_uses_up_watch(peer, other):
    peer.create("/p")
    other.get("/p", watch=True)
    set_acl(peer, "/p", single_entry_acl(Perm.ALL & ~Perm.READ))

    peer.set("/p", b"1")
    set_acl(peer, "/p", OPEN_ACL_UNSAFE)
    peer.set("/p", b"2")

    assert other.receive() == []


def test_children_changed_needs_right_to_read_parent(peer, other):
    peer.create("/p")
    other.children("/p", watch=True)
    set_acl(peer, "/p", single_entry_acl(Perm.ALL & ~Perm.READ))

    peer.create("/p/c")

    assert other.receive() == []


@pytest.mark.parametrize("mode", [AddWatchMode.PERSISTENT, AddWatchMode.PERSISTENT_RECURSIVE])
def test_persistent_watch_reveals_no_private_nodes(private: Peer, mode: AddWatchMode) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/private", mode))
    owner = connect_owner(private.engine)

    owner.set("/private", b"1")
    owner.create("/private/x", acl=PRIVATE)
    owner.delete("/private/x")
    owner.multi((OpCode.SET_DATA, r.SetDataRequest("/private/child", b"2", -1)))

    assert private.receive() == []


def test_watch_on_root_reveals_no_private_node(private: Peer) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", AddWatchMode.PERSISTENT_RECURSIVE))
    owner = connect_owner(private.engine)

    owner.create("/private/x", acl=PRIVATE)
    owner.delete("/private/x")

    assert private.receive() == []


def test_creation_of_private_node_is_not_reported(private: Peer) -> None:
    (reply,) = private.send(OpCode.EXISTS, r.ExistsRequest("/later", True).encode())
    assert reply.err == ErrorCode.NO_NODE

    connect_owner(private.engine).create("/later", acl=PRIVATE)

    assert private.receive() == []


def test_watch_is_silent_after_its_node_becomes_private(private: Peer) -> None:
    owner = connect_owner(private.engine)
    owner.create("/a")
    private.get("/a", watch=True)
    owner.call(OpCode.SET_ACL, r.SetACLRequest("/a", PRIVATE, -1))

    owner.set("/a", b"x")

    assert private.receive() == []


def test_deletion_of_private_ephemeral_is_not_reported(private: Peer) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/private", AddWatchMode.PERSISTENT_RECURSIVE))
    owner = connect_owner(private.engine)
    owner.create("/private/e", flags=1, acl=PRIVATE)

    owner.close()

    assert private.receive() == []
