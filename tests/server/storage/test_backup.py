"""Copies of data directories are complete and usable, even while a server writes, cuts logs and purges."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

import pytest
from support.command import zoolet
from support.daemon import DaemonProcess
from support.stored import StoredServer, recover_state

from zoolet.__main__ import main
from zoolet.cli import datadir
from zoolet.client import Client as AsyncClient
from zoolet.client.blocking import Client
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.storage import backup, layout
from zoolet.server.storage.backup import back_up
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import DirectoryLock
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode
from zoolet.server.storage.txnlog import encode as encode_entries
from zoolet.server.storage.txnlog import encode_header
from zoolet.testing import Server


@pytest.mark.slow
def test_backup_of_running_server_is_complete(tmp_path: Path) -> None:
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
        assert made.nodes >= before + 5
    with DaemonProcess("--data-dir", str(tmp_path / "copy-7")) as daemon, Client(daemon.hosts) as zk:
        found = set(zk.children("/"))
        assert zk.exists(zk.create("/later", b"")).czxid >> 32 > copies[-1][1].zxid >> 32  # a new epoch
        assert {path[1:] for path in acknowledged[: copies[-1][0]]} <= found


def write_data_dir(path: Path, logs: list[int]) -> Path:
    """Write a snapshot at zxid 5, and logs of two transactions each."""
    inner = path / "version-2"
    inner.mkdir(parents=True)
    root = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    (inner / "snapshot.5").write_bytes(b"".join(encode(Snapshot(5, [root]))))
    for first in logs:
        entries = [(0, 0, zxid, 5, -1, ErrorTxn(0)) for zxid in (first, first + 1)]
        (inner / f"log.{first:x}").write_bytes(encode_header() + encode_entries(entries))
    return inner


def test_backup_omits_logs_before_snapshot(tmp_path: Path) -> None:
    inner = write_data_dir(tmp_path / "data", logs=[])
    for first, count in ((1, 4), (5, 3)):
        entries = [(0, 0, zxid, 5, -1, ErrorTxn(0)) for zxid in range(first, first + count)]
        (inner / f"log.{first:x}").write_bytes(encode_header() + encode_entries(entries))

    back_up(tmp_path / "data", tmp_path / "copy")

    assert {file.name for file in (tmp_path / "copy" / "version-2").glob("*.?")} == {"snapshot.5", "log.5"}


def _data_with_a_commit_that_is_being_written(path: Path) -> None:
    inner = write_data_dir(path, logs=[])
    entries = [encode_entries([(0, 0, zxid, 5, -1, ErrorTxn(0))]) for zxid in (6, 7)]
    torn = entries[1][:-7].ljust(8192, b"\0")
    (inner / "log.6").write_bytes(encode_header() + entries[0] + torn)


def test_backup_omits_unfinished_commit(tmp_path: Path) -> None:
    _data_with_a_commit_that_is_being_written(tmp_path / "data")

    made = back_up(tmp_path / "data", tmp_path / "copy")

    assert made.zxid == 6
    assert made.left_out > 0
    assert back_up(tmp_path / "copy", tmp_path / "copy of the copy").left_out == 0


def test_commit_in_progress_is_not_reported_as_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _data_with_a_commit_that_is_being_written(tmp_path / "data")

    stopped = main(["datadir", "verify", str(tmp_path / "data")])
    stopped_output = capsys.readouterr().out
    lock = DirectoryLock(tmp_path / "data" / "version-2")
    try:
        running = main(["datadir", "verify", str(tmp_path / "data")])
    finally:
        lock.release()

    assert stopped == 1
    assert "INVALID" in stopped_output
    assert running == 0
    assert "1 transactions, 0x6 to 0x6; a server is writing this log" in capsys.readouterr().out


def test_file_purged_during_verify_is_not_reported_as_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inner = write_data_dir(tmp_path / "data", logs=[])
    (inner / "snapshot.6").write_bytes((inner / "snapshot.5").read_bytes())
    read = datadir.read

    def read_and_purge(path: Path) -> bytes:
        (inner / "snapshot.5").unlink(missing_ok=True)
        return read(path)

    monkeypatch.setattr(datadir, "read", read_and_purge)

    code = main(["datadir", "verify", str(tmp_path / "data")])

    assert code == 0
    assert f"{inner}/snapshot.5: deleted while this command ran" in capsys.readouterr().out


def test_nonempty_backup_target_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data" / "version-2").mkdir(parents=True)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "file").touch()

    with pytest.raises(StorageError, match="the directory contains no snapshot"):
        back_up(tmp_path / "data", tmp_path / "other")
    assert not (tmp_path / "other").exists()
    with DaemonProcess("--data-dir", str(tmp_path / "data")):
        with pytest.raises(StorageError, match=r"^target directory .+ is not empty$"):
            back_up(tmp_path / "data", tmp_path / "target")


def test_backup_target_inside_data_directory_is_refused(tmp_path: Path) -> None:
    with Server(data_dir=tmp_path / "data"):
        pass

    with pytest.raises(StorageError, match="version-2; choose a different one"):
        back_up(tmp_path / "data", tmp_path / "data" / "version-2" / "copy")


def test_failed_backup_is_removed_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    assert back_up(tmp_path / "data", tmp_path / "copy").nodes == 5


def test_backup_restarts_after_purge_of_listed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_data_dir(tmp_path / "data", logs=[6])
    real, asked = DataDir.logs_after, []

    def logs_after(self: DataDir, zxid: int) -> list[Path]:
        asked.append(zxid)
        return [tmp_path / "purged"] if len(asked) == 1 else real(self, zxid)

    monkeypatch.setattr(DataDir, "logs_after", logs_after)

    assert back_up(tmp_path / "data", tmp_path / "copy").zxid == 7
    assert asked[:2] == [5, 5]


def test_backup_copies_file_purged_after_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = write_data_dir(tmp_path / "data", logs=[6, 8])
    copy = backup._copy

    def purge_and_copy(file: BinaryIO, target: Path) -> None:
        for path in inner.iterdir():
            path.unlink()
        copy(file, target)

    monkeypatch.setattr(backup, "_copy", purge_and_copy)

    assert back_up(tmp_path / "data", tmp_path / "copy").zxid == 9


@pytest.mark.parametrize("name", ["data", "data/version-2"])
async def test_backup_finds_logs_in_separate_directory(tmp_path: Path, name: str) -> None:
    async with StoredServer(tmp_path / "data", log_dir=str(tmp_path / "logs")) as server:
        async with AsyncClient(server.hosts) as client:
            await client.create("/a", b"")
            back_up(tmp_path / name, tmp_path / "copy")
            engine, _, _ = datadir._recover(lambda: DataDir.find(tmp_path / name))

    assert engine.tree.get("/a") is not None
    assert recover_state(tmp_path / "copy").tree.get("/a") is not None


def test_backup_has_newest_usable_snapshot(tmp_path: Path) -> None:
    inner = write_data_dir(tmp_path / "data", logs=[6])
    (inner / "snapshot.7").write_bytes(b"damaged")

    back_up(tmp_path / "data", tmp_path / "copy")

    assert {path.name for path in (tmp_path / "copy" / "version-2").glob("*.?")} == {"snapshot.5", "log.6"}


@pytest.mark.parametrize("step", [1, 2, "rename"])
def test_unfinished_backup_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], step: int | str) -> None:
    write_data_dir(tmp_path / "data", logs=[6])
    program = f"""
