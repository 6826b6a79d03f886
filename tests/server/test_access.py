"""Who gets in and what for: session passwords, logins, what is counted and logged of them, and the ways around an ACL.

Source: the security section of the session and ACL specification; ZooKeeperServer.checkACL, checkPasswd, processSasl;
AuthenticationHelper.
"""

from __future__ import annotations

import base64
import hashlib
from random import Random, SystemRandom

import pytest
from support.peer import Peer, Reply

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.codec import pack_int, put_bytes, put_str
from zoolet.protocol.enums import AddWatchMode, Perm
from zoolet.protocol.errors import ErrorCode, InvalidACLError, NoAuthError, ZooKeeperError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import answer
from zoolet.server.admin.four_letter import four_letter_commands
from zoolet.server.app import assemble
from zoolet.server.config import Config, build, parse_properties
from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.sessions import password_of
from zoolet.server.core.settings import Settings

OWNER = b"owner:secret"
PRIVATE: AclList = (ACL(Perm.ALL, Id("digest", digest_id(OWNER))),)
USERS = {"bob": "secret", "eve": "easy"}
NO_AUTH = int(ErrorCode.NO_AUTH)
OTHERS_AFTER = int(ErrorCode.RUNTIME_INCONSISTENCY)


# --- what the tests say it with ---


def joined(engine: Engine, host: str = "127.0.0.1") -> Peer:
    """Return a peer with a session of its own."""
    peer = Peer(engine, host, four_letter_commands(["*"]))
    peer.connect()
    return peer


def resumed(engine: Engine, session: int, password: bytes | None) -> int:
    """Try to take a session over; return the id of the session that the server answers with, 0 for a refusal."""
    peer = Peer(engine)
    welcome = peer.connect(session=session, password=password)  # type: ignore[arg-type] # null is what is tested
    assert welcome is not None
    return welcome.session_id


def offered(engine: Engine) -> tuple[int, bytes]:
    """Open a session; return its id and password."""
    welcome = joined(engine).welcome
    assert welcome is not None
    assert welcome.password is not None
    return welcome.session_id, welcome.password


def begin_sasl(peer: Peer) -> bytes:
    """Begin a SASL exchange; return the challenge."""
    (reply,) = peer.send(OpCode.SASL, put_bytes(b""))
    return reply.body[4:]


def sasl(peer: Peer, user: str, password: str) -> Reply:
    """Do a whole SASL exchange; return the last reply."""
    token, _ = answer(begin_sasl(peer), user, password, "cnonce")
    (reply,) = peer.send(OpCode.SASL, put_bytes(token))
    return reply


def identities(peer: Peer) -> list[tuple[str | None, str | None]]:
    """Return who the server takes a peer for."""
    return [(one.scheme, one.user) for one in peer.call(OpCode.WHO_AM_I).clientInfo]


def settings_of(text: str) -> Settings:
    """Return what a zoo.cfg tells the core."""
    return build(parse_properties(text, "zoo.cfg")).settings


def figure(engine: Engine, name: str) -> str:
    """Return one figure of ``mntr``."""
    lines = Peer(engine, four_letter_commands=four_letter_commands(["mntr"])).feed(b"mntr").decode().splitlines()
    return dict(line.split("\t") for line in lines)[name]


class Log(list[str]):
    """The operator's log."""

    def __call__(self, message: str, *arguments: object) -> None:
        self.append(message % arguments)


@pytest.fixture
def engine() -> Engine:
    return Engine(rng=Random(1))


@pytest.fixture
def private(engine: Engine) -> Peer:
    """A peer that is nobody, where ``/private`` (with ``/private/child``) belongs to somebody else."""
    owner = joined(engine)
    owner.auth("digest", OWNER)
    owner.create("/private", b"secret", acl=PRIVATE)
    owner.create("/private/child", b"secret too", acl=PRIVATE)
    return joined(engine, "127.0.0.2")


# --- session passwords ---


def test_two_servers_give_different_passwords_for_the_same_session() -> None:
    one, another = Engine(rng=SystemRandom()), Engine(rng=SystemRandom())

    (id_of_one, password_of_one), (id_of_another, password_of_another) = offered(one), offered(another)

    assert id_of_one == id_of_another
    assert password_of_one != password_of_another


def test_the_same_seed_gives_the_same_passwords() -> None:
    assert offered(Engine(rng=Random(7))) == offered(Engine(rng=Random(7)))


def test_two_sessions_have_different_passwords(engine: Engine) -> None:
    assert offered(engine)[1] != offered(engine)[1]


def test_a_password_is_sixteen_bytes(engine: Engine) -> None:
    assert len(offered(engine)[1]) == 16


def test_the_password_that_was_given_resumes_the_session(engine: Engine) -> None:
    session, password = offered(engine)

    assert resumed(engine, session, password) == session


def test_a_resumed_session_keeps_its_password(engine: Engine) -> None:
    session, password = offered(engine)
    peer = Peer(engine)

    welcome = peer.connect(session=session, password=password)

    assert welcome is not None
    assert welcome.password == password


