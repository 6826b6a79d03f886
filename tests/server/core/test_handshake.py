"""The handshake: the bytes of the response, the granted timeout, clients ahead of the server, and expired sessions."""

from __future__ import annotations

import pytest
from support.calls import NOW, REFUSED, connect_peer, last_zxid, read_session_id, resume_session, tick_at
from support.engine import make_engine
from support.frames import unhex
from support.peer import Peer

from zoolet.protocol.framing import frame
from zoolet.server.core.settings import EngineSettings

# --- the connect response ---


def test_connect_response_lacks_read_only_byte_like_request(engine):
    raw = Peer(engine).feed(unhex("0000002c 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16))

    assert len(raw) == 4 + 36
    assert raw[:12] == unhex("00000024 00000000 00002710")


def test_connect_response_has_read_only_byte_like_request(engine):
    raw = Peer(engine).feed(unhex("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(17))

    assert len(raw) == 4 + 37
    assert raw[:12] == unhex("00000025 00000000 00002710")
    assert raw[-1:] == unhex("00")


def test_read_only_byte_of_writable_server_is_zero(engine):
    raw = Peer(engine).feed(
        unhex("0000002d 00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16) + b"\x01"
    )

    assert raw[-1:] == unhex("00")


@pytest.mark.parametrize(
    ("wanted", "granted"), [(0, 4000), (-1, 4000), (4001, 4001), (10_000, 10_000), (2**31 - 1, 40_000)]
)
def test_timeout_is_clamped_to_two_and_twenty_ticks(engine, wanted, granted):
    welcome = Peer(engine).connect(timeout=wanted)

    assert welcome is not None
    assert welcome.timeout_ms == granted


@pytest.mark.parametrize("size", [0, 4, 43])
def test_short_connect_request_is_closed_silently(engine, size):
    peer = Peer(engine)
    whole = unhex("00000000 0000000000000000 00002710 0000000000000000 00000010") + bytes(16)

    raw = peer.feed(frame(whole[:size]))

    assert raw == b""
    assert peer.closed


# --- clients ahead of the server ---


def test_client_ahead_of_server_is_closed_silently(engine, peer):
    late = Peer(engine)

    welcome = late.connect(zxid=2)

    assert welcome is None
    assert late.closed
    assert last_zxid(peer) == 1


@pytest.mark.parametrize("seen", [1, 0, -1])
def test_client_with_last_zxid_or_less_is_accepted(engine, peer, seen):
    welcome = Peer(engine).connect(zxid=seen)

    assert welcome is not None
    assert welcome.timeout_ms == 10_000


def test_renewing_client_ahead_is_closed_not_expired():
    engine = make_engine(EngineSettings(expire_clients_ahead=False), now=NOW)
    peer = connect_peer(engine)
    second = Peer(engine)

    welcome = second.connect(10_000, read_session_id(peer), peer.welcome.password, zxid=2)

    assert welcome is None
    assert second.closed


def test_renewing_client_of_empty_server_has_expired(engine):
    late = Peer(engine)

    welcome = late.connect(10_000, session=0x1234, zxid=5)

    assert welcome == REFUSED
    assert late.closed


def test_client_with_newer_zxid_cannot_resume_session() -> None:
    engine = make_engine()
    first, second = Peer(engine), Peer(engine)
    welcome = first.connect()
    assert welcome is not None

    answer = second.connect(session=welcome.session_id, password=welcome.password, zxid=engine.zxid + 1)

    assert (answer, second.closed, first.closed) == (None, True, False)


# --- expired sessions ---


def test_unknown_session_gets_response_of_zeroes_and_is_closed(engine):
    peer = Peer(engine)

    raw = peer.feed(unhex("0000002d 00000000 0000000000000000 00002710 0000000000001234 00000010") + bytes(17))

    assert raw == unhex("00000025 00000000 00000000 0000000000000000 00000010") + bytes(16) + unhex("00")
    assert peer.closed


def test_refusal_of_session_lacks_read_only_byte_like_request(engine):
    peer = Peer(engine)

    raw = peer.feed(unhex("0000002c 00000000 0000000000000000 00002710 0000000000001234 00000010") + bytes(16))

    assert raw == unhex("00000024 00000000 00000000 0000000000000000 00000010") + bytes(16)
    assert peer.closed


def test_expired_session_gets_response_of_zeroes(engine, peer):
    tick_at(engine, 60_000)

    second = resume_session(peer)

    assert second.welcome == REFUSED
    assert second.closed


def test_closed_session_gets_response_of_zeroes(peer):
    peer.close()

    second = resume_session(peer)

    assert second.welcome == REFUSED
    assert second.closed


def test_handshakes_and_resumed_sessions_are_counted(engine, peer):
    resume_session(peer)
    resume_session(peer)

    assert (engine.metrics.connects, engine.metrics.resumed) == (3, 2)


def test_listener_gets_all_changes_of_session(engine):
    seen = []
    engine.on_session = lambda what, session_id, client: seen.append((what, session_id, client is not None))

    peer = connect_peer(engine)
    renewed = resume_session(peer)
    renewed.close()
    resume_session(peer)

    session_id = read_session_id(peer)
    assert seen == [(what, session_id, True) for what in ("opened", "resumed", "closed", "refused")]
