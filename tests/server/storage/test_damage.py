"""Damaged files: every damaged byte is detected and reported, and everything before the damage is used."""

from __future__ import annotations

import re
import struct
import zlib
from pathlib import Path
from typing import ClassVar

import pytest
from support.effort import effort
from support.stored import (
    WRITE_COUNT,
    StoredServer,
    count_writes,
    recover_leniently,
    recover_state,
    write_snapshot_and_log,
)

from zoolet.client import Client, acl
from zoolet.protocol.records import Stat
from zoolet.protocol.txns import ErrorTxn
from zoolet.server.storage import live, txnlog
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.disk import Disk
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import DirectoryLock
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode, encode_changing, parse
from zoolet.server.storage.txnlog import Log, encode_header
from zoolet.testing.state.clock import ManualClock


def files_in(folder: Path) -> dict[Path, bytes]:
    """Return all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_flipped_byte_before_last_entry_is_refused(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path, preallocated=4)
    whole = log.read_bytes()
    counts, refused = set(), 0
    for at in range(16, len(whole), effort(3, 1)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])

        try:
            engine, result = recover_leniently(tmp_path)
        except StorageError:
            refused += 1
            continue

        assert at > whole.index(b"/n5") - 60
        assert result.problems, at
        assert all(str(log) in problem for problem in result.problems)
        counts.add(count_writes(engine))
    assert counts == {WRITE_COUNT - 1, WRITE_COUNT}
    assert refused > 5 * 60 // effort(3, 1)


async def test_truncated_log_keeps_preceding_transactions(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    whole = log.read_bytes()
    counts = []
    for size in range(1, len(whole) + 1):
        log.write_bytes(whole[:size])
        counts.append(count_writes(recover_leniently(tmp_path)[0]))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, WRITE_COUNT)


@pytest.mark.parametrize("content", [b"", b"ZK", bytes(16), bytes(70_000)], ids=["empty", "cut", "zeros", "reserved"])
async def test_last_log_without_entries_is_accepted(tmp_path: Path, content: bytes) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    last = log.with_name(f"log.{max(Log.open(log).zxids()) + 1:x}")
    last.write_bytes(content)

    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        assert count_writes(server.engine) == WRITE_COUNT
        await client.create("/later")
    engine, result = recover_leniently(tmp_path)

    assert engine.tree.get("/later") is not None
    assert result.problems == []


async def test_damaged_header_of_log_loses_no_transaction(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    whole = log.read_bytes()
    for at in range(16):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])

        engine, result = recover_leniently(tmp_path)

        assert (count_writes(engine), result.problems) == (WRITE_COUNT, [])


async def test_older_snapshot_replaces_damaged_one(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        for number in range(WRITE_COUNT - 1):
            await client.create(f"/n{number}", b"data")
        await server.store.snapshot_soon()
        await client.create(f"/n{WRITE_COUNT - 1}", b"data")
    newest = next(iter(DataDir.find(tmp_path).snapshots.values()))
    whole = newest.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :], whole[:at]):
            newest.write_bytes(damaged)

            engine, result = recover_leniently(tmp_path)

            if result.problems:
                assert str(newest) in result.problems[0]
            else:  # undetectable: the rest ends after a seal, like files of releases without the later sections
                assert damaged in (whole[:-54], whole[:-21])
            assert count_writes(engine) == WRITE_COUNT


async def test_server_keeps_unused_files_and_reuses_no_zxid(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    whole = log.read_bytes()
    at = whole.index(b"/n5")
    log.write_bytes(whole[:at] + b"/x5" + whole[at + 3 :])
    zxid = recover_state(tmp_path).zxid

    for _ in range(2):  # twice, because only the first start reports the damage
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            assert await client.children("/") == ["zookeeper", "n0", "n1", "n2", "n3", "n4"]
            assert server.engine.zxid >> 32 > zxid >> 32

    (kept,) = [path for path in log.parent.iterdir() if path.name.startswith("zoolet-remainder-")]
    assert kept.read_bytes() == whole[:at][-(at - log.stat().st_size) :] + b"/x5" + whole[at + 3 :]
    assert caplog.text.count("bytes after it are ignored") == 1


async def test_damaged_log_before_later_logs_is_refused(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/later", b"")
    for path in list(DataDir.find(tmp_path).snapshots.values())[:-1]:
        path.unlink()
    log.write_bytes(log.read_bytes().replace(b"/n3", b"/x3"))
    before = files_in(tmp_path)

    with pytest.raises(StorageError, match="is damaged"):
        async with StoredServer(tmp_path):
            pass

    assert files_in(tmp_path) == before


async def test_missing_log_between_two_logs_is_refused(tmp_path: Path) -> None:
    await write_snapshot_and_log(tmp_path)
    for name in ("/second", "/third"):
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            await client.create(name, b"")
    directory = DataDir.find(tmp_path)
    for path in list(directory.snapshots.values())[:-1]:
        path.unlink()
    list(directory.logs.values())[1].unlink()

    with pytest.raises(StorageError, match=r"the transactions 0x\S+ to 0x\S+ before this log are missing"):
        recover_leniently(tmp_path)


@pytest.mark.parametrize("damage", ["short", "zeros", "header"])
async def test_incomplete_earlier_log_is_refused(tmp_path: Path, damage: str) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/second", b"")
    for path in list(DataDir.find(tmp_path).snapshots.values())[:-1]:
        path.unlink()
    whole = log.read_bytes()
    log.write_bytes(
        {"short": whole[:-40], "zeros": whole[:512] + bytes(len(whole) - 512), "header": whole[:16]}[damage]
    )

    with pytest.raises(StorageError, match="are missing") as refusal:
        recover_leniently(tmp_path)
    assert (f"{log.name}: the log ends at byte" in str(refusal.value)) is (damage != "header")


def test_negative_session_id_may_own_nodes(tmp_path: Path) -> None:
    owner = -(0x38 << 56) + 5  # 0xc800000000000005
    root = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 1, 0, 0, 0)
    node = StoredNode("/e", b"", -1, 1, 1, 0, 0, 0, 0, 0, owner, 1)
    (tmp_path / "version-2").mkdir()
    snapshot = Snapshot(1, [root, node], {owner: 4000})
    (tmp_path / "version-2" / "snapshot.1").write_bytes(b"".join(encode(snapshot)))

    engine, _ = recover_leniently(tmp_path)

    assert Stat.decode(engine.tree.find("/e").stat()).ephemeralOwner == owner
    engine.expire(engine.sessions.alive[owner])
    assert engine.tree.get("/e") is None


async def test_complete_transaction_of_unknown_type_is_refused(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    body = struct.pack(">qiqqi", 0, 0, recover_state(tmp_path).zxid + 1, 0, 99)
    log.write_bytes(log.read_bytes() + struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B")

    with pytest.raises(StorageError, match="unknown transaction type 99"):
        recover_leniently(tmp_path)


async def test_version_and_database_of_log_are_ignored(tmp_path: Path) -> None:  # like in ZooKeeper
    _, log = await write_snapshot_and_log(tmp_path)
    log.write_bytes(b"ZKLG" + struct.pack(">iq", 3, 5) + log.read_bytes()[16:])

    engine, result = recover_leniently(tmp_path)

    assert (count_writes(engine), result.problems) == (WRITE_COUNT, [])


async def test_zxid_may_be_missing_within_a_log(tmp_path: Path) -> None:  # 3.8.0 skips one for a malformed multi
    _, log = await write_snapshot_and_log(tmp_path)
    whole, at = log.read_bytes(), [found.start() for found in re.finditer(b"/n", log.read_bytes())]
    size = at[3] - at[2]
    begin = next(start for start in range(at[2] - 60, at[2]) if whole[start - 1 : start + 4] == b"B\0\0\0\0")
    log.write_bytes(whole[:begin] + whole[begin + size :])

    engine, result = recover_leniently(tmp_path)

    assert engine.tree.get("/n2") is None
    assert engine.tree.get("/n3") is not None
    assert result.problems == []


async def test_snapshot_ahead_of_logs_is_not_used(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        for path in ("/a", "/z"):
            await client.create(path, b"1")
        older = server.engine.zxid
        await client.set("/a", b"2")
        fuzzy = Snapshot(older, live.take_snapshot(server.engine).nodes)  # the fuzzy snapshot already contains the set
        whole = next(path for path in (tmp_path / "version-2").glob("log.*"))
        before = whole.read_bytes()
    assert b"set" not in before
    (tmp_path / "version-2" / f"snapshot.{older:x}").write_bytes(b"".join(encode(fuzzy)))
    assert recover_state(tmp_path).tree.find("/a").data == b"2"
    log = Log.open(whole)
    ends = [log.end for _ in log]
    whole.write_bytes(before[: ends[2]])  # the log ends before the set that the snapshot contains
    whole.with_name("zoolet.lock").write_text("pid 1\n")

    async with StoredServer(tmp_path) as server:
        assert server.engine.tree.find("/a").data == b"1"
    assert (tmp_path / "version-2" / f"zoolet-unusable-snapshot.{older:x}").exists()


@pytest.mark.parametrize("kept", [2, 3], ids=["the log ends before it", "the log has it"])
async def test_snapshot_with_log_cut_before_it_is_not_used(tmp_path: Path, kept: int) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
        tables = live.snapshot_tables(server.engine)
        pieces = encode_changing(tables, live.snapshot_nodes(server.engine.tree, tables), lambda: server.engine.zxid)
        data = next(pieces)
        await client.set_acl("/a", acl.READ_ONLY)  # visible only in the table of lists, not in the zxid of a node
        data += b"".join(pieces)
        log = next((tmp_path / "version-2").glob("log.*"))
        before = log.read_bytes()
    (tmp_path / "version-2" / f"snapshot.{tables.zxid:x}").write_bytes(data)
    read = Log(before)
    ends = [read.end for _ in read]
    log.write_bytes(before[: ends[kept - 1]])
    log.with_name("zoolet.lock").write_text("pid 1\n")

    engine, recovered = recover_leniently(tmp_path)

    assert engine.tree.find("/a").acl == engine.acls.intern(acl.READ_ONLY if kept == 3 else acl.OPEN)
    assert bool(recovered.problems) is (kept == 2)


@pytest.mark.parametrize("name", ["snapshot.5", "log.5"])
def test_directory_named_like_log_or_snapshot_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "version-2" / name).mkdir(parents=True)
    with pytest.raises(StorageError, match=f"expected a {name.removesuffix('.5')} file, found a directory"):
        DataDir.find(tmp_path)


def test_search_for_entries_after_damage_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(txnlog, "MAX_CHECKED", 1 << 20)
    size = 1 << 16
    many = b"".join(struct.pack(">qi", 0x1234, size // 2) for _ in range(size // 12))  # like entries
    torn = encode_header() + struct.pack(">qi", 1, 40) + b"x" * 8 + many
    with pytest.raises(StorageError, match="too much data after it resembles transactions"):
        list(Log(torn, "log.1"))


@pytest.mark.parametrize("name", ["snapshot.7fffffffffffffff", "snapshot.ffffffffffffffff"])
def test_highest_zxids_in_file_name_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / name).write_bytes(b"")
    with pytest.raises(StorageError, match="is too high"):
        DataDir.find(tmp_path)


@pytest.mark.parametrize("place", [507, 508, 511, 0, 100])
async def test_flipped_bit_is_noticed_at_any_place_in_sector(tmp_path: Path, place: int) -> None:
    """The clock is fixed. One checksum in 256 starts with a zero byte, which at 507 looks like a missing sector."""
    fixed = StoredServer(tmp_path, preallocated=0, clock=ManualClock())
    async with fixed as server, Client(server.hosts, timeout=20.0) as client:

        def end() -> int:
            log = Log.open(next((tmp_path / "version-2").glob("log.*")))
            list(log.zxids())
            return log.end

        await client.create("/a", b"")
        first = end()
        await client.create("/b", b"")
        size, before = end() - first, end()
        await client.create("/c", b"x" * ((place - before - size) % 512))
        assert end() % 512 == place
        damaged = end()
        await client.create("/d", b"victim")
        await client.create("/e", b"")
        whole = next((tmp_path / "version-2").glob("log.*")).read_bytes()
    log = next((tmp_path / "version-2").glob("log.*"))
    at = whole.index(b"/d", damaged)
    log.write_bytes(whole[:at] + b"?" + whole[at + 1 :])
    log.with_name("zoolet.lock").write_text("pid 1\n")

    with pytest.raises(StorageError, match=f"the transaction at byte {damaged} is damaged"):
        recover_leniently(tmp_path)


def test_empty_lock_file_counts_as_unclean_stop(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    assert lock.was_clean
    lock.note_clean_end(5, 7)
    lock.release()
    size = (tmp_path / "zoolet.lock").stat().st_size

    lock = DirectoryLock(tmp_path)
    assert (lock.was_clean, lock.zxid, lock.session_id) == (True, 5, 7)
    assert (tmp_path / "zoolet.lock").stat().st_size == size
    lock.release()
    (tmp_path / "zoolet.lock").write_bytes(b"")

    lock = DirectoryLock(tmp_path)
    assert not lock.was_clean
    lock.release()


# --- a snapshot without its log ---


async def growing_snapshot(folder: Path) -> tuple[Path, int]:
    """Change a list while a server writes a snapshot; return its file, and the highest zxid that it may contain."""
    async with StoredServer(folder) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
        for number in range(2000):  # more than is encoded in one step
            await client.create(f"/n{number}", b"x" * 200)
        while True:  # repeat, because a change may come too late for the snapshot
            writing = server.store.snapshot_soon()
            while not writing.done():
                await client.set_acl("/n1999", acl.OPEN)
            zxid, path = next(iter(DataDir.find(folder).snapshots.items()))
            if (seen := parse(path.read_bytes(), zxid).seen) > zxid:
                return path, seen


async def test_snapshot_copied_alone_causes_no_zxid_reuse(tmp_path: Path) -> None:
    path, seen = await growing_snapshot(tmp_path / "from")
    assert seen > int(path.suffix[1:], 16)
    copy = tmp_path / "to" / "version-2"
    copy.mkdir(parents=True)
    (copy / path.name).write_bytes(path.read_bytes())

    for _ in range(3):
        async with StoredServer(tmp_path / "to") as server, Client(server.hosts, timeout=20.0) as client:
            assert server.engine.zxid > seen
            await client.set("/a", b"1")


async def test_snapshot_restored_next_to_older_log_is_used(tmp_path: Path) -> None:
    async with StoredServer(tmp_path / "to") as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/old", b"")
    path, _ = await growing_snapshot(tmp_path / "from")
    inner = tmp_path / "to" / "version-2"
    (inner / path.name).write_bytes(path.read_bytes())
    (inner / "zoolet.lock").unlink()

    assert recover_state(tmp_path / "to").tree.get("/n0") is not None


def test_missing_transactions_seen_by_snapshot_are_reported(tmp_path: Path) -> None:
    root = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 1, 0, 0, 0)
    inner = tmp_path / "version-2"
    inner.mkdir()
    growing = encode_changing(Snapshot((1 << 32) + 3, []), [root], lambda: (1 << 32) + 6)
    (inner / "snapshot.100000003").write_bytes(b"".join(growing))
    for zxid in ((1 << 32) + 4, (2 << 32) + 1):
        entry = txnlog.encode([(0, 0, zxid, 5, -1, ErrorTxn(0))])
        (inner / f"log.{zxid:x}").write_bytes(encode_header() + entry)

    with pytest.raises(StorageError, match="up to 0x100000006 are missing, but the snapshot contains parts"):
        recover_leniently(tmp_path)


@pytest.mark.parametrize(("checksum", "length"), [(5, 0), (0, 7)])
def test_only_zeros_in_log_count_as_reserved_space(checksum: int, length: int) -> None:
    log = Log(txnlog.encode_header() + struct.pack(">qi", checksum, length) + bytes(40))

    assert list(log) == []
    assert log.incomplete
    rest = Log(txnlog.encode_header() + bytes(52))
    assert list(rest) == []
    assert not rest.incomplete


def test_new_name_of_rejected_snapshot_is_synced(tmp_path: Path) -> None:
    class Watched(Disk):
        synced: ClassVar[list[Path]] = []

        def sync_folder(self, path: Path) -> None:
            self.synced.append(path)

    bad = tmp_path / "snapshot.5"
    bad.write_bytes(b"")

    DataDir(tmp_path, tmp_path, tmp_path, {}, {}, rejected=[bad]).set_aside(Watched())

    assert not bad.exists()
    assert Watched.synced == [tmp_path]
