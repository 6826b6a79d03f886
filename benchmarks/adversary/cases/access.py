"""Authentication and authorization: ACL lists, identities, SASL tokens."""

from __future__ import annotations

from contextlib import ExitStack

from adversary.case import MAX_NEIGHBOUR_MS, MAX_RSS_MB, Report, attack
from adversary.client import HostilePeer, Outcome
from adversary.floods import flood, judge_flood
from adversary.frames import encode_acl, request
from adversary.target import Target
from zoolet.protocol.codec import pack_int, put_str
from zoolet.protocol.enums import Perm
from zoolet.protocol.operations import OpCode
from zoolet.protocol.records import (
    AuthPacket,
    DeleteRequest,
    ExistsRequest,
    GetDataRequest,
    GetSASLRequest,
)


@attack("5-acl-flood", latency_ms=MAX_NEIGHBOUR_MS)
def acl_flood(target: Target, report: Report) -> None:
    """57 kB of getData on a node whose ACL contains 2,000 ip entries, none with the attacker's address."""
    entries = [(int(Perm.READ), "ip", f"10.{number >> 8}.{number & 255}.1/24") for number in range(2000)]
    with target.peer() as owner:
        assert owner.create("/acl", acl=encode_acl(entries)) == 0
    one = request(OpCode.GET_DATA, GetDataRequest("/acl", False))
    flood(target, report, one * (57_000 // len(one)), 57_000 // len(one))


@attack("8-acl-distinct", latency_ms=MAX_NEIGHBOUR_MS)
def acl_distinct(target: Target, report: Report) -> None:
    """A create with 20,000 different ACL entries, and 50 getACL of the node."""
    entries = [(int(Perm.ALL), "digest", f"u{number}:x") for number in range(20_000)]
    body = put_str("/acl") + pack_int(0) + encode_acl(entries) + pack_int(0)
    data = request(OpCode.CREATE, body) + request(OpCode.GET_ACL, put_str("/acl")) * 50
    flood(target, report, data, 51, may_close=True)


@attack("8-acl-auth", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB)
def acl_expansion(target: Target, report: Report) -> None:
    """A create with 5,000 ``auth`` entries by a connection with 1,000 identities."""
    entries = [(int(Perm.ALL), "auth", f"{number}") for number in range(5000)]
    body = put_str("/acl") + pack_int(0) + encode_acl(entries) + pack_int(0)
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
    latency_ms=MAX_NEIGHBOUR_MS,
    properties={"java.security.auth.login.config": "{jaas}", "fips-mode": "false"},
)
def sasl_token(target: Target, report: Report) -> None:
    """20 tokens of 32 kB that make a regular expression backtrack, sent instead of a proof."""
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


def add_identities(target: Target, peer: HostilePeer, count: int) -> tuple[HostilePeer, str]:
    """Add digest identities to a connection. If the server closes it, try again with fewer on a new connection."""
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
    """57 kB of requests by a connection with 10,000 identities, none of them of the required scheme."""
    with target.peer() as peer:
        peer, course = add_identities(target, peer, 10_000)
        one = request(OpCode.EXISTS, ExistsRequest("/", False))
        with target.under_attack(neighbour=False):
            outcome = peer.flood(one * 2500, 2500)
        peer.close()
    report.got = f"{course}; {outcome}"
    report.require(set(outcome.errors) <= {-124} and outcome.replies <= 1, "an unknown client was served")


@attack(
    "10-enforce-digest",
    latency_ms=MAX_NEIGHBOUR_MS,
    properties={"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"},
)
def enforced_digest(target: Target, report: Report) -> None:
    """57 kB of requests by a connection with 10,000 identities of the required scheme."""
    with target.peer() as peer:
        peer, course = add_identities(target, peer, 10_000)
        one = request(OpCode.EXISTS, ExistsRequest("/", False))
        with target.under_attack():
            outcome = peer.flood(one * 2500, 2500)
        peer.close()
    report.got = f"{course}; {outcome}"
    judge_flood(report, outcome)


@attack("10-identities-acl", latency_ms=MAX_NEIGHBOUR_MS)
def identities_against_acl(target: Target, report: Report) -> None:
    """57 kB of reads by a connection with 10,000 identities, of a node with 2,000 other digest entries."""
    entries = [(int(Perm.READ), "digest", f"a{number}:x") for number in range(2000)]
    with target.peer() as owner:
        assert owner.create("/acl", acl=encode_acl(entries)) == 0
        peer, course = add_identities(target, owner, 10_000)
        one = request(OpCode.GET_DATA, GetDataRequest("/acl", False))
        count = 57_000 // len(one)
        with target.under_attack():
            outcome = peer.flood(one * count, count)
        peer.close()
    report.got = f"{course}; {outcome}"
    judge_flood(report, outcome)


@attack("10-whoami", latency_ms=MAX_NEIGHBOUR_MS)
def whoami(target: Target, report: Report) -> None:
    """A connection with 10,000 identities sends whoAmI 1,000 times."""
    with target.peer() as peer:
        peer, course = add_identities(target, peer, 10_000)
        one = request(OpCode.WHO_AM_I, b"")
        with target.under_attack():
            outcome = peer.flood(one * 1000, 1000)
        peer.close()
    report.got = f"{course}; {outcome}"
    judge_flood(report, outcome)


@attack("14-identities", rss_mb=MAX_RSS_MB)
def identities(target: Target, report: Report) -> None:
    """100,000 digest identities for one connection."""
    data = b"".join([request(OpCode.AUTH, AuthPacket(0, "digest", b"user%d:x" % n), -4) for n in range(100_000)])
    flood(target, report, data, 100_000, may_close=True)


@attack("25-distinct-acls", latency_ms=MAX_NEIGHBOUR_MS, rss_mb=MAX_RSS_MB)
def distinct_acls(target: Target, report: Report) -> None:
    """2,000 times: create a node with 200 new ACL entries, and delete it."""
    parts = []
    for number in range(2000):
        entries = [(int(Perm.ALL), "digest", f"{number}-{entry}:x") for entry in range(200)]
        parts.append(request(OpCode.CREATE, put_str("/acl") + pack_int(0) + encode_acl(entries) + bytes(4)))
        parts.append(request(OpCode.DELETE, DeleteRequest("/acl", -1)))
    flood(target, report, b"".join(parts), 4000)
