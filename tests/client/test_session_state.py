"""The session's states, without I/O: resumed, expired, authenticated, pinged, closed; its watches are set again."""

from __future__ import annotations

import pytest
from support.client_session import Asked, SessionDriver, event
from support.registrations import watch

from zoolet.client import AuthFailedError, ClosedError, Event, EventType, SessionExpiredError, State
from zoolet.client.wire.session import ConnectionBroken, Phase
from zoolet.client.wire.watches import Kind
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode

CHANGED = EventType.NODE_DATA_CHANGED


def test_a_session_is_gone_on_with_by_its_id_and_password() -> None:
    driver = SessionDriver()
    first = driver.shake()
    driver.ask(Asked())
    driver.reply(1, zxid=77)
    driver.session.lost("x", 0.0)
    again = driver.shake()

    assert (first.session_id, first.last_zxid_seen, first.password) == (0, 0, bytes(16))
    assert (again.session_id, again.last_zxid_seen, again.password) == (9, 77, b"p" * 16)
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_a_session_that_is_over_fails_all_calls_and_begins_again() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.lost("x", 0.0)
    call = Asked()
    driver.session.submit(call)
    driver.session.begin(1.0)
    driver.sent()

    with pytest.raises(ConnectionBroken, match="expired"):
        driver.session.receive(frame(ConnectResponse().encode()), 1.0)
    driver.session.lost("expired", 1.0)
    again = driver.shake(2.0, session_id=10)

    assert isinstance(call.outcome, SessionExpiredError)
    assert again.session_id == 0
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]


def test_a_read_only_server_s_session_is_not_taken_elsewhere() -> None:
    driver = SessionDriver(read_only=True)
    assert driver.shake(read_only=True).read_only is True
    driver.session.lost("x", 0.0)

    again = driver.shake(session_id=10)

    assert again.session_id == 0
    assert driver.states == [State.READ_ONLY, State.SUSPENDED, State.CONNECTED]


def test_silence_is_a_ping_after_a_third_of_the_timeout_and_the_end_after_two() -> None:
    driver = SessionDriver()
    driver.shake(100.0)
    third = 10 / 3

    assert driver.session.next_due() == pytest.approx(100 + third)
    driver.session.tick(100 + third)
    assert driver.heads() == [(-2, OpCode.PING)]
    driver.reply(-2, now=103.5)
    assert driver.session.last_confirmed == pytest.approx(100 + third)

    driver.session.tick(100 + 2 * third)
    with pytest.raises(ConnectionBroken, match=r"nothing was received from the server for 6\.6"):
        driver.session.tick(103.5 + 2 * third + 0.001)


def test_it_is_connected_when_all_credentials_are_accepted_and_not_before() -> None:
    driver = SessionDriver()
    driver.session.add_credential("digest", b"a:1", None)
    driver.session.add_credential("digest", b"b:2", None)
    call = Asked()
    driver.session.submit(call)

    driver.shake()
    assert driver.heads() == [(-4, OpCode.AUTH), (-4, OpCode.AUTH)]
    assert driver.session.phase is Phase.AUTH
    driver.reply(-4)
    assert driver.states == []
    driver.reply(-4)

    assert driver.states == [State.CONNECTED]
    assert driver.heads() == [(1, OpCode.SET_DATA)]


def test_a_credential_that_was_refused_is_not_tried_again() -> None:
    driver = SessionDriver()
    driver.shake()
    proving = Asked()
    driver.session.add_credential("digest", b"a:1", proving)

    with pytest.raises(ConnectionBroken):
        driver.reply(-4, err=ErrorCode.AUTH_FAILED)
    driver.session.lost("x", 0.0)
    driver.shake()

    assert isinstance(proving.outcome, AuthFailedError)
    assert driver.heads() == []
    assert driver.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_a_credential_that_was_good_before_and_is_refused_now_ends_everything() -> None:
    driver = SessionDriver()
    driver.session.add_credential("digest", b"a:1", None)
    driver.shake()
    call = Asked()
    driver.session.submit(call)

    with pytest.raises(ConnectionBroken):
        driver.reply(-4, err=ErrorCode.AUTH_FAILED)

    assert isinstance(call.outcome, AuthFailedError)
    assert driver.states == [State.CLOSED]
    with pytest.raises(AuthFailedError):
        driver.session.submit(Asked())


def test_closing_fails_everything_and_refuses_the_rest() -> None:
    driver = SessionDriver()
    driver.shake()
    sent, proving = Asked(), Asked()
    driver.ask(sent)
    driver.session.add_credential("digest", b"a:1", proving)

    driver.session.close("enough")

    assert isinstance(sent.outcome, ClosedError)
    assert isinstance(proving.outcome, ClosedError)
    with pytest.raises(ClosedError, match="enough"):
        driver.session.submit(Asked())
    with pytest.raises(ClosedError):
        driver.session.add_credential("digest", b"a:1", None)


def test_watches_are_set_again_before_waiting_calls_with_the_zxid_from_before() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(Asked())
    driver.reply(1, zxid=50)
    driver.session.watches.add(watch(Kind.DATA))
    driver.sent()
    driver.session.lost("x", 0.0)
    driver.session.submit(Asked())

    driver.shake()
    watching, call = driver.sent()

    assert (int_at(watching)[0], int_at(watching, 4)[0]) == (-8, OpCode.SET_WATCHES)
    assert r.SetWatches.decode(watching, 8).relativeZxid == 50
    assert int_at(call, 4)[0] == OpCode.SET_DATA


def test_a_connection_that_breaks_while_watches_are_set_again_loses_nothing() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(Asked())
    driver.reply(1, zxid=50)
    for number in range(400):  # two requests
        driver.session.watches.add(watch(Kind.DATA, f"/{number}" + "x" * 500))
    driver.session.lost("x", 0.0)
    driver.shake()
    assert len(driver.sent()) == 2

    driver.reply(-8, zxid=90)  # the first
    driver.reply(-1, zxid=91, body=event(CHANGED, "/0" + "x" * 500))  # a live one, and the second never arrives
    driver.session.lost("x", 0.0)
    driver.shake()
    watching = [r.SetWatches.decode(one, 8) for one in driver.sent()]

    assert {reported.relativeZxid for reported in watching} == {50}


def test_an_event_is_delivered_in_its_place_and_does_not_move_the_last_zxid() -> None:
    """Another event of the same transaction may be lost with the connection, and has to be asked for then."""
    driver = SessionDriver()
    driver.shake()
    one = watch(Kind.DATA)
    driver.session.watches.add(one)

    driver.reply(-1, zxid=8, body=event(CHANGED, "/a"))
    driver.reply(-1, zxid=-1, body=event(CHANGED, "/a"))

    assert list(one.events) == [Event(CHANGED, "/a", 8)]
    assert driver.session.last_zxid == 0


def test_a_session_event_of_the_server_fires_nothing() -> None:
    driver = SessionDriver()
    driver.shake()
    one = watch(Kind.DATA)
    driver.session.watches.add(one)

    driver.reply(-1, zxid=-1, body=event(-1, "/a"))

    assert not one.events
