"""Persistent and recursive watches: their events, and their combination with one-shot watches.

Source: PathParentIterator, WatchManager, WatchManagerOptimized.
"""

from __future__ import annotations

from support.calls import add_watch, single_entry_acl
from support.numbers import CHANGED, CHILDREN, CREATED, DELETED, EPHEMERAL, PERSISTENT_WATCH, RECURSIVE_WATCH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.enums import Perm
from zoolet.protocol.operations import OpCode


def test_recursive_watch_reports_no_child_changes(peer, other):
    add_watch(peer, "/r", RECURSIVE_WATCH)

    other.create("/r")
    other.create("/r/c")
    other.create("/r/c/d")
    other.set("/r/c/d", b"new")
    other.delete("/r/c/d")
    other.set("/r", b"new")

    assert peer.receive() == [
        (CREATED, "/r"),
        (CREATED, "/r/c"),
        (CREATED, "/r/c/d"),
        (CHANGED, "/r/c/d"),
        (DELETED, "/r/c/d"),
        (CHANGED, "/r"),
    ]


def test_recursive_watch_ignores_path_with_same_prefix(peer, other):
    add_watch(peer, "/r", RECURSIVE_WATCH)

    other.create("/rx")
    other.create("/rx/c")

    assert peer.receive() == []


def test_recursive_watch_on_root_reports_everything(peer, other):
    add_watch(peer, "/", RECURSIVE_WATCH)

    other.create("/a")
    other.set("/", b"new")
    other.delete("/a")

    assert peer.receive() == [(CREATED, "/a"), (CHANGED, "/"), (DELETED, "/a")]


def test_persistent_watch_fires_repeatedly(peer, other):
    add_watch(peer, "/p", PERSISTENT_WATCH)

    other.create("/p")
    other.create("/p/c")
    other.set("/p/c", b"new")
    other.create("/p/c/d")
    other.delete("/p/c/d")
    other.delete("/p/c")
    other.set("/p", b"new")
    other.delete("/p")
    other.create("/p")

    assert peer.receive() == [
        (CREATED, "/p"),
        (CHILDREN, "/p"),
        (CHILDREN, "/p"),
        (CHANGED, "/p"),
        (DELETED, "/p"),
        (CREATED, "/p"),
    ]


def test_persistent_and_one_shot_watch_share_event(peer, other):
    peer.create("/p")
    add_watch(peer, "/p", PERSISTENT_WATCH)
    peer.get("/p", watch=True)

    other.set("/p", b"1")
    other.set("/p", b"2")

    assert peer.receive() == [(CHANGED, "/p"), (CHANGED, "/p")]


def test_persistent_watch_reports_each_lost_ephemeral(peer, other):
    peer.create("/p")
    other.create("/p/a", flags=EPHEMERAL)
    other.create("/p/b", flags=EPHEMERAL)
    other.create("/p/c", flags=EPHEMERAL)
    add_watch(peer, "/p", PERSISTENT_WATCH)

    other.close()

    assert peer.receive() == [(CHILDREN, "/p"), (CHILDREN, "/p"), (CHILDREN, "/p")]


def test_recursive_watch_reports_only_readable_nodes(peer, other):
    peer.create("/p", acl=single_entry_acl(Perm.ALL & ~Perm.READ))
    add_watch(other, "/p", RECURSIVE_WATCH)

    peer.set("/p", b"1")
    peer.create("/p/open")
    peer.create("/p/shut", acl=single_entry_acl(Perm.WRITE))
    peer.delete("/p/shut")

    assert other.receive() == [(CREATED, "/p/open")]


def test_in_3_8_one_shot_watch_replaces_persistent_one(old):
    old.create("/p")
    add_watch(old, "/p", PERSISTENT_WATCH)
    old.get("/p", watch=True)

    old.set("/p", b"1")
    old.set("/p", b"2")

    assert old.receive() == [(CHANGED, "/p")]


def test_in_3_8_recursive_watch_replaces_child_watch(old: Peer) -> None:
    old.children("/", watch=True)
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    old.create("/a")

    assert old.receive() == [(1, "/a")]


def test_in_3_8_replaced_recursive_watch_keeps_deletes(old: Peer) -> None:
    old.create("/a")
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))
    old.get("/", watch=True)

    old.set("/a", b"1")
    old.delete("/a")

    assert old.receive() == [(2, "/a")]


def test_in_3_9_recursive_and_child_watch_coexist(new: Peer) -> None:
    new.children("/", watch=True)
    new.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    new.create("/a")

    assert new.receive() == [(1, "/a"), (4, "/")]
