"""The load generator that needs no C compiler puts each kind of load on a live server, without an error."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon import DaemonProcess

PYLOAD = Path(__file__).parents[2] / "benchmarks" / "pyload.py"


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    with DaemonProcess("-Dzookeeper.maxClientCnxns=0") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("op", ["get", "delete", "multi", "connect", "fanout"])
def test_pyload_reports_its_load(daemon: DaemonProcess, op: str) -> None:
    command = [
        sys.executable,
        str(PYLOAD),
        str(daemon.port),
        op,
        "-c",
        "2",
        "-d",
        "8",
        "-n",
        "20",
        "-k",
        "3",
        "-w",
        "2",
    ]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["op"], report["total"], report["errors"]) == (op, 20, 0)
