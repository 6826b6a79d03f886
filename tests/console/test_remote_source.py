"""``zoolet console HOSTS``, for zoolet and for real servers: information from their protocol and commands."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any, cast

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, ConnectionClosedError
from support.apache import RELEASES, ApacheZooKeeper
from support.console import printed_locks
from support.curator import curator_locks, require_curator
from support.http import answer
from support.remote_console import run_console
from support.waiting import DEADLINE_S

from zoolet.__main__ import main
from zoolet.client.blocking import Client
from zoolet.console.pages import ConsolePages
from zoolet.console.remote_source import RemoteSource
from zoolet.protocol.records import Stat
from zoolet.server.admin.http import HttpError, HttpRequest, Router, Token, no_page
from zoolet.testing import Cluster, Server

pytest.importorskip("h11")
pytestmark = pytest.mark.slow


def test_remote_source_shows_protocol_data() -> None:
    with (
        Server(config={"4lw.commands.whitelist": "*"}) as server,
        Client(server.hosts) as zk,
        run_console(server.hosts) as of,
    ):
        zk.create("/a", b'{"x": 1}')
        zk.create("/a/e", b"", ephemeral=True)
        zk.create("/a/needle", b"in a haystack")
        session = hex(zk.session_id)

        about = of.get("about")
        assert (about["kind"], about["views"]) == ("remote", ["overview", "tree", "sessions", "locks"])
        assert of.get("overview")["health"] == ""
        assert [row[0] for row in of.get("children?path=/a")["rows"]] == ["e", "needle"]
        assert of.get("node?path=/a/e")["stat"]["owner"] == session
        assert base64.b64decode(of.get("node?path=/a")["data"]["base64"]) == b'{"x": 1}'
        found = of.get("search?text=haystack")
        assert [line["path"] for line in found if "path" in line] == ["/a/needle"]
        of.until("sessions", lambda answer: session in {row["id"] for row in answer["rows"]})
        assert of.get(f"session?id={session}")["owned"] == ["/a/e"]
        for name in ("node?path=/gone", "history"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                of.get(name)
            caught.value.close()


def test_times_of_remote_source_use_clock_of_server() -> None:
    with Server(clock="manual") as server:
        server.advance(3600)
        with run_console(server.hosts) as of:
            of.until("overview", lambda answer: answer["now"] / 1000 - time.time() > 3500)
            (row,) = of.until("sessions", lambda answer: answer["rows"])["rows"]
            assert row["heard"] < 60


def test_console_page_accepts_configured_host_name() -> None:
    with Server() as server, run_console(server.hosts, "-Dzoolet.adminHosts=console.example.org") as of:
        request = urllib.request.Request(of.url, headers={"Host": "console.example.org"})
        urllib.request.urlopen(request, timeout=DEADLINE_S).close()
        with pytest.raises(urllib.error.HTTPError, match="403") as caught:
            urllib.request.urlopen(urllib.request.Request(of.url, headers={"Host": "evil.org"}), timeout=DEADLINE_S)
        caught.value.close()


def test_any_loopback_address_is_open_for_reading() -> None:
    with Server() as server, run_console(server.hosts, "--host", "127.0.0.2") as of:
        assert of.get("about")["open"]


def test_remote_source_shows_each_of_its_servers() -> None:
    config = {"4lw.commands.whitelist": "*"}
    with (
        Cluster(2, config=config) as cluster,
        Client(cluster[0].hosts) as one,
        Client(cluster[1].hosts) as two,
        run_console(f"127.0.0.1:1,{cluster[0].hosts},{cluster[1].hosts}") as of,
    ):
        one.create("/l", b"")
        one.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"me", ephemeral=True, sequential=True)
        two.create("/l/9c7e980a02c6499346ac9bf4e550501a__lock__", b"you", ephemeral=True, sequential=True)
        wanted = {hex(one.session_id), hex(two.session_id)}

        answer = of.until("sessions", lambda answer: wanted <= {row["id"] for row in answer["rows"]})
        since = [row["since"] for row in answer["rows"]]
        assert since == sorted(since)
        overview = of.until("overview", lambda answer: answer["connections"] >= 3)
        assert overview["health"] == ""
        assert {server["mode"] for server in overview["servers"][1:]} == {"leader", "follower"}
        assert "refused" in overview["servers"][0]["problem"]
        locks = of.get(f"locks?session={hex(two.session_id)}")
        assert [(line["path"], line["place"]) for line in locks["shared"]] == [("/l", 1)]
        entries = locks["shared"][0]["holders"] + locks["shared"][0]["waiters"]
        assert all(entry["address"].startswith("127.0.0.1:") for entry in entries)


def test_remote_source_changes_nodes_as_client() -> None:
    with Server() as server, Client(server.hosts) as zk, run_console(server.hosts) as of:
        of.change("create", path="/a", base64=base64.b64encode(b"1").decode())
        of.change("set", path="/a", base64=base64.b64encode(b"2").decode(), version=0)
        of.change("set_acl", path="/a", acl=["world:anyone:cdrwa"], version=0)
        with pytest.raises(urllib.error.HTTPError) as caught:
            of.change("delete", path="/a", version=0)
        caught.value.close()
        assert caught.value.code == 409
        assert zk.get("/a")[0] == b"2"
        of.change("delete", path="/a", version=1)
        assert zk.exists("/a") is None


class InvalidNamesClient:
    """A client of a server that returns an invalid child name."""

    async def children(self, path: str) -> list[str]:
        """Return the invalid name."""
        return ["a/../b"]

    async def exists(self, path: str) -> Stat:
        """Return any Stat."""
        return Stat(*[0] * 11)


async def test_remote_source_refuses_invalid_names() -> None:
    source = RemoteSource(cast(Any, InvalidNamesClient()), (), None, 1.0)
    pages = ConsolePages(source, Token(None))
    router = Router(pages.routes(), no_page(""))
    request = HttpRequest("GET", "/console/api/children?path=/", {"host": "localhost"})

    with pytest.raises(HttpError, match="the server returned an invalid child name") as caught:
        await answer(router, request)

    assert caught.value.status == 409


def test_server_outage_is_reported_until_server_returns() -> None:
    with Server() as server, run_console(server.hosts) as of:
        server.refuse_connections()
        server.drop("all")
        of.until("overview", lambda answer: "not connected" in answer["health"])
        server.accept_connections()
        of.until("overview", lambda answer: answer["health"] == "")


def test_console_command_exits_if_server_is_unreachable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "127.0.0.1:1", "--timeout", "0.5"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["console", "x:y:z"], ["console", "--sid", "5"], ["console", "--tls-cert", "/nothing"]]
)
def test_invalid_usage_of_console_command_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def wait_for_lock(lock: Any) -> None:
    """Wait for a lock until its client is closed."""
    with suppress(ConnectionClosedError, CancelledError):
        lock.acquire()


def kazoo_locks(answer: Any) -> list[Any]:
    """Return the lines about kazoo locks."""
    return [line for line in answer["shared"] if line["path"].startswith("/kazoo")]


@pytest.mark.parametrize("release", RELEASES)
def test_remote_console_shows_same_locks_as_command(release: str, capsys: pytest.CaptureFixture[str]) -> None:
    require_curator()
    with ApacheZooKeeper(release) as apache, curator_locks(apache.hosts), run_console(apache.hosts) as of:
        one, two = KazooClient(apache.hosts), KazooClient(apache.hosts)
        try:
            one.start()
            two.start()
            assert one.Lock("/kazoo/lock", "one").acquire(timeout=DEADLINE_S)
            waiting = two.Lock("/kazoo/lock", "two")
            threading.Thread(target=wait_for_lock, args=(waiting,), daemon=True).start()
            of.until(
                "locks",
                lambda answer: any(len(line["waiters"]) for line in answer["shared"] if "/kazoo" in line["path"]),
            )
            shown = of.get("locks")
            assert main(["locks", apache.hosts, "--json"]) == 0
            printed = json.loads(capsys.readouterr().out)

            assert printed_locks(shown["shared"]) == sorted(
                printed["shared"], key=lambda line: (line["path"], line["kind"])
            )
            assert shown["deadlocks"] == printed["deadlocks"]
            assert {line["naming"] for line in shown["shared"]} == {"kazoo", "curator"}
            lines = {line["path"]: line for line in shown["shared"]}
            assert [entry["data"] for entry in lines["/kazoo/lock"]["holders"]] == ["one"]
            assert [entry["data"] for entry in lines["/kazoo/lock"]["waiters"]] == ["two"]
            of.until("sessions", lambda answer: answer["total"] >= 4)
            overview = of.until("overview", lambda answer: answer["nodes"] > 0)
            assert overview["health"] == ""
        finally:
            for client in (one, two):
                client.stop()
                client.close()
