"""Lists of sessions, without a socket: orders, names of clients, and the writes of the last ten minutes."""

from __future__ import annotations

from typing import Any

import pytest
from support.calls import connect_peer
from support.console import BEARER, Console

from zoolet.protocol.acl import ACL, Id
from zoolet.server.admin.recent_writes import COUNTED_MINUTES, MAX_WRITERS, RecentWrites
from zoolet.server.core.client_connection import Session

LOCK_NODE = "9c7e980a02c6499346ac9bf4e550501a__lock__"
MINUTE_MS = 60_000


async def rows(console: Console, query: str = "", **headers: str) -> list[dict[str, Any]]:
    """Return the rows of a list of sessions."""
    listed: list[dict[str, Any]] = (await console.facts(f"sessions?{query}", **headers))["rows"]
    return listed


@pytest.mark.parametrize(
    ("order", "first"),
    [("watches", 0), ("writes", 1), ("requests", 1), ("ephemerals", 2), ("oldest", 3), ("silent", 3)],
)
async def test_each_sort_order_starts_with_expected_session(order: str, first: int) -> None:
    console = Console()
    console.engine.now = 2_000
    peers = [connect_peer(console.engine) for _ in range(3)]
    console.engine.now = 1_000
    connect_peer(console.engine)
    list(console.engine.sessions.alive.values())[3].heard = -1
    sessions = [hex(each) for each in console.engine.sessions.alive]
    for path in ("/", "/zookeeper"):
        peers[0].get(path, watch=True)
    for number in range(5):
        peers[1].create(f"/written{number}", b"")
    for number in range(2):
        peers[2].create(f"/mine{number}", b"", 1)

    assert (await rows(console, f"order={order}"))[0]["id"] == sessions[first]
    assert len(await rows(console, f"order={order}&offset=1&limit=2")) == 2


async def test_error_of_unknown_sort_order_lists_valid_orders() -> None:
    error = await Console().refusal("/console/api/sessions?order=colour")

    assert error.status == 400
    assert "oldest" in str(error)
    assert "writes" not in (await Console(history=False).facts("about"))["orders"]


async def test_session_is_named_by_certificate_or_lock() -> None:
    console = Console()
    peers = [connect_peer(console.engine) for _ in range(4)]
    for path in ("/l", "/other"):
        peers[0].create(path, b"")
    peers[0].create(f"/l/{LOCK_NODE}", b"worker-1:42", 3)
    peers[1].create(f"/l/{LOCK_NODE}", b"worker-2:42", 3)
    peers[2].create("/other/config", b"no name", 1)
    peers[3].create(f"/l/{LOCK_NODE}", b"9c7e980a02c6499346ac9bf4e550501a", 3)
    client = list(console.engine.sessions.alive.values())[1].client
    assert client is not None
    client.add_id("x509", "CN=billing")

    assert [row["name"] for row in await rows(console)] == ["worker-1:42", "CN=billing", "", ""]


async def test_session_name_in_unreadable_data_needs_token() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    peer.create(f"/l/{LOCK_NODE}", b"secret:1", 3, acl=(ACL(31, Id("ip", "10.0.0.1")),))

    assert [row["name"] for row in await rows(console)] == [""]
    assert [row["name"] for row in await rows(console, **BEARER)] == ["secret:1"]
    assert await rows(console, "text=secret") == []
    assert len(await rows(console, "text=secret", **BEARER)) == 1


async def test_session_is_found_by_its_name() -> None:
    console = Console()
    peers = [connect_peer(console.engine) for _ in range(3)]
    peers[0].create("/l", b"")
    for number, peer in enumerate(peers):
        peer.create(f"/l/{LOCK_NODE}", b"worker-%d:42" % number, 3)

    found = await rows(console, "text=worker-1")
    assert [(row["name"], row["last"]) for row in found] == [("worker-1:42", "create")]


async def test_hostile_session_names_are_truncated_or_skipped() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    peer.create(f"/l/{'9' * 400_000}{LOCK_NODE}", b"long", 3)
    peer.create(f"/l/{LOCK_NODE}", b"x" * 900_000, 3)
    peer.create(f"/l/{LOCK_NODE}", b"\xff<b>\n", 3)

    assert [row["name"] for row in await rows(console)] == ["�<b>\n"]


async def test_disconnected_session_is_sorted_last() -> None:
    console = Console()
    console.engine.now = 1_000
    connect_peer(console.engine)
    connect_peer(console.engine)
    first = next(iter(console.engine.sessions.alive.values()))
    assert isinstance(first, Session)
    assert first.client is not None
    console.engine.close_connection(first.client)

    assert [row["address"] != "" for row in await rows(console)] == [True, False]


# --- counted writes of sessions ---


def test_writes_of_session_are_counted_for_ten_minutes() -> None:
    writes = RecentWrites()
    for _ in range(3):
        writes.count(1, 5 * MINUTE_MS)
    writes.count(1, 8 * MINUTE_MS)
    writes.count(2, 8 * MINUTE_MS)

    assert writes.total(14 * MINUTE_MS) == {1: 4, 2: 1}
    assert writes.total(15 * MINUTE_MS) == {1: 1, 2: 1}
    assert writes.total((8 + COUNTED_MINUTES) * MINUTE_MS) == {}


def test_write_counts_stay_bounded_when_clock_is_set_back() -> None:
    writes = RecentWrites()
    for number in range(1_000):
        writes.count(1, (1_000 - number) * MINUTE_MS)

    assert writes.total(MINUTE_MS) == {1: COUNTED_MINUTES + 1}


def test_number_of_counted_writers_per_minute_is_limited() -> None:
    writes = RecentWrites()
    for session_id in range(MAX_WRITERS + 10):
        writes.count(session_id, 0)
    writes.count(0, 0)

    assert len(writes.total(0)) == MAX_WRITERS
    assert writes.total(0)[0] == 2


async def test_session_close_does_not_count_as_write() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/e", b"", 1)
    session = next(iter(console.engine.sessions.alive))
    await console.facts("history")

    assert console.source._history is not None
    assert console.source._history.writes.total(console.engine.now) == {session: 1}
    peer.close()
    await console.facts("history")
    assert console.source._history.writes.total(console.engine.now) == {session: 1}
