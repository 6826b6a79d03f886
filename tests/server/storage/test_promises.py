"""What a data directory promises at the edges: purges, failing disks, ends that were not clean, clocks that go back."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from pathlib import Path
from random import Random

import pytest
from support.stored import FullDisk, StoredServer, client_of, recovered
from support.waiting import until

from zoolet.client import Client, NotReadOnlyError
from zoolet.protocol.errors import ConnectionLossError
from zoolet.server.admin.four_letter import isro, mntr, srvr
from zoolet.server.admin.observed import Observed
from zoolet.server.config import build
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.storage import group_commit
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.live import snapshot_of
from zoolet.server.storage.opening import OpenDirectory
from zoolet.server.storage.settings import StorageSettings


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try disks that fail again soon."""
    monkeypatch.setattr(group_commit, "RETRY", 0.02)
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.2)


def names(folder: Path) -> set[str]:
    """Return the names of the snapshots and logs."""
    return {path.name for path in (folder / "version-2").iterdir() if re.match(r"(snapshot|log)\.", path.name)}


async def write(folder: Path, *paths: str, snapshots: int = 0, **settings: object) -> None:
    """Create nodes with a server, and write snapshots after each."""
    async with StoredServer(folder, **settings) as server, Client(server.hosts, timeout=20.0) as client:
        for path in paths:
            await client.create(path, b"")
            for _ in range(snapshots):
                await client.set(path, b"")
                await server.store.snapshot_soon()


# --- the purge ---


@pytest.mark.parametrize("junk", [b"\x82SNAPPY\0", b"ZKSN" + bytes(40)], ids=["snappy", "damaged"])
async def test_snapshots_that_cannot_be_used_do_not_count_when_others_are_deleted(tmp_path: Path, junk: bytes) -> None:
    await write(tmp_path, "/a", "/b")
    newest = recovered(tmp_path).zxid + (1 << 33)
    for number in range(3):
        suffix = ".snappy" if junk.startswith(b"\x82") else ""
        (tmp_path / "version-2" / f"snapshot.{newest + number:x}{suffix}").write_bytes(junk)

    for name in ("/c", "/d", "/e", "/f"):
        await write(tmp_path, name, snapshots=1)

    assert {f"/{name}" for name in "abcdef"} < {path for path, _ in recovered(tmp_path).tree.walk()}
    assert recovered(tmp_path).zxid > newest
    assert len([name for name in names(tmp_path) if name.startswith("snapshot")]) >= 3


async def test_nothing_is_deleted_while_there_are_fewer_valid_snapshots_than_are_kept(tmp_path: Path) -> None:
    await write(tmp_path, "/a", "/b", snapshots=1)
    middle = sorted((tmp_path / "version-2").glob("snapshot.*"))[1]
    middle.write_bytes(middle.read_bytes()[:-1] + b"x")
    before = names(tmp_path)

    await write(tmp_path, "/c", snapshots=1, retained=5)

    assert before < names(tmp_path)


async def test_a_snapshot_is_written_when_so_much_was_logged(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, log_size=64) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
        for _ in range(10):
            await client.set("/a", bytes(10_000))
        await until(lambda: len(DataDir.find(tmp_path).snapshots) == 2)


# --- failing disks ---


class NameFails(FullDisk):
    """A disk on which the names of a folder cannot be synced."""

    named = True

    def sync_folder(self, path: Path) -> None:
        """Sync, or fail."""
        if not self.named:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_folder(path)


async def test_writes_are_accepted_again_once_the_name_of_a_log_can_be_synced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = NameFails()
    async with StoredServer(tmp_path, disk) as server:
        disk.named = False
        client = Client(server.hosts, timeout=20.0)
        client.begin()
        await until(lambda: "Input/output error" in server.engine.refusal)
        disk.named = True
        await client.create("/a", b"")
        await client.aclose()
    assert recovered(tmp_path).tree.get("/a") is not None
    assert caplog.text.count("the log cannot be written") == 1


@pytest.mark.parametrize("how", ["expires", "closes"])
async def test_no_session_ends_while_that_cannot_be_logged(tmp_path: Path, how: str) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        first, second, third = [await client_of(server) for _ in range(3)]
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


