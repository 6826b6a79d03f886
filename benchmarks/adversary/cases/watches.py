"""Large numbers of watches, their removal, and the events that they cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from adversary.case import MAX_NEIGHBOUR_MS, MAX_RSS_MB, Report, attack
from adversary.client import HostilePeer, Outcome
from adversary.floods import flood, populate
from adversary.frames import create_bodies, exists, multi_frame, request
from adversary.target import Target, until
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    AddWatchRequest,
    SetDataRequest,
    SetWatches,
)


def set_watches(target: Target, count: int, path: Callable[[int], str], per_connection: int) -> list[HostilePeer]:
    """Set exists watches over at most ten connections, and as few as the server allows. Return the connections."""
    peers: list[HostilePeer] = []
    next_path = 0
    while next_path < count and len(peers) < 10:
        peer = target.peer()
        peers.append(peer)
        stop = min(count, next_path + per_connection)
        while next_path < stop:
            batch = range(next_path, min(stop, next_path + 50_000))
            next_path = batch.stop
            before = Outcome()
            peer.flood(exists(map(path, batch)), len(batch), outcome=before, seconds=10)
            if before.closed or set(before.errors) - {-101}:
                break
    return peers


@attack("12-watches-dropped", latency_ms=MAX_NEIGHBOUR_MS)
def watches_dropped(target: Target, report: Report) -> None:
    """1,000,000 watches are removed when their connections close."""
    peers = set_watches(target, 1_000_000, lambda number: f"/w{number:06}", 1_000_000)
    there = target.metric("watch_count")
    with target.under_attack():
        for peer in peers:
            peer.close()
        gone = until(lambda: target.metric("watch_count") <= 0, 20)
    report.got = (
        f"{there:,} watches over {len(peers)} connections, gone after {gone if gone is None else f'{gone:.1f}'} s"
    )
    report.require(gone is not None, "watches of closed connections remained")


@attack("12-watches-resumed", latency_ms=MAX_NEIGHBOUR_MS)
def watches_resumed(target: Target, report: Report) -> None:
    """Eight setWatches of 90,000 paths each, 1 MB per request."""
    frames = [
        request(OpCode.SET_WATCHES, SetWatches(0, [], [f"/{tag}{number:05}" for number in range(90_000)], []))
        for tag in "abcdefgh"
    ]
    flood(target, report, b"".join(frames), 8, may_close=True)


@attack("15-watches", rss_mb=MAX_RSS_MB)
def watches(target: Target, report: Report) -> None:
    """2,000,000 watches on paths of 200 characters over one connection."""
    stem, batch, total = "/" + "w" * 192, 50_000, 2_000_000
    pieces = (exists(f"{stem}{n:07}" for n in range(first, first + batch)) for first in range(0, total, batch))
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(pieces, total, seconds=45)
        there = target.metric("watch_count")
    report.got = f"{there:,} watches; {outcome}"


@attack("15-paths-not-watched", rss_mb=MAX_RSS_MB)
def paths_not_watched(target: Target, report: Report) -> None:
    """exists without a watch on 200,000 missing paths of 1 kB, which the server must not keep in memory."""
    stem, batch, total = "/" + "w" * 1000, 10_000, 200_000
    pieces = (
        exists((f"{stem}{n:07}" for n in range(first, first + batch)), watch=False) for first in range(0, total, batch)
    )
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(pieces, total)
    report.got = str(outcome)


@attack("16-unread-events", rss_mb=MAX_RSS_MB)
def unread_events(target: Target, report: Report) -> None:
    """100 connections watch everything and read nothing, while a node with a path of 1 kB is set 20,000 times."""
    path = "/" + "e" * 1000
    populate(target, [path])
    one = request(OpCode.SET_DATA, SetDataRequest(path, b"", -1))
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(receive_buffer=4096)) for _ in range(100)]
        for peer in peers:
            peer.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
        writer = stack.enter_context(target.peer())
        with target.under_attack():
            outcome = writer.flood([one * 2000] * 10, 20_000)
            time.sleep(1)
        closed = sum(peer.check_closed_and_reset() for peer in peers)
    report.got = f"{closed} of 100 closed; writer: {outcome}"


@attack("26-watch-storm", latency_ms=MAX_NEIGHBOUR_MS)
def watch_storm(target: Target, report: Report) -> None:
    """500 connections watch everything and read nothing, while a multi of 10,000 creates fires 5,000,000 events."""
    populate(target, ["/m"])
    data = multi_frame(OpCode.CREATE, create_bodies("w"))
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(receive_buffer=4096)) for _ in range(500)]
        for peer in peers:
            peer.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
        writer = stack.enter_context(target.peer())
        with target.under_attack():
            outcome = writer.flood(data, 1)
        closed = sum(peer.check_closed_and_reset() for peer in peers)
    report.got = f"{closed} of 500 closed; writer: {outcome}"
