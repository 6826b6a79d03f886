"""The learner with a leader that is a real engine without I/O."""

from __future__ import annotations

from random import Random

import pytest
from support.calls import (
    NOW,
    create,
    create_op,
    delete,
    delete_op,
    multi,
    request_error,
    set_acl,
    set_data,
    set_op,
    single_entry_acl,
)
from support.fake_leader import CONFIG, SID, FakeLeader, exchange, follow, make_replica
from support.peer import Peer

from zoolet.protocol.learner import EpochAck, LearnerInfo, Packet, PacketType
from zoolet.protocol.operations import OpCode
from zoolet.server.learner.errors import LearnerError, ObserverRefusedError, ReplicaError
from zoolet.server.learner.learner import MAX_BEHIND_MS, OBSERVER_SID_OFFSET, SILENCE_MS, Learner, LearnerState
from zoolet.server.learner.replica import ReplicaEngine
from zoolet.server.storage.live import take_snapshot

T = PacketType


def state_of(engine: object) -> object:
    """Return the nodes with their ACL lists and Stats, and the sessions."""
    snapshot = take_snapshot(engine)  # type: ignore[arg-type]
    lists = {**snapshot.acls, -1: None}
    nodes = {node.path: (node[1:2] + node[3:], lists[node.acl]) for node in snapshot.nodes}
    nodes.pop("/zookeeper/config")  # a test leader has no configuration in its tree
    return nodes, snapshot.sessions


def assert_equal(replica: ReplicaEngine, leader: FakeLeader) -> None:
    """Assert that a replica contains the state of its leader."""
    assert state_of(replica) == state_of(leader.engine)
    assert replica.digest == leader.digest
    assert replica.last == leader.engine.zxid


def make_random_change(leader: FakeLeader, peer: Peer, rng: Random, number: int) -> None:
    """Make a random change."""
    paths = [path for path, _ in leader.engine.tree.walk() if path.startswith("/n")]
    path, new = rng.choice(paths or ["/none"]), f"/n{number}"
    match rng.randrange(7):
        case 0 | 1:
            create(peer, new if rng.random() < 0.5 or not paths else path + new)
        case 2:
            set_data(peer, path)
        case 3:
            delete(peer, path)
        case 4:
            set_acl(peer, path, single_entry_acl(rng.randrange(32), "digest", f"u{rng.randrange(3)}:x"))
        case 5:
            multi(peer, create_op(new), set_op(new), delete_op(path))
        case _:
            create(peer, new, flags=1)
    leader.commit()


@pytest.mark.parametrize("size", [1, 1 << 16])
def test_small_ensemble_is_replicated_by_snapshot(size: int) -> None:
    leader = FakeLeader()
    create(leader.peer, "/a", acl=single_entry_acl(31, "digest", "u:x"), data=b"x")
    create(leader.peer, "/a/e", flags=1)
    create(leader.peer, "/zookeeper/quota/q")
    leader.commit()
    replica = make_replica()

    learner, _ = follow(replica, leader, size)

    assert learner.state is LearnerState.FOLLOWING
    assert_equal(replica, leader)
    assert replica.tree.find("/zookeeper/config").data == CONFIG


@pytest.mark.parametrize("seed", range(20))
def test_fuzzy_snapshot_under_load_is_replicated(seed: int) -> None:
    rng, leader, replica = Random(seed), FakeLeader(), make_replica()
    peers = [leader.peer, leader.client(), leader.client()]
    for number in range(40):
        make_random_change(leader, rng.choice(peers), rng, number)
    numbers = iter(range(100, 10_000))

    def writes() -> None:
        for _ in range(rng.randrange(4)):
            make_random_change(leader, rng.choice(peers), rng, next(numbers))

    leader.during_snapshot = writes
    _, connection = follow(replica, leader, rng.choice([7, 1000]))
    assert_equal(replica, leader)

    leader.during_snapshot = lambda: None
    learner = Learner(replica, SID)
    exchange(learner, connection := leader.connect())
    for number in range(500, 540):
        make_random_change(leader, rng.choice(peers), rng, number)
        exchange(learner, connection)
    assert_equal(replica, leader)
    assert replica.learning.snapshots == 1
    assert replica.learning.digests_compared > 20


def test_acl_set_during_snapshot_is_replicated() -> None:
    leader, replica = FakeLeader(), make_replica()
    create(leader.peer, "/a")
    leader.commit()
    acl = single_entry_acl(1, "digest", "u:x")

    def change() -> None:
        leader.during_snapshot = lambda: None
        set_acl(leader.peer, "/a", acl)
        leader.commit()

    leader.during_snapshot = change
    follow(replica, leader)

    assert replica.acls.list(replica.tree.find("/a").acl) == acl


