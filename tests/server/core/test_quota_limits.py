"""Limits and statistics of a quota: refused requests, counts, and exempt nodes.

Source: ZooKeeperServer.checkQuota, DataTree.updateQuotaStat.
"""

from __future__ import annotations

import pytest
from support.calls import add_watch, connect_peer, create, delete, set_data, tick_at
from support.engine import make_engine
from support.numbers import EPHEMERAL, NO_CHILDREN_FOR_EPHEMERALS, NODE_EXISTS, OK, QUOTA_EXCEEDED, RECURSIVE_WATCH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import QuotaExceededError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings

# --- limits ---


@pytest.fixture
def limited() -> Peer:
    """Return a client of a server that enforces a hard limit of 3 nodes and 10 bytes at /a."""
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=True)))
    for path in ("/a", "/zookeeper/quota/a"):
        peer.create(path)
    peer.create("/zookeeper/quota/a/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3")
    peer.create("/zookeeper/quota/a/zookeeper_stats", b"")
    return peer


def test_hard_count_limit_refuses_first_excess_node(limited: Peer) -> None:
    limited.create("/a/b")
    limited.create("/a/c")

    with pytest.raises(QuotaExceededError):
        limited.create("/a/d")


def test_hard_byte_limit_allows_exact_size(limited: Peer) -> None:
    limited.set("/a", b"0123456789")

    with pytest.raises(QuotaExceededError):
        limited.set("/a", b"0123456789x")


def test_multi_may_exceed_limit_that_next_create_hits(limited: Peer) -> None:
    creates = [(OpCode.CREATE, r.CreateRequest(f"/a/{name}", b"", OPEN_ACL_UNSAFE, 0)) for name in "bcde"]

    results = limited.multi(*creates)

    assert [kind for kind, _ in results] == [OpCode.CREATE] * 4
    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=5,bytes=0"
    with pytest.raises(QuotaExceededError):
        limited.create("/a/f")


def test_nodes_are_not_counted_without_limits(limited: Peer) -> None:
    limited.delete("/zookeeper/quota/a/zookeeper_limits")

    limited.create("/a/b")

    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=1,bytes=0"


def limit(peer: Peer, path: str, limits: str) -> None:
    """Create a node with a quota."""
    peer.create(path)
    peer.create(f"/zookeeper/quota{path}")
    peer.create(f"/zookeeper/quota{path}/zookeeper_limits", limits.encode())
    peer.create(f"/zookeeper/quota{path}/zookeeper_stats", b"count=0,bytes=0")


def test_existing_and_ephemeral_errors_precede_quota():
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=True)))
    limit(peer, "/q", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2")
    peer.create("/q/e", flags=EPHEMERAL)

    assert create(peer, "/q/e").err == NODE_EXISTS
    assert create(peer, "/q/e/x").err == NO_CHILDREN_FOR_EPHEMERALS
    assert create(peer, "/q/x").err == QUOTA_EXCEEDED


def test_exceeded_quota_precedes_wrong_version():
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=True)))
    limit(peer, "/q", "count=-1,bytes=-1=;byteHardLimit=2;countHardLimit=-1")

    assert set_data(peer, "/q", version=7).err == QUOTA_EXCEEDED


@pytest.mark.parametrize("enforced", [False, True])
def test_limits_directly_below_quotas_are_plain_node(enforced):
    peer = connect_peer(make_engine(EngineSettings(enforce_quota=enforced)))

    peer.create("/zookeeper/quota/zookeeper_limits", b"count=1,bytes=1=;byteHardLimit=1;countHardLimit=1")
    peer.create("/zookeeper/quota/zookeeper_stats", b"mine")
    peer.create("/a", b"more than a byte")

    assert peer.get("/zookeeper/quota/zookeeper_stats")[0] == b"mine"
    assert delete(peer, "/zookeeper/quota/zookeeper_limits").err == OK