@pytest.mark.parametrize("password", [None, b"", bytes(16), bytes(15), bytes(17), b"\xff" * 16])
def test_a_wrong_password_does_not_resume(engine: Engine, password: bytes | None) -> None:
    session, _ = offered(engine)

    assert resumed(engine, session, password) == 0


@pytest.mark.parametrize("cut", [slice(0, 15), slice(1, 16), slice(0, 1), slice(0, 0)])
def test_a_part_of_the_password_does_not_resume(engine: Engine, cut: slice) -> None:
    session, password = offered(engine)

    assert resumed(engine, session, password[cut]) == 0


def test_the_password_and_one_byte_more_does_not_resume(engine: Engine) -> None:
    session, password = offered(engine)

    assert resumed(engine, session, password + b"\0") == 0


def test_the_password_of_another_session_does_not_resume(engine: Engine) -> None:
    (session, _), (_, password) = offered(engine), offered(engine)

    assert resumed(engine, session, password) == 0


def test_the_password_of_another_server_does_not_resume() -> None:
    ours, theirs = Engine(rng=SystemRandom()), Engine(rng=SystemRandom())
    (session, _), (_, password) = offered(ours), offered(theirs)

    assert resumed(ours, session, password) == 0


def test_zookeepers_formula_opens_no_session(engine: Engine) -> None:
    session, _ = offered(engine)

    assert resumed(engine, session, password_of(session)) == 0


def test_only_3_8_keeps_zookeepers_formula() -> None:
    session, password = offered(Engine(Settings(compat=V3_8), rng=SystemRandom()))

    assert password == password_of(session)


def test_a_refused_take_over_shows_no_password(engine: Engine) -> None:
    session, _ = offered(engine)
    peer = Peer(engine)

    welcome = peer.connect(session=session)

    assert welcome is not None
    assert (welcome.timeout_ms, welcome.password) == (0, bytes(16))
    assert peer.closed


def test_what_follows_a_refused_take_over_in_one_segment_is_not_done(private: Peer) -> None:
    engine = private.engine
    session, _ = offered(engine)
    intruder = Peer(engine)
    create = r.RequestHeader(1, OpCode.CREATE).encode() + r.CreateRequest("/in", b"", OPEN_ACL_UNSAFE, 0).encode()

    intruder.feed(frame(ConnectRequest(0, 10_000, session, bytes(16)).encode()) + frame(create))

    assert engine.tree.get("/in") is None


def test_a_session_that_moves_leaves_its_identities_behind(private: Peer) -> None:
    engine = private.engine
    first = joined(engine)
    first.auth("digest", OWNER)
    assert first.welcome is not None
    second = Peer(engine)
    second.connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    with pytest.raises(NoAuthError):
        second.get("/private")

    assert identities(second) == [("ip", "127.0.0.1")]


def test_after_a_move_the_old_connection_does_nothing_more(engine: Engine) -> None:
    first = joined(engine)
    assert first.welcome is not None
    Peer(engine).connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    replies = first.send(OpCode.CREATE, r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 0).encode())

    assert replies == []
    assert engine.tree.get("/late") is None


# --- nonces ---


def test_each_exchange_has_a_nonce_of_its_own() -> None:
    engine = Engine(Settings(sasl_users=USERS), rng=SystemRandom())

    challenges = {begin_sasl(joined(engine)) for _ in range(20)}

    assert len(challenges) == 20


def test_a_proof_does_not_serve_on_another_connection() -> None:
    engine = Engine(Settings(sasl_users=USERS), rng=SystemRandom())
    overheard, _ = answer(begin_sasl(joined(engine)), "bob", "secret", "cnonce")
    thief = joined(engine)
    begin_sasl(thief)

    (reply,) = thief.send(OpCode.SASL, put_bytes(overheard))

    assert (reply.err, thief.closed) == (ErrorCode.AUTH_FAILED, True)


def test_after_a_failure_that_is_let_pass_another_exchange_begins_with_another_nonce() -> None:
    engine = Engine(Settings(sasl_users=USERS, allow_failed_sasl=True), rng=SystemRandom())
    peer = joined(engine)
    first = begin_sasl(peer)
    wrong, _ = answer(first, "bob", "wrong", "cnonce")
    peer.send(OpCode.SASL, put_bytes(wrong))

    second = begin_sasl(peer)

    assert second.startswith(b'realm="zk-sasl-md5",nonce="')
    assert second != first


def test_after_a_failure_that_is_let_pass_the_right_password_is_taken() -> None:
    peer = joined(Engine(Settings(sasl_users=USERS, allow_failed_sasl=True)))
    sasl(peer, "bob", "wrong")

    sasl(peer, "bob", "secret")

    assert ("sasl", "bob") in identities(peer)


def test_a_failure_that_is_let_pass_gives_no_identity() -> None:
    peer = joined(Engine(Settings(sasl_users=USERS, allow_failed_sasl=True)))

    sasl(peer, "bob", "wrong")

    assert identities(peer) == [("ip", "127.0.0.1")]


def test_a_failure_that_is_let_pass_does_not_open_what_asks_for_a_login() -> None:
    peer = joined(Engine(Settings(sasl_users=USERS, allow_failed_sasl=True, require_auth=frozenset({"sasl"}))))
    sasl(peer, "bob", "wrong")

    (reply,) = peer.send(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode())

    assert (reply.err, peer.closed) == (ErrorCode.SESSION_CLOSED_REQUIRE_AUTH, True)


