"""The control API: the calls of a test server for programs in other languages."""

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
from support.waiting import DEADLINE_S

from zoolet.client import Client, State
from zoolet.protocol.errors import NoNodeError
from zoolet.testing import Cluster, Proxy, Server
from zoolet.testing.calls import CALLS, MEMBER_CALLS, NUMBERED_CALLS
from zoolet.testing.control.control import Control
from zoolet.testing.control.values import UsageError, parse_tree
from zoolet.testing.frames import actions
from zoolet.testing.frames.actions import ACTIONS, Action

h11 = pytest.importorskip("h11")
from zoolet.testing.control.http import LIMITS, ControlServer  # noqa: E402 - needs h11

Call = Callable[..., Any]


@asynccontextmanager
async def run_controlled_server(**options: Any) -> AsyncIterator[tuple[Server, Call]]:
    """Run a server, and yield it with a function that executes commands."""
    async with Server(**options) as server:
        control = Control(server)
        yield server, lambda name, **parameters: control.execute(name, parameters)


async def test_control_commands_change_and_read_state() -> None:
    async with run_controlled_server() as (server, call):
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
    async with run_controlled_server() as (_, call), Client(_.hosts) as zk:
        await zk.create("/e", ephemeral=True)
        sessions = await call("sessions")
        [id] = sessions
        assert id == f"0x{zk.session_id:x}" == sessions[id]["id"]
        node = (await call("tree"))["/e"]
        assert node["ephemeral_owner"] == id
        assert node["czxid"] == f"0x{_.tree()['/e'].czxid:x}"  # JavaScript would round the number
        await call("expire", who=id)
        assert await call("tree") == {}


async def test_control_commands_refer_to_fault_by_number() -> None:
    async with run_controlled_server() as (server, call), Client(server.hosts) as zk:
        number = await call("fault", action="error", code="NO_NODE", op="get", path="/a*", times=1)
        server.populate({"/a": b""})
        with pytest.raises(NoNodeError):
            await zk.get("/a")
        assert await call("fault_status", fault=number) == {"hits": 1, "seen": 1}
        assert await call("end_fault", fault=number) == {"hits": 1, "seen": 1}
        with pytest.raises(LookupError, match=f"no fault with number {number}"):
            await call("release", fault=number)

        held = await call("fault", action="hold", op="set")
        setting = asyncio.create_task(zk.set("/a", b"2"))
        with pytest.raises(TimeoutError):
            await call("wait_for_node", path="/a", data="2", timeout=0.05)
        assert "setData /a" in await call("report")
        await call("release", fault=held)
        assert (await call("wait_for_node", path="/a", data="2"))["version"] == 1
        await setting


def test_every_action_is_a_fault_choice() -> None:
    made = {
        name
        for name, function in inspect.getmembers(actions, inspect.isfunction)
        if inspect.signature(function).return_annotation == Action.__name__
    }
    parameters = {name for make in ACTIONS.values() for name in inspect.signature(make).parameters}

    assert set(ACTIONS) == made
    fault = Control(Server()).index()["fault"]["parameters"]
    assert fault["action"]["choices"] == [*ACTIONS]
    assert parameters < set(fault)
    assert {name: each["required_for"] for name, each in fault.items() if "required_for" in each} == {
        "seconds": ["delay"],
        "code": ["error"],
        "bytes_per_second": ["slow_reply"],
    }


async def test_control_commands_refer_to_recording_by_number() -> None:
    async with run_controlled_server() as (server, call), Client(server.hosts) as zk:
        number = await call("start_recording", who=f"0x{zk.session_id:x}")
        await zk.create("/a", b"1")
        [op] = await call("stop_recording", recording=number)
        assert (op["op"], op["path"], op["data"], op["error"]) == ("create", "/a", "1", "")
        assert op["client"] == f"0x{zk.session_id:x}"
        await call("wait_for_idle")
        await call("wait_for_client", who=f"0x{zk.session_id:x}")
        await call("wait_for_sessions", n=1)
        await call("wait_for_contenders", path="/lock", n=0)
        assert (await call("ops", last=1))[0]["path"] == "/a"


async def test_control_command_advances_clock() -> None:
    async with run_controlled_server(clock="manual") as (server, call):
        await call("populate", nodes={"/a": {"$ttl": 5, "$acl": ["world:anyone:r"]}, "/b": {"$container": True}})
        assert await call("advance", seconds=6) is None
        assert list(server.tree()) == ["/b"]


async def test_control_commands_restart_server_and_set_quota() -> None:
    async with run_controlled_server() as (server, call):
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


