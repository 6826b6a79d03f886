"""One data directory, used by Apache ZooKeeper and zoolet in turn: no data is lost, and counters continue.

``ZOOLET_NODES=10000`` selects a long run.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from support.apache import RELEASES, ApacheZooKeeper, free_port, require_apache
from support.apache_loader import ApacheLoader
from support.daemon import SERVE, DaemonProcess
from support.effort import FULL, effort
from support.kazoo_clients import connected_client
from support.stored import recover_state
from support.waiting import DEADLINE_S

from zoolet.__main__ import main
from zoolet.client import Client, State, acl
from zoolet.protocol.errors import ZooKeeperError
from zoolet.server.storage.directory import DataDir
from zoolet.server.storage.snapshot import has_seal

NODES_PER_TURN: Final = int(os.environ.get("ZOOLET_NODES", "400"))
TURNS: Final = effort(4, 10)
MAX_REQUESTS_IN_FLIGHT: Final = 50
ACL_LISTS: Final = (
    acl.OPEN,
    (*acl.digest("user", "secret", acl.ALL), *acl.READ_ONLY),
    acl.ip("127.0.0.0/8"),
    (*acl.READ_ONLY, *acl.CREATOR_ALL),
)


@asynccontextmanager
async def turn(folder: Path, port: int, release: str | None) -> AsyncIterator[None]:
    """Run Apache's server, or zoolet if *release* is None, on a directory and a port."""
    if release is None:
        options = ("--data-dir", str(folder), "-DsnapCount=300")
        daemon = DaemonProcess(*options)
        daemon.command = [*SERVE, "--port", str(port), *options]
        with daemon:
            yield
        return
    apache = ApacheZooKeeper(release, config={"dataDir": str(folder)}, properties={"zookeeper.snapCount": "300"})
    apache.port = port
    with apache:
        yield


async def create_random_node(client: Client, path: str, kind: str, random: Random) -> str:
    """Create a node of some kind with random data and a random ACL list."""
    data = random.choice((b"", b"x", random.randbytes(random.randrange(200)), "grün".encode()))
    acls = random.choice(ACL_LISTS)
    if kind == "ttl":
        return await client.create(path, data, acl=acls, ttl=random.randrange(3600, 7200))
    if kind == "container":
        return await client.create(path, data, acl=acls, container=True)
    ephemeral = kind == "ephemeral"
    return await client.create(path, data, acl=acls, sequential=kind == "sequential", ephemeral=ephemeral)


async def change(client: Client, random: Random, count: int, parents: list[str]) -> None:
    """Create nodes of all kinds, change and delete some, and run transactions."""
    kinds = ("plain", "plain", "plain", "sequential", "sequential", "container", "ttl", "ephemeral")
    for _ in range(0, count, MAX_REQUESTS_IN_FLIGHT):
        creates = []
        for _ in range(MAX_REQUESTS_IN_FLIGHT):
            path = f"{random.choice(parents)}/{random.choice(('n', 'ä', 'long-name-'))}{random.getrandbits(40):x}"
            kind = random.choice(kinds)
            creates.append((kind, create_random_node(client, path, kind, random)))
        paths = await asyncio.gather(*(create for _, create in creates))
        plain = [path for path, (kind, _) in zip(paths, creates, strict=True) if kind == "plain"]
        parents += plain[:3]
        for path in plain[3:]:
            await client.set(path, random.randbytes(30))
            if random.random() < 0.3:
                await client.delete(path)
            elif random.random() < 0.3:
                await client.set_acl(path, random.choice(ACL_LISTS))
        async with client.transaction() as transaction:
            transaction.create(f"/t{random.getrandbits(40):x}", b"in a transaction")
            transaction.set(parents[1], b"by a transaction")
        try:
            async with client.transaction() as transaction:
                transaction.create(f"/never{random.getrandbits(40):x}", b"")
                transaction.delete("/nowhere")
        except ZooKeeperError:
            pass


