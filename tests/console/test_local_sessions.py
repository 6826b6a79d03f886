"""Lists of sessions, without a socket: orders, names of clients, and the writes of the last ten minutes."""

from __future__ import annotations

from typing import Any

import pytest
from support.calls import connected
from support.console import BEARER, Console

from zoolet.protocol.acl import ACL, Id
from zoolet.server.admin.recent_writes import MAX_WRITERS, MINUTES, RecentWrites
from zoolet.server.core.client_connection import Session

LOCK = "9c7e980a02c6499346ac9bf4e550501a__lock__"
MINUTE = 60_000


async def rows(console: Console, query: str = "", **headers: str) -> list[dict[str, Any]]:
    """Return the rows of a list of sessions."""
    listed: list[dict[str, Any]] = (await console.facts(f"sessions?{query}", **headers))["rows"]
    return listed


@pytest.mark.parametrize(
    ("order", "first"),
    [("watches", 0), ("writes", 1), ("requests", 1), ("ephemerals", 2), ("oldest", 3), ("silent", 3)],
)
async def test_each_order_starts_with_its_first(order: str, first: int) -> None:
    console = Console()
    console.engine.now = 2_000
    peers = [connected(console.engine) for _ in range(3)]
    console.engine.now = 1_000
    connected(console.engine)
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


async def test_unknown_order_is_refused_with_the_orders() -> None:
    error = await Console().refusal("/console/api/sessions?order=colour")

    assert error.status == 400
    assert "oldest" in str(error)
    assert "writes" not in (await Console(history=False).facts("about"))["orders"]


async def test_session_is_named_by_certificate_or_lock() -> None:
    console = Console()
    peers = [connected(console.engine) for _ in range(4)]
    for path in ("/l", "/other"):
        peers[0].create(path, b"")
    peers[0].create(f"/l/{LOCK}", b"worker-1:42", 3)
    peers[1].create(f"/l/{LOCK}", b"worker-2:42", 3)
    peers[2].create("/other/config", b"no name", 1)
    peers[3].create(f"/l/{LOCK}", b"9c7e980a02c6499346ac9bf4e550501a", 3)
    client = list(console.engine.sessions.alive.values())[1].client
    assert client is not None
    client.add_id("x509", "CN=billing")

    assert [row["name"] for row in await rows(console)] == ["worker-1:42", "CN=billing", "", ""]


async def test_name_in_unreadable_data_needs_token() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/l", b"")
    peer.create(f"/l/{LOCK}", b"secret:1", 3, acl=(ACL(31, Id("ip", "10.0.0.1")),))

    assert [row["name"] for row in await rows(console)] == [""]
    assert [row["name"] for row in await rows(console, **BEARER)] == ["secret:1"]
    assert await rows(console, "text=secret") == []
    assert len(await rows(console, "text=secret", **BEARER)) == 1


async def test_session_is_found_by_its_name() -> None:
    console = Console()
    peers = [connected(console.engine) for _ in range(3)]
    peers[0].create("/l", b"")
    for number, peer in enumerate(peers):
        peer.create(f"/l/{LOCK}", b"worker-%d:42" % number, 3)

    found = await rows(console, "text=worker-1")
    assert [(row["name"], row["last"]) for row in found] == [("worker-1:42", "create")]


async def test_hostile_names_are_cut_or_skipped() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/l", b"")
    peer.create(f"/l/{'9' * 400_000}{LOCK}", b"long", 3)
    peer.create(f"/l/{LOCK}", b"x" * 900_000, 3)
    peer.create(f"/l/{LOCK}", b"\xff<b>\n", 3)

    assert [row["name"] for row in await rows(console)] == ["�<b>\n"]


async def test_disconnected_session_is_last_among_oldest() -> None:
    console = Console()
    console.engine.now = 1_000
    connected(console.engine)
    connected(console.engine)
    first = next(iter(console.engine.sessions.alive.values()))
    assert isinstance(first, Session)
    assert first.client is not None
    console.engine.close_connection(first.client)

    assert [row["address"] != "" for row in await rows(console)] == [True, False]


# --- writes ---


def test_writes_are_counted_for_ten_minutes() -> None:
    writes = RecentWrites()
    for _ in range(3):
        writes.count(1, 5 * MINUTE)
    writes.count(1, 8 * MINUTE)
    writes.count(2, 8 * MINUTE)

    assert writes.total(14 * MINUTE) == {1: 4, 2: 1}
    assert writes.total(15 * MINUTE) == {1: 1, 2: 1}
    assert writes.total((8 + MINUTES) * MINUTE) == {}


def test_clock_set_back_keeps_memory_bounded() -> None:
    writes = RecentWrites()
    for number in range(1_000):
        writes.count(1, (1_000 - number) * MINUTE)

    assert writes.total(MINUTE) == {1: MINUTES + 1}


def test_sessions_of_a_minute_are_bounded() -> None:
    writes = RecentWrites()
    for session_id in range(MAX_WRITERS + 10):
        writes.count(session_id, 0)
    writes.count(0, 0)

    assert len(writes.total(0)) == MAX_WRITERS
    assert writes.total(0)[0] == 2


async def test_ends_of_sessions_are_not_writes() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/e", b"", 1)
    session = next(iter(console.engine.sessions.alive))
    await console.facts("history")

    assert console.source._history is not None
    assert console.source._history.writes.total(console.engine.now) == {session: 1}
    peer.close()
    await console.facts("history")
    assert console.source._history.writes.total(console.engine.now) == {session: 1}