def test_the_old_challenge_is_not_taken_again_after_a_failure() -> None:
    peer = joined(Engine(Settings(sasl_users=USERS, allow_failed_sasl=True), rng=SystemRandom()))
    first = begin_sasl(peer)
    wrong, _ = answer(first, "bob", "wrong", "cnonce")
    peer.send(OpCode.SASL, put_bytes(wrong))
    begin_sasl(peer)
    right, _ = answer(first, "bob", "secret", "cnonce")

    peer.send(OpCode.SASL, put_bytes(right))

    assert identities(peer) == [("ip", "127.0.0.1")]


@pytest.mark.parametrize("token", [put_bytes(b"\0"), put_bytes(b"="), put_bytes(b"\xff" * 5000)])
def test_a_token_that_means_nothing_is_a_failed_login(token: bytes) -> None:
    peer = joined(Engine(Settings(sasl_users=USERS)))
    begin_sasl(peer)

    (reply,) = peer.send(OpCode.SASL, token)

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_a_null_token_ends_the_connection_without_an_answer() -> None:
    peer = joined(Engine(Settings(sasl_users=USERS)))
    begin_sasl(peer)

    replies = peer.send(OpCode.SASL, pack_int(-1))

    assert (replies, peer.closed) == ([], True)


async def test_the_daemons_chance_is_the_systems() -> None:
    listener = assemble(Config())

    assert type(listener.engine.rng) is SystemRandom


# --- what has to be proved before anything is done ---


def requests(*parts: tuple[int, int, bytes]) -> bytes:
    """Encode requests, of xid, operation and body, as one segment."""
    return b"".join(frame(r.RequestHeader(xid, op).encode() + body) for xid, op, body in parts)


LOGIN = (-4, int(OpCode.AUTH), r.AuthPacket(0, "digest", b"a:b").encode())
BAD_LOGIN = (-4, int(OpCode.AUTH), r.AuthPacket(0, "nonsense", b"a:b").encode())
CREATE = (1, int(OpCode.CREATE), r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0).encode())


def test_a_request_behind_the_login_in_one_segment_is_done() -> None:
    engine = Engine(Settings(require_auth=frozenset({"digest"})))

    joined(engine).feed(requests(LOGIN, CREATE))

    assert engine.tree.get("/a") is not None


def test_a_request_before_the_login_in_one_segment_is_not_done() -> None:
    engine = Engine(Settings(require_auth=frozenset({"digest"})))

    joined(engine).feed(requests(CREATE, LOGIN, CREATE))

    assert engine.tree.get("/a") is None


def test_a_request_behind_a_failed_login_in_one_segment_is_not_done() -> None:
    engine = Engine()

    joined(engine).feed(requests(BAD_LOGIN, CREATE))

    assert engine.tree.get("/a") is None


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_a_request_before_the_login_is_not_done_however_it_is_cut(cut: int) -> None:
    engine = Engine(Settings(require_auth=frozenset({"digest"})))
    peer, segment = joined(engine), requests(CREATE, LOGIN, CREATE)

    peer.feed(segment[:cut])
    peer.feed(segment[cut:])

    assert engine.tree.get("/a") is None


@pytest.mark.parametrize("op", [op for op in OpCode if op not in (OpCode.AUTH, OpCode.SASL)])
def test_without_a_login_every_operation_ends_the_connection(op: OpCode) -> None:
    engine = Engine(Settings(require_auth=frozenset({"sasl"})))
    peer = joined(engine)

    (reply,) = peer.send(op, bytes(40))

    assert (reply.err, reply.body, peer.closed) == (ErrorCode.SESSION_CLOSED_REQUIRE_AUTH, b"", True)


def test_a_login_of_another_scheme_does_not_do() -> None:
    engine = Engine(Settings(sasl_users=USERS, require_auth=frozenset({"sasl"})))
    peer = joined(engine)
    peer.auth("digest", b"a:b")

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_the_first_half_of_a_sasl_login_does_not_do() -> None:
    engine = Engine(Settings(sasl_users=USERS, require_auth=frozenset({"sasl"})))
    peer = joined(engine)
    begin_sasl(peer)

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_a_session_that_moves_has_to_log_in_again() -> None:
    engine = Engine(Settings(require_auth=frozenset({"digest"})))
    first = joined(engine)
    first.auth("digest", b"a:b")
    assert first.welcome is not None
    second = Peer(engine)
    second.connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    (reply,) = second.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_sasl_without_users_does_not_open_what_asks_for_sasl() -> None:
    engine = Engine(settings_of("sessionRequireClientSASLAuth=true\n"))
    peer = joined(engine)
    peer.send(OpCode.SASL, put_bytes(b""))

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


