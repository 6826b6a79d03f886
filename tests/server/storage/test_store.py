"""The files of a running server: no change is visible before it is logged, and no visible change is lost."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random

import pytest
from support.effort import effort
from support.stored import (
    FullDisk,
    RememberingDisk,
    SlowDisk,
    StoredServer,
    connect_client,
    persistent_state,
    recover_state,
)
from support.waiting import DEADLINE_S, until

from zoolet.client import Client
from zoolet.client import acl as acls
from zoolet.protocol import records as r
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import NotReadOnlyError, ZooKeeperError
from zoolet.protocol.framing import frame
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.operations import OpCode
from zoolet.server.storage import group_commit
from zoolet.server.storage.backup import back_up
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.testing.state.clock import MANUAL_CLOCK_START, ManualClock


async def test_acknowledged_writes_survive_end_of_process(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/a", b"1", acl=acls.READ_ONLY)
        await client.create("/a-ephemeral", b"", ephemeral=True)
        await client.create("/ttl", b"", ttl=1000.0)
        await client.create("/box", b"", container=True)
        await client.create("/box/n-", b"", sequential=True)
        await client.delete("/box/n-0000000000")
        async with client.transaction() as transaction:
            transaction.create("/m", b"")
            transaction.set("/m", b"2")
        for name, text in (("limits", b"count=9,bytes=-1"), ("stats", b"")):
            await client.create(f"/zookeeper/quota/m/zookeeper_{name}", text, parents=True)
        await client.create("/m/counted", b"by the quota")
        with pytest.raises(ZooKeeperError):
            await client.delete("/nowhere")
        before = persistent_state(server.engine)
        zxid = server.engine.zxid

        after = recover_state(tmp_path)

        assert persistent_state(after) == before
        assert after.zxid == zxid  # the failed delete has used a zxid, so its entry is in the log
        await client.aclose()
    assert recover_state(tmp_path).sessions.alive == {}


async def test_restarted_server_keeps_state_and_sessions(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/q", b"")
        await client.create("/q/n-", b"", sequential=True)
        before = persistent_state(server.engine)
    async with StoredServer(tmp_path) as server:
        assert persistent_state(server.engine) == before
        assert server.engine.sessions.password(client.session_id)
        again = await connect_client(server)
        assert await again.create("/q/n-", b"", sequential=True) == "/q/n-0000000001"
        await again.aclose()
    await client.aclose()


async def test_replies_and_events_wait_for_sync_of_their_changes(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        writer, reader = await connect_client(server), await connect_client(server)
        await writer.create("/a", b"old")
        async with reader.watch("/a") as events:
            disk.may_sync.clear()
            write = asyncio.create_task(writer.set("/a", b"new"))
            await until(lambda: server.engine.tree.find("/a").data == b"new")
            read = asyncio.create_task(reader.get("/a"))
            await asyncio.sleep(0.05)
            assert not write.done()
            assert not read.done()

            disk.may_sync.set()

            await write
            assert (await read)[0] == b"new"
            assert (await anext(aiter(events))).path == "/a"
        await writer.aclose()
        await reader.aclose()


async def test_one_sync_covers_writes_during_previous_one(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        clients = [await connect_client(server) for _ in range(10)]
        await clients[0].create("/a", b"")
        disk.may_sync.clear()
        first = asyncio.create_task(clients[0].set("/a", b""))
        await until(lambda: server.engine.tree.find("/a").version == 1)
        before = disk.synced
        await until(lambda: disk.syncing > before)
        others = [asyncio.create_task(client.set("/a", b"")) for client in clients[1:]]
        await until(lambda: server.engine.tree.find("/a").version == 10)

        disk.may_sync.set()
        await asyncio.gather(first, *others)

        assert disk.synced - before <= 3
        for client in clients:
            await client.aclose()


# --- failing disks ---


def test_reserve_beyond_free_space_allocates_nothing(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        with pytest.raises(OSError, match="No space left"):
            Disk().reserve(file.fileno(), 0, 1 << 50)

        assert os.fstat(file.fileno()).st_blocks == 0


async def test_writes_are_refused_while_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "RETRY", 0.02)
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        disk.reserves = False
        for _ in range(30):
            with caplog.at_level(logging.WARNING):
                try:
                    await client.set("/a", bytes(4000))
                except NotReadOnlyError:
                    break
        else:
            pytest.fail("no write was refused")

        assert "refusing writes: less than 64 kB free for the log (preAllocSize)" in caplog.text
        assert (await client.get("/a"))[0] == bytes(4000)
        other = await connect_client(server)  # the log has room for the entry of a new session
        await other.aclose()
        tried = server.store._reserve_timer
        await until(lambda: server.store._reserve_timer not in (tried, None))
        assert "has space again; accepting writes" not in caplog.text

        disk.reserves = True
        await until(lambda: not server.engine.refusal)
        await client.set("/a", b"after")
        assert caplog.text.count("has space again; accepting writes") == 1
        assert caplog.text.count("refusing writes: less than") == 1
        expected = persistent_state(server.engine)
        assert persistent_state(recover_state(tmp_path)) == expected
        await client.aclose()


@pytest.mark.parametrize("fsync", ["always", "interval"])
@pytest.mark.parametrize("preallocated", [0, 64, 1024])
async def test_log_at_maximum_file_size_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preallocated: int, fsync: str
) -> None:
    monkeypatch.setattr(group_commit, "RETRY", 0.01)
    disk = FullDisk()
    disk.max_file = 150_000
    async with StoredServer(tmp_path, disk, preallocated=preallocated, fsync=fsync) as server:
        client = await connect_client(server)
        await client.create("/a")
        for size in (*[4000] * 90, 100_000, 120_000):
            await client.set("/a", bytes(size))
        assert len(DataDir.find(tmp_path).logs) > 3
        await client.aclose()
        expected = persistent_state(server.engine)
    assert persistent_state(recover_state(tmp_path)) == expected


async def test_due_snapshot_starts_when_no_write_follows_commit(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a")
        await server.store.snapshot_written()
        disk.may_sync.clear()
        before = disk.syncing
        writes = [asyncio.ensure_future(client.set("/a", b"1"))]
        await until(lambda: disk.syncing > before)
        writes.append(asyncio.ensure_future(client.set("/a", b"2")))
        await until(lambda: server.engine.tree.find("/a").version == 2)
        writing = server.store.snapshot_soon()
        await until(lambda: server.store._log_thread._work_queue.qsize() > 0)  # the next log is about to be created
        disk.may_sync.set()
        await asyncio.gather(*writes)
        await asyncio.wait_for(writing, DEADLINE_S)
        await client.aclose()


@pytest.mark.parametrize("fails", ["writes", "syncs"])
async def test_write_is_answered_after_log_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    monkeypatch.setattr(group_commit, "RETRY", 0.02)
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        writer, reader = await connect_client(server), await connect_client(server)
        await writer.create("/a", b"old")
        setattr(disk, fails, False)

        write = asyncio.create_task(writer.set("/a", b"new"))
        await until(lambda: server.engine.refusal)

        assert "refusing writes: cannot write the log" in caplog.text
        assert await reader.exists("/a")
        with pytest.raises(NotReadOnlyError):
            await reader.set("/a", b"other")
        later = asyncio.create_task(writer.exists("/a"))
        await asyncio.sleep(0.05)
        assert not write.done()
        assert not later.done()  # later writes do not overtake earlier ones

        setattr(disk, fails, True)
        await write
        assert await later
        await reader.set("/a", b"other")
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await writer.aclose()
        await reader.aclose()


async def test_server_with_full_disk_stops_and_reports_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.05)
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        disk.writes = False
        write = asyncio.create_task(client.set("/a", b"1"))
        await until(lambda: server.engine.refusal)
        assert not await server.daemon.stop()  # the exit code is then 1
    write.cancel()
    assert "stopping with 1 transactions not logged" in caplog.text
    assert recover_state(tmp_path).tree.find("/a").data == b""
    await client.aclose()


async def test_half_closed_client_gets_replies_after_sync(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        disk.may_sync.clear()
        host, _, port = server.hosts.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        creates = [r.CreateRequest(f"/n{number}", b"", OPEN_ACL_UNSAFE, 0) for number in range(3)]
        requests = [frame(r.RequestHeader(1, OpCode.CREATE).encode() + create.encode()) for create in creates]
        writer.write(frame(ConnectRequest().encode()) + b"".join(requests))
        writer.write_eof()
        await until(lambda: server.engine.tree.get("/n2") is not None)
        disk.may_sync.set()
        async with asyncio.timeout(DEADLINE_S):
            received = await reader.read()
        assert received.count(b"/n") == 3
        writer.close()


# --- a loss of power ---


LOSSES = int(os.environ.get("ZOOLET_LOSSES") or effort(2, 4))
LIVES, STATES, WRITES = 3, 60, 60


@pytest.mark.slow
@pytest.mark.parametrize("fsync", ["always", "interval"])
@pytest.mark.parametrize("seed", range(LOSSES))
async def test_crashes_lose_no_acknowledged_write(tmp_path: Path, seed: int, fsync: str) -> None:
    """With ``interval`` the last writes may be lost, but none before a surviving write, and no part of a multi."""
    random, folder, there = Random(seed), tmp_path / "begin", 0
    for life in range(LIVES):  # each life starts with the files that a power loss has left of the previous one
        disk = RememberingDisk(folder)
        acknowledged: list[int] = []  # number of steps at the acknowledgement of each write
        async with StoredServer(folder, disk, snap_count=20, retained=3, fsync=fsync) as server:
            client = await connect_client(server)
            for number in range(there, there + WRITES):
                size = random.choice((1, 100, 600, 3000))
                async with client.transaction() as transaction:
                    transaction.create(f"/n{number}", bytes([1 + number % 255]) * size)
                    transaction.create(f"/other{number}")
                acknowledged.append(len(disk.steps))
            await client.aclose()
        begun = 0 if life else next(number for number, step in enumerate(disk.steps) if step.what == "sync_folder") + 1
        kills = list(range(begun, len(disk.steps) + 1, effort(7, 1)))
        for state in range(len(kills) + STATES):
            folder = tmp_path / f"after-{life}-{state}"
            if state < len(kills):
                disk.after_kill(count := kills[state], folder)
            else:
                disk.after_power_loss(count := random.randint(begun, len(disk.steps)), random, folder)

            tree = recover_state(folder).tree

            numbers = [number for number in range(there + WRITES) if tree.get(f"/n{number}") is not None]
            assert numbers == list(range(len(numbers))), "a write is missing, and a later one is there"
            assert all(tree.get(f"/other{number}") is not None for number in numbers), "half of a transaction is there"
            if fsync == "always":
                assert len(numbers) >= there + sum(steps <= count for steps in acknowledged)
        there = len(numbers)


# --- regressions ---


async def test_stop_answers_only_logged_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "STOP_SECONDS", 0.05)
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        first, second = await connect_client(server), await connect_client(server)
        await first.create("/a", b"")
        await first.create("/b", b"")
        disk.writes = False
        writes = [asyncio.create_task(first.set("/a", b"1")), asyncio.create_task(second.set("/b", b"1"))]
        await until(lambda: server.engine.refusal)
        await server.daemon.stop()
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    assert all(isinstance(outcome, ZooKeeperError) for outcome in outcomes)
    for client in (first, second):
        await client.aclose()


async def test_graceful_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    async def write(client: Client, number: int) -> None:
        while True:
            path = await client.create(f"/n{number}-", bytes(50), sequential=True)
            acknowledged.append(path)

    async with StoredServer(tmp_path, SlowDisk(seconds=0.002)) as server:
        clients = [await connect_client(server) for _ in range(4)]
        writers = [asyncio.create_task(write(client, number)) for client in clients for number in range(8)]
        await until(lambda: len(acknowledged) > 200)
        await server.daemon.stop()
    for task in writers:
        task.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    tree = recover_state(tmp_path).tree
    assert [path for path in acknowledged if tree.get(path) is None] == []
    for client in clients:
        await client.aclose()


async def test_failed_sync_with_interval_abandons_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.01)
    disk = FullDisk()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        await server.store.snapshot_written()
        before = max(DataDir.find(tmp_path).snapshots)
        disk.syncs = False
        await client.set("/a", b"1")
        await until(lambda: "could not sync the log" in caplog.text)
        disk.syncs = True
        await server.store.snapshot_soon()
        assert max(DataDir.find(tmp_path).snapshots) > before
        await client.set("/a", b"2")
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await client.aclose()


async def test_interval_policy_syncs_log_after_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "SYNC_INTERVAL", 0.01)
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk, fsync="interval") as server:
        client = await connect_client(server)
        before = disk.synced
        await client.create("/a", b"")
        await until(lambda: disk.synced > before)
        before = disk.synced
        await client.set("/a", b"1")
        await until(lambda: disk.synced > before)
        await client.aclose()


async def test_new_epoch_starts_if_zxids_may_be_lost(tmp_path: Path) -> None:
    async def zxid_after_start(**settings: str) -> int:
        async with StoredServer(tmp_path, **settings) as server:
            return server.engine.zxid

    first = await zxid_after_start()
    assert await zxid_after_start() == first  # after a clean shutdown
    (tmp_path / "version-2" / "zoolet.lock").write_text("1234\n")
    second = await zxid_after_start()
    assert second == (((first >> 32) + 1) << 32) + 1
    assert await zxid_after_start(fsync="interval") == second  # after a clean shutdown everything is synced


async def test_restored_copy_repeats_no_zxid_of_lost_server(tmp_path: Path) -> None:
    """The server crashed after the backup, so it used the next epoch before it was lost."""
    minute, data, copy = 60_000, tmp_path / "data", tmp_path / "copy"

    async def highest_zxid(folder: Path, now: int) -> int:
        async with StoredServer(folder, clock=ManualClock(now)) as server, Client(server.hosts) as client:
            return (await client.create_and_stat("/n", b"", sequential=True))[1].czxid

    await highest_zxid(data, MANUAL_CLOCK_START)
    back_up(data, copy)
    (data / "version-2" / "zoolet.lock").write_text("1234\n")
    lost = await highest_zxid(data, MANUAL_CLOCK_START + minute)

    assert await highest_zxid(copy, MANUAL_CLOCK_START + 2 * minute) > lost


async def test_session_of_unread_client_does_not_expire(tmp_path: Path) -> None:
    disk = SlowDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        disk.may_sync.clear()
        writes = [asyncio.create_task(client.set("/a", b"1"))]
        await until(lambda: server.engine.tree.find("/a").version == 1)
        await until(lambda: disk.syncing > disk.synced)
        for count in (2, 3):
            writes += [asyncio.create_task(client.set("/a", b"1"))]
            await until(lambda count=count: server.engine.tree.find("/a").version >= count or server.store.paused())
        assert len(server.store.paused()) == 1
        session = server.engine.sessions.alive[client.session_id]
        server.engine.sessions.expiry.touch(session, 0, 1)  # its deadline is far in the past

        server.daemon.tick()

        assert client.session_id in server.engine.sessions.alive
        disk.may_sync.set()
        await asyncio.gather(*writes)
        assert server.store.paused() == []
        assert (await client.get("/a"))[1].version == len(writes)
        await client.aclose()
