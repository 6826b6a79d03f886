"""The rows of ``mntr`` that monitoring tools read from members."""

from __future__ import annotations

import socket

from support.waiting import DEADLINE_S

from zoolet.testing import Cluster


def monitored(port: int) -> dict[str, str]:
    """Return the metrics in a member's answer to ``mntr``."""
    with socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S) as connection:
        connection.sendall(b"mntr")
        text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    return dict(line.split("\t") for line in text.splitlines())


def test_mntr_shows_role_of_each_member() -> None:
    with Cluster(3, observers=1) as cluster:
        leader = cluster.leader
        assert leader is not None
        shown = [monitored(member.port) for member in cluster]
        assert [each["zk_server_state"] for each in shown] == ["follower", "follower", "leader", "observer"]
        states = [each["zk_peer_state"] for each in shown]
        assert states == [f"{verb} - broadcast" for verb in ("following", "following", "leading", "observing")]
        assert {each["zk_quorum_size"] for each in shown} == {"3"}
        assert "zk_learners" not in shown[0]

        cluster.followers[0].stop()

        leads = monitored(leader.port)
        assert (leads["zk_synced_followers"], leads["zk_synced_observers"], leads["zk_learners"]) == ("1", "1", "2")
        assert leads["zk_pending_syncs"] == "0"