def test_a_demand_for_sasl_is_not_weakened_by_other_enforced_schemes() -> None:
    # AuthenticationHelper: with sessionRequireClientSASLAuth the scheme is sasl, whatever enforce.auth.schemes says.
    text = "sessionRequireClientSASLAuth=true\nenforce.auth.enabled=true\nenforce.auth.schemes=digest\n"
    peer = joined(Engine(settings_of(text)))
    peer.auth("digest", b"any:thing")

    (reply,) = peer.send(OpCode.GET_DATA, r.GetDataRequest("/", False).encode())

    assert reply.err == ErrorCode.SESSION_CLOSED_REQUIRE_AUTH


# --- scheme digest, and its super user ---


def test_without_the_digest_provider_there_is_no_login() -> None:
    peer = joined(Engine(settings_of("DigestAuthenticationProvider.enabled=false\n")))

    reply = peer.auth("digest", b"a:b")

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_without_the_digest_provider_there_is_no_super_user() -> None:
    text = f"DigestAuthenticationProvider.superDigest={digest_id(b'super:pw')}\n"
    engine = Engine(settings_of(text + "DigestAuthenticationProvider.enabled=false\n"))

    reply = joined(engine).auth("digest", b"super:pw")

    assert reply.err == ErrorCode.AUTH_FAILED
    assert engine.metrics.super_logins == 0


def test_without_the_digest_provider_there_are_no_digest_acls() -> None:
    peer = joined(Engine(settings_of("DigestAuthenticationProvider.enabled=false\n")))

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=PRIVATE)


SUPER = digest_id(b"super:pw")


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
def test_only_the_right_credentials_make_a_super_user(credentials: bytes) -> None:
    engine = Engine(Settings(super_digest=SUPER))
    peer = joined(engine)

    peer.auth("digest", credentials)

    assert not peer.client.is_super
    assert engine.metrics.super_logins == 0


def test_the_right_credentials_make_a_super_user() -> None:
    engine = Engine(Settings(super_digest=SUPER))
    peer = joined(engine)

    peer.auth("digest", b"super:pw")

    assert peer.set("/zookeeper/config", b"x").version == 1


@pytest.mark.parametrize("digest", ["", ":", "super", "super:"])
def test_half_a_super_digest_makes_nobody_a_super_user(digest: str) -> None:
    peer = joined(Engine(settings_of(f"DigestAuthenticationProvider.superDigest={digest}\n")))

    peer.auth("digest", digest.encode())

    assert not peer.client.is_super


def test_a_super_digest_that_is_not_ascii_is_compared() -> None:
    engine = Engine(Settings(super_digest=digest_id("süper:pw".encode())))
    peer = joined(engine)

    peer.auth("digest", "süper:pw".encode())

    assert peer.client.is_super


def test_credentials_that_are_not_utf_8_are_somebody_else() -> None:
    engine = Engine(Settings(super_digest=digest_id(b"super:\xff")))
    peer = joined(engine)

    peer.auth("digest", b"super:\xfe")

    assert not peer.client.is_super


@pytest.mark.parametrize("scheme", ["super", "world", "auth", "sasl", "x509", "DIGEST", "digest\0", "", None])
def test_no_other_scheme_logs_in(scheme: str | None) -> None:
    peer = joined(Engine(Settings(sasl_users=USERS, super_digest=SUPER)))

    reply = peer.auth(scheme, b"super:pw")

    assert (reply.err, peer.closed) == (ErrorCode.AUTH_FAILED, True)


def test_scheme_ip_proves_the_address_of_the_connection_whatever_is_sent() -> None:
    peer = joined(Engine(), "127.0.0.2")

    peer.auth("ip", b"10.0.0.1")

    assert identities(peer) == [("ip", "127.0.0.2")]


# --- what is counted and logged ---


def test_a_failed_login_is_counted() -> None:
    engine = Engine()

    joined(engine).auth("nonsense", b"x")
    joined(engine).auth("nonsense", b"x")

    assert figure(engine, "zk_auth_failed_count") == "2"


def test_a_failed_sasl_login_is_counted() -> None:
    engine = Engine(Settings(sasl_users=USERS))

    sasl(joined(engine), "bob", "wrong")

    assert figure(engine, "zk_auth_failed_count") == "1"


def test_a_failed_sasl_login_that_is_let_pass_is_counted() -> None:
    engine = Engine(Settings(sasl_users=USERS, allow_failed_sasl=True))

    sasl(joined(engine), "bob", "wrong")

    assert figure(engine, "zk_auth_failed_count") == "1"


def test_a_login_that_succeeds_is_not_counted_as_failed() -> None:
    engine = Engine(Settings(sasl_users=USERS))
    peer = joined(engine)

    peer.auth("digest", b"a:b")
    sasl(peer, "bob", "secret")

    assert figure(engine, "zk_auth_failed_count") == "0"


def test_super_logins_are_counted() -> None:
    engine = Engine(Settings(sasl_users=USERS, super_users=frozenset({"bob"}), super_digest=SUPER))

    joined(engine).auth("digest", b"super:pw")
    sasl(joined(engine), "bob", "secret")

    assert figure(engine, "zk_zoolet_super_logins") == "2"


def test_a_super_login_is_logged_with_host_and_scheme() -> None:
    log = Log()
    engine = Engine(Settings(super_digest=SUPER), log=log)

    joined(engine, "127.0.0.9").auth("digest", b"super:pw")

    assert log == ["127.0.0.9:40000 has logged in as the super user, by digest"]


