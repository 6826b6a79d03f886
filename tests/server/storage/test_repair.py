"""``zoolet datadir repair``: what it sets aside, what it gives up, and that it changes nothing of what is whole."""

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


async def test_repair_sets_aside_what_follows_a_damage_and_a_server_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, log = await files_with(tmp_path)
    log.write_bytes(log.read_bytes().replace(b"/n3", b"/x3"))
    with pytest.raises(StorageError, match="valid ones follow"):
        recover_leniently(tmp_path)

    assert main(["datadir", "repair", str(tmp_path)]) == 0

    assert f"{log}: cut at byte" in capsys.readouterr().out
    async with StoredServer(tmp_path) as server:
        assert writes_in(server.engine) == 3
    assert b"/n4" in next(log.parent.glob("zoolet-remainder-*")).read_bytes()
    assert main(["datadir", "repair", str(tmp_path)]) == 0
    assert "need no repair" in capsys.readouterr().out


async def test_what_a_repair_gives_up_gives_its_zxids_up_too(tmp_path: Path) -> None:
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


async def test_a_repair_that_finds_nothing_leaves_a_clean_end_clean(tmp_path: Path) -> None:
    async with StoredServer(tmp_path) as server, Client(server.hosts, timeout=20.0) as client:
        await client.create("/a", b"")
    lock = tmp_path / "version-2" / "zoolet.lock"
    before = lock.read_bytes()
    assert before.startswith(b"zxid ")

    assert repair(tmp_path) == []

    assert lock.read_bytes() == before


def test_a_repair_that_fails_leaves_the_lock_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
