"""The messages to systemd, received by a socket of the test: ready, status, watchdog, stopping."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.daemon import SERVE
from support.waiting import DEADLINE_S

from zoolet.client.blocking import Client


@contextmanager
def notifying_daemon(folder: Path, **environment: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    """Run a daemon that notifies a socket."""
    path = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
        link.bind(path)
        link.settimeout(DEADLINE_S)
        environ = {**os.environ, "NOTIFY_SOCKET": path, **environment}
        command = [*SERVE, "--port", "0"]
        with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                yield link, process
            finally:
                process.terminate()
                process.wait(DEADLINE_S)


def messages(link: socket.socket) -> dict[str, str]:
    """Receive one message."""
    return dict(line.split("=", 1) for line in link.recv(4096).decode().splitlines())  # type: ignore[misc] # always two parts


def test_systemd_is_notified_of_ready_and_stopping(tmp_path: Path) -> None:
    with notifying_daemon(tmp_path) as (link, process):
        assert messages(link) == {"READY": "1", "STATUS": "serving 0 sessions, 5 nodes"}
        assert process.stdout is not None
        with Client(process.stdout.readline().decode().split()[-1]):
            pass
        process.terminate()
        assert messages(link) == {"STOPPING": "1", "STATUS": "stopping"}


def test_watchdog_is_notified_twice_per_period(tmp_path: Path) -> None:
    with notifying_daemon(tmp_path, WATCHDOG_USEC="200000") as (link, process):
        assert messages(link)["READY"] == "1"
        assert messages(link) == {"WATCHDOG": "1"}
        assert messages(link) == {"WATCHDOG": "1"}
        process.send_signal(signal.SIGUSR1)
        seen = [messages(link) for _ in range(3)]
        assert any("read-only mode" in message.get("STATUS", "") for message in seen), seen


@pytest.mark.parametrize("environment", [{"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "200000", "WATCHDOG_PID": "1"}])
def test_watchdog_of_different_process_is_not_notified(tmp_path: Path, environment: dict[str, str]) -> None:
    with notifying_daemon(tmp_path, **environment) as (link, _):
        assert messages(link)["READY"] == "1"
        link.settimeout(0.3)
        with pytest.raises(TimeoutError):
            link.recv(4096)
