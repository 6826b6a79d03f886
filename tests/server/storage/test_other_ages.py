"""Data directories in unusual states: damage before a snapshot, unfinished first snapshots, interrupted starts."""

from __future__ import annotations

import gzip
import os
import struct
import time
from pathlib import Path

import pytest
from support.stored import (
    WRITE_COUNT,
    StoredServer,
    count_writes,
    create_transaction,
    recover_leniently,
    recover_state,
    write_log,
    write_snapshot_and_log,
)

from zoolet.client import Client
from zoolet.protocol.txns import ErrorTxn, SetDataTxn
from zoolet.server.storage import txnlog
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import DirectoryLock
from zoolet.server.storage.opening import OpenDirectory
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode
from zoolet.server.storage.txnlog import Log, encode_header

# --- damage that a snapshot covers ---


async def logs_around_snapshot(folder: Path) -> tuple[Path, Path]:
    """Write a log, a snapshot, and a log that starts after it; return the logs."""
    async with StoredServer(folder, preallocated=0) as server, Client(server.hosts, timeout=20.0) as client:
        for number in range(WRITE_COUNT // 2):
            await client.create(f"/n{number}", b"data")
        await server.store.snapshot_soon()
        for number in range(WRITE_COUNT // 2, WRITE_COUNT):
            await client.create(f"/n{number}", b"data")
    (folder / "version-2" / "zoolet.lock").write_text("pid 1\n")
    before, after = DataDir.find(folder).logs.values()
    return before, after


async def test_damaged_log_before_snapshot_is_not_needed(tmp_path: Path) -> None:
    before, _ = await logs_around_snapshot(tmp_path)
    whole = before.read_bytes()
    for damaged in (b"", whole[:40], whole.replace(b"/n1", b"/x1"), b"dear"):
        before.write_bytes(damaged)

        engine, result = recover_leniently(tmp_path)

        assert (count_writes(engine), result.problems) == (WRITE_COUNT, [])


async def test_damage_before_snapshot_within_log_is_skipped(tmp_path: Path) -> None:
    before, after = await logs_around_snapshot(tmp_path)
    before.write_bytes(before.read_bytes() + after.read_bytes()[16:])  # like a log that continues after the snapshot
    after.unlink()
    whole = before.read_bytes()
    snapshot = max(DataDir.find(tmp_path).snapshots)
    known = next(log.end for log in [Log(whole)] for zxid in log.zxids() if zxid == snapshot)
    for at in range(16, known):
        before.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        directory = DataDir.find(tmp_path)
        assert count_writes(recover_state(directory)) == WRITE_COUNT
        assert "no transaction is lost" in directory.notes[0]
    for at in (known + 40, known + 90):
        before.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        with pytest.raises(StorageError, match="is damaged, but a valid one follows"):
            recover_leniently(tmp_path)


def test_transaction_inside_data_is_not_read_as_entry() -> None:
    forged = txnlog.encode([(1, 1, 9, 1, -1, ErrorTxn(0))])
    real = [txnlog.encode([(1, 1, zxid, 1, 5, SetDataTxn("/a", forged, 1))]) for zxid in (8, 9)]
    damaged = bytearray(encode_header() + b"".join(real))
    damaged[16 + 8] ^= 0x40  # the length of the first transaction

    with pytest.raises(StorageError, match="is damaged"):
        list(Log(bytes(damaged), "log", known=8))
    damaged[16 + 8] ^= 0x40
    damaged[16 + 14] ^= 0x40
    assert [entry.header.type for entry in Log(bytes(damaged), "log", known=8)] == [5]


def test_covered_unknown_transaction_is_skipped() -> None:
    unknown = bytearray(encode_header() + txnlog.encode([(1, 1, 8, 1, 99, ErrorTxn(0))]) + create_transaction(9))

    assert [entry.header.zxid for entry in Log(bytes(unknown), "log", known=8)] == [9]
    with pytest.raises(StorageError, match="unknown transaction type 99"):
        list(Log(bytes(unknown), "log", known=7))


def test_search_for_transactions_in_damage_is_limited(tmp_path: Path) -> None:
    log = tmp_path / "log.1"
    many = struct.pack(">qi", 0x01010101, 20 << 20) * 2000
    log.write_bytes(encode_header() + struct.pack(">qi", 1, 40) + b"x" * 41 + many)
    os.truncate(log, 64 << 20)
    started = time.thread_time()

    with pytest.raises(StorageError, match="too much data after it resembles transactions"):
        list(Log.open(log))

    assert time.thread_time() - started < 5


# --- other ages ---


async def test_server_starts_from_logs_without_snapshot_if_trusted(tmp_path: Path) -> None:
    write_log(tmp_path / "version-2", 1, 3)

    with pytest.raises(StorageError, match=r"set -Dsnapshot\.trust\.empty=true$"):
        async with StoredServer(tmp_path):
            pass
    for trust_empty in (True, False):
        async with StoredServer(tmp_path, trust_empty=trust_empty) as server:
            assert server.engine.tree.get("/n3") is not None
    assert 3 in DataDir.find(tmp_path).snapshots


def test_trusted_logs_must_contain_first_transaction(tmp_path: Path) -> None:
    write_log(tmp_path / "version-2", 5, 2)
    directory = DataDir.find(tmp_path)
    directory.trusts_empty = True

    with pytest.raises(StorageError, match="the transactions 0x1 to 0x4 before this log are missing"):
        recover_state(directory)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("snapshot.0", b""),
        ("snapshot.0", b"ZKSN"),
        ("snapshot.0", b"ZKSN\0\0\0\2" + bytes(30)),
        ("snapshot.0", bytes(300)),
        ("snapshot.0.gz", gzip.compress(b"ZKSN\0\0\0\2" + bytes(30), mtime=0)[:-9]),
        ("snapshot.0.snappy", b"\x82SNAP"),
    ],
    ids=["empty", "magic", "header", "zeros", "gz", "snappy"],
)
@pytest.mark.parametrize("has_log", [False, True])
async def test_unfinished_first_snapshot_is_not_needed(
    tmp_path: Path, name: str, content: bytes, has_log: bool
) -> None:
    inner = tmp_path / "version-2"
    inner.mkdir()
    (inner / name).write_bytes(content)
    if has_log:
        write_log(inner, 1, 3)

    for number in range(2):
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            assert (server.engine.tree.get("/n3") is not None) is has_log
            assert (server.engine.tree.get("/m0") is not None) is bool(number)
            await client.create(f"/m{number}")


