"""Clients of a replica: reads, watches and local sessions."""

from __future__ import annotations

import pytest
from support.calls import NOW, create, read_session_id, request_error, set_data, single_entry_acl
from support.fake_leader import SID, FakeLeader, exchange, follow, make_replica
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.enums import CreateMode, EventType
from zoolet.protocol.learner import SessionTimeout, SnapshotNode
from zoolet.protocol.operations import OpCode
from zoolet.server.admin.history import TransactionHistory
from zoolet.server.learner.errors import ReplicaError
from zoolet.server.learner.replica import ReplicaEngine


def reader_of(replica: ReplicaEngine, timeout: int = 10_000) -> Peer:
    """Connect a read-only client."""
    peer = Peer(replica)
    assert peer.connect(timeout, read_only=True) is not None
    return peer


@pytest.fixture
def leader() -> FakeLeader:
    leader = FakeLeader()
    create(leader.peer, "/a", data=b"old")
    leader.commit()
    return leader


def test_reads_of_replica_show_tree_of_leader(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)

    data, stat = reader_of(replica).get("/a")

    assert (data, stat) == leader.peer.get("/a")


@pytest.mark.parametrize(
    ("op", "body"),
    [
        (OpCode.CREATE, r.CreateRequest("/b", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.SET_DATA, r.SetDataRequest("/a", b"", -1)),
        (OpCode.DELETE, r.DeleteRequest("/a", -1)),
        (OpCode.SYNC, r.SyncRequest("/a")),
        (OpCode.MULTI, b"\xff\xff\xff\xff\1\xff\xff\xff\xff"),
    ],
)
def test_replica_refuses_writes(leader: FakeLeader, op: int, body: object) -> None:
    replica = make_replica()
    follow(replica, leader)

    assert request_error(reader_of(replica), op, body) == -119  # type: ignore[arg-type] # records and bytes
    assert replica.digest == leader.digest


def test_history_of_replica_has_transactions_of_ensemble(leader: FakeLeader) -> None:
    replica = make_replica()
    learner, connection = follow(replica, leader)
    history = TransactionHistory(replica, 100)
    leader.peer.multi(*((OpCode.CREATE, r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)) for path in ("/m", "/m/n")))
    create(leader.peer, "/a")  # fails, because the node exists
    leader.peer.create("/e", b"", flags=CreateMode.EPHEMERAL)
    leader.peer.delete("/a")
    leader.commit()
    session_id = read_session_id(leader.peer)
    leader.engine.expire(leader.engine.sessions.alive[session_id])
    leader.commit()
    exchange(learner, connection)

    shown = [(entry.kind, [path for _, path, _ in entry.parts]) for entry in history.entries() if entry is not None]
    assert shown == [("expired", ["/e"]), ("delete", ["/a"]), ("create", ["/e"]), ("multi", ["/m", "/m/n"])]
    assert {entry.session_id for entry in history.entries() if entry is not None} == {session_id}


def test_watch_on_replica_fires_once_for_writes_at_leader(leader: FakeLeader) -> None:
    replica = make_replica()
    learner, connection = follow(replica, leader)
    reader = reader_of(replica)
    reader.get("/a", watch=True)
    for _ in range(2):
        set_data(leader.peer, "/a")
        leader.commit()
    exchange(learner, connection)

    assert reader.receive() == [(EventType.NODE_DATA_CHANGED, "/a")]


def test_replica_refuses_client_without_read_only_mode(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)

    assert Peer(replica).connect() is None


def test_incomplete_replica_refuses_clients() -> None:
    assert Peer(make_replica()).connect(read_only=True) is None


def test_clients_resume_after_loss_of_leader(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)
    reader = reader_of(replica)
    welcome = reader.welcome
    assert welcome is not None
    replica.stop_serving()
    assert reader.closed
    follow(replica, leader)

    resumed = Peer(replica).connect(session=welcome.session_id, password=welcome.password, read_only=True)

    assert resumed is not None
    assert resumed.session_id == welcome.session_id


def test_ensemble_session_is_closed_without_expiry(leader: FakeLeader) -> None:
    # the client has to find a member: the answer that the session has expired would be wrong
    replica = make_replica()
    follow(replica, leader)
    assert leader.peer.welcome is not None
    for session in (read_session_id(leader.peer), 0x1234):
        peer = Peer(replica)
        assert peer.connect(session=session, password=leader.peer.welcome.password, read_only=True) is None
        assert peer.closed


def test_local_sessions_contain_sid_and_take_no_zxid(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)
    readers = [reader_of(replica) for _ in range(2)]
    ids = [read_session_id(reader) for reader in readers]
    assert {each >> 56 for each in ids} == {SID}
    assert len(set(ids)) == 2
    readers[0].send(OpCode.CLOSE_SESSION)

    assert (ids[0] in replica.sessions.alive, ids[1] in replica.sessions.alive) == (False, True)
    assert replica.zxid == replica.last == leader.engine.zxid


def test_only_local_sessions_expire_at_replica(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)
    ours, theirs = read_session_id(reader_of(replica)), read_session_id(leader.peer)
    zxid = replica.zxid

    replica.set_time(NOW, 1_000_000)
    replica.tick()

    assert ours not in replica.sessions.alive
    assert theirs in replica.sessions.alive
    assert replica.zxid == zxid


def test_replica_does_not_delete_containers(leader: FakeLeader) -> None:
    leader.peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN_ACL_UNSAFE, CreateMode.CONTAINER))
    leader.peer.create("/c/x")
    leader.peer.delete("/c/x")
    leader.commit()
    replica = make_replica()
    follow(replica, leader)
    assert "/c" in replica.tree.expiring

    replica.set_time(NOW + 1_000_000, 1_000_000)
    replica.tick()
    replica.reap()

    assert replica.tree.get("/c") is not None


def test_local_sessions_survive_a_new_snapshot(leader: FakeLeader) -> None:
    replica = make_replica()
    follow(replica, leader)
    ours = read_session_id(reader_of(replica))
    replica.stop_serving()
    replica.forget()
    assert list(replica.sessions.alive) == [ours]
    follow(replica, leader)

    assert ours in replica.sessions.alive
    assert replica.digest == leader.digest


@pytest.mark.parametrize("path", ["/b/c", "/a", "a"])
def test_snapshot_with_misplaced_node_is_refused(path: str) -> None:
    replica = make_replica()
    replica.start_snapshot()
    replica.add_session(SessionTimeout(1, 1000))
    for each in ("", "/a"):
        replica.add_node(SnapshotNode(each, b"", -1, 1, 1, 1, 1, 0, 0, 0, 0, 1))

    with pytest.raises(ReplicaError, match=f"the node {path} twice, or without its parent"):
        replica.add_node(SnapshotNode(path, b"", -1, 1, 1, 1, 1, 0, 0, 0, 0, 1))


def test_acl_lists_of_replaced_snapshot_are_released(leader: FakeLeader) -> None:
    leader.peer.create("/private", acl=single_entry_acl(31, "digest", "u:x"))
    leader.commit()
    replica = make_replica()
    sizes = []
    for _ in range(3):
        replica.forget()
        follow(replica, leader)
        sizes.append(len(replica.acls.lists()))

    assert sizes[0] == sizes[1] == sizes[2]
