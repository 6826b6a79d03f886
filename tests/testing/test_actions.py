"""The actions of fault rules: their effect on requests and events."""

from __future__ import annotations

import queue
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, SystemZookeeperError
from kazoo.exceptions import NoNodeError as KazooNoNodeError
from support.waiting import DEADLINE_S
from support.wire import Wire, creating

from zoolet.protocol import records as r
from zoolet.protocol.errors import ErrorCode, NoNodeError
from zoolet.protocol.operations import OpCode
from zoolet.testing import Server, close_after, delay, drop_request, error, hold, lose_reply, withhold_event

NO_NODE: Final = -101
Dial = Callable[..., KazooClient]


# --- each action ---


def test_delayed_request_takes_at_least_its_delay(server: Server, client: KazooClient) -> None:
    began = time.monotonic()

    with server.fault(delay(0.05), "create") as fault:
        client.create("/a")

    assert time.monotonic() - began >= 0.05
    assert fault.hits == 1


def test_delays_with_jitter_differ_and_repeat_with_seed() -> None:
    def delays(seed: int) -> list[float]:
        with Server(seed=seed) as server:
            fault = server.fault(delay(1, jitter=2), "create")
            return [fault.delay() for _ in range(20)]

    once = delays(5)
    assert once == delays(5) != delays(6)
    assert len(set(once)) == 20
    assert all(1 <= seconds <= 3 for seconds in once)


@pytest.mark.parametrize(
    "code", [NO_NODE, ErrorCode.NO_NODE, NoNodeError, NoNodeError(), KazooNoNodeError, KazooNoNodeError()], ids=repr
)
def test_error_action_answers_without_execution(server: Server, client: KazooClient, code: Any) -> None:
    with server.fault(error(code), "create"), pytest.raises(KazooNoNodeError):
        client.create("/a")

    assert dict(server.tree()) == {}


def test_error_action_leaves_no_watch(server: Server, client: KazooClient) -> None:
    with server.fault(error(ErrorCode.SYSTEM_ERROR), "exists"), pytest.raises(SystemZookeeperError):
        client.exists("/a", watch=print)

    assert server.watches() == ()


def test_dropped_request_is_not_executed(server: Server, client: KazooClient) -> None:
    before = client.client_id
    with server.fault(drop_request(), "create"), pytest.raises(ConnectionLoss):
        client.create("/a")

    assert dict(server.tree()) == {}
    assert client.retry(client.exists, "/a") is None
    assert client.client_id == before


def test_request_with_lost_reply_is_executed(server: Server, client: KazooClient) -> None:
    before = client.client_id
    with server.fault(lose_reply(), "create"), pytest.raises(ConnectionLoss):
        client.create("/a")

    assert set(server.tree()) == {"/a"}
    assert client.retry(client.exists, "/a") is not None
    assert client.client_id == before


def test_close_after_action_sends_reply_and_closes_connection(server: Server, client: KazooClient) -> None:
    states: queue.Queue[str] = queue.Queue()
    before = client.client_id
    client.add_listener(states.put)

    with server.fault(close_after(), "create"):
        assert client.create("/a") == "/a"

    assert [states.get(timeout=DEADLINE_S) for _ in range(2)] == ["SUSPENDED", "CONNECTED"]
    assert client.client_id == before


def test_held_request_waits_for_release(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(server), kazoo(server)
    with server.fault(hold(), "create", times=1) as fault:
        pending = client.create_async("/a")
        server.wait_for(lambda: fault.hits == 1)
        other.create("/b")
        assert not pending.ready()
        assert set(server.tree()) == {"/b"}
        fault.release()
        assert pending.get(timeout=DEADLINE_S) == "/a"


def test_hold_action_stops_holding_after_release(server: Server, client: KazooClient) -> None:
    action = hold()
    with server.fault(action, "create") as fault:
        pending = client.create_async("/a")
        server.wait_for(lambda: fault.hits == 1)
        action.release()
        assert pending.get(timeout=DEADLINE_S) == "/a"
        assert client.create("/b") == "/b"


def test_withheld_event_is_delivered_on_release(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(server), kazoo(server)
    events: queue.Queue[Any] = queue.Queue()
    client.exists("/a", watch=events.put)

    with server.fault(withhold_event()) as fault:
        other.create("/a")
        client.exists("/")  # a sent event would arrive before this reply
        assert events.empty()
        assert fault.hits == 1
        assert server.watches() == ()
        fault.release()
        event = events.get(timeout=DEADLINE_S)

    assert (event.type, event.path) == ("CREATED", "/a")


def test_unreleased_withheld_event_is_lost(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with server.fault(withhold_event()):
        server.populate({"/unwatched": ""})
        wire.ask(OpCode.CREATE, creating("/a"))
    wire.exists()

    assert wire.events == []


def test_events_are_withheld_by_path_and_client(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    for one in (wire, other):
        for path in ("/a", "/b"):
            one.ask(OpCode.EXISTS, r.ExistsRequest(path, True))

    with server.fault(withhold_event(), path="/a", client=wire.id) as fault:
        wire.ask(OpCode.CREATE, creating("/a"))
        wire.ask(OpCode.CREATE, creating("/b"))
        other.exists()

    assert (wire.events, other.events) == ([(1, "/b")], [(1, "/a"), (1, "/b")])
    assert (fault.hits, fault.seen) == (1, 1)


def test_withheld_events_are_released_in_order(server: Server, wire: Wire) -> None:
    assert wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1)) == 0

    with server.fault(withhold_event()) as fault:
        for path in ("/a", "/b", "/c"):
            wire.ask(OpCode.CREATE, creating(path))
        assert wire.events == []
        fault.release()
        wire.exists()

    assert (fault.hits, wire.events) == (3, [(1, "/a"), (1, "/b"), (1, "/c")])


def test_fault_rule_hits_either_requests_or_events(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with (
        server.fault(delay(0), path="/a") as requests,
        server.fault(withhold_event(), path="/a") as events,
    ):
        wire.ask(OpCode.CREATE, creating("/a"))

    assert (requests.hits, events.hits) == (1, 1)


# --- invalid input ---


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: delay(-1), "-1"),
        (lambda: delay(float("nan")), "nan"),
        (lambda: error(12345), "12345"),
        (lambda: error(0), "0"),
        (lambda: error("x"), "x"),  # type: ignore[arg-type]
        (lambda: error(None), "None"),  # type: ignore[arg-type]
        (lambda: error(ValueError), "ValueError"),  # type: ignore[arg-type]
        (lambda: delay(1).release(), "delay"),
        (lambda: error(NO_NODE).release(), "error"),
        (lambda: drop_request().release(), "drop_request"),
        (lambda: delay("x"), "x"),  # type: ignore[arg-type]
        (lambda: delay(float("inf")), "inf"),
    ],
    ids=[
        "delay -1",
        "delay nan",
        "error 12345",
        "error 0",
        "error x",
        "error None",
        "error ValueError",
        "delay released",
        "error released",
        "drop_request released",
        "delay x",
        "delay inf",
    ],
)
def test_error_names_invalid_action_argument(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        make()


def test_release_of_fault_that_holds_nothing_is_refused(server: Server) -> None:
    with server.fault(delay(0)) as fault, pytest.raises(ValueError, match="delay"):
        fault.release()


def test_action_cannot_be_used_for_second_rule(server: Server) -> None:
    action = hold()
    with server.fault(action, "create"), pytest.raises(ValueError):
        server.fault(action, "delete")
