"""``zoolet run -- CMD``: a server for as long as a command runs.

Source: the contract's command line.
"""

from __future__ import annotations

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

from zoolet.client.blocking import Client

DEADLINE_S: Final = 20.0  # only ever reached on failure
ZOOLET: Final = [sys.executable, "-m", "zoolet.server"]
UNTIL_SIGNALLED: Final = """
import signal, sys

def caught(number, frame):
    print("got", signal.Signals(number).name, flush=True)
    sys.exit(7)

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, caught)
print("up", flush=True)
while True:
    signal.pause()
"""
COUNT_INTERRUPTS: Final = """
import signal
seen, ended = [], []

def interrupted(*ignored):
    seen.append(1)
    print("interrupted", flush=True)

signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda *ignored: ended.append(1))
print("up", flush=True)
while not ended:
    signal.pause()
print("in all", len(seen), flush=True)
"""
AT_A_TERMINAL: Final = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
SIGNALLED_AT_ONCE: Final = """
import asyncio, os, signal, sys
start = asyncio.create_subprocess_exec

async def start_and_signal(*words, **options):
    command = await start(*words, **options)
    os.kill(os.getpid(), signal.SIGTERM)
    return command

asyncio.create_subprocess_exec = start_and_signal
from zoolet.server.cli import main
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

pytestmark = pytest.mark.slow  # each starts a Python or two


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``zoolet run`` with what stands behind it, to its end."""
    return subprocess.run(
        [*ZOOLET, "run", *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
    )


def start(*words: str) -> subprocess.Popen[str]:
    """Start ``zoolet run`` in a process group of its own, and wait for the first line of its command."""
    process = subprocess.Popen([*ZOOLET, "run", *words], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


class Lines:
    """What is read from a terminal."""

    def __init__(self, source: io.FileIO) -> None:
        self._source = source
        self._read = ""

    def until(self, start: str) -> str:
        """Wait for a line that starts so; return it."""
        while not (found := re.search(rf"^(\^C)?({start}.*)\r\n", self._read, re.MULTILINE)):
            assert select.select([self._source], [], [], DEADLINE_S)[0], self._read
            self._read += self._source.read(65536).decode()
        return found[2]


def rest(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; return the exit code and what else was printed."""
    out, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out


# --- the server ---


def test_both_variables_name_the_server_and_nothing_else_is_printed() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOLET_HOSTS $ZOOKEEPER_HOSTS"')

    ours, theirs = ran.stdout.split()
    assert ours == theirs
    assert ours.startswith("127.0.0.1:")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_they_replace_what_the_variables_had_before() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOKEEPER_HOSTS"', ZOOKEEPER_HOSTS="production:2181")

    assert "production" not in ran.stdout


def test_the_command_can_use_kazoo() -> None:
    ran = run("--", sys.executable, "-c", USE_KAZOO)

    assert (ran.returncode, ran.stdout) == (0, "written and read\n"), ran.stderr


def test_the_server_ends_with_the_command() -> None:
    ran = run("--", "sh", "-c", 'echo "$ZOOLET_HOSTS"')

    host, _, port = ran.stdout.strip().rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), DEADLINE_S)


def test_a_property_before_the_command_is_the_servers() -> None:
    limited = run("-Dzookeeper.4lw.commands.whitelist=ruok", "--", sys.executable, "-c", ASK_MNTR)

    assert limited.stdout.startswith("mntr is not executed")
    assert run("--", sys.executable, "-c", ASK_MNTR).stdout.startswith("zk_version")


# --- words ---


def test_options_behind_the_command_are_its_own() -> None:
    ran = run("--", "sh", "-c", 'echo "$0 $@"', "--port", "3", "-h", "--", "-x")

    assert ran.stdout == "--port 3 -h -- -x\n"


def test_the_two_dashes_may_be_left_out() -> None:
    assert run("sh", "-c", 'echo "$0"', "--version").stdout == "--version\n"


def test_a_property_behind_the_command_is_its_own() -> None:
    assert run("--", "sh", "-c", "echo $0", "-Dfoo").stdout == "-Dfoo\n"


def test_a_property_behind_the_command_does_not_configure_the_server() -> None:
    ran = run("--", "sh", "-c", "echo fine", "-Dzookeeper.tickTime=nonsense")

    assert (ran.returncode, ran.stdout) == (0, "fine\n")


def test_words_with_blanks_and_quotes_stay_as_they_are() -> None:
    assert run("--", "sh", "-c", 'printf "%s|" "$@"', "sh", "a b", "", "'c'").stdout == "a b||'c'|"


def test_the_command_reads_stdin() -> None:
    words = [*ZOOLET, "run", "--", "cat"]

    assert subprocess.run(words, input=b"hello", capture_output=True, timeout=DEADLINE_S).stdout == b"hello"


# --- exit codes ---


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL), ("kill -TERM $$", 128 + signal.SIGTERM)],
)
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    assert run("--", "sh", "-c", script).returncode == code


def test_an_unknown_command_is_one_line_and_127() -> None:
    ran = run("--", "no-such-command")

    assert (ran.returncode, ran.stdout) == (127, "")
    assert ran.stderr == "zoolet: cannot run no-such-command: No such file or directory\n"


def test_a_command_that_cannot_be_run_is_one_line_and_126(tmp_path: Path) -> None:
    ran = run("--", str(tmp_path))

    assert ran.returncode == 126
    assert ran.stderr == f"zoolet: cannot run {tmp_path}: Permission denied\n"


@pytest.mark.parametrize("words", [(), ("--admin-port", "0")], ids=["plain", "with the control API"])
def test_without_a_command_it_serves_until_it_is_stopped(words: tuple[str, ...]) -> None:
    with subprocess.Popen([*ZOOLET, "run", "--port", "0", *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        hosts = process.stdout.readline().removeprefix("zoolet ready on ").strip()
        assert not words or process.stdout.readline().startswith("zoolet control on http://127.0.0.1:")
        with Client(hosts) as zk:
            assert zk.children("/") == ["zookeeper"]
        process.terminate()
        assert process.wait(DEADLINE_S) == 0


def test_the_port_of_a_run_can_be_chosen_and_one_that_is_taken_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = run("--port", port, "--", "true")

    assert (ran.returncode, ran.stderr) == (1, f"zoolet: cannot listen on 127.0.0.1:{port}: Address already in use\n")


def test_a_property_that_is_invalid_is_wrong_usage() -> None:
    ran = run("-Dzookeeper.tickTime=nonsense", "--", "echo", "never")

    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_is_forwarded(number: signal.Signals) -> None:
    process = start("--", sys.executable, "-c", UNTIL_SIGNALLED)

    process.send_signal(number)

    assert rest(process) == (7, f"got {number.name}\n")


def test_a_command_that_a_signal_kills_gives_its_number() -> None:
    process = start("--", "sh", "-c", "echo up; exec sleep 60")

    process.terminate()

    assert rest(process) == (128 + signal.SIGTERM, "")


def test_a_signal_that_comes_as_soon_as_the_command_runs_is_forwarded() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SIGNALLED_AT_ONCE, "run", "--", "sleep", "1"],
        stdout=subprocess.DEVNULL,
        timeout=DEADLINE_S,
    )

    assert ran.returncode == 128 + signal.SIGTERM


def test_an_interrupt_typed_at_a_terminal_reaches_the_command_once() -> None:
    ours, terminal = os.openpty()
    command = [*ZOOLET, "run", "--", sys.executable, "-c", COUNT_INTERRUPTS]
    process = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL, *command], stdin=terminal, stdout=terminal, start_new_session=True
    )
    os.close(terminal)
    with process, open(ours, "rb", buffering=0) as typed:
        lines = Lines(typed)
        lines.until("up")
        process.send_signal(signal.SIGSTOP)  # so that one comes after the other
        os.write(ours, b"\x03")
        lines.until("interrupted")
        process.send_signal(signal.SIGCONT)
        process.terminate()
        line = lines.until("in all")

    assert line == "in all 1"
