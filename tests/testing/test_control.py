"""The control API: a test server's calls for programs in other languages."""

from __future__ import annotations

import asyncio
import http.client
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from zoolet.client import Client, State
from zoolet.protocol.errors import NoNodeError
from zoolet.server import Server
from zoolet.server.testing import Proxy
from zoolet.server.testing.control.commands import _ACTIONS, COMMANDS, control_of
from zoolet.server.testing.control.values import UsageError, tree_of
from zoolet.server.testing.frames import actions
from zoolet.server.testing.frames.actions import Action

h11 = pytest.importorskip("h11")
from zoolet.server.testing.control.http import LIMITS, ControlServer  # noqa: E402 - needs h11

Call = Callable[..., Any]


@asynccontextmanager
async def controlled(**options: Any) -> AsyncIterator[tuple[Server, Call]]:
    """Run a server, and return it with a function that executes a command."""
    async with Server(**options) as server:
        control = control_of(server)
        yield server, lambda name, **parameters: control.execute(name, parameters)


async def test_state_is_changed_and_read() -> None:
    async with controlled() as (server, call):
        await call("populate", nodes={"/app": {"$data": "1", "a": "x", "b": {"base64": "/w=="}, "c": None}})
        await call("set", path="/app/a", data="y")
        await call("delete", path="/app/c")
        tree = await call("tree")
        assert {path: node["data"] for path, node in tree.items()} == {
            "/app": "1",
            "/app/a": "y",
            "/app/b": {"base64": "/w=="},
        }
        assert tree["/app"]["acl"] == ["world:anyone:cdrwa"]
        number = await call("snapshot")
        await call("delete", path="/app", recursive=True)
        await call("restore", snapshot=number)
        assert set(server.tree()) == {"/app", "/app/a", "/app/b"}
        await call("reset")
        assert await call("tree") == {}


async def test_sessions_are_known_by_hexadecimal_ids() -> None:
    async with controlled() as (_, call), Client(_.hosts) as zk:
        await zk.create("/e", ephemeral=True)
        sessions = await call("sessions")
        [id] = sessions
        assert id == f"0x{zk.session_id:x}" == sessions[id]["id"]
        node = (await call("tree"))["/e"]
        assert node["ephemeral_owner"] == id
        assert node["czxid"] == f"0x{_.tree()['/e'].czxid:x}"  # JavaScript would round it
        await call("expire", who=id)
        assert await call("tree") == {}


async def test_faults_have_numbers() -> None:
    async with controlled() as (server, call), Client(server.hosts) as zk:
        number = await call("fault", action="error", code="NO_NODE", op="get", path="/a*", times=1)
        server.populate({"/a": b""})
        with pytest.raises(NoNodeError):
            await zk.get("/a")
        assert await call("fault_status", fault=number) == {"hits": 1, "seen": 1}
        assert await call("end_fault", fault=number) == {"hits": 1, "seen": 1}
        with pytest.raises(LookupError, match=f"there is no fault {number}"):
            await call("release", fault=number)

        held = await call("fault", action="hold", op="set")
        setting = asyncio.create_task(zk.set("/a", b"2"))
        with pytest.raises(TimeoutError):
            await call("wait_for_node", path="/a", data="2", timeout=0.05)
        assert "setData /a" in await call("report")
        await call("release", fault=held)
        assert (await call("wait_for_node", path="/a", data="2"))["version"] == 1
        await setting


async def test_every_action_is_there() -> None:
    made = {
        name
        for name, function in inspect.getmembers(actions, inspect.isfunction)
        if inspect.signature(function).return_annotation == Action.__name__
    }
    assert set(_ACTIONS) == made
    for make, names in _ACTIONS.values():
        assert list(inspect.signature(make).parameters) == list(names)


async def test_recordings_have_numbers() -> None:
    async with controlled() as (server, call), Client(server.hosts) as zk:
        number = await call("start_recording", who=f"0x{zk.session_id:x}")
        await zk.create("/a", b"1")
        [op] = await call("stop_recording", recording=number)
        assert (op["op"], op["path"], op["data"], op["error"]) == ("create", "/a", "1", "")
        assert op["client"] == f"0x{zk.session_id:x}"
        await call("wait_for_idle")
        await call("wait_for_sessions", n=1)
        await call("wait_for_contenders", path="/lock", n=0)
        assert (await call("ops", last=1))[0]["path"] == "/a"


async def test_the_clock_is_advanced() -> None:
    async with controlled(clock="manual") as (server, call):
        await call("populate", nodes={"/a": {"$ttl": 5, "$acl": ["world:anyone:r"]}, "/b": {"$container": True}})
        assert await call("advance", seconds=6) is None
        assert list(server.tree()) == ["/b"]


