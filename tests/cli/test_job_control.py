"""Commands at a terminal: stopped by Ctrl-Z and continued, in a narrow or dumb terminal, or when it is closed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.pseudo_terminal import run_at_terminal
from support.waiting import DEADLINE_S

from zoolet.cli.progress import Progress
from zoolet.client.blocking import Client
from zoolet.testing import Server

JOB_SHELL: Final = ("bash", "--norc", "-mc", '"$@"; echo "is stopped"; fg; echo "exit code $?"', "bash")
"""A shell that continues the command once it is stopped."""
CTRL_Z: Final = "\x1a"
CLEAR_SCREEN: Final = b"\x1b[2J"


def test_zoolet_shell_is_stopped_by_ctrl_z_and_continued(tmp_path: Path) -> None:
    pytest.importorskip("prompt_toolkit")
    with Server() as server, run_at_terminal(["shell", server.hosts], tmp_path, under=JOB_SHELL) as terminal:
        terminal.expect(r"CONNECTED\) 0\]")
        terminal.type(CTRL_Z)
        terminal.expect("is stopped")
        terminal.expect(r"CONNECTED\) 0\]")
        terminal.type("ls /\r")
        terminal.expect(r"\n\[zookeeper\]")
        terminal.expect(r"CONNECTED\) 1\]")
        terminal.type("quit\r")
        terminal.expect("exit code 0")


def test_top_reads_keys_after_it_was_stopped_and_continued(tmp_path: Path) -> None:
    with Server() as server:
        words = ["top", server.hosts, "--interval", "600"]
        with run_at_terminal(words, tmp_path, under=JOB_SHELL) as terminal:
            terminal.expect("standalone")
            terminal.type(CTRL_Z)
            terminal.expect("is stopped")
            terminal.type_until("q", "exit code 0")


def test_top_does_not_clear_dumb_terminal(tmp_path: Path) -> None:
    with Server() as server, run_at_terminal(["top", server.hosts, "-n", "1"], tmp_path, term="dumb") as terminal:
        assert terminal.wait() == 0
        assert "standalone" in terminal.text
        assert CLEAR_SCREEN not in terminal.raw


def test_top_truncates_lines_at_width(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    with Server() as server, run_at_terminal(["top", server.hosts, "-n", "1"], tmp_path) as terminal:
        assert terminal.wait() == 0
        assert "standalone" in terminal.text
        assert max(map(len, terminal.text.split("\n"))) <= 40


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("term", "line"), [("xterm", "\r1,000 nodes"), ("dumb", "")])
def test_progress_is_shown_only_if_terminal_can_overwrite_it(
    term: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr("time.monotonic", iter(range(9)).__next__)
    progress = Progress("dumping", screen := _Screen())
    progress.show("nodes", 1_000, 2_000)
    assert screen.getvalue() == line


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_locks_are_printed_in_any_encoding(encoding: str) -> None:
    with Server() as server, Client(server.hosts) as zk, zk.lock("/grüße"):
        command = [sys.executable, "-m", "zoolet", "locks", server.hosts]
        environment = {**os.environ, "PYTHONIOENCODING": encoding}
        ran = subprocess.run(command, env=environment, capture_output=True, timeout=DEADLINE_S, check=True)
    assert ("/grüße" if encoding == "utf-8" else "/gr\\xfc\\xdfe").encode(encoding) in ran.stdout


def test_recording_is_saved_when_terminal_closes(tmp_path: Path) -> None:
    file = tmp_path / "requests.rec"
    command = [sys.executable, "-m", "zoolet", "proxy", "--record", str(file)]
    with Server() as server, subprocess.Popen([*command, server.hosts], stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdout is not None
        hosts = proxy.stdout.readline().split()[-1]
        with Client(hosts) as zk:
            zk.create("/recorded")
        proxy.send_signal(signal.SIGHUP)
        assert proxy.wait(DEADLINE_S) == 128 + signal.SIGHUP
    assert b"/recorded" in file.read_bytes()
