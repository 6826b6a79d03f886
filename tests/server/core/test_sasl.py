"""Logins with SASL: the exchange, its nonces, and tolerated failures.

Source: ZooKeeperServer.processSasl; RFC 2831.
"""

from __future__ import annotations

import base64
import hashlib
from random import SystemRandom

import pytest
from support.calls import connect_peer, engine_with_settings, request_error, who_am_i
from support.engine import make_engine
from support.frames import request, unhex
from support.logins import USERS, complete_sasl, start_sasl
from support.numbers import AUTH_FAILED
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import pack_int, put_bytes
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import MAX_TOKEN_BYTES, answer
from zoolet.server.core.sasl import DigestMd5
from zoolet.server.core.settings import EngineSettings

# --- the exchange ---


def md5(text: bytes) -> bytes:
    return hashlib.md5(text, usedforsecurity=False).digest()


def rfc_2831_answer(challenge: bytes, user: str, password: str) -> bytes:
    """Answer a challenge like a client according to RFC 2831."""
    nonce = challenge.split(b'nonce="')[1].split(b'"')[0].decode()
    a1 = md5(f"{user}:zk-sasl-md5:{password}".encode()) + f":{nonce}:cn".encode()
    a2 = b"AUTHENTICATE:zookeeper/zk-sasl-md5"
    response = md5(f"{md5(a1).hex()}:{nonce}:00000001:cn:auth:{md5(a2).hex()}".encode()).hex()
    return (
        f'charset=utf-8,username="{user}",realm="zk-sasl-md5",nonce="{nonce}",nc=00000001,cnonce="cn",'
        f'digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response={response},qop=auth'
    ).encode()


def login(peer: Peer, user: str, password: str) -> tuple[int, bytes]:
    """Run both steps of a login. Return the error and the body of the second reply."""
    (first,) = peer.send(OpCode.SASL, put_bytes(b""))
    (second,) = peer.send(OpCode.SASL, put_bytes(rfc_2831_answer(first.body[4:], user, password)))
    return second.err, second.body


def test_user_of_jaas_file_logs_in() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users={"bob": "secret"})))

    err, body = login(peer, "bob", "secret")

    assert err == 0
    assert body[4:].startswith(b"rspauth=")
    assert ("sasl", "bob") in [(one.scheme, one.user) for one in peer.call(OpCode.WHO_AM_I).clientInfo]


@pytest.mark.parametrize(("user", "password"), [("bob", "wrong"), ("eve", "secret")])
def test_wrong_sasl_password_or_user_closes_connection(user: str, password: str) -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users={"bob": "secret"})))

    assert login(peer, user, password) == (-115, b"\xff\xff\xff\xff")
    assert peer.closed


def test_sasl_step_after_completed_login_fails() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users={"bob": "secret"})))
    login(peer, "bob", "secret")

    (third,) = peer.send(OpCode.SASL, put_bytes(b""))

    assert (third.err, peer.closed) == (-115, True)


def test_failed_sasl_login_is_tolerated_if_allowed() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users={"bob": "secret"}, allow_failed_sasl=True)))

    assert login(peer, "bob", "wrong") == (0, b"\xff\xff\xff\xff")
    assert not peer.closed


def test_super_user_may_write_config_node() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users={"root": "x"}, super_users=frozenset({"root"}))))
    login(peer, "root", "x")

    peer.set("/zookeeper/config", b"changed")

    assert peer.get("/zookeeper/config")[0] == b"changed"


def test_sasl_without_users_returns_null_token(peer):
    raw = peer.feed(request(5, OpCode.SASL, r.GetSASLRequest(b"")))

    assert raw == unhex("00000014 00000005 0000000000000000 00000000 ffffffff")
    assert not peer.closed