async def test_a_server_is_restarted_and_limited() -> None:
    async with controlled() as (server, call):
        await call("populate", nodes={"/a": ""})
        await call("restart")
        assert "/a" in server.tree()
        await call("set_quota", path="/a", count=1)
        assert server.tree("/zookeeper/quota/a/zookeeper_limits")
        before = server.tree()["/a"].mtime
        await call("skew_clock", seconds=500)
        await call("set", path="/a", data="2")
        assert server.tree()["/a"].mtime - before == pytest.approx(500, abs=5)
        await call("refuse_connections")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        await call("accept_connections")
        await call("pause", who="all")
        assert "paused clients:\n  all clients" in await call("report")
        await call("resume", who="all")
        assert "paused clients" not in await call("report")
        await call("set_read_only", on=True)
        async with Client(server.hosts, read_only=True) as zk:
            assert zk.state is State.READ_ONLY
            [view] = server.sessions().values()
            await call("drop", who="all")
            await server.until(lambda: server.sessions()[zk.session_id].client not in (None, view.client))
        await call("heal")
        await call("restart", keep=False)
        assert await call("watches") == []
        assert await call("tree") == {}


async def test_a_proxy_has_the_commands_that_need_no_server() -> None:
    async with Server() as server, Proxy(server.hosts) as proxy:
        control = control_of(proxy)
        assert "tree" not in control.commands
        assert await control.execute("fault", {"action": "lose_reply"}) == 1
        with pytest.raises(UsageError, match="no command 'tree'"):
            await control.execute("tree", {})


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("explode", {}, "there is no command 'explode'; GET /commands lists them"),
        ("expire", {}, "expire needs the parameter who: whose"),
        ("expire", {"who": "me"}, "a session is 'me'"),
        ("expire", {"who": 1.5}, "a session is 1.5"),
        ("expire", {"who": "all", "now": True}, "expire has no parameter now; it has who"),
        ("expire", [], "must be a JSON object"),
        ("advance", {"seconds": "1"}, "advance, seconds: '1' is not a number"),
        ("advance", {"seconds": True}, "True is not a number"),
        ("set_read_only", {"on": 1}, "1 is not true or false"),
        ("set_read_only", {"on": None}, "None is not true or false"),
        ("restart", {"keep": None}, "None is not true or false"),
        ("restart", {"downtime": 10**400}, "the seconds must be from 0 to"),
        ("tree", {"path": None}, "None is not text"),
        ("delete", {"path": ""}, "is not a path"),
        ("wait_for_sessions", {"n": 5, "timeout": float("nan")}, "nan is not from 0 to 600 seconds"),
        ("skew_clock", {"seconds": 1e17}, "the seconds must be from -1e"),
        ("stop_recording", {"recording": 1}, "there is no recording 1"),
        ("stop_recording", {"recording": 1, "save": "/tmp/x"}, "has no parameter save"),
        ("populate", {"nodes": {"/a": {"$container": "no"}}}, "container is 'no'"),
        ("populate", {"nodes": {"/a": {"$ttl": True}}}, "ttl is True"),
        ("populate", {"nodes": {"/a": {"$ttl": float("inf")}}}, "must be from 0.001 to 1099511627.775 seconds"),
        ("populate", {"nodes": {"$data": "x"}}, "which belongs to a node"),
        ("fault", {"action": "boom"}, "action is 'boom'; it must be one of delay, error"),
        ("fault", {"action": "delay"}, "delay needs seconds"),
        ("fault", {"action": "hold", "seconds": 1}, "hold has no seconds"),
        ("fault", {"action": "error", "code": "NOPE"}, "'NOPE' is not an error"),
        ("fault", {"action": "hold", "op": "creat"}, "op 'creat' is unknown"),
        ("populate", {"nodes": []}, "must be an object of nodes"),
        ("populate", {"nodes": {"/a": 7}}, "data is 7"),
        ("populate", {"nodes": {"/a": {"base64": "?"}}}, "is not base64"),
        ("populate", {"nodes": {"/a": {"base64": "é"}}}, "is not base64"),
        ("populate", {"nodes": {"/a": {"$kind": 1}}}, r"/a has \$kind"),
        ("populate", {"nodes": {"/a": {"$acl": ["world"]}}}, r"/a: \$acl has 'world'"),
        ("populate", {"nodes": {"a//b": ""}}, "does not make a path"),
    ],
)
async def test_a_mistake_is_explained(name: str, parameters: Any, message: str) -> None:
    async with Server() as server:
        with pytest.raises((ValueError, LookupError), match=message):
            await control_of(server).execute(name, parameters)
        assert dict(server.tree()) == {}


def test_each_command_that_a_server_has_has_its_parameters() -> None:
    others = {"fault", "fault_status", "end_fault", "release", "start_recording", "stop_recording"}
    for name, command in COMMANDS.items():
        if name not in others:
            known = inspect.signature(getattr(Server, name)).parameters
            assert set(command.parameters) <= set(known), name


def test_a_tree_of_json_may_be_flat_or_nested() -> None:
    assert tree_of({"/a/b": "x", "/c": {"d": None}}).keys() == {"/a/b", "/c"}


