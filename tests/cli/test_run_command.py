"""``zoolet run -- CMD``: a server that runs as long as a command.

Source: the contract's command line.
"""

from __future__ import annotations

import ctypes
import io
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.command import ZOOLET, zoolet
from support.waiting import DEADLINE_S, wait_until

from zoolet.client.blocking import Client

SHOW_IGNORED: Final = """
import signal
print(*(signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGHUP, signal.SIGINT)), flush=True)
signal.pause()
"""
UNTIL_SIGNALLED: Final = """
import os, signal, sys, time

def caught(number, frame):
    os.write(1, f"got {signal.Signals(number).name}\\n".encode())  # print() may be running
    sys.exit(7)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, caught)
print("up", flush=True)
while True:
    time.sleep(0.01)  # pause() would miss a signal that arrives just before it
"""
COUNT_INTERRUPTS: Final = """
import os, signal, time
seen, ended = [], []

def interrupted(*ignored):
    seen.append(1)
    os.write(1, b"interrupted\\n")  # print() may be running

signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda *ignored: ended.append(1))
print("up", flush=True)
while not ended:
    time.sleep(0.01)
print("in all", len(seen), flush=True)
"""
AT_A_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
SIGNALLED_EARLY: Final = """
import os, signal, subprocess, sys
start = subprocess.Popen

def start_and_signal(*words, **options):
    command = start(*words, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return command

subprocess.Popen = start_and_signal
from zoolet.cli.program import main
sys.exit(main())
"""
USE_KAZOO: Final = """
import os
from kazoo.client import KazooClient
zk = KazooClient(os.environ["ZOOKEEPER_HOSTS"])
zk.start()
zk.create("/a", b"written and read", ephemeral=True)
print(zk.get("/a")[0].decode())
zk.stop()
"""
ASK_MNTR: Final = """
import os, socket
with socket.create_connection(os.environ["ZOOLET_HOSTS"].split(":")) as link:
    link.sendall(b"mntr")
    print(link.recv(65536).decode())
"""

pytestmark = pytest.mark.slow  # each test starts one or two Python processes


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``zoolet run`` with further arguments until it exits."""
    return zoolet("run", *words, **environment)


def start(*words: str) -> subprocess.Popen[str]:
    """Start ``zoolet run`` in a new process group, and wait for the first line of its command."""
    process = subprocess.Popen(
        [*ZOOLET, "run", *words],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # the tests may run with nohup
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


class TerminalLines:
    """The lines read from a terminal."""

    def __init__(self, source: io.FileIO) -> None:
        self._source = source
        self._read = ""

    def until(self, start: str) -> str:
        """Wait for a line with this start. Return the line."""
        while not (found := re.search(rf"^(\^C)?({start}.*)\r\n", self._read, re.MULTILINE)):
            assert select.select([self._source], [], [], DEADLINE_S)[0], self._read
            self._read += self._source.read(65536).decode()
        return found[2]


def rest(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the exit. Return the exit code and the rest of the output."""
    out, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out


# --- the server ---


def test_both_hosts_variables_of_run_contain_server_address() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOLET_HOSTS $ZOOKEEPER_HOSTS"')

    ours, theirs = ran.stdout.split()
    assert ours == theirs
    assert ours.startswith("127.0.0.1:")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_hosts_variable_of_run_overrides_inherited_value() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOKEEPER_HOSTS"', ZOOKEEPER_HOSTS="production:2181")

    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", ran.stdout)


def test_kazoo_client_works_in_command_of_run() -> None:
    ran = run("--", sys.executable, "-c", USE_KAZOO)

    assert (ran.returncode, ran.stdout) == (0, "written and read\n"), ran.stderr


def test_server_of_run_stops_when_its_command_exits() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOLET_HOSTS"')

    host, _, port = ran.stdout.strip().rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), DEADLINE_S)


def test_property_before_command_configures_server() -> None:
    limited = run("-Dzookeeper.4lw.commands.whitelist=ruok", "--", sys.executable, "-c", ASK_MNTR)

    assert limited.stdout.startswith("mntr is not executed")
    assert run("--", sys.executable, "-c", ASK_MNTR).stdout.startswith("zk_version")


# --- command-line arguments ---


def test_options_after_command_are_passed_to_it() -> None:
    ran = run("--", "sh", "-c", 'echo "$0 $@"', "--port", "3", "-h", "--", "-x")

    assert ran.stdout == "--port 3 -h -- -x\n"


def test_two_dashes_before_command_of_run_may_be_omitted() -> None:
    assert run("sh", "-c", 'echo "$0"', "--version").stdout == "--version\n"


def test_property_after_command_is_passed_to_it() -> None:
    assert run("--", "sh", "-c", "echo $0", "-Dfoo").stdout == "-Dfoo\n"


def test_property_after_command_does_not_affect_server() -> None:
    ran = run("--", "sh", "-c", "echo fine", "-Dzookeeper.tickTime=nonsense")

    assert (ran.returncode, ran.stdout) == (0, "fine\n")


def test_blanks_and_quotes_in_arguments_are_preserved() -> None:
    assert run("--", "sh", "-c", 'printf "%s|" "$@"', "sh", "a b", "", "'c'").stdout == "a b||'c'|"


def test_command_of_run_reads_stdin() -> None:
    words = [*ZOOLET, "run", "--", "cat"]

    assert subprocess.run(words, input=b"hello", capture_output=True, timeout=DEADLINE_S).stdout == b"hello"


