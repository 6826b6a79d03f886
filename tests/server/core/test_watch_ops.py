"""addWatch, checkWatches and removeWatches.

Source: AddWatchRequest, CheckWatchesRequest, RemoveWatchesRequest; DataTree.containsWatcher, removeWatch.
"""

from __future__ import annotations

import struct

import pytest
from support.calls import add_watch, check_watches, connect_peer, remove_watches, request_error
from support.frames import NULL_VALUE, unhex
from support.numbers import CHANGED, MARSHALLING_ERROR, NO_WATCHER, OK, PERSISTENT_WATCH, RECURSIVE_WATCH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode

# --- addWatch ---


@pytest.mark.parametrize("mode", [PERSISTENT_WATCH, RECURSIVE_WATCH])
def test_add_watch_reply_has_four_zero_bytes(peer, mode):
    reply = add_watch(peer, "/missing", mode)

    assert (reply.err, reply.body) == (OK, unhex("00000000"))


@pytest.mark.parametrize("mode", [2, -1, 7])
def test_unknown_mode_of_add_watch_is_marshalling_error(peer, mode):
    reply = add_watch(peer, "/", mode)

    assert (reply.err, reply.body) == (MARSHALLING_ERROR, b"")


def test_watch_on_null_path_is_accepted(peer):
    reply = add_watch(peer, None, PERSISTENT_WATCH)

    assert (reply.err, reply.body) == (OK, unhex("00000000"))
    assert peer.create("/a") == "/a"
    assert peer.receive() == []


# --- checkWatches ---


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_checking_or_removing_missing_watch_fails(peer, kind):
    assert check_watches(peer, "/", kind) == NO_WATCHER
    assert remove_watches(peer, "/", kind) == NO_WATCHER


@pytest.mark.parametrize("kind", [0, 6, 7, -1])
def test_unknown_type_of_watch_is_marshalling_error(peer, kind):
    peer.get("/", watch=True)

    assert check_watches(peer, "/", kind) == MARSHALLING_ERROR
    assert remove_watches(peer, "/", kind) == MARSHALLING_ERROR


@pytest.mark.parametrize("kind", [1, 2, 3, 4, 5])
def test_watches_of_second_connection_are_not_found(peer, other, kind):
    other.get("/", watch=True)
    other.children("/", watch=True)
    add_watch(other, "/", PERSISTENT_WATCH)
    add_watch(other, "/", RECURSIVE_WATCH)

    assert check_watches(peer, "/", kind) == NO_WATCHER
    assert remove_watches(peer, "/", kind) == NO_WATCHER
    assert check_watches(other, "/", kind) == OK


def test_data_watch_matches_only_data_or_any(peer):
    peer.get("/", watch=True)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, OK, OK, NO_WATCHER, NO_WATCHER]


def test_child_watch_matches_only_children_or_any(peer):
    peer.children("/", watch=True)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [OK, NO_WATCHER, OK, NO_WATCHER, NO_WATCHER]


def test_persistent_watch_matches_persistent_or_any(peer):
    add_watch(peer, "/", PERSISTENT_WATCH)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, NO_WATCHER, OK, OK, NO_WATCHER]


def test_recursive_watch_matches_own_path_only(peer):
    add_watch(peer, "/", RECURSIVE_WATCH)

    assert [check_watches(peer, "/", kind) for kind in (1, 2, 3, 4, 5)] == [NO_WATCHER, NO_WATCHER, OK, NO_WATCHER, OK]
    assert check_watches(peer, "/zookeeper", 3) == NO_WATCHER


def test_watch_on_missing_node_is_data_watch(peer):
    request_error(peer, OpCode.EXISTS, r.ExistsRequest("/missing", True))

    assert check_watches(peer, "/missing", 2) == OK


def test_fired_watch_cannot_be_found(peer, other):
    peer.get("/", watch=True)

    other.set("/", b"new")

    assert check_watches(peer, "/", 2) == NO_WATCHER


@pytest.mark.parametrize("kind", [4, 5])
def test_in_3_8_persistent_watch_types_are_unknown(old, kind):
    assert check_watches(old, "/", kind) == MARSHALLING_ERROR
    assert remove_watches(old, "/", kind) == MARSHALLING_ERROR


def test_in_3_8_watch_of_other_client_is_found_but_not_removable(old):
    second = connect_peer(old.engine)
    second.get("/", watch=True)

    assert check_watches(old, "/", 2) == OK
    assert remove_watches(old, "/", 2) == NO_WATCHER


# --- removeWatches ---


def test_watch_is_removed_only_once(peer, other):
    peer.get("/", watch=True)

    assert remove_watches(peer, "/", 2) == OK
    assert remove_watches(peer, "/", 2) == NO_WATCHER
    other.set("/", b"new")
    assert peer.receive() == []


def test_removal_with_type_any_removes_all_watches(peer, other):
    peer.get("/", watch=True)
    peer.children("/", watch=True)
    add_watch(peer, "/", PERSISTENT_WATCH)
    add_watch(peer, "/", RECURSIVE_WATCH)

    removed = remove_watches(peer, "/", 3)
    other.create("/x")
    other.set("/", b"new")

    assert removed == OK
    assert peer.receive() == []
    assert check_watches(peer, "/", 3) == NO_WATCHER


def test_removing_persistent_watch_keeps_other_watches(peer, other):
    peer.create("/p")
    peer.get("/p", watch=True)
    add_watch(peer, "/p", PERSISTENT_WATCH)

    removed = remove_watches(peer, "/p", 4)
    other.create("/p/c")
    other.set("/p", b"1")
    other.set("/p", b"2")

    assert removed == OK
    assert peer.receive() == [(CHANGED, "/p")]


# --- relative and null paths ---


def test_in_3_8_check_of_relative_path_fails_if_watches_exist(old: Peer) -> None:
    before = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("a/b", 1).encode())
    old.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1))

    after = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("a/b", 1).encode())

    assert [reply.err for reply in before + after] == [-121, -5]


def test_in_3_8_check_of_slashless_path_is_malformed(old: Peer) -> None:
    (reply,) = old.send(OpCode.CHECK_WATCHES, r.CheckWatchesRequest("rel", 3).encode())

    assert reply.err == -5


def watch_request(kind: int) -> bytes:
    """Return the body of a checkWatches or removeWatches request with a null path."""
    return NULL_VALUE + struct.pack(">i", kind)


@pytest.mark.parametrize("release", ["old", "new"])
def test_watch_on_null_path_can_be_removed(release: str, request: pytest.FixtureRequest) -> None:
    peer: Peer = request.getfixturevalue(release)

    (reply,) = peer.send(OpCode.REMOVE_WATCHES, watch_request(3))

    assert (reply.err, reply.body) == (-121, b"")


def test_in_3_8_check_of_null_path_is_malformed(old: Peer) -> None:
    (reply,) = old.send(OpCode.CHECK_WATCHES, watch_request(3))

    assert reply.err == -5


def test_in_3_9_check_of_null_path_finds_no_watch(new: Peer) -> None:
    (reply,) = new.send(OpCode.CHECK_WATCHES, watch_request(3))

    assert reply.err == -121


def test_in_3_9_watch_on_null_path_can_be_removed(new: Peer) -> None:
    added = new.send(OpCode.ADD_WATCH, watch_request(0))
    found = new.send(OpCode.CHECK_WATCHES, watch_request(4))
    removed = new.send(OpCode.REMOVE_WATCHES, watch_request(4))
    again = new.send(OpCode.REMOVE_WATCHES, watch_request(4))

    assert [reply.err for reply in added + found + removed + again] == [0, 0, 0, -121]