@pytest.mark.parametrize("missed", [0, 1, 100])
def test_diff_of_leader_contains_missed_transactions(missed: int) -> None:
    leader, replica = FakeLeader(), make_replica()
    follow(replica, leader)
    for number in range(missed):
        create(leader.peer, f"/n{number}")
        leader.commit()

    _, connection = follow(replica, leader)

    assert replica.learning.snapshots == replica.learning.diffs == 1
    assert connection.received[1].zxid == leader.engine.zxid - missed
    assert_equal(replica, leader)


def test_interrupted_snapshot_is_requested_again() -> None:
    leader, replica = FakeLeader(), make_replica()
    for number in range(50):
        create(leader.peer, f"/n{number}")
    leader.commit()
    learner, connection = Learner(replica, SID), leader.connect()
    for data in (b"", b""):
        connection.receive_data(learner.data_to_send())
        data = connection.data_to_send()
        learner.receive_data(data if learner.state is LearnerState.GREETING else data[: len(data) // 2])
        if learner.state is LearnerState.INVITED:
            learner.join()
    assert learner.state is LearnerState.LOADING
    assert replica.tree.get("/n1") is not None

    follow(replica, leader)

    assert replica.learning.snapshots == 2
    assert_equal(replica, leader)


def test_trunc_of_leader_raises_until_replica_is_cleared() -> None:
    leader, replica = FakeLeader(), make_replica()
    create(leader.peer, "/lost")
    leader.commit()
    follow(replica, leader)
    restored = FakeLeader()

    with pytest.raises(ReplicaError, match="was a backup restored"):
        follow(replica, restored)
    replica.forget()
    follow(replica, restored)

    assert_equal(replica, restored)
    assert replica.tree.get("/lost") is None


def test_replica_adopts_epoch_of_next_leader() -> None:
    leader, replica = FakeLeader(), make_replica()
    follow(replica, leader)
    leader.restart(epoch=3)

    _, connection = follow(replica, leader)

    first, joined = connection.received[:2]
    assert (first.zxid, LearnerInfo.decode(first.data or b"").sid) == (1 << 32, OBSERVER_SID_OFFSET + SID)
    assert EpochAck.decode(joined.data or b"") == EpochAck(1)
    assert replica.zxid == 3 << 32  # clients of the new leader have seen its epoch
    assert (replica.accepted_epoch, replica.current_epoch) == (3, 3)


def test_second_acknowledgement_of_epoch_has_no_new_epoch() -> None:
    leader, replica = FakeLeader(), make_replica()
    follow(replica, leader)

    _, connection = follow(replica, leader)

    assert EpochAck.decode(connection.received[1].data or b"") == EpochAck(-1)


def test_leader_of_older_epoch_is_refused() -> None:
    replica = make_replica()
    follow(replica, FakeLeader(epoch=5))

    with pytest.raises(LearnerError, match="is in epoch 4, but the observer already followed epoch 5"):
        follow(replica, FakeLeader(epoch=4))


def test_leader_of_older_epoch_cannot_be_joined_after_newer_one() -> None:
    replica = make_replica()
    old, new = Learner(replica, SID), Learner(replica, SID)
    for learner, epoch in ((old, 1), (new, 2)):
        connection = FakeLeader(epoch=epoch).connect()
        connection.receive_data(learner.data_to_send())
        learner.receive_data(connection.data_to_send())
    new.join()

    with pytest.raises(LearnerError, match="is in epoch 1"):
        old.join()
    assert old.data_to_send() == b""


# --- safety of the ensemble ---


def test_client_requests_send_only_harmless_packets_to_leader() -> None:
    leader, replica = FakeLeader(), make_replica()
    learner, connection = follow(replica, leader)
    reader = Peer(replica)
    reader.connect(read_only=True)
    for op in range(-20, 110):
        reader.send(op, b"\0\0\0\2/a" + bytes(range(40)))
        exchange(learner, connection)
        if reader.closed:
            reader = Peer(replica)
            reader.connect(read_only=True)
    connection.send(T.PING, leader.engine.zxid)
    exchange(learner, connection)

    sent = [T(packet.type) for packet in connection.received]
    assert sent == [T.OBSERVERINFO, T.ACKEPOCH, T.ACK, T.ACK, T.PING]
    assert connection.received[-1] == Packet(T.PING, leader.engine.zxid, b"", None)
    assert replica.zxid == leader.engine.zxid


def test_known_participant_sid_is_refused() -> None:
    replica = make_replica()
    follow(replica, FakeLeader(config=b"server.7=a:1:2:participant;3\nversion=0"))

    with pytest.raises(ObserverRefusedError, match=r"sid 7 is the number of a voting member.*such as 101"):
        Learner(replica, 7)


def test_participant_sid_is_never_sent() -> None:
    leader = FakeLeader(config=f"server.{SID}=a:1:2:participant;3\nversion=0".encode())
    replica, connection = make_replica(), leader.connect()

    with pytest.raises(ObserverRefusedError):
        exchange(Learner(replica, SID), connection)
    assert [packet.type for packet in connection.received] == [T.OBSERVERINFO, T.ACKEPOCH]
    assert LearnerInfo.decode(connection.received[0].data or b"").sid == OBSERVER_SID_OFFSET + SID
    with pytest.raises(ObserverRefusedError):
        Learner(replica, SID)


def test_reconfiguration_to_participant_is_refused() -> None:
    leader, replica = FakeLeader(), make_replica()
    learner, connection = follow(replica, leader)
    connection.reconfigure(f"server.{SID}=a:1:2:participant;3\nversion=100000001".encode())

    with pytest.raises(ObserverRefusedError, match="voting member"):
        exchange(learner, connection)


def test_silent_leader_raises_learner_error() -> None:
    leader, replica = FakeLeader(), make_replica()
    learner, _ = follow(replica, leader)
    replica.set_time(NOW, SILENCE_MS - 1)
    learner.check_silence()
    replica.set_time(NOW, SILENCE_MS)

    with pytest.raises(LearnerError, match="nothing was received for 10 s"):
        learner.check_silence()


def test_lagging_observer_raises_learner_error() -> None:
    leader, replica = FakeLeader(), make_replica()
    learner, connection = follow(replica, leader)
    for delay in (500, 500 + MAX_BEHIND_MS):  # the clock of the leader is half a second slow
        replica.set_time(NOW + delay, 0)
        create(leader.peer, f"/n{delay}")
        leader.commit()
        if delay == 500:
            exchange(learner, connection)
            assert replica.learning.behind_ms == 0
    exchange(learner, connection)
    assert replica.learning.behind_ms == MAX_BEHIND_MS
    replica.set_time(NOW + 501 + MAX_BEHIND_MS, 0)
    create(leader.peer, "/last")
    leader.commit()

    with pytest.raises(LearnerError, match="lags by 30 s"):
        exchange(learner, connection)


def test_lag_behind_leader_is_known_from_pings() -> None:
    leader, replica = FakeLeader(), make_replica()
    learner, connection = follow(replica, leader)

    connection.send(T.PING, leader.engine.zxid + 7)
    exchange(learner, connection)

    assert replica.learning.lag == 7


# --- malformed and unknown input ---


def connect_follower(leader: FakeLeader) -> tuple[ReplicaEngine, Learner]:
    replica = make_replica()
    return replica, follow(replica, leader)[0]


def test_wrong_digest_raises_and_is_counted() -> None:
    leader = FakeLeader()
    replica, learner = connect_follower(leader)
    replica.tree.set_data_silently(replica.tree.find("/zookeeper"), b"different")
    replica.digest += 1
    create(leader.peer, "/a")
    leader.commit()

    with pytest.raises(ReplicaError, match=r"the tree differs from the leader's after transaction 0x1\d+: digest"):
        exchange(learner, leader.connections[-1])
    assert replica.learning.digest_mismatches == 1


@pytest.mark.parametrize("zxid", [2, 3])
def test_gap_in_zxids_raises_replica_error(zxid: int) -> None:
    leader = FakeLeader()
    replica, learner = connect_follower(leader)
    data = leader.log[replica.last]

    later = replica.last + zxid - 1 if zxid == 3 else replica.last
    packet = Packet(T.INFORM, later, data[:12] + later.to_bytes(8) + data[20:], None)

    with pytest.raises(ReplicaError, match=r"are missing|expected a higher zxid"):
        learner.receive_data(packet.encode())


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        (77, b"", "unknown transaction type 77"),
        (13, b"\0\0\0\2/a\0\0\0\0" + bytes(13), "unexpected data after"),
        (2, b"\0\0\0\2/x", r"\(DeleteTxn /x\) to the replica"),
        (2, b"\0\0\0\1/", r"\(DeleteTxn /\) to the replica"),
        (1, b"\0\0\0\4/x/y" + bytes(4) + bytes(4) + bytes(5), r"\(CreateTxn /x/y\) to the replica"),
        (1, b"\0\0\0\2//" + bytes(4) + bytes(4) + bytes(5), r"\(CreateTxn //\) to the replica"),
        (5, b"\0\0\0\2/x" + bytes(8), r"\(SetDataTxn /x\) to the replica"),
        (-11, b"\0\0\0\1\0\0\0\2/x", r"\(CloseSessionTxn /x\) to the replica"),
        (1, b"\0\0", "unexpected end"),
    ],
)
def test_inapplicable_transaction_raises_and_keeps_state(kind: int, body: bytes, text: str) -> None:
    leader = FakeLeader()
    replica, learner = connect_follower(leader)
    zxid, before = replica.last + 1, state_of(replica)
    header = bytes(12) + zxid.to_bytes(8) + NOW.to_bytes(8) + kind.to_bytes(4, signed=True)

    with pytest.raises(ReplicaError, match=text):
        learner.receive_data(Packet(T.INFORM, zxid, header + body, None).encode())
    assert state_of(replica) == before


