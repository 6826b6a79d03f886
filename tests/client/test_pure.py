"""The parts of the client that do no I/O: connect strings, delays, codecs, the tables of watches, and the session."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

import zoolet.client
from zoolet.client import (
    AuthFailedError,
    Backoff,
    ClosedError,
    ConnectionLossError,
    Event,
    EventType,
    NoNodeError,
    SessionExpiredError,
    State,
    WatchOverflowError,
    serializers,
)
from zoolet.client.hosts import Address, Hosts
from zoolet.client.serializers import Serializer, UndecodableError
from zoolet.client.session import ConnectionBroken, Phase, Session
from zoolet.client.watches import Kind, Registration, SubtreeResync, WatchTable
from zoolet.protocol import records as r
from zoolet.protocol.codec import int_at, pack_int, put_str
from zoolet.protocol.enums import KeeperState, WatcherType
from zoolet.protocol.errors import ErrorCode, ZooKeeperError
from zoolet.protocol.framing import Frames, frame
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OpCode

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED


# --- connect strings ---


@pytest.mark.parametrize(
    ("text", "addresses", "chroot"),
    [
        ("a", [("a", 2181)], ""),
        ("a:1", [("a", 1)], ""),
        ("a:", [("a", 2181)], ""),
        ("a:65535", [("a", 65535)], ""),
        ("127.0.0.1:2182", [("127.0.0.1", 2182)], ""),
        ("a:1,b:2,c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        (" a:1 , b:2 ", [("a", 1), ("b", 2)], ""),
        (",a:1,,b:2,", [("a", 1), ("b", 2)], ""),
        ("a:1/", [("a", 1)], ""),
        ("a:1/app", [("a", 1)], "/app"),
        ("a:1,b:2/app/x", [("a", 1), ("b", 2)], "/app/x"),
        ("a:1/app ", [("a", 1)], "/app"),
        ("a:1/käse", [("a", 1)], "/käse"),
        ("[::1]", [("::1", 2181)], ""),
        ("[::1]:2182", [("::1", 2182)], ""),
        ("[2001:db8::1]:1,b/app", [("2001:db8::1", 1), ("b", 2181)], "/app"),
        ("zk-1.example.org:2181", [("zk-1.example.org", 2181)], ""),
    ],
)
def test_a_connect_string_is_read(text: str, addresses: list[tuple[str, int]], chroot: str) -> None:
    assert Hosts.parse(text) == Hosts(tuple(Address(*one) for one in addresses), chroot)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "name no server"),
        ("  ", "name no server"),
        (",,", "name no server"),
        ("/app", "name no server"),
        (":2181", "is no address"),
        ("a:x", "is no address"),
        ("a:-1", "is no address"),
        ("a:1:2", "is no address"),
        ("::1", "is no address"),
        ("[::1", "is no address"),
        ("[]:1", "is no address"),
        ("[::1]x", "is no address"),
        ("a b:1", "is no address"),
        ("a:0", "0 is no port"),
        ("a:65536", "65536 is no port"),
        ("a:1/x/", "bad chroot '/x/'"),
        ("a:1//x", "bad chroot '//x'"),
        ("a:1/../x", "bad chroot '/../x'"),
        ("a:1/x\0", "bad chroot"),
    ],
)
def test_a_connect_string_that_makes_no_sense_is_refused_by_name(text: str, why: str) -> None:
    with pytest.raises(ValueError) as caught:
        Hosts.parse(text)

    assert why in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("hosts", [None, 5, b"a:1", ["a:1"], ("a", 1)])
def test_hosts_that_are_no_string_are_refused(hosts: Any) -> None:
    with pytest.raises(TypeError, match="hosts must be a string"):
        Hosts.parse(hosts)


def test_addresses_are_shown_as_they_are_written() -> None:
    assert [str(one) for one in Hosts.parse("a,[::1]:5").addresses] == ["a:2181", "[::1]:5"]


def test_the_order_of_hosts_is_drawn_once_and_kept() -> None:
    hosts = Hosts.parse("a,b,c,d,e")
    turn = hosts.in_turn(Random(1))

    first, second = ([next(turn) for _ in range(5)] for _ in range(2))

    assert first == second
    assert sorted(first) == list(hosts.addresses)


def test_different_clients_begin_with_different_hosts() -> None:
    hosts = Hosts.parse("a,b,c,d,e")

    assert {next(hosts.in_turn(Random(seed))).host for seed in range(50)} == set("abcde")


# --- delays ---


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    delays = Backoff(first=1.0, factor=3.0, longest=10.0, jitter=0.0).delays(Random(1))

    assert [next(delays) for _ in range(5)] == [1.0, 3.0, 9.0, 10.0, 10.0]


def test_chance_shortens_and_lengthens_a_delay_by_its_part() -> None:
    rng = Random(1)
    found = [next(Backoff(first=1.0, jitter=0.4).delays(rng)) for _ in range(1000)]

    assert 0.6 <= min(found) < 0.65
    assert 1.35 < max(found) <= 1.4


def test_there_is_a_delay_between_tries_and_none_behind_the_last() -> None:
    assert len(list(Backoff(tries=1).delays(Random(1)))) == 0
    assert len(list(Backoff(tries=5).delays(Random(1)))) == 4


def test_no_delay_exceeds_the_longest() -> None:
    assert next(Backoff(first=9.0, longest=1.0, jitter=0.0).delays(Random(1))) == 1.0


@pytest.mark.parametrize(
    "options",
    [
        {"first": -1},
        {"factor": 0.5},
        {"longest": -1},
        {"jitter": 1.5},
        {"jitter": -0.1},
        {"tries": 0},
        {"first": float("nan")},
    ],
    ids=str,
)
def test_a_back_off_that_makes_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Backoff(**options)  # type: ignore[arg-type]


# --- codecs ---

VALUES: Final = [None, True, 0, -5, 1.5, "", "käse \N{SNOWMAN}", [], [1, [2]], {}, {"a": {"b": None}}]


@pytest.mark.parametrize("serializer", [serializers.json, serializers.msgpack], ids=lambda serializer: serializer.name)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_what_a_codec_writes_it_reads(serializer: Serializer, value: Any) -> None:
    assert serializer.read("/a", serializer.encode(value)) == value


def test_bytes_stay_bytes_and_msgpack_tells_them_from_text() -> None:
    assert serializers.msgpack.read("/a", serializers.msgpack.encode({"a": b"\xff", 1: "x"})) == {"a": b"\xff", 1: "x"}
    assert serializers.raw.encode(bytearray(b"ab")) == serializers.raw.encode(memoryview(b"ab")) == b"ab"
    assert serializers.raw.read("/a", None) == b""


@pytest.mark.parametrize(
    ("serializer", "data"),
    [
        (serializers.json, b"{"),
        (serializers.json, b"\xff"),
        (serializers.json, b"1 2"),
        (serializers.json, b"nonsense"),
        (serializers.msgpack, b"\xc1"),
        (serializers.msgpack, b"\x92\x01"),
        (serializers.msgpack, b"\x01\x01"),
        (serializers.msgpack, b"\xa1\xff"),
        (serializers.json, b"[" * 100_000),
    ],
    ids=lambda value: value.name if isinstance(value, Serializer) else repr(value[:10]),
)
def test_bytes_that_are_not_a_codec_s_are_refused_with_path_and_reason(serializer: Serializer, data: bytes) -> None:
    with pytest.raises(UndecodableError) as caught:
        serializer.read("/a", data)

    error = caught.value
    assert (error.path, error.serializer, error.data) == ("/a", serializer.name, data)
    assert error.reason
    assert str(error).startswith(f"/a: the data is no {serializer.name}: ")


def test_only_the_beginning_of_long_data_is_shown() -> None:
    assert len(str(UndecodableError("/a", "JSON", b"x" * 10_000, "why"))) < 120


@pytest.mark.parametrize(
    ("serializer", "value"),
    [
        (serializers.raw, "text"),
        (serializers.raw, 5),
        (serializers.raw, None),
        (serializers.json, object()),
        (serializers.json, b"bytes"),
        (serializers.json, float("inf")),
        (serializers.json, "\ud800"),
        (serializers.msgpack, object()),
        (serializers.msgpack, "\ud800"),
        (serializers.msgpack, 1 << 70),
    ],
    ids=lambda value: value.name if isinstance(value, Serializer) else type(value).__name__,
)
def test_a_value_that_a_codec_cannot_write_is_a_type_or_value_error(serializer: Serializer, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serializer.encode(value)


# --- watches ---


def watch(kind: Kind, path: str = "/a", limit: int = 100) -> Registration:
    return Registration(kind, path, limit, lambda: None)


def table(*watches: Registration) -> WatchTable:
    made = WatchTable()
    for one in watches:
        made.add(one)
    return made


def events(one: Registration) -> list[tuple[EventType, str]]:
    return [(event.type, event.path) for event in one.events]


@pytest.mark.parametrize(
    ("type_", "fired"),
    [
        (CREATED, {Kind.DATA, Kind.EXIST, Kind.PERSISTENT, Kind.RECURSIVE}),
        (CHANGED, {Kind.DATA, Kind.EXIST, Kind.PERSISTENT, Kind.RECURSIVE}),
        (DELETED, {Kind.DATA, Kind.EXIST, Kind.CHILD, Kind.PERSISTENT, Kind.RECURSIVE}),
        (CHILDREN, {Kind.CHILD, Kind.PERSISTENT}),
    ],
)
def test_an_event_reaches_the_kinds_it_is_for_and_uses_up_those_that_fire_once(
    type_: EventType, fired: set[Kind]
) -> None:
    watches = {kind: watch(kind) for kind in Kind}
    made = table(*watches.values())

    made.fire(Event(type_, "/a"))

    assert {kind for kind, one in watches.items() if one.events} == fired
    assert {one.kind for one in made} == {
        kind for kind in Kind if kind not in fired or kind in (Kind.PERSISTENT, Kind.RECURSIVE)
    }


@pytest.mark.parametrize(
    ("path", "reached"), [("/a", True), ("/a/b/c", True), ("/", False), ("/ab", False), ("/b/a", False)]
)
def test_a_recursive_watch_hears_of_its_node_and_all_below(path: str, reached: bool) -> None:
    one = watch(Kind.RECURSIVE)

    table(one).fire(Event(CHANGED, path))

    assert bool(one.events) is reached


def test_the_server_is_told_to_remove_only_what_nobody_needs_any_more() -> None:
    first, second = watch(Kind.PERSISTENT), watch(Kind.PERSISTENT)
    made = table(first, second)

    assert made.remove(first) is None
    assert made.remove(second) is WatcherType.ANY
    assert made.remove(second) is None


def test_a_watch_that_has_fired_is_not_removed_at_the_server() -> None:
    one = watch(Kind.DATA)
    made = table(one)
    made.fire(Event(CHANGED, "/a"))

    assert made.remove(one) is None


def test_one_event_too_many_drops_all_and_is_told_once() -> None:
    one = watch(Kind.PERSISTENT, limit=2)
    for _ in range(3):
        one.deliver(Event(CHANGED, "/a"))

    with pytest.raises(WatchOverflowError, match="/a: more than 2 events waited"):
        one.take()
    assert one.take() is None


def test_ten_thousand_watches_are_told_in_requests_below_128_kib() -> None:
    paths = [f"/some/rather/long/path/of/an/application/{number:05d}" for number in range(10_000)]
    kinds = [Kind.DATA, Kind.EXIST, Kind.CHILD, Kind.PERSISTENT, Kind.RECURSIVE]
    made = table(*[watch(kinds[number % 5], path) for number, path in enumerate(paths)])

    requests = made.batches(77)

    assert all(len(body) + 8 < 128 << 10 for _, body in requests)
    told: dict[Kind, list[str]] = {kind: [] for kind in kinds}
    for op, body in requests:
        if op == OpCode.SET_WATCHES2:
            said: Any = r.SetWatches2.decode(body)
            told[Kind.PERSISTENT] += said.persistentWatches
            told[Kind.RECURSIVE] += said.persistentRecursiveWatches
        else:
            said = r.SetWatches.decode(body)
        assert said.relativeZxid == 77
        told[Kind.DATA] += said.dataWatches
        told[Kind.EXIST] += said.existWatches
        told[Kind.CHILD] += said.childWatches
    assert told[Kind.RECURSIVE] == paths[4::5]
    assert told[Kind.PERSISTENT] == paths[3::5]
    assert set(told[Kind.DATA]) == set(paths[0::5]) | set(paths[3::5])  # those that stay catch up as those that fire
    assert set(told[Kind.CHILD]) == set(paths[2::5]) | set(paths[3::5])
    assert told[Kind.EXIST] == paths[1::5]


@pytest.mark.parametrize("name", ["é", "語", "\N{SNOWMAN}"])
def test_names_beyond_ascii_do_not_make_a_request_too_long(name: str) -> None:
    made = table(*[watch(Kind.DATA, f"/{name * 300}{number}") for number in range(1000)])

    assert all(len(body) + 8 < 128 << 10 for _, body in made.batches(0))


def test_a_path_that_is_watched_twice_is_told_once() -> None:
    ((op, body),) = table(watch(Kind.DATA), watch(Kind.DATA)).batches(5)

    assert op == OpCode.SET_WATCHES
    assert r.SetWatches.decode(body).dataWatches == ["/a"]


def test_without_watches_there_is_nothing_to_tell() -> None:
    assert WatchTable().batches(5) == []


def test_a_watch_whose_node_was_missing_catches_up_by_waiting_for_it_to_come() -> None:
    one = watch(Kind.PERSISTENT)
    one.there = False

    ((_, body),) = table(one).batches(5)
    said = r.SetWatches2.decode(body)

    assert (said.existWatches, said.dataWatches, said.childWatches) == (["/a"], [], [])
    assert said.persistentWatches == ["/a"]


class Tree:
    """What a census is told when it asks: children by path, and the zxids of each node's creation and last change."""

    def __init__(self, **nodes: tuple[int, int]) -> None:
        self.nodes = {"/" + name.replace("_", "/"): zxids for name, zxids in nodes.items()}

    def ask(self, path: str, answered: Callable[[r.GetChildren2Response | None], None]) -> None:
        if path not in self.nodes:
            answered(None)
            return
        czxid, mzxid = self.nodes[path]
        names = [one[len(path) + 1 :] for one in self.nodes if one.startswith(path + "/")]
        answered(
            r.GetChildren2Response(
                [name for name in names if "/" not in name], r.Stat(czxid, mzxid, 0, 0, 0, 0, 0, 0, 0, 0, mzxid)
            )
        )