def test_login_with_oversized_token_fails() -> None:
    engine = engine_with_settings(sasl_users={"bob": "secret"})
    peer = connect_peer(engine)
    start_sasl(peer)

    code = request_error(peer, OpCode.SASL, r.GetSASLRequest(b"username=" + b"b" * MAX_TOKEN_BYTES))

    assert (code, peer.closed, engine.metrics.auth_failed) == (AUTH_FAILED, True, 1)


def test_first_sasl_token_is_ignored_at_any_length() -> None:
    exchange = DigestMd5({}, make_engine().rng)

    assert b"nonce=" in exchange.step(b"x" * (MAX_TOKEN_BYTES + 1))


def test_longest_login_of_client_is_accepted() -> None:
    user, password = "b" * 200, base64.b64encode(bytes(200)).decode()
    peer = connect_peer(engine_with_settings(sasl_users={user: password}))

    assert complete_sasl(peer, user, password).err == 0


# --- nonces ---


def test_each_sasl_exchange_has_its_own_nonce() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS), rng=SystemRandom())

    challenges = {start_sasl(connect_peer(engine)) for _ in range(20)}

    assert len(challenges) == 20


def test_sasl_proof_is_invalid_on_different_connection() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS), rng=SystemRandom())
    overheard, _ = answer(start_sasl(connect_peer(engine)), "bob", "secret", "cnonce")
    thief = connect_peer(engine)
    start_sasl(thief)

    (reply,) = thief.send(OpCode.SASL, put_bytes(overheard))

    assert (reply.err, thief.closed) == (ErrorCode.AUTH_FAILED, True)


def test_answer_to_earlier_challenge_is_not_accepted() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True), rng=SystemRandom()))
    first = start_sasl(peer)
    wrong, _ = answer(first, "bob", "wrong", "cnonce")
    peer.send(OpCode.SASL, put_bytes(wrong))
    start_sasl(peer)
    right, _ = answer(first, "bob", "secret", "cnonce")

    peer.send(OpCode.SASL, put_bytes(right))

    assert who_am_i(peer) == [("ip", "127.0.0.1")]


def test_sasl_exchange_after_tolerated_failure_has_new_nonce() -> None:
    engine = make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True), rng=SystemRandom())
    peer = connect_peer(engine)
    first = start_sasl(peer)
    wrong, _ = answer(first, "bob", "wrong", "cnonce")
    peer.send(OpCode.SASL, put_bytes(wrong))

    second = start_sasl(peer)

    assert second.startswith(b'realm="zk-sasl-md5",nonce="')
    assert second != first


# --- tolerated failures ---


def test_sasl_login_after_tolerated_failure_succeeds() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True)))
    complete_sasl(peer, "bob", "wrong")

    complete_sasl(peer, "bob", "secret")

    assert ("sasl", "bob") in who_am_i(peer)


def test_tolerated_failed_sasl_login_gives_no_identity() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True)))

    complete_sasl(peer, "bob", "wrong")

    assert who_am_i(peer) == [("ip", "127.0.0.1")]


def test_tolerated_failed_login_does_not_satisfy_requirement() -> None:
    peer = connect_peer(
        make_engine(EngineSettings(sasl_users=USERS, allow_failed_sasl=True, require_auth=frozenset({"sasl"})))
    )
    complete_sasl(peer, "bob", "wrong")

    (reply,) = peer.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode())

    assert (reply.err, peer.closed) == (ErrorCode.SESSION_CLOSED_REQUIRE_AUTH, True)


# --- invalid tokens ---


@pytest.mark.parametrize("token", [put_bytes(b"\0"), put_bytes(b"="), put_bytes(b"\xff" * 5000)])
def test_meaningless_sasl_token_fails_login(token: bytes) -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS)))
    start_sasl(peer)

    (reply,) = peer.send(OpCode.SASL, token)

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_null_sasl_token_closes_connection_without_answer() -> None:
    peer = connect_peer(make_engine(EngineSettings(sasl_users=USERS)))
    start_sasl(peer)

    replies = peer.send(OpCode.SASL, pack_int(-1))

    assert (replies, peer.closed) == ([], True)