@pytest.mark.parametrize(
    ("data", "error_type", "text"),
    [
        (Packet(T.LEADERINFO, 1 << 32, b"\0\0\0\1", None).encode(), ObserverRefusedError, "found 0x1"),
        (
            Packet(T.NEWLEADER, 1 << 32, None, None).encode(),
            LearnerError,
            "unexpected packet NEWLEADER in state",
        ),
        (b"\x15\x03\x03\0\2\2\x50", LearnerError, "expects TLS"),
        (bytes([0, 0, 0, 37, 0]), LearnerError, "may not be a quorum port"),
    ],
)
def test_peer_that_is_not_leader_raises_clear_error(data: bytes, error_type: type[Exception], text: str) -> None:
    with pytest.raises(error_type, match=text):
        Learner(make_replica(), SID).receive_data(data)


def test_leader_of_old_release_is_refused() -> None:
    with pytest.raises(ObserverRefusedError, match=r"ZooKeeper 3\.4 or older"):
        follow(make_replica(), FakeLeader(config=None))


@pytest.mark.parametrize("kind", [T.SYNC, T.REVALIDATE, T.PROPOSAL, T.SNAP, T.UPTODATE, T.ACK])
def test_unexpected_packet_closes_the_connection(kind: PacketType) -> None:
    learner = connect_follower(FakeLeader())[1]

    with pytest.raises(LearnerError, match=f"unexpected packet {kind.name} in state FOLLOWING"):
        learner.receive_data(Packet(kind, 0, None, None).encode())


