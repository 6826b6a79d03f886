"""Elections, downtimes, and changing members and sessions, with a manual clock."""

from __future__ import annotations

import socket
from collections.abc import Callable
from random import Random

import pytest
from kazoo.client import KazooClient
from support.script_client import ScriptClient
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client
from zoolet.server.core.node import Node
from zoolet.testing import Cluster, withhold_event
from zoolet.testing.cluster.member import Member, MemberEngine

READ_ONLY = {"readonlymode.enabled": True, "localSessionsEnabled": True, "localSessionsUpgradingEnabled": True}


def test_election_restarts_if_quorum_was_lost() -> None:
    with Cluster(3, clock="manual", election=1.0) as cluster:
        cluster.stop_leader()
        cluster.advance(0.5)
        other = cluster[0] if cluster[0].running else cluster[1]
        other.kill()
        cluster.advance(0.4)
        other.start()

        cluster.advance(0.9)
        assert cluster.leader is None

        cluster.advance(0.1)
        assert cluster.leader is not None


def test_removed_leader_is_replaced_by_electable_one() -> None:
    with Cluster(5, clock="manual", election=0.5) as cluster:
        leader = cluster.leader
        assert leader is not None
        lonely = cluster.followers[0]
        cluster.partition([lonely], noticed_after=100)

        cluster.remove(leader)

        assert cluster.leader not in (None, leader, lonely)
        cluster.heal()
        cluster.stop_leader()
        assert cluster.leader is None  # elections still take their time
        cluster.advance(0.5)
        assert cluster.leader is not None


def test_resumed_lone_member_becomes_read_only() -> None:
    with Cluster(3, clock="manual", config=READ_ONLY) as cluster:
        cluster[0].pause()
        cluster[1].kill()
        cluster[2].kill()

        cluster.heal()
        cluster.advance(10)

        assert cluster[0].status == "read-only"


# --- downtimes ---


def stop(cluster: Cluster) -> None:
    cluster[0].stop()


def kill(cluster: Cluster) -> None:
    cluster[0].kill()


def start_and_kill(cluster: Cluster) -> None:
    cluster[0].start()
    cluster[0].kill()


def reset_and_stop(cluster: Cluster) -> None:
    cluster.reset()
    cluster[0].stop()


@pytest.mark.parametrize("then", [stop, kill, start_and_kill, reset_and_stop])
@pytest.mark.parametrize("whole", [True, False], ids=["cluster", "member"])
def test_end_of_downtime_does_not_undo_later_changes(whole: bool, then: Callable[[Cluster], None]) -> None:
    with Cluster(3, clock="manual") as cluster:
        (cluster if whole else cluster[0]).restart(downtime=5)
        then(cluster)

        cluster.advance(6)

        assert cluster[0].status == "down"


def test_member_is_restarted_from_any_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONASYNCIODEBUG", "1")
    with Cluster(3) as cluster:
        cluster[0].restart(downtime=0.02)

        cluster.wait_for(lambda: cluster[0].running and cluster[0].status == "follower")


# --- adding and removing members ---


def test_isolated_added_member_becomes_read_only() -> None:
    with Cluster(3, clock="manual", config=READ_ONLY) as cluster:
        cluster.partition([0, 1, 2])
        added = cluster.add()

        cluster.advance(3)

        assert added.status == "read-only"


def test_leader_without_quorum_is_not_removed() -> None:
    with Cluster(3, clock="manual", election=0.5) as cluster:
        leader = cluster.leader
        assert leader is not None
        cluster.partition([leader], noticed_after=100)

        with pytest.raises(RuntimeError, match="reaches no quorum"):
            cluster.remove(leader)

        assert len(cluster) == 3


@pytest.mark.parametrize("call", ["start", "stop", "kill", "pause", "resume", "restart"])
def test_call_of_removed_member_raises(call: str) -> None:
    with Cluster(3) as cluster:
        member = cluster[2]
        cluster.remove(member)

        with pytest.raises(RuntimeError, match="the member was removed from its cluster"):
            getattr(member, call)()

        with pytest.raises(IndexError):
            cluster.remove(member)


