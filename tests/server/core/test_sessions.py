"""Sessions: take-over and the state that moves with it, zxids, and the passwords that protect sessions.

Source: ZooKeeperServer.checkPasswd, reopenSession.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random, SystemRandom

import pytest
from support.calls import (
    REFUSED,
    add_watch,
    connect_peer,
    last_zxid,
    read_session_id,
    request_error,
    request_reply,
    resume_session,
    single_entry_acl,
    who_am_i,
)
from support.engine import make_engine
from support.frames import unhex
from support.numbers import EPHEMERAL, NO_AUTH, OK, PERSISTENT_WATCH
from support.peer import Peer
from support.private_nodes import connect_owner

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE, digest_id
from zoolet.protocol.enums import Perm
from zoolet.protocol.errors import NoAuthError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.core.compat import V3_8
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import CONTAINER_OWNER, is_session, ttl_owner
from zoolet.server.core.sessions import first_session_id, session_password
from zoolet.server.core.settings import EngineSettings
from zoolet.server.core.state import first_zxid


def try_to_resume(engine: Engine, session: int, password: bytes | None) -> int:
    """Try to take over a session. Return the session id in the server's answer, which is 0 after a refusal."""
    peer = Peer(engine)
    welcome = peer.connect(session=session, password=password)  # type: ignore[arg-type] # null is tested on purpose
    assert welcome is not None
    return welcome.session_id


def open_session(engine: Engine) -> tuple[int, bytes]:
    """Open a session. Return its id and password."""
    welcome = connect_peer(engine).welcome
    assert welcome is not None
    assert welcome.password is not None
    return welcome.session_id, welcome.password


# --- zxids ---


def test_creating_a_session_takes_one_zxid(engine):
    peer = connect_peer(engine)

    assert request_reply(peer, OpCode.EXISTS, r.ExistsRequest("/", False)).zxid == 1


def test_creating_and_closing_session_take_a_zxid_each(peer, other):
    before = last_zxid(peer)

    (closed,) = other.close()

    assert before == 2
    assert (closed.zxid, closed.err, closed.body) == (3, OK, b"")
    assert last_zxid(peer) == 3


def test_session_renewal_takes_no_zxid(peer):
    before = last_zxid(peer)

    second = resume_session(peer)

    assert last_zxid(second) == before


# --- take-over ---


def test_wrong_password_closes_both_connections(peer):
    thief = resume_session(peer, password=b"not the password")

    assert thief.welcome == REFUSED
    assert thief.closed
    assert peer.closed
    assert peer.pop_output() == b""


def test_session_survives_takeover_with_wrong_password(peer):
    peer.create("/e", flags=EPHEMERAL)
    resume_session(peer, password=b"not the password")

    owner = resume_session(peer)

    assert owner.welcome == peer.welcome
    assert owner.exists("/e").ephemeralOwner == read_session_id(peer)


def test_session_takeover_closes_old_connection_silently(peer):
    second = resume_session(peer)

    assert peer.closed
    assert peer.pop_output() == b""
    assert second.welcome == peer.welcome
    assert not second.closed


def test_session_takeover_drops_watches(peer, other):
    peer.create("/d")
    peer.get("/d", watch=True)
    peer.children("/", watch=True)
    add_watch(peer, "/d", PERSISTENT_WATCH)

    second = resume_session(peer)
    other.set("/d", b"new")
    other.create("/c")

    assert second.receive() == []
    assert peer.pop_output() == b""


def test_session_takeover_drops_identities(peer):
    peer.auth("digest", b"u:p")
    peer.create("/mine", acl=single_entry_acl(Perm.ALL, "digest", digest_id(b"u:p")))

    second = resume_session(peer)

    assert request_reply(second, OpCode.WHO_AM_I).body == unhex("00000001 00000002 6970 00000009") + b"127.0.0.1"
    assert request_error(second, OpCode.GET_DATA, r.GetDataRequest("/mine", False)) == NO_AUTH


def test_session_takeover_keeps_ephemeral_nodes(peer, other):
    peer.create("/e", flags=EPHEMERAL)

    resume_session(peer)

    assert other.exists("/e").ephemeralOwner == read_session_id(peer)


def test_session_renewal_negotiates_timeout_again(engine):
    first = connect_peer(engine, timeout=10_000)

    second = resume_session(first, timeout=20_000)

    assert second.welcome == first.welcome._replace(timeout_ms=20_000)


def test_moved_session_loses_its_identities(private: Peer) -> None:
    engine = private.engine
    first = connect_owner(engine)
    assert first.welcome is not None
    second = Peer(engine)
    second.connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    with pytest.raises(NoAuthError):
        second.get("/private")

    assert who_am_i(second) == [("ip", "127.0.0.1")]


