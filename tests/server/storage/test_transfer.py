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
from support.calls import connected, engine_with
from support.engine import make_engine
from support.stored import FullDisk, StoredServer, client_of, recovered, state_of
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


async def taken(process: SnapshotProcess) -> bytes:
    """Read a snapshot to its end."""
    size = await process.size()
    data = b"".join([piece async for piece in process.pieces()])
    await process.end()
    assert len(data) == size
    return data


def filled(**settings: Any) -> Engine:
    """Return an engine with a node of each kind, and a session."""
    engine = engine_with(**settings)
    peer = connected(engine)
    peer.create("/a", b"1")
    peer.create("/a/e", b"2", 1)
    peer.create("/limited", b"", acl=list(acls.READ_ONLY))
    return engine


# --- export ---


async def test_snapshot_contains_state_at_its_start() -> None:
    engine = filled()
    peer = connected(engine)
    before, zxid = list(encode_snapshot(engine)), engine.zxid

    process = SnapshotProcess(engine)
    for number in range(100):
        peer.create(f"/later-{number}", b"")
    data = await taken(process)

    assert data == b"".join(before)
    assert process.zxid == zxid < engine.zxid


async def test_abandoned_process_is_killed_immediately() -> None:
    process = SnapshotProcess(filled())
    await process.size()

    await process.end()

    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
async def test_snapshot_process_keeps_only_its_pipe() -> None:
    engine = filled()
    connected(engine).create("/large", bytes(300_000))  # more than fits into a pipe, which makes the process wait
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


async def test_hanging_process_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoolet.server.storage.transfer._encode", lambda engine, pipe: signal.pause())
    process = SnapshotProcess(filled())
    try:
        await asyncio.wait_for(process.end(), DEADLINE_S)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)


async def test_killed_snapshot_process_raises_os_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "zoolet.server.storage.transfer._encode", lambda engine, pipe: signal.pause()
    )  # the process must not finish first
    process = SnapshotProcess(filled())
    os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(OSError, match="the snapshot process exited"):
        await process.size()
    await process.end()


# --- import ---


async def test_restore_replaces_nodes_sessions_and_lists() -> None:
    source = filled()
    target = engine_with()
    peer = connected(target)
    peer.create("/other", b"", acl=list(acls.READ_ONLY))
    peer.create("/e", b"", 1)
    connected(target)
    before = set(target.sessions.alive)

    await transfer(target).restore(b"".join(encode_snapshot(source)))

    assert state_of(target) == state_of(source)
    assert set(target.sessions.alive) == set(source.sessions.alive) != before
    assert len(target.acls.lists()) == len(source.acls.lists())
    assert not target.connections


@pytest.mark.parametrize("ahead", [True, False])
async def test_zxids_continue_above_both_states(ahead: bool) -> None:
    source, target = filled(), filled()
    (source if ahead else target).zxid += 1000
    connected(source).create("/newest", b"")
    highest = max(source.zxid, target.zxid)

    zxid = await transfer(target).restore(b"".join(encode_snapshot(source)))

    assert zxid == target.zxid > highest


async def test_quota_counts_are_recomputed() -> None:
    source = filled(enforce_quota=True)
    peer = connected(source)
    for path in ("/zookeeper/quota/a", "/zookeeper/quota/a/zookeeper_stats"):
        peer.create(path, b"")
    peer.create("/zookeeper/quota/a/zookeeper_limits", b"count=5,bytes=-1")
    target = engine_with(enforce_quota=True)

    await transfer(target).restore(b"".join(encode_snapshot(source)))
    connected(target).create("/a/more", b"")

    stats = target.tree.find("/zookeeper/quota/a/zookeeper_stats").data
    assert stats is not None
    assert stats.startswith(b"count=3,")  # /a, the ephemeral one, and the new one


async def test_orphaned_ephemeral_nodes_are_deleted() -> None:
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
async def test_invalid_snapshot_changes_nothing(content: Snapshot | bytes, reason: str) -> None:
    data = content if isinstance(content, bytes) else b"".join(snapshots.encode(content))
    engine = filled()
    before, sessions = state_of(engine), dict(engine.sessions.alive)

    with pytest.raises(StorageError, match=reason):
        await transfer(engine).restore(data)

    assert state_of(engine) == before
    assert engine.sessions.alive == sessions
    assert engine.connections


async def test_sessions_with_negative_ids_are_restored() -> None:
    session = (200 << 56 | 5) - (1 << 64)
    engine = make_engine()

    await transfer(engine).restore(b"".join(snapshots.encode(Snapshot(1, [ROOT], sessions={session: 5000}))))

    assert set(engine.sessions.alive) == {session}
    connected(engine).create("/a", b"")


async def test_truncated_snapshot_is_refused_at_any_length() -> None:
    data = b"".join(snapshots.encode(Snapshot(1, [ROOT]), digest=False, last_zxid=False))
    engine = make_engine()

    for end in range(len(data)):
        with pytest.raises(StorageError):
            await transfer(engine).restore(data[:end])


# --- with files ---


async def test_restored_state_survives_restart(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await client_of(server)
        await client.create("/a", b"1")
        data = await taken(transfer_of(server).snapshot())
        await client.set("/a", b"2")
        token = (await client.exists(await client.create("/token", b""))).czxid

        zxid = await transfer_of(server).restore(data)
        with pytest.raises(ConnectionLossError):
            await client.set("/a", b"3")  # the client was disconnected
        value, _ = await client.get("/a")
        later = (await client.exists(await client.create("/later", b""))).czxid

        assert value == b"1"
        assert zxid == (token >> 32) + 1 << 32
        assert later == zxid + 1
        assert state_of(recovered(tmp_path)) == state_of(server.engine)
        await client.aclose()
    assert recovered(tmp_path).tree.find("/a").data == b"1"


async def test_session_missing_in_snapshot_has_expired(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        data = await taken(transfer_of(server).snapshot())
        client = await client_of(server)
        session = (await client.exists(await client.create("/a", b"", ephemeral=True))).ephemeralOwner

        await transfer_of(server).restore(data)

        with pytest.raises((SessionExpiredError, ConnectionLossError)):
            await client.set("/a", b"")
        with pytest.raises((SessionExpiredError, NoNodeError)):
            await client.get("/a")
        assert server.engine.sessions.alive.keys().isdisjoint({session})
        await client.aclose()


async def test_unwritable_snapshot_changes_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await client_of(server)
        await client.create("/a", b"1")
        data = await taken(transfer_of(server).snapshot())
        before = state_of(server.engine)
        disk.writes = False

        with pytest.raises(OSError, match="No space"):
            await transfer_of(server).restore(data)

        assert state_of(server.engine) == before
        assert (await client.get("/a"))[0] == b"1"
        disk.writes = True
        await client.aclose()
    assert recovered(tmp_path).tree.find("/a").data == b"1"


async def test_writes_during_restore_belong_to_former_state(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await client_of(server)
        data = await taken(transfer_of(server).snapshot())
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
        assert state_of(recovered(tmp_path)) == state_of(server.engine)
        await client.aclose()


async def test_concurrent_snapshots_and_restores_run_in_turn(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await client_of(server)
        await client.create("/a", b"", acl=OPEN_ACL_UNSAFE)
        of = transfer_of(server)
        data = await taken(of.snapshot())

        results = await asyncio.gather(of.write_snapshot(), of.restore(data), of.write_snapshot())

        assert results[1] == server.engine.zxid
        assert not [name for name in os.listdir(tmp_path / "version-2") if "snapshot.tmp" in name]
        assert state_of(recovered(tmp_path)) == state_of(server.engine)
        await client.aclose()
