"""The rows of ``mntr`` that monitoring tools read from members."""

from __future__ import annotations

from support.embedded import ask

from zoolet.testing import Cluster


def read_mntr(port: int) -> dict[str, str]:
    """Return the metrics in a member's answer to ``mntr``."""
    return dict(line.split("\t") for line in ask(port, b"mntr").decode().splitlines())


def test_mntr_shows_role_of_each_member() -> None:
    with Cluster(3, observers=1) as cluster:
        leader = cluster.leader
        assert leader is not None
        shown = [read_mntr(member.port) for member in cluster]
        assert [each["zk_server_state"] for each in shown] == ["follower", "follower", "leader", "observer"]
        states = [each["zk_peer_state"] for each in shown]
        assert states == [f"{verb} - broadcast" for verb in ("following", "following", "leading", "observing")]
        assert {each["zk_quorum_size"] for each in shown} == {"3"}
        assert "zk_learners" not in shown[0]

        cluster.followers[0].stop()

        leads = read_mntr(leader.port)
        assert (leads["zk_synced_followers"], leads["zk_synced_observers"], leads["zk_learners"]) == ("1", "1", "2")
        assert leads["zk_pending_syncs"] == "0"


def test_member_without_leader_answers_few_commands() -> None:
    with Cluster(3) as cluster:
        cluster.partition([0], [1, 2])
        answers = {word: ask(cluster[0].port, word) for word in (b"ruok", b"conf", b"srvr", b"mntr")}

    assert answers[b"ruok"] == b"imok"
    assert answers[b"conf"].startswith(b"clientPort=")
    assert answers[b"srvr"] == answers[b"mntr"] == b"This ZooKeeper instance is not currently serving requests\n"
