"""What a server can be told to be: read-only, an ensemble of one, strict about who asks, and sparing with sessions."""

from __future__ import annotations

import hashlib

import pytest
from support.peer import Peer

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE as OPEN
from zoolet.protocol.codec import put_bytes
from zoolet.protocol.errors import (
    BadArgumentsError,
    BadVersionError,
    NewConfigNoQuorumError,
    NoAuthError,
    NotReadOnlyError,
    QuotaExceededError,
)
from zoolet.protocol.operations import OpCode
from zoolet.server.core.engine import Engine
from zoolet.server.core.settings import Settings

SUPER = "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="  # super:admin


def joined(engine: Engine, *, read_only: bool = False) -> Peer:
    peer = Peer(engine)
    peer.connect(read_only=read_only)
    return peer


# --- read-only mode ---


def test_a_read_only_server_answers_reads_and_refuses_writes() -> None:
    engine = Engine()
    joined(engine).create("/a", b"1")
    engine.set_read_only(True)
    peer = joined(engine, read_only=True)

    assert peer.welcome is not None
    assert peer.welcome.read_only is True
    assert peer.get("/a")[0] == b"1"
    with pytest.raises(NotReadOnlyError):
        peer.set("/a", b"2")
    with pytest.raises(NotReadOnlyError):
        peer.call(OpCode.SYNC, r.SyncRequest("/a"))


def test_a_read_only_server_turns_away_clients_that_want_to_write() -> None:
    engine = Engine()
    engine.set_read_only(True)

    peer = joined(engine)

    assert peer.welcome is None
    assert peer.closed


def test_switching_cuts_connections_and_keeps_sessions() -> None:
    engine = Engine()
    before = joined(engine)
    before.create("/mine", flags=1)
    assert before.welcome is not None

    engine.set_read_only(True)
    engine.set_read_only(False)
    after = Peer(engine)
    after.connect(session=before.welcome.session_id, password=before.welcome.password or b"")

    assert before.closed
    assert after.exists("/mine").ephemeralOwner == before.welcome.session_id
    after.set("/mine", b"writes again")


# --- reconfig ---


OBSERVER = "server.100=0.0.0.0:1234:2345:observer;0.0.0.0:3456"


@pytest.fixture
def ensemble() -> Peer:
    """The super user of an ensemble of one."""
    peer = joined(Engine(Settings(reconfig_enabled=True, super_digest=SUPER)))
    peer.auth("digest", b"super:admin")
    return peer


def reconfig(
    peer: Peer, joining: str | None = None, leaving: str | None = None, new: str | None = None, version: int = -1
) -> r.GetDataResponse:
    answer = peer.call(OpCode.RECONFIG, r.ReconfigRequest(joining, leaving, new, version))
    assert isinstance(answer, r.GetDataResponse)
    return answer


def test_an_observer_joins_and_leaves(ensemble: Peer) -> None:
    joined_config = reconfig(ensemble, joining=OBSERVER).data or b""
    left_config = reconfig(ensemble, leaving="100").data or b""

    assert OBSERVER.encode() in joined_config
    assert OBSERVER.encode() not in left_config
    assert left_config.endswith(b"version=%x" % ensemble.engine.zxid)


def test_the_config_node_tells_of_a_change(ensemble: Peer) -> None:
    ensemble.get("/zookeeper/config", watch=True)

    config = reconfig(ensemble, joining=OBSERVER)

    assert ensemble.receive() == [(3, "/zookeeper/config")]
    assert ensemble.get("/zookeeper/config")[0] == config.data


def test_a_change_from_another_version_is_refused(ensemble: Peer) -> None:
    with pytest.raises(BadVersionError):
        reconfig(ensemble, joining=OBSERVER, version=ensemble.engine.zxid + 1)


@pytest.mark.parametrize("joining", ["some thing", "server.1=localhost", "server.x=a:1:2;3", "server.2=a:1:2:leader;3"])
def test_a_server_that_makes_no_sense_is_refused(ensemble: Peer, joining: str) -> None:
    with pytest.raises(BadArgumentsError):
        reconfig(ensemble, joining=joining)