# --- interrupted starts ---


async def test_interrupted_start_keeps_clean_stop_in_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a")
    next(iter(DataDir.find(tmp_path).logs.values())).write_bytes(b"")
    with monkeypatch.context() as patched:
        patched.setattr(DirectoryLock, "undo", DirectoryLock.release)  # as if the process had been killed
        with pytest.raises(StorageError, match="a log is missing"):
            async with StoredServer(tmp_path):
                pass

    with pytest.raises(StorageError, match="a log is missing"):
        async with StoredServer(tmp_path):
            pass


async def test_failed_start_is_noted_as_unclean_in_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n5", b"/x5"))
    lost = max(Log.open(log).zxids()) + 1
    with monkeypatch.context() as patched:
        patched.setattr(OpenDirectory, "_begin_epoch", lambda self, engine: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            async with StoredServer(tmp_path):
                pass

    async with StoredServer(tmp_path) as server:
        assert server.engine.zxid >> 32 > lost >> 32


def test_lock_waits_for_stopping_server_and_reads_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = DirectoryLock(tmp_path)

    def stop(seconds: float) -> None:
        stopping.note_clean_end(7, 5)
        stopping.release()

    monkeypatch.setattr("zoolet.server.storage.lock.sleep", stop)
    lock = DirectoryLock(tmp_path)
    lock.release()

    assert (lock.was_clean, lock.zxid, lock.session_id) == (True, 7, 5)


def test_damaged_copy_of_snapshot_does_not_hide_it(tmp_path: Path) -> None:
    inner = tmp_path / "version-2"
    inner.mkdir()
    root = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    whole = b"".join(encode(Snapshot(5, [root])))
    for plain, packed in ((whole, gzip.compress(whole)[:-20]), (whole[:-20], gzip.compress(whole))):
        (inner / "snapshot.5").write_bytes(plain)
        (inner / "snapshot.5.gz").write_bytes(packed)

        engine, result = recover_leniently(tmp_path)

        assert (engine.zxid, result.problems) == (5, [])