async def test_control_of_proxy_has_only_commands_without_server_state() -> None:
    async with Server() as server, Proxy(server.hosts) as proxy:
        control = Control(proxy)
        assert "tree" not in control.commands
        assert await control.execute("fault", {"action": "lose_reply"}) == 1
        with pytest.raises(UsageError, match="unknown command 'tree'"):
            await control.execute("tree", {})


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("explode", {}, "unknown command 'explode'; GET /commands lists the commands"),
        ("expire", {}, 'expire needs the parameter who: id of the client\'s session, or "all"'),
        ("expire", {"who": "me"}, "must be a session id, .* not 'me'"),
        ("expire", {"who": 1.5}, "must be a session id, .* not 1.5"),
        ("expire", {"who": "all", "now": True}, "expire has no parameter 'now'; its parameters are who"),
        ("expire", [], "must be a JSON object"),
        ("advance", {"seconds": "1"}, "advance: seconds must be a number, not '1'"),
        ("advance", {"seconds": True}, "seconds must be a number, not True"),
        ("set_read_only", {"on": 1}, "on must be true or false, not 1"),
        ("set_read_only", {"on": None}, "on must be true or false, not None"),
        ("restart", {"keep": None}, "keep must be true or false, not None"),
        ("restart", {"downtime": 10**400}, "downtime must be from 0 to 1,000,000,000 s, not 1000"),
        ("tree", {"path": None}, "path must be text, not None"),
        ("delete", {"path": ""}, "is not a path"),
        ("wait_for_sessions", {"n": 5, "timeout": float("nan")}, "timeout must be from 0 to 600 seconds, not nan"),
        ("skew_clock", {"seconds": 1e17}, "skew_clock: seconds must be from -1,000,000,000 to"),
        ("stop_recording", {"recording": 1}, "no recording with number 1"),
        ("stop_recording", {"recording": 1, "save": "/tmp/x"}, "has no parameter 'save'"),
        ("populate", {"nodes": {"/a": {"$container": "no"}}}, "container must be true or false, not 'no'"),
        ("populate", {"nodes": {"/a": {"$ttl": True}}}, "ttl must be from 0.001 to .* not True"),
        (
            "populate",
            {"nodes": {"/a": {"$ttl": float("inf")}}},
            "ttl must be from 0.001 to 1,099,511,627.775 seconds, not inf",
        ),
        ("populate", {"nodes": {"$data": "x"}}, "only allowed inside a node, not at the top of the tree: "),
        ("fault", {"action": "boom"}, "fault: action must be one of delay, error, .* not 'boom'"),
        ("fault", {"action": "delay"}, "delay needs the parameter seconds"),
        ("fault", {"action": "delay", "seconds": "1"}, "delay: seconds must be a number, not '1'"),
        ("fault", {"action": "hold", "seconds": 1}, "hold has no parameter 'seconds'; its parameters are limit"),
        (
            "fault",
            {"action": "error", "code": "NOPE"},
            "error: code must be the name or number of an error, .* not 'NOPE'",
        ),
        ("fault", {"action": "hold", "op": "creat"}, r"unknown op 'creat'; did you mean create\?"),
        ("fault", {"action": "hold", "op": "xyz"}, "op must be one of .*, not 'xyz'"),
        ("populate", {"nodes": []}, r"the tree must be an object of nodes by path or name, not \[\]"),
        ("populate", {"nodes": {"/a": 7}}, "/a: data must be text, null, .* not 7"),
        ("populate", {"nodes": {"/a": {"base64": "?"}}}, "is not valid base64"),
        ("populate", {"nodes": {"/a": {"base64": "é"}}}, "is not valid base64"),
        ("populate", {"nodes": {"/a": {"$kind": 1}}}, r"/a: keys must be \$data, .* or children, not \$kind"),
        (
            "populate",
            {"nodes": {"/a": {"$acl": ["world"]}}},
            r"/a: \$acl must be scheme:id:permissions, .* not 'world'",
        ),
        ("populate", {"nodes": {"a//b": ""}}, "is not a valid path or name"),
    ],
)
async def test_invalid_parameter_raises_clear_error(name: str, parameters: Any, message: str) -> None:
    async with Server() as server:
        with pytest.raises((ValueError, LookupError), match=message):
            await Control(server).execute(name, parameters)
        assert dict(server.tree()) == {}


def test_each_row_is_command_with_known_parameters() -> None:
    commands = Control(Cluster()).commands  # a cluster supports all commands

    meanings = {call.name: set(call.descriptions) for call in (*CALLS, *MEMBER_CALLS, *NUMBERED_CALLS)}
    assert {name: set(command.parameters) - {"action"} for name, command in commands.items()} == meanings


def test_endpoint_has_commands_of_its_methods() -> None:
    server, proxy = Control(Server()).commands.keys(), Control(Proxy("a:1")).commands.keys()

    assert {call.name for call in CALLS if hasattr(Server, call.method)} < server
    assert proxy < server < Control(Cluster()).commands.keys()
    assert "members" not in server
    assert "stop_member" not in server


def test_nullable_and_choice_parameters_are_listed() -> None:
    index = Control(Cluster()).index()

    assert index["set"]["parameters"]["data"]["nullable"] is True
    assert "nullable" not in index["set"]["parameters"]["path"]
    assert index["pause"]["parameters"]["direction"]["choices"] == ["both", "requests", "replies"]
    assert index["add_member"]["parameters"]["role"]["choices"] == ["participant", "observer"]
    assert index["stop_leader"]["summary"] == "Stop the leader and return it. The result is its index."


