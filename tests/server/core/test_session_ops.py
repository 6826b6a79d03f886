"""The operations on a session itself: closeSession, auth and whoAmI.

Source: ZooKeeperServer.processPacket; DigestAuthenticationProvider.
"""

from __future__ import annotations

import pytest
from support.calls import connect_peer, engine_with_settings, last_zxid, parse_settings, resume_session, who_am_i
from support.engine import attach_journal, make_engine
from support.frames import long, request, string, unhex
from support.log import Log
from support.logins import SUPER, USERS
from support.numbers import AUTH_FAILED, EPHEMERAL
from support.private_nodes import PRIVATE
from support.records import replace

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, digest_id
from zoolet.protocol.errors import ErrorCode, InvalidACLError
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings

# --- closeSession ---


def test_close_session_sends_events_before_reply(peer):
    peer.create("/e", flags=EPHEMERAL)
    peer.get("/e", watch=True)
    peer.children("/", watch=True)
    before = last_zxid(peer)

    raw = peer.feed(request(9, OpCode.CLOSE_SESSION))

    zxid = long(before + 1)
    assert raw == (
        frame(unhex("ffffffff") + zxid + unhex("00000000 00000002 00000003") + string("/e"))
        + frame(unhex("ffffffff") + zxid + unhex("00000000 00000004 00000003") + string("/"))
        + frame(unhex("00000009") + zxid + unhex("00000000"))
    )
    assert peer.closed


def test_requests_after_close_session_are_ignored(peer, other):
    late = request(10, OpCode.CREATE, r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 0))

    raw = peer.feed(request(9, OpCode.CLOSE_SESSION) + late + request(-2, OpCode.PING))

    assert raw == unhex("00000010 00000009 0000000000000003 00000000")
    assert other.children("/") == ["zookeeper"]
    assert last_zxid(other) == 3


def test_close_session_deletes_ephemerals_together(peer, other):
    peer.create("/p")
    peer.create("/p/a", flags=EPHEMERAL)
    peer.create("/p/b", flags=EPHEMERAL)
    peer.create("/p/c", flags=EPHEMERAL)
    before = other.exists("/p")

    (closed,) = peer.close()

    assert other.exists("/p") == replace(before, cversion=before.cversion + 3, numChildren=0, pzxid=closed.zxid)


# --- auth ---


@pytest.mark.parametrize("xid", [-4, 5])
def test_auth_reply_has_zxid_zero_and_echoes_xid(peer, xid):
    peer.create("/x")

    raw = peer.feed(request(xid, OpCode.AUTH, r.AuthPacket(0, "digest", b"u:p")))

    assert raw == unhex("00000010") + xid.to_bytes(4, "big", signed=True) + unhex("0000000000000000 00000000")


@pytest.mark.parametrize(
    ("scheme", "data"),
    [("none", b""), ("world", b""), ("auth", b""), ("super", b""), (None, b""), ("x509", b""), ("digest", None)],
)
def test_failed_auth_closes_connection_but_not_session(peer, scheme, data):
    raw = peer.feed(request(-4, OpCode.AUTH, r.AuthPacket(0, scheme, data)))

    assert raw == unhex("00000010 fffffffc 0000000000000000 ffffff8d")
    assert peer.closed
    assert resume_session(peer).welcome == peer.welcome


def test_auth_consumes_no_zxid(peer):
    before = last_zxid(peer)

    peer.auth("digest", b"u:p")

    assert last_zxid(peer) == before


def test_undecodable_auth_packet_is_closed_silently(peer):
    raw = peer.feed(request(-4, OpCode.AUTH, unhex("00000000 00000006 6469")))

    assert raw == b""
    assert peer.closed
    assert resume_session(peer).welcome == peer.welcome


@pytest.mark.parametrize("scheme", ["super", "world", "auth", "sasl", "x509", "DIGEST", "digest\0", "", None])
def test_unsupported_auth_scheme_is_refused(scheme: str | None) -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS, super_digest=SUPER)))

    reply = peer.auth(scheme, b"super:pw")

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_ip_scheme_proves_address_of_connection() -> None:
    peer = connect_peer(make_engine(), host="127.0.0.2")

    peer.auth("ip", b"10.0.0.1")

    assert who_am_i(peer) == [("ip", "127.0.0.2")]


def test_wrong_super_password_is_counted_and_logged() -> None:
    logged: list[str] = []
    engine = make_engine(EngineSettings(super_digest=SUPER), log=lambda text, *values: logged.append(text % values))
    peer = connect_peer(engine)

    assert peer.auth("digest", b"super:guess").err == ErrorCode.OK
    assert peer.auth("digest", b"bob:guess").err == ErrorCode.OK

    assert engine.metrics.auth_failed == 1
    assert [line.partition(" from ")[0] for line in logged] == ["wrong password for the super user"]


