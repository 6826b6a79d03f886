"""Failed syncs: snapshots that depend on unsynced data are discarded, and each file is closed once."""

from __future__ import annotations

import asyncio
import errno
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support.stored import FullDisk, GatedDisk, SlowDisk, StoredServer, connect_client
from support.waiting import DEADLINE_S, until

from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.storage import group_commit
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk


class BadLog(Disk):
    """A disk where one sync of a log, one sync of a snapshot, or one write of a log fails."""

    def __init__(self) -> None:
        self.fails = self.fails_snapshot = self.fails_write = False
        self.syncs_snapshot, self.may_sync = threading.Event(), threading.Event()

    def sync(self, descriptor: int) -> None:
        """Sync, or fail once; a snapshot waits for permission."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        if self.fails and "log" in path:
            self.fails = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if "snapshot" in path:
            self.syncs_snapshot.set()
            assert self.may_sync.wait(DEADLINE_S)
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
async def test_unsynced_log_is_replaced_by_snapshot(tmp_path: Path, during: str) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await connect_client(server)
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
    """Shorten the intervals of retries and syncs."""
    monkeypatch.setattr(group_commit, "RETRY", 0.01)
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.01)


@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("snapshot_fails", [False, True])
async def test_snapshot_needing_unsynced_log_is_discarded(tmp_path: Path, snapshot_fails: bool) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        await server.store.snapshot_written()
        disk.syncs_snapshot.clear()
        disk.may_sync.clear()
        begun = server.engine.zxid
        server.store.snapshot_soon()
        await until(disk.syncs_snapshot.is_set)
        await client.set("/a", b"1")  # answered, so the new log has been started
        disk.fails = True
        await client.set("/a", b"2")
        await until(lambda: server.store.doubtful_zxid > begun)
        disk.fails_snapshot = snapshot_fails
        disk.may_sync.set()
        last = server.engine.zxid
        await until(lambda: max(DataDir.find(tmp_path).snapshots) >= last)

        assert begun not in DataDir.find(tmp_path).snapshots
        await until(lambda: not list(tmp_path.rglob("zoolet-snapshot.tmp")))  # another snapshot may be in progress
        await client.aclose()


@pytest.mark.usefixtures("hurried")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_log_is_replaced_by_snapshot_after_write_and_sync_fail(tmp_path: Path) -> None:
    disk = BadLog()
    disk.may_sync.set()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await connect_client(server)
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
    """A slow disk that records operations on closed files."""

    def __init__(self) -> None:
        super().__init__()
        self.closed: set[int] = set()
        self.misused: list[str] = []

    def create(self, path: Path) -> int:
        """Create a file, whose descriptor may have been used before."""
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


async def test_stop_during_sync_closes_each_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.02)
    monkeypatch.setattr(group_commit, "RETRY", 0.01)
    disk = StrictDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a")
        disk.may_sync.clear()
        pending = client.set("/a", b"1")
        await until(lambda: disk.syncing > disk.synced)
        asyncio.get_running_loop().call_later(0.1, disk.may_sync.set)
        await server.daemon.stop()
    with suppress(ZooKeeperError):  # the write may or may not have been logged at the end
        await pending
    await client.aclose()
    assert disk.misused == []


async def test_stop_does_not_wait_for_unfinishable_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.05)
    disk = GatedDisk(tmp_path)
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
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
        assert not await asyncio.wait_for(server.daemon.stop(), DEADLINE_S)
    with suppress(ZooKeeperError):
        await pending
    await client.aclose()


@pytest.mark.parametrize("fsync", ["interval", "never"])
async def test_failed_sync_at_stop_makes_stop_unclean(tmp_path: Path, fsync: str) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk, fsync=fsync) as server:
        client = await connect_client(server)
        await client.create("/a")
        await server.store.snapshot_written()
        await client.set("/a", b"1")
        await client.aclose()
        disk.syncs = False
        assert not await server.daemon.stop()
    assert b"pid " in (tmp_path / "version-2" / "zoolet.lock").read_bytes()


@pytest.mark.parametrize("fsync", ["always", "interval"])
async def test_full_log_with_failed_last_sync_is_closed_once(
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
        client = await connect_client(server)
        await client.create("/a")
        for _ in range(12):
            await client.set("/a", bytes(4000))
        await client.aclose()
        await server.store.snapshot_written()
    assert disk.misused == []


async def test_stop_after_timeout_logs_no_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.02)
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
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
