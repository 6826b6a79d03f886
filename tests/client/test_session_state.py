"""The session's states, without I/O: resumed, expired, authenticated, pinged, closed; watches are restored."""

from __future__ import annotations

import pytest
from support.client_session import PendingCall, SessionDriver, event
from support.registrations import make_registration

from zoolet.client import AuthFailedError, ClosedError, Event, EventType, SessionExpiredError, State
from zoolet.client.wire.phases import ConnectionBroken, ConnectionPhase
from zoolet.client.wire.watches import WatchKind
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

CHANGED = EventType.NODE_DATA_CHANGED


def test_session_resumes_with_id_and_password() -> None:
    driver = SessionDriver()
    first = driver.shake()
    driver.ask(PendingCall())
    driver.reply(1, zxid=77)
    driver.session.lost("x", 0.0)
    again = driver.shake()

    assert (first.session_id, first.last_zxid_seen, first.password) == (0, 0, bytes(16))
    assert (again.session_id, again.last_zxid_seen, again.password) == (9, 77, b"p" * 16)
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_expired_session_fails_calls_and_restarts() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.lost("x", 0.0)
    call = PendingCall()
    driver.session.submit(call)
    driver.session.start(1.0)
    driver.sent()

    with pytest.raises(ConnectionBroken, match="expired"):
        driver.session.receive(frame(ConnectResponse().encode()), 1.0)
    driver.session.lost("expired", 1.0)
    again = driver.shake(2.0, session_id=10)

    assert isinstance(call.outcome, SessionExpiredError)
    assert again.session_id == 0
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]


def lose_session(driver: SessionDriver) -> None:
    """Lose the connection, and let the session timeout pass."""
    driver.session.lost("x", 3.0)
    driver.session.tried = True
    assert driver.session.next_due() == 10.0
    driver.session.tick(9.9)
    assert driver.states[-1] is State.SUSPENDED
    with pytest.raises(ConnectionBroken, match="no server was reached within the session timeout"):
        driver.session.tick(10.0)


def test_offline_session_is_given_up_after_timeout() -> None:
    driver = SessionDriver()
    driver.shake()
    call = PendingCall()
    driver.session.lost("x", 3.0)
    driver.session.tried = True
    driver.session.submit(call)

    with pytest.raises(ConnectionBroken, match="no server was reached within the session timeout"):
        driver.session.tick(10.0)

    assert isinstance(call.outcome, SessionExpiredError)
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.LOST]


def test_session_is_not_given_up_before_reconnect_attempt_failed() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.lost("x", 3.0)

    driver.session.tick(100.0)

    assert driver.session.next_due() is None
    assert driver.states[-1] is State.SUSPENDED


def test_connection_close_by_server_restarts_session_timeout() -> None:
    driver = SessionDriver()
    driver.shake()

    driver.session.lost("x", 3.0, by_server=True)

    assert driver.session.give_up_time() == 13.0


def test_abandoned_session_is_closed_before_new_one() -> None:
    driver = SessionDriver()
    driver.shake()
    lose_session(driver)

    former = driver.shake(11.0)
    assert driver.heads() == [(0, OpCode.CLOSE_SESSION)]
    with pytest.raises(ConnectionBroken, match="closed the previous session"):
        driver.reply(0)
    driver.session.lost("x", 11.0)
    new = driver.shake(11.0, session_id=10)

    assert (former.session_id, former.password, new.session_id) == (9, b"p" * 16, 0)
    assert driver.states[-2:] == [State.LOST, State.CONNECTED]


def test_previous_session_is_closed_only_once() -> None:
    driver = SessionDriver()
    driver.shake()
    lose_session(driver)
    driver.session.start(11.0)
    driver.sent()
    driver.session.lost("no answer", 12.0)

    assert not driver.session.has_session
    assert driver.shake(13.0, session_id=10).session_id == 0


def test_new_read_only_session_replaces_lost_session() -> None:
    driver = SessionDriver(read_only=True)
    driver.shake()
    lose_session(driver)

    driver.shake(11.0, session_id=10, read_only=True)

    assert driver.states[-1] is State.READ_ONLY


def test_closed_client_does_not_report_loss() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.close("over")
    driver.session.lost("x", 3.0)
    driver.session.tried = True

    driver.session.tick(100.0)

    assert driver.session.next_due() is None
    assert driver.states[-1] is State.CLOSED