def test_events_are_withheld_at_member_added_later() -> None:
    with Cluster(3) as cluster, cluster.fault(withhold_event()) as fault:
        with Client(cluster.add().hosts) as zk, zk.watch("/a"):
            zk.create("/a")
            cluster.wait_for(lambda: fault.hits == 1)


def test_lag_counts_from_sending_of_transaction() -> None:
    with Cluster(3, clock="manual") as cluster:
        late = cluster.followers[0]
        cluster.populate({"/a": b"old"})
        cluster.lag(late, 1)
        cluster.set("/a", b"new")
        cluster.advance(0.9)

        cluster.lag(late, 1)
        cluster.advance(0.1)

        assert late.tree()["/a"].data == b"new"


def test_stopped_cluster_has_no_leader() -> None:
    with Cluster(3) as cluster:
        pass

    assert cluster.leader is None


# --- sessions ---


def test_ephemeral_of_cluster_create_has_own_session() -> None:
    with Cluster(3, clock="manual") as cluster, Client(cluster[0].hosts) as zk:
        cluster.create("/lock/x-", ephemeral=True, sequential=True)

        assert len(cluster.sessions()) == 2
        assert zk.ephemerals() == []


def test_reset_closes_local_sessions() -> None:
    with Cluster(3, config=READ_ONLY) as cluster, Client(cluster[0].hosts) as zk:
        zk.create("/a")

        cluster.reset()

        assert cluster.leader is not None
        assert len(cluster.followers) == 2


def test_member_with_local_sessions_gets_whole_state() -> None:
    with Cluster(3, clock="manual", config=READ_ONLY) as cluster:
        cluster.partition([0, 1, 2])
        added = cluster.add()
        cluster.advance(3)
        reader = ScriptClient()
        reader.connect(added.port, read_only=True)

        cluster.heal()

        assert added.status == "follower"
        reader.drop()


def test_members_failing_to_join_leave_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Member] = []
    open_member = Member.open

    async def open_and_isolate_the_leader(member: Member) -> None:
        await open_member(member)
        opened.append(member)
        leader = cluster.ensemble.leader
        assert leader is not None
        cluster.ensemble.network.partition([[leader.number]])

    with Cluster(3) as cluster:
        monkeypatch.setattr(Member, "open", open_and_isolate_the_leader)
        with pytest.raises(RuntimeError, match="reaches no quorum"):
            cluster.add()

        assert len(cluster) == 3
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", opened[0].daemon.port), timeout=DEADLINE_S)


def test_rolling_restart_starts_no_stopped_member() -> None:
    with Cluster(3) as cluster:
        cluster[0].kill()

        cluster.rolling_restart()

        assert [member.running for member in cluster] == [False, True, True]


def test_requests_succeed_after_wait_for_client() -> None:
    with Cluster(3) as cluster:
        zk = KazooClient(cluster.hosts)
        zk.start()
        for _ in range(3):
            dead = cluster.kill_leader()
            cluster.wait_for_client(zk)
            assert zk.exists("/") is not None
            dead.start()
        zk.stop()
        zk.close()


def test_wait_for_client_succeeds_only_at_its_member() -> None:
    with Cluster(3) as cluster, Client(cluster[1].hosts) as zk:
        cluster[1].wait_for_client(zk)
        with pytest.raises(TimeoutError):
            cluster[0].wait_for_client(zk, 0.0)


def test_member_frees_nodes_in_successive_ticks() -> None:
    engine = MemberEngine(rng=Random(0))
    engine.on_tick = lambda: False
    engine.tree.unfreed = [Node(b"", 0, 1, 1, 1)] * 30_000

    assert [engine.tick() for _ in range(2)] == [True, False]
