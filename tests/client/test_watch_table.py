"""The table of watches: which watches an event reaches, which are removed on the server, and how they are restored."""

from __future__ import annotations

from typing import Any

import pytest
from support.registrations import make_registration, make_table

from zoolet.client import Event, EventType, WatchOverflowError
from zoolet.client.wire.watches import WatchKind, WatchTable
from zoolet.protocol import records as r
from zoolet.protocol.enums import WatcherType
from zoolet.protocol.operations import OpCode

CREATED = EventType.NODE_CREATED
DELETED = EventType.NODE_DELETED
CHANGED = EventType.NODE_DATA_CHANGED
CHILDREN = EventType.NODE_CHILDREN_CHANGED


@pytest.mark.parametrize(
    ("type_", "fired"),
    [
        (CREATED, {WatchKind.DATA, WatchKind.EXIST, WatchKind.PERSISTENT, WatchKind.RECURSIVE}),
        (CHANGED, {WatchKind.DATA, WatchKind.EXIST, WatchKind.PERSISTENT, WatchKind.RECURSIVE}),
        (DELETED, {WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD, WatchKind.PERSISTENT, WatchKind.RECURSIVE}),
        (CHILDREN, {WatchKind.CHILD, WatchKind.PERSISTENT}),
    ],
)
def test_event_fires_matching_kinds_of_watch(type_: EventType, fired: set[WatchKind]) -> None:
    watches = {kind: make_registration(kind) for kind in WatchKind}
    made = make_table(*watches.values())

    made.fire(Event(type_, "/a"))

    assert {kind for kind, one in watches.items() if one.events} == fired
    assert {one.kind for one in made} == {
        kind for kind in WatchKind if kind not in fired or kind in (WatchKind.PERSISTENT, WatchKind.RECURSIVE)
    }


@pytest.mark.parametrize(
    ("path", "reached"), [("/a", True), ("/a/b/c", True), ("/", False), ("/ab", False), ("/b/a", False)]
)
def test_recursive_watch_covers_node_and_descendants(path: str, reached: bool) -> None:
    one = make_registration(WatchKind.RECURSIVE)

    make_table(one).fire(Event(CHANGED, path))

    assert bool(one.events) is reached


def test_server_watch_is_removed_only_with_its_last_registration() -> None:
    first, second = make_registration(WatchKind.PERSISTENT), make_registration(WatchKind.PERSISTENT)
    made = make_table(first, second)

    assert made.remove(first) is None
    assert made.remove(second) is WatcherType.ANY
    assert made.remove(second) is None


def test_fired_one_shot_watch_is_not_removed_again_at_server() -> None:
    one = make_registration(WatchKind.DATA)
    made = make_table(one)
    made.fire(Event(CHANGED, "/a"))

    assert made.remove(one) is None


def test_watch_overflow_drops_all_events_and_is_raised_once() -> None:
    one = make_registration(WatchKind.PERSISTENT, limit=2)
    for _ in range(3):
        one.deliver(Event(CHANGED, "/a"))

    with pytest.raises(WatchOverflowError, match="/a: more than 2 events were waiting"):
        one.pop()
    assert one.pop() is None


def test_ten_thousand_watches_fit_into_requests_below_128_kib() -> None:
    paths = [f"/some/rather/long/path/of/an/application/{number:05d}" for number in range(10_000)]
    kinds = [WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD, WatchKind.PERSISTENT, WatchKind.RECURSIVE]
    made = make_table(*[make_registration(kinds[number % 5], path) for number, path in enumerate(paths)])

    requests = made.batches(77)

    assert all(len(body) + 8 < 128 << 10 for _, body in requests)
    delivered: dict[WatchKind, list[str]] = {kind: [] for kind in kinds}
    for op, body in requests:
        if op == OpCode.SET_WATCHES2:
            reported: Any = r.SetWatches2.decode(body)
            delivered[WatchKind.PERSISTENT] += reported.persistentWatches
            delivered[WatchKind.RECURSIVE] += reported.persistentRecursiveWatches
        else:
            reported = r.SetWatches.decode(body)
        assert reported.relativeZxid == 77
        delivered[WatchKind.DATA] += reported.dataWatches
        delivered[WatchKind.EXIST] += reported.existWatches
        delivered[WatchKind.CHILD] += reported.childWatches
    assert delivered[WatchKind.RECURSIVE] == paths[4::5]
    assert delivered[WatchKind.PERSISTENT] == paths[3::5]
    assert set(delivered[WatchKind.DATA]) == set(paths[0::5]) | set(
        paths[3::5]
    )  # a persistent watch is also restored as data watch, which fires for a missed change
    assert set(delivered[WatchKind.CHILD]) == set(paths[2::5]) | set(paths[3::5])
    assert delivered[WatchKind.EXIST] == paths[1::5]


@pytest.mark.parametrize("name", ["é", "語", "\N{SNOWMAN}"])
def test_non_ascii_paths_keep_requests_below_128_kib(name: str) -> None:
    made = make_table(*[make_registration(WatchKind.DATA, f"/{name * 300}{number}") for number in range(1000)])

    assert all(len(body) + 8 < 128 << 10 for _, body in made.batches(0))


def test_path_watched_twice_is_restored_once() -> None:
    ((op, body),) = make_table(make_registration(WatchKind.DATA), make_registration(WatchKind.DATA)).batches(5)

    assert op == OpCode.SET_WATCHES
    assert r.SetWatches.decode(body).dataWatches == ["/a"]


def test_empty_watch_table_needs_no_request() -> None:
    assert WatchTable().batches(5) == []


def test_watch_of_missing_node_waits_for_its_creation() -> None:
    one = make_registration(WatchKind.PERSISTENT)
    one.exists = False

    ((_, body),) = make_table(one).batches(5)
    reported = r.SetWatches2.decode(body)

    assert (reported.existWatches, reported.dataWatches, reported.childWatches) == (["/a"], [], [])
    assert reported.persistentWatches == ["/a"]
