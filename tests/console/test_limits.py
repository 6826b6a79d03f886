"""The limits of the console: with any data, an answer has at most 8 MB, and is built in slices."""

from __future__ import annotations

import asyncio
import base64
import json
import tracemalloc
from collections import Counter
from time import thread_time
from typing import Any, Final

import msgpack
import pytest
from support.calls import connect_peer, engine_with_settings
from support.console import BEARER, STRETCH_S, Console, create_together, longest_stretch

from zoolet.console.local_tree import walk
from zoolet.console.source import (
    MAX_ANSWER,
    MAX_LISTED,
    MAX_NAME,
    MAX_WHOLE_BYTES,
    SAMPLED_KEYS,
    DataPreview,
    Pace,
    encode_answer,
    sorted_in_slices,
    truncated_text,
)
from zoolet.protocol.acl import ACL, Id

LONG_NAME: Final = "é" * 450_000
"""A name of 900 kB."""
LOCK_NODE: Final = "9c7e980a02c6499346ac9bf4e550501a__lock__"


def console_with_long_names() -> Console:
    """Return the console of a server whose nodes and watches have names of 900 kB."""
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/long", b"")
    for number in range(12):
        path = f"/long/{number:02}{LONG_NAME}"
        peer.create(path, b"x", 1)
        peer.get(path, watch=True)
    return console


# --- the whole answer ---


async def test_rows_beyond_answer_limit_are_omitted_and_list_is_marked() -> None:
    rows = ("x" * 100_000 for _ in range(1_000))

    answer = await encode_answer({"rows": rows, "few": iter([1]), "total": 1_000}, Pace(asyncio.Lock()))

    assert len(answer) <= MAX_ANSWER + 100
    shown = json.loads(answer)
    assert (shown["cut"], shown["few"], shown["total"]) == (["rows"], [1], 1_000)
    assert 80 <= len(shown["rows"]) < 90
    assert next(rows, None) is not None, "the rows that are left out were made"


async def test_answer_within_size_limit_marks_no_list_as_cut() -> None:
    assert await encode_answer({}, Pace(asyncio.Lock())) == b"{}\n"
    answer = await encode_answer({"rows": iter([1, 2]), "none": iter([])}, Pace(asyncio.Lock()))

    assert json.loads(answer) == {"rows": [1, 2], "none": []}


@pytest.mark.parametrize("name", ["children?path=/long", "session?id={}", "history", "history?session={}"])
async def test_console_truncates_node_names_of_900_kb(name: str) -> None:
    console = console_with_long_names()
    session = hex(next(iter(console.engine.sessions.alive)))

    body = (await console.ask(f"/console/api/{name.format(session)}")).body

    assert len(body) < 300_000
    assert "characters)" in body.decode()


async def test_sessions_with_long_names_fit_into_answer() -> None:
    assert len((await console_with_long_names().ask("/console/api/sessions")).body) < 300_000


async def test_search_truncates_names_of_900_kb() -> None:
    stream = (await console_with_long_names().ask("/console/api/search?name=é")).stream
    assert stream is not None
    lines = [line async for line in stream]

    assert len(lines) > 12
    assert max(map(len, lines)) < 10_000


def test_only_long_texts_are_truncated_with_mark() -> None:
    assert truncated_text("x" * MAX_NAME) == "x" * MAX_NAME
    assert truncated_text("x" * 1_001) == "x" * 1_000 + "… (1,001 characters)"


async def test_history_of_large_transactions_is_truncated() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/h", b"")
    for batch in range(60):
        create_together(peer, [f"/h/{batch:02}{number:03}{'x' * 900}" for number in range(200)])

    body = (await console.ask("/console/api/history?limit=500")).body

    assert 7 << 20 < len(body) <= MAX_ANSWER + 100
    assert json.loads(body)["cut"] == ["entries"]


# --- data of nodes ---


async def test_msgpack_is_not_decoded_in_server() -> None:
    console = Console()
    value: Any = [1] * 60_000
    for _ in range(400):
        value = [value]
    connect_peer(console.engine).create("/m", msgpack.packb(value))

    body = (await console.ask("/console/api/node?path=/m")).body

    assert len(body) < 100_000
    assert base64.b64decode(json.loads(body)["data"]["base64"]) == msgpack.packb(value)


async def test_large_data_is_encoded_in_steps() -> None:
    text, pace = bytearray(), CountedPace()

    await DataPreview(bytes(900_001), whole=True).put(text, pace)

    assert base64.b64decode(json.loads(text)["base64"]) == bytes(900_001)
    assert pace.chances == 5


async def test_complete_data_is_limited_to_one_megabyte() -> None:
    console = Console(engine_with_settings(max_frame=4 << 20))
    connect_peer(console.engine).create("/big", bytes(3 << 20))

    data = (await console.facts("node?path=/big&whole=1"))["data"]

    assert data["size"] == 3 << 20
    assert len(base64.b64decode(data["base64"])) == MAX_WHOLE_BYTES


async def test_console_shows_first_entries_and_number_of_long_acl() -> None:
    console = Console()
    acl = tuple(ACL(1, Id("ip", f"10.0.{number // 250}.{number % 250}")) for number in range(999))
    connect_peer(console.engine).create("/a", b"", acl=(*acl, ACL(31, Id("world", "anyone"))))

    node = await console.facts("node?path=/a", **BEARER)

    assert (len(node["acl"]), node["acl_size"]) == (MAX_LISTED, 1_000)


