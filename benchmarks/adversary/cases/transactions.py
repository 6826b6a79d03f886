"""Large transactions, which the server cannot interrupt."""

from __future__ import annotations

from adversary.case import MAX_NEIGHBOUR_MS, MAX_RSS_MB, MEGABYTE, Report, attack
from adversary.floods import flood, populate
from adversary.frames import create_bodies, multi_frame, request
from adversary.target import Target
from zoolet.protocol.codec import int_at, pack_int, put_str
from zoolet.protocol.multi import END
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    DeleteRequest,
    GetChildrenRequest,
    GetDataRequest,
    MultiHeader,
)


@attack("7-multi", latency_ms=MAX_NEIGHBOUR_MS)
def large_multis(target: Target, report: Report) -> None:
    """Eight multis of 10,000 creates each."""
    populate(target, ["/m"])
    flood(target, report, b"".join([multi_frame(OpCode.CREATE, create_bodies(f"{n}-")) for n in range(8)]), 8)


@attack("7-multi-rollback", latency_ms=MAX_NEIGHBOUR_MS)
def failing_multis(target: Target, report: Report) -> None:
    """Eight multis of 10,000 creates whose last operation fails."""
    populate(target, ["/m"])
    header = MultiHeader(OpCode.CREATE, False, -1).encode()
    last = MultiHeader(OpCode.DELETE, False, -1).encode() + DeleteRequest("/none", -1).encode()
    one = request(OpCode.MULTI, b"".join([header + body for body in create_bodies("x")]) + last + END)
    flood(target, report, one * 8, 8)
    with target.peer() as peer:
        body = peer.call(OpCode.GET_CHILDREN, GetChildrenRequest("/m", False))[1]
        report.require(int_at(body)[0] == 0, "a failed multi left nodes behind")


@attack("7-multi-checks", latency_ms=MAX_NEIGHBOUR_MS)
def multis_of_checks(target: Target, report: Report) -> None:
    """Eight multis of 50,000 checks each."""
    flood(target, report, multi_frame(OpCode.CHECK, [put_str("/") + pack_int(-1)] * 50_000) * 8, 8)


@attack("13-multi-read", rss_mb=MAX_RSS_MB)
def multi_read(target: Target, report: Report) -> None:
    """A multiRead of 32 kB reads a node of 1 MB 1,000 times."""
    path = "/" + "m" * 17
    populate(target, [path], bytes(MEGABYTE))
    header = MultiHeader(OpCode.GET_DATA, False, -1).encode()
    body = (header + GetDataRequest(path, False).encode()) * 1000
    flood(target, report, request(OpCode.MULTI_READ, body + END), 1, may_close=True)