def counted(tree: Tree) -> tuple[Registration, SubtreeResync]:
    one = watch(Kind.RECURSIVE)
    one.census = SubtreeResync(one, tree.ask)
    one.census.count(None)
    return one, one.census


def test_the_first_count_tells_nothing() -> None:
    one, _ = counted(Tree(a=(1, 1), a_b=(2, 2)))

    assert events(one) == []


def test_a_count_tells_what_came_changed_and_went() -> None:
    tree = Tree(a=(1, 1), a_b=(2, 2), a_c=(3, 3), a_c_d=(4, 4))
    one, census = counted(tree)

    tree.nodes = Tree(a=(1, 1), a_b=(2, 12), a_e=(13, 13), a_e_f=(14, 14)).nodes
    census.count(10)

    assert events(one) == [
        (DELETED, "/a/c/d"),
        (DELETED, "/a/c"),
        (CHANGED, "/a/b"),
        (CREATED, "/a/e"),
        (CREATED, "/a/e/f"),
    ]


def test_a_count_does_not_tell_again_what_live_events_told() -> None:
    tree = Tree(a=(1, 1))
    one, census = counted(tree)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b", 11))

    census.count(11)

    assert events(one) == [(CREATED, "/a/b")]


def test_a_node_that_an_event_without_zxid_told_of_is_not_said_to_have_been_deleted() -> None:
    tree = Tree(a=(1, 1))
    one, census = counted(tree)
    tree.nodes = Tree(a=(1, 1), a_b=(11, 11)).nodes
    one.deliver(Event(CREATED, "/a/b"))

    census.count(10)  # the zxid of the last reply

    assert (DELETED, "/a/b") not in events(one)