def test_read_only_session_is_not_resumed_at_next_server() -> None:
    driver = SessionDriver(read_only=True)
    assert driver.shake(read_only=True).read_only is True
    driver.session.lost("x", 0.0)

    again = driver.shake(session_id=10)

    assert again.session_id == 0
    assert driver.states == [State.READ_ONLY, State.SUSPENDED, State.CONNECTED]


def test_silent_server_causes_ping_and_then_connection_loss() -> None:
    driver = SessionDriver()
    driver.shake(100.0)
    third = 10 / 3

    assert driver.session.next_due() == pytest.approx(100 + third)
    driver.session.tick(100 + third)
    assert driver.heads() == [(-2, OpCode.PING)]
    driver.reply(-2, now=103.5)
    assert driver.session.last_confirmed == pytest.approx(100 + third)

    driver.session.tick(100 + 2 * third)
    with pytest.raises(ConnectionBroken, match=r"no complete message from the server for 6\.6"):
        driver.session.tick(103.5 + 2 * third + 0.001)


def test_session_reports_connected_after_all_credentials() -> None:
    driver = SessionDriver()
    driver.session.add_credential("digest", b"a:1", None)
    driver.session.add_credential("digest", b"b:2", None)
    call = PendingCall()
    driver.session.submit(call)

    driver.shake()
    assert driver.heads() == [(-4, OpCode.AUTH), (-4, OpCode.AUTH)]
    assert driver.session.phase is ConnectionPhase.AUTH
    driver.reply(-4)
    assert driver.states == []
    driver.reply(-4)

    assert driver.states == [State.CONNECTED]
    assert driver.heads() == [(1, OpCode.SET_DATA)]


def test_refused_credential_is_not_retried() -> None:
    driver = SessionDriver()
    driver.shake()
    proving = PendingCall()
    driver.session.add_credential("digest", b"a:1", proving)

    with pytest.raises(ConnectionBroken):
        driver.reply(-4, err=ErrorCode.AUTH_FAILED)
    driver.session.lost("x", 0.0)
    driver.shake()

    assert isinstance(proving.outcome, AuthFailedError)
    assert driver.heads() == []
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_credential_refused_on_reconnect_closes_client() -> None:
    driver = SessionDriver()
    driver.session.add_credential("digest", b"a:1", None)
    driver.shake()
    call = PendingCall()
    driver.session.submit(call)

    with pytest.raises(ConnectionBroken):
        driver.reply(-4, err=ErrorCode.AUTH_FAILED)

    assert isinstance(call.outcome, AuthFailedError)
    assert driver.states == [State.CLOSED]
    with pytest.raises(AuthFailedError):
        driver.session.submit(PendingCall())


def test_close_fails_waiting_and_later_calls() -> None:
    driver = SessionDriver()
    driver.shake()
    sent, proving = PendingCall(), PendingCall()
    driver.ask(sent)
    driver.session.add_credential("digest", b"a:1", proving)

    driver.session.close("enough")

    assert isinstance(sent.outcome, ClosedError)
    assert isinstance(proving.outcome, ClosedError)
    with pytest.raises(ClosedError, match="enough"):
        driver.session.submit(PendingCall())
    with pytest.raises(ClosedError):
        driver.session.add_credential("digest", b"a:1", None)


def test_watches_are_restored_before_calls_with_last_seen_zxid() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall())
    driver.reply(1, zxid=50)
    driver.session.watches.add(make_registration(WatchKind.DATA))
    driver.sent()
    driver.session.lost("x", 0.0)
    driver.session.submit(PendingCall())

    driver.shake()
    watching, call = driver.sent()

    assert (int_at(watching)[0], int_at(watching, 4)[0]) == (-8, OpCode.SET_WATCHES)
    assert r.SetWatches.decode(watching, 8).relativeZxid == 50
    assert int_at(call, 4)[0] == OpCode.SET_DATA


