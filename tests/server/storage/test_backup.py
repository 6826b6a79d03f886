"""A copy of a data directory: whole, while a server writes, cuts logs and purges, and a server starts from it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.daemon import DaemonProcess

from zoolet.client.blocking import Client
from zoolet.server.storage.backup import back_up
from zoolet.server.storage.errors import StorageError


@pytest.mark.slow
def test_a_copy_made_while_the_server_writes_has_what_was_acknowledged_before(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path / "data"), "-DsnapCount=200", "-DpreAllocSize=64")
    with DaemonProcess(*options) as daemon, Client(daemon.hosts) as zk:
        acknowledged: list[str] = []
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                acknowledged.append(zk.create("/n", b"x" * 50, sequential=True))

        writer = threading.Thread(target=write)
        writer.start()
        copies = []
        for number in range(8):
            before = len(acknowledged)
            made = back_up(tmp_path / "data", tmp_path / f"copy-{number}")
            copies.append((before, made))
        stop.set()
        writer.join()

    for before, made in copies:
        assert made.nodes >= before + 4
    with DaemonProcess("--data-dir", str(tmp_path / "copy-7")) as daemon, Client(daemon.hosts) as zk:
        found = set(zk.children("/"))
        assert zk.exists(zk.create("/later", b"")).czxid >> 32 > copies[-1][1].zxid >> 32  # a new epoch
        assert {path[1:] for path in acknowledged[: copies[-1][0]]} <= found


def test_a_target_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").touch()

    with pytest.raises(StorageError, match="this is not empty"):
        back_up(tmp_path / "data", tmp_path / "target")
    with pytest.raises(StorageError, match="there is no snapshot"):
        back_up(tmp_path / "data", tmp_path / "other")


def test_the_command_says_what_the_copy_has(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a", b"")
        command = [sys.executable, "-m", "zoolet", "backup", str(tmp_path / "data"), str(tmp_path / "copy")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/copy: 5 nodes up to zxid 0x")
    for file in (tmp_path / "copy" / "version-2").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "copy") == ["version-2"]
