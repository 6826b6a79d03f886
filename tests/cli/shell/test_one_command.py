"""``zoolet shell COMMAND``: one command, with the output and exit code of ZooKeeper's own shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from support.apache import ApacheZooKeeper, free_port, require_apache
from support.command import zoolet
from support.waiting import DEADLINE_S
from support.zkcli import java_command

import zoolet.__main__ as program
from zoolet.__main__ import main
from zoolet.testing import Server

EXIT_CODES: Final = {
    "get /a": 0,
    "listquota /a": 0,
    "setquota -n x /a": 0,
    "ls /": 0,
    "get": 1,
    "get /missing": 1,
    "get relative": 1,
    "get -z /a": 1,
    "create /a": 1,
    "delete -v 7 /a": 1,
    "bogus": 127,
}
"""The exit code of each command."""


class CommandResult(NamedTuple):
    """The output and exit code of a command."""

    code: int
    out: str
    err: str


def one(capfd: pytest.CaptureFixture[str], hosts: str, *words: str) -> CommandResult:
    """Execute one command in this process."""
    code = main(["shell", "-server", hosts, *words])
    out, err = capfd.readouterr()
    return CommandResult(code, out, err)


def test_exit_code_of_shell_depends_on_result_of_command(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": "one"})
        codes = {line: one(capfd, server.hosts, *line.split()).code for line in EXIT_CODES}
    assert codes == EXIT_CODES


@pytest.mark.slow
def test_zkcli_has_same_exit_codes() -> None:
    require_apache()
    with ApacheZooKeeper() as apache:
        main(["shell", "-server", apache.hosts, "create", "/a", "one"])
        processes = {
            line: subprocess.Popen(
                java_command("3.8", "-server", apache.hosts, *line.split()),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for line in EXIT_CODES
        }
        codes = {line: process.wait(DEADLINE_S) for line, process in processes.items()}
    assert codes == EXIT_CODES


def test_shell_prints_only_result_of_command_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": "one"})
        assert one(capfd, server.hosts, "get", "/a") == (0, "one\n", "")
        assert one(capfd, server.hosts, "create", "/b") == (0, "", "Created /b\n")
        assert one(capfd, server.hosts, "get", "/c") == (1, "", "Node does not exist: /c\n")


def test_shell_with_one_command_respects_chroot_of_address(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/app/a": "one"})
        hosts = f"{server.hosts}/app"
        assert one(capfd, hosts, "get", "/a").out == "one\n"
        assert one(capfd, hosts, "create", "/b", "x").err == "Created /b\n"
        assert one(capfd, hosts, "create", "/b", "x").err == "Node already exists: /b\n"
        assert one(capfd, hosts, "ls", "-R", "/").out == "/\n/a\n/b\n"
        assert server.tree()["/app/b"].data == b"x"


def test_unreachable_server_is_reported_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    code, out, err = one(capfd, f"127.0.0.1:{port}", "get", "/a")
    assert (code, out) == (1, "")
    assert err.startswith("KeeperErrorCode = ConnectionLoss")
    assert f"127.0.0.1:{port}" in err
    assert err.count("\n") == 1


def test_waitforconnection_option_waits_for_late_server(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.refuse_connections()
        timer = threading.Timer(0.2, server.accept_connections)
        timer.start()
        assert one(capfd, server.hosts, "-waitforconnection", "ls", "/").out == "[zookeeper]\n"


@pytest.mark.parametrize("hosts", ["", "host:99999", "127.0.0.1:1/bad//chroot"])
def test_invalid_connect_string_is_refused_in_one_line(capfd: pytest.CaptureFixture[str], hosts: str) -> None:
    code, out, err = one(capfd, hosts, "get", "/a")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_json_option_prints_one_object(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": "one", "/b": b"\xff\x00"})
        assert one(capfd, server.hosts, "--json", "get", "/a").out == '{"path": "/a", "data": "one"}\n'
        assert one(capfd, server.hosts, "get", "/b", "--json").out == '{"path": "/b", "data": {"base64": "/wA="}}\n'
        assert one(capfd, server.hosts, "--json", "create", "/c").out == '{"created": "/c"}\n'
        assert one(capfd, server.hosts, "--json", "ls", "/").out.startswith('{"path": "/", "children": ["a", "b", "c"')


def test_shell_script_may_start_with_byte_order_mark() -> None:
    with Server() as server:
        ran = zoolet("shell", server.hosts, stdin="\ufeffcreate /marked one\nget /marked\n")
    assert (ran.returncode, ran.stdout) == (0, "one\n"), ran.stderr


def test_shell_options_may_follow_server_address(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        server.populate({"/a": b"one"})
        assert main(["shell", "--no-colour", server.hosts, "--json", "-timeout", "3000", "get", "/a"]) == 0
        assert capfd.readouterr().out == '{"path": "/a", "data": "one"}\n'


def test_auth_option_grants_access(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        main(["shell", "-server", server.hosts, "--auth", "digest:u:p", "create", "/s", "x", "auth::cdrwa"])
        assert one(capfd, server.hosts, "get", "/s").code == 1
        assert one(capfd, server.hosts, "--auth", "digest:u:p", "get", "/s").out == "x\n"


def test_data_is_written_unchanged_to_pipe() -> None:
    data = b"\x1b]0;title\x07\xff\xfe\n"
    with Server() as server:
        server.populate({"/a": data})
        command = [sys.executable, "-m", "zoolet", "shell", "-server", server.hosts, "get", "/a"]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=True)
    assert done.stdout == data + b"\n"


def test_shell_exits_silently_when_its_output_pipe_is_closed() -> None:
    with Server() as server:
        server.populate({f"/a{number:05}": b"" for number in range(20_000)})
        command = (
            f"'{sys.executable}' -m zoolet shell -server {server.hosts} ls -R / | head -n 2; exit ${{PIPESTATUS[0]}}"
        )
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("/\n/a00000\n", "", 1)


@pytest.mark.slow
def test_shell_imports_only_client(tmp_path: Path) -> None:
    code = "import sys, zoolet.cli.shell.interpreter; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": ""}
    )
    loaded = set(done.stdout.split())
    assert "zoolet.client.client" in loaded
    assert not {name for name in loaded if name.startswith(("zoolet.server", "zoolet.client.recipes"))}


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", ">/dev/full"])
def test_closed_or_full_streams_cause_no_traceback(closed: str) -> None:
    with Server() as server:
        command = f"'{sys.executable}' -m zoolet shell -server {server.hosts} ls / {closed}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 1)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command", ["shell -server HOSTS ls /", "status HOSTS", "locks HOSTS", "completion bash", "--version", "run --help"]
)
def test_full_disk_below_stdout_is_reported_as_write_error(command: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Server() as server:
        words = [sys.executable, "-m", "zoolet", *command.replace("HOSTS", server.hosts).split()]
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                words, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, timeout=DEADLINE_S, check=False
            )

    assert (done.returncode, done.stderr) == (1, "zoolet: cannot write to stdout: no space left on device\n")


def test_ctrl_c_stops_script_with_open_input() -> None:
    with Server() as server:
        command = [sys.executable, "-m", "zoolet", "shell", "-server", server.hosts]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(b"ls /\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"[zookeeper]\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_S) == 130


def test_script_continues_after_error_and_exits_with_last_code() -> None:
    with Server() as server:
        script = "get /missing\ncreate /a one\n\nget /a\nbogus\nget /missing\nquit\ncreate /never\n"
        done = zoolet("shell", "-server", server.hosts, stdin=script)
        assert "/never" not in server.tree()
    assert (done.stdout, done.returncode) == ("one\n", 1)


def test_server_address_may_precede_command(capfd: pytest.CaptureFixture[str]) -> None:
    with Server() as server:
        assert main(["shell", server.hosts, "ls", "/"]) == 0
    assert capfd.readouterr().out == "[zookeeper]\n"


def test_ctrl_c_during_import_shows_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def imports(words: object) -> object:
        seen.append(signal.getsignal(signal.SIGINT))
        return lambda: seen.append(signal.getsignal(signal.SIGINT)) or 0

    monkeypatch.setattr(program, "_import", imports)
    monkeypatch.setattr(sys, "argv", ["zoolet", "shell"])

    assert main() == 0
    assert seen == [signal.SIG_DFL, signal.default_int_handler]
