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
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.storage import backup, layout
from zoolet.server.storage.backup import back_up
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode
from zoolet.server.storage.txnlog import encode as encode_entries
from zoolet.server.storage.txnlog import encode_header


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
        try:
            for number in range(8):
                before = len(acknowledged)
                made = back_up(tmp_path / "data", tmp_path / f"copy-{number}")
                copies.append((before, made))
        finally:
            stop.set()
            writer.join()

    for before, made in copies:
        assert made.nodes >= before + 4
    with DaemonProcess("--data-dir", str(tmp_path / "copy-7")) as daemon, Client(daemon.hosts) as zk:
        found = set(zk.children("/"))
        assert zk.exists(zk.create("/later", b"")).czxid >> 32 > copies[-1][1].zxid >> 32  # a new epoch
        assert {path[1:] for path in acknowledged[: copies[-1][0]]} <= found


def test_a_copy_has_no_log_that_the_snapshot_does_not_need(tmp_path: Path) -> None:
    inner = tmp_path / "data" / "version-2"
    inner.mkdir(parents=True)
    root = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    (inner / "snapshot.5").write_bytes(b"".join(encode(Snapshot(5, [root]))))
    for first, count in ((1, 4), (5, 3)):
        entries = [(0, 0, zxid, 5, -1, ErrorTxn(0)) for zxid in range(first, first + count)]
        (inner / f"log.{first:x}").write_bytes(encode_header() + encode_entries(entries))

    back_up(tmp_path / "data", tmp_path / "copy")

    assert {file.name for file in (tmp_path / "copy" / "version-2").glob("*.?")} == {"snapshot.5", "log.5"}


def test_a_target_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").touch()

    with pytest.raises(StorageError, match="it has no snapshot"):
        back_up(tmp_path / "data", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with DaemonProcess("--data-dir", str(tmp_path / "data")):
        with pytest.raises(StorageError, match="this is not empty"):
            back_up(tmp_path / "data", tmp_path / "target")


def test_a_copy_that_fails_leaves_nothing_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")):
        pass

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "sync", fail)
        with pytest.raises(OSError, match="No space left") as caught:
            back_up(tmp_path / "data", tmp_path / "copy")
    assert caught.value.filename == str(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()

    assert back_up(tmp_path / "data", tmp_path / "copy").nodes == 4


def test_a_copy_begins_again_when_a_file_was_purged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a", b"")
    real, copied = backup._copy, []

    def copy(source: Path, target: Path) -> None:
        copied.append(source.name.partition(".")[0])
        if len(copied) == 2:
            raise FileNotFoundError(2, "purged", str(source))
        real(source, target)

    monkeypatch.setattr(backup, "_copy", copy)
    assert back_up(tmp_path / "data", tmp_path / "copy").nodes == 5
    assert copied[:3] == ["snapshot", "log", "snapshot"]


def test_the_key_of_passwords_is_copied_from_beside_the_folder_of_the_files(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data"), "-Dzoolet.keyedPasswords=true"):
        pass

    back_up(tmp_path / "data" / "version-2", tmp_path / "copy")

    assert (tmp_path / "copy" / layout.KEY).read_bytes() == (tmp_path / "data" / layout.KEY).read_bytes()


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


@pytest.mark.slow
def test_the_names_of_a_copy_outlive_a_loss_of_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(Disk, "sync_folder", lambda self, path: synced.append(path))
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a")

    back_up(tmp_path / "data", tmp_path / "copy")

    assert {path.name for path in synced} >= {layout.SUBFOLDER}


@pytest.mark.slow
def test_a_copy_leaves_no_file_open(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a")
    before = len(os.listdir("/proc/self/fd"))

    back_up(tmp_path / "data", tmp_path / "copy")

    assert len(os.listdir("/proc/self/fd")) == before
