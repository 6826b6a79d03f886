"""The cost of an embedded server: import, start, stop, and idle time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from typing import Final

import pytest
from support.waiting import DEADLINE_S, repeat_until_fast

from zoolet.testing import Server

MINUTE: Final = 60.0
OBSERVED_S: Final = 2.5
ENVIRONMENT: Final = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}


def cpu_of(code: str) -> float:
    """Run a program in a new interpreter. Return the seconds of CPU it used."""
    process = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def output_of(code: str) -> str:
    """Run a program in a new interpreter. Return its output."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True, env=ENVIRONMENT
    ).stdout


def test_server_accepts_within_20_ms() -> None:
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.02):
        began = time.perf_counter()
        with Server() as server, socket.create_connection(("127.0.0.1", server.port)) as link:
            link.sendall(b"ruok")
            assert link.recv(4) == b"imok"
            took.append(time.perf_counter() - began)

    assert min(took) <= 0.02, took


async def test_server_in_loop_starts_within_20_ms() -> None:
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.02):
        began = time.perf_counter()
        async with Server():
            took.append(time.perf_counter() - began)

    assert min(took) <= 0.02, took


@pytest.mark.parametrize("clients", [0, 5])
def test_server_stops_within_20_ms(clients: int) -> None:
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.02):
        server = Server()
        server.start()
        links = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(clients)]
        for link in links:
            link.sendall(b"\0\0\0\x2d" + bytes(8 + 4) + b"\0\0\x75\x30" + bytes(8) + b"\0\0\0\x10" + bytes(17))
            assert link.recv(4)
        server.populate({"/a": "x"})
        began = time.perf_counter()
        server.stop()
        took.append(time.perf_counter() - began)
        for link in links:
            link.close()

    assert min(took) <= 0.02, took


async def test_server_in_loop_stops_within_20_ms() -> None:
    took: list[float] = []
    for _ in repeat_until_fast(took, 0.02):
        async with Server():
            began = time.perf_counter()
        took.append(time.perf_counter() - began)

    assert min(took) <= 0.02, took


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "limit"),
    [("import zoolet.server", 0.1), ("import zoolet.testing", 0.1)],
    ids=lambda value: str(value),
)
def test_interpreter_with_import_takes_100_ms(code: str, limit: float) -> None:
    output_of(code)  # the first run may have to compile modules
    took: list[float] = []
    for _ in repeat_until_fast(took, limit):
        took += [cpu_of(code)]

    assert min(took) <= limit, took


@pytest.mark.slow
def test_idle_server_takes_little_cpu() -> None:
    code = f"""
import time
from zoolet.testing import Server

with Server() as server:
    began = time.process_time()
    time.sleep({OBSERVED_S})  # this much real time is what the test is about
    print(time.process_time() - began)
"""
    used = float(output_of(code))

    assert used * MINUTE / OBSERVED_S <= 0.2, used