def test_the_password_of_a_super_user_is_not_logged() -> None:
    log = Log()
    engine = Engine(Settings(super_digest=SUPER), log=log)

    joined(engine).auth("digest", b"super:pw")

    assert not [line for line in log if "pw" in line or SUPER.split(":")[1] in line]


def test_failed_logins_of_one_host_are_one_line_in_ten_seconds() -> None:
    log = Log()
    engine = Engine(log=log)
    engine.set_time(0, 1)
    joined(engine).auth("nonsense", b"x")
    engine.set_time(0, 10_000)
    joined(engine).auth("nonsense", b"x")
    joined(engine).auth("nonsense", b"x")

    engine.set_time(0, 10_001)
    joined(engine).auth("nonsense", b"x")

    assert len(log) == 2
    assert log[1].endswith("(2 more like this were not logged)")


def test_failed_logins_of_two_hosts_are_a_line_each() -> None:
    log = Log()
    engine = Engine(log=log)

    joined(engine, "127.0.0.1").auth("nonsense", b"x")
    joined(engine, "127.0.0.2").auth("nonsense", b"x")

    assert [line.split(":")[0] for line in log] == ["failed login of 127.0.0.1", "failed login of 127.0.0.2"]


def test_kinds_of_failed_logins_are_a_line_each() -> None:
    log = Log()
    engine = Engine(Settings(sasl_users=USERS), log=log)

    joined(engine).auth("nonsense", b"x")
    sasl(joined(engine), "bob", "wrong")

    assert len(log) == 2


def test_failed_logins_of_a_thousand_hosts_are_a_line_each_all_the_same() -> None:
    log = Log()
    engine = Engine(log=log)
    hosts = [f"2001:db8::{number:x}" for number in range(1_100)] * 2

    replies = [joined(engine, host).auth("nonsense", b"x") for host in hosts]

    assert len(replies) == 2_200
    assert len(log) <= 1_100


HOSTILE = ["eve\n2026-01-01 INFO all is well", "eve\r\x1b[2Jx", "\u202egnp", "\x00", "\u2028x", "\x85x"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_user_name_does_not_write_lines_into_the_log(name: str) -> None:
    log = Log()
    engine = Engine(Settings(sasl_users=USERS), log=log)

    sasl(joined(engine), name, "x")

    assert len(log) == 1
    assert log[0].isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_scheme_does_not_write_lines_into_the_log(name: str) -> None:
    log = Log()

    joined(Engine(log=log)).auth(name, b"x")

    assert len(log) == 1
    assert log[0].isprintable()


def test_a_long_scheme_is_cut_in_the_log() -> None:
    log = Log()

    joined(Engine(log=log)).auth("s" * 10_000, b"x")

    assert "s" * 60 in log[0]
    assert "s" * 65 not in log[0]


def test_a_long_user_name_is_cut_in_the_log() -> None:
    log = Log()

    sasl(joined(Engine(Settings(sasl_users=USERS), log=log)), "u" * 3_000, "x")

    assert "u" * 64 in log[0]
    assert "u" * 65 not in log[0]


@pytest.mark.parametrize("token", [b"n" * 2_000 + b"=1," + b"n" * 2_000 + b"=1"])
def test_a_long_directive_is_cut_in_the_log(token: bytes) -> None:
    log = Log()
    peer = joined(Engine(Settings(sasl_users=USERS), log=log))
    begin_sasl(peer)

    peer.send(OpCode.SASL, put_bytes(token))

    assert len(log) == 1
    assert len(log[0]) < 300


def test_the_path_of_a_watch_does_not_write_lines_into_the_log() -> None:
    log = Log()
    peer = joined(Engine(Settings(max_watches_per_connection=1), log=log))
    paths: list[str | None] = ["/a\n2026-01-01 00:00:00 INFO zoolet.server: all is well", "/b"]

    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], paths, []).encode(), xid=-8)

    assert len(log) == 1
    assert log[0].isprintable()


def test_the_path_of_a_watch_is_cut_in_the_log() -> None:
    log = Log()
    peer = joined(Engine(Settings(max_watches_per_connection=1), log=log))

    peer.send(OpCode.SET_WATCHES2, r.SetWatches2(0, [], [], [], ["/" + "a" * 100_000], []).encode(), xid=-8)

    assert len(log) == 1
    assert len(log[0]) < 300


def quota_line(name: str) -> str:
    """Exceed the soft limit of a node; return what is logged of it."""
    log = Log()
    peer = joined(Engine(Settings(enforce_quota=True), log=log))
    peer.create(f"/{name}")
    peer.create(f"/zookeeper/quota/{name}")
    peer.create(f"/zookeeper/quota/{name}/zookeeper_stats")
    peer.create(f"/zookeeper/quota/{name}/zookeeper_limits", b"count=100,bytes=1")
    peer.set(f"/{name}", b"12")
    (line,) = log
    return line


def test_a_path_does_not_write_lines_into_the_log() -> None:
    assert quota_line("a\u2028b\u202ec").isprintable()


def test_a_long_path_is_cut_in_the_log() -> None:
    assert len(quota_line("a" * 100_000)) < 500


# --- ways around an ACL ---


