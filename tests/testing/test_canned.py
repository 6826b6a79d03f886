"""Replayed recordings: pings, events in their places, resumed sessions, and silent servers."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing

import pytest
from support.apache import free_port
from support.wire import Wire, creating

from zoolet.protocol import records as r
from zoolet.protocol.operations import OpCode
from zoolet.testing import Recording, Server, drop_request, lose_reply


def test_unrecorded_pings_are_answered_by_replay(server: Server) -> None:
    with server.recording() as ops, Wire(server).welcomed() as wire:
        wire.create("/a")

    with ops.serve() as canned, Wire(canned).welcomed() as wire:  # type: ignore[arg-type]
        for _ in range(3):
            wire.send(OpCode.PING)
            assert r.ReplyHeader.decode(wire.payload()).xid == -2
        assert wire.create("/a") == 0
        wire.send(OpCode.PING)
        assert r.ReplyHeader.decode(wire.payload()).zxid == ops[1].zxid


def test_replayed_event_keeps_its_place_among_replies(server: Server) -> None:
    with server.recording() as ops, Wire(server).welcomed() as wire:
        wire.watch("/own")
        wire.watch("/others")
        wire.create("/own")
        server.populate({"/others": b""})
        assert wire.event() == (1, "/others")
    recorded = [wire.events, (1, "/others")]

    with ops.serve() as canned, Wire(canned).welcomed() as again:  # type: ignore[arg-type]
        again.watch("/own")
        again.watch("/others")
        assert not again.events
        assert again.create("/own") == 0
        assert [again.events, again.event()] == recorded == [[(1, "/own")], (1, "/others")]


def test_resumed_session_is_replayed_as_resumed(server: Server, wires: ExitStack) -> None:
    with server.recording() as ops:
        first = wires.enter_context(Wire(server)).welcomed()
        first.create("/e", 1)
        server.drop(first.id)
        second = wires.enter_context(Wire(server, session=(first.id, first.password))).welcomed()
        second.exists("/e")

    with Server() as other:
        again = ops.replay(other.hosts)
        assert len(other.sessions()) == 1
        assert [op.outcome for op in again] == ["ok"] * 4


def test_only_dropped_requests_are_not_replayed(server: Server) -> None:
    with server.recording() as ops:
        for action, path in ((drop_request(), "/dropped"), (lose_reply(), "/lost")):
            with Wire(server).welcomed() as wire, server.fault(action, "create"):
                wire.send(OpCode.CREATE, creating(path))
                assert wire.ended()

    with Server() as other:
        ops.replay(other.hosts)
        assert list(other.tree()) == ["/lost"]


def test_recording_is_served_twice(server: Server) -> None:
    with server.recording() as ops, Wire(server).welcomed() as wire:
        wire.create("/a")
    canned = ops.serve(port=free_port())

    for _ in range(2):
        with canned, Wire(canned).welcomed() as wire:  # type: ignore[arg-type]
            assert wire.create("/a") == 0


def test_replay_at_silent_server_times_out(server: Server) -> None:
    with server.recording() as ops, Wire(server).welcomed() as wire:
        wire.create("/a")

    with closing(socket.create_server(("127.0.0.1", 0))) as silent, pytest.raises(TimeoutError):
        ops.replay(f"127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)


def test_empty_recording_expects_no_request() -> None:
    with Recording().serve(strict=False) as canned, Wire(canned).welcomed() as wire:  # type: ignore[arg-type]
        wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
        assert wire.ended()
        assert canned.unexpected == ["exists /"]
