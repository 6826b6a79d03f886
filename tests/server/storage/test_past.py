"""Searches for transactions in the logs: of a node, of a session, or before a zxid, in descending order."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.stored import StoredServer, connect_client

from zoolet.protocol.operations import OpCode
from zoolet.protocol.txns import CloseSessionTxn, DeleteTxn, SetDataTxn
from zoolet.server.admin.history import entry_of_log
from zoolet.server.storage import past as module
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.past import past
from zoolet.server.storage.txnlog import Log, encode, encode_header


def kinds_of(found: list[Any]) -> list[str]:
    return [entry_of_log(each).kind for each in found]


async def test_past_follows_node_through_all_logs(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, snap_count=3, purge=0) as server:
        client = await connect_client(server)
        session = client.session_id
        await client.create("/a", b"1")
        for number in range(10):
            await client.create(f"/other-{number}", b"")
        await server.store.snapshot_written()
        await client.set("/a", b"22")
        async with client.transaction() as transaction:
            transaction.create("/b", b"")
            transaction.delete("/a")
        await client.create("/e", b"", ephemeral=True)
        await client.aclose()
    directory = DataDir.find(tmp_path)
    of_a = past(directory, "/a", None, 0, 100)

    assert len(directory.logs) > 1
    assert kinds_of(of_a) == ["multi", "set", "create"]
    assert [change.op for change in entry_of_log(of_a[0]).changes] == ["create", "delete"]
    assert entry_of_log(of_a[1]).changes[0].size == 2
    assert kinds_of(past(directory, "/a", None, of_a[0][2], 1)) == ["set"]
    assert kinds_of(past(directory, "/e", None, 0, 100)) == ["ended", "create"]
    assert past(directory, "/nothing", None, 0, 100) == []
    life = past(directory, None, session, 0, 1000)
    assert (kinds_of(life)[0], kinds_of(life)[-1]) == ("ended", "opened")
    assert len(past(directory, None, None, 0, 5)) == 5


async def test_past_finds_transactions_before_damage(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        await client.create("/b", b"x" * 100)
        await client.create("/c", b"")
        await client.aclose()
    directory = DataDir.find(tmp_path)
    (log,) = directory.logs.values()
    data = bytearray(log.read_bytes())
    data[data.index(b"x" * 100)] ^= 1
    log.write_bytes(data)

    assert kinds_of(past(directory, "/a", None, 0, 10)) == ["create"]
    assert past(directory, "/c", None, 0, 10) == []


def write_logs(folder: Path, *transactions: Any) -> DataDir:
    """Return a data directory with one log."""
    (folder / "version-2").mkdir()
    (folder / "version-2" / "log.1").write_bytes(encode_header() + encode(transactions))
    return DataDir.find(folder)


def test_log_truncated_during_reading_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_logs(tmp_path, *((1, 1, zxid, 1, OpCode.DELETE, DeleteTxn(f"/{zxid}")) for zxid in range(1, 4)))
    log = directory.logs[1]
    size = log.stat().st_size
    os.truncate(log, size + 1000)  # the server has reserved some space
    opened = Log.open(log)
    monkeypatch.setattr(Log, "open", lambda path: opened)
    os.truncate(log, size)

    assert [zxid for _, _, zxid, *_ in past(directory, None, None, 0, 10)] == [3, 2, 1]


def test_past_does_not_keep_data_of_found_transactions(tmp_path: Path) -> None:
    data = bytes(100_000)
    writes = ((1, 1, zxid, 1, OpCode.SET_DATA, SetDataTxn("/a", data, 1)) for zxid in range(1, 31))
    directory = write_logs(tmp_path, *writes)

    tracemalloc.start()
    found = past(directory, None, None, 0, 500)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert [changes for *_, changes in found] == [[(OpCode.SET_DATA, "/a", len(data))]] * 30
    assert kept < len(data)


def test_long_paths_reduce_number_of_found_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 10_000)
    paths = {zxid: "/" + "x" * (20_000 if zxid < 3 else 2_000) for zxid in range(1, 20)}
    writes = ((1, 1, zxid, 1, OpCode.DELETE, DeleteTxn(path)) for zxid, path in paths.items())
    directory = write_logs(tmp_path, *writes)

    assert [zxid for _, _, zxid, *_ in past(directory, None, None, 0, 500)] == [19, 18, 17, 16]
    assert [zxid for _, _, zxid, *_ in past(directory, None, None, 2, 500)] == [1]


def test_closed_session_with_one_short_path_is_read(tmp_path: Path) -> None:
    directory = write_logs(tmp_path, (5, 1, 7, 1, OpCode.CLOSE_SESSION, CloseSessionTxn(["/b/c"])))

    assert [changes for *_, changes in past(directory, None, None, 0, 10)] == [[(OpCode.DELETE, "/b/c", -1)]]


def test_predicate_filters_past_transactions(tmp_path: Path) -> None:
    directory = write_logs(
        tmp_path, *((1, 1, zxid, zxid, OpCode.DELETE, DeleteTxn(f"/{zxid}")) for zxid in range(1, 9))
    )

    found = past(directory, None, None, 0, 2, lambda transaction: transaction[2] < 6)

    assert [zxid for _, _, zxid, *_ in found] == [5, 4]