def test_json_tree_may_be_flat_or_nested() -> None:
    assert parse_tree({"/a/b": "x", "/c": {"d": None}}).keys() == {"/a/b", "/c"}


# --- over HTTP ---


@asynccontextmanager
async def run_control_server() -> AsyncIterator[tuple[Server, Call]]:
    """Serve the API. Yield the server, and a function that makes a request and returns its status and answer."""
    async with Server() as server, ControlServer(Control(server)) as http_server:
        url = urlsplit(http_server.url)

        def request(method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
            connection = http.client.HTTPConnection(url.netloc, timeout=DEADLINE_S)
            connection.request(method, url.path + path, body, headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
            connection.close()
            return response.status, answer

        yield server, lambda *arguments, **headers: asyncio.to_thread(request, *arguments, **headers)


async def test_control_commands_are_listed_with_parameters() -> None:
    async with run_control_server() as (_, request):
        status, answer = await request("GET", "/commands")
        assert status == 200
        assert answer["commands"].keys() == Control(Server()).commands.keys()
        assert answer["commands"]["wait_for_sessions"]["parameters"] == {
            "n": {"type": "whole number", "meaning": "number of sessions", "required": True, "json": ["number"]},
            "timeout": {
                "type": "number",
                "meaning": "timeout in seconds",
                "required": False,
                "default": 5.0,
                "json": ["number"],
            },
        }


async def test_posted_control_command_is_executed() -> None:
    async with run_control_server() as (server, request):
        assert await request("POST", "/commands/populate", b'{"nodes": {"/a": "1"}}') == (200, {"result": None})
        assert (await request("POST", "/commands/tree"))[1]["result"]["/a"]["data"] == "1"
        assert server.tree()["/a"].data == b"1"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("POST", "/commands/explode", b"", 404, "unknown command 'explode'"),
        ("GET", "/elsewhere", None, 404, "no page at /elsewhere"),
        ("GET", "/commands/tree", None, 405, "use POST"),
        ("POST", "/commands", b"", 405, "use GET"),
        ("POST", "/commands/tree", b"{", 400, "the request body is not JSON"),
        ("POST", "/commands/tree", b"\xff", 400, "the request body is not JSON"),
        ("POST", "/commands/tree", b"[" * 100_000, 400, "JSON"),
        ("POST", "/commands/populate", b'{"nodes": ' + b'{"a": ' * 5000 + b"1" + b"}" * 5001, 400, "nested|JSON"),
        ("POST", "/commands/expire", b'{"who": 5}', 400, "LookupError: no session 0x5 is alive on this server"),
        ("POST", "/commands/set", b'{"path": "/x", "data": ""}', 400, "NoNodeError: /x"),
        ("POST", "/commands/wait_for_sessions", b'{"n": 1, "timeout": 0.01}', 504, "expected 1 session, found 0"),
    ],
)
async def test_failed_control_command_returns_status_and_error(
    method: str, path: str, body: bytes | None, status: int, message: str
) -> None:
    async with run_control_server() as (_, request):
        found, answer = await request(method, path, body)
        assert found == status
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(answer["error"])


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}, {"Host": "evil.example:80"}],
)
async def test_control_server_refuses_requests_of_web_pages(headers: dict[str, str]) -> None:
    async with run_control_server() as (server, request):
        status, _ = await request("POST", "/commands/populate", b'{"nodes": {"/a": ""}}', **headers)
        assert status == 403
        assert dict(server.tree()) == {}


async def test_connection_is_reused_until_malformed_request() -> None:
    async with Server() as server, ControlServer(Control(server)) as control:
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


async def test_control_needs_token_of_url() -> None:
    async with Server() as server, ControlServer(Control(server)) as control:
        url = urlsplit(control.url)
        assert len(url.path) > 16
        for path in ("/commands", "/commands/tree", "/x/commands/tree", f"{url.path[:-1]}/commands/tree"):
            reader, writer = await asyncio.open_connection("127.0.0.1", url.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
            assert b" 403 " in await reader.readline()
            writer.close()


async def test_wrong_token_is_refused_before_body() -> None:
    async with Server() as server, ControlServer(Control(server)) as control:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(control.url).port)
        writer.write(b"POST /x/commands/tree HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n{")
        assert b" 403 " in await asyncio.wait_for(reader.readline(), DEADLINE_S)
        writer.close()


async def test_control_server_refuses_oversized_body() -> None:
    async with Server() as server, ControlServer(Control(server)) as control:
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


async def test_internal_error_of_control_command_returns_500(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_control_server() as (server, request):
        monkeypatch.setattr(server, "tree", lambda path: 1 / 0)
        assert await request("POST", "/commands/tree") == (500, {"error": "ZeroDivisionError: division by zero"})
        assert (await request("POST", "/commands/sessions"))[0] == 200


async def test_control_server_answers_expect_continue_and_head() -> None:
    async with Server() as server, ControlServer(Control(server)) as control:
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
