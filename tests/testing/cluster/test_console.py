"""The console of a cluster: the state of each member."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from support.waiting import DEADLINE_S

from zoolet.testing import Cluster

pytest.importorskip("h11")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, admin=True) as running:
        yield running


def query_console(cluster: Cluster, name: str, body: bytes | None = None) -> Any:
    """Return the console's answer."""
    with urllib.request.urlopen(f"{cluster.admin_url}console/api/{name}", data=body, timeout=DEADLINE_S) as answer:
        return json.load(answer)


def test_console_shows_leader_unless_member_is_named(cluster: Cluster) -> None:
    leader = cluster.leader
    assert leader is not None
    other = cluster.followers[0]

    about, named = query_console(cluster, "about"), query_console(cluster, f"about?member={other.index}")

    assert (about["member"], about["name"]) == (leader.index, leader.hosts)
    assert (named["member"], named["name"]) == (other.index, other.hosts)
    assert [each["status"] for each in about["members"]].count("leader") == 1
    assert about["views"] == ["overview", "tree", "sessions", "locks", "tests"]


def test_each_member_shows_its_own_state(cluster: Cluster) -> None:
    late = cluster.followers[0]
    cluster.populate({"/a": b"old"})
    cluster.lag(late.index, 1000)
    cluster.set("/a", b"new")

    leads, follows = query_console(cluster, "node?path=/a"), query_console(cluster, f"node?path=/a&member={late.index}")
    overview = query_console(cluster, f"overview?member={late.index}")

    assert (leads["data"]["base64"], follows["data"]["base64"]) == ("bmV3", "b2xk")
    assert overview["mode"] == "follower"
    assert overview["members"][late.index]["behind"] == 1


def test_added_and_stopped_members_are_shown(cluster: Cluster) -> None:
    observer = cluster.add(role="observer")
    observer.stop()

    overview = query_console(cluster, f"overview?member={observer.index}")

    assert overview["members"][observer.index]["status"] == "down"
    assert overview["member"] == observer.index


@pytest.mark.parametrize("member", ["3", "-1", "x", "99999999999"])
def test_missing_member_is_not_found(cluster: Cluster, member: str) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        query_console(cluster, f"about?member={member}")

    assert refused.value.code == 404
    assert json.load(refused.value)["error"] == f"member must be an index from 0 to 2, not {member!r}"


def test_member_console_refuses_changes(cluster: Cluster) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        query_console(cluster, "change/create", json.dumps({"path": "/a", "base64": ""}).encode())

    assert refused.value.code == 404
    assert json.load(refused.value)["error"] == "unsupported action: create"
    assert all(list(member.tree()) == [] for member in cluster)