def test_what_went_during_an_absence_is_told_though_its_parent_goes_before_it_was_counted() -> None:
    tree = Tree(m=(1, 1), m_a=(2, 2), m_a_x=(3, 3))
    later: list[Callable[[], None]] = []
    one = watch(Kind.RECURSIVE, "/m")
    census = one.census = SubtreeResync(one, lambda path, answered: later.append(lambda: tree.ask(path, answered)))
    census.count(None)
    while later:
        later.pop(0)()

    del tree.nodes["/m/a/x"]  # while the client is away
    census.count(10)
    later.pop(0)()  # the answer about /m, which has /m/a still
    del tree.nodes["/m/a"]
    one.deliver(Event(DELETED, "/m/a", 12))
    later.pop(0)()  # the answer about /m/a, which is gone

    assert events(one) == [(DELETED, "/m/a/x"), (DELETED, "/m/a")]


def test_an_answer_of_a_connection_that_is_gone_counts_for_nothing() -> None:
    tree = Tree(a=(1, 1))
    late: list[Callable[[r.GetChildren2Response | None], None]] = []
    one = watch(Kind.RECURSIVE)
    census = one.census = SubtreeResync(one, lambda path, answered: late.append(answered))
    census.count(None)

    census.count(5)
    late[0](None)
    tree.ask("/a", late[1])

    assert events(one) == []
    assert census._known == {"/a": {}}


