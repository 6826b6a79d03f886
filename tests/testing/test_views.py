"""A test's views of a server: nodes, sessions, watches and operations, frozen at one moment."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack
from typing import Any

import pytest
from support.calls import connect_peer
from support.engine import make_engine
from support.wire import EPHEMERAL, Wire

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server
from zoolet.testing.state.views import sessions

NO_NODE, NO_AUTH, SESSION_EXPIRED, QUOTA_EXCEEDED = -101, -102, -112, -125


def test_views_do_not_change_with_server(server: Server, wire: Wire) -> None:
    server.populate({"/a": "1"})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    views = server.tree(), server.sessions(), server.watches(), server.ops()
    before = dict(views[0]), dict(views[1]), tuple(views[2]), tuple(views[3])

    server.populate({"/a": "2", "/b": ""})
    server.expire("all")

    assert (dict(views[0]), dict(views[1]), tuple(views[2]), tuple(views[3])) == before
    assert dict(server.tree()) != before[0]


def test_views_cannot_be_changed(server: Server, wire: Wire) -> None:
    server.populate({"/a": "1"})
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with pytest.raises(TypeError):
        server.tree()["/b"] = server.tree()["/a"]  # type: ignore[index]
    with pytest.raises(TypeError):
        del server.sessions()[wire.id]  # type: ignore[attr-defined]
    for view in (server.tree()["/a"], server.sessions()[wire.id], server.watches()[0], server.ops()[0]):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(view, dataclasses.fields(view)[0].name, "other")  # type: ignore[arg-type]


def test_tree_has_node_and_descendants(server: Server) -> None:
    server.populate({"/a": {"b": {"c": ""}}, "/ab": ""})

    assert list(server.tree()) == ["/a", "/a/b", "/a/b/c", "/ab"]
    assert list(server.tree("/a")) == ["/a", "/a/b", "/a/b/c"]
    assert list(server.tree("/a/b/c")) == ["/a/b/c"]
    assert list(server.tree("/none")) == []
    assert "/zookeeper/quota" in server.tree("/zookeeper")


def test_nodes_have_names_of_their_children(server: Server) -> None:
    server.populate({"/a": {"c": b"", "b": {"d": b""}}})

    assert server.tree()["/a"].children == ("b", "c")
    assert server.tree()["/a/b/d"].children == ()


def test_sessions_show_ephemerals_watches_and_client(server: Server, wires: ExitStack) -> None:
    wire = wires.enter_context(Wire(server, 12.5)).welcomed()
    wire.create("/z", EPHEMERAL)
    wire.create("/a", EPHEMERAL)
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    view = server.sessions()[wire.id]
    assert (view.id, view.timeout, view.ephemerals, view.watches) == (wire.id, 12.5, ("/z", "/a"), 1)
    assert view.connected
    assert view.client is not None
    assert str(wire.link.getsockname()[1]) in view.client
    assert 12 < view.expires_in <= 12.7  # deadlines are rounded up to a whole tick


def test_ipv6_address_of_session_has_brackets() -> None:
    engine = make_engine()
    peer = connect_peer(engine, host="::1")

    (shown,) = sessions(engine).values()

    assert shown.client == f"[::1]:{peer.client.port}"


def test_watch_views_show_kinds_of_watches(server: Server, wire: Wire) -> None:
    server.populate({"/a": ""})
    wire.ask(OpCode.GET_DATA, r.GetDataRequest("/a", True))
    wire.ask(OpCode.GET_CHILDREN, r.GetChildrenRequest("/a", True))
    wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0))
    wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/q", 1))

    assert {(watch.path, watch.kind, watch.session) for watch in server.watches()} == {
        ("/a", "data", wire.id),
        ("/a", "child", wire.id),
        ("/p", "persistent", wire.id),
        ("/q", "recursive", wire.id),
    }


def test_last_1000_operations_are_shown_oldest_first(server: Server, wire: Wire) -> None:
    wire.create("/a")
    wire.ask(OpCode.GET_DATA, r.GetDataRequest("/none", False))

    assert [(op.op, op.path, op.error) for op in server.ops()] == [
        ("connect", None, 0),
        ("create", "/a", 0),
        ("getData", "/none", NO_NODE),
    ]
    assert [op.op for op in server.ops(1)] == ["getData"]
    for _ in range(1010):
        wire.send(OpCode.PING)
    for _ in range(1010):
        wire.reply()
    assert [op.op for op in server.ops()] == ["ping"] * 1000


def test_ops_since_count_returns_later_operations(server: Server, wire: Wire) -> None:
    wire.create("/a")
    before = server.op_count()
    wire.create("/b")
    wire.create("/c")

    assert server.op_count() == before + 2
    assert [op.path for op in server.ops(since=before)] == ["/b", "/c"]
    assert [op.path for op in server.ops(1, since=before)] == ["/c"]
    assert [op.path for op in server.ops(3, since=before)] == ["/b", "/c"]
    assert server.ops(since=server.op_count()) == ()


def test_ops_since_count_before_reset_is_empty(server: Server, wire: Wire) -> None:
    wire.create("/a")
    before = server.op_count()
    server.reset()

    assert (server.op_count(), server.ops(since=before)) == (0, ())


def test_op_count_includes_discarded_operations(server: Server, wire: Wire) -> None:
    before = server.op_count()
    for _ in range(1010):
        wire.send(OpCode.PING)
    for _ in range(1010):
        wire.reply()

    assert server.op_count() == before + 1010
    assert len(server.ops(since=before)) == 1000


@pytest.mark.parametrize("wrong", [-1, 1.5, "x"])
@pytest.mark.parametrize("name", ["last", "since"])
def test_invalid_number_of_ops_raises_value_error(server: Server, name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be 0 or more, or None for all, not {wrong!r}"):
        server.ops(**{name: wrong})


def test_zxid_call_returns_zxid_of_last_transaction(server: Server, wire: Wire) -> None:
    wire.create("/a")

    assert server.zxid() == server.tree()["/a"].czxid


def test_ops_with_number_zero_returns_no_operations(server: Server, wire: Wire) -> None:
    wire.create("/a")

    assert server.ops(0) == ()


# --- failed requests ---


def test_failed_multi_has_error_of_failing_part(server: Server, wire: Wire) -> None:
    parts = [
        (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest("/b", -1)),
    ]
    wire.send(OpCode.MULTI, encode_operations(parts))
    wire.reply()

    [op] = server.ops(1)
    assert (op.op, op.error) == ("multi", NO_NODE)
    assert "-> NO_NODE" in str(op)


def test_resume_of_expired_session_has_error(server: Server, wire: Wire) -> None:
    server.expire(wire.id)
    with Wire(server, session=(wire.id, wire.password)) as again:
        assert again.welcomed().id == 0

    [op] = server.ops(1)
    assert (op.op, op.error, op.session) == ("connect", SESSION_EXPIRED, wire.id)
