"""Regression tests for defects that an adversarial review of the cluster found."""

from __future__ import annotations

import os

import pytest
from support.script_client import ScriptClient

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.testing import Cluster
from zoolet.testing.cluster import ensemble

EPHEMERAL = 1
AGES_S = 1000.0
RECONFIG = {"reconfigEnabled": "true", "skipACL": "yes"}


def other_members(cluster: Cluster, index: int) -> list[int]:
    """Return all members but one."""
    return [member.index for member in cluster if member.index != index]


def test_events_missed_in_partition_arrive_after_heal(cluster: Cluster, clients: list[ScriptClient]) -> None:
    reader, writer = clients[:2]
    follower = cluster.followers[0]
    reader.connect(follower.port)
    writer.connect(cluster.followers[1].port)
    reader.exists("/a", watch=True)
    cluster.partition([follower.index], other_members(cluster, follower.index), noticed_after=AGES_S)
    writer.create("/a")

    cluster.heal()

    assert reader.wait_for_events(1) == ["NODE_CREATED /a"]
    assert "behind" not in cluster.report()


@pytest.mark.parametrize("operation", ["set", "create"])
def test_restore_discards_uncommitted_writes(operation: str, cluster: Cluster, clients: list[ScriptClient]) -> None:
    snapshot = cluster.snapshot()
    cluster.create("/a", b"1")
    leader = cluster.leader
    assert leader is not None
    client = clients[0]
    client.connect(leader.port)
    cluster.partition([leader.index], other_members(cluster, leader.index), noticed_after=AGES_S)
    if operation == "set":
        client.set("/a", b"x", -1, 0.05)
    else:
        client.create("/b", b"", 0, 0.05)

    cluster.restore(snapshot)
    cluster.heal()

    assert client.is_closed()
    assert [dict(each.tree()) for each in (cluster, *cluster)] == [{}] * 4
    assert client.connect_patiently(cluster[0].port) == "resumed"
    assert client.create("/b") == "/b"


