"""``zoolet console HOSTS``: in front of zoolet and of real servers, what their protocol and commands tell."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, ConnectionClosedError
from support.apache import RELEASES, ApacheZooKeeper
from support.curator import curator_locks, require_curator
from support.daemon import Running

from zoolet.__main__ import main
from zoolet.client.blocking import Client
from zoolet.testing import Server

pytest.importorskip("h11")
pytestmark = pytest.mark.slow


class Remote:
    """A console in a process of its own."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        self.token = token

    def get(self, name: str) -> Any:
        """Ask for something."""
        with urllib.request.urlopen(f"{self.url}console/api/{name}", timeout=10) as response:
            text = response.read()
        lines = text.splitlines()
        return json.loads(text) if len(lines) == 1 else [json.loads(line) for line in lines]

    def change(self, action: str, **arguments: object) -> Any:
        """Change something, with the token."""
        headers = {"Authorization": f"Bearer {self.token}"}
        body = json.dumps(arguments).encode()
        request = urllib.request.Request(f"{self.url}console/api/change/{action}", body, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.loads(response.read())

    def until(self, name: str, wanted: Any) -> Any:
        """Ask until something is so."""
        deadline = time.monotonic() + 10
        while not wanted(answer := self.get(name)):
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)
        return answer


@contextmanager
def console(hosts: str) -> Iterator[Remote]:
    """Run the command."""
    command = [sys.executable, "-m", "zoolet", "console", hosts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as process:
        lines = Running(process)
        try:
            url = lines.read_line(1).removeprefix("zoolet console on ")
            yield Remote(url, lines.read_line(1).removeprefix("zoolet console token "))
        finally:
            process.terminate()
            process.communicate(timeout=10)


def test_it_shows_what_the_protocol_tells() -> None:
    with (
        Server(config={"4lw.commands.whitelist": "*"}) as server,
        Client(server.hosts) as zk,
        console(server.hosts) as of,
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


def test_it_changes_nodes_as_a_client() -> None:
    with Server() as server, Client(server.hosts) as zk, console(server.hosts) as of:
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


def test_a_server_that_is_lost_is_named_and_found_again() -> None:
    with Server() as server, console(server.hosts) as of:
        server.refuse_connections()
        server.drop("all")
        of.until("overview", lambda answer: "not connected" in answer["health"])
        server.accept_connections()
        of.until("overview", lambda answer: answer["health"] == "")


def test_a_server_that_is_not_there_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", "127.0.0.1:1", "--timeout", "0.5"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["console", "x:y:z"], ["console", "--host", ""], ["console", "--tls-cert", "/nothing"]]
)
def test_wrong_usage_is_refused(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.count("\n") == 1


def wait_for(lock: Any) -> None:
    """Wait for a lock until its client is closed."""
    with suppress(ConnectionClosedError, CancelledError):
        lock.acquire()


def kazoo_lines(answer: Any) -> list[Any]:
    """Return the lines of kazoo's locks."""
    return [line for line in answer["shared"] if line["path"].startswith("/kazoo")]


@pytest.mark.parametrize("release", RELEASES)
def test_in_front_of_a_real_server_it_shows_the_locks_that_the_command_shows(
    release: str, capsys: pytest.CaptureFixture[str]
) -> None:
    require_curator()
    with ApacheZooKeeper(release) as apache, curator_locks(apache.hosts), console(apache.hosts) as of:
        one, two = KazooClient(apache.hosts), KazooClient(apache.hosts)
        try:
            one.start()
            two.start()
            assert one.Lock("/kazoo/lock", "one").acquire(timeout=5)
            waiting = two.Lock("/kazoo/lock", "two")
            threading.Thread(target=wait_for, args=(waiting,), daemon=True).start()
            of.until(
                "locks",
                lambda answer: any(len(line["waiters"]) for line in answer["shared"] if "/kazoo" in line["path"]),
            )
            shown = of.get("locks")
            assert main(["locks", apache.hosts, "--json"]) == 0
            printed = json.loads(capsys.readouterr().out)

            assert shown["shared"] == printed["shared"]
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
