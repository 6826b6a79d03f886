"""Guarantees of a data directory in special cases: purges, failing disks, unclean shutdowns, changed clocks."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from pathlib import Path
from random import Random

import pytest
from support.stored import FullDisk, RememberingDisk, StoredServer, connect_client, recover_state
from support.waiting import DEADLINE_S, until

from zoolet.client import Client, NotReadOnlyError
from zoolet.protocol.errors import ConnectionLossError
from zoolet.server.admin.four_letter import isro, mntr, srvr
from zoolet.server.admin.observed import MonitoredServer
from zoolet.server.config import build
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.storage import group_commit
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.live import take_snapshot
from zoolet.server.storage.opening import OpenDirectory
from zoolet.server.storage.settings import StorageSettings


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the retry intervals for failing disks."""
    monkeypatch.setattr(group_commit, "RETRY", 0.02)
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.2)


def names(folder: Path) -> set[str]:
    """Return the names of the snapshots and logs."""
    return {path.name for path in (folder / "version-2").iterdir() if re.match(r"(snapshot|log)\.", path.name)}


async def write(folder: Path, *paths: str, snapshots: int = 0, **settings: object) -> None:
    """Create nodes with a server, and write snapshots after each node."""
    async with StoredServer(folder, **settings) as server, Client(server.hosts, timeout=20.0) as client:
        for path in paths:
            await client.create(path, b"")
            for _ in range(snapshots):
                await client.set(path, b"")
                await server.store.snapshot_soon()


# --- the purge ---


@pytest.mark.parametrize("junk", [b"\x82SNAPPY\0", b"ZKSN" + bytes(40)], ids=["snappy", "damaged"])
async def test_purge_does_not_count_unusable_snapshots_as_retained(tmp_path: Path, junk: bytes) -> None:
    await write(tmp_path, "/a", "/b")
    newest = recover_state(tmp_path).zxid + (1 << 33)
    for number in range(3):
        suffix = ".snappy" if junk.startswith(b"\x82") else ""
        (tmp_path / "version-2" / f"snapshot.{newest + number:x}{suffix}").write_bytes(junk)

    for name in ("/c", "/d", "/e", "/f"):
        await write(tmp_path, name, snapshots=1)

    assert {f"/{name}" for name in "abcdef"} < {path for path, _ in recover_state(tmp_path).tree.walk()}
    assert recover_state(tmp_path).zxid > newest
    assert len([name for name in names(tmp_path) if name.startswith("snapshot")]) >= 3


async def test_purge_keeps_all_with_too_few_valid_snapshots(tmp_path: Path) -> None:
    await write(tmp_path, "/a", "/b", snapshots=1)
    middle = sorted((tmp_path / "version-2").glob("snapshot.*"))[1]
    middle.write_bytes(middle.read_bytes()[:-1] + b"x")
    before = names(tmp_path)

    await write(tmp_path, "/c", snapshots=1, retained=5)

    assert before < names(tmp_path)


async def test_snapshot_is_written_once_log_is_large(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, log_size=64) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
        for _ in range(10):
            await client.set("/a", bytes(10_000))
        await until(lambda: len(DataDir.find(tmp_path).snapshots) == 2)


# --- failing disks ---


class NameFails(FullDisk):
    """A disk that cannot sync the names of a folder."""

    named = True

    def sync_folder(self, path: Path) -> None:
        """Sync the names of a folder, or fail."""
        if not self.named:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_folder(path)


async def test_writes_resume_once_log_name_is_synced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = NameFails()
    async with StoredServer(tmp_path, disk) as server:
        disk.named = False
        client = Client(server.hosts, timeout=20.0)
        await client.start(wait=False)
        await until(lambda: "Input/output error" in server.engine.refusal)
        disk.named = True
        await client.create("/a", b"")
        await client.aclose()
    assert recover_state(tmp_path).tree.get("/a") is not None
    assert caplog.text.count("cannot write the log") == 1


@pytest.mark.parametrize("how", ["expires", "closes"])
async def test_ephemeral_node_stays_while_log_is_unwritable(tmp_path: Path, how: str) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        first, second, third = [await connect_client(server) for _ in range(3)]
        await first.create("/lock", ephemeral=True)
        session = server.engine.sessions.alive[first.session_id]
        disk.syncs = False
        pending = second.create("/never-acknowledged")
        await until(lambda: server.engine.frozen)
        if how == "expires":
            server.engine.sessions.expiry.touch(session, server.engine.monotonic_ms, 0)
            server.engine.set_time(server.engine.now, server.engine.monotonic_ms + 60_000)
            server.daemon.tick()
        else:
            await first.aclose()

        assert first.session_id in server.engine.sessions.alive or how == "closes"
        assert server.engine.tree.get("/lock") is not None
        with pytest.raises(NotReadOnlyError):
            await third.delete("/lock")
        disk.syncs = True
        assert await pending == "/never-acknowledged"
        for client in (third, second, first):
            await client.aclose()


