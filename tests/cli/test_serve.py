"""``zoolet serve`` as a user runs it: its output on stdout and stderr, and its exit codes.

Source: the contract's command line.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from support.apache import free_port
from support.command import ZOOLET, zoolet
from support.embedded import ask
from support.waiting import DEADLINE_S

from zoolet.cli.program import main

WITHOUT_UVLOOP: Final = """
import sys
sys.modules["uvloop"] = None  # an import of it fails
from zoolet.cli.program import main
status = main(sys.argv[1:])
assert not any(name.startswith("uvloop.") for name in sys.modules)
sys.exit(status)
"""

pytestmark = pytest.mark.slow  # each test starts a Python process


# --- helpers that run a daemon ---


class RunningDaemon:
    """A daemon that is ready.

    Args:
        process: Its process.
        ready: Its first line on stdout.
    """

    def __init__(self, process: subprocess.Popen[str], ready: str) -> None:
        self.process = process
        self.ready = ready

    @property
    def port(self) -> int:
        """The port in the ready line."""
        return int(self.ready.rpartition(":")[2])

    def ask(self, word: str, host: str = "127.0.0.1") -> str:
        """Send a four-letter word. Return the answer."""
        return ask(self.port, word.encode(), host).decode()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal. Return the exit code, the output on stdout after the ready line, and the output on stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, out, err


@contextmanager
def daemon(*options: str, command: Sequence[str] = ZOOLET, **environment: str) -> Iterator[RunningDaemon]:
    """Run ``zoolet serve`` until the end of the block."""
    process = subprocess.Popen(
        [*command, "serve", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        readable, _, _ = select.select([process.stdout], [], [], DEADLINE_S)
        line = process.stdout.readline() if readable else ""
        assert line.startswith("zoolet ready on "), (line, readable and process.stderr.read())
        yield RunningDaemon(process, line)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def configuration(folder: Path, text: str) -> str:
    """Write a zoo.cfg. Return its path."""
    path = folder / "zoo.cfg"
    path.write_text(text)
    return str(path)


def require_address(host: str) -> None:
    """Skip the test if this machine does not have the address, for example without IPv6."""
    try:
        with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            pass
    except OSError as error:
        pytest.skip(f"no {host} here: {error}")


# --- the ready line and the port ---


def test_ready_line_names_address() -> None:
    with daemon("--port", "0") as running:
        assert re.fullmatch(r"zoolet ready on 127\.0\.0\.1:[1-9]\d*\n", running.ready)
        assert running.ask("srvr").startswith("Zookeeper version: ")
        assert running.stop()[1] == ""  # stdout contains only the ready line


def test_console_script_starts_daemon() -> None:
    with daemon("--port", "0", command=[str(Path(sys.executable).with_name("zoolet"))]) as running:
        assert running.ask("srvr").startswith("Zookeeper version: ")


def test_requested_port_is_used() -> None:
    port = free_port()
    with daemon("--port", str(port)) as running:
        assert running.port == port


def test_two_daemons_get_different_free_ports() -> None:
    with daemon("--port", "0") as one, daemon("--port", "0") as two:
        assert one.port != two.port


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_clients_can_connect_to_address_of_ready_line(host: str) -> None:
    require_address(host)

    with daemon("--port", "0", "--host", host) as running:
        address, _, port = running.ready.removeprefix("zoolet ready on ").strip().rpartition(":")

        assert f"[{address.strip('[]')}]" == address or ":" not in address  # ::1:2181 would be ambiguous
        with socket.create_connection((address.strip("[]"), int(port)), DEADLINE_S):
            pass


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_port_0_opens_same_free_port_on_all_addresses(tmp_path: Path, host: str) -> None:
    require_address(host)

    with daemon(configuration(tmp_path, "clientPort=2181\n"), "--port", "0") as running:
        assert running.ask("srvr", host).startswith("Zookeeper version: ")


# --- stopping the daemon ---


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_stops_daemon_gracefully(number: signal.Signals, expected: int) -> None:
    with daemon("--port", "0") as running:
        code, out, err = running.stop(number)

    assert (code, out) == (expected, "")
    assert "Traceback" not in err


def test_signal_stops_daemon_with_connected_clients() -> None:
    with daemon("--port", "0") as running, socket.create_connection(("127.0.0.1", running.port)):
        code, _, err = running.stop()

    assert code == 0
    assert "Traceback" not in err


def test_port_of_stopped_daemon_is_reusable_immediately() -> None:
    with daemon("--port", "0") as running:
        port = running.port
        running.ask("srvr")
        running.stop()

    with daemon("--port", str(port)) as again:
        assert again.port == port


# --- the configuration ---


def test_option_overrides_file_and_file_overrides_environment(tmp_path: Path) -> None:
    path = configuration(tmp_path, "clientPort=1\nclientPortAddress=127.0.0.1\n4lw.commands.whitelist=ruok\n")
    flags = "-Dzookeeper.4lw.commands.whitelist=mntr -Dzookeeper.clientPort=2"

    with daemon(path, "--port", "0", JVMFLAGS=flags) as running:
        assert running.port > 2
        assert running.ask("ruok") == "imok"
        assert "whitelist" in running.ask("mntr")


def test_environment_variable_sets_property() -> None:
    with daemon("--port", "0", SERVER_JVMFLAGS="-Xmx1g -Dzookeeper.4lw.commands.whitelist=ruok") as running:
        assert running.ask("ruok") == "imok"


@pytest.mark.parametrize("option", ["-Dzookeeper.4lw.commands.whitelist=*", "-D4lw.commands.whitelist=ruok"])
@pytest.mark.parametrize("first", [True, False])
def test_property_option_is_accepted_in_any_position(option: str, first: bool) -> None:
    options = [option, "--port", "0"] if first else ["--port", "0", option]

    with daemon(*options) as running:
        assert running.ask("ruok") == "imok"


@pytest.mark.parametrize("release", ["3.8", "3.9"])
def test_emulated_zookeeper_release_can_be_selected(release: str) -> None:
    with daemon("--port", "0", "--compat", release) as running:
        assert running.ask("srvr").startswith(f"Zookeeper version: {release}.")


def test_file_without_port_serves_only_localhost(tmp_path: Path) -> None:
    with daemon(configuration(tmp_path, "tickTime=500\n"), "--port", "0") as running:
        assert running.ready.startswith("zoolet ready on 127.0.0.1:")


# --- logs ---


def test_logs_are_text_on_stderr() -> None:
    with daemon("--port", "0") as running:
        _, _, err = running.stop()

    assert re.search(r"^\d{4}-\d\d-\d\d \S+ INFO zoolet\.server: stopping", err, re.MULTILINE)


def test_logs_can_be_json_lines(tmp_path: Path) -> None:
    path = configuration(tmp_path, "initLimit=5\n")
    with daemon(path, "--port", "0", "--log-format", "json") as running:
        _, _, err = running.stop()

    lines = [json.loads(line) for line in err.splitlines()]
    assert [(line["level"], line["logger"]) for line in lines] == [
        ("WARNING", "zoolet.server"),
        ("INFO", "zoolet.server"),
    ]
    assert "initLimit" in lines[0]["message"]
    assert all(line["time"].endswith("+00:00") for line in lines)


def test_ignored_configuration_keys_are_reported_in_one_line(tmp_path: Path) -> None:
    path = configuration(tmp_path, "initLimit=5\nflushDelay=1\nleaderServes=no\n")

    with daemon(path, "--port", "0", "-DsyncLimit=2", "-Dzookeeper.maxBatchSize=1") as running:
        _, _, err = running.stop()

    lines = [line for line in err.splitlines() if "WARNING" in line]
    assert len(lines) == 1
    assert lines[0].endswith(
        " zoolet.server: ignored (not supported): flushDelay, initLimit, leaderServes, maxBatchSize"
    )


def test_unknown_word_in_4lw_whitelist_is_reported(tmp_path: Path) -> None:
    path = configuration(tmp_path, "4lw.commands.whitelist=mntr, stats, ruok, hi\n")

    with daemon(path, "--port", "0") as running:
        _, _, err = running.stop()

    assert [line.partition("): ")[2] for line in err.splitlines() if "WARNING" in line] == [
        "hi in 4lw.commands.whitelist",
        "stats in 4lw.commands.whitelist; did you mean stat?",
    ]


@pytest.mark.parametrize("given", ["-D", "-D=1"])
def test_error_of_property_without_name_explains_syntax(given: str) -> None:
    done = zoolet("serve", given, "enforceQuota=true")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"zoolet serve: {given} needs a name and a value, without a space after -D: -DNAME=VALUE; see 'zoolet serve "
        "--help'\n"
    )


# --- errors ---


def test_daemon_with_occupied_port_exits_with_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = zoolet("serve", "--port", port)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"zoolet serve: cannot listen on 127.0.0.1:{port}: address already in use\n"


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "cannot assign requested address"),
        ("no such host", "(name or service not known|nodename nor servname)"),
        ("a..b", ".+"),
    ],
)
def test_daemon_with_foreign_host_address_exits_with_1(host: str, reason: str) -> None:
    done = zoolet("serve", "--host", host, "--port", "0")

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(f"zoolet serve: cannot listen on {re.escape(host)}:0: {reason}\n", done.stderr)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("serv", "did you mean serve?"),
        ("serve --prot 1", "did you mean --port?"),
        ("datadir shw .", "did you mean show?"),
    ],
)
def test_error_of_misspelt_word_suggests_nearest_valid_word(
    words: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words.split())
    [line] = capsys.readouterr().err.splitlines()
    assert hint in line


@pytest.mark.parametrize(
    "arguments",
    [
        ["serve", "--nonsense"],
        ["serve", "--log-format", "xml"],
        ["serve", "--compat", "1.0"],
        ["serve", "a.cfg", "b.cfg"],
        ["nonsense"],
    ],
    ids=" ".join,
)
def test_serve_with_invalid_usage_exits_with_2(arguments: list[str]) -> None:
    done = zoolet(*arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"^zoolet( serve)?: .+", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("port", ["abc", "65536", "-1"])
def test_serve_with_port_out_of_range_exits_with_2(port: str) -> None:
    done = zoolet("serve", "--port", port)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"zoolet serve: --port must be a whole number from 0 to 65535, not '{port}'\n"


def test_serve_with_unreadable_file_exits_with_2(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.cfg")

    done = zoolet("serve", path)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"zoolet serve: cannot read {path}: no such file or directory\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tickTime=abc\n", r"zoo\.cfg:1: tickTime must be .+'abc'"),
        ("server.1=a:1:2\nserver.2=b:1:2\n", r"2 servers are configured"),
    ],
)
def test_serve_with_invalid_file_exits_with_2(tmp_path: Path, text: str, expected: str) -> None:
    done = zoolet("serve", configuration(tmp_path, text))

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(rf"zoolet serve: [^\n]*{expected}[^\n]*\n", done.stderr)


@pytest.mark.parametrize(
    ("option", "environment"),
    [(["-Dzookeeper.tickTime=abc"], {}), ([], {"JVMFLAGS": "-Dzookeeper.tickTime=abc"}), ([], {"JVMFLAGS": "'"})],
    ids=["option", "environment", "quotation mark"],
)
def test_serve_with_invalid_property_exits_with_2(option: list[str], environment: dict[str, str]) -> None:
    done = zoolet("serve", "--port", "0", *option, **environment)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"zoolet serve: (command line|environment variable JVMFLAGS): [^\n]+\n", done.stderr)


def test_help_and_version_exit_with_0() -> None:
    assert zoolet("--version").stdout == f"zoolet {version('zoolet')}\n"
    assert "serve" in zoolet("--help").stdout
    assert "--port" in zoolet("serve", "--help").stdout


# --- without optional packages ---


def test_asyncio_is_used_without_uvloop() -> None:
    with daemon("--port", "0", command=[sys.executable, "-c", WITHOUT_UVLOOP]) as running:
        assert running.ask("srvr").startswith("Zookeeper version: ")
        code, _, err = running.stop()

    assert code == 0
    assert "Traceback" not in err


def test_admin_port_without_h11_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "h11", None)  # makes its import fail

    status = main(["serve", "--port", "0", "--admin-port", "0", "--data-dir", str(tmp_path / "data")])

    assert status == 2
    assert capsys.readouterr().err.startswith(
        "zoolet serve: admin.serverPort requires h11; install zoolet with the extra 'admin'"
    )
    assert not (tmp_path / "data").exists()