def test_session_id_contains_number_of_its_member(
    cluster: Cluster, clients: list[ScriptClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ensemble, "MAX_LOGGED_TRANSACTIONS", 5)
    for client, member in zip(clients, cluster, strict=False):
        client.connect(member.port)
    cluster[0].kill()
    for number in range(30):
        cluster.create(f"/n{number}")
    cluster[0].start()

    clients[3].connect(cluster[0].port)
    clients[4].connect(cluster[2].port)

    assert len({client.session.session_id for client in clients}) == 5
    assert clients[3].session.session_id >> 56 == 1


@pytest.mark.parametrize("how", ["resume", "heal"])
def test_resumed_old_leader_disconnects_its_clients(cluster: Cluster, clients: list[ScriptClient], how: str) -> None:
    client, old = clients[0], cluster.leader
    assert old is not None
    client.connect(old.port)
    old.pause()
    client.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
    cluster.create("/a")

    old.resume() if how == "resume" else cluster.heal()

    assert client.answer()[0] == "closed"
    assert old.status == "follower"
    assert "/a" in old.tree()


def test_killed_paused_member_starts_unpaused(cluster: Cluster, clients: list[ScriptClient]) -> None:
    follower = cluster.followers[0]
    follower.pause()
    follower.kill()
    follower.start()

    assert clients[0].connect(follower.port) == "new"


def test_reset_restores_initial_votes(clients: list[ScriptClient]) -> None:
    with Cluster(3, config=RECONFIG) as cluster:
        clients[0].connect(cluster[2].port)
        for joining, leaving in (("server.9=127.0.0.1:1:2:participant;127.0.0.1:4", None), (None, "1")):
            error, _ = clients[0].call(OpCode.RECONFIG, r.ReconfigRequest(joining, leaving, None, -1))
            assert error == "OK"
        cluster.reset()

        assert [member.role for member in cluster] == ["participant"] * 3
        cluster.kill_leader()
        assert cluster.leader is not None


def test_configuration_names_current_members(clients: list[ScriptClient]) -> None:
    with Cluster(3, config=RECONFIG) as cluster:
        cluster.restart(keep=False)
        assert len(configuration_lines(cluster)) == 3
        leader = cluster.leader
        assert leader is not None
        cluster.remove(leader.index)
        assert len(configuration_lines(cluster)) == 2
        assert [member.index for member in cluster] == [0, 1]
        cluster.create("/a")
        cluster.lag(cluster[0].index, 0.0)


def configuration_lines(cluster: Cluster) -> list[str]:
    """Return the members that the configuration names."""
    data = cluster.tree("/zookeeper")["/zookeeper/config"].data or b""
    return [line for line in data.decode().splitlines() if line.startswith("server.")]


def test_session_is_closed_from_previous_member(cluster: Cluster, clients: list[ScriptClient]) -> None:
    old, new = clients[:2]
    old.connect(cluster[0].port)
    old.create("/e", b"", EPHEMERAL)
    new.session, new.zxid = old.session, old.zxid
    new.connect(cluster[1].port)

    assert old.close() == "OK"
    assert cluster.sessions() == {}
    assert "/e" not in cluster.tree()


def test_local_sessions_expire_by_clock_and_by_call(clients: list[ScriptClient]) -> None:
    with Cluster(3, clock="manual", config={"localSessionsEnabled": True}) as cluster:
        first, second = clients[:2]
        first.connect(cluster[0].port, timeout_ms=4000)
        cluster.advance(60)
        assert cluster.sessions() == {}
        assert first.is_closed()
        for who in (None, "all"):
            second = ScriptClient()
            second.connect(cluster[1].port)
            cluster.expire(who or second.session.session_id)
            assert second.is_closed()
            assert cluster.sessions() == {}


def test_heal_restarts_wait_for_read_only_mode(clients: list[ScriptClient]) -> None:
    with Cluster(3, clock="manual", config={"readonlymode.enabled": True}) as cluster:
        cluster.partition([0], [1, 2])
        cluster.advance(1.5)
        cluster.heal()
        cluster.partition([0], [1, 2])
        cluster.advance(1.0)
        assert cluster[0].status == "looking"
        cluster.advance(1.0)
        assert cluster[0].status == "read-only"


# --- defects that first-time users found ---


def test_report_shows_partition(cluster: Cluster) -> None:
    assert "divided" not in cluster.report()
    cluster.partition([0])
    assert "  the network is divided: 0, 1 and 2\n  0 " in cluster.report()
    cluster.heal()
    assert "divided" not in cluster.report()


def test_unlisted_members_form_one_partition_group(cluster: Cluster) -> None:
    cluster.partition([2])

    assert [member.status for member in cluster] == ["follower", "leader", "looking"]
    for groups in ((), (0,), ("01",)):
        with pytest.raises(ValueError, match="groups must be collections of members"):
            cluster.partition(*groups)  # type: ignore[arg-type]


def test_change_by_cluster_without_quorum_is_refused(cluster: Cluster) -> None:
    leader = cluster.leader
    assert leader is not None
    cluster.partition([leader], noticed_after=AGES_S)

    with pytest.raises(RuntimeError, match="reaches no quorum"):
        cluster.create("/a")
    cluster.heal()
    cluster.create("/a")


def test_partition_is_noticed_despite_failed_members() -> None:
    with Cluster(5, clock="manual") as cluster:
        leader = cluster.leader
        assert leader is not None
        cluster.partition([leader], noticed_after=10)
        cluster[0].kill()
        cluster[1].pause()
        cluster.advance(9)
        assert cluster.leader is leader
        cluster[0].start()
        cluster.advance(1)
        assert cluster.leader not in (None, leader)


def test_cluster_calls_accept_member_object(cluster: Cluster) -> None:
    follower = cluster.followers[0]
    cluster.transfer_leadership(follower)
    assert cluster.leader is follower
    cluster.lag(cluster.followers[0], 1.0)
    cluster.remove(follower)
    assert follower not in list(cluster)
    assert cluster.leader is not None


def test_call_before_start_of_cluster_raises() -> None:
    cluster = Cluster(3)
    for call in (lambda: cluster.leader, lambda: cluster.followers, lambda: cluster[0].status, cluster.kill_leader):
        with pytest.raises(RuntimeError, match="not started; use it as 'with Cluster"):
            call()
    assert repr(cluster[0]) == "<zoolet Member 0, not started>"


# --- defects that a maintainer of another project found ---


def test_request_held_by_killed_member_is_not_executed(cluster: Cluster, clients: list[ScriptClient]) -> None:
    follower = cluster.followers[0]
    clients[0].connect(follower.port)
    cluster.partition([follower], noticed_after=AGES_S)
    clients[0].send(OpCode.CREATE, r.CreateRequest("/ghost", b"", OPEN_ACL_UNSAFE, 0))
    assert clients[0].answer(0.05)[0] == "nothing"
    follower.kill()
    cluster.heal()
    follower.start()
    cluster.create("/b")
    assert list(cluster.tree()) == ["/b"]


@pytest.mark.parametrize("how", ["restarted", "paused"])
def test_lone_returning_member_becomes_read_only(how: str) -> None:
    with Cluster(3, clock="manual", config={"readonlymode.enabled": "true"}) as cluster:
        if how == "paused":
            cluster[0].pause()
        cluster[1].kill()
        cluster[2].kill()
        cluster.advance(1)
        if how == "restarted":
            cluster[0].stop()
            cluster[0].start()
        else:
            cluster.advance(5)
            cluster[0].resume()
        cluster.advance(1.5)
        assert cluster[0].status == "looking"
        cluster.advance(1)
        assert cluster[0].status == "read-only"


def test_heal_does_not_restart_election() -> None:
    with Cluster(3, clock="manual", election=0.5) as cluster:
        cluster.stop_leader()
        for _ in range(3):
            cluster.advance(0.2)
            cluster.heal()
        assert cluster.leader is not None


def test_leader_is_removable_despite_slow_elections() -> None:
    with Cluster(3, clock="manual", election=0.5) as cluster:
        old = cluster.leader
        assert old is not None
        cluster.remove(old)
        assert len(cluster) == 2
        assert cluster.leader not in (None, old)


def test_member_is_not_added_without_leader(cluster: Cluster) -> None:
    cluster[0].kill()
    cluster[1].kill()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="no leader"):
            cluster.add()
    assert len(os.listdir("/proc/self/fd")) <= before  # descriptors of the killed members are closed a moment later
    cluster[0].start()
    assert cluster.add().index == 3


def test_leadership_is_not_transferred_without_quorum() -> None:
    with Cluster(5) as cluster:
        leader = cluster.leader
        assert leader is not None
        near = cluster.followers[0]
        cluster.partition([leader, near], noticed_after=AGES_S)
        with pytest.raises(ValueError, match="and a quorum"):
            cluster.transfer_leadership(near)


def test_stopped_member_is_not_paused(cluster: Cluster) -> None:
    follower = cluster.followers[0]
    follower.stop()
    follower.pause()
    follower.start()
    assert follower.status == "follower"


def test_non_bool_config_value_is_refused() -> None:
    with pytest.raises(ValueError, match="localSessionsEnabled"):
        Cluster(3, config={"localSessionsEnabled": "yes"})
