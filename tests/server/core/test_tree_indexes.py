"""The tree's indexes for getAllChildrenNumber and getEphemerals match a full walk."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.calls import connect_peer, read_session_id
from support.engine import make_engine
from support.numbers import CONTAINER, EPHEMERAL, SEQUENTIAL
from support.peer import Peer

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.testing import Server
from zoolet.testing.state.history import TreeHistory

moderate = settings(max_examples=30, deadline=None)
Operation = tuple[OpCode, Record]


def below(peer: Peer, path: str) -> int:
    """Return the server's count of nodes below a node."""
    return peer.call(OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest(path)).totalNumber


def counted(engine: Engine) -> dict[str, int]:
    """Return the server's count of nodes below each node."""
    return {path: engine.tree.count_below(node) for path, node in engine.tree.walk()}


def counts_by_walk(engine: Engine) -> dict[str, int]:
    """Return the number of nodes below each node, counted by a walk."""
    return {path: sum(1 for _ in engine.tree.walk(path)) - 1 for path, _ in engine.tree.walk()}


def ephemerals(peer: Peer, prefix: str | None) -> list[str]:
    return sorted(peer.call(OpCode.GET_EPHEMERALS, r.GetEphemeralsRequest(prefix)).ephemerals)


def run_operation(peer: Peer, operation: Operation) -> None:
    """Run an operation, and ignore its result."""
    peer.send(operation[0], operation[1].encode())


names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts))
creates = st.builds(
    lambda path, flags: (OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, flags)),
    paths,
    st.sampled_from([0, 0, 0, EPHEMERAL, SEQUENTIAL, CONTAINER]),
)
deletes = st.builds(lambda path: (OpCode.DELETE, r.DeleteRequest(path, -1)), paths)
sets = st.builds(lambda path: (OpCode.SET_DATA, r.SetDataRequest(path, b"x", -1)), paths)
single = st.one_of(creates, creates, creates, deletes, sets)
multis = st.lists(single, min_size=1, max_size=5).map(lambda operations: (OpCode.MULTI, Multi(operations)))
anything = st.lists(st.one_of(single, single, multis), max_size=25)


class Multi:
    """A transaction with the interface of a record."""

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations

    def __repr__(self) -> str:
        return f"Multi({self.operations})"

    def encode(self) -> bytes:
        return wire.encode_operations(self.operations)


def make_filled_peer(operations: list[Operation]) -> Peer:
    """Return a client of a server with a few nodes, after trying these operations."""
    peer = connect_peer(make_engine())
    for path in ("/a", "/a/b", "/a/b/c", "/b"):
        peer.create(path)
    for operation in operations:
        run_operation(peer, operation)
    return peer


# --- counts ---


@pytest.mark.slow
@moderate
@given(anything, anything)
@example([], [(OpCode.DELETE, r.DeleteRequest("/a/b/c", -1)), (OpCode.DELETE, r.DeleteRequest("/a/b", -1))])
def test_cached_descendant_counts_equal_full_walk(before: list[Operation], after: list[Operation]) -> None:
    peer = make_filled_peer(before)
    below(peer, "/")

    for operation in after:
        run_operation(peer, operation)

    assert counted(peer.engine) == counts_by_walk(peer.engine)


@moderate
@given(anything)
def test_first_descendant_count_equals_full_walk(before: list[Operation]) -> None:
    peer = make_filled_peer(before)

    assert counted(peer.engine) == counts_by_walk(peer.engine)


@pytest.mark.slow
@moderate
@given(anything, anything, anything)
def test_descendant_counts_follow_restores_in_both_directions(
    before: list[Operation], between: list[Operation], after: list[Operation]
) -> None:
    peer = connect_peer(make_engine())
    history = TreeHistory(peer.engine)
    for operation in before:
        run_operation(peer, operation)
    first = history.snapshot()
    below(peer, "/")
    for operation in between:
        run_operation(peer, operation)
    second = history.snapshot()
    for operation in after:
        run_operation(peer, operation)

    history.restore_to(first)
    at_first = counted(peer.engine), counts_by_walk(peer.engine)
    history.restore_to(second)
    at_second = counted(peer.engine), counts_by_walk(peer.engine)

    assert at_first[0] == at_first[1]
    assert at_second[0] == at_second[1]


@moderate
@given(st.lists(creates, max_size=20))
def test_descendant_counts_decrease_at_session_end(operations: list[Operation]) -> None:
    peer = make_filled_peer([])
    leaver = connect_peer(peer.engine)
    below(peer, "/")
    for operation in operations:
        run_operation(leaver, operation)

    leaver.close()

    assert counted(peer.engine) == counts_by_walk(peer.engine)