async def test_nobody_sees_the_end_of_a_session_that_could_not_be_logged(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        owner, reader = await client_of(server), await client_of(server)
        await owner.create("/lock", ephemeral=True)
        disk.syncs = False
        server.engine.expire(server.engine.sessions.alive[owner.session_id])
        server.daemon.connections.deliver()
        await until(lambda: server.engine.frozen)
        read = reader.exists("/lock")
        await until(lambda: server.store._waiting)  # the reply, until the end of the session is logged

        assert not read.done()
        disk.syncs = True
        assert await read is None
        await reader.aclose()
    await owner.aclose()


async def test_nobody_waits_for_a_zxid_that_nothing_has(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await client_of(server)
        await client.create("/a")

        await asyncio.wait_for(server.store.on_disk(0, server.engine.zxid + 5), 20)

        await client.aclose()


async def test_a_probe_is_answered_while_a_change_of_the_server_s_cannot_be_logged(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await client_of(server)
        disk.syncs = False
        server.engine.take_zxid()
        server.daemon.connections.deliver()
        await until(lambda: server.engine.frozen)
        reader, writer = await asyncio.open_connection(*server.hosts.split(":"))
        writer.write(b"srvr")

        assert b"Writes refused" in await asyncio.wait_for(reader.read(), 20)
        writer.close()
        disk.syncs = True
        await client.aclose()


async def test_a_directory_that_was_deleted_is_not_written_to(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with StoredServer(folder) as server:
        client, other = await client_of(server), await client_of(server)
        await client.create("/a")
        shutil.rmtree(folder)
        pending = client.create("/b")
        await until(lambda: "has gone" in server.engine.refusal)
        assert not pending.done()
        with pytest.raises(NotReadOnlyError):
            await other.create("/c")
    with pytest.raises(ConnectionLossError):
        await pending
    await client.aclose()
    await other.aclose()


async def test_what_is_refused_is_shown_to_those_who_watch(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        asking = ClientConnection("127.0.0.1", 1)
        assert isro(Observed(server.engine), asking) == "rw"
        disk.reserves = False
        client = await client_of(server)
        await client.create("/a", bytes(50_000))
        await until(lambda: bool(server.engine.refusal))

        assert isro(Observed(server.engine), asking) == "ro"
        assert "Mode: read-only\n" in srvr(Observed(server.engine), asking)
        assert "Writes refused: no space for 64 kilobytes (preAllocSize) more of the log\n" in srvr(
            Observed(server.engine), asking
        )
        assert "zk_zoolet_writes_refused\t1\n" in mntr(Observed(server.engine), asking)
        disk.reserves = True
        await until(lambda: not server.engine.refusal)
        assert isro(Observed(server.engine), asking) == "rw"
        assert "refused" not in srvr(Observed(server.engine), asking)
        await client.aclose()


# --- ends and beginnings ---


async def test_a_log_that_is_gone_after_a_clean_end_is_noticed(tmp_path: Path) -> None:
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


async def test_logs_on_a_disk_that_is_not_mounted_are_missed_and_nothing_is_created(tmp_path: Path) -> None:
    data, logs = tmp_path / "data", tmp_path / "logs"
    await write(data, "/a", log_dir=str(logs))
    mounted = logs.rename(tmp_path / "elsewhere")
    logs.mkdir()

    with pytest.raises(StorageError, match="is it mounted"):
        async with StoredServer(data, log_dir=str(logs)):
            pass

    assert list(logs.iterdir()) == []
    logs.rmdir()
    mounted.rename(logs)
    await write(data, "/b", log_dir=str(logs))


async def test_a_file_that_is_purged_while_the_directory_is_looked_at_does_not_count(tmp_path: Path) -> None:
    async with StoredServer(tmp_path):
        pass
    data = OpenDirectory(StorageSettings(str(tmp_path)))
    [snapshot] = (tmp_path / "version-2").glob("snapshot.*")
    sizes = data.configuration()
    purged = snapshot.with_name("snapshot.7ffffe0000000000")

    purged.symlink_to(tmp_path / "nowhere")  # listed, and not there

    assert data.configuration() == sizes
    assert data.last_snapshot() == (int(snapshot.name[9:], 16), int(snapshot.stat().st_mtime))
    data.release()


async def test_an_id_of_a_closed_session_is_given_to_nobody_after_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    async with StoredServer(tmp_path) as server:
        closed = await client_of(server)
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
    assert next_id() > last  # of the log
    for path in (tmp_path / "version-2").glob("log.*"):
        path.unlink()
    lock.write_text(f"pid 1\n{noted.splitlines()[1]}\n")
    assert next_id() > last  # of what the server has noted


async def test_a_start_that_is_killed_after_each_step_leaves_a_directory_that_starts(tmp_path: Path) -> None:
    await write(tmp_path / "whole", "/a", "/b")
    (tmp_path / "whole" / "version-2" / "zoolet.lock").write_text("pid 1\n")
    log = next((tmp_path / "whole" / "version-2").glob("log.*"))
    log.write_bytes(log.read_bytes()[:-70])  # a tail that has to be cut

    class Killed(BaseException):
        """The process ends here."""

    class Dying(FullDisk):
        """A disk that ends the process at the n-th operation."""

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


async def test_a_directory_may_have_other_files(tmp_path: Path) -> None:
    for name in ("zoo.cfg", "zookeeper.log", ".keep"):
        (tmp_path / name).write_text("")

    await write(tmp_path, "/a")

    assert recovered(tmp_path).tree.get("/a") is not None


async def test_the_epochs_of_a_member_of_an_ensemble_go_on_with_the_files(tmp_path: Path) -> None:
    await write(tmp_path, "/a")
    inner = tmp_path / "version-2"
    for name in ("acceptedEpoch", "currentEpoch"):
        (inner / name).write_text("1")
    (inner / "zoolet.lock").write_text("pid 1\n")

    await write(tmp_path, "/b")

    epoch = str(recovered(tmp_path).zxid >> 32)
    assert (inner / "acceptedEpoch").read_text() == (inner / "currentEpoch").read_text() == epoch


def test_a_snapshot_that_appears_broken_keeps_what_older_ones_need(tmp_path: Path) -> None:
    folder = tmp_path / "version-2"
    folder.mkdir()
    engine = Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))
    for zxid in (1, 2, 3):
        engine.zxid = zxid
        (folder / f"snapshot.{zxid:x}").write_bytes(b"".join(snapshots.encode(snapshot_of(engine))))
        (folder / f"log.{zxid:x}").touch()
    for zxid in (4, 5):
        (folder / f"snapshot.{zxid:x}").write_bytes(b"ZKSN broken")

    deleted = DataDir.find(tmp_path).purge(3, (), Disk())

    assert deleted == []
    assert len(list(folder.iterdir())) == 8

    for zxid in (1, 2, 3):
        assert (folder / f"snapshot.{zxid:x}").exists()
    assert [path.name for path in DataDir.find(tmp_path).purge(2, (), Disk())] == ["snapshot.1", "log.1"]
