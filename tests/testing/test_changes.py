"""Changes that a test makes without a client: ``set``, ``delete``, ``set_quota``, ACLs and the clock's skew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, ZookeeperError
from kazoo.security import make_digest_acl
from support.wire import Wire

from zoolet.client import acl
from zoolet.protocol.errors import BadArgumentsError, NoNodeError, NotEmptyError
from zoolet.testing import Server, Znode

Dial = Callable[..., KazooClient]
CHANGED, DELETED = 3, 2


def test_set_has_effects_of_client_change(server: Server, wire: Wire) -> None:
    server.populate({"/a": b"1"})
    wire.watch("/a")

    server.set("/a", "2")

    node = server.tree()["/a"]
    assert (node.data, node.version, node.mzxid) == (b"2", 1, server.zxid())
    assert wire.event() == (CHANGED, "/a")


def test_populate_fires_watch_on_changed_node(server: Server, wire: Wire) -> None:
    server.populate({"/a": b"1"})
    wire.watch("/a")

    server.populate({"/a": b"2"})

    assert wire.event() == (CHANGED, "/a")


def test_set_needs_existing_node_and_valid_data(server: Server) -> None:
    with pytest.raises(NoNodeError, match=r"/a: the node does not exist; use populate\(\)"):
        server.set("/a", b"")
    server.populate({"/a": b"1"})
    with pytest.raises(ValueError, match="/a: data must be bytes, text or None, not 7"):
        server.set("/a", 7)  # type: ignore[arg-type]
    server.set("/a", None)
    assert server.tree()["/a"].data is None


def test_delete_has_effects_of_client_change(server: Server, wire: Wire) -> None:
    server.populate({"/a": {"b": {"c": ""}}})
    wire.watch("/a")

    with pytest.raises(NotEmptyError, match="recursive=True"):
        server.delete("/a")
    server.delete("/a", recursive=True)

    assert dict(server.tree()) == {}
    assert wire.event() == (DELETED, "/a")
    with pytest.raises(NoNodeError):
        server.delete("/a")


@pytest.mark.parametrize("path", ["/", "/zookeeper", "/zookeeper/quota"])
def test_system_nodes_cannot_be_deleted(server: Server, path: str) -> None:
    with pytest.raises(BadArgumentsError, match="every server has this node"):
        server.delete(path, recursive=True)


def test_changes_can_be_undone_by_a_snapshot(server: Server) -> None:
    server.populate({"/a": b"1", "/b": b""})
    before = server.snapshot()
    server.set("/a", b"2")
    server.delete("/b")
    server.set_quota("/a", count=1)
    server.restore(before)
    assert {path: node.data for path, node in server.tree().items()} == {"/a": b"1", "/b": b""}


@pytest.mark.parametrize("path", ["", "a", None, "/a/"])
def test_invalid_path_keeps_tree_unchanged(server: Server, path: Any) -> None:
    server.populate({"/a": b""})
    with pytest.raises(ValueError, match="is not a path"):
        server.delete(path, recursive=True)
    with pytest.raises(ValueError, match="is not a path"):
        server.set(path, b"")
    assert list(server.tree()) == ["/a"]


# --- quotas ---


def test_hard_quota_refuses_excess(server: Server, client: KazooClient) -> None:
    server.populate({"/q": {"a": "1234"}})
    server.set_quota("/q", count=3, bytes=10)
    client.create("/q/b", b"12")
    with pytest.raises(ZookeeperError):  # kazoo has no class for this error
        client.create("/q/c")
    client.set("/q/b", b"123456")
    with pytest.raises(ZookeeperError):
        client.set("/q/b", b"1234567")

    server.set_quota("/q", count=4, bytes=100)
    client.create("/q/c", b"123456789")


def test_exceeded_soft_quota_causes_warning(
    server: Server, client: KazooClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.set_quota("/q", count=1, hard=False)
    client.ensure_path("/q/a")
    assert "quota exceeded: 2 nodes below /q; the soft limit is 1" in caplog.text


def test_each_delete_takes_one_zxid(server: Server) -> None:
    server.populate({"/a": {"b": ""}})
    before = server.zxid()

    server.delete("/a", recursive=True)

    assert server.zxid() == before + 2


def test_reset_ends_clock_skew_and_downtime(manual: Server) -> None:
    manual.skew_clock(5000)
    manual.restart(downtime=50)
    manual.reset()
    manual.refuse_connections()
    manual.populate({"/a": b""})
    start = manual.tree()["/a"].ctime
    manual.advance(60)
    manual.set("/a", b"1")
    assert manual.tree()["/a"].mtime - start == 60
    with pytest.raises(ConnectionRefusedError):
        Wire(manual)
    manual.accept_connections()


def test_reset_removes_quota() -> None:
    with Server(port=0, seed=1) as server:
        server.set_quota("/q", count=1)
        server.reset()
        with Wire(server).welcomed() as wire:
            assert wire.create("/q") == 0
            assert wire.create("/q/a") == 0


@pytest.mark.parametrize(
    ("path", "limits"),
    [
        ("/a", {}),
        ("/a", {"count": -1}),
        ("/a", {"bytes": True}),
        ("/a", {"bytes": 1.5}),
        ("/", {"count": 1}),
        ("a", {"count": 1}),
        ("/zookeeper/x", {"count": 1}),
        ("/zookeeper", {"count": 1}),
    ],
)
def test_invalid_quota_is_refused(server: Server, path: str, limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"quota|must be 0 or more, or None for no limit, not|needs count"):
        server.set_quota(path, **limits)


# --- ACLs ---


@pytest.mark.parametrize(
    "acl_list",
    [
        acl.digest("user", "secret", acl.READ),
        [*acl.digest("user", "secret", acl.READ)],
        [make_digest_acl("user", "secret", read=True)],
        (make_digest_acl("user", "secret", read=True),),
    ],
    ids=["ours", "ours in a list", "kazoo's", "kazoo's in a tuple"],
)
def test_acls_of_zoolet_and_kazoo_are_accepted(server: Server, kazoo: Dial, acl_list: Any) -> None:
    server.populate({"/secret": Znode(b"1", acl=acl_list)})

    with pytest.raises(NoAuthError):
        kazoo(server).get("/secret")
    allowed = kazoo(server, auth_data=[("digest", "user:secret")])
    assert allowed.get("/secret")[0] == b"1"
    with pytest.raises(NoAuthError):
        allowed.set("/secret", b"2")


@pytest.mark.parametrize("acl_list", ["world", None, 31, [31], ["world:anyone:r"], make_digest_acl("a", "b")])
def test_invalid_acls_are_refused(server: Server, acl_list: Any) -> None:
    with pytest.raises(ValueError, match="/a: acl must be a list of ACLs"):
        server.populate({"/a": Znode(acl=acl_list)})
    assert dict(server.tree()) == {}


# --- time ---


def test_skewed_clock_changes_node_times_until_heal(manual: Server) -> None:
    manual.populate({"/a": b"", "/ttl": Znode(ttl=60)})
    now = manual.tree()["/a"].ctime
    with Wire(manual, timeout=5.0).welcomed():
        manual.skew_clock(3600)
        manual.set("/a", b"1")
        assert manual.tree()["/a"].mtime == now + 3600
        manual.advance(0.1)
        assert "/ttl" not in manual.tree()
        assert len(manual.sessions()) == 1

    manual.skew_clock(-3600)
    manual.set("/a", b"2")
    assert manual.tree()["/a"].mtime == pytest.approx(now - 3600, abs=1)
    manual.heal()
    manual.set("/a", b"3")
    assert manual.tree()["/a"].mtime == pytest.approx(now, abs=1)


@pytest.mark.parametrize("seconds", ["1", None, float("inf"), float("nan")])
def test_invalid_skew_is_refused(server: Server, seconds: Any) -> None:
    with pytest.raises(ValueError, match="skew_clock"):
        server.skew_clock(seconds)
