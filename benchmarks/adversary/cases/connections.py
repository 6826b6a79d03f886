"""Connections and sessions that are opened and abandoned."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack, suppress

from adversary.case import EPHEMERAL_FLAG, MAX_NEIGHBOUR_MS, MAX_RSS_MB, Report, attack
from adversary.client import HostilePeer
from adversary.frames import creates
from adversary.target import TESTS, Target, until
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest


@attack(
    "20-silent-tls",
    properties={"maxClientCnxns": "10"},
    options=[
        *("--secure-port", "0"),
        *("--tls-cert", f"{TESTS}/support/tls/server.pem"),
        *("--tls-key", f"{TESTS}/support/tls/server-key.pem"),
    ],
    apache=False,
)
def silent_tls(target: Target, report: Report) -> None:
    """500 sockets on the TLS port that send nothing. At most ten stay open, and only for about 10 s."""
    assert target.process.stdout is not None
    match = re.search(r"ready for TLS on 127\.0\.0\.1:(\d+)", target.process.stdout.readline())
    assert match is not None
    with ExitStack() as stack:
        with target.under_attack():
            started = time.monotonic()
            peers = []
            for _ in range(500):
                with suppress(OSError):
                    peers.append(stack.enter_context(HostilePeer(int(match[1]), source="127.0.0.2", session=False)))
            time.sleep(1)
            peers = [peer for peer in peers if not peer.closed()]
            stayed = len(peers)

            def all_closed() -> bool:
                peers[:] = [peer for peer in peers if not peer.closed()]
                return not peers

            until(all_closed, 25, 0.2)
            took = time.monotonic() - started
    report.got = f"{stayed} of 500 stayed open; {len(peers)} after {took:.1f} s"
    report.require(stayed <= 10, "more than maxClientCnxns stayed open")
    report.require(not peers and took < 13, "silent sockets were not closed after 10 s")


@attack("24-session-flood", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB)
def session_flood(target: Target, report: Report) -> None:
    """10,000 sessions of 4 s with an ephemeral node each are opened and abandoned. All expire within a few ticks."""
    hello = frame(ConnectRequest(timeout_ms=4000).encode())
    opened = 0
    with target.under_attack():
        started = time.monotonic()
        while opened < 10_000 and time.monotonic() < started + 15:
            with target.peer(session=False) as peer:
                peer.link.sendall(hello + creates([f"/s{opened}"], flags=EPHEMERAL_FLAG))
                peer.payload()
                peer.payload()
            opened += 1
        took = time.monotonic() - started
        left = until(lambda: target.metric("ephemerals_count") == 0, 12, 0.5)
    report.got = f"{opened:,} sessions in {took:.1f} s; " + (
        "not all ended" if left is None else f"gone {left:.1f} s later"
    )
    report.require(left is not None, "sessions without a client did not end")
