"""Ctrl-C stops each command although its server is away: gone, or silent in the middle of a request."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from support.waiting import DEADLINE_S, PROMPT_S

from zoolet.testing import Server, hold

pytest.importorskip("h11")
SESSION_OPTIONS: Final = ("--timeout", "30")
"""A session timeout far above the limit of the test."""
FOLLOWING_COMMANDS: Final = {
    "top HOSTS --interval 0.1": " standalone",
    "locks HOSTS --watch --interval 0.1": "no locks",
    "console HOSTS": "zoolet console on",
}
"""Commands that run until they are stopped, and a part of a line that they print first."""


@contextmanager
def start_command(words: str, server: Server, file: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a command with the words HOSTS and FILE replaced."""
    file.write_text('{"/new": "1"}')
    command = [word.replace("HOSTS", server.hosts).replace("FILE", str(file)) for word in words.split()]
    if command[0] != "shell":
        command += SESSION_OPTIONS
    command, pipe = [sys.executable, "-m", "zoolet", *command], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def stop(process: subprocess.Popen[str]) -> None:
    """Send Ctrl-C. The command must exit promptly and without a traceback."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=2 * PROMPT_S)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors


def read_until(process: subprocess.Popen[str], text: str) -> None:
    """Read lines of stdout until one contains *text*."""
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, "the command has exited"


@pytest.mark.parametrize("words", FOLLOWING_COMMANDS)
def test_ctrl_c_stops_command_that_follows_server(words: str, tmp_path: Path) -> None:
    with Server() as server, start_command(words, server, tmp_path / "tree.json") as process:
        read_until(process, FOLLOWING_COMMANDS[words])
        server.stop()
        stop(process)


def test_ctrl_c_stops_console_of_silent_server(tmp_path: Path) -> None:
    with Server() as server, start_command("console HOSTS", server, tmp_path / "tree.json") as process:
        read_until(process, "zoolet console on")
        server.pause("all")
        stop(process)


@pytest.mark.parametrize(
    ("words", "is_gone"),
    [
        ("dump HOSTS FILE", True),
        ("load HOSTS FILE", True),
        ("push HOSTS/a HOSTS/b", True),
        ("push HOSTS/a HOSTS/b", False),
        ("shell HOSTS", True),
        ("shell HOSTS", False),
    ],
)
def test_ctrl_c_stops_command_during_request(words: str, is_gone: bool, tmp_path: Path) -> None:
    with Server() as server:
        server.populate({"/a": b"1"})
        fault = server.fault(hold(), op="getData")
        with start_command(words, server, tmp_path / "tree.json") as process:
            if words.startswith("shell"):
                assert process.stdin is not None
                process.stdin.write("get /a\n")
                process.stdin.flush()
            server.wait_for(lambda: fault.hits, timeout=DEADLINE_S)
            if is_gone:
                server.stop()
            stop(process)


def test_end_of_input_ends_shell_of_silent_server(tmp_path: Path) -> None:
    with Server() as server, start_command("shell HOSTS", server, tmp_path / "tree.json") as process:
        assert process.stdin is not None
        process.stdin.write("ls /\n")
        process.stdin.flush()
        read_until(process, "zookeeper")
        server.pause("all")
        process.stdin.close()
        assert process.wait(timeout=2 * PROMPT_S) == 0
