"""The history over HTTP: its filter, repeated sets in one row, and entries that are kept for days."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from support.calls import connect_peer, create_op, delete_op, multi
from support.console import STRETCH_S, Console, create_together, longest_stretch

from zoolet.server.admin import lasting as module
from zoolet.server.admin.history import TransactionHistory
from zoolet.server.admin.lasting import HistoryArchive
from zoolet.server.core.engine import Engine

HOUR_MS: Final = 3_600_000
"""Milliseconds of an hour."""


def advance_time(engine: Engine, milliseconds: int) -> None:
    """Advance the time of an engine."""
    engine.set_time(engine.now + milliseconds, engine.monotonic_ms + milliseconds)


def row_summaries(answer: Any) -> list[tuple[str, int]]:
    """Return for each row the path of its first change, or its kind, and the number of repetitions."""
    return [(row["changes"][0][1] if row["changes"] else row["kind"], row["times"]) for row in answer["entries"]]


def console_with_changes() -> Console:
    """Return the console of a server with changes of each kind, a second apart."""
    console = Console()
    peer = connect_peer(console.engine)
    for call in (
        lambda: peer.create("/app", b""),
        lambda: peer.create("/app/x", b"1", 1),
        lambda: peer.set("/app/x", b"22"),
        lambda: peer.create("/apple", b""),
        lambda: multi(peer, create_op("/app/y"), delete_op("/apple")),
        lambda: peer.close(),
    ):
        advance_time(console.engine, 1000)
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
    console = console_with_changes()

    assert [path for path, _ in row_summaries(await console.facts(f"history?{query}"))] == expected


async def test_history_is_filtered_by_time() -> None:
    console = console_with_changes()
    last = console.engine.now

    found = await console.facts(f"history?since={last - 2000}&until={last - 1000}")

    assert [row["time"] for row in found["entries"]] == [last - 1000, last - 2000]


@pytest.mark.parametrize("query", ["kind=none", "since=-1", "until=x", "since=9999999999999999"])
async def test_invalid_history_filter_is_refused(query: str) -> None:
    assert (await Console().refusal(f"/console/api/history?{query}")).status == 400


# --- repeated sets ---


async def test_repeated_sets_of_node_are_one_history_row() -> None:
    console = Console()
    one, other = connect_peer(console.engine), connect_peer(console.engine)
    one.create("/a", b"")
    one.create("/b", b"")
    started = console.engine.now
    for number in range(300):
        advance_time(console.engine, 10)
        one.set("/a", b"x" * number)
        other.set("/b", b"")
    other.set("/a", b"")
    one.delete("/b")
    one.create("/b", b"")
    one.set("/b", b"")

    folded = await console.facts("history?fold=1")

    assert row_summaries(folded)[:6] == [("/b", 1), ("/b", 1), ("/b", 1), ("/a", 1), ("/b", 300), ("/a", 300)]
    run = folded["entries"][5]
    assert (run["first"], run["time"], run["changes"]) == (started + 10, started + 3000, [["set", "/a", 299]])
    assert len((await console.facts("history?limit=100"))["entries"]) == 100


async def test_earlier_history_rows_are_returned_without_gap() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/a", b"")
    for number in range(30):
        peer.create(f"/{number}", b"")
        peer.set("/a", b"")
        peer.set("/a", b"")
    rows, before = [], ""
    while before is not None:
        answer = await console.facts(f"history?fold=1&limit=7&before={before}")
        rows += row_summaries(answer)
        before = answer["next"]

    assert sum(times for path, times in rows if path == "/a") == 61
    assert [path for path, _ in rows if path != "/a"] == [f"/{number}" for number in reversed(range(30))] + ["opened"]


# --- entries that are kept for days ---


async def test_old_deletion_is_explained_despite_many_later_writes() -> None:
    """A 36th of 100 writes per second and of 10,000 kept transactions: nine sets for each turn of a lock."""
    console = Console(history=False)
    history = TransactionHistory(console.engine, 10_000 // 36)
    console.source._history = history
    culprit, peer = connect_peer(console.engine, host="10.0.0.7"), connect_peer(console.engine)
    for path in ("/app", "/app/x", "/busy", "/locks"):
        peer.create(path, b"")
    culprit.delete("/app/x")
    deleted = console.engine.now
    for number in range(2 * 3_600 * 100 // 36):
        advance_time(console.engine, 360)
        if number % 10:
            peer.set("/busy", b"x")
        else:
            peer.delete(peer.create("/locks/9c7e980a02c6499346ac9bf4e550501a__lock__", b"", 3))
        history.limit_memory()

    gone = (await console.facts("history?path=/app/x"))["entries"]

    assert [(row["kind"], row["time"]) for row in gone] == [("delete", deleted)]
    assert gone[0]["address"].startswith("10.0.0.7:")
    assert console.engine.now - deleted == 2 * HOUR_MS
    assert len(history) == 10_000 // 36


def deletion_entry(path: str, number: int, kind: str = "delete") -> tuple[Any, ...]:
    """Return the fields of an entry that deletes a node."""
    return number, 1000, 5, "10.0.0.7:40000", kind, (("delete", path, None),), 0, "", number


def test_lock_deletions_do_not_displace_deletions_of_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 200_000)
    ring = HistoryArchive()
    ring.add(deletion_entry("/app/x", 1))
    for number in range(2, 40_000):
        ring.add(deletion_entry(f"/locks/{number * 7919 % 99991:032x}__lock__{number:010}", number))

    rows = [row for row in ring.entries("/app/x") if row is not None]

    assert [(row[-1], row[5]) for row in rows] == [(1, [["delete", "/app/x", None]])]
    assert ring.size <= 2 * (200_000 + module.CHUNK_BYTES)
    assert 1_000 < len(ring) < 20_000


def test_history_of_100_000_deletions_fits_into_16_mb() -> None:
    ring = HistoryArchive()
    for number in range(1, 20_001):
        ring.add(deletion_entry(f"/services/{number * 7919 % 99991:016x}/endpoint", number))

    assert len(ring) == 20_000
    assert ring.size / len(ring) < module.MAX_BYTES / 100_000


def test_archived_history_entries_are_read_backwards_from_number() -> None:
    ring = HistoryArchive()
    for number in range(1, 3_001):
        ring.add(deletion_entry(f"/{'n' if number % 3 else 'n0123456789'}", number))

    assert [row[-1] for row in ring.entries(before=2_000) if row] == list(range(1_999, 0, -1))


def test_history_archive_keeps_only_lasting_kinds_of_changes() -> None:
    ring = HistoryArchive()
    ring.add(
        (
            *deletion_entry("/a", 1)[:4],
            "multi",
            (("set", "/s", 1), ("set ACL", "/a", None), ("delete", "/d", None)),
            2,
            "",
            1,
        )
    )
    ring.add((*deletion_entry("/a", 2)[:4], "set", (("set", "/s", 1),), 0, "", 2))
    ring.add((*deletion_entry("/a", 3)[:4], "closed", (), 0, "", 3))
    ring.add((*deletion_entry("/a", 4)[:4], "opened", (), 0, "", 4))

    closed, of_multi = [row for row in ring.entries() if row is not None]

    assert closed[4] == "closed"
    assert of_multi[5:7] == [[["set ACL", "/a", None], ["delete", "/d", None]], 3]


def test_history_archive_keeps_limited_part_of_session_close() -> None:
    ring = HistoryArchive()
    parts = tuple(("delete", f"/{number:03}{'x' * 980}", None) for number in range(1_000))
    ring.add((*deletion_entry("", 1)[:4], "closed", parts, 0, "", 1))

    (row,) = [row for row in ring.entries() if row is not None]

    assert (len(row[5]), row[6]) == (32, 968)


@pytest.mark.slow
async def test_filtering_of_large_history_pauses() -> None:
    console = Console()
    history = TransactionHistory(console.engine, 10_000)
    console.source._history = history
    peer = connect_peer(console.engine)
    for batch in range(40):
        create_together(peer, [f"/{batch}-{number}{'x' * 300}" for number in range(500)])
    for number in range(9_000):
        peer.create(f"/n{number}", b"", 1)
    for number in range(3_000):
        peer.delete(f"/n{number}")
    peer.close()
    await console.facts("history?limit=1")
    for number in range(20_000):
        history.lasting.add(deletion_entry(f"/gone/{number:x}/node", -1))

    for query in ("path=/gone&below=1&kind=acl", "path=/n8999", "kind=set&fold=1", "limit=500&fold=1"):
        assert await longest_stretch(lambda query=query: console.ask(f"/console/api/history?{query}")) < STRETCH_S  # type: ignore[misc]


async def test_entries_of_log_files_are_filtered_and_grouped() -> None:
    console = Console()
    log = [(5, 1, zxid, 1000 + zxid, 5, [(5, "/a/b", 1)]) for zxid in range(0x40, 0x20, -1)]

    def past(path: Any, session: Any, before: int, limit: int, matches: Any) -> list[Any]:
        return [each for each in log if each[2] < before and matches(each)][:limit]

    console.source._past = past

    answer = await console.facts("history?files=1&path=/a&below=1&fold=1&before=0x40&until=1060&kind=set")
    nothing = await console.facts("history?files=1&path=/a&before=0x40&kind=delete&below=1")

    assert row_summaries(answer) == [("/a/b", 28)]
    assert (answer["files"], nothing["files"]) == ("0x21", None)


async def test_history_answer_contains_start_time_of_log_files() -> None:
    console = console_with_changes()
    assert json.dumps((await console.facts("history"))["files"]) == "null"
    console.source._past = lambda *arguments: []

    everything, two = await console.facts("history"), await console.facts("history?limit=2")

    assert everything["files"] == everything["entries"][-1]["zxid"]
    assert two["files"] == two["entries"][-1]["zxid"]
    assert int(two["next"], 16) == two["entries"][-1]["number"]
