"""The log of a daemon: levels, changes of levels at run time, sessions, slow requests, the audit file, JSON lines."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest
from support.daemon import running_daemon
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client


def test_sessions_are_logged_at_debug_level() -> None:
    with running_daemon("--port", "0", "--log-level", "debug") as daemon:
        with Client(f"127.0.0.1:{daemon.port()}") as zk:
            session = f"session 0x{zk.session_id:x}"
        assert session in daemon.log_until(" opened (connected from 127.0.0.1:")
        assert session in daemon.log_until(" closed (connected from 127.0.0.1:")


def test_log_level_is_changed_at_run_time() -> None:
    pytest.importorskip("h11")
    with running_daemon("--port", "0", "--admin-port", "0") as daemon:
        port = daemon.port()
        url, token = daemon.read_line(1).split()[-1], daemon.read_line(1).split()[-1]
        request = urllib.request.Request(
            f"{url}commands/log_level?level=debug", headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            assert json.loads(response.read())["level"] == "DEBUG"
        daemon.log_until("the log level was set to DEBUG on the admin port by 127.0.0.1")
        with Client(f"127.0.0.1:{port}"):
            daemon.log_until(" opened (connected from 127.0.0.1:")


def test_control_characters_are_escaped_in_log(tmp_path: Path) -> None:
    (file := tmp_path / "zoo.cfg").write_text("tickTime=2000\n\x1b[31mkey=1\n")
    with running_daemon(str(file), "--port", "0") as daemon:
        daemon.port()
        assert "\\x1b[31mkey" in daemon.log_until("ignored (unknown)")


def test_json_log_lines_have_iso_times() -> None:
    with running_daemon("--port", "0", "--log-level", "debug", "--log-format", "json") as daemon:
        with Client(f"127.0.0.1:{daemon.port()}"):
            line = json.loads(daemon.log_until(" opened "))

    assert line["logger"] == "zoolet.server.sessions"
    assert line["time"][10] == "T"
    assert line["time"].endswith("+00:00")


def test_audit_log_is_written_to_file(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    options = ("-Daudit.enable=true", f"-Dzoolet.auditFile={file}", "--log-level", "error")
    with running_daemon("--port", "0", *options) as daemon:
        with Client(f"127.0.0.1:{daemon.port()}") as zk:
            zk.create("/a", b"")
            zk.create("/e", b"", ephemeral=True)

    assert file.stat().st_mode & 0o777 == 0o600
    assert "operation=create\tznode=/a\tznode_type=persistent\tresult=success\n" in file.read_text()
    operations = [line.partition("operation=")[2].split("\t")[0] for line in file.read_text().splitlines()]
    deleted = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
    assert operations == ["serverStart", "create", "create", deleted, "serverStop"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_audit_log_has_line_per_operation(form: str) -> None:
    with running_daemon("--port", "0", "-Daudit.enable=true", "--log-format", form) as daemon:
        with Client(f"127.0.0.1:{daemon.port()}") as zk:
            calls = zk.transaction()
            for path in ("/a", "/b"):
                calls.create(path, b"")
            calls.commit()
        lines = [daemon.log_until("znode=/a"), daemon.log_until("znode=/b")]

    if form == "json":
        assert [json.loads(line)["message"].count("znode=") for line in lines] == [1, 1]
    assert [line.count("zoolet.audit") for line in lines] == [1, 1]


def test_slow_batches_of_requests_are_logged_with_session() -> None:
    with running_daemon("--port", "0", "-Dzoolet.slowRequestMs=1") as daemon:
        with Client(f"127.0.0.1:{daemon.port()}") as zk:
            calls = zk.transaction()
            for number in range(2_000):
                calls.create(f"/n{number}", b"")
            calls.commit()
            assert f"session 0x{zk.session_id:x}" in daemon.log_until("slow batch of requests: ")