def test_proposals_are_bounded_and_must_be_committed() -> None:
    def start() -> Learner:
        learner, connection = Learner(make_replica(), SID), FakeLeader().connect()
        connection.receive_data(learner.data_to_send())
        learner.receive_data(connection.data_to_send())
        learner.join()
        learner.receive_data(Packet(T.DIFF, 1 << 32, None, None).encode())
        return learner

    first, second = start(), start()
    for zxid in range(1_000):
        first.receive_data(Packet(T.PROPOSAL, zxid, b"", None).encode())

    with pytest.raises(LearnerError, match="unexpected packet PROPOSAL"):
        first.receive_data(Packet(T.PROPOSAL, 1_000, b"", None).encode())
    with pytest.raises(LearnerError, match="unexpected packet COMMIT "):
        second.receive_data(Packet(T.COMMIT, 9, None, None).encode())


def test_session_expiry_at_leader_deletes_nodes() -> None:
    leader = FakeLeader()
    owner = leader.client()
    create(owner, "/e", flags=1)
    leader.commit()
    replica, learner = connect_follower(leader)
    session = leader.engine.sessions.alive[owner.client.session_id]
    leader.engine.expire(session)
    leader.commit()
    exchange(learner, leader.connections[-1])

    assert replica.tree.get("/e") is None
    assert_equal(replica, leader)


def test_failed_request_at_leader_uses_zxid_of_replica() -> None:
    leader = FakeLeader()
    replica, learner = connect_follower(leader)
    assert request_error(leader.peer, OpCode.DELETE, b"\0\0\0\2/x" + bytes(4))
    leader.commit()
    exchange(learner, leader.connections[-1])

    assert_equal(replica, leader)
