"""The session, without I/O: xids, replies and their order, calls that are cancelled or too late, and broken frames."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.client_session import Asked, Told

import zoolet.client
from zoolet.client import ConnectionLossError, NoNodeError
from zoolet.client.session import ConnectionBroken
from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode


def test_the_pure_parts_of_the_client_touch_no_clock_socket_or_loop() -> None:
    folder = Path(zoolet.client.__file__).parent
    impure = {"asyncio", "socket", "ssl", "time", "threading", "select", "os", "logging", "subprocess", "uvloop"}
    for name in ("session", "watches", "hosts", "backoff", "serializers", "states", "transaction"):
        imported = set()
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
        assert not imported & impure, name


def test_xids_count_up_and_go_on_after_a_reconnect() -> None:
    told = Told()
    told.shake()
    told.ask(Asked(), Asked())
    assert [xid for xid, _ in told.heads()] == [1, 2]

    told.session.lost("x", 0)
    told.shake()
    told.ask(Asked())

    assert [xid for xid, _ in told.heads()] == [3]


def test_the_highest_xid_is_followed_by_1() -> None:
    told = Told()
    told.shake()
    told.session.last_xid = 2**31 - 3
    calls = [Asked() for _ in range(4)]

    told.ask(*calls)
    assert [xid for xid, _ in told.heads()] == [2**31 - 2, 2**31 - 1, 1, 2]

    for call in calls:
        told.reply(call.xid, body=b"ok")
    assert [call.outcome for call in calls] == [b"ok"] * 4


def test_replies_out_of_order_break_the_link() -> None:
    told = Told()
    told.shake()
    told.ask(Asked(), Asked())

    with pytest.raises(ConnectionBroken, match="answered request 2, and 1 was next"):
        told.reply(2)


def test_a_reply_for_a_call_that_was_cancelled_is_taken_and_dropped() -> None:
    told = Told()
    told.shake()
    cancelled, other = Asked(), Asked()
    told.ask(cancelled, other)
    cancelled.cancelled = True

    told.reply(1)
    told.reply(2, body=b"ok")

    assert (cancelled.outcome, other.outcome) == (None, b"ok")


def test_a_call_that_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    told = Told()
    cancelled = Asked()
    told.session.submit(cancelled)
    cancelled.cancelled = True

    told.shake()

    assert told.heads() == []


def test_an_error_is_an_answer_with_the_path() -> None:
    told = Told()
    told.shake()
    call = Asked()
    told.ask(call)

    told.reply(1, zxid=5, err=ErrorCode.NO_NODE)

    assert isinstance(call.outcome, NoNodeError)
    assert call.outcome.path == "/a"
    assert told.session.last_zxid == 5


def test_a_lost_connection_fails_writes_that_were_sent_and_keeps_everything_else() -> None:
    told = Told()
    told.shake()
    write, read, late = Asked(), Asked(OpCode.GET_DATA, idempotent=True), Asked(OpCode.GET_DATA, idempotent=True)
    late.deadline = 1.0
    told.ask(write, read, late)
    waiting = Asked()
    told.session.submit(waiting)

    told.session.lost("the cable", 2.0)
    told.sent()
    told.shake(3.0)

    assert isinstance(write.outcome, ConnectionLossError)
    assert write.outcome.maybe_applied
    assert "the cable" in str(write.outcome)
    assert isinstance(late.outcome, ConnectionLossError)
    assert told.heads() == [(4, OpCode.GET_DATA), (5, OpCode.SET_DATA)]


def test_a_call_whose_time_is_up_while_there_is_no_connection_was_not_sent() -> None:
    told = Told()
    told.shake()
    told.session.lost("x", 0.0)
    call = Asked(deadline=3.0)
    told.session.submit(call)

    assert told.session.next_due() == 3.0
    told.session.tick(2.9)
    assert call.outcome is None
    told.session.tick(3.0)

    assert isinstance(call.outcome, ConnectionLossError)
    assert not call.outcome.maybe_applied


def test_frames_that_come_byte_by_byte_are_the_same() -> None:
    told = Told()
    told.shake()
    call = Asked()
    told.ask(call)

    for byte in frame(r.ReplyHeader(1, 5, 0).encode() + b"body"):
        told.session.receive(bytes([byte]), 0.0)

    assert call.outcome == b"body"


def test_a_claim_of_more_bytes_than_any_reply_has_breaks_the_link() -> None:
    told = Told()
    told.shake()

    with pytest.raises(ConnectionBroken, match="the server sent a malformed message: a frame of 67108865 bytes"):
        told.session.receive(pack_int((64 << 20) + 1), 0.0)