def test_old_connection_is_inactive_after_session_has_moved(engine: Engine) -> None:
    first = connect_peer(engine)
    assert first.welcome is not None
    Peer(engine).connect(session=first.welcome.session_id, password=first.welcome.password or b"")

    replies = first.send(OpCode.CREATE, r.CreateRequest("/late", b"", OPEN_ACL_UNSAFE, 0).encode())

    assert replies == []
    assert engine.tree.get("/late") is None


# --- passwords ---


def test_passwords_of_same_session_id_differ_by_server() -> None:
    one, another = make_engine(rng=SystemRandom()), make_engine(rng=SystemRandom())

    (id_of_one, password_of_one), (id_of_another, password_of_another) = open_session(one), open_session(another)

    assert id_of_one == id_of_another
    assert password_of_one != password_of_another


def test_same_seed_gives_same_passwords() -> None:
    assert open_session(make_engine(rng=Random(7))) == open_session(make_engine(rng=Random(7)))


def test_two_sessions_have_different_passwords(engine: Engine) -> None:
    assert open_session(engine)[1] != open_session(engine)[1]


def test_password_is_sixteen_bytes(engine: Engine) -> None:
    assert len(open_session(engine)[1]) == 16


def test_assigned_password_resumes_session(engine: Engine) -> None:
    session, password = open_session(engine)

    assert try_to_resume(engine, session, password) == session


def test_resumed_session_keeps_its_password(engine: Engine) -> None:
    session, password = open_session(engine)
    peer = Peer(engine)

    welcome = peer.connect(session=session, password=password)

    assert welcome is not None
    assert welcome.password == password


@pytest.mark.parametrize("password", [None, b"", bytes(16), bytes(15), bytes(17), b"\xff" * 16])
def test_wrong_password_cannot_resume_session(engine: Engine, password: bytes | None) -> None:
    session, _ = open_session(engine)

    assert try_to_resume(engine, session, password) == 0


@pytest.mark.parametrize("spoil", [lambda p: p[:15], lambda p: p[1:], lambda p: p[:1], lambda p: p + b"\0"])
def test_truncated_or_extended_password_cannot_resume(engine: Engine, spoil: Callable[[bytes], bytes]) -> None:
    session, password = open_session(engine)

    assert try_to_resume(engine, session, spoil(password)) == 0


def test_password_of_second_session_cannot_resume_first(engine: Engine) -> None:
    (session, _), (_, password) = open_session(engine), open_session(engine)

    assert try_to_resume(engine, session, password) == 0


def test_password_from_second_server_cannot_resume() -> None:
    ours, theirs = make_engine(rng=SystemRandom()), make_engine(rng=SystemRandom())
    (session, _), (_, password) = open_session(ours), open_session(theirs)

    assert try_to_resume(ours, session, password) == 0


def test_password_by_zookeeper_formula_cannot_resume(engine: Engine) -> None:
    session, _ = open_session(engine)

    assert try_to_resume(engine, session, session_password(session)) == 0


def test_in_3_8_password_follows_zookeeper_formula() -> None:
    session, password = open_session(make_engine(EngineSettings(compat=V3_8), rng=SystemRandom()))

    assert password == session_password(session)


def test_refused_session_resume_returns_blank_password(engine: Engine) -> None:
    session, _ = open_session(engine)
    peer = Peer(engine)

    welcome = peer.connect(session=session)

    assert welcome is not None
    assert (welcome.timeout_ms, welcome.password) == (0, bytes(16))
    assert peer.closed


def test_requests_after_refused_takeover_are_not_done(private: Peer) -> None:
    engine = private.engine
    session, _ = open_session(engine)
    intruder = Peer(engine)
    create = r.RequestHeader(1, OpCode.CREATE).encode() + r.CreateRequest("/in", b"", OPEN_ACL_UNSAFE, 0).encode()

    intruder.feed(frame(ConnectRequest(0, 10_000, session, bytes(16)).encode()) + frame(create))

    assert engine.tree.get("/in") is None


def test_first_session_id_has_server_number_and_time() -> None:
    assert first_session_id(2, (1 << 41) + (1 << 39) + 5) == 2 << 56 | ((1 << 39) + 5) << 16


def test_first_zxid_leaves_20_bits_for_count() -> None:
    begin_of_2020 = 1_577_836_800_000
    assert first_zxid(begin_of_2020 + 7) == 7 << 20
    assert first_zxid(begin_of_2020 - 7) == 0


@pytest.mark.parametrize(
    ("owner", "is_one"),
    [
        (0, False),
        (1, True),
        (0x7FFFFFFFFFFFFFFF, True),
        (CONTAINER_OWNER, False),
        (CONTAINER_OWNER + 1, True),
        (ttl_owner(0) - 1, True),
        (ttl_owner(1), False),
        (-1, False),
    ],
)
def test_owner_is_session_container_or_ttl(owner: int, is_one: bool) -> None:
    assert is_session(owner) is is_one
