"""Servers that serve only authenticated clients.

Source: AuthenticationHelper; with sessionRequireClientSASLAuth the scheme is sasl.
"""

from __future__ import annotations

import time

import pytest
from support.calls import connect_peer, engine_with_settings, parse_settings, request_error
from support.engine import make_engine
from support.logins import USERS, complete_sasl, start_sasl
from support.numbers import REQUIRE_AUTH
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import put_bytes
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode
from zoolet.server.core.settings import EngineSettings


def requests(*parts: tuple[int, int, bytes]) -> bytes:
    """Encode requests (xid, operation and body) as one segment."""
    return b"".join(frame(r.RequestHeader(xid, op).encode() + body) for xid, op, body in parts)


LOGIN = (-4, int(OpCode.AUTH), r.AuthPacket(0, "digest", b"a:b").encode())
CREATE = (1, int(OpCode.CREATE), r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode())


def test_request_after_login_in_segment_is_done() -> None:
    engine = make_engine(EngineSettings(require_auth=frozenset({"digest"})))

    connect_peer(engine).feed(requests(LOGIN, CREATE))

    assert engine.tree.get("/a") is not None


def test_request_before_login_in_segment_is_not_done() -> None:
    engine = make_engine(EngineSettings(require_auth=frozenset({"digest"})))

    connect_peer(engine).feed(requests(CREATE, LOGIN, CREATE))

    assert engine.tree.get("/a") is None


BAD_LOGIN = (-4, int(OpCode.AUTH), r.AuthPacket(0, "nonsense", b"a:b").encode())


def test_request_after_bad_login_in_segment_is_ignored() -> None:
    engine = make_engine()

    connect_peer(engine).feed(requests(BAD_LOGIN, CREATE))

    assert engine.tree.get("/a") is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_request_before_login_is_not_done_at_any_split(cut: int) -> None:
    engine = make_engine(EngineSettings(require_auth=frozenset({"digest"})))
    peer, segment = connect_peer(engine), requests(CREATE, LOGIN, CREATE)

    peer.feed(segment[:cut])
    peer.feed(segment[cut:])

    assert engine.tree.get("/a") is None


@pytest.mark.parametrize("op", [op for op in OpCode if op not in (OpCode.AUTH, OpCode.SASL)])
def test_operation_without_login_closes_connection(op: OpCode) -> None:
    engine = make_engine(EngineSettings(require_auth=frozenset({"sasl"})))
    peer = connect_peer(engine)

    (reply,) = peer.send(op, bytes(40))

    assert (reply.err, reply.body, peer.closed) == (ErrorCode.SESSION_CLOSED_REQUIRE_AUTH, b"", True)


def test_digest_login_does_not_satisfy_required_sasl() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, require_auth=frozenset({"sasl"})))
    peer = connect_peer(engine)
    peer.auth("digest", b"a:b")

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_unfinished_sasl_login_is_not_enough() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, require_auth=frozenset({"sasl"})))
    peer = connect_peer(engine)
    start_sasl(peer)

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_moved_session_must_log_in_again() -> None:
    engine = make_engine(EngineSettings(require_auth=frozenset({"digest"})))
    first = connect_peer(engine)
    first.auth("digest", b"a:b")
    assert first.welcome is not None
    second = Peer(engine)
    second.connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    (reply,) = second.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_null_sasl_login_does_not_satisfy_requirement() -> None:
    engine = make_engine(parse_settings("sessionRequireClientSASLAuth=true\n"))
    peer = connect_peer(engine)
    peer.send(OpCode.SASL, put_bytes(b""))

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_required_sasl_is_not_weakened_by_digest() -> None:
    # AuthenticationHelper: with sessionRequireClientSASLAuth the scheme is sasl, regardless of enforce.auth.schemes.
    text = "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=digest\n"
    peer = connect_peer(make_engine(parse_settings(text)))
    peer.auth("digest", b"any:thing")

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_client_without_required_login_is_disconnected() -> None:
    peer = connect_peer(engine_with_settings(require_auth=frozenset({"digest"})))

    assert request_error(peer, OpCode.EXISTS, r.ExistsRequest("/", False)) == REQUIRE_AUTH
    assert peer.closed


def test_login_by_one_of_required_schemes_is_enough() -> None:
    peer = connect_peer(engine_with_settings(require_auth=frozenset({"digest", "sasl"}), sasl_users={"bob": "secret"}))

    assert complete_sasl(peer, "bob", "secret").err == 0
    assert request_error(peer, OpCode.EXISTS, r.ExistsRequest("/", False)) == 0


def test_login_by_scheme_that_is_not_required_is_not_enough() -> None:
    peer = connect_peer(engine_with_settings(require_auth=frozenset({"sasl"}), sasl_users={"bob": "secret"}))
    peer.auth("digest", b"u:p")

    assert request_error(peer, OpCode.EXISTS, r.ExistsRequest("/", False)) == REQUIRE_AUTH


def test_address_satisfies_required_ip_scheme() -> None:
    peer = connect_peer(engine_with_settings(require_auth=frozenset({"ip"})))

    assert request_error(peer, OpCode.EXISTS, r.ExistsRequest("/", False)) == 0


def test_login_applies_to_later_requests_of_batch() -> None:
    peer = connect_peer(engine_with_settings(require_auth=frozenset({"digest"})))
    proof = r.RequestHeader(-4, OpCode.AUTH).encode() + r.AuthPacket(0, "digest", b"u:p").encode()
    exists = r.RequestHeader(7, OpCode.EXISTS).encode() + r.ExistsRequest("/", False).encode()

    replies = peer._sort(peer.feed(frame(proof) + frame(exists)))

    assert [(reply.xid, reply.err) for reply in replies] == [(-4, 0), (7, 0)]


def test_auth_check_cost_is_independent_of_identities() -> None:
    engine = engine_with_settings(require_auth=frozenset({"sasl"}), max_identities=100_000)
    peer = connect_peer(engine)
    for number in range(50_000):
        peer.client.add_id("digest", f"u{number}:x")

    started = time.process_time()
    auth_required = {peer.connection.auth_required() for _ in range(2_000)}
    took = time.process_time() - started

    assert auth_required == {True}
    assert took < 1  # 1 ms; checking each identity would take 10 s


def test_client_is_refused_before_required_login() -> None:
    engine = make_engine(EngineSettings(sasl_users={"bob": "secret"}, require_auth=frozenset({"sasl"})))
    eager, patient = connect_peer(engine), connect_peer(engine)

    (refused,) = eager.send(OpCode.PING)
    complete_sasl(patient, "bob", "secret")

    assert (refused.err, refused.zxid, refused.body, eager.closed) == (-124, 0, b"", True)
    assert patient.create("/a") == "/a"