def test_a_second_participant_cannot_be_reached(ensemble: Peer) -> None:
    with pytest.raises(NewConfigNoQuorumError):
        reconfig(ensemble, joining="server.2=a:1:2:participant;3")


def test_the_last_participant_cannot_leave(ensemble: Peer) -> None:
    with pytest.raises(BadArgumentsError):
        reconfig(ensemble, leaving="1")


def test_only_who_may_write_the_config_node_may_reconfigure() -> None:
    peer = joined(Engine(Settings(reconfig_enabled=True)))

    with pytest.raises(NoAuthError):
        reconfig(peer, joining=OBSERVER)


# --- SASL ---


def md5(text: bytes) -> bytes:
    return hashlib.md5(text, usedforsecurity=False).digest()


def answer(challenge: bytes, user: str, password: str) -> bytes:
    """Answer a challenge as RFC 2831 says a client does."""
    nonce = challenge.split(b'nonce="')[1].split(b'"')[0].decode()
    a1 = md5(f"{user}:zk-sasl-md5:{password}".encode()) + f":{nonce}:cn".encode()
    a2 = b"AUTHENTICATE:zookeeper/zk-sasl-md5"
    response = md5(f"{md5(a1).hex()}:{nonce}:00000001:cn:auth:{md5(a2).hex()}".encode()).hex()
    return (
        f'charset=utf-8,username="{user}",realm="zk-sasl-md5",nonce="{nonce}",nc=00000001,cnonce="cn",'
        f'digest-uri="zookeeper/zk-sasl-md5",maxbuf=65536,response={response},qop=auth'
    ).encode()


def login(peer: Peer, user: str, password: str) -> tuple[int, bytes]:
    """Do both steps of a login; give the error and the body of the second reply."""
    (first,) = peer.send(OpCode.SASL, put_bytes(b""))
    (second,) = peer.send(OpCode.SASL, put_bytes(answer(first.body[4:], user, password)))
    return second.err, second.body


def test_a_user_of_the_jaas_file_logs_in() -> None:
    peer = joined(Engine(Settings(sasl_users={"bob": "secret"})))

    err, body = login(peer, "bob", "secret")

    assert err == 0
    assert body[4:].startswith(b"rspauth=")
    assert ("sasl", "bob") in [(one.scheme, one.user) for one in peer.call(OpCode.WHO_AM_I).clientInfo]


@pytest.mark.parametrize(("user", "password"), [("bob", "wrong"), ("eve", "secret")])
def test_a_wrong_password_or_user_closes_the_connection(user: str, password: str) -> None:
    peer = joined(Engine(Settings(sasl_users={"bob": "secret"})))

    assert login(peer, user, password) == (-115, b"\xff\xff\xff\xff")
    assert peer.closed


def test_a_third_step_is_a_failure() -> None:
    peer = joined(Engine(Settings(sasl_users={"bob": "secret"})))
    login(peer, "bob", "secret")

    (third,) = peer.send(OpCode.SASL, put_bytes(b""))

    assert (third.err, peer.closed) == (-115, True)


def test_a_failed_login_may_be_let_pass() -> None:
    peer = joined(Engine(Settings(sasl_users={"bob": "secret"}, allow_failed_sasl=True)))

    assert login(peer, "bob", "wrong") == (0, b"\xff\xff\xff\xff")
    assert not peer.closed


def test_a_super_user_may_do_everything() -> None:
    peer = joined(Engine(Settings(sasl_users={"root": "x"}, super_users=frozenset({"root"}))))
    login(peer, "root", "x")

    peer.set("/zookeeper/config", b"changed")

    assert peer.get("/zookeeper/config")[0] == b"changed"


def test_nothing_is_done_for_a_client_that_has_to_log_in_first() -> None:
    engine = Engine(Settings(sasl_users={"bob": "secret"}, require_auth=frozenset({"sasl"})))
    eager, patient = joined(engine), joined(engine)

    (refused,) = eager.send(OpCode.PING)
    login(patient, "bob", "secret")

    assert (refused.err, refused.zxid, refused.body, eager.closed) == (-124, 0, b"", True)
    assert patient.create("/a") == "/a"


# --- throttle ---


