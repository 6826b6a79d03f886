"""The attacks, one function each: prepare, then do harm inside ``target.under_attack()``, then say what came of it.

The number in a case's name groups the variants of one attack. Frames are built before the measurement starts, so that
the attacker's own CPU does not slow it down, and every wait has an end. Cases from 21 on are amplifications that the
protocol allows and that no limit of ZooKeeper's own stands against.
"""

from __future__ import annotations

import re
import selectors
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from adversary import CREATE_TAIL, TESTS, Outcome, Peer, Target, creates, exists, request, text, until

from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.enums import Perm
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.multi import END
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    AddWatchRequest,
    AuthPacket,
    DeleteRequest,
    ExistsRequest,
    GetAllChildrenNumberRequest,
    GetChildrenRequest,
    GetDataRequest,
    GetEphemeralsRequest,
    GetSASLRequest,
    MultiHeader,
    SetDataRequest,
    SetWatches,
)

MEGABYTE: Final = 1_000_000
NEIGHBOUR_MS: Final = 100.0
RSS_MB: Final = 300.0
OPEN: Final = CREATE_TAIL[:-4]
JAAS: Final = 'Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n  user_bob="secret";\n};\n'
EPHEMERAL: Final = 1


@dataclass
class Report:
    """What an attack says of its course."""

    got: str = ""
    failures: list[str] = field(default_factory=list)

    def require(self, true: object, claim: str) -> None:
        """Record a failure unless a claim holds."""
        if not true:
            self.failures.append(claim)


@dataclass(frozen=True)
class Case:
    """One row of the table.

    Args:
        name: Number and name.
        run: The attack.
        latency_ms: The neighbour's worst latency that passes; None where it is not measured or not judged.
        rss_mb: The daemon's peak resident memory that passes; None where it is not judged.
        properties: The server's properties; ``{jaas}`` stands for a JAAS file.
        options: Further options of the daemon.
        descriptors: The daemon's limit on descriptors.
        apache: Whether the attack makes sense on Apache ZooKeeper as it is started here.
    """

    name: str
    run: Callable[[Target, Report], None]
    latency_ms: float | None
    rss_mb: float | None
    properties: dict[str, str]
    options: list[str]
    descriptors: int
    apache: bool


CASES: list[Case] = []


def attack(
    name: str,
    *,
    latency_ms: float | None = None,
    rss_mb: float | None = None,
    properties: dict[str, str] | None = None,
    options: list[str] | None = None,
    descriptors: int = 0,
    apache: bool = True,
) -> Callable[[Callable[[Target, Report], None]], Callable[[Target, Report], None]]:
    """Add a function to the table; the arguments are those of :class:`Case`."""

    def add(run: Callable[[Target, Report], None]) -> Callable[[Target, Report], None]:
        CASES.append(Case(name, run, latency_ms, rss_mb, properties or {}, options or [], descriptors, apache))
        return run

    return add


def acl_vector(entries: list[tuple[int, str, str]]) -> bytes:
    """Return an ACL list as it is on the wire."""
    return struct.pack(">i", len(entries)) + b"".join(ACL(perms, Id(s, i)).encode() for perms, s, i in entries)


def populate(target: Target, paths: list[str], data: bytes = b"") -> None:
    """Create nodes before an attack."""
    with target.peer() as peer:
        outcome = peer.flood(creates(paths, data), len(paths), seconds=60)
        if outcome.errors or outcome.replies != len(paths):
            raise RuntimeError(f"the tree could not be built: {outcome}")


def flood(target: Target, report: Report, data: bytes, replies: int, *, may_close: bool = False) -> Outcome:
    """Attack with pipelined requests on one connection; :func:`judge_flood` says what the server may do about it."""
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(data, replies)
    report.got = str(outcome)
    judge_flood(report, outcome, may_close=may_close)
    return outcome


def judge_flood(report: Report, outcome: Outcome, *, may_close: bool = False) -> None:
    """Judge a flood: the server may answer slowly, but not ignore it, nor close the connection unless as a defence.

    Every single request of most floods is legal and cheap to write; a server that closes on them breaks real clients.
    """
    if not may_close:
        report.require(not outcome.closed, "the server closed a connection whose requests are legal")
    report.require(outcome.closed or outcome.replies, "no request was answered in 30 s")


# --- 1, 2: what a client gets without being there ---


