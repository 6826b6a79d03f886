"""Data that the server must keep for clients: unread replies, and incomplete requests."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress

from adversary.case import MAX_NEIGHBOUR_MS, MAX_RSS_MB, MEGABYTE, Report, attack
from adversary.client import Outcome
from adversary.floods import populate
from adversary.frames import creates, request
from adversary.target import Target
from zoolet.protocol.codec import pack_int
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    GetChildrenRequest,
    GetDataRequest,
    SetDataRequest,
)


@attack("16-unread-replies", rss_mb=MAX_RSS_MB)
def unread_replies(target: Target, report: Report) -> None:
    """500 connections each request 100 replies of 1 MB, and read nothing."""
    populate(target, ["/m"], bytes(MEGABYTE))
    data = request(OpCode.GET_DATA, GetDataRequest("/m", False)) * 100
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(receive_buffer=4096)) for _ in range(500)]
        with target.under_attack():
            for peer in peers:
                peer.link.sendall(data)
            time.sleep(4)
        closed = sum(peer.check_closed_and_reset() for peer in peers)
    report.got = f"{closed} of 500 closed"


@attack("16-partial-frames", rss_mb=MAX_RSS_MB)
def partial_frames(target: Target, report: Report) -> None:
    """500 connections send a request of 1 MB without its last byte, half of them before the handshake."""
    part = pack_int(MEGABYTE) + bytes(MEGABYTE - 1)
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(session=number % 2 == 0)) for number in range(500)]
        with target.under_attack():
            sent = 0
            for peer in peers:
                with suppress(OSError):
                    peer.link.settimeout(0.2)
                    peer.link.sendall(part)
                    sent += 1
            time.sleep(2)
            closed = sum(peer.closed() for peer in peers)
    report.got = f"{sent} of 500 sent, {closed} closed"


@attack("19-large-reply", properties={"jute.maxbuffer": "200000000"})
def large_reply(target: Target, report: Report) -> None:
    """A client requests a getChildren whose reply is larger than 64 MiB, and must receive it."""
    count, batch = 700_000, 50_000
    stem = "/big/" + "n" * 93
    pieces = (creates(f"{stem}{n:07}" for n in range(first, first + batch)) for first in range(0, count, batch))
    with target.peer() as peer:
        peer.create("/big")
        made = peer.flood(pieces, count, seconds=60)
        report.require(made.replies == count, f"the tree could not be built: {made}")
        outcome = Outcome()
        with target.under_attack():
            peer.flood(request(OpCode.GET_CHILDREN, GetChildrenRequest("/big", False)), 1, outcome=outcome)
            whole = 4 + 16 + 4 + 104 * count
            while outcome.received < whole and not outcome.closed:
                data = peer.link.recv(1 << 20)
                outcome.received += len(data)
                outcome.closed = not data
    report.got = f"{outcome}; {outcome.received:,} of {whole:,} bytes"
    report.require(outcome.received == whole, "the reply did not arrive whole")


@attack("23-trickle", latency_ms=MAX_NEIGHBOUR_MS)
def trickle(target: Target, report: Report) -> None:
    """A request of 1 MB that arrives 200 bytes at a time. The pauses make the server read each piece separately."""
    data, size = request(OpCode.SET_DATA, SetDataRequest("/none", bytes(MEGABYTE), -1)), 200
    with target.peer() as peer, target.under_attack():
        before = target.cpu_s()
        for first in range(0, len(data), size):
            peer.link.sendall(data[first : first + size])
            time.sleep(0.0003)
        outcome = peer.flood(b"", 1)
        used = target.cpu_s() - before
    report.got = f"{outcome}; {used:.1f} s CPU for {len(data) // size:,} pieces"
    report.require(used < 2, "reassembly costs more than 400 us a piece")