def test_a_session_takes_a_token_and_time_gives_it_back() -> None:
    engine = Engine(Settings(throttle_tokens=2, throttle_fill_time=100, throttle_fill_count=1))

    came = [joined(engine).welcome is not None for _ in range(3)]
    engine.set_time(0, 100)
    later = joined(engine)

    assert came == [True, True, False]
    assert later.welcome is not None


# --- containers and TTL nodes ---


def test_a_container_goes_when_its_last_child_has_gone() -> None:
    engine = Engine(Settings(container_check_interval=500))
    peer = joined(engine)
    peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN, 4))
    peer.create("/c/x")
    peer.delete("/c/x")
    before = engine.zxid
    peer.children("/", watch=True)

    engine.set_time(500, 500)
    engine.tick()

    assert peer.children("/") == ["zookeeper"]
    assert engine.zxid == before + 1
    assert peer.receive() == [(4, "/")]


def test_a_container_that_never_had_a_child_stays() -> None:
    engine = Engine(Settings(container_check_interval=500))
    peer = joined(engine)
    peer.call(OpCode.CREATE_CONTAINER, r.CreateRequest("/c", b"", OPEN, 4))

    engine.set_time(10**9, 500)
    engine.tick()

    assert peer.children("/") == ["c", "zookeeper"]


def test_only_setting_its_data_keeps_a_ttl_node_alive() -> None:
    engine = Engine(Settings(container_check_interval=100))
    peer = joined(engine)
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/kept", b"", OPEN, 5, 1000))
    peer.call(OpCode.CREATE_TTL, r.CreateTTLRequest("/read", b"", OPEN, 5, 1000))
    engine.set_time(900, 900)
    peer.set("/kept", b"")
    peer.get("/read")

    engine.set_time(1500, 1500)
    engine.tick()

    assert peer.children("/") == ["kept", "zookeeper"]


# --- quota ---


@pytest.fixture
def limited() -> Peer:
    """A client of a server that enforces a hard limit of 3 nodes and 10 bytes at /a."""
    peer = joined(Engine(Settings(enforce_quota=True)))
    for path in ("/a", "/zookeeper/quota/a"):
        peer.create(path)
    peer.create("/zookeeper/quota/a/zookeeper_limits", b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3")
    peer.create("/zookeeper/quota/a/zookeeper_stats", b"")
    return peer


def test_the_stats_count_nodes_and_bytes_in_place(limited: Peer) -> None:
    limited.create("/a/b", b"12345")
    limited.set("/a/b", b"123")

    data, stat = limited.get("/zookeeper/quota/a/zookeeper_stats")

    assert data == b"count=2,bytes=3"
    assert stat.version == 0


def test_a_hard_limit_of_nodes_refuses_the_one_too_many(limited: Peer) -> None:
    limited.create("/a/b")
    limited.create("/a/c")

    with pytest.raises(QuotaExceededError):
        limited.create("/a/d")


def test_a_hard_limit_of_bytes_refuses_more_and_allows_exactly_as_many(limited: Peer) -> None:
    limited.set("/a", b"0123456789")

    with pytest.raises(QuotaExceededError):
        limited.set("/a", b"0123456789x")


def test_creates_of_one_transaction_may_exceed_a_limit_together(limited: Peer) -> None:
    creates = [(OpCode.CREATE, r.CreateRequest(f"/a/{name}", b"", OPEN, 0)) for name in "bcde"]

    results = limited.multi(*creates)

    assert [kind for kind, _ in results] == [OpCode.CREATE] * 4
    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=5,bytes=0"


def test_a_failed_transaction_leaves_the_stats_alone(limited: Peer) -> None:
    limited.multi(
        (OpCode.CREATE, r.CreateRequest("/a/b", b"x", OPEN, 0)), (OpCode.DELETE, r.DeleteRequest("/none", -1))
    )

    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=1,bytes=0"


def test_without_limits_nothing_is_counted(limited: Peer) -> None:
    limited.delete("/zookeeper/quota/a/zookeeper_limits")

    limited.create("/a/b")

    assert limited.get("/zookeeper/quota/a/zookeeper_stats")[0] == b"count=1,bytes=0"
