"""Heavy requests on many connections, completed at the same time. Each connection stays within its limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from adversary.case import EPHEMERAL_FLAG, Report, attack
from adversary.client import HostilePeer
from adversary.floods import populate
from adversary.frames import multi_frame, request
from adversary.target import Target
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    AddWatchRequest,
    CreateRequest,
    ExistsRequest,
    GetDataRequest,
    SetDataRequest,
    SetWatches,
)

CONNECTIONS: Final = 60
"""The default limit of connections per host."""
ROUNDS: Final = 3
MAX_CPU_MS: Final = 20.0
MAX_TRANSACTION_CPU_MS: Final = 60.0
"""A transaction is never interrupted: 5,000 operations take 15 to 25 ms, and twice as long while other programs run."""
SMALL_REQUEST: Final = request(OpCode.EXISTS, ExistsRequest("/", False))


def send_heavy_requests(
    heavy: bytes,
    target: Target,
    report: Report,
    prepare: Callable[[HostilePeer, int], None] = lambda peer, number: None,
) -> None:
    """Send the last byte of a heavy request on each connection at the same time, three times.

    Args:
        heavy: The request; empty to disconnect instead.
        target: The server.
        report: The report.
        prepare: Function that is called with each connection, and a number that is different for each.
    """
    replies = refused = 0
    with ExitStack() as stack, target.under_attack():
        for number in range(ROUNDS):
            peers = [stack.enter_context(target.peer()) for _ in range(CONNECTIONS)]
            for at, peer in enumerate(peers, number * CONNECTIONS):
                prepare(peer, at)
                for _ in range(5):  # teaches the server that the turns of this connection are short
                    peer.link.sendall(SMALL_REQUEST)
                    peer.payload()
                peer.link.sendall(heavy[:-1])
            time.sleep(0.3)  # gives the server time to read the incomplete requests
            for peer in peers:
                peer.link.sendall(heavy[-1:])
            for peer in peers:
                answered = not heavy or _is_answered(peer)
                replies += answered
                refused += not answered
                peer.close()
    report.got = f"{replies} heavy requests were answered, {refused} refused"
    report.require(replies, "no request was answered")


def _is_answered(peer: HostilePeer) -> bool:
    try:
        peer.payload()
    except ConnectionError:
        return False
    return True


@attack("29-rounds-watches", cpu_ms=MAX_CPU_MS)
def rounds_of_watches(target: Target, report: Report) -> None:
    """setWatches of 24,000 paths. Above the limit for all watches together, the server may close connections."""
    paths = [f"/{number:05}" for number in range(24_000)]
    send_heavy_requests(request(OpCode.SET_WATCHES, SetWatches(0, [], paths, [])), target, report)


@attack("29-rounds-reads", cpu_ms=MAX_CPU_MS)
def rounds_of_reads(target: Target, report: Report) -> None:
    """A multiRead of 4 times 900 kB, in 120 bytes."""
    populate(target, ["/a"], bytes(900_000))
    send_heavy_requests(
        multi_frame(OpCode.GET_DATA, [GetDataRequest("/a", False).encode()] * 4, OpCode.MULTI_READ), target, report
    )


@attack("29-rounds-creates", cpu_ms=MAX_TRANSACTION_CPU_MS)
def rounds_of_creates(target: Target, report: Report) -> None:
    """A multi of 4,900 creates. The last one fails."""
    bodies = [CreateRequest(f"/{number:04}", b"", OPEN_ACL_UNSAFE, 0).encode() for number in range(4899)]
    bodies.append(CreateRequest("/0000", b"", OPEN_ACL_UNSAFE, 0).encode())
    send_heavy_requests(multi_frame(OpCode.CREATE, bodies), target, report)


@attack("29-rounds-sets", cpu_ms=MAX_TRANSACTION_CPU_MS)
def rounds_of_sets(target: Target, report: Report) -> None:
    """A multi of 4,900 sets."""
    populate(target, ["/a"])
    send_heavy_requests(multi_frame(OpCode.SET_DATA, [SetDataRequest("/a", b"", -1).encode()] * 4900), target, report)


@attack("29-rounds-gets", cpu_ms=MAX_CPU_MS)
def rounds_of_gets(target: Target, report: Report) -> None:
    """getData of 1 MB, in 30 bytes."""
    populate(target, ["/a"], bytes(1_000_000))
    send_heavy_requests(request(OpCode.GET_DATA, GetDataRequest("/a", False)), target, report)


@attack("29-rounds-closes", cpu_ms=MAX_CPU_MS)
def rounds_of_closes(target: Target, report: Report) -> None:
    """closeSession of a session with 2,000 ephemeral nodes."""

    def own(peer: HostilePeer, number: int) -> None:
        for first in range(0, 2_000, 200):
            names = [f"/{number}-{each}" for each in range(first, first + 200)]
            bodies = [CreateRequest(name, b"", OPEN_ACL_UNSAFE, EPHEMERAL_FLAG).encode() for name in names]
            peer.link.sendall(multi_frame(OpCode.CREATE, bodies))
            peer.payload()

    send_heavy_requests(request(OpCode.CLOSE_SESSION, b""), target, report, own)


@attack("29-rounds-sets-watched", cpu_ms=MAX_CPU_MS)
def rounds_of_watched_sets(target: Target, report: Report) -> None:
    """A set of a node that all connections watch with persistent watches."""
    populate(target, ["/a"])
    watch = request(OpCode.ADD_WATCH, AddWatchRequest("/a", 0))

    def follow(peer: HostilePeer, number: int) -> None:
        peer.link.sendall(watch)
        peer.payload()

    send_heavy_requests(request(OpCode.SET_DATA, SetDataRequest("/a", b"", -1)), target, report, follow)


@attack("29-rounds-disconnects", cpu_ms=MAX_CPU_MS)
def rounds_of_disconnects(target: Target, report: Report) -> None:
    """A disconnection with 1,000 watches."""

    def watch(peer: HostilePeer, number: int) -> None:
        paths = [f"/{number}-{each}" for each in range(1_000)]
        peer.link.sendall(request(OpCode.SET_WATCHES, SetWatches(0, [], paths, [])))
        peer.payload()

    send_heavy_requests(b"", target, report, watch)


@attack("29-rounds-words", cpu_ms=MAX_CPU_MS)
def rounds_of_words(target: Target, report: Report) -> None:
    """The four-letter command mntr."""
    with ExitStack() as stack, target.under_attack():
        peers = [stack.enter_context(target.peer(session=False)) for _ in range(CONNECTIONS)]
        for peer in peers:
            peer.link.sendall(b"mntr")
        answers = [peer.link.recv(1 << 16) for peer in peers]
    report.got = f"{sum(map(bool, answers))} answers"
    report.require(all(answers), "not all were answered")
