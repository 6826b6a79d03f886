"""Snapshots of a running server: exact together with the following log, and without blocking the server."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from support.stored import (
    FullDisk,
    GatedDisk,
    RememberingDisk,
    SlowDisk,
    StoredServer,
    connect_client,
    persistent_state,
    recover_state,
)
from support.waiting import until

from zoolet.client import Client
from zoolet.client import acl as acls
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.errors import ZooKeeperError
from zoolet.protocol.txns import CreateTxn, SetACLTxn
from zoolet.server.config import build
from zoolet.server.core.engine import Engine
from zoolet.server.storage import live
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.snapshot import StoredNode


async def test_snapshots_are_written_while_tree_changes(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, snap_count=50) as server:
        client = await connect_client(server)
        for number in range(400):
            await client.create(f"/n{number % 40}-{number}", bytes(100))
            if number >= 40 and number % 3 == 0:
                await client.delete(f"/n{(number - 40) % 40}-{number - 40}")
        await server.store.snapshot_written()
        expected = persistent_state(server.engine)
        # The next log exists without a name if nothing was written after the start of the last snapshot.
        names = sorted(path.name for path in (tmp_path / "version-2").iterdir() if path.suffix != ".tmp")
        await client.aclose()
        snapshots = [name for name in names if name.startswith("snapshot.")]
        assert len(snapshots) == 3
        assert len(names) <= 8  # three snapshots, up to four logs and the lock
        # Each kept snapshot leads to the same state; the oldest one needs the most of the log.
        for name in reversed(snapshots):
            assert persistent_state(recover_state(tmp_path))["nodes"] == expected["nodes"]
            (tmp_path / "version-2" / name).unlink()


async def test_failed_snapshot_is_logged_and_writes_continue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        disk.writes = False
        await server.store.snapshot_soon()
        disk.writes = True
        assert re.search(r"could not write the snapshot of zxid 0x\S+: \[Errno 28\]", caplog.text)
        await client.create("/b", b"")
        assert persistent_state(recover_state(tmp_path)) == persistent_state(server.engine)
        await client.aclose()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_snapshot_is_renamed_after_its_changes_are_on_disk(tmp_path: Path, fsync: str) -> None:
    disk = GatedDisk(tmp_path)
    async with StoredServer(tmp_path, disk, fsync=fsync) as server:
        client = await connect_client(server)
        await client.create("/a", b"old")
        await server.store.snapshot_written()
        before, syncs = len(disk.steps), disk.arrived["snapshot"]
        disk.gates["snapshot"].clear()
        task = server.store.snapshot_soon()
        await until(lambda: disk.arrived["snapshot"] > syncs)
        if fsync == "always":
            disk.gates["log"].clear()
        write = asyncio.create_task(client.set("/a", b"new"))
        await until(lambda: server.engine.tree.find("/a").data == b"new")
        if fsync != "always":
            await write
        disk.gates["snapshot"].set()
        asyncio.get_running_loop().call_later(0.05, disk.gates["log"].set)
        await asyncio.gather(task, write)
        steps = disk.steps[before:]
        await client.aclose()
    named = next(at for at, step in enumerate(steps) if step.what == "rename" and "snapshot." in step.arguments[1].name)
    written = max(at for at, step in enumerate(steps) if step.what == "write" and b"new" in step.arguments[0])
    assert any(step.what == "sync" and step.file == steps[written].file for step in steps[written:named])


async def test_recovered_log_is_synced_before_first_rename(tmp_path: Path) -> None:
    async with StoredServer(tmp_path, fsync="never") as server:
        client = await connect_client(server)
        await client.create("/a")
        copy = shutil.copytree(tmp_path, tmp_path.parent / "killed")
        await client.aclose()
    disk = RememberingDisk(copy)
    async with StoredServer(copy, disk):
        pass
    last = max(disk._before.items(), key=lambda known: known[1].name.startswith("log."))[0]
    synced = next(at for at, step in enumerate(disk.steps) if step.what == "sync" and step.file == last)
    assert synced < next(at for at, step in enumerate(disk.steps) if step.what == "rename")


def test_growing_snapshot_has_no_digest() -> None:
    tables = live.snapshot_tables(Engine(build().settings, rng=Random(0)))
    data = b"".join(snapshots.encode_changing(tables, [StoredNode("", b"", -1, *([0] * 9))], lambda: tables.zxid))

    assert snapshots.parse(data, tables.zxid).digest is None


async def test_start_with_transactions_writes_snapshot(tmp_path: Path) -> None:
    for expected in (False, True, True):
        async with StoredServer(tmp_path) as server:
            assert (server.store.snapshots.task is not None) is expected
            client = await connect_client(server)
            await client.aclose()


def test_growing_snapshot_omits_newer_nodes_and_lists() -> None:
    engine = Engine(build().settings, rng=Random(0))
    for number, path in enumerate(("/a", "/b"), 1):
        engine.zxid = number
        engine.apply(CreateTxn(path, b"", OPEN_ACL_UNSAFE, False, number), 0)
    tables = live.snapshot_tables(engine)
    nodes = live.snapshot_nodes(engine.tree, tables)
    first = next(nodes)
    engine.zxid = 3
    engine.apply(CreateTxn("/c", b"", OPEN_ACL_UNSAFE, False, 3), 0)
    engine.apply(SetACLTxn("/b", acls.digest("user", "password"), 1), 0)

    rest = {node.path: node for node in nodes}

    assert first.path == ""
    assert {path for path in rest if not path.startswith("/zookeeper")} == {"/a", "/b"}
    assert tables.acls[rest["/b"].acl] == snapshots.NOBODY


async def test_snapshots_are_written_under_constant_load(tmp_path: Path) -> None:
    disk = SlowDisk(seconds=0.002)
    async with StoredServer(tmp_path, disk, snap_count=20) as server:
        clients = [await connect_client(server) for _ in range(4)]
        await clients[0].create("/a", b"")
        running = True

        async def write(client: Client) -> None:
            while running:
                await client.set("/a", b"")

        writers = [asyncio.create_task(write(client)) for client in clients for _ in range(4)]
        folder = tmp_path / "version-2"
        first = max(folder.glob("snapshot.*"))
        await until(lambda: max(folder.glob("snapshot.*")) > first)
        running = False
        await asyncio.gather(*writers)
        for client in clients:
            await client.aclose()


async def test_snapshot_fails_before_it_takes_disk_space_of_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    async with StoredServer(tmp_path, disk) as server:
        client = await connect_client(server)
        await client.create("/a", b"")
        disk.reserves = False  # nearly full: the next log cannot be reserved
        await server.store.snapshot_soon()
        assert re.search(r"could not write the snapshot of zxid 0x\S+: \[Errno 28\]", caplog.text)
        assert not server.engine.refusal
        await client.set("/a", b"goes on")
        assert not list(tmp_path.rglob("zoolet-*.tmp"))  # noqa: ASYNC240
        await client.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
async def test_snapshot_of_changing_tree_with_log_restores_state(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    async with StoredServer(tmp_path) as server:
        clients = [await connect_client(server) for _ in range(2)]
        changes = Changes(server, clients, random)
        for _ in range(40):
            await changes.make_one()
        tables = live.snapshot_tables(server.engine)
        data = b""
        for piece in snapshots.encode_changing(
            tables, live.snapshot_nodes(server.engine.tree, tables), lambda: server.engine.zxid
        ):
            data += piece
            for _ in range(random.choice((0, 0, 1, 3))):
                await changes.make_one()
        expected = persistent_state(server.engine)
        for path in DataDir.find(tmp_path).snapshots.values():
            path.unlink()
        (tmp_path / "version-2" / f"snapshot.{tables.zxid:x}").write_bytes(data)

        assert persistent_state(recover_state(tmp_path)) == expected
        for client in clients:
            await client.aclose()


class Changes:
    """Random changes of all kinds, including changes that fail."""

    def __init__(self, server: StoredServer, clients: list[Client], random: Random) -> None:
        self._server = server
        self._clients = clients
        self._random = random

    async def make_one(self) -> None:
        """Make one change."""
        random, client = self._random, self._random.choice(self._clients)
        paths = [path for path, _ in self._server.engine.tree.walk() if not path.startswith("/zookeeper")]
        path = random.choice(paths)
        list_ = random.choice((acls.OPEN, (*acls.OPEN, *acls.digest(f"u{random.randrange(4)}", "x")), acls.READ_ONLY))
        kinds = ({}, {}, {"ephemeral": True}, {"sequential": True}, {"container": True}, {"ttl": 99.0}, {"acl": list_})
        with suppress(ZooKeeperError):
            match random.randrange(6):
                case 0 | 1:
                    child = f"{path.rstrip('/')}/{random.choice('abc')}"
                    await client.create(child, random.randbytes(3), **random.choice(kinds))  # type: ignore[arg-type]
                case 2:
                    await client.delete(path)
                case 3:
                    await client.set(path, random.randbytes(4))
                case 4:
                    await client.set_acl(path, list_)
                case _:
                    async with client.transaction() as transaction:
                        transaction.create(f"{path.rstrip('/')}/m{random.randrange(3)}", b"")
                        transaction.delete(f"{path.rstrip('/')}/a")
