"""Syncs that fail: nothing counts that needs what may not be on the disk, and each file is closed once."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.stored import FullDisk, GatedDisk, SlowDisk, StoredServer, client_of
from support.waiting import until

from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.storage import group_commit
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk


class BadLog(Disk):
    """A disk on which one sync of a log fails, one of a snapshot, or one write of a log."""

    def __init__(self) -> None:
        self.fails = self.fails_snapshot = self.fails_write = False
        self.syncs_snapshot, self.may_sync = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        """Sync, or fail once; a snapshot when it may."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        if self.fails and "log" in path:
            self.fails = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if "snapshot" in path:
            self.syncs_snapshot.set()
            assert self.may_sync.wait(20)
            if self.fails_snapshot:
                self.fails_snapshot = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def write(self, descriptor: int, data: bytes, offset: int) -> None:
        """Write, or fail once."""
        if self.fails_write:
            self.fails_write = False
            raise MemoryError
        super().write(descriptor, data, offset)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("during", ["the end of the log", "the sync before the snapshot counts"])
async def test_a_log_that_a_snapshot_could_not_sync_is_replaced_by_a_snapshot(tmp_path: Path, during: str) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await client_of(server)
        await client.create("/a", b"")
        suspect = server.store._log
        disk.syncs_snapshot.clear()
        disk.may_sync.clear()
        writing = server.store.snapshot_soon()
        if during == "the end of the log":
            disk.fails = True
        await until(disk.syncs_snapshot.is_set)
        if during != "the end of the log":
            await client.create("/b", b"")
            suspect, disk.fails = server.store._log, True
        disk.may_sync.set()
        await asyncio.wait((writing,))
        last = server.engine.zxid
        await until(lambda: max(DataDir.find(tmp_path).snapshots) >= last)
        assert server.store._log is not suspect
        assert not disk.fails
        await client.aclose()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again soon, and sync often."""
    monkeypatch.setattr(group_commit, "RETRY", 0.01)
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.01)


@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("snapshot_fails", [False, True])
async def test_a_snapshot_that_needs_a_log_which_could_not_be_synced_does_not_count(
    tmp_path: Path, snapshot_fails: bool
) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await client_of(server)
        await client.create("/a", b"")
        await server.store.snapshot_written()
        disk.syncs_snapshot.clear()
        disk.may_sync.clear()
        begun = server.engine.zxid
        server.store.snapshot_soon()
        await until(disk.syncs_snapshot.is_set)
        await client.set("/a", b"1")  # the new log has begun
        disk.fails = True
        await client.set("/a", b"2")
        await until(lambda: server.store.doubtful_zxid > begun)
        disk.fails_snapshot = snapshot_fails
        disk.may_sync.set()
        last = server.engine.zxid
        await until(lambda: max(DataDir.find(tmp_path).snapshots) >= last)

        assert begun not in DataDir.find(tmp_path).snapshots
        await until(lambda: not list(tmp_path.rglob("zoolet-snapshot.tmp")))  # another one may be under way
        await client.aclose()


@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_a_log_whose_sync_fails_after_a_failed_write_is_replaced_by_a_snapshot(tmp_path: Path) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await client_of(server)
        await client.create("/a", b"")
        await server.store.snapshot_written()
        disk.fails_write = True
        pending = client.set("/a", b"1")
        await until(lambda: server.store._failing)
        disk.fails = True
        await pending
        last = server.engine.zxid
        await until(lambda: max(DataDir.find(tmp_path).snapshots) >= last)
        await client.aclose()


class StrictDisk(SlowDisk):
    """A slow disk that remembers what was done with a file that was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[int] = set()
        self.misused: list[str] = []

    def create(self, path: Path) -> int:
        """Create a file, whose descriptor may be that of an earlier one."""
        descriptor = super().create(path)
        self.closed.discard(descriptor)
        return descriptor

    def _check(self, what: str, descriptor: int) -> None:
        if descriptor in self.closed:
            self.misused.append(what)

    def sync(self, descriptor: int) -> None:
        """Sync, slowly, and fail if it was slow."""
        self._check("sync", descriptor)
        was_slow = not self.may_sync.is_set()
        super().sync(descriptor)
        if was_slow:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def truncate(self, descriptor: int, size: int) -> None:
        """Truncate."""
        self._check("truncate", descriptor)
        super().truncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        """Close."""
        self._check("close", descriptor)
        self.closed.add(descriptor)
        super().close(descriptor)


