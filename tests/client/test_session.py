"""The session, without I/O: xids, replies and their order, cancelled and late calls, and broken frames."""

from __future__ import annotations

import pytest
from support.client_session import PendingCall, SessionDriver

from zoolet.client import ConnectionLossError, NoNodeError
from zoolet.client.wire.phases import ConnectionBroken
from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode


def test_xids_continue_after_reconnect() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall(), PendingCall())
    assert [xid for xid, _ in driver.heads()] == [1, 2]

    driver.session.lost("x", 0)
    driver.shake()
    driver.ask(PendingCall())

    assert [xid for xid, _ in driver.heads()] == [3]


def test_xid_after_highest_number_is_1() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.last_xid = 2**31 - 3
    calls = [PendingCall() for _ in range(4)]

    driver.ask(*calls)
    assert [xid for xid, _ in driver.heads()] == [2**31 - 2, 2**31 - 1, 1, 2]

    for call in calls:
        driver.reply(call.xid, body=b"ok")
    assert [call.outcome for call in calls] == [b"ok"] * 4


def test_replies_out_of_order_break_connection() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.ask(PendingCall(), PendingCall())

    with pytest.raises(ConnectionBroken, match="unexpected reply to request 2; expected the reply to request 1"):
        driver.reply(2)


def test_reply_to_cancelled_call_is_dropped() -> None:
    driver = SessionDriver()
    driver.shake()
    cancelled, other = PendingCall(), PendingCall()
    driver.ask(cancelled, other)
    cancelled.cancelled = True

    driver.reply(1)
    driver.reply(2, body=b"ok")

    assert (cancelled.outcome, other.outcome) == (None, b"ok")


def test_call_cancelled_before_sending_is_not_sent() -> None:
    driver = SessionDriver()
    cancelled = PendingCall()
    driver.session.submit(cancelled)
    cancelled.cancelled = True

    driver.shake()

    assert driver.heads() == []


def test_calls_cancelled_before_sending_do_not_postpone_ping() -> None:
    driver = SessionDriver()
    driver.shake()
    for now in range(1, 4):  # a ping is due after a third of ten seconds
        asked = PendingCall()
        driver.session.submit(asked)
        asked.cancelled = True
        driver.session.flush(float(now))

    assert driver.session.next_due() == pytest.approx(10 / 3)


def test_error_reply_names_path() -> None:
    driver = SessionDriver()
    driver.shake()
    call = PendingCall()
    driver.ask(call)

    driver.reply(1, zxid=5, err=ErrorCode.NO_NODE)

    assert isinstance(call.outcome, NoNodeError)
    assert call.outcome.path == "/a"
    assert driver.session.last_zxid == 5


def test_lost_connection_fails_only_sent_writes() -> None:
    driver = SessionDriver()
    driver.shake()
    write, read, late = (
        PendingCall(),
        PendingCall(OpCode.GET_DATA, idempotent=True),
        PendingCall(OpCode.GET_DATA, idempotent=True),
    )
    late.deadline = 1.0
    driver.ask(write, read, late)
    waiting = PendingCall()
    driver.session.submit(waiting)

    driver.session.lost("the cable", 2.0)
    driver.sent()
    driver.shake(3.0)

    assert isinstance(write.outcome, ConnectionLossError)
    assert write.outcome.maybe_applied
    assert "the cable" in str(write.outcome)
    assert isinstance(late.outcome, ConnectionLossError)
    assert driver.heads() == [(4, OpCode.GET_DATA), (5, OpCode.SET_DATA)]


def test_offline_call_that_times_out_is_reported_as_not_applied() -> None:
    driver = SessionDriver()
    driver.shake()
    driver.session.lost("x", 0.0)
    call = PendingCall(deadline=3.0)
    driver.ask(call)

    assert driver.session.next_due() == 3.0
    driver.session.tick(2.9)
    assert call.outcome is None
    driver.session.tick(3.0)

    assert isinstance(call.outcome, ConnectionLossError)
    assert not call.outcome.maybe_applied


def test_frames_split_into_bytes_are_read() -> None:
    driver = SessionDriver()
    driver.shake()
    call = PendingCall()
    driver.ask(call)

    for byte in frame(r.ReplyHeader(1, 5, 0).encode() + b"body"):
        driver.session.receive(bytes([byte]), 0.0)

    assert call.outcome == b"body"


def test_oversized_length_of_reply_breaks_connection() -> None:
    driver = SessionDriver()
    driver.shake()

    with pytest.raises(ConnectionBroken, match="the server sent a malformed message: invalid frame length 67108865"):
        driver.session.receive(pack_int((64 << 20) + 1), 0.0)