@pytest.mark.parametrize("parent", ["/zookeeper", "/zookeeperx", "/zookeeper/other", "/zookeeper/quotas", "/x"])
def test_zookeeper_limits_outside_quotas_is_plain_node(peer, parent):
    create(peer, parent)
    peer.create(f"{parent}/zookeeper_limits", b"count=1")

    assert delete(peer, f"{parent}/zookeeper_limits").err == OK
    assert "zookeeper_limits" not in peer.children(parent)


# --- statistics ---


def test_quota_stats_count_nodes_and_bytes_without_new_version(limited: Peer) -> None:
    limited.create("/a/b", b"12345")
    limited.set("/a/b", b"123")

    data, stat = limited.get("/zookeeper/quota/a/zookeeper_stats")

    assert data == b"count=2,bytes=3"
    assert stat.version == 0


def test_failed_transaction_keeps_quota_stats(limited: Peer) -> None:
    limited.multi(
        (OpCode.CREATE, r.CreateRequest("/a/b", b"x", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest("/none", -1)),
    )

    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=1,bytes=0"


@pytest.mark.parametrize(
    "stats", [None, b"", b"count=", b",", b",count=1", b"count=\n1,bytes=1", b"count=99999999999999999999"]
)
def test_server_tolerates_unparsable_statistics(peer, stats):
    limit(peer, "/q", "count=5,bytes=100")
    peer.set("/zookeeper/quota/q/zookeeper_stats", stats)

    made = create(peer, "/q/a")

    assert made.err == OK
    assert peer.children("/q") == ["a"]
    assert delete(peer, "/q/a").err == OK


def test_updated_quota_stats_keep_stat_and_are_silent(engine, peer, other):
    limit(peer, "/q", "count=5,bytes=100")
    add_watch(other, "/zookeeper", RECURSIVE_WATCH)
    before = peer.exists("/zookeeper/quota/q/zookeeper_stats")
    tick_at(engine, 100)

    peer.create("/q/a", b"12345678")
    peer.create("/q/a/b", None)
    data, after = peer.get("/zookeeper/quota/q/zookeeper_stats")

    assert data == b"count=3,bytes=8"
    assert (after.version, after.mzxid, after.mtime) == (before.version, before.mzxid, before.mtime)
    assert other.receive() == []


STATS = "/zookeeper/quota/a/zookeeper_stats"


@pytest.mark.parametrize("release", ["old", "new"])
@pytest.mark.parametrize(
    ("text", "after"),
    [
        (b"count=7,bytes=9,foo=3;countHardLimit=9", b"count=8,bytes=11=;countHardLimit=9;foo=3"),
        (b"byteHardLimit=9", b"count=0,bytes=1=;byteHardLimit=9"),
        (b"count=1,bytes=1", b"count=2,bytes=3"),
    ],
)
def test_stats_of_quota_keep_uncounted_numbers(
    release: str, text: bytes, after: bytes, request: pytest.FixtureRequest
) -> None:
    peer: Peer = request.getfixturevalue(release)
    for path in ("/a", "/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_limits", STATS):
        peer.create(path)
    peer.set(STATS, text)

    peer.create("/a/b", b"22")

    assert peer.get(STATS)[0] == after


def test_soft_limit_is_exceeded_only_by_one_node_above_it() -> None:
    logged: list[str] = []
    engine = make_engine(EngineSettings(enforce_quota=True), log=lambda text, *values: logged.append(text % values))
    peer = connect_peer(engine)
    for path in ("/a", "/zookeeper/quota/a"):
        peer.create(path)
    peer.create("/zookeeper/quota/a/zookeeper_limits", b"count=3,bytes=-1")
    peer.create("/zookeeper/quota/a/zookeeper_stats", b"")

    peer.create("/a/b")
    peer.create("/a/c")
    assert logged == []

    peer.create("/a/d")
    assert logged == ["quota exceeded: 4 nodes below /a; the soft limit is 3"]
