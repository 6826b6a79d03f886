"""The history over HTTP: its filter, repeated sets in one row, and entries that are kept for days."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from support.calls import connected, creating, deleting, multi
from support.console import STRETCH, Console, create_together, longest_stretch

from zoolet.server.admin import lasting as module
from zoolet.server.admin.history import TransactionHistory
from zoolet.server.admin.lasting import Lasting
from zoolet.server.core.engine import Engine

HOUR: Final = 3_600_000
"""Milliseconds of an hour."""


def wait(engine: Engine, milliseconds: int) -> None:
    """Advance the time of an engine."""
    engine.set_time(engine.now + milliseconds, engine.monotonic_ms + milliseconds)


def shown(answer: Any) -> list[tuple[str, int]]:
    """Return the path of the first change of each row, or its kind, and how often it occurred."""
    return [(row["changes"][0][1] if row["changes"] else row["kind"], row["times"]) for row in answer["entries"]]


def filled() -> Console:
    """Return the console of a server with changes of each kind, a second apart."""
    console = Console()
    peer = connected(console.engine)
    for call in (
        lambda: peer.create("/app", b""),
        lambda: peer.create("/app/x", b"1", 1),
        lambda: peer.set("/app/x", b"22"),
        lambda: peer.create("/apple", b""),
        lambda: multi(peer, creating("/app/y"), deleting("/apple")),
        lambda: peer.close(),
    ):
        wait(console.engine, 1000)
        call()
    return console


# --- the filter ---


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("path=/app", ["/app"]),
        ("path=/app&below=1", ["/app/x", "/app/y", "/app/x", "/app/x", "/app"]),
        ("path=/&below=1&kind=set", ["/app/x"]),
        ("kind=delete", ["/app/x", "/apple"]),
        ("kind=delete&path=/app&below=1", ["/app/x"]),
        ("kind=create", ["/app/y", "/apple", "/app/x", "/app"]),
        ("kind=start", ["opened"]),
        ("kind=end", ["/app/x"]),
        ("kind=acl", []),
        ("session=0x7", []),
    ],
)
async def test_history_is_filtered_by_kind_and_prefix(query: str, expected: list[str]) -> None:
    console = filled()

    assert [path for path, _ in shown(await console.facts(f"history?{query}"))] == expected


async def test_history_is_filtered_by_time() -> None:
    console = filled()
    last = console.engine.now

    found = await console.facts(f"history?since={last - 2000}&until={last - 1000}")

    assert [row["time"] for row in found["entries"]] == [last - 1000, last - 2000]


@pytest.mark.parametrize("query", ["kind=none", "since=-1", "until=x", "since=9999999999999999"])
async def test_invalid_filter_is_refused(query: str) -> None:
    assert (await Console().refusal(f"/console/api/history?{query}")).status == 400


# --- repeated sets ---


async def test_repeated_sets_of_a_node_are_one_row() -> None:
    console = Console()
    one, other = connected(console.engine), connected(console.engine)
    one.create("/a", b"")
    one.create("/b", b"")
    started = console.engine.now
    for number in range(300):
        wait(console.engine, 10)
        one.set("/a", b"x" * number)
        other.set("/b", b"")
    other.set("/a", b"")
    one.delete("/b")
    one.create("/b", b"")
    one.set("/b", b"")

    folded = await console.facts("history?fold=1")

    assert shown(folded)[:6] == [("/b", 1), ("/b", 1), ("/b", 1), ("/a", 1), ("/b", 300), ("/a", 300)]
    run = folded["entries"][5]
    assert (run["first"], run["time"], run["changes"]) == (started + 10, started + 3000, [["set", "/a", 299]])
    assert len((await console.facts("history?limit=100"))["entries"]) == 100


async def test_earlier_rows_follow_without_gap() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/a", b"")
    for number in range(30):
        peer.create(f"/{number}", b"")
        peer.set("/a", b"")
        peer.set("/a", b"")
    rows, before = [], ""
    while before is not None:
        answer = await console.facts(f"history?fold=1&limit=7&before={before}")
        rows += shown(answer)
        before = answer["next"]

    assert sum(times for path, times in rows if path == "/a") == 61
    assert [path for path, _ in rows if path != "/a"] == [f"/{number}" for number in reversed(range(30))] + ["opened"]


# --- for days ---


async def test_old_deletion_is_explained_despite_writes() -> None:
    """A 36th of 100 writes per second and of 10,000 kept transactions: nine sets for each turn of a lock."""
    console = Console(history=False)
    history = TransactionHistory(console.engine, 10_000 // 36)
    console.source._history = history
    culprit, peer = connected(console.engine, host="10.0.0.7"), connected(console.engine)
    for path in ("/app", "/app/x", "/busy", "/locks"):
        peer.create(path, b"")
    culprit.delete("/app/x")
    deleted = console.engine.now
    for number in range(2 * 3_600 * 100 // 36):
        wait(console.engine, 360)
        if number % 10:
            peer.set("/busy", b"x")
        else:
            peer.delete(peer.create("/locks/9c7e980a02c6499346ac9bf4e550501a__lock__", b"", 3))
        history.limit_memory()

    gone = (await console.facts("history?path=/app/x"))["entries"]

    assert [(row["kind"], row["time"]) for row in gone] == [("delete", deleted)]
    assert gone[0]["address"].startswith("10.0.0.7:")
    assert console.engine.now - deleted == 2 * HOUR
    assert len(history) == 10_000 // 36


def entry_of(path: str, number: int, kind: str = "delete") -> tuple[Any, ...]:
    """Return the fields of an entry that deletes a node."""
    return number, 1000, 5, "10.0.0.7:40000", kind, (("delete", path, None),), 0, "", number


def test_locks_do_not_displace_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 200_000)
    ring = Lasting()
    ring.add(entry_of("/app/x", 1))
    for number in range(2, 40_000):
        ring.add(entry_of(f"/locks/{number * 7919 % 99991:032x}__lock__{number:010}", number))

    rows = [row for row in ring.entries("/app/x") if row is not None]

    assert [(row[-1], row[5]) for row in rows] == [(1, [["delete", "/app/x", None]])]
    assert ring.size <= 2 * (200_000 + module.CHUNK_BYTES)
    assert 1_000 < len(ring) < 20_000


def test_16_mb_hold_over_100_000_deletions() -> None:
    ring = Lasting()
    for number in range(1, 20_001):
        ring.add(entry_of(f"/services/{number * 7919 % 99991:016x}/endpoint", number))

    assert len(ring) == 20_000
    assert ring.size / len(ring) < module.MAX_BYTES / 100_000


def test_rings_are_read_in_order_from_any_number() -> None:
    ring = Lasting()
    for number in range(1, 3_001):
        ring.add(entry_of(f"/{'n' if number % 3 else 'n0123456789'}", number))

    assert [row[-1] for row in ring.entries(before=2_000) if row] == list(range(1_999, 0, -1))


def test_only_ends_deletions_and_acl_changes_are_kept() -> None:
    ring = Lasting()
    ring.add(
        (*entry_of("/a", 1)[:4], "multi", (("set", "/s", 1), ("set ACL", "/a", None), ("delete", "/d", None)), 2, "", 1)
    )
    ring.add((*entry_of("/a", 2)[:4], "set", (("set", "/s", 1),), 0, "", 2))
    ring.add((*entry_of("/a", 3)[:4], "closed", (), 0, "", 3))
    ring.add((*entry_of("/a", 4)[:4], "opened", (), 0, "", 4))

    closed, of_multi = [row for row in ring.entries() if row is not None]

    assert closed[4] == "closed"
    assert of_multi[5:7] == [[["set ACL", "/a", None], ["delete", "/d", None]], 3]


def test_kept_part_of_large_end_is_bounded() -> None:
    ring = Lasting()
    parts = tuple(("delete", f"/{number:03}{'x' * 980}", None) for number in range(1_000))
    ring.add((*entry_of("", 1)[:4], "closed", parts, 0, "", 1))

    (row,) = [row for row in ring.entries() if row is not None]

    assert (len(row[5]), row[6]) == (32, 968)


@pytest.mark.slow
async def test_filters_of_large_history_pause() -> None:
    console = Console()
    history = TransactionHistory(console.engine, 10_000)
    console.source._history = history
    peer = connected(console.engine)
    for batch in range(40):
        create_together(peer, [f"/{batch}-{number}{'x' * 300}" for number in range(500)])
    for number in range(9_000):
        peer.create(f"/n{number}", b"", 1)
    for number in range(3_000):
        peer.delete(f"/n{number}")
    peer.close()
    await console.facts("history?limit=1")
    for number in range(20_000):
        history.lasting.add(entry_of(f"/gone/{number:x}/node", -1))

    for query in ("path=/gone&below=1&kind=acl", "path=/n8999", "kind=set&fold=1", "limit=500&fold=1"):
        assert await longest_stretch(lambda query=query: console.ask(f"/console/api/history?{query}")) < STRETCH  # type: ignore[misc]


async def test_log_files_are_filtered_and_folded() -> None:
    console = Console()
    log = [(5, 1, zxid, 1000 + zxid, 5, [(5, "/a/b", 1)]) for zxid in range(0x40, 0x20, -1)]

    def past(path: Any, session: Any, before: int, limit: int, matches: Any) -> list[Any]:
        return [each for each in log if each[2] < before and matches(each)][:limit]

    console.source._past = past

    answer = await console.facts("history?files=1&path=/a&below=1&fold=1&before=0x40&until=1060&kind=set")
    nothing = await console.facts("history?files=1&path=/a&before=0x40&kind=delete&below=1")

    assert shown(answer) == [("/a/b", 28)]
    assert (answer["files"], nothing["files"]) == ("0x21", None)


async def test_answer_has_start_of_log_files() -> None:
    console = filled()
    assert json.dumps((await console.facts("history"))["files"]) == "null"
    console.source._past = lambda *arguments: []

    everything, two = await console.facts("history"), await console.facts("history?limit=2")

    assert everything["files"] == everything["entries"][-1]["zxid"]
    assert two["files"] == two["entries"][-1]["zxid"]
    assert int(two["next"], 16) == two["entries"][-1]["number"]
