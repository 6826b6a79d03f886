"""Ctrl-C stops each command with exit code 130 and at most one line."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import DEADLINE_S

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
def test_interrupt_exits_with_130(words: str, tmp_path: Path) -> None:
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
