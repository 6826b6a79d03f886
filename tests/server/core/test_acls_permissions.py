"""The permission that each operation needs, and attempts to bypass an ACL.

Source: ZooKeeperServer.checkACL.
"""

from __future__ import annotations

import base64
import hashlib

import pytest
from support.calls import (
    check_op,
    check_watches,
    connect_peer,
    delete,
    multi,
    request_error,
    set_acl,
    set_data,
    single_entry_acl,
    who_am_i,
)
from support.engine import make_engine
from support.logins import USERS, complete_sasl
from support.numbers import NO_AUTH, NO_WATCHER, OK, RECURSIVE_WATCH
from support.peer import Peer
from support.private_nodes import OWNER, PRIVATE

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import NoAuthError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import EngineSettings

# --- permissions ---


def test_super_user_passes_every_acl():
    engine = make_engine(EngineSettings(super_digest="super:xQJmxLMiHGwaqBvst5y6rkB6HQs="))
    peer = connect_peer(engine)
    peer.create("/a", b"secret", acl=single_entry_acl(0))
    denied = request_error(peer, OpCode.GET_DATA, r.GetDataRequest("/a", False))

    peer.auth("digest", b"super:admin")

    assert denied == NO_AUTH
    assert peer.get("/a")[0] == b"secret"
    assert set_data(peer, "/zookeeper/config").err == OK
    assert who_am_i(peer) == [("digest", "super"), ("ip", "127.0.0.1"), ("super", "")]


def test_delete_needs_only_delete_permission_of_parent(peer):
    peer.create("/p")
    peer.create("/p/child", acl=single_entry_acl(0))
    set_acl(peer, "/p", single_entry_acl(Perm.DELETE))

    assert delete(peer, "/p/child").err == OK


@pytest.mark.parametrize("perm", [Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE, Perm.ADMIN])
@pytest.mark.parametrize(
    ("op", "body", "enough"),
    [
        (OpCode.CREATE, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 0), Perm.CREATE),
        (OpCode.CREATE2, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 0), Perm.CREATE),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/p/new", b"", OPEN_ACL_UNSAFE, 4), Perm.CREATE),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/p/new", b"", OPEN_ACL_UNSAFE, 5, 1000), Perm.CREATE),
        (OpCode.DELETE, r.DeleteRequest("/p/child", -1), Perm.DELETE),
        (OpCode.EXISTS, r.ExistsRequest("/p", False), Perm.READ),
        (OpCode.GET_DATA, r.GetDataRequest("/p", False), Perm.READ),
        (OpCode.GET_CHILDREN, r.GetChildrenRequest("/p", False), Perm.READ),
        (OpCode.GET_CHILDREN2, r.GetChildrenRequest("/p", False), Perm.READ),
        (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/p"), Perm.READ),
        (OpCode.GET_ACL, r.GetACLRequest("/p"), Perm.READ | Perm.ADMIN),
        (OpCode.SET_DATA, r.SetDataRequest("/p", b"", -1), Perm.WRITE),
        (OpCode.SET_ACL, r.SetACLRequest("/p", OPEN_ACL_UNSAFE, -1), Perm.ADMIN),
        (OpCode.SYNC, r.SyncRequest("/p"), Perm.ALL),
        (OpCode.ADD_WATCH, r.AddWatchRequest("/p", 0), Perm.ALL),
    ],
)
def test_each_operation_needs_its_permission(peer, op, body, enough, perm):
    peer.create("/p")
    peer.create("/p/child")
    set_acl(peer, "/p", single_entry_acl(perm))

    assert request_error(peer, op, body) == (OK if perm & enough else NO_AUTH)


@pytest.mark.parametrize(
    ("op", "body"), [(OpCode.SYNC, r.SyncRequest("/p")), (OpCode.ADD_WATCH, r.AddWatchRequest("/p", RECURSIVE_WATCH))]
)
def test_sync_and_add_watch_need_no_permission(peer, op, body):
    peer.create("/p", acl=single_entry_acl(0))

    assert request_error(peer, op, body) == OK


@pytest.mark.parametrize(("perms", "code"), [(Perm.READ, OK), (Perm.ALL & ~Perm.READ, NO_AUTH)])
def test_check_inside_multi_needs_read_permission(peer, perms, code):
    peer.create("/p", acl=single_entry_acl(perms))

    ((_, result),) = wire.decode_results(multi(peer, check_op("/p")).body)

    assert getattr(result, "err", OK) == code


def test_permissions_are_not_inherited_by_children(peer):
    peer.create("/p")
    peer.create("/p/child", b"open")
    set_acl(peer, "/p", single_entry_acl(0))

    assert peer.get("/p/child")[0] == b"open"
    assert peer.create("/p/child/below") == "/p/child/below"


