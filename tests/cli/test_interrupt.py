"""Ctrl-C stops each command with exit code 130 and at most one line."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S

from zoolet.testing import Server

pytest.importorskip("h11")


@pytest.mark.parametrize(
    "words",
    [
        "status HOSTS",
        "top HOSTS",
        "locks HOSTS",
        "console HOSTS",
        "dump HOSTS FILE",
        "load HOSTS FILE",
        "push HOSTS/a HOSTS/b",
        "fault --admin http://HOSTS",
        "shell -server HOSTS ls /",
    ],
)
def test_interrupted_client_command_exits_with_130(words: str, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    file.write_text('{"/a": "1"}')
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(DEADLINE_S)
        hosts = f"127.0.0.1:{silent.getsockname()[1]}"
        command = [word.replace("HOSTS", hosts).replace("FILE", str(file)) for word in words.split()]
        with subprocess.Popen([sys.executable, "-m", "zoolet", *command], stderr=subprocess.PIPE, text=True) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                _, errors = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 130, errors
    assert errors.count("\n") <= 1


@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("words", ["serve --port 0", "run", "run --admin", "proxy 127.0.0.1:1", "console HOSTS"])
def test_server_command_exits_with_130_only_after_interrupt(words: str, number: signal.Signals, expected: int) -> None:
    with Server() as server:
        command = [sys.executable, "-m", "zoolet", *words.replace("HOSTS", server.hosts).split()]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(("zoolet ready on ", "zoolet console on "))
            process.send_signal(number)
            _, errors = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == expected, errors
    assert "Traceback" not in errors


def test_interrupt_stops_command_that_reads_pipe(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    command = [sys.executable, "-m", "zoolet", "load", "127.0.0.1:1", str(pipe)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        with pipe.open("wb"):  # succeeds when the command has opened the other end
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=DEADLINE_S)

    assert (process.returncode, errors) == (130, "zoolet load: interrupted; run the same command again to continue\n")