async def test_a_stop_during_a_sync_closes_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.02)
    monkeypatch.setattr(group_commit, "RETRY", 0.01)
    disk = StrictDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await client_of(server)
        await client.create("/a")
        disk.may_sync.clear()
        pending = client.set("/a", b"1")
        await until(lambda: disk.syncing > disk.synced)
        asyncio.get_running_loop().call_later(0.1, disk.may_sync.set)
        await server.daemon.stop()
    with suppress(ZooKeeperError):  # it was logged in the end, or not
        await pending
    await client.aclose()
    assert disk.misused == []


async def test_a_stop_does_not_wait_for_a_snapshot_that_cannot_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.05)
    disk = GatedDisk(tmp_path)
    async with StoredServer(tmp_path, disk) as server:
        client = await client_of(server)
        await client.create("/a")
        await server.store.snapshot_written()
        before = dict(disk.arrived)
        disk.gates["snapshot"].clear()
        server.store.snapshot_soon()
        await until(lambda: disk.arrived["snapshot"] > before["snapshot"])
        disk.log_fails = True
        pending = asyncio.ensure_future(client.set("/a", b"1"))
        await until(lambda: bool(server.engine.refusal))
        asyncio.get_running_loop().call_later(0.2, disk.gates["snapshot"].set)
        assert not await asyncio.wait_for(server.daemon.stop(), 10)
    with suppress(ZooKeeperError):
        await pending
    await client.aclose()


@pytest.mark.parametrize("fsync", ["interval", "never"])
async def test_a_sync_that_fails_at_the_end_is_no_clean_end(tmp_path: Path, fsync: str) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk, fsync=fsync) as server:
        client = await client_of(server)
        await client.create("/a")
        await server.store.snapshot_written()
        await client.set("/a", b"1")
        await client.aclose()
        disk.syncs = False
        assert not await server.daemon.stop()
    assert b"pid " in (tmp_path / "version-2" / "zoolet.lock").read_bytes()


@pytest.mark.parametrize("fsync", ["always", "interval"])
async def test_a_full_log_whose_last_sync_fails_is_closed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    monkeypatch.setattr(group_commit, "RETRY", 0.01)

    class Limited(StrictDisk):
        fails = False

        def write(self, descriptor: int, data: bytes, offset: int) -> None:
            if offset + len(data) > 20_000:
                self.fails = True
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
            super().write(descriptor, data, offset)

        def sync(self, descriptor: int) -> None:
            if self.fails:
                self.fails = False
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(descriptor)

    disk = Limited()
    async with StoredServer(tmp_path, disk, preallocated=0, fsync=fsync) as server:
        client = await client_of(server)
        await client.create("/a")
        for _ in range(12):
            await client.set("/a", bytes(4000))
        await client.aclose()
        await server.store.snapshot_written()
    assert disk.misused == []


async def test_a_stop_that_gave_up_logs_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.02)
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await client_of(server)
        await client.create("/a")
        await server.store.snapshot_written()
        disk.may_sync.clear()
        before = disk.syncing
        writes = [client.set("/a", b"1")]
        await until(lambda: disk.syncing > before)
        writes.append(client.set("/a", b"2"))
        await until(lambda: server.engine.tree.find("/a").version == 2)
        asyncio.get_running_loop().call_later(0.1, disk.may_sync.set)
        assert not await server.daemon.stop()
    await asyncio.gather(*writes, return_exceptions=True)
    await client.aclose()
    assert "cannot schedule" not in caplog.text
    assert "Bad file descriptor" not in caplog.text