@attack("1-reset-before-accept")
def reset_before_accept(target: Target, report: Report) -> None:
    """Blind writes from 127.0.0.2, reset before they are accepted, to a node that only 127.0.0.1 may write to."""
    attempts, chunk = 1000, 40
    with target.peer() as owner:
        owner.create("/guarded", acl=acl_vector([(Perm.ALL, "ip", "127.0.0.1")]))
        owner.create("/open")
        with target.under_attack(neighbour=False):
            for first in range(0, attempts, chunk):
                target.signal(signal.SIGSTOP)
                try:
                    for number in range(first, first + chunk):
                        peer = target.peer(source="127.0.0.2", session=False)
                        hello = frame(ConnectRequest().encode())
                        peer.link.sendall(hello + creates([f"/open/{number}", f"/guarded/{number}"]))
                        peer.reset()
                finally:
                    target.signal(signal.SIGCONT)
                with target.peer():  # it is accepted after those that came before
                    pass
            time.sleep(0.2)
        count = {}
        for path in ("/guarded", "/open"):
            body = owner.call(OpCode.GET_CHILDREN, GetChildrenRequest(path, False))[1]
            count[path] = struct.unpack_from(">i", body)[0]
    report.got = f"{count['/guarded']} of {attempts} guarded, {count['/open']} of {attempts} open writes"
    report.require(count["/guarded"] == 0, "a blind write took another address")


def keep_pinging(peers: list[Peer], until_s: float, every: float) -> None:
    """Ping on all connections and read what comes; connections that the server closed stay closed."""
    ping = request(OpCode.PING, b"", -2)
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.link.setblocking(False)
            selector.register(peer.link, selectors.EVENT_READ)
        due = time.monotonic()
        while (now := time.monotonic()) < until_s:
            if now >= due:
                due += every
                for peer in peers:
                    with suppress(OSError):
                        peer.link.send(ping)
            for key, _ in selector.select(max(0.0, min(due, until_s) - time.monotonic())):
                link = key.fileobj
                assert isinstance(link, socket.socket)
                try:
                    ended = not link.recv(65536)
                except BlockingIOError:
                    continue
                except OSError:
                    ended = True
                if ended:
                    selector.unregister(link)


@attack("2-stall")
def stall(target: Target, report: Report) -> None:
    """The server does not run for 9 s: sessions of 4 s whose clients went on pinging live, those of dead ones end."""
    many, stopped_s, timeout_s, tick_s = 50, 9.0, 4.0, 2.0
    with ExitStack() as stack:
        observer = stack.enter_context(target.peer())
        pinging = [stack.enter_context(target.peer(timeout_ms=4000)) for _ in range(many)]
        for number, peer in enumerate(pinging):
            peer.create(f"/pinging{number}", flags=EPHEMERAL)
        keep_pinging(pinging, time.monotonic() + 3, 1.3)
        silent = [stack.enter_context(target.peer(timeout_ms=4000)) for _ in range(many)]
        for number, peer in enumerate(silent):
            peer.create(f"/silent{number}", flags=EPHEMERAL)

        def left(prefix: str) -> int:
            names = [f"/{prefix}{number}" for number in range(many)]
            return sum(observer.call(OpCode.EXISTS, ExistsRequest(name, False))[0] == 0 for name in names)

        with target.under_attack(neighbour=False):
            target.signal(signal.SIGSTOP)
            try:
                keep_pinging(pinging, time.monotonic() + stopped_s, 1.3)
            finally:
                target.signal(signal.SIGCONT)
            keep_pinging(pinging, time.monotonic() + 0.5, 1.3)
            at_once = left("pinging")
            keep_pinging(pinging, time.monotonic() + timeout_s + tick_s, 1.3)
        alive = sum(not peer.closed() for peer in pinging)
        nodes, dead = left("pinging"), left("silent")
    report.got = f"{at_once} then {alive} of {many} alive, {nodes} ephemerals; {dead} of {many} dead ones still there"
    report.require(alive == nodes == many, f"{many - min(alive, nodes)} sessions were expired though they pinged")
    report.require(dead == 0, f"{dead} dead sessions were not expired within timeout + tick")


# --- 3 to 13: requests that cost far more than they weigh ---