# --- locks ---


async def test_console_shows_at_most_200_bytes_of_contender_data() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    for data in (("é" * 200_000).encode(), b"\xff" * 400_000, b"short"):
        peer.create(f"/l/{LOCK_NODE}", data, 3)

    body = (await console.ask("/console/api/locks")).body

    assert len(body) < 5_000
    (line,) = json.loads(body)["shared"]
    texts = [entry["data"] for entry in line["holders"] + line["waiters"]]
    assert texts[0] == "é" * 100 + "…"
    assert texts[1] == {"size": 400_000}
    assert texts[2] == "short"


async def test_hundred_waiters_of_lock_are_shown_with_total() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    for _ in range(151):
        peer.create(f"/l/{LOCK_NODE}", b"", 3)

    (line,) = (await console.facts("locks"))["shared"]

    assert (line["held"], line["waiting"], len(line["waiters"])) == (1, 150, 100)


async def test_locks_below_nodes_with_long_names_are_omitted() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create(f"/{LONG_NAME}", b"")
    for _ in range(50):
        peer.create(f"/{LONG_NAME}/{LOCK_NODE}", b"", 3)

    body = (await console.ask("/console/api/locks")).body

    assert len(body) < 1_000
    assert json.loads(body)["left_out"] == 1


async def test_large_data_is_not_parsed_as_durable_lock() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    proof = "6a5dbb9e-1b8f-4c0e-9f5d-0c3a1f0a8d11"
    for number, size in enumerate((10, 4_000, 5_000)):
        data = {"id": proof, "ttl": 1, "owner": "x" * size}
        peer.create(f"/{number}", json.dumps(data).encode())
        peer.create(f"/{number}/{proof}", b"")

    shown = (await console.facts("locks"))["shared"]

    assert [(line["path"], line["kind"]) for line in shown] == [("/0", "durable lock"), ("/1", "durable lock")]


# --- work that is done in slices ---


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "children?path=/long&limit=500",
        "locks",
        "locks?session=0x1",
        "sessions?order=writes&limit=500",
        "history?limit=500",
        "node?path=/m&whole=1",
    ],
)
async def test_large_answers_do_not_block_event_loop(name: str) -> None:
    console = console_with_long_names()
    peer = connect_peer(console.engine)
    peer.create("/m", msgpack.packb([[1] * 500_000]))
    peer.create("/l", b"")
    for _ in range(40):
        peer.create(f"/l/{LOCK_NODE}", b"x" * 900_000, 3)
    for batch in range(19):
        create_together(peer, [f"/l/{batch}-{number}{'x' * 300}" for number in range(500)])
    await console.facts("history?limit=1")  # makes the history process the new transactions

    assert await longest_stretch(lambda: console.ask(f"/console/api/{name}")) < STRETCH_S


@pytest.mark.slow
async def test_100_000_names_are_sorted_in_slices() -> None:
    names = [f"{number * 7919 % 100_003:06}" for number in range(100_000)]

    assert await sorted_in_slices(names, Pace(asyncio.Lock())) == sorted(names)
    assert await longest_stretch(lambda: sorted_in_slices(names, Pace(asyncio.Lock()))) < STRETCH_S


async def test_names_with_long_common_prefix_sort_quickly() -> None:
    names = [f"{'x' * 900_000}{number % 7}" for number in range(100)]
    started = thread_time()

    assert len(await sorted_in_slices(names, Pace(asyncio.Lock()))) == 100
    assert thread_time() - started < STRETCH_S


class CountedPace(Pace):
    """Time slices that never pause, but count how often they could."""

    def __init__(self) -> None:
        super().__init__(asyncio.Lock())
        self.chances = 0

    async def rest(self) -> bool:
        self.chances += 1
        return False


async def test_names_with_equal_prefix_are_sorted_in_steps() -> None:
    names, pace = [f"{'x' * 1_000}{number}" for number in range(5_000)], CountedPace()
    keys_at: list[int] = []

    def key(name: str) -> str:
        keys_at.append(pace.chances)
        return name[:MAX_NAME]

    assert await sorted_in_slices(names, pace, key) == names
    assert max(Counter(keys_at[2_000:]).values()) < 2 * SAMPLED_KEYS


async def test_position_of_name_is_found_in_steps() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    for number in range(1_200):
        peer.create(f"/{number:04}", b"")

    places = [(await console.facts(f"children?path=/&name={name}"))["at"] for name in ("0000", "0700", "1199", "none")]

    assert places == [0, 700, 1199, None]


def test_walk_of_deep_tree_takes_memory_for_one_path() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    for level in range(1, 3_001):
        peer.create("/a" * level, b"")
    peer.create("/a/b", b"")

    tracemalloc.start()
    paths = [path for path, _ in walk(console.engine, "/a") if path.endswith("b") or len(path) == 6_000]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert paths == ["/a" * 3_000, "/a/b"]
    assert peak < 3_000_000  # storing the paths of all levels would take 9 MB


@pytest.mark.slow
async def test_search_for_text_pauses_between_large_nodes() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    for number in range(120):
        peer.create(f"/n{number}", b"ab" * 450_000)

    async def search() -> None:
        stream = (await console.ask("/console/api/search?text=" + "ab" * 20 + "c")).stream
        assert stream is not None
        assert [line async for line in stream]

    assert await longest_stretch(search) < STRETCH_S
