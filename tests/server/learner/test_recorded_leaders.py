"""The learner with the recorded bytes of leaders of ZooKeeper 3.8.0 and 3.9.4. Tree digests in them verify its tree."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest
from support.effort import effort
from support.fake_leader import SID, make_replica
from support.learner_dumps import DUMPS, FOLDER, bytes_from

from zoolet.protocol.learner import LearnerStream, Packet, PacketType
from zoolet.server.learner.errors import LearnerError, ReplicaError
from zoolet.server.learner.learner import Learner, LearnerState
from zoolet.server.learner.replica import ReplicaEngine

RELEASES = pytest.mark.parametrize("release", ["3.8.0", "3.9.4"])
ANSWERS = (PacketType.SYNC, PacketType.REVALIDATE)
"""Answers to requests that only the recorded observer sent. They are left out."""


def replay(replica: ReplicaEngine, name: str) -> Learner:
    """Make a replica follow a recorded leader, byte by byte."""
    data = bytes_from("L", FOLDER / f"{name}.dump")
    for item in LearnerStream(1 << 20).feed(data):
        if isinstance(item, Packet) and item.type in ANSWERS:
            data = data.replace(item.encode(), b"")
    learner = Learner(replica, SID)
    for byte in data:
        learner.receive_data(bytes([byte]))
        if learner.state is LearnerState.INVITED:
            learner.join()
    return learner


@RELEASES
def test_snapshot_and_transactions_are_applied(release: str) -> None:
    replica = make_replica()

    learner = replay(replica, f"{release}-snap")

    assert learner.state is LearnerState.FOLLOWING
    assert replica.is_serving
    assert replica.learning.snapshots == 1
    assert replica.learning.digests_compared >= 11


@RELEASES
def test_diff_after_disconnection_is_applied(release: str) -> None:
    replica = make_replica()
    replay(replica, f"{release}-snap")
    compared = replica.learning.digests_compared

    replay(replica, f"{release}-diff")

    assert (replica.learning.snapshots, replica.learning.diffs) == (1, 1)
    assert replica.learning.digests_compared >= compared + 4


@RELEASES
def test_new_ensemble_is_followed_without_snapshot(release: str) -> None:
    replica = make_replica()

    replay(replica, f"{release}-observer-master")

    assert (replica.learning.snapshots, replica.learning.diffs, replica.learning.digests_compared) == (0, 1, 3)


@RELEASES
def test_session_close_without_record_deletes_ephemerals(release: str) -> None:
    replica = make_replica()

    replay(replica, f"{release}-close-without-record")

    assert not replica.tree.ephemerals
    assert replica.learning.digests_compared == 2


@RELEASES
def test_replica_follows_ensemble_without_digests(release: str) -> None:
    replica = make_replica()
    replica.is_complete, replica.last = True, 1 << 32  # the recorded observer knew the start of the epoch

    replay(replica, f"{release}-no-digest")

    assert replica.last == 0x100000003
    assert replica.learning.digests_compared == 0


@RELEASES
def test_replica_follows_reconfiguration_of_leader(release: str) -> None:
    replica = make_replica()

    replay(replica, f"{release}-reconfig")

    assert replica.learning.digests_compared == 3
    assert b"observer" in replica.config


@RELEASES
def test_trunc_raises_replica_error(release: str) -> None:
    replica = make_replica()
    replica.is_complete, replica.last = True, 0x100000009

    with pytest.raises(ReplicaError, match="no transactions after 0x100000002, but the replica has 0x100000009"):
        replay(replica, f"{release}-trunc")


@RELEASES
@pytest.mark.parametrize("how", ["diff", "inform"])
def test_failed_multi_of_leader_changes_nothing_in_replica(release: str, how: str) -> None:
    name = f"{release}-failed-multi-{how}"
    replica = make_replica()
    replica.is_complete, replica.last, before = True, 0x100000002, [path for path, _ in replica.tree.walk()]
    # the recorded observer had a tree, whose digest the failed transaction repeats
    items = list(LearnerStream(1 << 20).feed(bytes_from("L", FOLDER / f"{name}.dump")))
    failed = [item.data for item in items if isinstance(item, Packet) and item.zxid == 0x100000003 and item.data]
    replica.digest = int.from_bytes(failed[0][-8:])

    learner = replay(replica, name)

    assert learner.state is LearnerState.FOLLOWING
    assert (replica.last, replica.learning.digests_compared) == (0x100000003, 1)
    assert [path for path, _ in replica.tree.walk()] == before


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with one to five changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(changed) - 8)
        match rng.randrange(4):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                del changed[at : at + rng.randrange(1, 9)]
            case 2:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case _:
                changed[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"))
    return bytes(changed)


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_damaged_bytes_raise_only_learner_error(dump: Path) -> None:
    data = bytes_from("L", dump)
    for seed in range(effort(30, 1000)):
        rng = random.Random(seed)
        rest = damage_bytes(data, rng)
        learner = Learner(make_replica(), SID)
        with suppress(LearnerError):
            while rest:
                size = 1 if learner.state is LearnerState.GREETING else rng.choice((1, 7, 100, 5000))
                learner.receive_data(rest[:size])
                rest = rest[size:]
                if learner.state is LearnerState.INVITED:
                    learner.join()