import os, signal, sys
from pathlib import Path
from zoolet.server.storage import backup
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
steps = []
def killed(*arguments):
    steps.append(1)
    if len(steps) == {step if isinstance(step, int) else 1}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
owner, name = {'(Disk, "rename")' if step == "rename" else '(backup, "_copy")'}
real = getattr(owner, name)
setattr(owner, name, killed)
backup.back_up(Path({str(tmp_path / "data")!r}), Path({str(tmp_path / "copy")!r}))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    before = list((tmp_path / "copy").rglob("*"))

    for path in (tmp_path / "copy", tmp_path / "copy" / "version-2.part"):
        refusals = [
            ["datadir", "verify", str(path)],
            ["datadir", "repair", str(path)],
            ["serve", "--port", "0", "--data-dir", str(path)],
            ["backup", str(path), str(tmp_path / "second")],
            ["backup", str(tmp_path / "data"), str(path)],
        ]
        for words in refusals:
            assert main(words) == 1, words
            assert "this backup is incomplete (found version-2.part); delete the directory" in capsys.readouterr().err
    with pytest.raises(ValueError, match="backup is incomplete"):
        Server(initial_data=tmp_path / "copy").start()
    assert list((tmp_path / "copy").rglob("*")) == before


def test_backup_contains_key_of_session_passwords(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data"), "-Dzoolet.keyedPasswords=true"):
        pass

    back_up(tmp_path / "data" / "version-2", tmp_path / "copy")

    assert (tmp_path / "copy" / layout.KEY).read_bytes() == (tmp_path / "data" / layout.KEY).read_bytes()


def test_backup_command_reports_its_copy(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a", b"")
        done = zoolet("backup", tmp_path / "data", tmp_path / "copy")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{tmp_path}/copy: 6 nodes up to zxid 0x")
    for file in (tmp_path / "copy" / "version-2").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "copy") == ["version-2"]


@pytest.mark.slow
def test_names_of_files_in_backup_survive_power_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(Disk, "sync_folder", lambda self, path: synced.append(path))
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a")

    back_up(tmp_path / "data", tmp_path / "copy")

    assert {path.name for path in synced[-2:]} == {layout.INCOMPLETE, "copy"}


@pytest.mark.slow
def test_backup_closes_every_file(tmp_path: Path) -> None:
    with DaemonProcess("--data-dir", str(tmp_path / "data")) as daemon, Client(daemon.hosts) as zk:
        zk.create("/a")
    before = len(os.listdir("/proc/self/fd"))

    back_up(tmp_path / "data", tmp_path / "copy")

    assert len(os.listdir("/proc/self/fd")) == before
