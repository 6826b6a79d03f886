"""Recovery from the newest snapshot and the logs after it, including files of a real ZooKeeper."""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from kazoo.client import KazooClient
from support.apache import ApacheZooKeeper, require_apache
from support.command import zoolet
from support.kazoo_clients import connected_client

from zoolet.protocol import txns as t
from zoolet.protocol.acl import OPEN_ACL_UNSAFE
from zoolet.protocol.codec import Record
from zoolet.server.config import build
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import RECORDS
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage import txnlog
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.live import take_snapshot
from zoolet.server.storage.recovery import RecoveryResult, recover
from zoolet.server.storage.snapshot import Snapshot, StoredNode
from zoolet.testing import Server, Znode
from zoolet.testing.control.values import parse_tree

SESSION: Final = 0x100000000000001
ROOT: Final = StoredNode("", b"", -1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
TYPES: Final = {kind: code for code, kind in reversed(RECORDS.items())}


def engine() -> Engine:
    """Return a new engine."""
    return Engine(build().settings, now=5, monotonic_ms=5, rng=Random(0))


def header(zxid: int, record: Record, session: int = SESSION) -> t.TxnHeader:
    """Return the header of a transaction."""
    return t.TxnHeader(session, 1, zxid, 1000 + zxid, TYPES[type(record)])


def entry(zxid: int, record: Record) -> bytes:
    """Return an entry of a log with a tree digest, like ZooKeeper since 3.6."""
    body = header(zxid, record).encode() + record.encode() + struct.pack(">iQ", 2, 7)
    return struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B"


def create(path: str, count: int = 1, *, ephemeral: bool = False) -> t.CreateTxn:
    """Return the record of a create."""
    return t.CreateTxn(path, b"x", OPEN_ACL_UNSAFE, ephemeral, count)


def write(folder: Path, *records: Record, snapshot: Snapshot | None = None, first: int = 1) -> Path:
    """Write a snapshot, and a log with records that start at a zxid. Return the log."""
    inner = folder / "version-2"
    inner.mkdir(exist_ok=True)
    snapshot = snapshot or Snapshot(0, [ROOT])
    (inner / f"snapshot.{snapshot.zxid:x}").write_bytes(b"".join(snapshots.encode(snapshot)))
    log = inner / f"log.{first:x}"
    entries = [entry(first + number, record) for number, record in enumerate(records)]
    log.write_bytes(txnlog.encode_header() + b"".join(entries) + bytes(1000))
    return log


def recover_folder(folder: Path) -> tuple[Engine, RecoveryResult]:
    """Recover a data directory."""
    server = engine()
    return server, recover(server, folder)


def test_transactions_keep_their_zxids_and_times(tmp_path: Path) -> None:
    write(
        tmp_path,
        t.CreateSessionTxn(30_000),
        create("/a"),
        t.SetDataTxn("/a", b"2", 1),
        create("/a/e", ephemeral=True),
        t.CreateTTLTxn("/ttl", b"", OPEN_ACL_UNSAFE, 2, 60_000),
        t.CreateContainerTxn("/box", b"", OPEN_ACL_UNSAFE, 3),
        create("/gone", 4),
        t.DeleteTxn("/gone"),
        t.SetACLTxn("/a", OPEN_ACL_UNSAFE, 1),
    )

    server, result = recover_folder(tmp_path)

    assert (result.zxid, result.snapshot_zxid, result.transactions) == (9, 0, 9)
    node = server.tree.find("/a")
    assert (node.data, node.version, node.aversion, node.czxid, node.mzxid, node.mtime) == (b"2", 1, 1, 2, 3, 1003)
    assert [path for path, _ in server.tree.walk() if not path.startswith("/zookeeper")] == [
        "/", "/a", "/a/e", "/ttl", "/box",
    ]  # fmt: skip
    assert server.tree.root.creates == 4
    assert list(server.sessions.alive) == [SESSION]
    assert (server.now, server.monotonic_ms) == (5, 5)


def test_recovery_reports_transactions_phase_before_first_one(tmp_path: Path) -> None:
    write(tmp_path, create("/a"), create("/b", 2))
    reports: list[tuple[str, int, int]] = []

    recover(engine(), tmp_path, progress=lambda *report: reports.append(report))

    assert reports == [("nodes", 0, 1), ("transactions", 0, 0)]


def test_recovery_applies_only_newer_transactions_once(tmp_path: Path) -> None:
    nodes = [ROOT._replace(creates=2, pzxid=3), StoredNode("/a", b"new", -1, 1, 3, 0, 0, 2, 0, 0, 0, 1)]
    fuzzy = Snapshot(1, nodes)  # the fuzzy snapshot already contains transaction 3
    write(tmp_path, create("/a"), create("/b", 2), t.SetDataTxn("/a", b"new", 2), create("/a", 2), snapshot=fuzzy)

    server, result = recover_folder(tmp_path)

    assert result.transactions == 3
    assert server.tree.find("/a").data == b"new"
    assert (server.tree.root.creates, server.tree.root.pzxid) == (2, 3)  # unchanged from the snapshot
    assert server.tree.get("/b") is not None


def test_counters_of_snapshot_grow_with_transactions_of_log(tmp_path: Path) -> None:
    snapshot = Snapshot(5, [ROOT._replace(creates=2, pzxid=5)])
    write(tmp_path, create("/a", 7), create("/b", -1), t.DeleteTxn("/gone"), snapshot=snapshot, first=6)

    server, _ = recover_folder(tmp_path)

    assert (server.tree.root.creates, server.tree.root.pzxid) == (8, 8)


def test_delete_seen_by_fuzzy_snapshot_keeps_counters(tmp_path: Path) -> None:
    later = [t.ErrorTxn(-101)] * 3
    write(tmp_path, t.DeleteTxn("/gone"), *later, snapshot=Snapshot(5, [ROOT._replace(creates=2, pzxid=9)]), first=6)

    server, _ = recover_folder(tmp_path)

    assert (server.tree.root.creates, server.tree.root.pzxid) == (2, 9)


def test_multi_is_applied_whole_or_not_at_all(tmp_path: Path) -> None:
    def part(record: Record) -> t.Txn:
        return t.Txn(TYPES[type(record)], record.encode())

    good = t.MultiTxn([part(create("/a")), part(t.CheckVersionTxn("/a", 0)), part(create("/b", 2))])
    failed = t.MultiTxn([part(create("/c", 3)), part(t.ErrorTxn(-103))])
    write(tmp_path, good, failed, t.ErrorTxn(-101))

    server, result = recover_folder(tmp_path)

    assert (result.zxid, server.tree.size) == (3, 6)
    assert server.tree.get("/c") is None


@pytest.mark.parametrize("digest", [b"", struct.pack(">iQ", 2, 7)], ids=["without a digest", "with one"])
def test_session_close_before_3_6_may_have_no_record(digest: bytes) -> None:
    ended = header(1, t.CloseSessionTxn([]))
    body = ended.encode() + digest
    data = txnlog.encode_header() + struct.pack(">qi", zlib.adler32(body), len(body)) + body + b"B"

    assert list(txnlog.Log(data)) == [txnlog.LogEntry(ended, (t.CloseSessionTxn([]),))]


def test_ephemerals_without_session_are_deleted(tmp_path: Path) -> None:
    nodes = [ROOT, StoredNode("/unknown", b"", -1, 1, 1, 0, 0, 0, 0, 0, 99, 1)]
    write(
        tmp_path,
        t.CreateSessionTxn(30_000),
        create("/mine", ephemeral=True),
        t.CloseSessionTxn(["/mine"]),
        snapshot=Snapshot(0, nodes),
    )

    server, _ = recover_folder(tmp_path)

    assert (server.tree.size, dict(server.sessions.alive), dict(server.tree.ephemerals)) == (4, {}, {})


@pytest.mark.parametrize("later", [(), (t.DeleteTxn("/a/b"), t.DeleteTxn("/a"))], ids=["no more", "deletes"])
def test_child_of_ephemeral_is_deleted_with_parent(tmp_path: Path, later: tuple[Record, ...]) -> None:
    children = create("/a/b"), create("/a/c", ephemeral=True)
    write(
        tmp_path, t.CreateSessionTxn(30_000), create("/a", ephemeral=True), *children, t.CloseSessionTxn(["/a"]), *later
    )

    server, _ = recover_folder(tmp_path)

    assert [path for path, _ in server.tree.walk()] == ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"]
    assert (server.tree.size, dict(server.tree.ephemerals)) == (4, {})


def test_incomplete_last_transaction_is_left_out(tmp_path: Path) -> None:
    log = write(tmp_path, create("/a"), create("/b", 2))
    data = log.read_bytes().rstrip(b"\0")
    first = txnlog.encode_header() + entry(1, create("/a"))
    for end in range(len(data)):
        log.write_bytes(data[:end])
        server = engine()
        try:
            transactions = recover(server, tmp_path).transactions
        except StorageError:
            assert end < 4  # not even the magic number is complete
            continue
        assert transactions == (1 if end >= len(first) else 0)


def test_transaction_with_flipped_bit_is_never_applied(tmp_path: Path) -> None:
    log = write(tmp_path, create("/a"), create("/b", 2))
    data = log.read_bytes().rstrip(b"\0")
    for place in range(16, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1
        log.write_bytes(damaged)
        server = engine()
        with suppress(StorageError):
            recover(server, tmp_path)
        assert server.tree.size in (4, 5)  # never the second node: it is damaged, or after the damage
        assert server.tree.get("/b") is None


def test_directory_without_snapshot_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="no snapshots or transaction logs in"):
        recover_folder(tmp_path)
    log = write(tmp_path, create("/a"))
    (log.parent / "snapshot.0").unlink()
    with pytest.raises(StorageError, match="found a log but no snapshot"):
        recover_folder(tmp_path)


@pytest.mark.parametrize("data", [b"ZKSN" + bytes(20), b"hello"])
def test_file_that_is_not_a_log_is_refused(tmp_path: Path, data: bytes) -> None:
    write(tmp_path).write_bytes(data)

    with pytest.raises(StorageError, match=r"log\.1: "):
        recover_folder(tmp_path)


# --- with a real ZooKeeper ---


def create_nodes_of_all_kinds(hosts: str) -> dict[str, Any]:
    """Create nodes of all kinds. Return a client's view of the nodes."""
    with connected_client(hosts) as zk:
        rng = Random(5)
        zk.create("/app")
        for number in range(200):
            zk.create(f"/app/n{number}", rng.randbytes(rng.randrange(50)))
        for number in range(0, 200, 3):
            zk.set(f"/app/n{number}", b"changed")
        for number in range(0, 200, 7):
            zk.delete(f"/app/n{number}")
        for _ in range(5):
            zk.create("/app/seq-", sequence=True)
        transaction = zk.transaction()
        transaction.create("/multi", b"1")
        transaction.create("/multi/child")
        transaction.commit()
        seen = read_nodes(zk)
    return seen


def read_nodes(zk: KazooClient) -> dict[str, Any]:
    """Return the data and Stat of all nodes outside /zookeeper, by path."""
    seen, pending = {}, ["/"]
    while pending:
        path = pending.pop()
        if path != "/zookeeper":
            seen[path] = zk.get(path)
            pending += [f"{path.rstrip('/')}/{name}" for name in zk.get_children(path)]
    return seen


@pytest.mark.slow
def test_files_of_apache_are_recovered(tmp_path: Path) -> None:
    require_apache()
    with ApacheZooKeeper(config={"dataDir": str(tmp_path)}) as apache:
        seen = create_nodes_of_all_kinds(apache.hosts)

    with Server(data_dir=tmp_path, config={"maxSessionTimeout": 60000}) as server:
        with connected_client(server.hosts) as zk:
            found = read_nodes(zk)
            assert zk.create("/app/seq-", sequence=True) == "/app/seq-0000000205"
    assert found == seen


@pytest.mark.slow
def test_apache_starts_with_files_of_zoolet(tmp_path: Path) -> None:
    require_apache()
    with Server(seed=1) as server:
        seen = create_nodes_of_all_kinds(server.hosts)
        server.populate({"/box": Znode(container=True), "/null": Znode(None)})
        seen_here = set(server.tree())
        snapshot = server._runner.call(lambda: take_snapshot(server._engine))
    (tmp_path / "version-2").mkdir()
    (tmp_path / "version-2" / f"snapshot.{snapshot.zxid:x}").write_bytes(b"".join(snapshots.encode(snapshot)))

    with ApacheZooKeeper(config={"dataDir": str(tmp_path)}) as apache:
        with connected_client(apache.hosts) as zk:
            found = read_nodes(zk)
            assert zk.create("/app/seq-", sequence=True) == "/app/seq-0000000205"
    assert {path: found[path] for path in seen if path != "/"} == {path: seen[path] for path in seen if path != "/"}
    assert seen_here <= set(found)


# --- zoolet datadir ---


def datadir(*words: object) -> subprocess.CompletedProcess[str]:
    """Run ``zoolet datadir``."""
    return zoolet("datadir", *words)


@pytest.mark.slow
def test_datadir_command_shows_verifies_and_exports(tmp_path: Path) -> None:
    log = write(tmp_path, t.CreateSessionTxn(5000), create("/a"), create("/a/e", ephemeral=True))

    shown = datadir("show", tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "zxid            0x3\n" in shown.stdout
    assert "nodes           7, of which 1 ephemeral, 0 container or TTL\n" in shown.stdout
    assert datadir("export", tmp_path).stderr == "zoolet datadir: 1 ephemeral node left out\n"
    assert dict(parse_tree(json.loads(datadir("export", tmp_path).stdout))) == {"/a": Znode(b"x", children_created=1)}
    assert "log.1: 3 transactions, 0x1 to 0x3" in datadir("verify", tmp_path).stdout

    log.write_bytes(log.read_bytes().replace(b"/a/e", b"/a/f"))
    verified = datadir("verify", tmp_path)
    assert verified.returncode == 1
    assert "INVALID: 2 transactions, then 102 invalid bytes from byte 177" in verified.stdout
    assert datadir("show", tmp_path).returncode == 1
    nowhere = datadir("show", "/nowhere")
    assert (nowhere.returncode, nowhere.stderr) == (2, "zoolet datadir: /nowhere does not exist\n")