def test_non_utf_8_credentials_are_compared_exactly() -> None:
    engine = make_engine(EngineSettings(super_digest=digest_id(b"super:\xff")))
    peer = connect_peer(engine)

    peer.auth("digest", b"super:\xfe")

    assert not peer.client.is_super


def test_identities_are_limited_including_address(log: Log) -> None:
    engine = engine_with_settings(log, max_identities=3)
    peer = connect_peer(engine)

    errors = [peer.auth("digest", f"u{number}:p".encode()).err for number in range(3)]

    assert errors == [0, 0, AUTH_FAILED]
    assert peer.closed
    assert engine.metrics.refused["identities"] == 1
    assert engine.metrics.auth_failed == 1
    assert len(log.with_word("identities")) == 1


def test_repeated_identity_does_not_count_toward_limit() -> None:
    peer = connect_peer(engine_with_settings(max_identities=2))

    errors = [peer.auth("digest", b"u:p").err for _ in range(10)]

    assert errors == [0] * 10
    assert len(peer.client.ids) == 2


def test_identity_limit_is_per_connection() -> None:
    engine = engine_with_settings(max_identities=2)
    first, second = connect_peer(engine), connect_peer(engine)

    assert [first.auth("digest", b"u:p").err, second.auth("digest", b"v:p").err] == [0, 0]


# --- scheme digest, and its super user ---


def test_login_fails_without_digest_provider() -> None:
    peer = connect_peer(make_engine(parse_settings("DigestAuthenticationProvider.enabled=false\n")))

    reply = peer.auth("digest", b"a:b")

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_super_login_fails_without_digest_provider() -> None:
    text = f"DigestAuthenticationProvider.superDigest={digest_id(b'super:pw')}\n"
    engine = make_engine(parse_settings(text + "DigestAuthenticationProvider.enabled=false\n"))

    reply = connect_peer(engine).auth("digest", b"super:pw")

    assert reply.err == ErrorCode.AUTH_FAILED
    assert engine.metrics.super_logins == 0


def test_digest_acl_is_invalid_without_digest_provider() -> None:
    peer = connect_peer(make_engine(parse_settings("DigestAuthenticationProvider.enabled=false\n")))

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=PRIVATE)


@pytest.mark.parametrize(
    "credentials",
    [
        b"super:",
        b"super",
        b":pw",
        b"super:PW",
        b"super:pw\0",
        b"super:pw ",
        b"\0super:pw",
        SUPER.encode(),
        SUPER.split(":")[1].encode(),
        b"super:pw:",
        b"SUPER:pw",
        b"",
        b":",
    ],
)
def test_wrong_credentials_do_not_make_super_user(credentials: bytes) -> None:
    engine = make_engine(EngineSettings(super_digest=SUPER))
    peer = connect_peer(engine)

    peer.auth("digest", credentials)

    assert not peer.client.is_super
    assert engine.metrics.super_logins == 0


def test_right_credentials_make_super_user() -> None:
    engine = make_engine(EngineSettings(super_digest=SUPER))
    peer = connect_peer(engine)

    peer.auth("digest", b"super:pw")

    assert peer.set("/zookeeper/config", b"x").version == 1


@pytest.mark.parametrize("digest", ["", ":", "super", "super:"])
def test_partial_super_digest_makes_no_super_user(digest: str) -> None:
    peer = connect_peer(make_engine(parse_settings(f"DigestAuthenticationProvider.superDigest={digest}\n")))

    peer.auth("digest", digest.encode())

    assert not peer.client.is_super


def test_non_ascii_super_digest_is_compared() -> None:
    engine = make_engine(EngineSettings(super_digest=digest_id("süper:pw".encode())))
    peer = connect_peer(engine)

    peer.auth("digest", "süper:pw".encode())

    assert peer.client.is_super


# --- whoAmI ---


def test_whoami_hides_password_of_digest(peer):
    peer.auth("digest", b"u:p")
    peer.auth("digest", b"justuser")

    assert who_am_i(peer) == [("digest", "justuser"), ("digest", "u"), ("ip", "127.0.0.1")]


@pytest.mark.parametrize(
    ("op", "taken"), [(OpCode.SET_DATA, 1), (OpCode.MULTI, 1), (OpCode.EXISTS, 0), (OpCode.PING, 0), (99, 0)]
)
def test_injected_error_takes_zxid_only_for_writes(op: int, taken: int) -> None:
    peer = connect_peer(make_engine())
    before = peer.engine.zxid

    peer.connection.answer_with_error(5, op, ErrorCode.NO_NODE)

    assert peer.engine.zxid == before + taken


def test_zxid_of_failed_operation_is_logged() -> None:
    engine = make_engine(zxid=5)
    log = attach_journal(engine)

    engine.take_zxid(7, 3, ErrorCode.NO_NODE)

    assert [(entry[0], entry[1], entry[2], entry[4]) for entry in log.pop_all()] == [(7, 3, 6, -1)]
    assert log.zxid == 6
