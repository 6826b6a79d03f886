"""Small but expensive requests on the tree: counts, ephemerals, deep paths, floods of writes."""

from __future__ import annotations

from adversary.case import EPHEMERAL_FLAG, MAX_NEIGHBOUR_MS, MEGABYTE, Report, attack
from adversary.floods import flood, judge_flood, populate
from adversary.frames import creates, request
from adversary.target import Target
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    AddWatchRequest,
    ExistsRequest,
    GetAllChildrenNumberRequest,
    GetChildrenRequest,
    GetEphemeralsRequest,
    SetDataRequest,
)


@attack("3-count-flat", latency_ms=MAX_NEIGHBOUR_MS)
def count_flat(target: Target, report: Report) -> None:
    """22 kB of getAllChildrenNumber on a node with 100,000 children."""
    populate(target, ["/big", *(f"/big/{number:06}" for number in range(100_000))])
    one = request(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/big"))
    flood(target, report, one * (22_000 // len(one)), 22_000 // len(one))


@attack("3-count-deep", latency_ms=MAX_NEIGHBOUR_MS)
def count_deep(target: Target, report: Report) -> None:
    """22 kB of getAllChildrenNumber on a node with 1,000 directories of 100 nodes."""
    directories = [f"/big/{number:04}" for number in range(1000)]
    leaves = [f"{directory}/{number:02}" for directory in directories for number in range(100)]
    populate(target, ["/big", *directories, *leaves])
    one = request(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/big"))
    flood(target, report, one * (22_000 // len(one)), 22_000 // len(one))


def request_ephemerals(target: Target, report: Report, prefix: str, count: int) -> None:
    """Repeatedly request the ephemeral nodes of a session that has 20,000."""
    with target.peer() as peer:
        peer.create("/e")
        made = peer.flood(creates([f"/e/{number:05}" for number in range(20_000)], flags=EPHEMERAL_FLAG), 20_000)
        report.require(not made.errors, "the ephemerals could not be created")
        one = request(OpCode.GET_EPHEMERALS, GetEphemeralsRequest(prefix))
        data = one * count
        with target.under_attack():
            outcome = peer.flood(data, count)
    report.got = str(outcome)
    judge_flood(report, outcome)


@attack("4-ephemerals-none", latency_ms=MAX_NEIGHBOUR_MS)
def ephemerals_none(target: Target, report: Report) -> None:
    """22 kB of getEphemerals with a prefix that matches none of 20,000."""
    request_ephemerals(target, report, "/none", 1000)


@attack("4-ephemerals-all", latency_ms=MAX_NEIGHBOUR_MS)
def ephemerals_all(target: Target, report: Report) -> None:
    """200 getEphemerals with a prefix that matches all of 20,000."""
    request_ephemerals(target, report, "/e", 200)


@attack("6-creates", latency_ms=MAX_NEIGHBOUR_MS)
def pipelined_creates(target: Target, report: Report) -> None:
    """8 MB of pipelined creates."""
    populate(target, ["/f"])
    size = len(creates(["/f/000000"]))
    count = 8 * MEGABYTE // size
    flood(target, report, creates(f"/f/{number:06}" for number in range(count)), count)


@attack("6-sets", latency_ms=MAX_NEIGHBOUR_MS)
def pipelined_sets(target: Target, report: Report) -> None:
    """8 MB of pipelined sets."""
    populate(target, ["/f"])
    one = request(OpCode.SET_DATA, SetDataRequest("/f", b"", -1))
    count = 8 * MEGABYTE // len(one)
    flood(target, report, one * count, count)


@attack("12-deep", latency_ms=MAX_NEIGHBOUR_MS)
def deep(target: Target, report: Report) -> None:
    """5,000 levels of nodes under a recursive watch, 500 sets at the bottom, and paths of 500,000 levels."""
    levels = ["/a" * depth for depth in range(1, 5001)]
    data = creates(levels)
    sets = request(OpCode.SET_DATA, SetDataRequest(levels[-1], b"", -1)) * 500
    bottomless = request(OpCode.ADD_WATCH, AddWatchRequest("/a" * 500_000, 1))
    bottomless += request(OpCode.EXISTS, ExistsRequest("/a" * 500_000, True))
    bottomless += creates(["/b" * 500_000])
    bottomless += request(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/"))
    with target.peer() as peer:
        peer.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
        with target.under_attack():
            outcome = peer.flood([data, sets, bottomless * 5], len(levels) + 500 + 20)
    report.got = str(outcome)
    judge_flood(report, outcome, may_close=True)


@attack("21-children-changed", latency_ms=MAX_NEIGHBOUR_MS)
def children_changed(target: Target, report: Report) -> None:
    """A create and a getChildren of its 100,000 siblings, 100 times. No cache can answer these requests."""
    populate(target, ["/big", *(f"/big/{number:06}" for number in range(100_000))])
    ask = request(OpCode.GET_CHILDREN, GetChildrenRequest("/big", False))
    flood(target, report, b"".join([creates([f"/big/x{number}"]) + ask for number in range(100)]), 200)


@attack("22-session-end", latency_ms=MAX_NEIGHBOUR_MS)
def session_end(target: Target, report: Report) -> None:
    """closeSession of a session with 200,000 ephemerals."""
    count = 200_000
    with target.peer() as peer:
        peer.create("/e")
        made = peer.flood(creates((f"/e/{number:06}" for number in range(count)), flags=EPHEMERAL_FLAG), count)
        with target.under_attack():
            outcome = peer.flood(request(OpCode.CLOSE_SESSION, b""), 1)
    report.got = f"{made.replies - sum(made.errors.values()):,} ephemerals; {outcome}"