@pytest.mark.parametrize(
    ("op", "request_"),
    [
        (OpCode.GET_DATA, r.GetDataRequest("/private", True)),
        (OpCode.EXISTS, r.ExistsRequest("/private", True)),
        (OpCode.GET_CHILDREN, r.GetChildrenRequest("/private", True)),
        (OpCode.GET_CHILDREN2, r.GetChildrenRequest("/private", True)),
        (OpCode.GET_ACL, r.GetACLRequest("/private")),
        (OpCode.GET_ALL_CHILDREN_NUMBER, r.GetAllChildrenNumberRequest("/private")),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", -1)),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", 99)),
        (OpCode.SET_ACL, r.SetACLRequest("/private", OPEN_ACL_UNSAFE, -1)),
        (OpCode.SET_ACL, r.SetACLRequest("/private", OPEN_ACL_UNSAFE, 99)),
        (OpCode.DELETE, r.DeleteRequest("/private/child", -1)),
        (OpCode.DELETE, r.DeleteRequest("/private/nothing", -1)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE2, r.CreateRequest("/private/child", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 3)),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 4)),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/private/x", b"", OPEN_ACL_UNSAFE, 5, 1000)),
    ],
    ids=lambda value: getattr(value, "name", None) or None,
)
def test_an_operation_on_a_private_node_is_refused_and_tells_nothing(
    private: Peer, op: OpCode, request_: r.Stat
) -> None:
    (reply,) = private.send(op, request_.encode())

    assert (reply.err, reply.body) == (NO_AUTH, b"")


@pytest.mark.parametrize(
    "operation",
    [
        (OpCode.CHECK, r.CheckVersionRequest("/private", 0)),
        (OpCode.CHECK, r.CheckVersionRequest("/private", 99)),
        (OpCode.SET_DATA, r.SetDataRequest("/private", b"x", -1)),
        (OpCode.DELETE, r.DeleteRequest("/private/child", -1)),
        (OpCode.CREATE, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.CREATE2, r.CreateRequest("/private/x", b"", OPEN_ACL_UNSAFE, 1)),
    ],
    ids=lambda value: value[0].name,
)
def test_an_operation_of_a_multi_is_refused_and_undoes_what_came_before(
    private: Peer, operation: tuple[OpCode, r.Stat]
) -> None:
    results = private.multi((OpCode.CREATE, r.CreateRequest("/mine", b"", OPEN_ACL_UNSAFE, 0)), operation)

    assert [result.err for _, result in results] == [0, NO_AUTH]
    assert private.engine.tree.get("/mine") is None


def test_a_set_acl_has_no_place_in_a_multi(private: Peer) -> None:
    header = r.MultiHeader(OpCode.SET_ACL, False, -1).encode()
    body = header + r.SetACLRequest("/private", OPEN_ACL_UNSAFE, -1).encode() + wire.END

    (reply,) = private.send(OpCode.MULTI, body)

    assert reply.err != 0
    assert private.engine.tree.find("/private").acl != 0


def test_a_failed_multi_leaves_the_acl_of_what_it_deleted(private: Peer) -> None:
    engine = private.engine
    owner = joined(engine)
    owner.auth("digest", OWNER)

    owner.multi((OpCode.DELETE, r.DeleteRequest("/private/child", -1)), (OpCode.CHECK, r.CheckVersionRequest("/no", 0)))

    with pytest.raises(NoAuthError):
        private.get("/private/child")


def test_a_node_made_anew_in_a_multi_has_its_new_acl_only(private: Peer) -> None:
    owner = joined(private.engine)
    owner.auth("digest", OWNER)
    owner.create("/open")

    owner.multi(
        (OpCode.DELETE, r.DeleteRequest("/open", -1)),
        (OpCode.CREATE, r.CreateRequest("/open", b"now private", PRIVATE, 0)),
    )

    with pytest.raises(NoAuthError):
        private.get("/open")


def read_all(peer: Peer, *operations: tuple[OpCode, str]) -> Reply:
    """Send a multiRead."""
    body = b"".join(r.MultiHeader(op, False, -1).encode() + put_str(path) + (b"\0") for op, path in operations)
    (reply,) = peer.send(OpCode.MULTI_READ, body + wire.END)
    return reply


@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.GET_CHILDREN])
def test_a_multi_read_tells_nothing_of_a_private_node(private: Peer, op: OpCode) -> None:
    reply = read_all(private, (op, "/private"))

    assert reply.err == 0
    assert b"secret" not in reply.body
    assert b"child" not in reply.body


@pytest.mark.parametrize(
    "alias",
    [
        "/private/",
        "//private",
        "/./private",
        "/x/../private",
        "private",
        "/private\0",
        "/PRIVATE",
        "/private/.",
        "\0/private",
    ],
)
@pytest.mark.parametrize("op", [OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_CHILDREN, OpCode.GET_ACL])
def test_no_other_spelling_of_a_path_opens_a_private_node(private: Peer, op: OpCode, alias: str) -> None:
    (reply,) = private.send(op, r.GetDataRequest(alias, False).encode())

    assert reply.err != 0
    assert reply.body == b""


