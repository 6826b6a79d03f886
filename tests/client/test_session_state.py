"""The session's states, without I/O: resumed, expired, authenticated, pinged, closed; its watches are set again."""

from __future__ import annotations

import pytest
from support.client_session import Asked, Told, event
from support.registrations import watch

from zoolet.client import AuthFailedError, ClosedError, Event, EventType, SessionExpiredError, State
from zoolet.client.session import ConnectionBroken, Phase
from zoolet.client.watches import Kind
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectResponse
from zoolet.protocol.operations import OpCode

CHANGED = EventType.NODE_DATA_CHANGED


def test_a_session_is_gone_on_with_by_its_id_and_password() -> None:
    told = Told()
    first = told.shake()
    told.ask(Asked())
    told.reply(1, zxid=77)
    told.session.lost("x", 0.0)
    again = told.shake()

    assert (first.session_id, first.last_zxid_seen, first.password) == (0, 0, bytes(16))
    assert (again.session_id, again.last_zxid_seen, again.password) == (9, 77, b"p" * 16)
    assert told.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_a_session_that_is_over_fails_all_calls_and_begins_anew() -> None:
    told = Told()
    told.shake()
    told.session.lost("x", 0.0)
    call = Asked()
    told.session.submit(call)
    told.session.begin(1.0)
    told.sent()

    with pytest.raises(ConnectionBroken, match="expired"):
        told.session.receive(frame(ConnectResponse().encode()), 1.0)
    told.session.lost("expired", 1.0)
    again = told.shake(2.0, session_id=10)

    assert isinstance(call.outcome, SessionExpiredError)
    assert again.session_id == 0
    assert told.states == [State.CONNECTED, State.SUSPENDED, State.LOST, State.CONNECTED]


def test_a_read_only_server_s_session_is_not_taken_elsewhere() -> None:
    told = Told(read_only=True)
    assert told.shake(read_only=True).read_only is True
    told.session.lost("x", 0.0)

    again = told.shake(session_id=10)

    assert again.session_id == 0
    assert told.states == [State.READ_ONLY, State.SUSPENDED, State.CONNECTED]


def test_a_third_of_the_timeout_without_a_word_is_a_ping_and_two_thirds_without_an_answer_the_end() -> None:
    told = Told()
    told.shake(100.0)
    third = 10 / 3

    assert told.session.next_due() == pytest.approx(100 + third)
    told.session.tick(100 + third)
    assert told.heads() == [(-2, OpCode.PING)]
    told.reply(-2, now=103.5)
    assert told.session.last_confirmed == pytest.approx(100 + third)

    told.session.tick(100 + 2 * third)
    with pytest.raises(ConnectionBroken, match=r"nothing was received from the server for 6\.6"):
        told.session.tick(103.5 + 2 * third + 0.001)


def test_it_is_connected_when_all_credentials_are_accepted_and_not_before() -> None:
    told = Told()
    told.session.add_credential("digest", b"a:1", None)
    told.session.add_credential("digest", b"b:2", None)
    call = Asked()
    told.session.submit(call)

    told.shake()
    assert told.heads() == [(-4, OpCode.AUTH), (-4, OpCode.AUTH)]
    assert told.session.phase is Phase.AUTH
    told.reply(-4)
    assert told.states == []
    told.reply(-4)

    assert told.states == [State.CONNECTED]
    assert told.heads() == [(1, OpCode.SET_DATA)]


def test_a_credential_that_was_refused_is_not_tried_again() -> None:
    told = Told()
    told.shake()
    proving = Asked()
    told.session.add_credential("digest", b"a:1", proving)

    with pytest.raises(ConnectionBroken):
        told.reply(-4, err=ErrorCode.AUTH_FAILED)
    told.session.lost("x", 0.0)
    told.shake()

    assert isinstance(proving.outcome, AuthFailedError)
    assert told.heads() == []
    assert told.states == [State.CONNECTED, State.SUSPENDED, State.CONNECTED]


def test_a_credential_that_was_good_before_and_is_refused_now_ends_everything() -> None:
    told = Told()
    told.session.add_credential("digest", b"a:1", None)
    told.shake()
    call = Asked()
    told.session.submit(call)

    with pytest.raises(ConnectionBroken):
        told.reply(-4, err=ErrorCode.AUTH_FAILED)

    assert isinstance(call.outcome, AuthFailedError)
    assert told.states == [State.CLOSED]
    with pytest.raises(AuthFailedError):
        told.session.submit(Asked())


def test_closing_fails_everything_and_refuses_the_rest() -> None:
    told = Told()
    told.shake()
    sent, proving = Asked(), Asked()
    told.ask(sent)
    told.session.add_credential("digest", b"a:1", proving)

    told.session.close("enough")

    assert isinstance(sent.outcome, ClosedError)
    assert isinstance(proving.outcome, ClosedError)
    with pytest.raises(ClosedError, match="enough"):
        told.session.submit(Asked())
    with pytest.raises(ClosedError):
        told.session.add_credential("digest", b"a:1", None)


def test_watches_are_set_again_before_waiting_calls_with_the_zxid_from_before() -> None:
    told = Told()
    told.shake()
    told.ask(Asked())
    told.reply(1, zxid=50)
    told.session.watches.add(watch(Kind.DATA))
    told.sent()
    told.session.lost("x", 0.0)
    told.session.submit(Asked())

    told.shake()
    watching, call = told.sent()

    assert (int_at(watching)[0], int_at(watching, 4)[0]) == (-8, OpCode.SET_WATCHES)
    assert r.SetWatches.decode(watching, 8).relativeZxid == 50
    assert int_at(call, 4)[0] == OpCode.SET_DATA


def test_a_connection_that_breaks_while_watches_are_set_again_loses_nothing() -> None:
    told = Told()
    told.shake()
    told.ask(Asked())
    told.reply(1, zxid=50)
    for number in range(400):  # two requests
        told.session.watches.add(watch(Kind.DATA, f"/{number}" + "x" * 500))
    told.session.lost("x", 0.0)
    told.shake()
    assert len(told.sent()) == 2

    told.reply(-8, zxid=90)  # the first
    told.reply(-1, zxid=91, body=event(CHANGED, "/0" + "x" * 500))  # a live one, and the second never arrives
    told.session.lost("x", 0.0)
    told.shake()
    watching = [r.SetWatches.decode(one, 8) for one in told.sent()]

    assert {said.relativeZxid for said in watching} == {50}


def test_an_event_is_delivered_in_its_place_and_does_not_move_the_last_zxid() -> None:
    """Another event of the same transaction may be lost with the connection, and has to be asked for then."""
    told = Told()
    told.shake()
    one = watch(Kind.DATA)
    told.session.watches.add(one)

    told.reply(-1, zxid=8, body=event(CHANGED, "/a"))
    told.reply(-1, zxid=-1, body=event(CHANGED, "/a"))

    assert list(one.events) == [Event(CHANGED, "/a", 8)]
    assert told.session.last_zxid == 0


def test_a_session_event_of_the_server_fires_nothing() -> None:
    told = Told()
    told.shake()
    one = watch(Kind.DATA)
    told.session.watches.add(one)

    told.reply(-1, zxid=-1, body=event(-1, "/a"))

    assert not one.events