async def test_unlogged_session_close_is_invisible(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        owner, reader = await connect_client(server), await connect_client(server)
        await owner.create("/lock", ephemeral=True)
        disk.syncs = False
        server.engine.expire(server.engine.sessions.alive[owner.session_id])
        server.daemon.connections.deliver()
        await until(lambda: server.engine.frozen)
        read = reader.exists("/lock")
        await until(lambda: server.store._waiting)  # the reply waits until the end of the session is logged

        assert not read.done()
        disk.syncs = True
        assert await read is None
        await reader.aclose()
    await owner.aclose()


async def test_wait_until_on_disk_does_not_wait_for_unused_zxid(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/a")

        await asyncio.wait_for(server.store.wait_until_on_disk(0, server.engine.zxid + 5), DEADLINE_S)

        await client.aclose()


async def test_srvr_is_answered_while_log_cannot_be_synced(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        disk.syncs = False
        server.engine.take_zxid()
        server.daemon.connections.deliver()
        await until(lambda: server.engine.frozen)
        reader, writer = await asyncio.open_connection(*server.hosts.split(":"))
        writer.write(b"srvr")

        assert b"Writes refused" in await asyncio.wait_for(reader.read(), DEADLINE_S)
        writer.close()
        disk.syncs = True
        await client.aclose()


async def test_deleted_directory_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with StoredServer(folder) as server:
        client, other = await connect_client(server), await connect_client(server)
        await client.create("/a")
        shutil.rmtree(folder)
        pending = client.create("/b")
        await until(lambda: "has been removed" in server.engine.refusal)
        assert not pending.done()
        with pytest.raises(NotReadOnlyError):
            await other.create("/c")
    with pytest.raises(ConnectionLossError):
        await pending
    await client.aclose()
    await other.aclose()


async def test_refusal_of_writes_is_shown_by_four_letter_words(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        asking = ClientConnection("127.0.0.1", 1)
        assert isro(MonitoredServer(server.engine), asking) == "rw"
        disk.reserves = False
        client = await connect_client(server)
        await client.create("/a", bytes(50_000))
        await until(lambda: bool(server.engine.refusal))

        assert isro(MonitoredServer(server.engine), asking) == "ro"
        assert "Mode: read-only\n" in srvr(MonitoredServer(server.engine), asking)
        assert "Writes refused: less than 64 kB free for the log (preAllocSize)\n" in srvr(
            MonitoredServer(server.engine), asking
        )
        assert "zk_zoolet_writes_refused\t1\n" in mntr(MonitoredServer(server.engine), asking)
        disk.reserves = True
        await until(lambda: not server.engine.refusal)
        assert isro(MonitoredServer(server.engine), asking) == "rw"
        assert "refused" not in srvr(MonitoredServer(server.engine), asking)
        await client.aclose()


# --- shutdown and startup ---


async def test_log_missing_after_clean_stop_is_noticed(tmp_path: Path) -> None:
    await write(tmp_path, "/a")
    log = next((tmp_path / "version-2").glob("log.*"))
    whole = log.read_bytes()
    for damage in (lambda: log.unlink(), lambda: log.write_bytes(b""), lambda: log.write_bytes(whole[:60])):
        damage()
        with pytest.raises(StorageError, match=r"a log is missing|the file is empty"):
            async with StoredServer(tmp_path):
                pass
    log.write_bytes(whole)

    await write(tmp_path, "/b")


async def test_server_does_not_start_if_log_disk_is_not_mounted(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    await write(data, "/a", log_dir=str(logs))
    mounted = logs.rename(tmp_path / "elsewhere")
    logs.mkdir()

    with pytest.raises(StorageError, match="check that it is mounted"):
        async with StoredServer(data, log_dir=str(logs)):
            pass

    assert list(logs.iterdir()) == []
    logs.rmdir()
    mounted.rename(logs)
    await write(data, "/b", log_dir=str(logs))


async def test_file_purged_during_listing_is_not_counted_in_sizes(tmp_path: Path) -> None:
    async with StoredServer(tmp_path):
        pass
    data = OpenDirectory(StorageSettings(str(tmp_path)))
    [snapshot] = (tmp_path / "version-2").glob("snapshot.*")
    sizes = data.configuration()
    purged = snapshot.with_name("snapshot.7ffffe0000000000")

    purged.symlink_to(tmp_path / "nowhere")  # like a file that is listed, but purged before it is opened

    assert data.configuration() == sizes
    assert data.last_snapshot() == (int(snapshot.name[9:], 16), int(snapshot.stat().st_mtime))
    data.release()


class NotingDisk(RememberingDisk):
    """A disk that keeps the synced content of the lock file at the time when the last snapshot got its name."""

    noted = b""

    def rename(self, source: Path, target: Path) -> None:
        """Rename."""
        if target.name.startswith("snapshot."):
            self.noted = self.lock
        super().rename(source, target)


async def test_session_id_is_recorded_before_snapshot_rename(tmp_path: Path) -> None:
    """A purge after the snapshot may remove the only log of a session. After a power loss its id must not be reused."""
    disk = NotingDisk(tmp_path)
    async with StoredServer(tmp_path, disk) as server:
        closed = await connect_client(server)
        last = closed.session_id
        await closed.aclose()
        await server.store.snapshot_soon()

    assert b"session %d\n" % last in disk.noted


class UnnotableDisk(Disk):
    """A disk that cannot sync the lock file once the server runs."""

    fails = False

    def sync(self, descriptor: int) -> None:
        """Sync, or fail."""
        if self.fails and os.readlink(f"/proc/self/fd/{descriptor}").endswith("zoolet.lock"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)


async def test_snapshot_is_discarded_if_session_id_cannot_be_noted(tmp_path: Path) -> None:
    disk = UnnotableDisk()
    async with StoredServer(tmp_path, disk) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
        before = {name for name in os.listdir(tmp_path / "version-2") if "snapshot" in name}
        disk.fails = True
        await server.store.snapshot_soon()

        assert {name for name in os.listdir(tmp_path / "version-2") if "snapshot" in name} == before
        assert server.engine.metrics.snapshot_errors == 1
        disk.fails = False


async def test_session_id_is_not_reused_after_clock_change(
    tmp_path: Path,
) -> None:
    async with StoredServer(tmp_path) as server:
        closed = await connect_client(server)
        last = closed.session_id
        await closed.aclose()

    def next_id() -> int:
        engine, data = Engine(build().settings, now=5, rng=Random(0)), OpenDirectory(StorageSettings(str(tmp_path)))
        data.recover(engine)
        data.release()
        return engine.sessions.new_id()

    assert next_id() > last
    lock = tmp_path / "version-2" / "zoolet.lock"
    noted = lock.read_text()
    lock.write_text("pid 1\n")
    assert next_id() > last  # the lock file has no id, so the last one is read from the log
    for path in (tmp_path / "version-2").glob("log.*"):
        path.unlink()
    lock.write_text(f"pid 1\n{noted.splitlines()[1]}\n")
    assert next_id() > last  # the logs are missing, so the last id is read from the lock file


async def test_kill_at_any_start_step_keeps_directory_usable(tmp_path: Path) -> None:
    await write(tmp_path / "whole", "/a", "/b")
    (tmp_path / "whole" / "version-2" / "zoolet.lock").write_text("pid 1\n")
    log = next((tmp_path / "whole" / "version-2").glob("log.*"))
    log.write_bytes(log.read_bytes()[:-70])  # a tail that recovery has to cut

    class Killed(BaseException):
        """Raised instead of killing the process."""

    class Dying(FullDisk):
        """A disk that raises Killed at the n-th operation."""

        def __init__(self, left: int) -> None:
            super().__init__()
            self.left = left

        def _count(self) -> None:
            self.left -= 1
            if not self.left:
                raise Killed

    for name in ("create", "write", "truncate", "sync", "close", "rename", "remove", "sync_folder", "reserve"):

        def counted(self: Dying, *arguments: object, name: str = name) -> object:
            result = getattr(FullDisk, name)(self, *arguments)
            self._count()
            return result

        setattr(Dying, name, counted)
    steps = 0
    while True:
        steps += 1
        folder = tmp_path / str(steps)
        shutil.copytree(tmp_path / "whole", folder)
        try:
            async with StoredServer(folder, Dying(steps)):
                break
        except Killed:
            (folder / "version-2" / "zoolet.lock").write_text("pid 1\n")
        async with StoredServer(folder) as server:
            assert server.engine.tree.get("/a") is not None
    assert steps > 10


async def test_unrelated_files_in_directory_are_accepted(tmp_path: Path) -> None:
    for name in ("zoo.cfg", "zookeeper.log", ".keep"):
        (tmp_path / name).write_text("")

    await write(tmp_path, "/a")

    assert recover_state(tmp_path).tree.get("/a") is not None


async def test_epoch_files_of_ensemble_member_are_updated(tmp_path: Path) -> None:
    await write(tmp_path, "/a")
    inner = tmp_path / "version-2"
    for name in ("acceptedEpoch", "currentEpoch"):
        (inner / name).write_text("1")
    (inner / "zoolet.lock").write_text("pid 1\n")

    await write(tmp_path, "/b")

    epoch = str(recover_state(tmp_path).zxid >> 32)
    assert (inner / "acceptedEpoch").read_text() == (inner / "currentEpoch").read_text() == epoch


def test_broken_snapshot_keeps_files_of_older_ones(tmp_path: Path) -> None:
    folder = tmp_path / "version-2"
    folder.mkdir()
    engine = Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))
    for zxid in (1, 2, 3):
        engine.zxid = zxid
        (folder / f"snapshot.{zxid:x}").write_bytes(b"".join(snapshots.encode(take_snapshot(engine))))
        (folder / f"log.{zxid:x}").touch()
    for zxid in (4, 5):
        (folder / f"snapshot.{zxid:x}").write_bytes(b"ZKSN broken")

    deleted = DataDir.find(tmp_path).purge(3, (), Disk())

    assert deleted == []
    assert len(list(folder.iterdir())) == 8

    for zxid in (1, 2, 3):
        assert (folder / f"snapshot.{zxid:x}").exists()
    assert [path.name for path in DataDir.find(tmp_path).purge(2, (), Disk())] == ["snapshot.1", "log.1"]