# --- the session ---


class Asked:
    """A call as the session sees it."""

    def __init__(self, op: int = OpCode.SET_DATA, *, idempotent: bool = False, deadline: float = 1e9) -> None:
        self.op = op
        self.body = put_str("/a")
        self.path: str | None = "/a"
        self.decode: Callable[[bytes, int, int], Any] = lambda buf, at, stop: buf[at:stop]
        self.deadline = deadline
        self.idempotent = idempotent
        self.xid = 0
        self.sent_at = 0.0
        self.then = None
        self.outcome: Any = None
        self.cancelled = False

    def done(self) -> bool:
        return self.outcome is not None or self.cancelled

    def set_result(self, result: Any) -> None:
        assert not self.done()
        self.outcome = result if result is not None else "nothing"

    def set_exception(self, exception: BaseException) -> None:
        assert not self.done()
        self.outcome = exception

    def refuse(self, error: ZooKeeperError) -> None:
        self.set_exception(error)


class Told:
    """A session, what it sent, and its states."""

    def __init__(self, **options: Any) -> None:
        self.states: list[State] = []
        self.session = Session(10_000, Random(1), on_state=lambda state, why: self.states.append(state), **options)

    def sent(self) -> list[bytes]:
        """Take what was sent since the last time, frame by frame."""
        payloads = Frames(None).feed(b"".join(self.session.out))
        self.session.out.clear()
        return payloads

    def heads(self) -> list[tuple[int, int]]:
        """Take xid and op code of what was sent."""
        return [(int_at(one)[0], int_at(one, 4)[0]) for one in self.sent()]

    def shake(self, now: float = 0.0, session_id: int = 9, read_only: bool = False) -> ConnectRequest:
        """Shake hands; give what the client said."""
        self.session.begin(now)
        (hello,) = self.sent()
        answer = ConnectResponse(10_000, session_id, b"p" * 16, read_only)
        self.session.receive(frame(answer.encode()), now)
        return ConnectRequest.decode(hello)

    def ask(self, *calls: Asked, now: float = 0.0) -> None:
        """Make calls."""
        for call in calls:
            self.session.submit(call)
        self.session.flush(now)

    def reply(self, xid: int, zxid: int = 0, err: int = 0, body: bytes = b"", now: float = 0.0) -> None:
        """Answer."""
        self.session.receive(frame(r.ReplyHeader(xid, zxid, err).encode() + body), now)


def event(type_: int, path: str) -> bytes:
    return r.WatcherEvent(type_, KeeperState.SYNC_CONNECTED, path).encode()


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
    told.session._xid = 2**31 - 3
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
    with pytest.raises(ConnectionBroken, match=r"nothing was heard of the server for 6\.6"):
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

    with pytest.raises(ConnectionBroken, match="makes no sense: a frame of 67108865 bytes"):
        told.session.receive(pack_int((64 << 20) + 1), 0.0)
