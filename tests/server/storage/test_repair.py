"""``zoolet datadir repair``: the data that it sets aside and gives up, and that it never changes intact files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support.stored import StoredServer, files_with, recover_leniently, writes_in

from zoolet.__main__ import main
from zoolet.client import Client
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.lock import Lock
from zoolet.server.storage.repair import repair
from zoolet.server.storage.txnlog import Log


async def test_repair_sets_aside_rest_after_damage_and_server_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, log = await files_with(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n3", b"/x3"))
    with pytest.raises(StorageError, match="a valid one follows at byte"):
        recover_leniently(tmp_path)

    assert main(["datadir", "repair", str(tmp_path)]) == 0

    assert f"{log}: truncated at byte" in capsys.readouterr().out
    async with StoredServer(tmp_path) as server:
        assert writes_in(server.engine) == 3
    assert b"/n4" in next(log.parent.glob("zoolet-remainder-*")).read_bytes()
    assert main(["datadir", "repair", str(tmp_path)]) == 0
    assert "need no repair" in capsys.readouterr().out


async def test_repair_gives_up_zxids_of_lost_transactions(tmp_path: Path) -> None:
    _, log = await files_with(tmp_path)
    whole, taken = log.read_bytes(), Log.open(log).last_zxid() or 0
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
    monkeypatch.setattr("zoolet.server.storage.repair._damage", fail)

    with pytest.raises(OSError, match="planted"):
        repair(tmp_path)

    assert file.read_bytes() == before
    lock = Lock(file.parent)
    assert lock.was_clean
    lock.release()


@pytest.mark.parametrize("action", ["show", "verify", "export", "repair"])
def test_directory_without_data_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: str) -> None:
    assert main(["datadir", action, str(tmp_path)]) == 1
    assert capsys.readouterr().err == f"zoolet datadir: no snapshots or transaction logs in {tmp_path}\n"
