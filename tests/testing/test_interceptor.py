"""Several fault rules together, faults during a handshake, and the requests after a held one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.waiting import DEADLINE_S
from support.wire import Wire, creating

from zoolet.protocol import records as r
from zoolet.protocol.framing import frame
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, close_after, delay, drop_request, error, hold, lose_reply

NO_NODE: Final = -101
Dial = Callable[..., KazooClient]


# --- connections ---


def test_connect_request_can_be_dropped(server: Server, kazoo: Dial) -> None:
    with server.fault(drop_request(), "connect", times=2) as fault:
        client = kazoo(server)

    assert fault.hits == 2
    assert set(server.sessions()) == {client.client_id[0]}


def test_session_with_lost_first_reply_exists(server: Server, kazoo: Dial) -> None:
    with server.fault(lose_reply(), "connect", times=1):
        client = kazoo(server)

    assert len(server.sessions()) == 2
    assert client.client_id[0] in server.sessions()


def test_connect_request_is_held_until_release(server: Server, kazoo: Dial) -> None:
    client = kazoo(server, start=False)
    with server.fault(hold(), "connect") as fault:
        connected = client.start_async()
        server.wait_for(lambda: fault.hits == 1)
        assert not connected.is_set()
        assert dict(server.sessions()) == {}
        fault.release()
        assert connected.wait(DEADLINE_S)


def test_fault_by_session_id_hits_resumption_of_session(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    server.drop(first.id)

    with server.fault(drop_request(), "connect", client=first.id, times=1) as fault:
        refused = wires.enter_context(Wire(server, session=(first.id, first.password)))
        assert refused.ended()
        again = wires.enter_context(Wire(server, session=(first.id, first.password))).welcomed()

    assert (again.id, fault.hits) == (first.id, 1)


# --- rules together ---


@pytest.mark.parametrize(
    ("actions", "done", "answer"),
    [
        ((error(NO_NODE), drop_request()), False, None),
        ((lose_reply(), drop_request()), False, None),
        ((lose_reply(), error(NO_NODE)), False, NO_NODE),
        ((close_after(), lose_reply()), True, None),
        ((close_after(), error(NO_NODE)), False, NO_NODE),
        ((delay(0.01), close_after()), True, 0),
        ((delay(0.01), delay(0.01), error(NO_NODE)), False, NO_NODE),
    ],
    ids=str,
)
def test_first_of_several_conflicting_faults_applies(
    server: Server, wire: Wire, actions: tuple[Any, ...], done: bool, answer: int | None
) -> None:
    with ExitStack() as stack:
        faults = [stack.enter_context(server.fault(action, "create")) for action in actions]
        wire.send(OpCode.CREATE, creating("/a"))
        if answer is None:
            with pytest.raises(EOFError):
                wire.reply()
        else:
            assert wire.reply() == answer

    assert set(server.tree()) == ({"/a"} if done else set())
    assert [fault.hits for fault in faults] == [1] * len(faults)


def test_request_waits_for_release_of_all_holds(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    with (
        server.fault(hold(), client=wire.id) as one,
        server.fault(hold(), client=wire.id) as two,
        server.fault(error(NO_NODE), client=wire.id),
    ):
        wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
        server.wait_for(lambda: (one.hits, two.hits) == (1, 1))
        one.release()
        other.exists()
        assert not wire.has_something()
        two.release()
        assert wire.reply() == NO_NODE


def test_delays_of_several_faults_last_at_least_longest_delay(server: Server, wire: Wire) -> None:
    began = time.monotonic()

    with server.fault(delay(0.01)), server.fault(delay(0.04)):
        wire.exists()

    assert time.monotonic() - began >= 0.04


def test_recorded_operations_name_their_faults(server: Server, wire: Wire) -> None:
    with server.fault(error(NO_NODE), "exists"):
        wire.exists()
    wire.exists()

    marked, plain = server.ops(2)
    assert (marked.op, marked.path, marked.session, marked.error, marked.fault) == (
        "exists",
        "/",
        wire.id,
        NO_NODE,
        "error(NO_NODE)",
    )
    assert (plain.error, plain.fault) == (0, "")


# --- later requests, and other clients ---


def test_requests_after_held_one_keep_order(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    with server.fault(hold(), "create", client=wire.id, nth=1) as fault:
        for path in ("/a", "/a/b", "/a/b/c"):
            wire.send(OpCode.CREATE, creating(path))
        wire.send(OpCode.EXISTS, r.ExistsRequest("/a/b/c", False))
        server.wait_for(lambda: fault.hits == 1)
        assert other.exists() == 0
        assert not wire.has_something()
        assert dict(server.tree()) == {}
        fault.release()
        xids = [(r.ReplyHeader.decode(payload).xid, r.ReplyHeader.decode(payload).err) for payload in wire.payloads(4)]

    assert xids == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_requests_after_delayed_one_keep_order(server: Server, wire: Wire) -> None:
    with server.fault(delay(0.02), "create", nth=1):
        for path in ("/a", "/a/b", "/a/b/c"):
            wire.send(OpCode.CREATE, creating(path))
        xids = [r.ReplyHeader.decode(payload).xid for payload in wire.payloads(3)]

    assert xids == [1, 2, 3]
    assert set(server.tree()) == {"/a", "/a/b", "/a/b/c"}


def test_many_requests_after_held_one_are_answered(server: Server, wire: Wire) -> None:
    with server.fault(hold(), "create", nth=1) as fault:
        wire.send(OpCode.CREATE, creating("/a"))
        for _ in range(3000):
            wire.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
        server.wait_for(lambda: fault.hits == 1)
        fault.release()
        xids = [r.ReplyHeader.decode(payload).xid for payload in wire.payloads(3001)]

    assert xids == list(range(1, 3002))


def test_requests_after_dropped_one_are_lost(server: Server, wire: Wire) -> None:
    with server.fault(drop_request(), "create", nth=2):
        wire.link.sendall(
            b"".join(
                frame(r.RequestHeader(xid, OpCode.CREATE).encode() + creating(path).encode())
                for xid, path in enumerate(("/a", "/b", "/c"), 1)
            )
        )
        assert wire.reply() == 0
        with pytest.raises(EOFError):
            wire.reply()

    assert set(server.tree()) == {"/a"}


def test_hold_does_not_block_other_clients(server: Server, wire: Wire, wires: ExitStack) -> None:
    others = [wires.enter_context(Wire(server)).welcomed() for _ in range(5)]
    with server.fault(hold(), client=wire.id) as fault:
        wire.send(OpCode.CREATE, creating("/held"))
        server.wait_for(lambda: fault.hits == 1)
        for i, other in enumerate(others):
            assert other.ask(OpCode.CREATE, creating(f"/n{i}")) == 0
        assert set(server.tree()) == {f"/n{i}" for i in range(5)}


def test_held_client_gets_its_events(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    with server.fault(hold(), client=wire.id) as fault, Wire(server).welcomed() as other:
        wire.send(OpCode.PING)
        server.wait_for(lambda: fault.hits == 1)
        other.ask(OpCode.CREATE, creating("/a"))
        event = r.WatcherEvent.decode(wire.payload()[16:])

    assert (event.type, event.path) == (1, "/a")
