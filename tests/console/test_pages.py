"""The console over HTTP, without a socket: its files, permissions, invalid requests, and streams."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
from typing import Any

import pytest
from support.calls import add_watch, connect_peer
from support.console import BEARER, TOKEN, Console, b64

from zoolet.console.local_tree import walk
from zoolet.console.pages import MAX_GLOB, MAX_STREAMS, STATIC_FILES
from zoolet.protocol.acl import ACL, ANYONE, Id
from zoolet.protocol.enums import AddWatchMode, CreateMode, Perm
from zoolet.protocol.operations import OpCode

# --- files ---


@pytest.mark.parametrize("name", STATIC_FILES)
async def test_each_served_file_has_content_type_and_policy(name: str) -> None:
    response = await Console().ask(f"/console/{name}")

    assert response.content_type == STATIC_FILES[name]
    assert dict(response.headers)["Content-Security-Policy"].startswith("default-src 'none'")
    assert response.body


@pytest.mark.parametrize("name", ["../pages.py", "..%2fpages.py", "nothing.js", "vendor", "vendor/README.md", "%00"])
async def test_unlisted_file_is_not_served(name: str) -> None:
    assert (await Console().refusal(f"/console/{name}")).status == 404


async def test_unknown_url_path_is_refused_but_root_is_console_page() -> None:
    console = Console()

    assert b"console/app.js" in (await console.ask("/")).body
    assert str(await console.refusal("/metrics")) == "no page at /metrics; the console is at /"


# --- permissions ---


async def test_request_without_token_from_loopback_may_only_read() -> None:
    console = Console()

    assert (await console.facts("about"))["trusted"] is False
    assert (await console.facts("overview"))["health"] == ""
    for action in ("create", "set", "delete", "set_acl", "expire", "drop"):
        error = await console.refusal(f"/console/api/change/{action}", "POST", b'{"path": "/a", "session": "0x1"}')
        assert (error.status, error.headers) == (401, (("WWW-Authenticate", "Bearer"),))


@pytest.mark.parametrize(
    "name", ["overview", "samples", "children", "node", "sessions", "locks", "history", "events", "search"]
)
async def test_remote_address_requires_token_for_reading(name: str) -> None:
    console = Console(is_open=False)

    assert (await console.refusal(f"/console/api/{name}")).status == 401
    assert await console.facts("about") == {"trusted": False, "needs_token": True, "open": False}
    assert (await console.facts("about", **BEARER))["kind"] == "daemon"


@pytest.mark.parametrize("header", ["Bearer wrong", "Bearer"])
async def test_wrong_token_is_refused_even_where_optional(header: str) -> None:
    assert (await Console().refusal("/console/api/about", authorization=header)).status == 401


async def test_credentials_for_reverse_proxy_are_ignored() -> None:
    console = Console()
    basic = {"authorization": "Basic eA=="}
    assert not (await console.facts("about", **basic))["trusted"]
    assert (await console.facts("about", **basic, **{"x-zoolet-token": TOKEN}))["trusted"]
    assert (await console.refusal("/console/api/about", **basic, **{"x-zoolet-token": "wrong"})).status == 401
    other = {"authorization": "Bearer of-the-proxy"}
    assert (await console.facts("about", **other, **{"x-zoolet-token": TOKEN}))["trusted"]
    assert not (await console.facts("about", **other, **{"x-zoolet-token": ""}))["trusted"]


async def test_reading_data_not_readable_by_everyone_needs_token() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/secret", b"hunter2", acl=(ACL(31, Id("ip", "10.0.0.1")),))

    shown = await console.facts("node?path=/secret")
    trusted = await console.facts("node?path=/secret", **BEARER)

    assert (shown.get("data"), shown["secret"]) == (None, 7)
    assert trusted["data"]["base64"] == b64(b"hunter2")
    assert not [line for line in await search_lines(console, "text=hunter") if "path" in line]
    assert [line["path"] for line in await search_lines(console, "text=hunter", **BEARER) if "path" in line] == [
        "/secret"
    ]


async def search_lines(console: Console, query: str, **headers: str) -> list[dict[str, Any]]:
    """Search, and return the lines of the result."""
    stream = (await console.ask(f"/console/api/search?{query}", **headers)).stream
    assert stream is not None
    lines = [json.loads(line) async for line in stream]
    await stream.aclose()
    return lines


# --- answers to read requests ---


async def test_children_are_paged_by_offset_and_limit() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/many", b"")
    for number in range(25):
        peer.create(f"/many/{number:02}", b"x" * number)

    window = await console.facts("children?path=/many&offset=10&limit=5")

    assert window["total"] == 25
    assert [row[0] for row in window["rows"]] == ["10", "11", "12", "13", "14"]
    assert window["rows"][0] == ["10", 0, 10, "persistent", console.engine.now]
    assert (await console.facts("children?path=/many&offset=99"))["rows"] == []


async def test_large_list_of_children_is_sorted_again_after_change() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/many", b"")
    for number in range(1500):
        peer.create(f"/many/{number:04}", b"")
    first = await console.facts("children?path=/many&limit=1")
    peer.delete("/many/0000")
    peer.create("/many/!", b"")
    second = await console.facts("children?path=/many&limit=1")

    assert (first["rows"][0][0], second["rows"][0][0]) == ("0000", "!")


async def test_node_page_shows_owner_watches_quota_and_acl() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/e", b'{"a": 1}', 1)
    peer.get("/e", watch=True)
    session = hex(next(iter(console.engine.sessions.alive)))

    node = await console.facts("node?path=/e")

    assert node["stat"]["kind"] == "ephemeral"
    assert node["stat"]["owner"] == session
    assert node["watches"][0]["session"] == session
    assert node["acl"] == [{"scheme": "world", "id": "anyone", "permissions": "cdrwa"}]


@pytest.mark.parametrize(("perms", "text"), [(31, "cdrwa"), (1, "r"), (33, "33"), (0, "0")])
async def test_unknown_permissions_are_shown_as_number(perms: int, text: str) -> None:
    console = Console()
    connect_peer(console.engine).create("/a", acl=(ACL(perms | Perm.READ, ANYONE), ACL(perms, Id("ip", "10.0.0.1"))))

    node = await console.facts("node?path=/a")

    assert node["acl"][1] == {"scheme": "ip", "id": "10.0.0.1", "permissions": text}


@pytest.mark.parametrize("creates", [2, 2**30 + 5, 2**31 - 1, -5])
async def test_next_sequence_number_is_right_near_overflow(creates: int) -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/a")
    console.engine.tree.find("/a").creates = creates

    number = (await console.facts("node?path=/a"))["stat"]["next_sequence"]

    assert peer.create("/a/n", flags=CreateMode.PERSISTENT_SEQUENTIAL) == f"/a/n{number}"


async def test_node_page_and_session_page_list_same_kinds_of_watches() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/a")
    peer.get("/a", watch=True)
    peer.children("/a", watch=True)
    add_watch(peer, "/a", AddWatchMode.PERSISTENT_RECURSIVE)
    session = hex(next(iter(console.engine.sessions.alive)))

    of_node = [each["kind"] for each in (await console.facts("node?path=/a"))["watches"]]
    of_session = [each["kind"] for each in (await console.facts(f"session?id={session}"))["watched"]]

    assert of_node == of_session == ["data", "recursive", "child"]


async def test_large_data_is_truncated_unless_whole_is_set() -> None:
    console = Console()
    connect_peer(console.engine).create("/big", bytes(100_000))

    assert len(base64.b64decode((await console.facts("node?path=/big"))["data"]["base64"])) == 1 << 16
    assert len(base64.b64decode((await console.facts("node?path=/big&whole=1"))["data"]["base64"])) == 100_000


async def test_search_finds_nodes_by_name_path_and_content() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    for path, data in (("/a", b"x"), ("/a/b.lock", b"needle"), ("/a/c", b"needle"), ("/b", b"")):
        peer.create(path, data)

    async def paths(query: str) -> list[str]:
        return [line["path"] for line in await search_lines(console, query) if "path" in line]

    assert await paths("name=*.lock") == ["/a/b.lock"]
    assert await paths("name=b.lo") == ["/a/b.lock"]
    assert await paths("name=/a/*") == ["/a/b.lock", "/a/c"]
    assert await paths("text=needle") == ["/a/b.lock", "/a/c"]
    assert await paths("text=needle&name=?") == ["/a/c"]
    assert await paths("name=*&path=/b") == ["/b"]
    assert (await search_lines(console, "name=*&path=/gone"))[-1]["done"] is True


async def test_locks_page_includes_addresses_of_clients() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/l", b"")
    name = "/l/9c7e980a02c6499346ac9bf4e550501a__lock__"
    peer.create(name, b"me", 3)
    peer.create(name, b"you", 3)

    locks = await console.facts("locks")

    (line,) = locks["shared"]
    assert (line["path"], line["kind"]) == ("/l", "lock")
    assert [entry["data"] for entry in line["holders"] + line["waiters"]] == ["me", "you"]
    assert line["holders"][0]["address"].startswith("127.0.0.1")


async def test_locks_are_sorted_by_longest_wait_and_counted() -> None:
    console = Console()
    peers = [connect_peer(console.engine) for _ in range(3)]
    name = "9c7e980a02c6499346ac9bf4e550501a__lock__"
    for number, path in enumerate(("/idle", "/late", "/long")):
        peers[0].create(path, b"")
        console.engine.now = 9_000 - 1_000 * number
        for peer in peers[: number + 1]:
            peer.create(f"{path}/{name}", b"", 3)
    console.engine.now = 10_000

    locks = await console.facts("locks")
    brief = await console.facts("locks?brief=1")

    assert [line["path"] for line in locks["shared"]] == ["/long", "/late", "/idle"]
    assert brief["longest"] == {"path": "/long", "since": 7.0}
    assert (brief["locks"], brief["waiters"], brief["circles"], brief["now"]) == (3, 3, 0, 10.0)
    assert not {"shared", "deadlocks"} & set(brief)


async def test_simultaneous_requests_get_answers_for_their_own_token() -> None:
    console = Console(is_open=True)
    peer = connect_peer(console.engine)
    peer.create("/secret", b"")
    name = "/secret/9c7e980a02c6499346ac9bf4e550501a__lock__"
    peer.create(name, b"password", 3, (ACL(31, Id("digest", "a:b")),))

    bodies = [
        each.body
        for headers in ((BEARER, {}), ({}, BEARER))
        for each in await asyncio.gather(*(console.ask("/console/api/locks", **each) for each in headers))
    ]

    assert [b"password" in body for body in bodies] == [True, False, False, True]


async def test_disconnect_of_one_reader_does_not_cancel_other_request() -> None:
    console = Console()
    leaving = asyncio.ensure_future(console.ask("/console/api/locks"))
    staying = asyncio.ensure_future(console.facts("locks"))
    await asyncio.sleep(0)  # now both requests wait for the same work
    leaving.cancel()

    assert (await staying)["shared"] == []


async def test_locks_of_session_page_show_its_position_in_queue() -> None:
    console = Console()
    peers = [connect_peer(console.engine) for _ in range(4)]
    sessions = [hex(each) for each in console.engine.sessions.alive]
    name = "9c7e980a02c6499346ac9bf4e550501a__lock__"
    for path, order in (("/a", (0, 1, 2)), ("/b", (2, 0)), ("/c", (1,))):
        peers[0].create(path, b"")
        for number in order:
            peers[number].create(f"{path}/{name}", b"", 3)

    async def places(number: int) -> dict[str, int]:
        answer = await console.facts(f"locks?session={sessions[number]}")
        assert answer["circles"] == len(answer["deadlocks"]) == (number in (0, 2))
        return {line["path"]: line["place"] for line in answer["shared"]}

    assert await places(2) == {"/a": 2, "/b": 0}
    assert await places(1) == {"/a": 1, "/c": 0}
    assert await places(0) == {"/a": 0, "/b": 1}
    assert await places(3) == {}


async def test_day_parameter_selects_samples_of_day() -> None:
    console = Console()
    console.source._samples.rows.hour.extend([(0.0,), (1.0,)])
    console.source._samples.rows.day.append((1.0,))

    assert (await console.facts("samples"))["rows"] == [[0.0], [1.0]]
    assert (await console.facts("samples?day=1"))["rows"] == [[1.0]]


async def test_session_page_shows_nodes_watches_and_history() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/e", b"", 1)
    peer.get("/e", watch=True)
    session = hex(next(iter(console.engine.sessions.alive)))

    shown = await console.facts(f"session?id={session}")
    history = await console.facts(f"history?session={session}")

    assert shown["owned"] == ["/e"]
    assert shown["watched"] == [{"path": "/e", "kind": "data"}]
    assert [entry["kind"] for entry in history["entries"]] == ["create", "opened"]
    assert (await console.facts("sessions?text=" + session))["total"] == 1
    assert (await console.facts("sessions?text=nobody"))["total"] == 0
    assert (await console.facts("session?id=0x1"))["alive"] is False


async def test_history_view_is_hidden_if_history_is_disabled() -> None:
    console = Console(history=False)

    assert "history" not in (await console.facts("about"))["views"]
    assert (await console.refusal("/console/api/history")).status == 409


async def test_log_files_are_read_only_on_request() -> None:
    asked: list[Any] = []

    def past(*arguments: Any) -> list[Any]:
        asked.append(arguments[:4])
        return [(5, 1, 0x17, 1000, OpCode.DELETE, [(OpCode.DELETE, "/a", -1)])]

    console = Console()
    assert (await console.refusal("/console/api/history?files=1")).status == 409
    console.source._past = past

    answer = await console.facts("history?files=1&path=/a&before=0x20&limit=7")

    assert asked == [("/a", None, 0x20, 7)]
    assert answer["entries"][0]["changes"] == [["delete", "/a", None]]
    assert (await console.facts("about"))["files"] is True


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("node?path=/gone", 404),
        ("children?path=/gone", 404),
        ("node?path=relative", 400),
        ("node?path=/a//b", 400),
        ("children?path=/&offset=-1", 400),
        ("children?path=/&limit=x", 400),
        ("sessions?offset=99999999999", 400),
        ("session?id=zz", 400),
        ("session?id=", 400),
        ("session?id=" + "f" * 17, 400),
        ("history?before=x", 400),
        ("locks?session=x", 400),
        ("nothing", 404),
        ("change/create", 405),
    ],
)
async def test_invalid_query_is_refused_with_reason(target: str, status: int) -> None:
    error = await Console().refusal(f"/console/api/{target}")

    assert error.status == status
    assert str(error)


async def test_number_of_event_streams_is_limited() -> None:
    console = Console()
    streams = [(await console.ask("/console/api/events")).stream for _ in range(MAX_STREAMS)]

    assert (await console.refusal("/console/api/events")).status == 503
    assert streams[0] is not None
    first = await anext(aiter(streams[0]))
    assert first.startswith(b"data: {")
    assert first.endswith(b"\n\n")
    for stream in streams:
        assert stream is not None
        await stream.aclose()
    assert (await console.ask("/console/api/events")).stream is not None


def test_walk_allocates_few_objects_for_many_children() -> None:
    console = Console()
    peer = connect_peer(console.engine)
    peer.create("/t")
    for number in range(5000):
        peer.create(f"/t/{number}")
    gc.collect()
    nodes = walk(console.engine, "/t")
    before = sys.getallocatedblocks()

    assert [next(nodes)[0], next(nodes)[0]] == ["/t", "/t/0"]

    assert sys.getallocatedblocks() - before < 2500


async def test_search_glob_has_at_most_200_characters() -> None:
    console = Console()

    assert (await console.ask("/console/api/search?name=" + "x" * MAX_GLOB)).stream is not None
    assert (await console.refusal("/console/api/search?name=" + "x" * (MAX_GLOB + 1))).status == 400