# --- exit codes ---


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL), ("kill -TERM $$", 128 + signal.SIGTERM)],
)
def test_run_returns_exit_code_of_command(script: str, code: int) -> None:
    assert run("--", "sh", "-c", script).returncode == code


def test_run_of_unknown_command_exits_with_127() -> None:
    ran = run("--", "no-such-command")

    assert (ran.returncode, ran.stdout) == (127, "")
    assert ran.stderr == "zoolet run: cannot run no-such-command: no such file or directory\n"


def test_run_of_unusable_command_exits_with_126(tmp_path: Path) -> None:
    ran = run("--", str(tmp_path))

    assert ran.returncode == 126
    assert ran.stderr == f"zoolet run: cannot run {tmp_path}: permission denied\n"


@pytest.mark.parametrize("words", [(), ("--admin-port", "0")], ids=["plain", "with the control API"])
def test_run_without_command_serves_until_stopped(words: tuple[str, ...]) -> None:
    with subprocess.Popen([*ZOOLET, "run", "--port", "0", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        hosts = process.stdout.readline().removeprefix("zoolet ready on ").strip()
        assert not words or process.stdout.readline().startswith("zoolet control on http://127.0.0.1:")
        with Client(hosts) as zk:
            assert zk.children("/") == ["zookeeper"]
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_given_port_is_used_or_reported_as_occupied() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = run("--port", port, "--", "true")

    assert (ran.returncode, ran.stderr) == (
        1,
        f"zoolet run: cannot listen on 127.0.0.1:{port}: address already in use\n",
    )


def test_run_with_invalid_property_exits_with_2() -> None:
    ran = run("-Dzookeeper.tickTime=nonsense", "--", "echo", "never")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_run_forwards_signal_to_command(number: signal.Signals) -> None:
    process = start("--", sys.executable, "-c", UNTIL_SIGNALLED)

    process.send_signal(number)

    assert rest(process) == (7, f"got {number.name}\n")


def test_run_returns_128_plus_signal_number_of_killed_command() -> None:
    process = start("--", "sh", "-c", "echo up; exec sleep 60")

    process.terminate()

    assert rest(process) == (128 + signal.SIGTERM, "")


def test_signal_before_command_started_is_forwarded_to_it() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED_EARLY, "run", "--", "sleep", "1"],
        stdout=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )

    assert ran.returncode == 128 + signal.SIGTERM


def test_interrupt_at_terminal_reaches_command_once() -> None:
    ours, terminal = os.openpty()
    command = [*ZOOLET, "run", "--", sys.executable, "-c", COUNT_INTERRUPTS]
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *command], stdin=terminal, stdout=terminal, start_new_session=True
    )
    os.close(terminal)
    with process, open(ours, "rb", buffering=0) as typed:
        lines = TerminalLines(typed)
        lines.until("up")
        process.send_signal(signal.SIGSTOP)  # the command gets the interrupt before zoolet does
        os.write(ours, b"\x03")
        lines.until("interrupted")
        process.send_signal(signal.SIGCONT)
        process.terminate()
        line = lines.until("in all")

    assert line == "in all 1"


@pytest.mark.parametrize("options", [(), ("--cluster", "1")], ids=["server", "cluster"])
def test_command_keeps_its_limit_of_open_files(options: tuple[str, ...]) -> None:
    code = """
import os, resource, socket
host, port = os.environ["ZOOLET_HOSTS"].split(":")
with socket.create_connection((host, int(port))) as link:
    link.sendall(b"mntr")
    answer = b"".join(iter(lambda: link.recv(65536), b"")).decode()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), answer.split("zk_max_file_descriptor_count")[1].split()[0])
"""
    shell = ["/bin/sh", "-c", 'ulimit -Sn 100; ulimit -Hn 200; exec "$@"', "sh"]
    words = [*shell, *ZOOLET, "run", *options, "--", sys.executable, "-c", code]

    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S, stdin=subprocess.DEVNULL)

    assert done.stdout.split() == ["100", "200", "200"], done.stderr


# --- ignored signals, a killed zoolet run, and orphans ---


@pytest.mark.parametrize("words", [("--", sys.executable, "-c", SHOW_IGNORED), ()], ids=["command", "server"])
def test_signal_ignored_by_parent_stays_ignored_in_run(words: tuple[str, ...]) -> None:
    ignored = (signal.SIGHUP, signal.SIGINT)
    process = subprocess.Popen(
        [*ZOOLET, "run", *words],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in ignored],
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("True True" if words else "zoolet ready")

    for number in (*ignored, signal.SIGTERM):
        process.send_signal(number)

    assert rest(process)[0] == (128 + signal.SIGTERM if words else 0)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux signals the death of a parent")
def test_command_exits_when_zoolet_run_is_killed() -> None:
    with subprocess.Popen([*ZOOLET, "run", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"up\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"
        process.kill()
        assert process.stdout.read() == b""  # read() returns after the last process with this pipe has exited


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has subreapers")
def test_orphans_of_command_are_reaped() -> None:
    prctl, set_child_subreaper = ctypes.CDLL(None).prctl, 36
    script = """
for number in 1 2 3 4 5; do (sh -c 'echo $$' & ); done
read ignored
"""
    with subprocess.Popen(
        [*ZOOLET, "run", "--", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: prctl(set_child_subreaper, 1),  # inherits orphans, as the first process of a container
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        orphans = [int(process.stdout.readline()) for _ in range(5)]
        wait_until(lambda: not any(Path(f"/proc/{orphan}").exists() for orphan in orphans))
        process.stdin.write(b"\n")
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
