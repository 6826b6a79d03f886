"""What goes wrong on command: which requests and events a rule hits, what becomes of them, and of those behind them."""

from __future__ import annotations

import queue
import re
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError as KazooBadVersionError
from kazoo.exceptions import ConnectionLoss, SystemZookeeperError
from kazoo.exceptions import NoNodeError as KazooNoNodeError

from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record, int_at
from zoolet.protocol.errors import ErrorCode, NoNodeError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode
from zoolet.server import Server
from zoolet.server.testing import (
    close_after,
    delay,
    drop_request,
    error,
    hold,
    lose_reply,
    withhold_event,
)

DEADLINE_S: Final = 10.0  # only ever reached on failure
SOON_S: Final = 0.3  # for what is sent at once, or not at all
QUICK: Final = {"max_tries": -1, "delay": 0.001, "backoff": 1, "max_jitter": 0.0}  # how kazoo reconnects in these tests
NO_NODE: Final = -101
Dial = Callable[..., KazooClient]


# --- what the tests say it with ---


class Wire:
    """A session reduced to its socket.

    Args:
        server: Whom to connect to.
        timeout: The session timeout to ask for.
        session: The id and password of the session to go on with.
    """

    def __init__(self, server: Server, timeout: float = 30.0, session: tuple[int, bytes] = (0, bytes(16))) -> None:
        self.link = socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)
        self.stream = self.link.makefile("rb")
        self.link.sendall(frame(ConnectRequest(0, round(timeout * 1000), *session).encode()))
        self.events: list[tuple[int, str]] = []
        self.xid = 0
        self.id = 0
        self.password = bytes(16)

    def welcomed(self) -> Self:
        """Wait for the server's first words."""
        welcome = ConnectResponse.decode(self.payload())
        self.id, self.password = welcome.session_id, welcome.password or b""
        return self

    def payload(self) -> bytes:
        """Wait for one frame; the end of the connection is an EOFError."""
        head = self.stream.read(4)
        if len(head) < 4:
            raise EOFError
        return self.stream.read(int_at(head)[0])

    def send(self, op: OpCode, body: Record | None = None) -> None:
        """Send one request."""
        self.xid += 1
        self.link.sendall(frame(r.RequestHeader(self.xid, op).encode() + (body.encode() if body else b"")))

    def reply(self) -> int:
        """Wait for a reply, and give its error code; events that come before it are kept."""
        while True:
            payload = self.payload()
            header = r.ReplyHeader.decode(payload)
            if header.xid != -1:
                return header.err
            event = r.WatcherEvent.decode(payload[16:])
            self.events.append((event.type, event.path))

    def payloads(self, count: int) -> list[bytes]:
        """Wait for so many frames."""
        return [self.payload() for _ in range(count)]

    def ask(self, op: OpCode, body: Record | None = None) -> int:
        """Send one request and wait for its reply."""
        self.send(op, body)
        return self.reply()

    def has_something(self) -> bool:
        """Return whether something has come that was not read yet."""
        return bool(select.select([self.link], [], [], 0)[0])

    def ended(self) -> bool:
        """Return whether the server closes the connection, or has."""
        return bool(select.select([self.link], [], [], SOON_S)[0]) and not self.stream.read(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stream.close()
        self.link.close()


@pytest.fixture
def server() -> Iterator[Server]:
    """A server with the real clock."""
    with Server(seed=1) as server:
        yield server


@pytest.fixture
def kazoo(server: Server) -> Iterator[Dial]:
    """A function that makes KazooClients, connected unless told otherwise."""
    clients: list[KazooClient] = []

    def make(start: bool = True) -> KazooClient:
        client = KazooClient(server.hosts, timeout=30, connection_retry=QUICK)
        clients.append(client)
        if start:
            client.start(DEADLINE_S)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def client(kazoo: Dial) -> KazooClient:
    """A connected KazooClient."""
    return kazoo()


@pytest.fixture
def wires() -> Iterator[ExitStack]:
    """Where to enter connections, so that they are closed in the end."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def wire(server: Server, wires: ExitStack) -> Wire:
    """A session reduced to its socket."""
    entered: Wire = wires.enter_context(Wire(server)).welcomed()
    return entered


def creating(path: str) -> r.CreateRequest:
    """The body of a create."""
    return r.CreateRequest(path, b"", OPEN_ACL_UNSAFE, 0)


def exists(wire: Wire, path: str = "/") -> int:
    """Ask whether a node is there; give the error code."""
    return wire.ask(OpCode.EXISTS, r.ExistsRequest(path, False))


def answers(wire: Wire, count: int) -> list[int]:
    """Ask so many times; give the error codes."""
    return [exists(wire) for _ in range(count)]


# --- each action ---


def test_a_delayed_request_takes_longer(server: Server, client: KazooClient) -> None:
    began = time.monotonic()

    with server.fault(op="create", action=delay(0.05)) as fault:
        client.create("/a")

    assert time.monotonic() - began >= 0.05
    assert fault.hits == 1


@pytest.mark.parametrize(
    "code", [NO_NODE, ErrorCode.NO_NODE, NoNodeError, NoNodeError(), KazooNoNodeError, KazooNoNodeError()], ids=repr
)
def test_an_error_is_answered_and_nothing_is_done(server: Server, client: KazooClient, code: Any) -> None:
    with server.fault(op="create", action=error(code)), pytest.raises(KazooNoNodeError):
        client.create("/a")

    assert dict(server.tree()) == {}


def test_an_error_leaves_no_watch(server: Server, client: KazooClient) -> None:
    with server.fault(op="exists", action=error(ErrorCode.SYSTEM_ERROR)), pytest.raises(SystemZookeeperError):
        client.exists("/a", watch=print)

    assert server.watches() == ()


def test_a_dropped_request_is_not_done_and_the_connection_is_lost(server: Server, client: KazooClient) -> None:
    before = client.client_id
    with server.fault(op="create", action=drop_request()), pytest.raises(ConnectionLoss):
        client.create("/a")

    assert dict(server.tree()) == {}
    assert client.retry(client.exists, "/a") is None
    assert client.client_id == before


def test_a_lost_reply_is_of_a_request_that_was_done(server: Server, client: KazooClient) -> None:
    before = client.client_id
    with server.fault(op="create", action=lose_reply()), pytest.raises(ConnectionLoss):
        client.create("/a")

    assert set(server.tree()) == {"/a"}
    assert client.retry(client.exists, "/a") is not None
    assert client.client_id == before


def test_close_after_replies_and_closes(server: Server, client: KazooClient) -> None:
    states: queue.Queue[str] = queue.Queue()
    before = client.client_id
    client.add_listener(states.put)

    with server.fault(op="create", action=close_after()):
        assert client.create("/a") == "/a"

    assert [states.get(timeout=DEADLINE_S) for _ in range(2)] == ["SUSPENDED", "CONNECTED"]
    assert client.client_id == before


def test_a_held_request_waits_for_its_release(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(), kazoo()
    with server.fault(op="create", action=hold(), times=1) as fault:
        pending = client.create_async("/a")
        server.wait_for(lambda: fault.hits == 1)
        other.create("/b")
        assert not pending.ready()
        assert set(server.tree()) == {"/b"}
        fault.release()
        assert pending.get(timeout=DEADLINE_S) == "/a"


def test_the_action_releases_too_and_holds_no_more(server: Server, client: KazooClient) -> None:
    action = hold()
    with server.fault(op="create", action=action) as fault:
        pending = client.create_async("/a")
        server.wait_for(lambda: fault.hits == 1)
        action.release()
        assert pending.get(timeout=DEADLINE_S) == "/a"
        assert client.create("/b") == "/b"


def test_a_withheld_event_comes_late(server: Server, kazoo: Dial) -> None:
    client, other = kazoo(), kazoo()
    events: queue.Queue[Any] = queue.Queue()
    client.exists("/a", watch=events.put)

    with server.fault(action=withhold_event()) as fault:
        other.create("/a")
        client.exists("/")  # an event that was sent would have come before this reply
        assert events.empty()
        assert fault.hits == 1
        assert server.watches() == ()
        fault.release()
        event = events.get(timeout=DEADLINE_S)

    assert (event.type, event.path) == ("CREATED", "/a")


def test_a_withheld_event_that_was_not_released_is_lost(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with server.fault(action=withhold_event()):
        server.populate({"/unwatched": ""})
        wire.ask(OpCode.CREATE, creating("/a"))
    exists(wire)

    assert wire.events == []


def test_events_are_withheld_by_path_and_by_who_gets_them(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    for one in (wire, other):
        for path in ("/a", "/b"):
            one.ask(OpCode.EXISTS, r.ExistsRequest(path, True))

    with server.fault(path="/a", session=wire.id, action=withhold_event()) as fault:
        wire.ask(OpCode.CREATE, creating("/a"))
        wire.ask(OpCode.CREATE, creating("/b"))
        exists(other)

    assert (wire.events, other.events) == ([(1, "/b")], [(1, "/a"), (1, "/b")])
    assert (fault.hits, fault.seen) == (1, 1)


def test_events_are_released_in_their_order(server: Server, wire: Wire) -> None:
    assert wire.ask(OpCode.ADD_WATCH, r.AddWatchRequest("/", 1)) == 0

    with server.fault(action=withhold_event()) as fault:
        for path in ("/a", "/b", "/c"):
            wire.ask(OpCode.CREATE, creating(path))
        assert wire.events == []
        fault.release()
        exists(wire)

    assert (fault.hits, wire.events) == (3, [(1, "/a"), (1, "/b"), (1, "/c")])


def test_rules_about_requests_hit_no_events_and_the_reverse(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))

    with (
        server.fault(path="/a", action=delay(0)) as requests,
        server.fault(path="/a", action=withhold_event()) as events,
    ):
        wire.ask(OpCode.CREATE, creating("/a"))

    assert (requests.hits, events.hits) == (1, 1)


# --- what a rule matches ---


def test_a_name_means_all_op_codes_that_clients_use_for_it(server: Server, client: KazooClient) -> None:
    with server.fault(op="create", action=delay(0)) as fault:
        client.create("/a")
        client.create("/b", include_data=True)
        client.add_auth("digest", "u:p")
        client.transaction().commit()
        client.get("/a")
    with server.fault(op="getChildren", action=delay(0)) as reads:
        client.get_children("/")
        client.get_children("/", include_data=True)

    assert (fault.hits, reads.hits) == (2, 2)


@pytest.mark.parametrize("op", ["getData", "get_data", "GETDATA", "get", OpCode.GET_DATA, int(OpCode.GET_DATA)])
def test_an_operation_has_many_spellings(server: Server, client: KazooClient, op: Any) -> None:
    with server.fault(op=op, action=error(ErrorCode.SYSTEM_ERROR)) as fault:
        with pytest.raises(SystemZookeeperError):
            client.get("/")
        client.exists("/")

    assert (fault.hits, fault.seen) == (1, 1)


def test_an_op_code_means_itself_only(server: Server, client: KazooClient) -> None:
    with server.fault(op=OpCode.CREATE, action=delay(0)) as plain, server.fault(op=15, action=delay(0)) as second:
        client.create("/a")
        client.create("/b", include_data=True)

    assert (plain.hits, second.hits) == (1, 1)


@pytest.mark.parametrize(
    ("glob", "hit"),
    [
        ("/a", {"/a"}),
        ("/a*", {"/a", "/a/b", "/ab", "/a/b/c"}),
        ("/a/*", {"/a/b", "/a/b/c"}),
        ("*", {"/a", "/a/b", "/ab", "/a/b/c", "/"}),
        ("/*/c", {"/a/b/c"}),
        ("/a?", {"/ab"}),
        ("/[a-c]b", {"/ab"}),
        ("/A", set()),
    ],
)
def test_a_path_is_a_glob(server: Server, wire: Wire, glob: str, hit: set[str]) -> None:
    with server.fault(path=glob, action=error(ErrorCode.SYSTEM_ERROR)):
        found = {path for path in ("/", "/a", "/a/b", "/ab", "/a/b/c") if exists(wire, path) == -1}

    assert found == hit


def test_a_rule_with_a_path_is_not_about_requests_without_one(server: Server, wire: Wire) -> None:
    with server.fault(path="*", action=error(ErrorCode.SYSTEM_ERROR)) as fault:
        assert wire.ask(OpCode.PING) == 0

    assert (fault.hits, fault.seen) == (0, 0)


def test_a_rule_may_be_about_one_client(server: Server, kazoo: Dial) -> None:
    victim, other = kazoo(), kazoo()

    for who in (victim, victim.client_id[0]):
        with server.fault(session=who, action=error(NO_NODE)) as fault:
            with pytest.raises(KazooNoNodeError):
                victim.get("/")
            other.get("/")
        assert fault.hits == 1


def test_a_rule_may_be_about_a_client_that_is_yet_to_connect(server: Server, kazoo: Dial) -> None:
    victim, other = kazoo(start=False), kazoo()

    with server.fault(op="getData", session=victim, action=error(NO_NODE)) as fault:
        victim.start(DEADLINE_S)
        with pytest.raises(KazooNoNodeError):
            victim.get("/")
        other.get("/")

    assert fault.hits == 1


def test_all_sessions_are_all(server: Server, kazoo: Dial) -> None:
    clients = kazoo(), kazoo()

    with server.fault(op="getData", session="all", action=delay(0)) as fault:
        for client in clients:
            client.get("/")

    assert fault.hits == 2


@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        ({}, "xxxxxx"),
        ({"nth": 1}, "x....."),
        ({"nth": 3}, "..x..."),
        ({"nth": {2, 5}}, ".x..x."),
        ({"nth": [6, 1]}, "x....x"),
        ({"nth": range(2, 5)}, ".xxx.."),
        ({"nth": 7}, "......"),
        ({"times": 2}, "xx...."),
        ({"nth": {2, 3, 4}, "times": 2}, ".xx..."),
        ({"probability": 0}, "......"),
        ({"probability": 1}, "xxxxxx"),
        ({"probability": 1.0, "nth": 4}, "...x.."),
    ],
    ids=str,
)
def test_a_rule_counts(server: Server, wire: Wire, rule: dict[str, Any], hit: str) -> None:
    with server.fault(op="exists", action=error(ErrorCode.SYSTEM_ERROR), **rule) as fault:
        found = "".join("x" if code == -1 else "." for code in answers(wire, 6))

    assert found == hit
    assert (fault.hits, fault.seen) == (hit.count("x"), 6)


def test_nth_counts_only_what_op_path_and_session_match(server: Server, wire: Wire) -> None:
    with server.fault(op="exists", path="/", nth=2, action=error(ErrorCode.SYSTEM_ERROR)):
        wire.ask(OpCode.PING)
        exists(wire, "/other")
        assert [exists(wire), exists(wire), exists(wire)] == [0, -1, 0]


def hits_by_chance(seed: int, *, company: bool = False) -> str:
    """Return which of 64 requests a rule of even chances hits; in company another rule takes its chances, too."""
    with Server(seed=seed) as server, Wire(server).welcomed() as wire, ExitStack() as faults:
        faults.enter_context(server.fault(op="exists", probability=0.5, action=error(ErrorCode.SYSTEM_ERROR)))
        if company:
            faults.enter_context(server.fault(probability=0.5, action=delay(0)))
        return "".join("x" if code == -1 else "." for code in answers(wire, 64))


def test_one_seed_gives_the_same_hits_each_time() -> None:
    assert hits_by_chance(5) == hits_by_chance(5)


def test_other_rules_do_not_change_the_hits() -> None:
    assert hits_by_chance(5) == hits_by_chance(5, company=True)


def test_other_seeds_give_other_hits() -> None:
    stories = {hits_by_chance(seed) for seed in range(5)}

    assert len(stories) == 5
    assert all(16 < story.count("x") < 48 for story in stories)


def test_two_rules_have_their_own_chances(server: Server, wire: Wire) -> None:
    with (
        server.fault(op="exists", probability=0.5, action=delay(0)) as one,
        server.fault(op="exists", probability=0.5, action=delay(0)) as two,
    ):
        pairs = []
        for _ in range(64):
            before = one.hits, two.hits
            exists(wire)
            pairs.append((one.hits - before[0], two.hits - before[1]))

    assert set(pairs) == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_a_transaction_matches_by_any_of_its_paths(server: Server, client: KazooClient) -> None:
    def commit() -> list[Any]:
        transaction = client.transaction()
        transaction.create("/x")
        transaction.create("/y/z")
        transaction.check("/", -1)
        found: list[Any] = transaction.commit()
        return found

    for path in ("/x", "/y/*", "/"):
        with server.fault(op="multi", path=path, action=error(KazooBadVersionError)) as fault:
            with pytest.raises(KazooBadVersionError):
                commit()
            assert (fault.hits, fault.seen) == (1, 1)
    with server.fault(path="/z", action=error(KazooBadVersionError)) as fault:
        commit()
    assert (fault.hits, fault.seen) == (0, 0)


def test_a_transaction_is_a_multi_and_none_of_its_parts(server: Server, client: KazooClient) -> None:
    with server.fault(op="create", action=drop_request()) as parts, server.fault(op="multi", action=delay(0)) as whole:
        transaction = client.transaction()
        transaction.create("/x")
        assert transaction.commit() == ["/x"]

    assert (parts.hits, whole.hits) == (0, 1)


# --- connections ---


def test_connections_may_be_dropped_while_they_are_made(server: Server, kazoo: Dial) -> None:
    with server.fault(op="connect", times=2, action=drop_request()) as fault:
        client = kazoo()

    assert fault.hits == 2
    assert set(server.sessions()) == {client.client_id[0]}


def test_a_session_whose_first_reply_is_lost_is_there(server: Server, kazoo: Dial) -> None:
    with server.fault(op="connect", times=1, action=lose_reply()):
        client = kazoo()

    assert len(server.sessions()) == 2
    assert client.client_id[0] in server.sessions()


def test_a_connect_may_be_held(server: Server, kazoo: Dial) -> None:
    client = kazoo(start=False)
    with server.fault(op="connect", action=hold()) as fault:
        connected = client.start_async()
        server.wait_for(lambda: fault.hits == 1)
        assert not connected.is_set()
        assert dict(server.sessions()) == {}
        fault.release()
        assert connected.wait(DEADLINE_S)


def test_a_session_that_is_gone_on_with_may_be_refused_by_its_id(server: Server, wires: ExitStack) -> None:
    first = wires.enter_context(Wire(server)).welcomed()
    server.drop(first.id)

    with server.fault(op="connect", session=first.id, times=1, action=drop_request()) as fault:
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
def test_of_several_effects_the_first_in_the_list_counts(
    server: Server, wire: Wire, actions: tuple[Any, ...], done: bool, answer: int | None
) -> None:
    with ExitStack() as stack:
        faults = [stack.enter_context(server.fault(op="create", action=action)) for action in actions]
        wire.send(OpCode.CREATE, creating("/a"))
        if answer is None:
            with pytest.raises(EOFError):
                wire.reply()
        else:
            assert wire.reply() == answer

    assert set(server.tree()) == ({"/a"} if done else set())
    assert [fault.hits for fault in faults] == [1] * len(faults)


def test_a_request_waits_for_all_that_hold_it(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    with (
        server.fault(session=wire.id, action=hold()) as one,
        server.fault(session=wire.id, action=hold()) as two,
        server.fault(session=wire.id, action=error(NO_NODE)),
    ):
        wire.send(OpCode.EXISTS, r.ExistsRequest("/", False))
        server.wait_for(lambda: (one.hits, two.hits) == (1, 1))
        one.release()
        exists(other)
        assert not wire.has_something()
        two.release()
        assert wire.reply() == NO_NODE


def test_delays_of_several_rules_end_together_or_add_up_but_never_fall_short(server: Server, wire: Wire) -> None:
    began = time.monotonic()

    with server.fault(action=delay(0.01)), server.fault(action=delay(0.04)):
        exists(wire)

    assert time.monotonic() - began >= 0.04


def test_operations_bear_the_marks_of_their_faults(server: Server, wire: Wire) -> None:
    with server.fault(op="exists", action=error(NO_NODE)):
        exists(wire)
    exists(wire)

    marked, plain = server.ops(2)
    assert (marked.op, marked.path, marked.session, marked.error, marked.fault) == (
        "exists",
        "/",
        wire.id,
        NO_NODE,
        "error(NO_NODE)",
    )
    assert (plain.error, plain.fault) == (0, "")


# --- the end of a rule ---


def test_a_rule_ends_with_its_block(server: Server, wire: Wire) -> None:
    with server.fault(op="exists", action=error(NO_NODE)) as fault:
        assert answers(wire, 2) == [NO_NODE, NO_NODE]
    assert answers(wire, 2) == [0, 0]

    assert (fault.hits, fault.seen) == (2, 2)


def test_a_rule_applies_from_the_call_and_may_be_ended_by_hand(server: Server, wire: Wire) -> None:
    fault = server.fault(op="exists", action=error(NO_NODE))
    assert exists(wire) == NO_NODE
    fault.end()
    fault.end()

    assert exists(wire) == 0


def test_an_error_in_the_block_ends_the_rule_too(server: Server, wire: Wire) -> None:
    with pytest.raises(ZeroDivisionError), server.fault(op="exists", action=error(NO_NODE)):
        _ = 1 / 0

    assert exists(wire) == 0


def test_what_is_held_goes_on_when_the_block_is_left(server: Server, wire: Wire) -> None:
    with server.fault(op="create", action=hold()) as fault:
        wire.send(OpCode.CREATE, creating("/a"))
        server.wait_for(lambda: fault.hits == 1)

    assert wire.reply() == 0
    assert set(server.tree()) == {"/a"}


def test_a_held_request_of_a_client_that_left_is_not_done(server: Server) -> None:
    with server.fault(op="create", action=hold()) as fault:
        with Wire(server).welcomed() as leaver:
            leaver.send(OpCode.CREATE, creating("/a"))
            server.wait_for(lambda: fault.hits == 1)
        server.wait_for(lambda: not server.sessions()[leaver.id].connected)
    with Wire(server).welcomed() as other:
        assert exists(other) == 0

    assert dict(server.tree()) == {}


def test_a_reset_ends_all_rules(server: Server, wires: ExitStack) -> None:
    with server.fault(action=error(NO_NODE)):
        server.reset()
        after = wires.enter_context(Wire(server)).welcomed()
        assert exists(after) == 0


def test_a_strict_rule_must_hit(server: Server, wire: Wire) -> None:
    with server.fault(op="exists", action=delay(0), strict=True):
        exists(wire)

    with pytest.raises(AssertionError, match="getData"), server.fault(op="getData", action=delay(0), strict=True):
        exists(wire)


def test_a_strict_rule_hides_no_error_of_its_block(server: Server) -> None:
    with pytest.raises(ZeroDivisionError), server.fault(action=delay(0), strict=True):
        _ = 1 / 0


def test_repr_says_what_the_rule_is(server: Server) -> None:
    with server.fault(op="create", path="/a*", nth=2, action=error(NO_NODE)) as fault:
        text = repr(fault)

    assert all(part in text for part in ("create", "/a*", "2", "error(NO_NODE)"))


# --- those behind, and the others ---


def test_requests_behind_a_held_one_keep_their_order(server: Server, wire: Wire, wires: ExitStack) -> None:
    other = wires.enter_context(Wire(server)).welcomed()
    with server.fault(op="create", session=wire.id, nth=1, action=hold()) as fault:
        for path in ("/a", "/a/b", "/a/b/c"):
            wire.send(OpCode.CREATE, creating(path))
        wire.send(OpCode.EXISTS, r.ExistsRequest("/a/b/c", False))
        server.wait_for(lambda: fault.hits == 1)
        assert exists(other) == 0
        assert not wire.has_something()
        assert dict(server.tree()) == {}
        fault.release()
        xids = [(r.ReplyHeader.decode(payload).xid, r.ReplyHeader.decode(payload).err) for payload in wire.payloads(4)]

    assert xids == [(1, 0), (2, 0), (3, 0), (4, 0)]


def test_requests_behind_a_delayed_one_keep_their_order(server: Server, wire: Wire) -> None:
    with server.fault(op="create", nth=1, action=delay(0.02)):
        for path in ("/a", "/a/b", "/a/b/c"):
            wire.send(OpCode.CREATE, creating(path))
        xids = [r.ReplyHeader.decode(payload).xid for payload in wire.payloads(3)]

    assert xids == [1, 2, 3]
    assert set(server.tree()) == {"/a", "/a/b", "/a/b/c"}


def test_many_requests_behind_a_held_one_all_come_through(server: Server, wire: Wire) -> None:
    with server.fault(op="create", nth=1, action=hold()) as fault:
        wire.send(OpCode.CREATE, creating("/a"))
        for _ in range(3000):
            wire.send(OpCode.EXISTS, r.ExistsRequest("/a", False))
        server.wait_for(lambda: fault.hits == 1)
        fault.release()
        xids = [r.ReplyHeader.decode(payload).xid for payload in wire.payloads(3001)]

    assert xids == list(range(1, 3002))


def test_requests_behind_a_dropped_one_are_lost_with_it(server: Server, wire: Wire) -> None:
    with server.fault(op="create", nth=2, action=drop_request()):
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


def test_others_go_on_while_one_is_held(server: Server, wire: Wire, wires: ExitStack) -> None:
    others = [wires.enter_context(Wire(server)).welcomed() for _ in range(5)]
    with server.fault(session=wire.id, action=hold()) as fault:
        wire.send(OpCode.CREATE, creating("/held"))
        server.wait_for(lambda: fault.hits == 1)
        for i, other in enumerate(others):
            assert other.ask(OpCode.CREATE, creating(f"/n{i}")) == 0
        assert set(server.tree()) == {f"/n{i}" for i in range(5)}


def test_a_held_client_gets_its_events(server: Server, wire: Wire) -> None:
    wire.ask(OpCode.EXISTS, r.ExistsRequest("/a", True))
    with server.fault(session=wire.id, action=hold()) as fault, Wire(server).welcomed() as other:
        wire.send(OpCode.PING)
        server.wait_for(lambda: fault.hits == 1)
        other.ask(OpCode.CREATE, creating("/a"))
        event = r.WatcherEvent.decode(wire.payload()[16:])

    assert (event.type, event.path) == (1, "/a")


# --- bad input ---


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"op": "nonsense"}, "nonsense"),
        ({"op": ""}, "''"),
        ({"op": 999}, "999"),
        ({"op": 3.5}, "3.5"),
        ({"op": True}, "True"),
        ({"path": "a"}, "'a'"),
        ({"path": ""}, "''"),
        ({"path": 3}, "3"),
        ({"session": "bob"}, "bob"),
        ({"session": 1.5}, "1.5"),
        ({"nth": 0}, "0"),
        ({"nth": -1}, "-1"),
        ({"nth": []}, r"\[\]"),
        ({"nth": [0]}, "0"),
        ({"nth": "1"}, "'1'"),
        ({"probability": -0.1}, "-0.1"),
        ({"probability": 1.1}, "1.1"),
        ({"probability": float("nan")}, "nan"),
        ({"times": -1}, "-1"),
        ({"action": None}, "None"),
        ({"action": "hold"}, "hold"),
        ({"action": hold}, "hold"),
    ],
    ids=str,
)
def test_arguments_that_make_no_sense_are_named(server: Server, rule: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.fault(**{"action": delay(0), **rule})


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"nth": 1.5}, "1.5"),
        ({"nth": True}, "True"),
        ({"probability": "x"}, "x"),
        ({"times": "x"}, "x"),
        ({"times": 1.5}, "1.5"),
    ],
    ids=str,
)
def test_more_arguments_that_make_no_sense_are_named(server: Server, rule: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        server.fault(**{"action": delay(0), **rule})


def test_a_rule_with_bad_arguments_leaves_nothing_behind(server: Server, wire: Wire) -> None:
    with pytest.raises(ValueError):
        server.fault(op="exists", nth=0, action=error(NO_NODE))

    assert exists(wire) == 0


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
        pytest.param(
            lambda: delay("x"),  # type: ignore[arg-type]
            "x",
        ),
        pytest.param(lambda: delay(float("inf")), "inf"),
    ],
)
def test_actions_that_make_no_sense_are_named(make: Callable[[], object], named: str) -> None:
    with pytest.raises(ValueError, match=re.escape(named)):
        make()


def test_a_rule_that_holds_nothing_releases_nothing(server: Server) -> None:
    with server.fault(action=delay(0)) as fault, pytest.raises(ValueError, match="delay"):
        fault.release()


def test_one_action_serves_one_rule(server: Server) -> None:
    action = hold()
    with server.fault(op="create", action=action), pytest.raises(ValueError):
        server.fault(op="delete", action=action)
