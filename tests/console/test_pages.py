"""The console over HTTP, without a socket: its files, who may read and change, wrong requests, and streams."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, Final

import pytest
from support.calls import connected, engine_with

from zoolet.protocol.acl import ACL, Id
from zoolet.protocol.operations import OpCode
from zoolet.protocol.txns import DeleteTxn
from zoolet.server.admin.history import History
from zoolet.server.admin.http import HttpError, Request, Response
from zoolet.server.admin.observed import Observed
from zoolet.server.admin.samples import Samples
from zoolet.server.console import local_locks
from zoolet.server.console.engine_source import EngineSource
from zoolet.server.console.pages import FILES, MAX_STREAMS, ConsolePages
from zoolet.server.core.engine import Engine

TOKEN: Final = "a-token-of-the-tests"
BEARER: Final = {"authorization": f"Bearer {TOKEN}"}


class Console:
    """The console of an engine, without a server around it."""

    def __init__(self, engine: Engine | None = None, *, is_open: bool = True, history: bool = True) -> None:
        self.engine = engine or engine_with()
        observed = Observed(self.engine)
        kept = History(self.engine, 1000) if history else None
        source = EngineSource(
            observed, lambda: None, self.engine.pending_output.clear, kept, Samples(observed), "test:1"
        )
        self.source = source
        self.pages = ConsolePages(source, TOKEN, is_open=is_open)

    async def ask(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> Response:
        """Request a page."""
        request = Request(method, target, {"host": "127.0.0.1:8080", **headers}, body)
        response = await self.pages.answer(request, request.path)
        assert response is not None, target
        return response

    async def facts(self, name: str, **headers: str) -> Any:
        """Request an answer of the API."""
        return json.loads((await self.ask(f"/console/api/{name}", **headers)).body)

    async def change(self, action: str, **arguments: object) -> Any:
        """Change something, with the token."""
        body = json.dumps(arguments).encode()
        return json.loads((await self.ask(f"/console/api/change/{action}", "POST", body, **BEARER)).body)

    async def refusal(self, target: str, method: str = "GET", body: bytes = b"", **headers: str) -> HttpError:
        """Request something that is refused; return the refusal."""
        with pytest.raises(HttpError) as caught:
            await self.ask(target, method, body, **headers)
        return caught.value


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# --- files ---


@pytest.mark.parametrize("name", FILES)
async def test_each_file_has_its_type_and_the_policy(name: str) -> None:
    response = await Console().ask(f"/console/{name}")

    assert response.content_type == FILES[name]
    assert dict(response.headers)["Content-Security-Policy"].startswith("default-src 'none'")
    assert response.body


@pytest.mark.parametrize("name", ["../pages.py", "..%2fpages.py", "nothing.js", "vendor", "vendor/README.md", "%00"])
async def test_no_other_file_is_given_out(name: str) -> None:
    assert (await Console().refusal(f"/console/{name}")).status == 404


async def test_the_root_is_the_page_and_the_rest_is_somebody_else_s() -> None:
    console = Console()

    assert b"console/app.js" in (await console.ask("/")).body
    request = Request("GET", "/metrics", {})
    assert await console.pages.answer(request, request.path) is None


# --- who may what ---


async def test_on_loopback_reading_is_open_and_changing_is_not() -> None:
    console = Console()

    assert (await console.facts("about"))["trusted"] is False
    assert (await console.facts("overview"))["health"] == ""
    for action in ("create", "set", "delete", "set_acl", "expire", "drop"):
        error = await console.refusal(f"/console/api/change/{action}", "POST", b'{"path": "/a", "session": "0x1"}')
        assert (error.status, error.headers) == (401, (("WWW-Authenticate", "Bearer"),))


@pytest.mark.parametrize(
    "name", ["overview", "samples", "children", "node", "sessions", "locks", "history", "events", "search"]
)
async def test_elsewhere_nothing_is_shown_without_the_token(name: str) -> None:
    console = Console(is_open=False)

    assert (await console.refusal(f"/console/api/{name}")).status == 401
    assert await console.facts("about") == {"trusted": False, "needs_token": True, "open": False}
    assert (await console.facts("about", **BEARER))["kind"] == "daemon"


@pytest.mark.parametrize("header", ["Bearer wrong", "Basic eA==", "Bearer"])
async def test_a_wrong_token_is_refused_even_where_none_is_needed(header: str) -> None:
    assert (await Console().refusal("/console/api/about", authorization=header)).status == 401


async def test_data_that_not_everyone_may_read_needs_the_token() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/secret", b"hunter2", acl=(ACL(31, Id("ip", "10.0.0.1")),))

    shown = await console.facts("node?path=/secret")
    trusted = await console.facts("node?path=/secret", **BEARER)

    assert (shown.get("data"), shown["secret"]) == (None, 7)
    assert trusted["data"]["base64"] == b64(b"hunter2")
    assert not [line for line in await found(console, "text=hunter") if "path" in line]
    assert [line["path"] for line in await found(console, "text=hunter", **BEARER) if "path" in line] == ["/secret"]


async def found(console: Console, query: str, **headers: str) -> list[dict[str, Any]]:
    """Search, and return the lines."""
    stream = (await console.ask(f"/console/api/search?{query}", **headers)).stream
    assert stream is not None
    lines = [json.loads(line) async for line in stream]
    await stream.aclose()
    return lines


# --- reading ---


async def test_children_come_in_windows() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/many", b"")
    for number in range(25):
        peer.create(f"/many/{number:02}", b"x" * number)

    window = await console.facts("children?path=/many&offset=10&limit=5")

    assert window["total"] == 25
    assert [row[0] for row in window["rows"]] == ["10", "11", "12", "13", "14"]
    assert window["rows"][0] == ["10", 0, 10, "persistent"]
    assert (await console.facts("children?path=/many&offset=99"))["rows"] == []


async def test_a_large_list_is_sorted_again_when_it_has_changed() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/many", b"")
    for number in range(1500):
        peer.create(f"/many/{number:04}", b"")
    first = await console.facts("children?path=/many&limit=1")
    peer.delete("/many/0000")
    peer.create("/many/!", b"")
    second = await console.facts("children?path=/many&limit=1")

    assert (first["rows"][0][0], second["rows"][0][0]) == ("0000", "!")


async def test_a_node_has_its_owner_watches_quota_and_acl_in_words() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/e", b'{"a": 1}', 1)
    peer.get("/e", watch=True)
    session = hex(next(iter(console.engine.sessions.alive)))

    node = await console.facts("node?path=/e")

    assert node["stat"]["kind"] == "ephemeral"
    assert node["stat"]["owner"] == session
    assert node["watches"][0]["session"] == session
    assert node["acl"] == [{"scheme": "world", "id": "anyone", "permissions": "cdrwa"}]


async def test_msgpack_is_shown_as_json() -> None:
    console = Console()
    connected(console.engine).create("/m", b"\x81\xa1a\x01")

    assert json.loads((await console.facts("node?path=/m"))["data"]["msgpack"]) == {"a": 1}


async def test_of_large_data_the_beginning_is_shown_until_all_is_asked_for() -> None:
    console = Console()
    connected(console.engine).create("/big", bytes(100_000))

    assert len(base64.b64decode((await console.facts("node?path=/big"))["data"]["base64"])) == 1 << 16
    assert len(base64.b64decode((await console.facts("node?path=/big&whole=1"))["data"]["base64"])) == 100_000


async def test_a_search_is_by_name_path_and_content() -> None:
    console = Console()
    peer = connected(console.engine)
    for path, data in (("/a", b"x"), ("/a/b.lock", b"needle"), ("/a/c", b"needle"), ("/b", b"")):
        peer.create(path, data)

    async def paths(query: str) -> list[str]:
        return [line["path"] for line in await found(console, query) if "path" in line]

    assert await paths("name=*.lock") == ["/a/b.lock"]
    assert await paths("name=b.lo") == ["/a/b.lock"]
    assert await paths("name=/a/*") == ["/a/b.lock", "/a/c"]
    assert await paths("text=needle") == ["/a/b.lock", "/a/c"]
    assert await paths("text=needle&name=?") == ["/a/c"]
    assert await paths("name=*&path=/b") == ["/b"]
    assert (await found(console, "name=*&path=/gone"))[-1]["done"] is True


async def test_locks_are_those_of_the_command_with_addresses() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/l", b"")
    name = "/l/9c7e980a02c6499346ac9bf4e550501a__lock__"
    peer.create(name, b"me", 3)
    peer.create(name, b"you", 3)

    locks = await console.facts("locks")

    (line,) = locks["shared"]
    assert (line["path"], line["kind"]) == ("/l", "lock")
    assert [entry["data"] for entry in line["holders"] + line["waiters"]] == ["me", "you"]
    assert locks["addresses"][line["holders"][0]["session"]].startswith("127.0.0.1")


async def test_a_session_has_its_nodes_watches_and_life() -> None:
    console = Console()
    peer = connected(console.engine)
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


async def test_without_a_history_there_is_no_such_view() -> None:
    console = Console(history=False)

    assert "history" not in (await console.facts("about"))["views"]
    assert (await console.refusal("/console/api/history")).status == 409


async def test_the_log_files_are_looked_at_when_somebody_asks() -> None:
    asked: list[Any] = []

    def past(*arguments: Any) -> list[Any]:
        asked.append(arguments)
        return [(5, 0x17, 1000, OpCode.DELETE, [(OpCode.DELETE, DeleteTxn("/a"))])]

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
        ("nothing", 404),
        ("change/create", 405),
    ],
)
async def test_a_wrong_question_is_refused_with_the_reason(target: str, status: int) -> None:
    error = await Console().refusal(f"/console/api/{target}")

    assert error.status == status
    assert str(error)


async def test_only_so_many_pages_listen_at_a_time() -> None:
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


# --- changing ---


async def test_a_person_creates_sets_and_deletes_with_versions() -> None:
    console = Console()
    tree = console.engine.tree

    await console.change("create", path="/a", base64=b64(b"1"))
    await console.change("set", path="/a", base64=b64(b"2"), version=0)
    stale = json.dumps({"path": "/a", "base64": "", "version": 0}).encode()
    error = await console.refusal("/console/api/change/set", "POST", stale, **BEARER)

    assert tree.find("/a").data == b"2"
    assert error.status == 409
    assert "/a" in str(error)
    await console.change("set_acl", path="/a", acl=["world:anyone:r"], version=0)
    await console.change("delete", path="/a", version=1)
    assert tree.get("/a") is None
    entries = (await console.facts("history?path=/a"))["entries"]
    assert [entry["kind"] for entry in entries] == ["delete", "set ACL", "set", "create"]
    assert {entry["why"] for entry in entries} == {"by a person, in the console"}


async def test_what_a_client_may_not_do_a_person_does_not_either() -> None:
    console = Console()
    connected(console.engine).create("/p", b"")
    connected(console.engine).create("/p/c", b"")
    body = json.dumps({"path": "/p", "version": 0}).encode()

    assert (await console.refusal("/console/api/change/delete", "POST", body, **BEARER)).status == 409
    console.engine.refuse_writes("the disk is full", frozen=False)
    body = json.dumps({"path": "/q", "base64": ""}).encode()
    assert (await console.refusal("/console/api/change/create", "POST", body, **BEARER)).status == 409
    assert console.engine.tree.get("/q") is None


async def test_sessions_are_expired_and_disconnected() -> None:
    console = Console()
    first, second = connected(console.engine), connected(console.engine)
    first.create("/first", b"", 1)
    second.create("/second", b"", 1)
    one, two = map(hex, console.engine.sessions.alive)

    await console.change("drop", session=two)
    await console.change("expire", session=one)

    assert console.engine.tree.get("/first") is None
    assert console.engine.tree.get("/second") is not None
    assert not console.engine.connections
    again = json.dumps({"session": one}).encode()
    assert (await console.refusal("/console/api/change/expire", "POST", again, **BEARER)).status == 409


async def test_watches_of_clients_fire_when_a_person_changes_something() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/a", b"")
    peer.get("/a", watch=True)

    await console.change("set", path="/a", base64=b64(b"new"), version=0)

    assert peer.receive()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"path": 5}',
        b'{"path": "a"}',
        b'{"path": "/a", "base64": "%%"}',
        b'{"path": "/a", "base64": 7}',
        b'{"path": "/a", "version": "x"}',
        b'{"path": "/a", "mode": "EPHEMERAL"}',
        b"[" * 100_000,
        b"\xff",
    ],
)
async def test_wrong_arguments_are_refused_and_change_nothing(body: bytes) -> None:
    console = Console()

    assert (await console.refusal("/console/api/change/create", "POST", body, **BEARER)).status == 400
    assert console.engine.tree.size == 4


@pytest.mark.parametrize("acl", [[], ["x"], ["world:anyone:q"], 5, None])
async def test_an_acl_that_is_none_is_refused(acl: object) -> None:
    console = Console()
    connected(console.engine).create("/a", b"")
    body = json.dumps({"path": "/a", "acl": acl, "version": 0}).encode()

    assert (await console.refusal("/console/api/change/set_acl", "POST", body, **BEARER)).status in (400, 409)
    assert console.engine.tree.find("/a").acl == 0


async def test_an_acl_shows_no_hash_of_a_password_without_the_token() -> None:
    console = Console()
    connected(console.engine).create("/a", b"", acl=(ACL(31, Id("digest", "bob:C1u6Ye/aBVB1C=")),))

    assert (await console.facts("node?path=/a"))["acl"][0]["id"] == "bob"
    assert (await console.facts("node?path=/a", **BEARER))["acl"][0]["id"] == "bob:C1u6Ye/aBVB1C="


async def test_locks_show_no_data_that_not_everyone_may_read() -> None:
    console = Console()
    peer = connected(console.engine)
    peer.create("/l", b"")
    secret = (ACL(31, Id("ip", "127.0.0.1")),)
    peer.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"secret", 3, acl=secret)

    shown, trusted = await console.facts("locks"), await console.facts("locks", **BEARER)

    assert [line["holders"][0]["data"] for answer in (shown, trusted) for line in answer["shared"]] == ["", "secret"]


async def test_no_session_ends_while_that_cannot_be_logged() -> None:
    console = Console()
    connected(console.engine).create("/e", b"", 1)
    (session,) = map(hex, console.engine.sessions.alive)
    console.engine.refuse_writes("the disk is full", frozen=True)

    body = json.dumps({"session": session}).encode()
    error = await console.refusal("/console/api/change/expire", "POST", body, **BEARER)

    assert error.status == 409
    assert "the disk is full" in str(error)
    assert console.engine.tree.get("/e") is not None


async def test_those_who_ask_for_the_locks_at_the_same_time_share_the_work() -> None:
    console = Console()
    peer = connected(console.engine)
    for number in range(3000):
        peer.create(f"/n{number}", b"")
    looks: list[bool] = []
    look = console.source._look

    async def counted(*, trusted: bool) -> Any:
        looks.append(trusted)
        return await look(trusted=trusted)

    console.source._look = counted  # type: ignore[method-assign]
    await asyncio.gather(*[console.facts("locks") for _ in range(20)])

    assert looks == [False]


async def test_a_node_with_very_many_children_is_left_out_of_the_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_locks, "MAX_CONTENDERS", 10)
    console = Console()
    peer = connected(console.engine)
    peer.create("/l", b"")
    for _ in range(11):
        peer.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"", 3)

    locks = await console.facts("locks")

    assert (locks["shared"], locks["left_out"]) == ([], 1)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_what_a_browser_asks_for_another_page_is_refused(site: str) -> None:
    console = Console()

    assert (await console.refusal("/console/api/events", **{"sec-fetch-site": site})).status == 403
    assert (await console.ask("/console/api/about", **{"sec-fetch-site": "same-origin"})).status == 200


async def test_with_the_token_there_is_room_for_more_pages() -> None:
    console = Console()
    streams = [(await console.ask("/console/api/events")).stream for _ in range(MAX_STREAMS)]

    assert (await console.refusal("/console/api/search?name=x")).status == 503
    trusted = (await console.ask("/console/api/events", **BEARER)).stream
    for stream in (*streams, trusted):
        assert stream is not None
        await stream.aclose()


async def test_a_long_glob_is_refused() -> None:
    assert (await Console().refusal("/console/api/search?name=" + "%3F" * 201)).status == 400


@pytest.mark.parametrize("version", ["5", 1.5, True, 1 << 31, -2, None])
async def test_a_version_is_a_number(version: object) -> None:
    console = Console()
    connected(console.engine).create("/a", b"")
    body = json.dumps({"path": "/a", "base64": "", "version": version}).encode()

    assert (await console.refusal("/console/api/change/set", "POST", body, **BEARER)).status == 400


async def test_a_lock_is_held_since_the_one_ahead_has_gone() -> None:
    console = Console()
    first, second = connected(console.engine), connected(console.engine)
    first.create("/l", b"")
    name = "/l/9c7e980a02c6499346ac9bf4e550501a__lock__"
    ahead = first.create(name, b"first", 3)
    second.create(name, b"second", 3)
    later = second.create(name, b"third", 3)
    console.engine.set_time(console.engine.now + 5000, console.engine.monotonic_ms + 5000)
    first.delete(ahead)
    console.engine.set_time(console.engine.now + 5000, console.engine.monotonic_ms + 5000)
    second.delete(later)  # one behind it does not count

    (line,) = (await console.facts("locks"))["shared"]

    (holder,) = line["holders"]
    assert (holder["data"], holder["held_since"] - holder["since"]) == ("second", 5.0)