@pytest.mark.parametrize("name", ["cafe\u0301", "caf\u00e9"])
def test_unicode_forms_are_different_nodes(engine: Engine, name: str) -> None:
    peer = joined(engine)
    peer.create("/cafe\u0301", b"1")
    peer.create("/caf\u00e9", b"2")

    assert peer.children("/") == ["cafe\u0301", "caf\u00e9", "zookeeper"]
    assert peer.get(f"/{name}")[0] == {"cafe\u0301": b"1", "caf\u00e9": b"2"}[name]


@pytest.mark.parametrize("path", ["/zookeeper", "/zookeeper/config", "/zookeeper/quota", "/"])
def test_the_nodes_of_the_server_cannot_be_deleted(engine: Engine, path: str) -> None:
    peer = joined(engine)

    with pytest.raises(ZooKeeperError):
        peer.delete(path)

    assert engine.tree.get(path) is not None


@pytest.mark.parametrize(
    "path", ["//zookeeper/config", "zookeeper/config", "/zookeeper//config", "/zookeeper/config/", "/zookeeper/quota/"]
)
def test_no_other_spelling_deletes_the_nodes_of_the_server(engine: Engine, path: str) -> None:
    peer = joined(engine)

    with pytest.raises(ZooKeeperError):
        peer.delete(path)

    assert engine.tree.size == 4


def test_the_configuration_is_read_only_for_everybody_but_the_super_user(engine: Engine) -> None:
    peer = joined(engine)

    with pytest.raises(NoAuthError):
        peer.set("/zookeeper/config", b"x")

    with pytest.raises(NoAuthError):
        peer.call(OpCode.SET_ACL, r.SetACLRequest("/zookeeper/config", OPEN_ACL_UNSAFE, -1))


READ_ONLY_FOR_ALL: AclList = (*PRIVATE, ACL(Perm.READ, ANYONE))


def test_an_acl_that_is_read_without_admin_shows_no_digest(engine: Engine) -> None:
    owner = joined(engine)
    owner.auth("digest", OWNER)
    owner.create("/a", acl=READ_ONLY_FOR_ALL)

    response = joined(engine).call(OpCode.GET_ACL, r.GetACLRequest("/a"))

    assert [entry.id.id for entry in response.acl] == ["owner:x", "anyone"]


@pytest.mark.parametrize("perm", [Perm.READ, Perm.WRITE, Perm.CREATE, Perm.DELETE])
def test_the_digest_of_another_is_shown_to_no_permission_but_admin(engine: Engine, perm: Perm) -> None:
    owner = joined(engine)
    owner.create("/a", acl=(*PRIVATE, ACL(perm, ANYONE)))

    (reply,) = joined(engine).send(OpCode.GET_ACL, r.GetACLRequest("/a").encode())

    assert digest_id(OWNER).split(":")[1].encode() not in reply.body


def test_the_masked_digest_does_not_log_in_as_its_owner(engine: Engine) -> None:
    joined(engine).create("/a", acl=PRIVATE)
    thief = joined(engine)
    thief.auth("digest", b"owner:x")
    thief.auth("digest", digest_id(OWNER).encode())

    with pytest.raises(NoAuthError):
        thief.get("/a")


def test_an_identity_with_a_colon_in_its_password_is_not_another_user(engine: Engine) -> None:
    joined(engine).create("/a", acl=PRIVATE)
    hashed = base64.b64encode(hashlib.sha1(OWNER).digest()).decode()
    thief = joined(engine)
    thief.auth("digest", f"owner:{hashed}".encode())

    with pytest.raises(NoAuthError):
        thief.get("/a")


@pytest.mark.parametrize(
    "identity",
    [
        Id("super", ""),
        Id("super", "anyone"),
        Id("world", "everyone"),
        Id("world", "Anyone"),
        Id("World", "anyone"),
        Id("x509", "CN=me"),
        Id("sasl", "bob"),
        Id("ensemble", ""),
        Id("", ""),
        Id("ip", "0.0.0.0/33"),
        Id("ip", ""),
    ],
    ids=str,
)
def test_an_acl_that_nobody_could_prove_is_refused(engine: Engine, identity: Id) -> None:
    peer = joined(engine)

    with pytest.raises(InvalidACLError):
        peer.create("/a", acl=(ACL(Perm.ALL, identity),))


def test_an_address_of_another_host_is_not_let_in_by_a_prefix(engine: Engine) -> None:
    joined(engine).create("/a", acl=(ACL(Perm.ALL, Id("ip", "127.0.0.2")),))

    with pytest.raises(NoAuthError):
        joined(engine, "127.0.0.20").get("/a")


def test_the_sasl_user_super_of_an_acl_is_not_everybody() -> None:
    engine = Engine(Settings(sasl_users=USERS))
    bob = joined(engine)
    sasl(bob, "bob", "secret")
    bob.create("/a", acl=(ACL(Perm.ALL, Id("sasl", "bob")),))
    eve = joined(engine)
    sasl(eve, "eve", "easy")

    with pytest.raises(NoAuthError):
        eve.get("/a")


