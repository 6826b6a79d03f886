"""The methods of a Cluster, including methods that cut links silently, pause a process, and add members."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from typing import Final, Literal

import pytest
from support import frames
from support.script_client import ScriptClient
from support.waiting import repeat_until_fast

from zoolet.protocol import records as r
from zoolet.protocol.errors import NodeExistsError, NoNodeError
from zoolet.protocol.operations import OpCode
from zoolet.testing import Cluster, Server, delay, error, lose_reply
from zoolet.testing.cluster import ensemble

EPHEMERAL: Final = 1
AGES_S: Final = 1000.0
"""A duration in seconds that is longer than any test."""


def test_three_members_start_in_milliseconds() -> None:
    times: list[float] = []
    for _ in repeat_until_fast(times, 0.01):
        began = time.perf_counter()
        with Cluster(3):
            times.append(time.perf_counter() - began)

    assert min(times) < 0.01


def test_one_member_leads_and_two_follow(cluster: Cluster) -> None:
    assert sorted(member.status for member in cluster) == ["follower", "follower", "leader"]
    assert cluster.leader is not None
    assert cluster.leader.is_leader
    assert len(cluster) == 3
    assert cluster.hosts == ",".join(member.hosts for member in cluster)
    assert len(cluster.followers) == 2
    with pytest.raises(IndexError, match="member must be an index from 0 to 2, not 3"):
        cluster[3]
    with pytest.raises(IndexError, match="member must be an index from 0 to 2, not 'x'"):
        cluster["x"]  # type: ignore[index]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 0}, "members must be a number from 1 to 15, not 0"),
        ({"members": True}, "members must be a number from 1 to 15, not True"),
        ({"members": 99}, "from 1 to 15"),
        ({"observers": -1}, "observers must be a number from 0 to 15, not -1"),
        ({"ports": [1, 2]}, r"ports must be 3 ports, one per member, not \[1, 2\]"),
        ({"election": -1}, "election must be from 0 to 1,000,000,000 s, not -1"),
        ({"config": {"nonsense": 1}}, "nonsense"),
        ({"clock": "none"}, "clock"),
    ],
)
def test_invalid_cluster_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Cluster(**options)  # type: ignore[arg-type]


# --- failures ---


def test_another_member_leads_once_stop_leader_returns(cluster: Cluster) -> None:
    for epoch in range(2, 12):
        old = cluster.stop_leader()
        assert cluster.leader not in (None, old)
        assert cluster.epoch == epoch
        old.start()
        assert old.status == "follower"


def test_cluster_without_quorum_has_no_leader(cluster: Cluster) -> None:
    cluster.kill_leader()
    cluster.stop_leader()

    assert cluster.leader is None
    with pytest.raises(RuntimeError, match=r"no leader: member 0 is looking.*start\(\)"):
        cluster.create("/a")
    cluster[2].start()
    assert cluster.leader is not None
    assert cluster.create("/a") == "/a"


def test_leadership_moves_only_to_electable_member(cluster: Cluster) -> None:
    cluster.transfer_leadership(0)
    assert cluster.leader is cluster[0]
    cluster.partition([1], [0, 2])
    with pytest.raises(ValueError, match="member 1 cannot lead"):
        cluster.transfer_leadership(1)


def test_partition_names_each_member_once(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="member 1 is in two groups"):
        cluster.partition([0, 1], [1, 2])
    with pytest.raises(IndexError):
        cluster.partition([7])


def test_write_of_deposed_leader_is_discarded(cluster: Cluster, clients: list[ScriptClient]) -> None:
    leader = cluster.leader
    assert leader is not None
    others = [member.index for member in cluster if member is not leader]
    client, reader = clients[:2]
    client.connect(leader.port)
    client.create("/a", b"1")
    cluster.partition([leader.index], others, noticed_after=AGES_S)

    client.send(OpCode.SET_DATA, r.SetDataRequest("/a", b"2", -1))
    assert client.answer(0.1)[0] == "nothing"
    cluster.partition([leader.index], others)  # now the members notice the cut

    assert client.is_closed()
    assert reader.connect(cluster[others[0]].port) == "new"
    assert reader.get("/a") == "1"
    cluster.heal()
    assert leader.status == "follower"
    assert leader.tree()["/a"].data == b"1"
    assert reader.set("/a", b"3") == "OK"
    assert leader.tree()["/a"].data == b"3"


def test_leader_in_silent_partition_serves_only_reads(cluster: Cluster, clients: list[ScriptClient]) -> None:
    leader = cluster.leader
    assert leader is not None
    client = clients[0]
    client.connect(leader.port)
    client.create("/a", b"1")
    cluster.partition([leader.index], noticed_after=0.3)
    began = time.monotonic()

    assert client.get("/a") == "1"
    assert client.set("/a", b"2") == "closed"
    assert time.monotonic() - began > 0.2


def test_unnoticed_partition_loses_no_request(cluster: Cluster, clients: list[ScriptClient]) -> None:
    leader = cluster.leader
    assert leader is not None
    client = clients[0]
    client.connect(leader.port)
    cluster.partition([leader.index], noticed_after=AGES_S)
    client.send(OpCode.CREATE, r.CreateRequest("/a", b"", (), 0))
    client.send(OpCode.SYNC, r.SyncRequest("/"))
    assert client.answer(0.1)[0] == "nothing"
    epoch = cluster.epoch

    cluster.heal()

    assert [client.answer()[0], client.answer()[0]] == ["INVALID_ACL", "OK"]
    assert cluster.epoch == epoch


def test_requests_waiting_for_network_keep_order(cluster: Cluster, clients: list[ScriptClient]) -> None:
    follower = cluster.followers[0]
    client = clients[0]
    client.connect(follower.port)
    everyone = [member.index for member in cluster]
    cluster.partition([follower.index], [i for i in everyone if i != follower.index], noticed_after=AGES_S)
    client.create("/a", b"", 0, 0.05)
    cluster.partition(everyone, noticed_after=AGES_S)
    for op, body in ((OpCode.SET_DATA, r.SetDataRequest("/a", b"1", -1)), (OpCode.SYNC, r.SyncRequest("/"))):
        client.send(op, body)
    client.send(OpCode.GET_DATA, r.GetDataRequest("/a", False))

    answers = [client.answer() for _ in range(4)]

    assert [error for error, _ in answers] == ["OK"] * 4
    assert answers[0][1] == frames.string("/a")
    assert r.GetDataResponse.decode(answers[3][1]).data == b"1"


@pytest.mark.parametrize("compat", ["3.8", "3.9"])
def test_internal_operation_fails_in_cluster_as_on_server(
    compat: Literal["3.8", "3.9"], clients: list[ScriptClient]
) -> None:
    answers = []
    with Cluster(3, compat=compat) as cluster, Server(compat=compat) as server:
        for client, port in zip(clients, (cluster[0].port, server.port), strict=False):
            client.connect(port)
            client.send(OpCode.DELETE_CONTAINER, r.DeleteRequest("/a", -1))
            answers.append((client.answer()[0], client.create("/a")))
            client.drop()
        assert cluster.create("/b") == "/b"
        assert [list(member.tree()) for member in cluster] == [list(cluster.tree())] * 3
    assert answers[0] == answers[1]


def test_paused_member_is_silent_and_catches_up(cluster: Cluster, clients: list[ScriptClient]) -> None:
    follower = cluster.followers[0]
    client, writer = clients[:2]
    client.connect(follower.port)
    writer.connect(cluster.followers[1].port)
    follower.pause()
    client.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
    assert client.answer(0.05)[0] == "nothing"
    writer.create("/a")

    assert follower.tree() == {}
    follower.resume()

    assert "/a" in follower.tree()
    assert client.answer()[0] in ("OK", "NO_NODE", "closed")


def test_paused_leader_is_deposed(cluster: Cluster) -> None:
    old = cluster.leader
    assert old is not None
    old.pause()

    assert cluster.leader not in (None, old)
    cluster.create("/a")
    old.resume()
    assert old.status == "follower"
    assert "/a" in old.tree()


def test_report_shows_when_lag_of_leader_takes_effect(cluster: Cluster) -> None:
    leader = cluster.leader
    assert leader is not None
    cluster.lag(leader, 5)
    assert f"{leader.hosts} leader, lags by 5 s once it follows" in cluster.report()
    cluster.transfer_leadership(cluster.followers[0])
    assert "once it follows" not in cluster.report()
    assert f"{leader.hosts} follower, lags by 5 s" in cluster.report()


def test_heal_ends_endless_lag_of_follower(cluster: Cluster, clients: list[ScriptClient]) -> None:
    follower = cluster.followers[0]
    cluster.lag(follower.index, inf)
    cluster.create("/a")
    cluster.create("/b")
    assert follower.tree() == {}
    assert f"{follower.index} {follower.hosts} follower, behind by 2 transactions, lags by inf s" in cluster.report()
    cluster.heal()
    assert list(follower.tree()) == ["/a", "/b"]
    with pytest.raises(ValueError, match="lag"):
        cluster.lag(0, -1)


def test_member_that_missed_too_much_gets_whole_state(cluster: Cluster) -> None:
    follower = cluster.followers[0]
    follower.stop()
    for number in range(50):
        cluster.create(f"/n{number}")
    before, ensemble.MAX_LOGGED_TRANSACTIONS = ensemble.MAX_LOGGED_TRANSACTIONS, 5
    try:
        cluster.create("/last")
        follower.start()
    finally:
        ensemble.MAX_LOGGED_TRANSACTIONS = before

    assert len(follower.tree()) == 51
    assert follower.tree() == cluster.tree()


def test_rolling_restart_keeps_sessions(cluster: Cluster, clients: list[ScriptClient]) -> None:
    client = clients[0]
    client.connect(cluster[0].port)
    client.create("/e", b"", EPHEMERAL)

    cluster.rolling_restart()

    assert client.is_closed()
    assert client.connect(cluster[1].port) == "resumed"
    assert client.exists("/e") == "OK"


def test_restart_of_all_keeps_state_by_default(cluster: Cluster) -> None:
    cluster.create("/a")
    cluster.restart()
    assert "/a" in cluster.tree()
    assert all("/a" in member.tree() for member in cluster)
    cluster.restart(keep=False)
    assert cluster.tree() == {}
    assert [dict(member.tree()) for member in cluster] == [{}, {}, {}]
    with pytest.raises(ValueError, match=r"call cluster\.restart\(keep=False\)"):
        cluster[0].restart(keep=False)
    cluster[0].restart()
    assert cluster[0].status == "follower"


def test_election_takes_configured_time(clients: list[ScriptClient]) -> None:
    with Cluster(3, election=0.2) as cluster:
        assert cluster.leader is not None  # the first election is immediate
        cluster.stop_leader()
        assert cluster.leader is None
        assert [member.status for member in cluster if member.running] == ["looking", "looking"]
        assert clients[0].connect(cluster[0].port) == "closed"
        cluster.wait_for(lambda: cluster.leader is not None)


# --- adding and removing members ---


def test_observers_follow_and_do_not_vote(clients: list[ScriptClient]) -> None:
    with Cluster(3, observers=1) as cluster:
        observer = cluster[3]
        assert (observer.role, observer.status) == ("observer", "observer")
        clients[0].connect(observer.port)
        assert clients[0].create("/a") == "/a"
        cluster[0].stop()
        assert cluster.leader is not None
        cluster[1].stop()
        assert cluster.leader is None


def test_members_are_added_and_removed() -> None:
    with Cluster(3, config={"reconfigEnabled": "true"}) as cluster:
        cluster.create("/a", b"1")
        added = cluster.add()
        assert (added.status, added.index, len(cluster)) == ("follower", 3, 4)
        assert "/a" in added.tree()
        assert cluster.hosts.endswith(added.hosts)
        observer = cluster.add(role="observer")
        assert observer.role == "observer"
        config = (cluster.tree("/zookeeper")["/zookeeper/config"].data or b"").decode()
        assert [line.split(";")[0].rsplit(":")[-1] for line in config.splitlines()[:-1]] == ["participant"] * 4 + [
            "observer"
        ]

        leader = cluster.leader
        assert leader is not None
        cluster.remove(leader.index)
        assert cluster.leader not in (None, leader)
        assert len(cluster) == 4
        with pytest.raises(ValueError, match="role"):
            cluster.add(role="leader")  # type: ignore[arg-type]


def test_last_voter_cannot_be_removed() -> None:
    with Cluster(1) as cluster:
        with pytest.raises(ValueError, match="no other member votes"):
            cluster.remove(0)


# --- the methods of a server ---


def test_changes_by_any_member_reach_all_members(cluster: Cluster) -> None:
    cluster.populate({"/app": {"a": b"1"}})
    cluster[0].create("/app/b", b"2")
    cluster.set("/app/a", b"3")
    cluster[1].delete("/app/b")

    for member in cluster:
        assert {path: node.data for path, node in member.tree().items()} == {"/app": b"", "/app/a": b"3"}
    with pytest.raises(NodeExistsError):
        cluster.create("/app")
    with pytest.raises(NoNodeError):
        cluster.set("/none", b"")


def test_fault_applies_at_all_members_or_at_one(cluster: Cluster, clients: list[ScriptClient]) -> None:
    one, two = clients[:2]
    one.connect(cluster[0].port)
    two.connect(cluster[1].port)
    with cluster.fault(error("NODE_EXISTS"), "create", times=2) as fault:
        assert (one.create("/a"), two.create("/b"), two.create("/c")) == ("NODE_EXISTS", "NODE_EXISTS", "/c")
        assert fault.hits == 2
    with cluster[0].fault(lose_reply(), "setData"):
        assert one.set("/c", b"1") == "closed"
        assert two.set("/c", b"2") == "OK"
    with cluster[1].fault(delay(0.1), "getData"):
        began = time.monotonic()
        assert two.get("/c") == "2"
        assert time.monotonic() - began >= 0.1


def test_requests_of_all_members_are_recorded(cluster: Cluster, clients: list[ScriptClient]) -> None:
    one, two = clients[:2]
    one.connect(cluster[0].port)
    with cluster.recording() as everywhere, cluster[1].recording() as there:
        two.connect(cluster[1].port)
        two.create("/a")
        one.exists("/a")

    assert [entry.op for entry in everywhere] == ["connect", "create", "exists"]
    assert [entry.op for entry in there] == ["connect", "create"]
    assert [op.op for op in cluster.ops(1)] == ["exists"]


def test_session_calls_of_cluster_reach_session_at_any_member(cluster: Cluster, clients: list[ScriptClient]) -> None:
    one, two, three = clients[:3]
    for number, client in enumerate((one, two, three)):
        client.connect(cluster[number].port)
    one.create("/e", b"", EPHEMERAL)
    cluster.expire(one.session.session_id)
    assert "/e" not in cluster.tree()
    assert one.is_closed()
    assert one.connect(cluster[2].port) == "expired"
    cluster.drop(two.session.session_id)
    assert two.is_closed()
    assert two.connect(cluster[0].port) == "resumed"
    cluster.pause(three.session.session_id)
    three.send(OpCode.PING)
    assert three.answer(0.05)[0] == "nothing"
    cluster.resume(three.session.session_id)
    assert three.answer()[0] == "OK"
    cluster[0].expire("all")
    assert cluster.sessions() == {}


def test_snapshot_is_restored_at_all_members(cluster: Cluster) -> None:
    cluster.create("/a", b"1")
    snapshot = cluster.snapshot()
    zxid = cluster.zxid()
    cluster.set("/a", b"2")
    cluster.create("/b")
    cluster.stop_leader()
    cluster.restore(snapshot)

    for member in cluster:
        assert {path: node.data for path, node in member.tree().items()} == {"/a": b"1"}
    assert cluster.zxid() > zxid
    cluster.set("/a", b"3")
    assert cluster[0].tree()["/a"].version == 1
    with Cluster(1) as other, pytest.raises(ValueError, match="expected a snapshot of this cluster"):
        other.restore(snapshot)


def test_reset_empties_and_restarts_cluster(cluster: Cluster, clients: list[ScriptClient]) -> None:
    clients[0].connect(cluster[0].port)
    clients[0].create("/e", b"", EPHEMERAL)
    before = cluster.hosts
    cluster.stop_leader()
    cluster.partition([0], [1])
    cluster.fault(error("NODE_EXISTS"), "create")

    cluster.reset()

    assert clients[0].is_closed()
    assert (cluster.tree(), cluster.sessions(), cluster.faults()) == ({}, {}, [])
    assert sorted(member.status for member in cluster) == ["follower", "follower", "leader"]
    assert cluster.hosts != before
    assert clients[1].connect(cluster[0].port) == "new"
    assert clients[1].create("/a") == "/a"


def test_manual_clock_applies_to_all_members(clients: list[ScriptClient]) -> None:
    with Cluster(3, clock="manual", seed=1) as cluster:
        client, other = clients[:2]
        client.connect(cluster[0].port, timeout_ms=10_000)
        other.connect(cluster[1].port, timeout_ms=40_000)
        client.create("/e", b"", EPHEMERAL)
        cluster.lag(1, 5.0)
        cluster.create("/a")
        assert "/a" not in cluster[1].tree()
        cluster.advance(5)
        assert "/a" in cluster[1].tree()
        assert other.ping() == "OK"
        cluster.advance(6)
        assert client.is_closed()
        assert list(cluster.sessions()) == [other.session.session_id]
        assert "/e" not in cluster.tree()


@pytest.mark.parametrize(
    "how", [Cluster.stop_leader, Cluster.kill_leader, lambda cluster: cluster.transfer_leadership(1)]
)
def test_election_gives_sessions_whole_timeout(clients: list[ScriptClient], how: Callable[[Cluster], object]) -> None:
    with Cluster(3, clock="manual", seed=1) as cluster:
        clients[0].connect(cluster.leader.port, timeout_ms=10_000)  # type: ignore[union-attr] # the clock stands still
        cluster.advance(9)
        how(cluster)

        cluster.advance(9.9)
        assert list(cluster.sessions()) == [clients[0].session.session_id]
        cluster.advance(0.2)
        assert not cluster.sessions()


@pytest.mark.parametrize(("name", "arguments"), [("snapshot", ()), ("restore", (1,)), ("reset", ()), ("advance", (1,))])
def test_cluster_call_on_member_raises_with_advice(cluster: Cluster, name: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=rf"a member has no {name}\(\): call cluster.{name}"):
        getattr(cluster[0], name)(*arguments)


def test_set_read_only_of_cluster_raises(cluster: Cluster) -> None:
    for one in (cluster, cluster[0]):
        with pytest.raises(ValueError, match="without a quorum"):
            one.set_read_only(True)


def test_report_shows_leader_lag_and_isolation(cluster: Cluster) -> None:
    cluster.create("/a")
    cluster.partition([0], [1, 2])
    cluster.lag(1, 5)

    report = cluster.report()

    assert "epoch 1, 1 transactions" in report
    assert f"0 {cluster[0].address} looking, reaches no leader" in report
    assert f"1 {cluster[1].address} follower, lags by 5 s" in report
    assert f"2 {cluster[2].address} leader" in report
    assert "/a" in report


def test_cluster_lists_each_leak_once(cluster: Cluster, clients: list[ScriptClient]) -> None:
    clients[0].connect(cluster[0].port)
    clients[0].create("/e", b"", EPHEMERAL)
    clients[0].exists("/w", watch=True)

    leaks = cluster.leaks()

    assert [leak.split(" ")[0] for leak in leaks] == ["session", "ephemeral", "data"]


def test_oversized_request_to_cluster_closes_connection(cluster: Cluster, clients: list[ScriptClient]) -> None:
    client, other = clients[:2]
    client.connect(cluster[0].port)
    client.send(OpCode.CREATE, b"-" * (3 << 20))

    assert client.answer()[0] == "closed"
    assert other.connect(cluster[0].port) == "new"
    assert cluster.zxid() & 0xFFFF == 2
