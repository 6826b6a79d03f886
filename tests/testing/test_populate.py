"""``Server.populate``: the created nodes, and valid and invalid descriptions of a tree."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from support.embedded import node_data
from support.wire import Wire

from zoolet.client import acl
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, READ_ACL_UNSAFE, Id
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, Znode
from zoolet.testing.state.populate import flatten

NO_NODE, NO_AUTH, QUOTA_EXCEEDED = -101, -102, -125


def test_populate_accepts_every_type_of_value(server: Server) -> None:
    server.populate(
        {
            "/bytes": b"\x00\xff",
            "/text": "grün",
            "/none": None,
            "/dict": {"x": "1", "y": {"z": b"2"}},
            "/znode": Znode("data", children={"c": None}),
            "relative": "r",
            "/deep/er/still": "d",
        }
    )

    assert node_data(server) == {
        "/bytes": b"\x00\xff",
        "/text": "grün".encode(),
        "/none": None,
        "/dict": b"",
        "/dict/x": b"1",
        "/dict/y": b"",
        "/dict/y/z": b"2",
        "/znode": b"data",
        "/znode/c": None,
        "/relative": b"r",
        "/deep": b"",
        "/deep/er": b"",
        "/deep/er/still": b"d",
    }


def test_populated_nodes_have_acls_and_kinds_of_znodes(server: Server, wire: Wire) -> None:
    server.populate({"/locked": Znode("x", acl=READ_ACL_UNSAFE), "/c": Znode(container=True), "/t": Znode(ttl=2.5)})

    tree = server.tree()
    assert tree["/locked"].acl == READ_ACL_UNSAFE
    assert (tree["/c"].container, tree["/c"].ttl) == (True, None)
    assert (tree["/t"].container, tree["/t"].ttl) == (False, 2.5)
    assert wire.set_data("/locked", b"") == NO_AUTH


def test_parent_after_child_gets_its_acl(server: Server) -> None:
    server.populate({"/a/b/c": "1", "/a": Znode("2", acl=READ_ACL_UNSAFE), "/a/b": Znode(container=True)})

    tree = server.tree()
    assert (tree["/a"].data, tree["/a"].acl, tree["/a/b"].container) == (b"2", READ_ACL_UNSAFE, True)


def test_populate_keeps_order_except_for_late_parents() -> None:
    nodes = dict.fromkeys(["/b", "/a/x/y", "/a-b", "/a/x", "/c", "/a", "/d/e", "/"], "")

    assert list(flatten(nodes)) == ["/", "/b", "/a", "/a/x", "/a/x/y", "/a-b", "/c", "/d/e"]


def test_deep_path_is_read_in_linear_memory() -> None:
    path = "/a" * 20_000
    tracemalloc.start()
    try:
        flatten({path: "", f"{path}/x": ""})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 100 * len(path)


@pytest.mark.parametrize("nodes", [{"a": "1", "/a": "2"}, {"/a": {"b": ""}, "/a/b/": "1"}])
def test_path_that_occurs_twice_is_refused(server: Server, nodes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"/a(/b)? occurs twice"):
        server.populate(nodes)

    assert node_data(server) == {}


def test_populate_sets_data_of_existing_node(server: Server) -> None:
    server.populate({"/a": "1", "/a/b": "2"})
    server.populate({"/a": "new"})

    assert node_data(server) == {"/a": b"new", "/a/b": b"2"}
    assert server.tree()["/a"].version == 1


def test_populate_fires_watches(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    server.populate({"/a": ""})
    wire.ask(OpCode.PING)

    assert wire.events == [(1, "/a")]


def test_children_created_sets_next_sequence_number(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=41, children={"first": ""})})

    assert wire.sequential("/a/n-") == "/a/n-0000000042"


def test_sequence_number_may_overflow_after_populate(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=2**31 - 1)})

    assert [wire.sequential("/a/n-") for _ in range(2)] == ["/a/n-2147483647", "/a/n--2147483648"]


def test_overflowing_sequence_counts_initial_children(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=2**31 - 1, children={"last": ""})})

    assert wire.sequential("/a/n-") == "/a/n--2147483648"


def test_restore_resets_number_of_children_created(server: Server, wire: Wire) -> None:
    empty = server.snapshot()
    server.populate({"/a": Znode(children_created=7)})
    populated = server.snapshot()
    wire.sequential("/a/n-")

    server.restore(empty)
    server.restore(populated)

    assert wire.sequential("/a/n-") == "/a/n-0000000007"


def test_empty_populate_is_accepted(server: Server) -> None:
    server.populate({})

    assert dict(server.tree()) == {}


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ({"/bad": 3}, "/bad"),
        ({"/bad": ["x"]}, "/bad"),
        ({"/bad": bytearray(b"x")}, "/bad"),
        ({"/a": {"b": {"bad": 1.5}}}, "/a/b/bad"),
        ({"/a//bad": "x"}, "/a//bad"),
        ({"/.": "x"}, "/."),
        ({"/a": {"..": "x"}}, r"\.\."),
        ({"/bad\0": "x"}, "bad"),
        ({"/bad": Znode(ttl=-1)}, "/bad"),
        ({"/bad": Znode(ttl=0)}, "/bad"),
        ({"/bad": Znode(ttl=1, container=True)}, "/bad"),
        ({"/bad": Znode(children=3)}, "/bad"),  # type: ignore[arg-type]
        (None, "None"),
        (3, "3"),
    ],
    ids=str,
)
def test_populate_rejects_invalid_node_atomically(server: Server, nodes: Any, named: str) -> None:
    both = {"/fine": "x", **nodes} if isinstance(nodes, dict) else nodes

    with pytest.raises(ValueError, match=named):
        server.populate(both)

    assert dict(server.tree()) == {}


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ({3: "x"}, "3"),
        ({"/bad": Znode(data=3)}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(ttl="x")}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl="x")}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl="")}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl={})}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl=[])}, "/bad"),
        pytest.param({"/bad": Znode(acl=iter(READ_ACL_UNSAFE))}, "/bad", id="iterator"),  # type: ignore[arg-type]
        ({"/bad": Znode(acl=[ACL(31, Id("digest", None))])}, "/bad"),
        ({"/bad": Znode(children_created=2**31)}, "/bad"),
        ({"/bad": Znode(children_created=-(2**31) - 1)}, "/bad"),
        ({"/bad": Znode(children_created=1.0)}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(children_created=True)}, "/bad"),
    ],
    ids=str,
)
def test_error_names_invalid_node(server: Server, nodes: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.populate(nodes)


def test_invalid_ttl_of_later_node_keeps_tree_empty(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(ttl="x")})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}


def test_invalid_data_of_later_node_keeps_tree_empty(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(data=3)})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}


def test_acl_of_znode_may_contain_lists_of_entries(server: Server) -> None:
    entries = acl.ip("127.0.0.1"), acl.READ_ONLY

    server.populate({"/a": Znode(acl=[entries[0], [entries[1]]])})

    assert server.tree()["/a"].acl == entries[0] + entries[1]