async def read_tree(client: Client) -> dict[str, Any]:
    """Return every node with its data, Stat and ACL list."""
    there: dict[str, Any] = {}
    level = ["/"]
    while level:
        looks = await asyncio.gather(
            *(asyncio.gather(client.get(path), client.get_acl(path), client.children(path)) for path in level)
        )
        children = []
        for path, ((data, stat), (acls, _), names) in zip(level, looks, strict=True):
            there[path] = (data, stat, sorted(acls, key=repr))
            children += [f"{path.rstrip('/')}/{name}" for name in names]
        level = children
    return there


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
async def test_apache_and_zoolet_take_turns_on_one_data_directory(tmp_path: Path, release: str) -> None:
    require_apache(release)
    random, port, parents = Random(7), free_port(), [""]
    before: dict[str, Any] | None = None
    numbers = 0
    owner: Client | None = None
    for number in range(TURNS):
        who = (None, release)[number % 2]
        async with turn(tmp_path, port, who):
            if owner is None:  # one client with ephemeral nodes stays connected through all turns
                owner = Client(f"127.0.0.1:{port}", timeout=30.0, auth=(("digest", b"user:secret"),))
                await owner.start()
                await owner.create("/counted", b"")
                parents.append(await owner.create("/parent", b""))
            session = owner.session_id
            async with asyncio.timeout(DEADLINE_S):
                await owner.wait_for(State.CONNECTED)
                there = await read_tree(owner)
            if before is not None:
                assert there == before, f"turn {number}, {who or 'zoolet'}"
            assert await owner.create("/counted/n-", b"", sequential=True) == f"/counted/n-{numbers:010d}"
            numbers += 1
            await change(owner, random, NODES_PER_TURN // TURNS, parents)
            before = await read_tree(owner)
            assert owner.session_id == session
    engine = recover_state(tmp_path)
    paths = {path for path, _ in engine.tree.walk()}
    assert before is not None
    assert paths == set(before)
    assert engine.tree.expiring
    assert owner is not None
    assert owner.session_id in engine.tree.ephemerals
    await owner.aclose()


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_apache_reads_directory_after_every_kind_of_zoolet_exit(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, release: str
) -> None:
    options = ("--data-dir", str(tmp_path), "-Dzoolet.fsync=interval")  # every start opens a new epoch
    with ApacheLoader(release) as apache:
        for number, how in enumerate([signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]):
            server = DaemonProcess(*options)
            server.process = server.start()
            with connected_client(server.hosts) as kazoo:
                kazoo.create(f"/n{number}")
            server.process.send_signal(how)
            server.process.communicate()

            nodes = sum(1 for _ in recover_state(tmp_path).tree.walk())
            assert apache.load(tmp_path, tmp_path_factory.mktemp("copy")) == nodes


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("method", ["", "gz", "snappy"] if FULL else ["snappy"])
def test_compressed_snapshots_of_apache_are_verified_and_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], release: str, method: str
) -> None:
    properties = {"zookeeper.snapshot.compression.method": method, "zookeeper.snapCount": "20"}
    with ApacheZooKeeper(release, config={"dataDir": str(tmp_path)}, properties=properties) as apache:
        with connected_client(apache.hosts) as kazoo:
            for number in range(60):
                kazoo.create(f"/n{number}", b"data" * 500 + Random(number).randbytes(500))
    snapshots = DataDir.find(tmp_path).snapshots.values()
    for path in snapshots:
        if not has_seal(path):  # an incomplete snapshot, which the killed server was still writing
            path.unlink()

    assert {path.suffix for path in snapshots} == {f".{method}"} or not method
    assert main(["datadir", "verify", str(tmp_path)]) == 0, capsys.readouterr().out
    tree = recover_state(tmp_path).tree
    for number in range(60):
        assert tree.find(f"/n{number}").data == b"data" * 500 + Random(number).randbytes(500)
