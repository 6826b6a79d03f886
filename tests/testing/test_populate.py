"""``Server.populate``: what can be written as a tree, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from support.embedded import data
from support.wire import Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import READ_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import Znode

NO_NODE, NO_AUTH, QUOTA_EXCEEDED = -101, -102, -125


def test_values_are_bytes_text_nothing_dicts_and_znodes(server: Server) -> None:
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

    assert data(server) == {
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


def test_znodes_have_acls_and_kinds(server: Server, wire: Wire) -> None:
    server.populate({"/locked": Znode("x", acl=READ_ACL_UNSAFE), "/c": Znode(container=True), "/t": Znode(ttl=2.5)})

    tree = server.tree()
    assert tree["/locked"].acl == READ_ACL_UNSAFE
    assert (tree["/c"].container, tree["/c"].ttl) == (True, None)
    assert (tree["/t"].container, tree["/t"].ttl) == (False, 2.5)
    assert wire.set_data("/locked", b"") == NO_AUTH


def test_a_node_that_is_there_gets_the_data(server: Server) -> None:
    server.populate({"/a": "1", "/a/b": "2"})
    server.populate({"/a": "new"})

    assert data(server) == {"/a": b"new", "/a/b": b"2"}
    assert server.tree()["/a"].version == 1


def test_a_population_fires_watches(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    server.populate({"/a": ""})
    wire.ask(OpCode.PING)

    assert wire.events == [(1, "/a")]


def test_a_node_may_have_had_children_before(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=41, children={"first": ""})})

    assert wire.sequential("/a/n-") == "/a/n-0000000042"


def test_sequence_numbers_may_be_about_to_turn_negative(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=2**31 - 1)})

    assert [wire.sequential("/a/n-") for _ in range(2)] == ["/a/n-2147483647", "/a/n--2147483648"]


def test_nodes_are_made_below_one_whose_sequence_numbers_turn_negative(server: Server, wire: Wire) -> None:
    server.populate({"/a": Znode(children_created=2**31 - 1, children={"last": ""})})

    assert wire.sequential("/a/n-") == "/a/n--2147483648"


def test_a_restore_brings_the_count_of_children_back(server: Server, wire: Wire) -> None:
    empty = server.snapshot()
    server.populate({"/a": Znode(children_created=7)})
    populated = server.snapshot()
    wire.sequential("/a/n-")

    server.restore(empty)
    server.restore(populated)

    assert wire.sequential("/a/n-") == "/a/n-0000000007"


def test_nothing_to_make_is_fine(server: Server) -> None:
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
def test_what_is_no_node_is_named_and_nothing_is_made(server: Server, nodes: Any, named: str) -> None:
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
        ({"/bad": Znode(children_created=2**31)}, "/bad"),
        ({"/bad": Znode(children_created=-(2**31) - 1)}, "/bad"),
        ({"/bad": Znode(children_created=1.0)}, "/bad"),  # type: ignore[arg-type]
        ({"/bad": Znode(children_created=True)}, "/bad"),
    ],
    ids=str,
)
def test_more_that_is_no_node_is_named(server: Server, nodes: Any, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.populate(nodes)


def test_a_bad_ttl_that_is_found_late_leaves_nothing(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(ttl="x")})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}


def test_bad_data_that_is_found_late_leaves_nothing(server: Server) -> None:
    with pytest.raises((ValueError, TypeError)):
        server.populate({"/fine": "x", "/bad": Znode(data=3)})  # type: ignore[arg-type]

    assert dict(server.tree()) == {}
