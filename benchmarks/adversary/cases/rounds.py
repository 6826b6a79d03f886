"""One heavy request on each of many connections, all completed at the same time: each stays within its own limits."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Final

from adversary.case import Report, attack
from adversary.client import Peer
from adversary.floods import populate
from adversary.frames import multi_of, request
from adversary.target import Target
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import CreateRequest, ExistsRequest, GetDataRequest, SetDataRequest, SetWatches

CONNECTIONS: Final = 60
"""The default limit of connections per host."""
ROUNDS: Final = 3
CPU_MS: Final = 20.0
TRANSACTION_CPU_MS: Final = 60.0
"""A transaction is never interrupted: 5,000 operations take 15 to 25 ms, and twice as long while other programs run."""
SMALL: Final = request(OpCode.EXISTS, ExistsRequest("/", False))


def many_heavy(heavy: bytes, target: Target, report: Report) -> None:
    """Send the last byte of a heavy request on each connection at the same time, three times."""
    replies = refused = 0
    with ExitStack() as stack, target.under_attack():
        for _ in range(ROUNDS):
            peers = [stack.enter_context(target.peer()) for _ in range(CONNECTIONS)]
            for peer in peers:
                for _ in range(5):  # so that the server records that the turns of this connection are short
                    peer.link.sendall(SMALL)
                    peer.payload()
                peer.link.sendall(heavy[:-1])
            time.sleep(0.3)  # gives the server time to read it
            for peer in peers:
                peer.link.sendall(heavy[-1:])
            for peer in peers:
                answered = _is_answered(peer)
                replies += answered
                refused += not answered
                peer.close()
    report.got = f"{replies} heavy requests were answered, {refused} refused"
    report.require(replies, "no request was answered")


def _is_answered(peer: Peer) -> bool:
    try:
        peer.payload()
    except ConnectionError:
        return False
    return True


@attack("29-rounds-watches", cpu_ms=CPU_MS)
def rounds_of_watches(target: Target, report: Report) -> None:
    """setWatches of 24,000 paths. Above the limit for all watches together, the server may close connections."""
    paths = [f"/{number:05}" for number in range(24_000)]
    many_heavy(request(OpCode.SET_WATCHES, SetWatches(0, [], paths, [])), target, report)


@attack("29-rounds-reads", cpu_ms=TRANSACTION_CPU_MS)
def rounds_of_reads(target: Target, report: Report) -> None:
    """A multiRead of 17 times 900 kB, in 315 bytes."""
    populate(target, ["/a"], bytes(900_000))
    many_heavy(
        multi_of(OpCode.GET_DATA, [GetDataRequest("/a", False).encode()] * 17, OpCode.MULTI_READ), target, report
    )


@attack("29-rounds-creates", cpu_ms=TRANSACTION_CPU_MS)
def rounds_of_creates(target: Target, report: Report) -> None:
    """A multi of 4,900 creates. The last one fails."""
    bodies = [CreateRequest(f"/{number:04}", b"", OPEN_ACL_UNSAFE, 0).encode() for number in range(4899)]
    bodies.append(CreateRequest("/0000", b"", OPEN_ACL_UNSAFE, 0).encode())
    many_heavy(multi_of(OpCode.CREATE, bodies), target, report)


@attack("29-rounds-sets", cpu_ms=TRANSACTION_CPU_MS)
def rounds_of_sets(target: Target, report: Report) -> None:
    """A multi of 4,900 sets."""
    populate(target, ["/a"])
    many_heavy(multi_of(OpCode.SET_DATA, [SetDataRequest("/a", b"", -1).encode()] * 4900), target, report)