@attack("3-count-flat", latency_ms=NEIGHBOUR_MS)
def count_flat(target: Target, report: Report) -> None:
    """22 kB of getAllChildrenNumber on a node with 100,000 children."""
    populate(target, ["/big", *(f"/big/{number:06}" for number in range(100_000))])
    one = request(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/big"))
    flood(target, report, one * (22_000 // len(one)), 22_000 // len(one))


@attack("3-count-deep", latency_ms=NEIGHBOUR_MS)
def count_deep(target: Target, report: Report) -> None:
    """22 kB of getAllChildrenNumber on a node with 1,000 directories of 100 nodes."""
    directories = [f"/big/{number:04}" for number in range(1000)]
    leaves = [f"{directory}/{number:02}" for directory in directories for number in range(100)]
    populate(target, ["/big", *directories, *leaves])
    one = request(OpCode.GET_ALL_CHILDREN_NUMBER, GetAllChildrenNumberRequest("/big"))
    flood(target, report, one * (22_000 // len(one)), 22_000 // len(one))


def ephemerals(target: Target, report: Report, prefix: str, count: int) -> None:
    """Ask for the ephemerals of a session with 20,000 of them, again and again."""
    with target.peer() as peer:
        peer.create("/e")
        made = peer.flood(creates([f"/e/{number:05}" for number in range(20_000)], flags=EPHEMERAL), 20_000)
        report.require(not made.errors, "the ephemerals could not be created")
        one = request(OpCode.GET_EPHEMERALS, GetEphemeralsRequest(prefix))
        data = one * count
        with target.under_attack():
            outcome = peer.flood(data, count)
    report.got = str(outcome)
    judge_flood(report, outcome)


@attack("4-ephemerals-none", latency_ms=NEIGHBOUR_MS)
def ephemerals_none(target: Target, report: Report) -> None:
    """22 kB of getEphemerals with a prefix that matches none of 20,000."""
    ephemerals(target, report, "/none", 1000)


@attack("4-ephemerals-all", latency_ms=NEIGHBOUR_MS)
def ephemerals_all(target: Target, report: Report) -> None:
    """200 getEphemerals with a prefix that matches all of 20,000."""
    ephemerals(target, report, "/e", 200)


@attack("5-acl-flood", latency_ms=NEIGHBOUR_MS)
def acl_flood(target: Target, report: Report) -> None:
    """57 kB of getData on a node whose ACL has 2,000 ip entries, none of them the attacker's."""
    entries = [(int(Perm.READ), "ip", f"10.{number >> 8}.{number & 255}.1/24") for number in range(2000)]
    with target.peer() as owner:
        assert owner.create("/acl", acl=acl_vector(entries)) == 0
    one = request(OpCode.GET_DATA, GetDataRequest("/acl", False))
    flood(target, report, one * (57_000 // len(one)), 57_000 // len(one))


@attack("6-creates", latency_ms=NEIGHBOUR_MS)
def pipelined_creates(target: Target, report: Report) -> None:
    """8 MB of pipelined creates."""
    populate(target, ["/f"])
    size = len(creates(["/f/000000"]))
    count = 8 * MEGABYTE // size
    flood(target, report, creates(f"/f/{number:06}" for number in range(count)), count)


@attack("6-sets", latency_ms=NEIGHBOUR_MS)
def pipelined_sets(target: Target, report: Report) -> None:
    """8 MB of pipelined sets."""
    populate(target, ["/f"])
    one = request(OpCode.SET_DATA, SetDataRequest("/f", b"", -1))
    count = 8 * MEGABYTE // len(one)
    flood(target, report, one * count, count)


def multi_of(kind: OpCode, bodies: list[bytes]) -> bytes:
    """Return the frame of a multi of one kind of operation."""
    header = MultiHeader(kind, False, -1).encode()
    return request(OpCode.MULTI, b"".join([header + body for body in bodies]) + END)


def create_multi(tag: str) -> list[bytes]:
    """Return the bodies of 10,000 creates, about 1 MB."""
    data = struct.pack(">i", 30) + bytes(30)
    return [text(f"/m/{tag}{number:06}") + data + CREATE_TAIL for number in range(10_000)]


@attack("7-multi", latency_ms=NEIGHBOUR_MS)
def large_multis(target: Target, report: Report) -> None:
    """Eight multis of 10,000 creates each."""
    populate(target, ["/m"])
    flood(target, report, b"".join([multi_of(OpCode.CREATE, create_multi(f"{n}-")) for n in range(8)]), 8)


@attack("7-multi-rollback", latency_ms=NEIGHBOUR_MS)
def failing_multis(target: Target, report: Report) -> None:
    """Eight multis of 10,000 creates whose last operation fails."""
    populate(target, ["/m"])
    header = MultiHeader(OpCode.CREATE, False, -1).encode()
    last = MultiHeader(OpCode.DELETE, False, -1).encode() + DeleteRequest("/none", -1).encode()
    one = request(OpCode.MULTI, b"".join([header + body for body in create_multi("x")]) + last + END)
    flood(target, report, one * 8, 8)
    with target.peer() as peer:
        body = peer.call(OpCode.GET_CHILDREN, GetChildrenRequest("/m", False))[1]
        report.require(struct.unpack_from(">i", body)[0] == 0, "a failed multi left nodes behind")


@attack("7-multi-checks", latency_ms=NEIGHBOUR_MS)
def multis_of_checks(target: Target, report: Report) -> None:
    """Eight multis of 50,000 checks each."""
    flood(target, report, multi_of(OpCode.CHECK, [text("/") + struct.pack(">i", -1)] * 50_000) * 8, 8)


@attack("8-acl-distinct", latency_ms=NEIGHBOUR_MS)
def acl_distinct(target: Target, report: Report) -> None:
    """A create with 20,000 different ACL entries, then 50 getACL of them."""
    entries = [(int(Perm.ALL), "digest", f"u{number}:x") for number in range(20_000)]
    body = text("/acl") + struct.pack(">i", 0) + acl_vector(entries) + struct.pack(">i", 0)
    data = request(OpCode.CREATE, body) + request(OpCode.GET_ACL, text("/acl")) * 50
    flood(target, report, data, 51, may_close=True)


@attack("8-acl-auth", latency_ms=NEIGHBOUR_MS, rss_mb=RSS_MB)
def acl_expansion(target: Target, report: Report) -> None:
    """A create with 5,000 ``auth`` entries by a connection with 1,000 identities."""
    entries = [(int(Perm.ALL), "auth", f"{number}") for number in range(5000)]
    body = text("/acl") + struct.pack(">i", 0) + acl_vector(entries) + struct.pack(">i", 0)
    with target.peer() as peer:
        identities = b"".join([request(OpCode.AUTH, AuthPacket(0, "digest", b"u%d:x" % n), -4) for n in range(1000)])
        known = peer.flood(identities, 1000)
        data = request(OpCode.CREATE, body)
        if known.closed:
            report.got = f"identities: {known}"
            peer = target.peer()
            peer.authenticate("u:x")
        with target.under_attack():
            outcome = peer.flood(data, 1)
    report.got = f"{report.got} create: {outcome}".strip()
    judge_flood(report, outcome, may_close=True)


@attack(
    "9-sasl-token",
    latency_ms=NEIGHBOUR_MS,
    properties={"java.security.auth.login.config": "{jaas}", "fips-mode": "false"},
)
def sasl_token(target: Target, report: Report) -> None:
    """20 tokens of 32 kB that make a regular expression backtrack, sent in place of a proof."""
    size = 32_000
    tokens = [
        b" " * size,
        b"a=" + b" " * size + b'"',
        b"a =" + b" " * size + b"x y",
        b"a" + b" " * size + b"x",
        b'a="' + b"\\x" * (size // 2),
        b'a="' + b"x" * size,
        b"a=" * (size // 2),
        b"a=a=" * (size // 4),
        b"a=a," * (size // 4) + b'"',
        b"a" * size,
    ]
    frames = [request(OpCode.SASL, GetSASLRequest(token)) for token in tokens] * 2
    total = Outcome()
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer()) for _ in frames]
        challenged = sum(peer.call(OpCode.SASL, GetSASLRequest(b""))[0] == 0 for peer in peers)
        with target.under_attack():
            for peer, data in zip(peers, frames, strict=True):
                peer.flood(data, 1, outcome=total)
    report.got = f"{challenged} challenges, {total}"
    report.require(challenged == len(frames), "no challenge was given")


def many_identities(target: Target, peer: Peer, count: int) -> tuple[Peer, str]:
    """Add digest identities; where the server closes the connection, take a new one with fewer."""
    frames = [request(OpCode.AUTH, AuthPacket(0, "digest", b"u%d:x" % n), -4) for n in range(count)]
    outcome = peer.flood(b"".join(frames), count)
    if not outcome.closed:
        return peer, f"{outcome.replies - sum(outcome.errors.values()):,} identities"
    allowed = max(1, outcome.replies - 1)
    peer = target.peer()
    peer.flood(b"".join(frames[:allowed]), allowed)
    return peer, f"closed, then {allowed:,} identities"


@attack(
    "10-enforce-other",
    properties={"enforce.auth.enabled": "true", "enforce.auth.schemes": "sasl", "allowSaslFailedClients": "true"},
)
def enforced_other(target: Target, report: Report) -> None:
    """57 kB of requests without an identity of the scheme that is asked for, after 10,000 of another."""
    with target.peer() as peer:
        peer, logins = many_identities(target, peer, 10_000)
        one = request(OpCode.EXISTS, ExistsRequest("/", False))
        with target.under_attack(neighbour=False):
            outcome = peer.flood(one * 2500, 2500)
        peer.close()
    report.got = f"{logins}; {outcome}"
    report.require(set(outcome.errors) <= {-124} and outcome.replies <= 1, "an unknown client was served")


@attack(
    "10-enforce-digest",
    latency_ms=NEIGHBOUR_MS,
    properties={"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"},
)
def enforced_digest(target: Target, report: Report) -> None:
    """57 kB of requests by a connection with 10,000 identities of the scheme that is asked for."""
    with target.peer() as peer:
        peer, logins = many_identities(target, peer, 10_000)
        one = request(OpCode.EXISTS, ExistsRequest("/", False))
        with target.under_attack():
            outcome = peer.flood(one * 2500, 2500)
        peer.close()
    report.got = f"{logins}; {outcome}"
    judge_flood(report, outcome)


@attack("10-identities-acl", latency_ms=NEIGHBOUR_MS)
def identities_against_acl(target: Target, report: Report) -> None:
    """A connection with 10,000 identities reads a node with 2,000 digest entries, none of them its own; 57 kB."""
    entries = [(int(Perm.READ), "digest", f"a{number}:x") for number in range(2000)]
    with target.peer() as owner:
        assert owner.create("/acl", acl=acl_vector(entries)) == 0
        peer, logins = many_identities(target, owner, 10_000)
        one = request(OpCode.GET_DATA, GetDataRequest("/acl", False))
        count = 57_000 // len(one)
        with target.under_attack():
            outcome = peer.flood(one * count, count)
        peer.close()
    report.got = f"{logins}; {outcome}"
    judge_flood(report, outcome)


@attack("10-whoami", latency_ms=NEIGHBOUR_MS)
def whoami(target: Target, report: Report) -> None:
    """A connection with 10,000 identities asks 1,000 times who it is."""
    with target.peer() as peer:
        peer, logins = many_identities(target, peer, 10_000)
        one = request(OpCode.WHO_AM_I, b"")
        with target.under_attack():
            outcome = peer.flood(one * 1000, 1000)
        peer.close()
    report.got = f"{logins}; {outcome}"
    judge_flood(report, outcome)


def quota_text() -> bytes:
    """Return nearly 1 MB that the quota parser has to read."""
    return b"count=1000000,bytes=100000000=;" + b"x=1,y=2;" * 120_000


@attack("11-quota-stats", latency_ms=NEIGHBOUR_MS)
def quota_stats(target: Target, report: Report) -> None:
    """20 times: 1 MB of text into zookeeper_stats, then ten writes below the node."""
    populate(target, ["/a", "/a/b", "/zookeeper/quota/a"])
    with target.peer() as owner:
        owner.create("/zookeeper/quota/a/zookeeper_limits", b"count=1000000,bytes=100000000")
        owner.create("/zookeeper/quota/a/zookeeper_stats", b"count=1,bytes=1")
    put = request(OpCode.SET_DATA, SetDataRequest("/zookeeper/quota/a/zookeeper_stats", quota_text(), -1))
    write = request(OpCode.SET_DATA, SetDataRequest("/a/b", b"x", -1))
    flood(target, report, (put + write * 10) * 20, 220)


@attack("11-quota-limits", latency_ms=NEIGHBOUR_MS, properties={"enforceQuota": "true"})
def quota_limits(target: Target, report: Report) -> None:
    """1 MB of limits, enforced, then 200 writes below the node."""
    populate(target, ["/a", "/a/b", "/zookeeper/quota/a"])
    with target.peer() as owner:
        owner.create("/zookeeper/quota/a/zookeeper_stats", b"count=1,bytes=1")
        made = owner.create("/zookeeper/quota/a/zookeeper_limits", quota_text())
        report.require(made in (0, -8, -5), f"the limits node gave {made}")
    flood(target, report, request(OpCode.SET_DATA, SetDataRequest("/a/b", b"x", -1)) * 200, 200)


@attack("12-deep", latency_ms=NEIGHBOUR_MS)
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


def set_watches(target: Target, count: int, path: Callable[[int], str], per_connection: int) -> list[Peer]:
    """Set exists watches over as few connections as the server allows, ten at most."""
    peers: list[Peer] = []
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


@attack("12-watches-dropped", latency_ms=NEIGHBOUR_MS)
def watches_dropped(target: Target, report: Report) -> None:
    """1,000,000 watches go when their connections do."""
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


@attack("12-watches-resumed", latency_ms=NEIGHBOUR_MS)
def watches_resumed(target: Target, report: Report) -> None:
    """Eight setWatches of 90,000 paths each, 1 MB a request."""
    frames = [
        request(OpCode.SET_WATCHES, SetWatches(0, [], [f"/{tag}{number:05}" for number in range(90_000)], []))
        for tag in "abcdefgh"
    ]
    flood(target, report, b"".join(frames), 8, may_close=True)


@attack("13-multi-read", rss_mb=RSS_MB)
def multi_read(target: Target, report: Report) -> None:
    """A multiRead of 32 kB asks 1,000 times for a node of 1 MB."""
    path = "/" + "m" * 17
    populate(target, [path], bytes(MEGABYTE))
    header = MultiHeader(OpCode.GET_DATA, False, -1).encode()
    body = (header + GetDataRequest(path, False).encode()) * 1000
    flood(target, report, request(OpCode.MULTI_READ, body + END), 1, may_close=True)


# --- 14 to 16, 19: what a connection may make the server keep ---


@attack("14-identities", rss_mb=RSS_MB)
def identities(target: Target, report: Report) -> None:
    """100,000 digest identities for one connection."""
    data = b"".join([request(OpCode.AUTH, AuthPacket(0, "digest", b"user%d:x" % n), -4) for n in range(100_000)])
    flood(target, report, data, 100_000, may_close=True)


@attack("15-watches", rss_mb=RSS_MB)
def watches(target: Target, report: Report) -> None:
    """2,000,000 watches on paths of 200 characters over one connection."""
    stem, batch, total = "/" + "w" * 192, 50_000, 2_000_000
    pieces = (exists(f"{stem}{n:07}" for n in range(first, first + batch)) for first in range(0, total, batch))
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(pieces, total, seconds=45)
        there = target.metric("watch_count")
    report.got = f"{there:,} watches; {outcome}"


@attack("15-paths-not-watched", rss_mb=RSS_MB)
def paths_not_watched(target: Target, report: Report) -> None:
    """exists without a watch on 200,000 paths of 1 kB that nobody has; nothing may remember them."""
    stem, batch, total = "/" + "w" * 1000, 10_000, 200_000
    pieces = (
        exists((f"{stem}{n:07}" for n in range(first, first + batch)), watch=False) for first in range(0, total, batch)
    )
    with target.peer() as peer, target.under_attack():
        outcome = peer.flood(pieces, total)
    report.got = str(outcome)


@attack("16-unread-replies", rss_mb=RSS_MB)
def unread_replies(target: Target, report: Report) -> None:
    """500 connections ask for 100 replies of 1 MB each and read nothing."""
    populate(target, ["/m"], bytes(MEGABYTE))
    data = request(OpCode.GET_DATA, GetDataRequest("/m", False)) * 100
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(receive_buffer=4096)) for _ in range(500)]
        with target.under_attack():
            for peer in peers:
                peer.link.sendall(data)
            time.sleep(4)
        closed = sum(reset(peer) for peer in peers)
    report.got = f"{closed} of 500 closed"


def reset(peer: Peer) -> bool:
    """Return whether the server has closed a connection, without reading from it, and end it with RST."""
    peer.link.setblocking(False)
    try:
        peer.link.send(request(OpCode.PING, b"", -2))
        time.sleep(0.001)
        peer.link.send(request(OpCode.PING, b"", -2))
        state = peer.link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        return state != 1  # TCP_ESTABLISHED
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        peer.reset()


@attack("16-unread-events", rss_mb=RSS_MB)
def unread_events(target: Target, report: Report) -> None:
    """100 connections watch everything and read nothing, while one sets a node with a path of 1 kB 20,000 times."""
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
        closed = sum(reset(peer) for peer in peers)
    report.got = f"{closed} of 100 closed; writer: {outcome}"


@attack("16-partial-frames", rss_mb=RSS_MB)
def partial_frames(target: Target, report: Report) -> None:
    """500 connections send all but the last byte of a request of 1 MB, half of them before the handshake."""
    part = struct.pack(">i", MEGABYTE) + bytes(MEGABYTE - 1)
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
    """A getChildren whose reply is above 64 MiB reaches a client that reads it."""
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


# --- 17, 18, 20: the process and its sockets ---


def unread_client(target: Target) -> Peer:
    """Connect a client that does not read 20 MB of replies."""
    populate(target, ["/m"], bytes(MEGABYTE))
    peer = target.peer(receive_buffer=4096)
    peer.link.sendall(request(OpCode.GET_DATA, GetDataRequest("/m", False)) * 20)
    time.sleep(0.5)
    return peer


@attack("17-sigterm", apache=False)
def sigterm(target: Target, report: Report) -> None:
    """SIGTERM while a client does not read 20 MB of replies: exit code 0 within 5.5 s."""
    with unread_client(target):
        started = time.monotonic()
        target.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(8)
        took = time.monotonic() - started
    report.got = f"exit code {target.process.poll()} after {took:.2f} s"
    report.require(target.process.poll() == 0, "no exit code 0")
    report.require(took < 5.5, "it took more than 5.5 s")


@attack("17-sigterm-twice", apache=False)
def sigterm_twice(target: Target, report: Report) -> None:
    """A second SIGTERM, half a second after the first, ends the process at once."""
    with unread_client(target):
        target.signal(signal.SIGTERM)
        time.sleep(0.5)
        first = target.alive()
        started = time.monotonic()
        if first:
            target.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            target.process.wait(8)
        took = time.monotonic() - started
    waited = "it still ran after 0.5 s" if first else "the first was enough"
    report.got = f"{waited}; exit code {target.process.poll()} after {took:.2f} s"
    report.require(not target.alive() and took < 0.5, "the second SIGTERM did not end it at once")


@attack("18-descriptors", latency_ms=NEIGHBOUR_MS, descriptors=128, apache=False)
def descriptors(target: Target, report: Report) -> None:
    """200 connections where the process may have 128 descriptors: those that are there work, and it recovers."""
    with ExitStack() as stack:
        early = target.peer(session=False)
        peer = stack.enter_context(target.peer())
        with target.under_attack():
            links = []
            for _ in range(200):
                link = stack.enter_context(socket.socket())
                link.settimeout(1)
                with suppress(OSError):
                    link.connect(("127.0.0.1", target.port))
                links.append(link)
            time.sleep(0.5)
            busy = -target.cpu_s()
            time.sleep(2)
            busy += target.cpu_s()
            error, _ = peer.call(OpCode.EXISTS, ExistsRequest("/", False))
            early.link.settimeout(2)
            try:
                answer = target.word(b"mntr", early.link)
            except OSError as problem:
                answer = repr(problem)
            for link in links:
                link.close()
            time.sleep(1.5)
            recovered = until(lambda: try_session(target), 10)
    lines = re.findall(r"^\d{4}-.*(?:descriptor|EMFILE|Too many open).*$", target.log(), re.MULTILINE)
    report.got = f"mntr {len(answer)} bytes, {len(lines)} log lines, {busy / 2:.0%} CPU meanwhile, "
    report.got += "no recovery" if recovered is None else "recovered"
    report.require(error == 0 and "zk_server_state" in answer, "a connection that was there did not work")
    report.require(lines, "no log line says that descriptors ran out")
    report.require(len(lines) < 50, "the log is flooded")
    report.require(recovered is not None, "it did not recover")


def try_session(target: Target) -> bool:
    """Return whether a session can be opened."""
    with suppress(OSError), target.peer() as peer:
        return peer.session_id != 0
    return False


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
    """500 sockets on the TLS port that say nothing: ten stay, and those for about 10 s."""
    assert target.process.stdout is not None
    match = re.search(r"ready for TLS on 127\.0\.0\.1:(\d+)", target.process.stdout.readline())
    assert match is not None
    with ExitStack() as stack:
        with target.under_attack():
            started = time.monotonic()
            peers = []
            for _ in range(500):
                with suppress(OSError):
                    peers.append(stack.enter_context(Peer(int(match[1]), source="127.0.0.2", session=False)))
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


# --- from 21: amplifications that the protocol allows ---


@attack("21-children-changed", latency_ms=NEIGHBOUR_MS)
def children_changed(target: Target, report: Report) -> None:
    """100 times: a create, and getChildren of its 100,000 brothers and sisters, which no cache can answer."""
    populate(target, ["/big", *(f"/big/{number:06}" for number in range(100_000))])
    ask = request(OpCode.GET_CHILDREN, GetChildrenRequest("/big", False))
    flood(target, report, b"".join([creates([f"/big/x{number}"]) + ask for number in range(100)]), 200)


@attack("22-session-end", latency_ms=NEIGHBOUR_MS)
def session_end(target: Target, report: Report) -> None:
    """closeSession of a session with 200,000 ephemerals."""
    count = 200_000
    with target.peer() as peer:
        peer.create("/e")
        made = peer.flood(creates((f"/e/{number:06}" for number in range(count)), flags=EPHEMERAL), count)
        with target.under_attack():
            outcome = peer.flood(request(OpCode.CLOSE_SESSION, b""), 1)
    report.got = f"{made.replies - sum(made.errors.values()):,} ephemerals; {outcome}"


@attack("23-trickle", latency_ms=NEIGHBOUR_MS)
def trickle(target: Target, report: Report) -> None:
    """A request of 1 MB that arrives 200 bytes at a time, slowly enough that each piece is read by itself."""
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


@attack("24-session-flood", latency_ms=NEIGHBOUR_MS, rss_mb=RSS_MB)
def session_flood(target: Target, report: Report) -> None:
    """10,000 sessions of 4 s with an ephemeral each are opened and left; all end within a few ticks."""
    hello = frame(ConnectRequest(timeout_ms=4000).encode())
    opened = 0
    with target.under_attack():
        started = time.monotonic()
        while opened < 10_000 and time.monotonic() < started + 15:
            with target.peer(session=False) as peer:
                peer.link.sendall(hello + creates([f"/s{opened}"], flags=EPHEMERAL))
                peer.payload()
                peer.payload()
            opened += 1
        took = time.monotonic() - started
        left = until(lambda: target.metric("ephemerals_count") == 0, 12, 0.5)
    report.got = f"{opened:,} sessions in {took:.1f} s; " + (
        "not all ended" if left is None else f"gone {left:.1f} s later"
    )
    report.require(left is not None, "sessions without a client did not end")


@attack("25-distinct-acls", latency_ms=NEIGHBOUR_MS, rss_mb=RSS_MB)
def distinct_acls(target: Target, report: Report) -> None:
    """2,000 times: create a node with 200 ACL entries that nobody had before, and delete it again."""
    parts = []
    for number in range(2000):
        entries = [(int(Perm.ALL), "digest", f"{number}-{entry}:x") for entry in range(200)]
        parts.append(request(OpCode.CREATE, text("/acl") + struct.pack(">i", 0) + acl_vector(entries) + bytes(4)))
        parts.append(request(OpCode.DELETE, DeleteRequest("/acl", -1)))
    flood(target, report, b"".join(parts), 4000)


@attack("26-watch-storm", latency_ms=NEIGHBOUR_MS)
def watch_storm(target: Target, report: Report) -> None:
    """500 connections watch everything and read nothing, while a multi of 10,000 creates fires 5,000,000 events."""
    populate(target, ["/m"])
    data = multi_of(OpCode.CREATE, create_multi("w"))
    with ExitStack() as stack:
        peers = [stack.enter_context(target.peer(receive_buffer=4096)) for _ in range(500)]
        for peer in peers:
            peer.call(OpCode.ADD_WATCH, AddWatchRequest("/", 1))
        writer = stack.enter_context(target.peer())
        with target.under_attack():
            outcome = writer.flood(data, 1)
        closed = sum(reset(peer) for peer in peers)
    report.got = f"{closed} of 500 closed; writer: {outcome}"
