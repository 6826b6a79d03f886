"""Correct histories that look suspicious: the checker must not report them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.script_client import ScriptClient

from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, OPEN_ACL_UNSAFE, Id, digest_id
from zoolet.protocol.enums import CreateMode, Perm
from zoolet.protocol.multi import encode_operations
from zoolet.protocol.operations import OpCode
from zoolet.testing import Cluster, Proxy, Server, corrupt_reply, lose_reply

NOBODY = (ACL(Perm.ALL, Id("digest", digest_id(b"nobody:secret"))),)
LOCAL = {"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}


@pytest.fixture
def server() -> Iterator[Server]:
    """A server whose history is checked at the end."""
    with Server() as server, server.check_history():
        yield server


@pytest.fixture
def clients(server: Server) -> Iterator[list[ScriptClient]]:
    """Connected clients."""
    made = [ScriptClient() for _ in range(3)]
    for client in made:
        client.connect(server.port)
    yield made
    for client in made:
        client.drop()


@pytest.mark.parametrize("gap", ["somebody else", "expiry", "lost reply"])
@pytest.mark.parametrize("then", ["create", "delete"])
def test_ephemeral_node_may_end_in_zxid_gap(server: Server, clients: list[ScriptClient], gap: str, then: str) -> None:
    leader, follower, other = clients
    leader.create("/leader", flags=CreateMode.EPHEMERAL)
    if gap == "somebody else":
        server.create("/noise")
    elif gap == "expiry":
        server.expire(other.session.session_id)
    else:
        with server.fault(lose_reply(), "create"):
            other.create("/lost")
    assert follower.exists("/leader") == "OK"
    leader.close()
    if then == "create":
        assert follower.create("/leader", flags=CreateMode.EPHEMERAL) == "/leader"
    else:
        assert follower.delete("/leader") == "NO_NODE"


def test_transaction_may_create_node_and_its_children(clients: list[ScriptClient]) -> None:
    client = clients[0]
    creates = [(OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)) for path in ("/both", "/both/child")]
    assert client.call(OpCode.MULTI, encode_operations(creates))[0] == "OK"
    assert client.children("/both") == "child"


def test_acl_version_is_independent_of_data_version(clients: list[ScriptClient]) -> None:
    client = clients[0]
    client.create("/a")
    assert client.call(OpCode.SET_ACL, r.SetACLRequest("/a", OPEN_ACL_UNSAFE, -1))[0] == "OK"
    assert client.call(OpCode.SET_ACL, r.SetACLRequest("/a", OPEN_ACL_UNSAFE, 0))[0] == "BAD_VERSION"


def test_lock_like_names_need_not_be_locks(clients: list[ScriptClient]) -> None:
    one, other = clients[:2]
    one.create("/jobs")
    one.create("/jobs/lock-2026112410", flags=CreateMode.EPHEMERAL)
    one.children("/jobs")
    other.create("/jobs/lock-2026112409", flags=CreateMode.EPHEMERAL)
    other.children("/jobs")


def test_event_may_be_withheld_by_acl_with_lost_reply(server: Server, clients: list[ScriptClient]) -> None:
    watcher, other = clients[:2]
    other.create("/g")
    watcher.get("/g", watch=True)
    with server.fault(lose_reply(), "setACL"):
        other.call(OpCode.SET_ACL, r.SetACLRequest("/g", NOBODY, -1))
    other.connect(server.port)
    other.delete("/g")
    watcher.exists("/")


def test_watch_with_corrupt_reply_may_fire(server: Server, clients: list[ScriptClient]) -> None:
    watcher, other = clients[:2]
    with server.fault(corrupt_reply(12), "exists", "/a", times=1):
        watcher.send(OpCode.EXISTS, r.ExistsRequest("/a", True))
        other.exists("/")
    other.create("/a")
    assert watcher._next() is not None
    assert watcher._next() is not None


@pytest.mark.parametrize("sessions", [0, 1, 3])
def test_closed_local_sessions_take_no_zxid(sessions: int) -> None:
    with Cluster(3, config=LOCAL) as cluster, cluster.check_history():
        one, other = ScriptClient(), ScriptClient()
        one.connect(cluster[0].port)
        one.create("/a")
        one.set("/a", b"1")
        one.delete("/a")
        cluster.create("/a")
        for _ in range(sessions):
            other.connect(cluster[0].port)
            other.close()
        other.connect(cluster[0].port)
        assert other.exists("/a") == "OK"
        one.close()
        other.close()


@pytest.mark.parametrize("where", ["proxy", "local sessions"])
def test_new_session_may_take_no_zxid(where: str) -> None:
    config = LOCAL if where == "local sessions" else None
    with Cluster(3, config=config) as cluster, Proxy(cluster[0].hosts) as proxy:
        recorded = proxy if where == "proxy" else cluster
        with recorded.check_history():
            one, other = ScriptClient(), ScriptClient()
            one.connect(proxy.port)
            one.create("/a")
            cluster.delete("/a")
            assert one.exists("/a") == "NO_NODE"
            other.connect(proxy.port)
            one.close()
            other.close()


def test_existing_sequence_number_refuses_sequential_create(clients: list[ScriptClient]) -> None:
    client = clients[0]
    client.create("/q")
    client.create("/q/n-0000000001")
    assert client.exists("/q/n-") == "NO_NODE"
    assert client.create("/q/n-", flags=CreateMode.PERSISTENT_SEQUENTIAL) == "NODE_EXISTS"