def test_failed_transaction_keeps_descendant_counts() -> None:
    peer = make_filled_peer([])
    before = below(peer, "/a")
    create = OpCode.CREATE, r.CreateRequest("/a/new", b"", OPEN_ACL_UNSAFE, 0)
    fail = OpCode.DELETE, r.DeleteRequest("/nowhere", -1)

    peer.multi(create, (OpCode.CREATE, r.CreateRequest("/a/new/x", b"", OPEN_ACL_UNSAFE, 0)), fail)

    assert below(peer, "/a") == before == 2


def test_descendant_count_of_empty_path_includes_root() -> None:
    peer = make_filled_peer([])

    assert below(peer, "") == below(peer, "/") + 1


def test_repeated_descendant_count_of_large_tree_is_cheap() -> None:
    peer = connect_peer(make_engine())
    for number in range(20_000):
        peer.engine.tree.create(f"/{number}", str(number), peer.engine.tree.parent_of(f"/{number}"), b"", 0, 0, 1, 0)
    below(peer, "/")

    started = time.process_time()
    found = [below(peer, "/") for _ in range(200)]
    took = time.process_time() - started

    assert set(found) == {20_000 + 3}
    assert took < 0.5  # 5 ms; counting again each time would take a second


def test_populate_and_restore_update_descendant_counts() -> None:
    with Server() as server:
        engine = server._engine
        engine.tree.count_below(engine.tree.root)
        empty = server.snapshot()
        server.populate({"/a": {"b": {"c": b"1"}, "d": b"2"}, "/e": b""})
        populated = server.snapshot()
        server.restore(empty)
        at_empty = counted(engine)
        server.restore(populated)

        assert at_empty == {"/": 3, "/zookeeper": 2, "/zookeeper/quota": 0, "/zookeeper/config": 0}
        assert counted(engine) == counts_by_walk(engine)


# --- ephemeral nodes ---


odd_names = st.text(st.sampled_from("ab/é\U0001f600 \uffff"), min_size=1, max_size=4)
owned = st.lists(odd_names.map(lambda name: "/" + name.strip("/ ").replace("//", "/")), max_size=12)
prefixes = st.one_of(st.none(), st.sampled_from(["", " ", "/", "//", "/a", "a"]), odd_names.map("/".__add__))


@moderate
@given(owned, owned, prefixes)
@example(["/a", "/ab", "/b"], [], "/a")
@example(["/a\uffff", "/a\U0001f600", "/a"], [], "/a\uffff")
def test_indexed_ephemerals_equal_filtered_list(mine: list[str], removed: list[str], prefix: str | None) -> None:
    peer = connect_peer(make_engine())
    for path in [*mine, *removed]:
        run_operation(peer, (OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, EPHEMERAL)))
    ephemerals(peer, "/x")
    for path in removed:
        run_operation(peer, (OpCode.DELETE, r.DeleteRequest(path, -1)))
    assert peer.welcome is not None
    held = list(peer.engine.tree.ephemerals.get(peer.welcome.session_id, ()))

    found = ephemerals(peer, prefix)

    assert found == sorted(path for path in held if not (prefix or "").strip() or path.startswith(prefix or ""))


def test_ephemerals_list_only_own_session() -> None:
    engine = make_engine()
    first, second = connect_peer(engine), connect_peer(engine)
    first.create("/a1", flags=EPHEMERAL)
    second.create("/a2", flags=EPHEMERAL)

    assert (ephemerals(first, "/a"), ephemerals(second, "/a")) == (["/a1"], ["/a2"])


def fail_a_transaction(peer: Peer) -> None:
    create = OpCode.CREATE, r.CreateRequest("/a2", b"", OPEN_ACL_UNSAFE, EPHEMERAL)
    peer.multi(create, (OpCode.DELETE, r.DeleteRequest("/a1", -1)), (OpCode.DELETE, r.DeleteRequest("/nowhere", -1)))


def go_back(peer: Peer) -> None:
    history = TreeHistory(peer.engine)
    before = history.snapshot()
    peer.create("/a2", flags=EPHEMERAL)
    peer.delete("/a1")
    history.restore_to(before)


UNDOES = {"a transaction": fail_a_transaction, "a snapshot": go_back}


@pytest.mark.parametrize("undo", ["a transaction", "a snapshot"])
def test_undone_ephemerals_are_not_found(undo: str) -> None:
    peer = connect_peer(make_engine())
    peer.create("/a1", flags=EPHEMERAL)
    ephemerals(peer, "/a")

    UNDOES[undo](peer)

    assert ephemerals(peer, "/a") == ["/a1"]


def test_failed_multi_keeps_ephemeral_index() -> None:
    peer = connect_peer(make_engine())
    peer.create("/e", flags=EPHEMERAL)
    peer.delete("/e")
    before = dict(peer.engine.tree.ephemerals)

    peer.multi(
        (OpCode.CREATE, r.CreateRequest("/e", b"", OPEN_ACL_UNSAFE, EPHEMERAL)),
        (OpCode.DELETE, r.DeleteRequest("/no", -1)),
    )

    assert read_session_id(peer) in before
    assert peer.engine.tree.ephemerals.keys() == before.keys()
