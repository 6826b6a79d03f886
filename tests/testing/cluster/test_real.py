"""The cluster fixture with a real ensemble, ``--zoolet-hosts``; here a second cluster takes its place."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.script_client import ScriptClient

from zoolet.client.blocking import Client
from zoolet.protocol.errors import NoAuthError
from zoolet.testing import Cluster, error
from zoolet.testing.cluster.real import RealCluster
from zoolet.testing.real import UnsupportedError


@pytest.fixture
def real(cluster: Cluster) -> Iterator[RealCluster]:
    """Three servers, each behind a proxy."""
    with RealCluster(cluster.hosts, seed=1) as real:
        yield real


def test_real_cluster_knows_its_leader(cluster: Cluster, real: RealCluster) -> None:
    assert [member.status for member in real] == [member.status for member in cluster]
    assert real.leader is not None
    assert cluster.leader is not None
    assert real.leader.index == cluster.leader.index
    assert len(real.followers) == 2
    cluster[0].stop()
    assert real[0].status == "down"
    cluster[1].stop()
    assert real[2].status == "looking"
    cluster[1].start()


def test_fault_applies_to_one_member_or_all(real: RealCluster) -> None:
    with Client(real[0].hosts) as one, Client(real[1].hosts) as other:
        real.create("/a")
        one.sync("/")
        other.sync("/")
        with real[0].fault(error("NO_AUTH"), "get"):
            assert other.get("/a")[0] == b""
            with pytest.raises(NoAuthError):
                one.get("/a")
        with real.fault(error("NO_AUTH"), "get"), pytest.raises(NoAuthError):
            other.get("/a")
        with real.recording() as recording:
            other.get("/a")
        recording.assert_ops("getData /a")


def test_stopped_follower_refuses_clients(real: RealCluster, clients: list[ScriptClient]) -> None:
    client, follower = clients[0], real.followers[0]
    assert client.connect(follower.port) == "new"
    follower.stop()
    assert client.answer()[0] == "closed"
    assert client.connect(follower.port) == "refused"
    assert follower.status == "down"
    assert client.connect(real.followers[0].port) == "resumed"
    follower.start()
    assert client.connect(follower.port) == "resumed"


def test_drop_and_expire_reach_sessions_of_any_member(cluster: Cluster, real: RealCluster) -> None:
    with Client(real[2].hosts, 10) as zk:
        zk.create("/e", ephemeral=True)
        real.drop("all")
        zk.sync("/")
        assert list(real.sessions()) == [zk.session_id]
        real.expire(zk.session_id)
    assert "/e" not in cluster.tree()


def test_call_requiring_embedded_members_raises(real: RealCluster) -> None:
    for call in ("stop_leader", "partition", "lag", "rolling_restart"):
        with pytest.raises(UnsupportedError, match=f"{call} needs embedded members"):
            getattr(real, call)
    assert real.leader is not None
    with pytest.raises(UnsupportedError, match="of the leader"):
        real.leader.stop()
    with pytest.raises(AttributeError, match="no attribute 'lags'"):
        real.lags  # type: ignore[unused-ignore] # noqa: B018


def test_fixture_runs_on_real_cluster(cluster: Cluster, project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        def test_a_node(zoolet_cluster):
            zoolet_cluster.create("/a")
            assert list(zoolet_cluster.tree()) == ["/a"]

        def test_an_election(zoolet_cluster):
            zoolet_cluster.stop_leader()
        """
    )

    result = project.runpytest_inprocess("--zoolet-hosts", cluster.hosts, "-rs")

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*stop_leader needs embedded members*"])
    assert list(cluster.tree()) == []


def test_stop_that_loses_quorum_of_real_cluster_is_refused(cluster: Cluster, real: RealCluster) -> None:
    first, second = real.followers
    first.kill()
    with pytest.raises(UnsupportedError, match="loses the quorum"):
        second.kill()
    first.start()
    second.kill()
    second.start()


def test_cluster_fixture_needs_as_many_hosts_as_members(cluster: Cluster, project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import pytest

        def test_default(zoolet_cluster): ...

        @pytest.mark.zoolet(members=2, observers=0)
        def test_two(zoolet_cluster):
            assert len(zoolet_cluster) == 2

        @pytest.mark.zoolet(members=2)
        def test_state_of_a_member(zoolet_cluster):
            zoolet_cluster[0].tree()
        """
    )

    result = project.runpytest_inprocess("--zoolet-hosts", ",".join(cluster.hosts.split(",")[:2]), "-rs")

    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines_random(
        ["*a cluster of 3 members needs 3 hosts; found 2*", "*tree needs embedded members*"]
    )
