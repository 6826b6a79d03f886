"""Export and import of the whole state of a running server, consistent at one zxid."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.calls import connect_peer, engine_with_settings
from support.engine import make_engine
from support.stored import FullDisk, StoredServer, connect_client, persistent_state, recover_state
from support.waiting import DEADLINE_S, until

from zoolet.client import acl as acls
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import ConnectionLossError, NoNodeError, SessionExpiredError
from zoolet.server.core.engine import Engine
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import Snapshot, StoredNode
from zoolet.server.storage.transfer import SnapshotProcess, StateTransfer, encode_snapshot

ROOT = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def transfer(engine: Engine) -> StateTransfer:
    """Return a transfer for an engine without files, clock and sockets."""
    return StateTransfer(engine, None, lambda: None, lambda: None)


def transfer_of(server: StoredServer) -> StateTransfer:
    """Return a transfer for a server with files."""
    connections = server.daemon.connections
    return StateTransfer(server.engine, server.store, connections.set_time, connections.deliver)


async def read_snapshot(process: SnapshotProcess) -> bytes:
    """Read a snapshot to its end."""
    size = await process.size()
    data = b"".join([piece async for piece in process.pieces()])
    await process.end()
    assert len(data) == size
    return data


def make_filled_engine(**settings: Any) -> Engine:
    """Return an engine with a node of each kind, and a session."""
    engine = engine_with_settings(**settings)
    peer = connect_peer(engine)
    peer.create("/a", b"1")
    peer.create("/a/e", b"2", 1)
    peer.create("/limited", b"", acl=list(acls.READ_ONLY))
    return engine


# --- export ---


async def test_snapshot_contains_state_at_its_start() -> None:
    engine = make_filled_engine()
    peer = connect_peer(engine)
    before, zxid = list(encode_snapshot(engine)), engine.zxid

    process = SnapshotProcess(engine)
    for number in range(100):
        peer.create(f"/later-{number}", b"")
    data = await read_snapshot(process)

    assert data == b"".join(before)
    assert process.zxid == zxid < engine.zxid


async def test_abandoned_snapshot_process_is_killed_immediately() -> None:
    process = SnapshotProcess(make_filled_engine())
    await process.size()

    await process.end()

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_snapshot_process_keeps_only_its_pipe() -> None:
    engine = make_filled_engine()
    connect_peer(engine).create("/large", bytes(300_000))  # more than fits into a pipe, which makes the process wait
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(20)]
    for descriptor in held[-3:-1]:  # for the pipe, right below a descriptor of the server
        os.close(descriptor)
    process = SnapshotProcess(engine)
    try:
        await until(lambda: len({*os.listdir(f"/proc/{process.pid}/fd")} - {"0", "1", "2"}) == 1)
    finally:
        await process.end()
        for descriptor in (*held[:-3], held[-1]):
            os.close(descriptor)


async def test_hanging_snapshot_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.storage.transfer._encode", lambda engine, pipe: signal.pause())
    process = SnapshotProcess(make_filled_engine())
    try:
        await asyncio.wait_for(process.end(), DEADLINE_S)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def test_killed_snapshot_process_raises_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zoolet.server.storage.transfer._encode", lambda engine, pipe: signal.pause()
    )  # the process must not finish first
    process = SnapshotProcess(make_filled_engine())
    os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(OSError, match="the snapshot process exited"):
        await process.size()
    await process.end()


# --- import ---


async def test_restore_replaces_nodes_sessions_and_acl_lists() -> None:
    source = make_filled_engine()
    target = engine_with_settings()
    peer = connect_peer(target)
    peer.create("/other", b"", acl=list(acls.READ_ONLY))
    peer.create("/e", b"", 1)
    connect_peer(target)
    before = set(target.sessions.alive)

    await transfer(target).restore(b"".join(encode_snapshot(source)))

    assert persistent_state(target) == persistent_state(source)
    assert set(target.sessions.alive) == set(source.sessions.alive) != before
    assert len(target.acls.lists()) == len(source.acls.lists())
    assert not target.connections


@pytest.mark.parametrize("ahead", [True, False])
async def test_restored_zxid_is_above_snapshot_and_former_state(ahead: bool) -> None:
    source, target = make_filled_engine(), make_filled_engine()
    (source if ahead else target).zxid += 1000
    connect_peer(source).create("/newest", b"")
    highest = max(source.zxid, target.zxid)

    zxid = await transfer(target).restore(b"".join(encode_snapshot(source)))

    assert zxid == target.zxid > highest


async def test_restore_recomputes_quota_counts() -> None:
    source = make_filled_engine(enforce_quota=True)
    peer = connect_peer(source)
    for path in ("/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_stats"):
        peer.create(path, b"")
    peer.create("/zookeeper/quota/a/zookeeper_limits", b"count=5,bytes=-1")
    target = engine_with_settings(enforce_quota=True)

    await transfer(target).restore(b"".join(encode_snapshot(source)))
    connect_peer(target).create("/a/more", b"")

    stats = target.tree.find("/zookeeper/quota/a/zookeeper_stats").data
    assert stats is not None
    assert stats.startswith(b"count=3,")  # /a, the ephemeral one, and the new one


async def test_restore_deletes_orphaned_ephemeral_nodes() -> None:
    engine = make_engine()
    orphan = StoredNode("/o", b"", -1, 5, 5, 0, 0, 0, 0, 0, 0x1234, 5)

    await transfer(engine).restore(b"".join(snapshots.encode(Snapshot(5, [ROOT, orphan]))))

    assert engine.tree.get("/o") is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"junk", "not a snapshot"),
        (b"", "not a snapshot"),
        (Snapshot(1, [ROOT, ROOT._replace(path="/a//b")]), "node /a//b does not follow its parent"),
        (Snapshot(1, [ROOT, ROOT._replace(path="/a"), ROOT._replace(path="/a/")]), "path '/a/'"),
        (Snapshot(1, [ROOT, ROOT._replace(path="/a\0")]), r"/a\\x00"),
        (Snapshot(1, [ROOT._replace(mzxid=1 << 62)]), "zxid"),
        (Snapshot(1 << 62, [ROOT]), "zxid"),
        (Snapshot(1, [ROOT], sessions={0: 1000}), "session"),
        (Snapshot(1, [ROOT], sessions={(1 << 63) - 1: 1000}), "session"),
        (Snapshot(1, [ROOT, ROOT._replace(path="/e", owner=5), ROOT._replace(path="/e/c")]), "below an ephemeral"),
        (b"".join(snapshots.encode(Snapshot(1, [ROOT]))) + b"JUNK", "unexpected data after the end"),
        (2 * b"".join(snapshots.encode(Snapshot(1, [ROOT]))), "unexpected data after the end"),
        (2 * b"".join(snapshots.encode(Snapshot(1, [ROOT]), last_zxid=False)), "checksum mismatch"),
        (2 * b"".join(snapshots.encode(Snapshot(1, [ROOT]), digest=False, last_zxid=False)), "checksum mismatch"),
        (Snapshot(1, [ROOT], sessions={5: 0}), "timeout of 0"),
        (Snapshot(1, [ROOT._replace(acl=9)]), "ACL list"),
    ],
)
async def test_invalid_snapshot_keeps_state(content: Snapshot | bytes, reason: str) -> None:
    data = content if isinstance(content, bytes) else b"".join(snapshots.encode(content))
    engine = make_filled_engine()
    before, sessions = persistent_state(engine), dict(engine.sessions.alive)

    with pytest.raises(StorageError, match=reason):
        await transfer(engine).restore(data)

    assert persistent_state(engine) == before
    assert engine.sessions.alive == sessions
    assert engine.connections


async def test_sessions_with_negative_ids_are_restored() -> None:
    session = (200 << 56 | 5) - (1 << 64)
    engine = make_engine()

    await transfer(engine).restore(b"".join(snapshots.encode(Snapshot(1, [ROOT], sessions={session: 5000}))))

    assert set(engine.sessions.alive) == {session}
    connect_peer(engine).create("/a", b"")


async def test_restore_refuses_snapshot_truncated_at_any_length() -> None:
    data = b"".join(snapshots.encode(Snapshot(1, [ROOT]), digest=False, last_zxid=False))
    engine = make_engine()

    for end in range(len(data)):
        with pytest.raises(StorageError):
            await transfer(engine).restore(data[:end])


# --- with files ---


async def test_restored_state_survives_restart(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/a", b"1")
        data = await read_snapshot(transfer_of(server).snapshot())
        await client.set("/a", b"2")
        token = (await client.exists(await client.create("/token", b""))).czxid

        zxid = await transfer_of(server).restore(data)
        with pytest.raises(ConnectionLossError):
            await client.set("/a", b"3")  # the restore has disconnected the client
        value, _ = await client.get("/a")
        later = (await client.exists(await client.create("/later", b""))).czxid

        assert value == b"1"
        assert zxid == (token >> 32) + 1 << 32
        assert later == zxid + 1
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await client.aclose()
    assert recover_state(tmp_path).tree.find("/a").data == b"1"


async def test_session_missing_in_snapshot_has_expired(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        data = await read_snapshot(transfer_of(server).snapshot())
        client = await connect_client(server)
        session = (await client.exists(await client.create("/a", b"", ephemeral=True))).ephemeralOwner

        await transfer_of(server).restore(data)

        with pytest.raises((SessionExpiredError, ConnectionLossError)):
            await client.set("/a", b"")
        with pytest.raises((SessionExpiredError, NoNodeError)):
            await client.get("/a")
        assert server.engine.sessions.alive.keys().isdisjoint({session})
        await client.aclose()


async def test_unwritable_snapshot_keeps_state(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"1")
        data = await read_snapshot(transfer_of(server).snapshot())
        before = persistent_state(server.engine)
        disk.writes = False

        with pytest.raises(OSError, match="No space"):
            await transfer_of(server).restore(data)

        assert persistent_state(server.engine) == before
        assert (await client.get("/a"))[0] == b"1"
        disk.writes = True
        await client.aclose()
    assert recover_state(tmp_path).tree.find("/a").data == b"1"


async def test_writes_during_restore_are_discarded(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        data = await read_snapshot(transfer_of(server).snapshot())
        restore = asyncio.create_task(transfer_of(server).restore(data))
        written = 0
        while not restore.done():
            try:
                await client.create("/n-", b"", sequential=True)
            except ConnectionLossError:
                break
            written += 1
        await restore

        assert written
        assert server.engine.tree.find("/").children.keys() == {"zookeeper"}
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await client.aclose()


async def test_concurrent_snapshots_and_restores_run_in_turn(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/a", b"", acl=OPEN_ACL_UNSAFE)
        of = transfer_of(server)
        data = await read_snapshot(of.snapshot())

        results = await asyncio.gather(of.write_snapshot(), of.restore(data), of.write_snapshot())

        assert results[1] == server.engine.zxid
        assert not [name for name in os.listdir(tmp_path / "version-2") if "snapshot.tmp" in name]
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await client.aclose()