# --- over HTTP ---


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, Call]]:
    """Serve the API, and return a function that makes a request: status and answer."""
    async with Server() as server, ControlServer(control_of(server)) as http_server:
        url = urlsplit(http_server.url)

        def request(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(url.netloc, timeout=10)
            connection.request(method, url.path + path, body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            connection.close()
            return response.status, answer

        yield server, lambda *arguments, **headers: asyncio.to_thread(request, *arguments, **headers)


async def test_commands_are_listed_with_their_parameters() -> None:
    async with served() as (_, request):
        status, answer = await request("GET", "/commands")
        assert status == 200
        assert answer["commands"].keys() == COMMANDS.keys()
        assert answer["commands"]["wait_for_sessions"]["parameters"] == {
            "n": {"type": "whole number", "meaning": "how many", "required": True},
            "timeout": {"type": "number", "meaning": "seconds", "required": False, "default": 5.0},
        }


async def test_a_command_is_posted() -> None:
    async with served() as (server, request):
        assert await request("POST", "/commands/populate", b'{"nodes": {"/a": "1"}}') == (200, {"result": None})
        assert (await request("POST", "/commands/tree"))[1]["result"]["/a"]["data"] == "1"
        assert server.tree()["/a"].data == b"1"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/commands/explode", b"", 404, "no command explode"),
        ("GET", "/elsewhere", None, 404, "there is nothing at /elsewhere"),
        ("GET", "/commands/tree", None, 405, "use POST"),
        ("POST", "/commands", b"", 405, "use GET"),
        ("POST", "/commands/tree", b"{", 400, "the body is not JSON"),
        ("POST", "/commands/tree", b"\xff", 400, "the body is not JSON"),
        ("POST", "/commands/tree", b"[" * 100_000, 400, "JSON"),
        ("POST", "/commands/populate", b'{"nodes": ' + b'{"a": ' * 5000 + b"1" + b"}" * 5001, 400, "nested|JSON"),
        ("POST", "/commands/expire", b'{"who": 5}', 400, "LookupError: 0x5 has no session that is alive"),
        ("POST", "/commands/set", b'{"path": "/x", "data": ""}', 400, "NoNodeError: /x"),
        ("POST", "/commands/wait_for_sessions", b'{"n": 1, "timeout": 0.01}', 504, "there were not 1 sessions, but 0"),
    ],
)
async def test_what_cannot_be_executed_is_answered(
    method: str, path: str, body: bytes | None, status: int, message: str
) -> None:
    async with served() as (_, request):
        found, answer = await request(method, path, body)
        assert found == status
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(answer["error"])


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Host": "evil.example:80"}],
)
async def test_web_pages_are_refused(headers: dict[str, str]) -> None:
    async with served() as (server, request):
        status, _ = await request("POST", "/commands/populate", b'{"nodes": {"/a": ""}}', **headers)
        assert status == 403
        assert dict(server.tree()) == {}


async def test_a_connection_serves_several_requests_and_garbage_ends_it() -> None:
    async with Server() as server, ControlServer(control_of(server)) as control:
        url = urlsplit(control.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
        for _ in range(2):
            writer.write(b"GET %b/commands HTTP/1.1\r\nHost: localhost\r\n\r\n" % url.path.encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["commands"]
        writer.write(b"\x16\x03\x01 garbage\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.close()


async def test_who_does_not_have_the_url_has_no_control() -> None:
    async with Server() as server, ControlServer(control_of(server)) as control:
        url = urlsplit(control.url)
        assert len(url.path) > 16
        for path in ("/commands", "/commands/tree", "/x/commands/tree", f"{url.path[:-1]}/commands/tree"):
            reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            assert b" 403 " in await reader.readline()
            writer.close()


async def test_a_body_may_not_be_endless() -> None:
    async with Server() as server, ControlServer(control_of(server)) as control:
        url = urlsplit(control.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
        size = LIMITS.body + (1 << 20)
        head = f"POST {url.path}/commands/populate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
        writer.write(head.encode())
        piece = bytes(1 << 20)
        for _ in range(size // len(piece)):
            writer.write(piece)
        assert b" 413 " in await reader.readline()
        writer.close()


async def test_a_defect_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served() as (server, request):
        monkeypatch.setattr(server, "tree", lambda path: 1 / 0)
        assert await request("POST", "/commands/tree") == (500, {"error": "ZeroDivisionError: division by zero"})
        assert (await request("POST", "/commands/sessions"))[0] == 200


async def test_a_client_may_wait_for_a_go_ahead_and_ask_for_the_head_only() -> None:
    async with Server() as server, ControlServer(control_of(server)) as control:
        url = urlsplit(control.url)
        reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
        head = f"POST {url.path}/commands/tree HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        head += "Expect: 100-continue\r\n\r\n"
        writer.write(head.encode())
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"{}")
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readline() == b'{"result": {}}\n'
        writer.write(f"HEAD {url.path}/commands HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert b" 405 " in await reader.readuntil(b"\r\n\r\n")
        writer.close()
