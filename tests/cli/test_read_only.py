"""Commands that only read accept a read-only server, and name it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from zoolet.__main__ import main
from zoolet.client.wire.diagnosis import OLD_DATA_WARNING as READ_ONLY
from zoolet.testing import Server


@pytest.fixture
def server() -> Iterator[Server]:
    """A read-only server with one node."""
    with Server() as server:
        server.populate({"/a": "one"})
        server.set_read_only(True)
        yield server


def test_dump_and_push_work_on_read_only_server(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dump", f"{server.hosts}/a", str(file := tmp_path / "a.json")]) == 0
    assert json.loads(file.read_text()) == {"/": "one"}
    assert capsys.readouterr().err == f"zoolet dump: {server.hosts}: {READ_ONLY}\n"

    with Server() as other:
        assert main(["push", f"{server.hosts}/a", f"{other.hosts}/b"]) == 0
        assert other.tree()["/b"].data == b"one"
    assert capsys.readouterr().err == f"zoolet push: {server.hosts}: {READ_ONLY}\n"


def test_locks_works_on_read_only_server(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locks", server.hosts]) == 0
    shown = capsys.readouterr()
    assert shown.out == "no locks, elections, semaphores or queues below /\n"
    assert shown.err == f"zoolet locks: {server.hosts}: {READ_ONLY}\n"


def test_shell_reports_read_only_server(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["shell", server.hosts, "get", "/a"]) == 0
    assert capfd.readouterr() == ("one\n", f"{server.hosts}: {READ_ONLY}\n")
    assert main(["shell", server.hosts, "set", "/a", "two"]) == 1
    assert "Not a read-only call: /a" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["shell -server HOSTS set /a two", "locks HOSTS"])
def test_shell_and_locks_command_prefer_writable_server(
    command: str, server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    with Server() as writable:
        writable.populate({"/a": "one"})
        for _ in range(6):  # the first server is chosen at random
            assert main(command.replace("HOSTS", f"{server.hosts},{writable.hosts}").split()) == 0
    assert READ_ONLY not in capfd.readouterr().err


def test_load_explains_read_only_error(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "a.json").write_text('{"/b": "1"}')
    assert main(["load", server.hosts, str(file), "--timeout", "1"]) == 1
    assert "or the server is read-only because it has no quorum" in capsys.readouterr().err
