"""``zoolet datadir repair``: it sets damaged data aside, reports losses, and never changes intact files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.stored import (
    StoredServer,
    count_writes,
    recover_leniently,
    recover_state,
    write_log,
    write_snapshot_and_log,
)

from zoolet.__main__ import main
from zoolet.client import Client
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import DirectoryLock
from zoolet.server.storage.repair import repair
from zoolet.server.storage.snapshot import Snapshot, StoredNode
from zoolet.server.storage.txnlog import Log

ROOT = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)


async def test_repair_moves_rest_of_log_after_damage_to_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n3", b"/x3"))
    with pytest.raises(StorageError, match="a valid one follows at byte"):
        recover_leniently(tmp_path)

    assert main(["datadir", "repair", str(tmp_path)]) == 0

    assert f"{log}: truncated at byte" in capsys.readouterr().out
    async with StoredServer(tmp_path) as server:
        assert count_writes(server.engine) == 3
    assert b"/n4" in next(log.parent.glob("zoolet-remainder-*")).read_bytes()
    assert main(["datadir", "repair", str(tmp_path)]) == 0
    assert "need no repair" in capsys.readouterr().out


async def test_second_repair_uses_new_name_for_rest_of_log(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n3", b"/x3"))
    (planned,) = repair(tmp_path, dry_run=True)
    earlier = log.with_name(planned.rpartition(" ")[2])
    earlier.write_bytes(b"")

    (line,) = repair(tmp_path)

    assert line.endswith(f" the rest is in {earlier.name}-2")
    assert b"/n4" in earlier.with_name(f"{earlier.name}-2").read_bytes()


async def test_repair_gives_up_zxids_of_lost_transactions(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    whole, taken = log.read_bytes(), max(Log.open(log).zxids())
    at = whole.index(b"/n2")
    log.write_bytes(whole[:at] + b"?" + whole[at + 1 :])

    repair(tmp_path)

    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/again", b"")
        stat = await client.exists("/again")
        assert stat is not None
        assert stat.czxid >> 32 == (taken >> 32) + 1


async def test_repair_without_damage_keeps_clean_stop(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
    lock = tmp_path / "version-2" / "zoolet.lock"
    before = lock.read_bytes()
    assert before.startswith(b"zxid ")

    assert repair(tmp_path) == []

    assert lock.read_bytes() == before


def test_failed_repair_keeps_lock_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def serve() -> None:
        async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
            await client.create("/a")

    def fail(*arguments: object) -> None:
        raise OSError("planted")

    asyncio.run(serve())
    file = next(tmp_path.rglob("zoolet.lock"))
    before = file.read_bytes()
    monkeypatch.setattr("zoolet.server.storage.repair._plan", fail)

    with pytest.raises(OSError, match="planted"):
        repair(tmp_path)

    assert file.read_bytes() == before
    lock = DirectoryLock(file.parent)
    assert lock.was_clean
    lock.release()


async def test_repair_reports_losses_before_changes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    last = max(Log.open(log).zxids())
    log.write_bytes(log.read_bytes().replace(b"/n2", b"/x2"))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log.parent.iterdir()}

    assert main(["datadir", "repair", str(tmp_path), "--dry-run"]) == 0

    shown = capsys.readouterr().out.splitlines()
    loss = f"discards the transactions after 0x{last - 4:x}: 3 can be read, up to 0x{last:x}; they change 3 nodes: "
    assert shown[0] == f"{loss}/n3, /n4, /n5"
    assert shown[1].startswith(f"dry run: {log}: truncated at byte")
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before} == before
    assert main(["datadir", "repair", str(tmp_path)]) == 0
    done = capsys.readouterr().out.splitlines()
    assert [done[0], f"dry run: {done[1]}"] == shown


def test_repair_discards_only_unconnected_transactions(tmp_path: Path) -> None:
    inner = tmp_path / "version-2"
    for first, count in ((4, 2), (6, 2), (8, 3), (11, 2)):
        write_log(inner, first, count)
    (inner / "snapshot.5").write_bytes(b"".join(snapshots.encode(Snapshot(5, [ROOT]))))
    (inner / "log.4").write_bytes(b"")
    (inner / "log.8").write_bytes((inner / "log.8").read_bytes().replace(b"/n9", b"/x9"))
    reported: list[str] = []

    lines = repair(tmp_path, report=reported.append)

    names = "/n10, /n11, /n12"
    assert reported == [f"discards the transactions after 0x8: 3 can be read, up to 0xc; they change 3 nodes: {names}"]
    assert [Path(line.partition(":")[0]).name for line in lines] == ["log.b", "log.8"]
    assert {path for path, _ in recover_state(tmp_path).tree.walk()} >= {"/n6", "/n7", "/n8"}
    assert repair(tmp_path) == []


def test_repair_uses_snapshot_older_than_cut(tmp_path: Path) -> None:
    inner = tmp_path / "version-2"
    log = write_log(inner, 6, 5)
    log.write_bytes(log.read_bytes().replace(b"/n8", b"/x8"))
    (inner / "snapshot.5").write_bytes(b"".join(snapshots.encode(Snapshot(5, [ROOT]))))
    later = ROOT._replace(pzxid=9)
    (inner / "snapshot.7").write_bytes(b"".join(snapshots.encode_changing(Snapshot(7, []), [later], lambda: 9)))

    repair(tmp_path)

    assert recover_state(tmp_path).zxid == 7
    assert repair(tmp_path) == []


async def test_repair_keeps_logs_after_covered_damage(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/before")
        await server.store.snapshot_soon()
        await client.create("/after")
    old = next(iter(DataDir.find(tmp_path).logs.values()))
    for content in (b"", old.read_bytes().replace(b"/before", b"/befoxe")):
        old.write_bytes(content)
        assert repair(tmp_path) == []
        assert recover_state(tmp_path).tree.get("/after") is not None


def test_verify_refuses_dry_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datadir", "verify", str(tmp_path), "--dry-run"]) == 2
    assert "--dry-run is only for repair" in capsys.readouterr().err


async def test_refused_start_names_repair(tmp_path: Path) -> None:
    _, log = await write_snapshot_and_log(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n2", b"/x2"))

    with pytest.raises(StorageError, match=f"run: zoolet datadir repair {tmp_path} --dry-run$"):
        async with StoredServer(tmp_path):
            pass


async def test_running_server_refuses_dry_run(tmp_path: Path) -> None:
    async with StoredServer(tmp_path):
        with pytest.raises(StorageError, match="a server is using this directory"):
            repair(tmp_path, dry_run=True)


def test_datadir_commands_accept_trusted_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_log(tmp_path / "version-2", 1, 6)
    actions = ("show", "verify", "export", "repair")
    for action in actions:
        assert main(["datadir", action, str(tmp_path)]) == 1
        captured = capsys.readouterr()
        assert "set -Dsnapshot.trust.empty=true" in captured.out + captured.err
    for action in actions:
        assert main(["datadir", action, str(tmp_path), "-Dsnapshot.trust.empty=true"]) == 0
    assert "nodes           11" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["show", "verify", "export", "repair"])
def test_directory_without_data_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    assert main(["datadir", action, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"zoolet datadir: no snapshots or transaction logs in {tmp_path}\n"


async def test_commands_agree_with_server_after_log_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
    directory = DataDir.find(tmp_path)
    next(iter(directory.logs.values())).write_bytes(b"")
    reason = f"the previous server stopped at 0x{directory.stopped_at:x}"

    with pytest.raises(StorageError, match=reason):
        async with StoredServer(tmp_path):
            pass
    directory = DataDir.find(tmp_path)
    commands = [["datadir", action, str(tmp_path)] for action in ("show", "verify", "export")]
    for words in (*commands, ["backup", str(tmp_path), str(tmp_path / "copy")]):
        assert main(words) == 1
        captured = capsys.readouterr()
        assert reason in captured.out + captured.err
    for options in (["--dry-run"], []):
        assert main(["datadir", "repair", str(tmp_path), *options]) == 0
        assert f"to 0x{directory.stopped_at:x}, which are not in the files\n" in capsys.readouterr().out
    async with StoredServer(tmp_path) as server:
        assert server.engine.tree.get("/a") is None


def test_files_of_earlier_repair_are_kept(tmp_path: Path) -> None:
    inner = tmp_path / "version-2"
    for count in (3, 4):
        log = write_log(inner, 8, count)
        (inner / "snapshot.5").write_bytes(b"".join(snapshots.encode(Snapshot(5, [ROOT]))))
        repair(tmp_path)

    assert not log.exists()
    assert sorted(path.name for path in inner.glob("zoolet-unusable-*")) == [
        "zoolet-unusable-log.8",
        "zoolet-unusable-log.8-2",
    ]