def test_partly_restored_watches_are_sent_again_with_old_zxid() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall())
    driver.reply(1, zxid=50)
    for number in range(400):  # their restoration needs two requests
        driver.session.watches.add(make_registration(WatchKind.DATA, f"/{number}" + "x" * 500))
    driver.session.lost("x", 0.0)
    driver.shake()
    assert len(driver.sent()) == 2

    driver.reply(-8, zxid=90)  # reply to the first request
    driver.reply(-1, zxid=91, body=event(CHANGED, "/0" + "x" * 500))  # a live event; the second reply never arrives
    driver.session.lost("x", 0.0)
    driver.shake()
    watching = [r.SetWatches.decode(one, 8) for one in driver.sent()]

    assert {reported.relativeZxid for reported in watching} == {50}


def registration_zxids(driver: SessionDriver) -> set[int]:
    """Return the zxids of the setWatches requests that were sent since the last call."""
    sent = [one for one in driver.sent() if int_at(one, 4)[0] == OpCode.SET_WATCHES]
    return {r.SetWatches.decode(one, 8).relativeZxid for one in sent}


def test_connection_loss_keeps_zxid_of_watches_being_moved() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall())
    driver.reply(1, zxid=50)
    driver.session.watches.add(make_registration(WatchKind.DATA))
    driver.session.expired("x")
    driver.shake(session_id=10)
    driver.reply(-2, zxid=60)  # the reply to the ping that probes the new connection
    first = registration_zxids(driver)

    driver.session.lost("x", 0.0)
    driver.shake(session_id=10)

    assert (first, registration_zxids(driver)) == ({50}, {50})


def test_call_reply_before_watch_registration_keeps_watch_zxid() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall())
    driver.reply(1, zxid=50)
    driver.session.watches.add(make_registration(WatchKind.DATA))
    driver.ask(PendingCall())
    driver.session.rewatch("/a")
    first = registration_zxids(driver)

    driver.reply(2, zxid=60)  # the server answers the call, but not the registration
    driver.session.lost("x", 0.0)
    driver.shake()

    assert (first, registration_zxids(driver)) == ({50}, {50})


def test_event_does_not_advance_last_zxid() -> None:
    """The connection may break before the next event of the same transaction, which must then be requested again."""
    driver = SessionDriver()
    driver.shake()
    one = make_registration(WatchKind.DATA)
    driver.session.watches.add(one)

    driver.reply(-1, zxid=8, body=event(CHANGED, "/a"))
    driver.reply(-1, zxid=-1, body=event(CHANGED, "/a"))

    assert list(one.events) == [Event(CHANGED, "/a", 8)]
    assert driver.session.last_zxid == 0


def test_session_event_of_server_fires_no_watch() -> None:
    driver = SessionDriver()
    driver.shake()
    one = make_registration(WatchKind.DATA)
    driver.session.watches.add(one)

    driver.reply(-1, zxid=-1, body=event(-1, "/a"))

    assert not one.events


def test_incomplete_reply_does_not_postpone_silence_timeout() -> None:
    driver = SessionDriver()
    driver.shake(100.0)
    driver.ask(PendingCall(), now=100.0)
    reply = frame(r.ReplyHeader(1, 0, 0).encode())

    for number, byte in enumerate(reply[:-1]):
        driver.session.receive(bytes([byte]), 100.0 + number / 3)
    with pytest.raises(ConnectionBroken, match=r"no complete message from the server for 6\.7"):
        driver.session.tick(106.7)

    driver.session.receive(reply[-1:], 106.8)
    driver.session.tick(113.4)


def test_close_of_previous_session_is_tried_three_times() -> None:
    driver = SessionDriver()
    driver.shake()
    lose_session(driver)
    attempts = []
    for number in range(4):
        driver.session.start(11.0 + number)
        attempts.append(ConnectRequest.decode(driver.sent()[0]).session_id)
        driver.session.lost("closed", 11.0 + number, by_server=True)

    assert attempts == [9, 9, 9, 0]


def test_read_only_connection_is_kept_while_credentials_are_sent() -> None:
    driver = SessionDriver(read_only=True)
    driver.session.add_credential("digest", b"bob:secret", None)
    driver.session.tried = True  # as if the client had already tried a different server

    driver.session.start(1.0)
    driver.session.receive(frame(ConnectResponse(10_000, 9, b"p" * 16, True).encode()), 1.0)
    driver.session.tick(2.0)

    assert driver.session.phase is ConnectionPhase.AUTH
