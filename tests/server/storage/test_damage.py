"""Damaged files: every byte counts, what precedes the damage is used, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from support.stored import StoredServer, recovered

from zoolet.client import Client
from zoolet.protocol.records import Stat
from zoolet.server.config import build
from zoolet.server.core.engine import Engine
from zoolet.server.storage.directory import GAP, DataDir
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.recovery import Recovered, recover
from zoolet.server.storage.snapshot import Snapshot, StoredNode, encode

WRITES = 6


async def files_with(folder: Path, *, preallocated: int = 0) -> tuple[Path, Path]:
    """Write six transactions with a server; return the snapshot before them and the log."""
    async with StoredServer(folder, preallocated=preallocated) as server, Client(server.hosts, timeout=20.0) as client:
        for number in range(WRITES):
            await client.create(f"/n{number}", b"data")
        inner = folder / "version-2"
        log, snapshot = sorted(path for path in inner.iterdir() if not path.name.startswith("zoolet"))
        whole = log.read_bytes()
    log.write_bytes(whole)  # without what the end has added
    return snapshot, log


def recover_leniently(folder: Path) -> tuple[Engine, Recovered]:
    """Recover as a daemon does."""
    engine = Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))
    return engine, recover(engine, folder, lenient=True)


def files_in(folder: Path) -> dict[Path, bytes]:
    """Return all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def count(engine: Engine) -> int:
    """Return how many of the writes are there; those that are, are the first."""
    there = [engine.tree.get(f"/n{number}") is not None for number in range(WRITES)]
    assert there == sorted(there, reverse=True), there
    return sum(there)


async def test_every_flipped_byte_of_a_log_is_reported_and_what_precedes_it_used(tmp_path: Path) -> None:
    _, log = await files_with(tmp_path, preallocated=4)
    whole = log.read_bytes()
    counts = set()
    for at in range(len(whole)):
        log.write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])

        engine, result = recover_leniently(tmp_path)

        assert result.problems, at
        assert all(str(log) in problem for problem in result.problems)
        counts.add(count(engine))
    assert counts == set(range(WRITES + 1))


async def test_a_log_that_is_truncated_anywhere_keeps_what_precedes(tmp_path: Path) -> None:
    _, log = await files_with(tmp_path)
    whole = log.read_bytes()
    counts = []
    for size in range(len(whole) + 1):
        log.write_bytes(whole[:size])
        counts.append(count(recover_leniently(tmp_path)[0]))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, WRITES)


async def test_every_flipped_byte_of_a_snapshot_is_reported_and_the_one_before_it_used(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        for number in range(WRITES - 1):
            await client.create(f"/n{number}", b"data")
        await server.store.snapshot_soon()
        await client.create(f"/n{WRITES - 1}", b"data")
    newest = next(iter(DataDir.find(tmp_path).snapshots.values()))
    whole = newest.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :], whole[:at]):
            newest.write_bytes(damaged)

            engine, result = recover_leniently(tmp_path)

            if result.problems:
                assert str(newest) in result.problems[0]
            else:  # it ends behind a seal, as those of releases without the sections that follow
                assert damaged in (whole[:-54], whole[:-21])
            assert count(engine) == WRITES


async def test_a_server_keeps_what_it_does_not_use_and_takes_no_zxid_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _, log = await files_with(tmp_path)
    whole = log.read_bytes()
    at = whole.index(b"/n3")
    log.write_bytes(whole[:at] + b"/x3" + whole[at + 3 :])
    zxid = recovered(tmp_path).zxid

    for _ in range(2):  # the second start has nothing to report
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            assert await client.children("/") == ["zookeeper", "n0", "n1", "n2"]
            assert server.engine.zxid > zxid + GAP

    (kept,) = [path for path in log.parent.iterdir() if path.name.startswith("zoolet-remainder-")]
    assert kept.read_bytes() == whole[:at][-(at - log.stat().st_size) :] + b"/x3" + whole[at + 3 :]
    assert caplog.text.count("is damaged") == 1


async def test_damage_of_a_log_that_others_follow_is_refused(tmp_path: Path) -> None:
    _, log = await files_with(tmp_path)
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


async def test_a_log_that_is_missing_between_others_is_refused(tmp_path: Path) -> None:
    await files_with(tmp_path)
    for name in ("/second", "/third"):
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            await client.create(name, b"")
    directory = DataDir.find(tmp_path)
    for path in list(directory.snapshots.values())[:-1]:
        path.unlink()
    list(directory.logs.values())[1].unlink()

    with pytest.raises(StorageError, match=r"the transactions 0x.* to 0x.*, before it, are missing"):
        recover_leniently(tmp_path)


@pytest.mark.parametrize("damage", ["short", "zeros", "header"])
async def test_an_earlier_log_that_ends_early_is_refused(tmp_path: Path, damage: str) -> None:
    _, log = await files_with(tmp_path)
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/second", b"")
    for path in list(DataDir.find(tmp_path).snapshots.values())[:-1]:
        path.unlink()
    whole = log.read_bytes()
    log.write_bytes(
        {"short": whole[:-40], "zeros": whole[:512] + bytes(len(whole) - 512), "header": whole[:16]}[damage]
    )

    with pytest.raises(StorageError, match="are missing"):
        recover_leniently(tmp_path)


def test_a_session_of_a_server_with_a_high_number_owns_its_nodes(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("name", ["snapshot.7fffffffffffffff", "snapshot.ffffffffffffffff"])
def test_a_zxid_that_leaves_no_room_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / name).write_bytes(b"")
    with pytest.raises(StorageError, match="leaves no room"):
        DataDir.find(tmp_path)