def test_refused_read_sets_no_watch(peer, other):
    peer.create("/p", acl=single_entry_acl(Perm.ALL & ~Perm.READ))

    refused = [
        request_error(other, OpCode.EXISTS, r.ExistsRequest("/p", True)),
        request_error(other, OpCode.GET_DATA, r.GetDataRequest("/p", True)),
        request_error(other, OpCode.GET_CHILDREN, r.GetChildrenRequest("/p", True)),
    ]

    assert refused == [NO_AUTH, NO_AUTH, NO_AUTH]
    assert check_watches(other, "/p", 3) == NO_WATCHER


def test_ip_entry_covers_only_its_network(engine, peer):
    peer.create("/p", acl=single_entry_acl(Perm.READ, "ip", "10.1.0.0/16"))
    near, far = Peer(engine, host="10.1.2.3"), Peer(engine, host="10.2.2.3")
    near.connect()
    far.connect()

    assert request_error(near, OpCode.GET_DATA, r.GetDataRequest("/p", False)) == OK
    assert request_error(far, OpCode.GET_DATA, r.GetDataRequest("/p", False)) == NO_AUTH


@pytest.mark.parametrize("perm", [Perm.WRITE, 0])
def test_in_3_8_exists_needs_no_right(old, perm):
    old.create("/p", acl=single_entry_acl(perm))

    assert request_error(old, OpCode.EXISTS, r.ExistsRequest("/p", False)) == OK


# --- ways around an ACL ---


@pytest.mark.parametrize(
    ("op", "request_"),
    [
        (OpCode.GET_DATA, r.GetDataRequest("/private", True)),
        (OpCode.EXISTS, r.ExistsRequest("/private", True)),
        (OpCode.GET_CHILDREN, r.GetChildrenRequest("/private", True)),
        (OpCode.GET_CHILDREN2, r.GetChildrenRequest("/private", True)),
        (OpCode.GET_ACL, r.GetACLRequest("/private")),
        (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/private")),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", -1)),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", 99)),
        (OpCode.SET_ACL, r.SetACLRequest("/private", OPEN_ACL_UNSAFE, -1)),
        (OpCode.SET_ACL, r.SetACLRequest("/private", OPEN_ACL_UNSAFE, 99)),
        (OpCode.DELETE, r.DeleteRequest("/private/child", -1)),
        (OpCode.DELETE, r.DeleteRequest("/private/nothing", -1)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE2, r.CreateRequest("/private/child", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 3)),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 4)),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/private/x", b"", OPEN_ACL_UNSAFE, 5, 1000)),
    ],
    ids=lambda value: getattr(value, "name", None) or None,
)
def test_refusal_on_private_node_has_no_body(private: Peer, op: OpCode, request_: r.Stat) -> None:
    (reply,) = private.send(op, request_.encode())

    assert (reply.err, reply.body) == (NO_AUTH, b"")


@pytest.mark.parametrize(
    "alias",
    [
        "/private/",
        "//private",
        "/./private",
        "/x/../private",
        "private",
        "/private\0",
        "/PRIVATE",
        "/private/.",
        "\0/private",
    ],
)
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_CHILDREN, OpCode.GET_ACL])
def test_path_alias_does_not_open_private_node(private: Peer, op: OpCode, alias: str) -> None:
    (reply,) = private.send(op, r.GetDataRequest(alias, False).encode())

    assert reply.err != 0
    assert reply.body == b""


def test_password_hash_does_not_log_in_as_owner(engine: Engine) -> None:
    connect_peer(engine).create("/a", acl=PRIVATE)
    hashed = base64.b64encode(hashlib.sha1(OWNER).digest()).decode()
    thief = connect_peer(engine)
    thief.auth("digest", f"owner:{hashed}".encode())

    with pytest.raises(NoAuthError):
        thief.get("/a")


def test_ip_acl_refuses_longer_address_with_same_prefix(engine: Engine) -> None:
    connect_peer(engine).create("/a", acl=(ACL(Perm.ALL, Id("ip", "127.0.0.2")),))

    with pytest.raises(NoAuthError):
        connect_peer(engine, host="127.0.0.20").get("/a")


def test_sasl_user_cannot_read_node_of_sasl_user() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))
    bob = connect_peer(engine)
    complete_sasl(bob, "bob", "secret")
    bob.create("/a", acl=(ACL(Perm.ALL, Id("sasl", "bob")),))
    eve = connect_peer(engine)
    complete_sasl(eve, "eve", "easy")

    with pytest.raises(NoAuthError):
        eve.get("/a")


def test_digest_user_cannot_impersonate_sasl_user() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS))
    connect_peer(engine).create("/a", acl=(ACL(Perm.ALL, Id("sasl", "bob")),))
    thief = connect_peer(engine)
    thief.auth("digest", b"bob:secret")

    with pytest.raises(NoAuthError):
        thief.get("/a")
