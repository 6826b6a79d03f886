"""docs/fenced-storage.md: its program and its test run unchanged, except for the address of the server."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest
from support.waiting import DEADLINE_S

from zoolet.testing import Server

PAGE: Final = (Path(__file__).parents[2] / "docs" / "fenced-storage.md").read_text()
ADDRESS: Final = "127.0.0.1:2181"
CONDITION: Final = " WHERE report.token <= excluded.token"


def write_files(folder: Path, hosts: str = ADDRESS, condition: str = CONDITION) -> None:
    """Write the files of the page."""
    for name, text in re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(text.replace(ADDRESS, hosts).replace(CONDITION, condition))


def use_lock(folder: Path) -> None:
    """Replace the election of the program by the lock of the page."""
    (block,) = (
        one for one in re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) if "zk.lock(" in one
    )
    with (folder / "report.py").open("a") as file:
        file.write(block)


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    """Start the program in an environment without the settings of this pytest process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_report(folder: Path) -> str:
    """Wait until the database contains a report, and return its text."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if (folder / "report.db").exists():
            with closing(sqlite3.connect(folder / "report.db")) as database:
                if database.execute("SELECT 1 FROM sqlite_master").fetchone() and (
                    found := database.execute("SELECT body FROM report").fetchone()
                ):
                    return str(found[0])
        time.sleep(0.05)
    raise TimeoutError("no report was written")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "expected"), [(CONDITION, "1 passed"), ("", "assert [True] == [False]")], ids=["fenced", "unfenced"]
)
def test_documented_test_finds_late_write(condition: str, expected: str, tmp_path: Path) -> None:
    write_files(tmp_path, condition=condition)

    with start(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "test_report.py") as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert expected in output


@pytest.mark.slow
def test_documented_test_passes_with_lock(tmp_path: Path) -> None:
    write_files(tmp_path)
    use_lock(tmp_path)

    with start(tmp_path, "-m", "pytest", "-p", "no:cacheprovider", "test_report.py") as process:
        output, _ = process.communicate(timeout=DEADLINE_S)

    assert "1 passed" in output


@pytest.mark.slow
def test_fenced_storage_program_waits_for_server_and_stops(tmp_path: Path) -> None:
    with Server() as server:
        server.refuse_connections()
        write_files(tmp_path, server.hosts)
        with start(tmp_path, "report.py") as process:
            time.sleep(0.5)
            server.accept_connections()
            try:
                assert wait_for_report(tmp_path).startswith(f"reporter-{process.pid} at ")
            finally:
                process.terminate()
                output, _ = process.communicate(timeout=DEADLINE_S)

        assert process.returncode == 0, output
        assert "Traceback" not in output
        assert not [path for path, node in server.tree().items() if node.ephemeral_owner]


@pytest.mark.slow
def test_fenced_storage_program_stops_without_server(tmp_path: Path) -> None:
    with Server() as server:
        server.refuse_connections()
        write_files(tmp_path, server.hosts)
        with start(tmp_path, "report.py") as process:
            while process.poll() is None and not (tmp_path / "report.db").exists():
                time.sleep(0.05)  # the database exists, so the signal handlers are installed
            time.sleep(0.2)
            process.terminate()
            output, _ = process.communicate(timeout=DEADLINE_S)

    assert process.returncode == 0, output
    assert "Traceback" not in output