def test_a_digest_user_called_like_a_sasl_user_is_not_that_user() -> None:
    engine = Engine(Settings(sasl_users=USERS))
    joined(engine).create("/a", acl=(ACL(Perm.ALL, Id("sasl", "bob")),))
    thief = joined(engine)
    thief.auth("digest", b"bob:secret")

    with pytest.raises(NoAuthError):
        thief.get("/a")


def test_an_acl_list_of_long_identities_is_no_way_to_a_huge_answer(engine: Engine) -> None:
    # each entry of scheme "auth" stands for all identities, so the list is much longer than what was sent
    owner = joined(engine)
    owner.auth("digest", b"1" + b"A" * 4_000)
    owner.auth("digest", b"2" + b"A" * 4_000)
    entries = [ACL(Perm.ALL | number << 5, Id("auth", "")) for number in range(200)]
    owner.send(OpCode.CREATE, r.CreateRequest("/a", b"", (*entries, ACL(Perm.READ, ANYONE)), 0).encode())

    (reply,) = joined(engine).send(OpCode.GET_ACL, r.GetACLRequest("/a").encode())

    assert len(reply.body) < engine.settings.max_multi_read


# --- watches tell nothing of what may not be read ---


def owner_of(peer: Peer) -> Peer:
    """Return the peer to whom the private nodes belong."""
    owner = joined(peer.engine)
    owner.auth("digest", OWNER)
    return owner


@pytest.mark.parametrize("mode", [AddWatchMode.PERSISTENT, AddWatchMode.PERSISTENT_RECURSIVE])
def test_a_watch_that_stays_tells_nothing_of_private_nodes(private: Peer, mode: AddWatchMode) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/private", mode))
    owner = owner_of(private)

    owner.set("/private", b"1")
    owner.create("/private/x", acl=PRIVATE)
    owner.delete("/private/x")
    owner.multi((OpCode.SET_DATA, r.SetDataRequest("/private/child", b"2", -1)))

    assert private.receive() == []


def test_a_recursive_watch_above_tells_nothing_of_private_nodes(private: Peer) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/", AddWatchMode.PERSISTENT_RECURSIVE))
    owner = owner_of(private)

    owner.create("/private/x", acl=PRIVATE)
    owner.delete("/private/x")

    assert private.receive() == []


def test_a_watch_on_a_node_to_come_tells_nothing_if_it_comes_private(private: Peer) -> None:
    (reply,) = private.send(OpCode.EXISTS, r.ExistsRequest("/later", True).encode())
    assert reply.err == ErrorCode.NO_NODE

    owner_of(private).create("/later", acl=PRIVATE)

    assert private.receive() == []


def test_a_watch_set_while_the_node_was_open_tells_nothing_once_it_is_private(private: Peer) -> None:
    owner = owner_of(private)
    owner.create("/a")
    private.get("/a", watch=True)
    owner.call(OpCode.SET_ACL, r.SetACLRequest("/a", PRIVATE, -1))

    owner.set("/a", b"x")

    assert private.receive() == []


def test_private_children_are_removed_with_their_session_and_nobody_hears(private: Peer) -> None:
    private.call(OpCode.ADD_WATCH, r.AddWatchRequest("/private", AddWatchMode.PERSISTENT_RECURSIVE))
    owner = owner_of(private)
    owner.create("/private/e", flags=1, acl=PRIVATE)

    owner.close()

    assert private.receive() == []


# --- read-only mode ---


@pytest.mark.parametrize(
    ("op", "request_"),
    [
        (OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0)),
        (OpCode.DELETE, r.DeleteRequest("/kept", -1)),
        (OpCode.SET_DATA, r.SetDataRequest("/kept", b"x", -1)),
        (OpCode.SET_ACL, r.SetACLRequest("/kept", PRIVATE, -1)),
        (OpCode.CREATE_CONTAINER, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 4)),
        (OpCode.CREATE_TTL, r.CreateTTLRequest("/a", b"", OPEN_ACL_UNSAFE, 5, 1000)),
        (OpCode.RECONFIG, r.ReconfigRequest(None, None, None, -1)),
    ],
    ids=lambda value: getattr(value, "name", None) or None,
)
def test_in_read_only_mode_nothing_is_written_not_even_by_the_super_user(op: OpCode, request_: r.Stat) -> None:
    engine = Engine(Settings(super_digest=SUPER, reconfig_enabled=True))
    joined(engine).create("/kept")
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)
    peer.auth("digest", b"super:pw")
    before = engine.zxid

    (reply,) = peer.send(op, request_.encode())

    assert (reply.err, engine.zxid) == (ErrorCode.NOT_READ_ONLY, before)


def test_in_read_only_mode_a_multi_writes_nothing() -> None:
    engine = Engine()
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)

    (reply,) = peer.send(
        OpCode.MULTI, wire.encode_operations([(OpCode.CREATE, r.CreateRequest("/a", b"", OPEN_ACL_UNSAFE, 0))])
    )

    assert reply.err == ErrorCode.NOT_READ_ONLY
    assert engine.tree.get("/a") is None


def test_in_read_only_mode_acls_go_on_holding(private: Peer) -> None:
    engine = private.engine
    engine.set_read_only(True)
    peer = Peer(engine)
    peer.connect(read_only=True)

    with pytest.raises(NoAuthError):
        peer.get("/private")
