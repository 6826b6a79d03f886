"""The state of a server from a data directory: the newest snapshot that is valid, and what the logs have after it.

A snapshot is *fuzzy*: it may have effects of transactions that are later than its zxid. So a transaction of a log is
applied as far as the snapshot does not have it: a node that exists is not created again, and counters only grow.

Source: FileTxnSnapLog.restore, processTransaction; DataTree.processTxn.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zoolet.protocol import txns as t
from zoolet.protocol.acl import AclList
from zoolet.protocol.codec import Record
from zoolet.server.core.engine import Engine
from zoolet.server.core.node import Node
from zoolet.server.core.tree import RESERVED
from zoolet.server.storage import snapshot as snapshots
from zoolet.server.storage import txnlog
from zoolet.server.storage.errors import StorageError
from zoolet.server.storage.snapshot import OPEN_KEY, Snapshot, StoredNode, acl_of
from zoolet.server.storage.txnlog import LogEntry

SUBFOLDER: Final = "version-2"
"""Where the files are in a data directory."""
MOST_TRIED: Final = 100
"""How many snapshots are tried, the newest first."""
MAX_UNPACKED: Final = 1 << 34
"""The most bytes of a compressed snapshot that is unpacked."""


@dataclass
class DataDir:
    """The files of a data directory.

    Args:
        path: The directory.
        snapshots: The snapshots by zxid, the newest first.
        logs: The logs by the zxid of their first transaction, the oldest first.
        skipped: What is wrong with the snapshots that were not valid.
    """

    path: Path
    snapshots: dict[int, Path]
    logs: dict[int, Path]
    skipped: list[str] = field(default_factory=list)

    @classmethod
    def find(cls, path: str | Path) -> DataDir:
        """Return the files of a data directory, or of its subfolder ``version-2``.

        Raises:
            StorageError: It does not exist, or is no directory.
        """
        folder = Path(path)
        if not folder.is_dir():
            raise StorageError(str(path), "this is not a directory")
        inner = folder / SUBFOLDER
        files = sorted((inner if inner.is_dir() else folder).iterdir())
        found = {kind: dict(_named(files, kind)) for kind in ("snapshot", "log")}
        return cls(folder, dict(sorted(found["snapshot"].items(), reverse=True)), dict(sorted(found["log"].items())))

    def snapshot(self) -> Snapshot | None:
        """Return the newest valid snapshot; None if there are no files.

        Raises:
            StorageError: There are files, but no valid snapshot.
        """
        for zxid, path in list(self.snapshots.items())[:MOST_TRIED]:
            try:
                return snapshots.parse(read(path), zxid, str(path))
            except StorageError as error:
                self.skipped.append(str(error))
        if self.snapshots:
            raise StorageError(str(self.path), f"no snapshot is valid; {'; '.join(self.skipped)}")
        if self.logs:
            raise StorageError(str(self.path), "there is a log but no snapshot, so that what precedes it is missing")
        return None

    def entries(self, after: int) -> Iterator[LogEntry]:
        """Yield the transactions after a zxid, in order.

        Raises:
            StorageError: A log is damaged.
        """
        starts = list(self.logs)
        first = max((start for start in starts if start <= after), default=0)
        for start in starts:
            if start >= first:
                for entry in txnlog.parse(self.logs[start].read_bytes(), str(self.logs[start])):
                    if entry.header.zxid > after:
                        yield entry


def _named(files: list[Path], kind: str) -> Iterator[tuple[int, Path]]:
    for path in files:
        name, _, rest = path.name.partition(".")
        number = rest.partition(".")[0]
        if name == kind and number and not set(number) - set("0123456789abcdefABCDEF"):
            yield int(number, 16), path


def read(path: Path) -> bytes:
    """Return the bytes of a snapshot's file, decompressed.

    Raises:
        StorageError: It cannot be decompressed, or is compressed by something else than gzip.
    """
    if path.suffix == ".snappy":
        raise StorageError(str(path), "snapshots that are compressed with snappy are not supported; use gz or none")
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            data = stream.read(MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise StorageError(str(path), f"the gzip stream is damaged: {error}") from None
    if len(data) > MAX_UNPACKED:
        raise StorageError(str(path), f"it has more than {MAX_UNPACKED} bytes when it is unpacked")
    return data


@dataclass
class Recovered:
    """What was recovered.

    Args:
        zxid: The last zxid.
        snapshot_zxid: That of the snapshot; None without one.
        transactions: How many transactions of logs were applied.
        skipped: What is wrong with newer snapshots, which were not used.
    """

    zxid: int
    snapshot_zxid: int | None
    transactions: int
    skipped: list[str]


def recover(engine: Engine, path: str | Path) -> Recovered:
    """Load the state of a data directory into a new engine; nothing is written.

    Raises:
        StorageError: The directory, its snapshots or a log are not what they should be.
    """
    directory = DataDir.find(path)
    now, monotonic_ms = engine.now, engine.monotonic_ms
    snapshot = directory.snapshot()
    if snapshot is not None:
        _load(engine, snapshot)
    transactions = 0
    for entry in directory.entries(engine.zxid if snapshot is not None else -1):
        _apply(engine, entry)
        transactions += 1
    engine.set_time(now, monotonic_ms)
    for owner in [owner for owner in engine.tree.ephemerals if owner not in engine.sessions.alive]:
        for node_path in list(engine.tree.ephemerals[owner]):
            engine.tree.delete(node_path, engine.zxid)
    engine.quota.reload()
    return Recovered(engine.zxid, None if snapshot is None else snapshot.zxid, transactions, directory.skipped)


def _load(engine: Engine, snapshot: Snapshot) -> None:
    for stored in snapshot.nodes:
        acl = engine.acls.intern(acl_of(snapshot, stored.acl))
        node = Node(stored.data, acl, stored.owner, stored.czxid, stored.ctime)
        node.mzxid, node.mtime, node.pzxid = stored.mzxid, stored.mtime, stored.pzxid
        node.version, node.aversion, node.creates = stored.version, stored.aversion, stored.creates
        engine.tree.place(stored.path or "/", node)
    for session_id, timeout in snapshot.sessions.items():
        engine.sessions.open(session_id, timeout, engine.monotonic_ms)
    engine.zxid = snapshot.zxid


def _apply(engine: Engine, entry: LogEntry) -> None:
    header = entry.header
    engine.zxid = max(engine.zxid, header.zxid)
    engine.set_time(header.time, engine.monotonic_ms)
    for record in entry.records:
        _apply_record(engine, record, header.clientId)


def _apply_record(engine: Engine, record: Record, session_id: int) -> None:
    tree = engine.tree
    if isinstance(record, t.CreateTxn | t.CreateContainerTxn | t.CreateTTLTxn):
        parent = tree.get(record.path.rpartition("/")[0])
        if parent is None:
            return
        creates, pzxid = parent.creates, parent.pzxid
        if tree.get(record.path) is None:
            engine.apply(record, session_id)
        else:
            tree.set_acl(record.path, engine.acls.intern(record.acl or ()), tree.find(record.path).aversion)
        # A fuzzy snapshot may have counted this create already.
        count = creates + 1 if record.parentCVersion == -1 else record.parentCVersion
        tree.set_counters(parent, *((count, engine.zxid) if count > creates else (creates, pzxid)))
    elif isinstance(record, t.DeleteTxn):
        node, parent = tree.get(record.path), tree.get(record.path.rpartition("/")[0])
        pzxid = max(parent.pzxid, engine.zxid) if parent is not None else 0
        if node is not None and not node.children and record.path not in RESERVED:
            engine.apply(record, session_id)
        if parent is not None:
            tree.set_counters(parent, parent.creates, pzxid)
    elif isinstance(record, t.SetDataTxn | t.SetACLTxn):
        if tree.get(record.path) is not None:
            engine.apply(record, session_id)
    elif isinstance(record, t.CreateSessionTxn):
        if session_id not in engine.sessions.alive:
            engine.sessions.open(session_id, record.timeOut, engine.monotonic_ms)
    elif isinstance(record, t.CloseSessionTxn):
        for path in {**dict.fromkeys(record.paths2Delete), **dict.fromkeys(tree.ephemerals.get(session_id, ()))}:
            _apply_record(engine, t.DeleteTxn(path), session_id)
        if (session := engine.sessions.alive.get(session_id)) is not None:
            engine.sessions.close(session)


def snapshot_of(engine: Engine) -> Snapshot:
    """Return the state of an engine as a snapshot."""
    acls: dict[int, AclList] = {}
    nodes = []
    for path, node in engine.tree.walk():
        key = node.acl or OPEN_KEY
        if node.acl:
            acls[key] = engine.acls.list(node.acl)
        fields = (node.czxid, node.mzxid, node.ctime, node.mtime, node.version, node.creates, node.aversion)
        nodes.append(StoredNode("" if path == "/" else path, node.data, key, *fields, node.owner, node.pzxid))
    sessions = {session.id: session.timeout_ms for session in engine.sessions.alive.values()}
    return Snapshot(engine.zxid, nodes, sessions, acls)
