"""The format of snapshots, which contain the tree, the sessions and the ACL lists at one zxid, as in ZooKeeper.

::

    header    "ZKSN", int version 2, long dbid
    sessions  int count, then id and timeout of each
    ACLs      int count, then key and list of each; key -1 means world:anyone with all permissions
    nodes     path, data, ACL key and StatPersisted of each, parents first; the root's path is empty
    end       "/"
    seal      long Adler-32 of all bytes before, "/"
    digest    long zxid, int version, long digest of the tree then, and a seal   (since 3.6)
    zxid      long zxid, and a seal                                              (since 3.9)

The zxid in the section of the digest is the last zxid when the writing ended. If the tree changed during the writing,
the snapshot may contain effects of transactions up to that zxid. ZooKeeper's digests have version 2. A different
version means that the snapshot has no digest.

Source: FileSnap, SerializeUtils, DataTree.serialize, DataTree.deserializeZxidDigest, DigestCalculator.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ...protocol.acl import ACL, OPEN_ACL_UNSAFE, AclList
from ...protocol.errors import MarshallingError
from ...protocol.txns import DIGEST_VERSION
from ..core.acls import NOBODY, SNAPSHOT_OPEN_KEY
from ..core.digest import node_digest
from .compression import pieces
from .errors import StorageError

MAGIC: Final = b"ZKSN"
VERSION: Final = 2
NO_SNAPSHOT: Final = "not a snapshot: the data does not start with ZKSN"
REPORT_EVERY: Final = 1 << 14
"""Nodes or transactions between two reports of progress."""
_HEADER = struct.Struct(">4siq")
_SESSION = struct.Struct(">qi")
_STAT = struct.Struct(">qqqqiiiqq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DIGEST = struct.Struct(">qi")
NO_DIGEST_VERSION: Final = 1 << 16
"""The version for a snapshot without a digest. ZooKeeper does not compare such a digest, and uses only its zxid."""
END: Final = b"\0\0\0\1/"
_SEAL = struct.Struct(">q5s")


class StoredNode(NamedTuple):
    """A node in a snapshot.

    Args:
        path: The path; empty for the root.
        data: The data; None for null.
        acl: The key of the ACL list.
        czxid: The zxid of the creation.
        mzxid: The zxid of the last change of the data.
        ctime: The time of the creation, in milliseconds since the epoch.
        mtime: The time of the last change of the data, in milliseconds since the epoch.
        version: Number of changes of the data.
        creates: Number of children that were ever created, and so the number of the next sequential child.
        aversion: Number of changes of the ACL list.
        owner: 0, a session id, or the code of a container or a TTL.
        pzxid: The zxid of the last create or delete of a child.
    """

    path: str
    data: bytes | None
    acl: int
    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    creates: int
    aversion: int
    owner: int
    pzxid: int

    def digest(self) -> int:
        """Return the node's share of the digest of the tree; 0 for nodes below ``/zookeeper``."""
        fields = (self.czxid, self.mzxid, self.pzxid, self.ctime, self.mtime)
        return node_digest(self.path, self.data, *fields, self.version, self.creates, self.aversion, self.owner)


@dataclass
class Snapshot:
    """The content of a snapshot.

    Args:
        zxid: The zxid in the name of the file.
        nodes: The nodes, parents first.
        sessions: The timeouts of the sessions in milliseconds, by id.
        acls: The ACL lists by key, without :data:`SNAPSHOT_OPEN_KEY`.
        digest: The stored digest of the tree, if it belongs to *zxid*; otherwise None.
        seen: The last zxid when the writing ended; 0 if it is unknown.
    """

    zxid: int
    nodes: list[StoredNode]
    sessions: dict[int, int] = field(default_factory=dict)
    acls: dict[int, AclList] = field(default_factory=dict)
    digest: int | None = None
    seen: int = 0

    def newest_change(self) -> int:
        """Return the highest zxid whose effects the snapshot may contain. It may be higher than its own zxid."""
        return max(self.seen, max((max(node.czxid, node.mzxid, node.pzxid) for node in self.nodes), default=0))

    def has_seen(self, zxid: int) -> bool:
        """Return whether a node proves that the snapshot was still being written after a transaction.

        Such a node has a later zxid, or an ACL list that was set after the start of the snapshot.
        """
        nobody = {key for key, acl in self.acls.items() if acl == NOBODY}
        return any(max(node.czxid, node.mzxid, node.pzxid) > zxid or node.acl in nobody for node in self.nodes)

    def computed_digest(self) -> int:
        """Return the digest computed from the nodes."""
        return sum(node.digest() for node in self.nodes) & 0xFFFFFFFFFFFFFFFF


# --- reading ---


class _Reader:
    """A reader of values from the bytes of a snapshot.

    Args:
        data: The bytes.
        where: The file, for errors.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.at = 0
        self._where = where

    def make_error(self, reason: str) -> StorageError:
        return StorageError(self._where, f"{reason} (at byte {self.at})")

    def values(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise self.make_error("unexpected end of the snapshot") from None
        self.at += layout.size
        return values

    def count(self, what: str, smallest: int) -> int:
        """Read the number of the following entries. Each must have at least *smallest* bytes.

        Raises:
            StorageError: The file is too short for this number.
        """
        (count,) = self.values(_INT)
        if not 0 <= count <= (len(self.data) - self.at) // smallest:
            raise self.make_error(f"invalid count of {what}: {count}")
        return count

    def buffer(self) -> bytes | None:
        (length,) = self.values(_INT)
        if length == -1:
            return None
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise self.make_error(f"invalid length: {length}")
        value = self.data[self.at : end]
        self.at = end
        return value

    def text(self) -> str:
        value = self.buffer()
        try:
            return (value or b"").decode()
        except UnicodeDecodeError:
            raise self.make_error("text is not valid UTF-8") from None

    def acl(self) -> AclList:
        entries = []
        for _ in range(self.count("ACLs", 12)):
            try:
                entry, self.at = ACL.read_from(self.data, self.at, len(self.data))
            except MarshallingError as error:
                raise self.make_error(f"invalid ACL: {error}") from None
            entries.append(entry)
        return tuple(entries)

    def check_seal(self) -> None:
        """Read a seal, and check that it is the checksum of all bytes before it.

        Raises:
            StorageError: The checksum or the end marker is wrong.
        """
        expected = zlib.adler32(memoryview(self.data)[: self.at])
        at = self.at
        (found,) = self.values(_LONG)
        if found != expected:
            reason = f"checksum mismatch in the bytes before {at}: {found:#x}, expected {expected:#x}"
            raise StorageError(self._where, reason)
        if self.data[self.at : self.at + 5] != END:
            raise self.make_error("missing end marker after the checksum")
        self.at += 5


def parse(data: bytes, zxid: int, where: str = "", progress: Callable[[str, int, int], None] | None = None) -> Snapshot:
    """Read a snapshot.

    Args:
        data: The content of the file, decompressed.
        zxid: The zxid in the name of the file.
        where: The file, for errors.
        progress: A function that periodically receives the number of bytes that were read, and the total.

    Raises:
        StorageError: The data is damaged, or is not a snapshot.
    """
    reader = _Reader(data, where)
    if data[:4] != MAGIC:
        raise StorageError(where, NO_SNAPSHOT)
    _, version, _ = reader.values(_HEADER)
    if version != VERSION:
        raise StorageError(where, f"unsupported snapshot version: expected {VERSION}, found {version}")
    sessions: dict[int, int] = {}
    for _ in range(reader.count("sessions", 12)):
        session_id, timeout = reader.values(_SESSION)
        sessions[session_id] = timeout
    acls: dict[int, AclList] = {}
    for _ in range(reader.count("ACL lists", 12)):
        (key,) = reader.values(_LONG)
        acls[key] = reader.acl()
    nodes = []
    for node in _read_nodes(reader):
        nodes.append(node)
        if progress is not None and not len(nodes) % REPORT_EVERY:
            progress("bytes of the snapshot", reader.at, len(data))
    reader.check_seal()
    _check_nodes(nodes, acls, where)
    snapshot = Snapshot(zxid, nodes, sessions, acls)
    if reader.at < len(data):
        snapshot.seen, version = reader.values(_DIGEST)
        if version < 2:
            reader.text()  # the digest of 3.6.0 is hexadecimal text
        else:
            (digest,) = reader.values(_LONG)
            if version == DIGEST_VERSION and snapshot.seen == zxid:
                snapshot.digest = digest & 0xFFFFFFFFFFFFFFFF
        reader.check_seal()
    if reader.at < len(data):
        reader.values(_LONG)
        reader.check_seal()
    if reader.at < len(data):
        raise reader.make_error("unexpected data after the end of the snapshot")
    return snapshot


def _read_nodes(reader: _Reader) -> Iterator[StoredNode]:
    data = reader.data
    while data[reader.at : reader.at + 5] != END:
        path = reader.text()
        content = reader.buffer()
        (key,) = reader.values(_LONG)
        czxid, mzxid, ctime, mtime, version, creates, aversion, owner, pzxid = reader.values(_STAT)
        yield StoredNode(path, content, key, czxid, mzxid, ctime, mtime, version, creates, aversion, owner, pzxid)
    reader.at += 5


def _check_nodes(nodes: list[StoredNode], acls: Mapping[int, AclList], where: str) -> None:
    known: set[str] = set()
    for node in nodes:
        parent = node.path.rpartition("/")[0]
        if node.path and (not node.path.startswith("/") or parent not in known):
            raise StorageError(where, f"node {node.path} does not follow its parent")
        if node.path in known:
            raise StorageError(where, f"duplicate node {node.path or '/'}")
        if node.acl != SNAPSHOT_OPEN_KEY and node.acl not in acls:
            raise StorageError(where, f"node {node.path or '/'} refers to ACL list {node.acl}, which is missing")
        known.add(node.path)
    if "" not in known:
        raise StorageError(where, "the root node is missing")


# --- writing ---


class _SealWriter:
    """A writer of sections with seals, whose checksum covers all bytes that were yielded before."""

    def __init__(self) -> None:
        self._checksum = 1

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self._checksum = zlib.adler32(piece, self._checksum)
            yield piece

    def sealed(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield from self.counted(pieces)
        yield from self.counted([_LONG.pack(self._checksum) + END])


def encode(snapshot: Snapshot, *, digest: bool = True, last_zxid: bool = True) -> Iterator[bytes]:
    """Yield the bytes of a snapshot in pieces.

    Args:
        snapshot: The content.
        digest: Whether to include the section that ZooKeeper 3.6 introduced.
        last_zxid: Whether to include the section that ZooKeeper 3.9 introduced. Older releases ignore this section.
    """
    seals = _SealWriter()
    yield from seals.sealed([*_encode_tables(snapshot), *map(_encode_node, snapshot.nodes), END])
    if digest:
        yield from seals.sealed(
            [_DIGEST.pack(snapshot.zxid, DIGEST_VERSION) + struct.pack(">Q", snapshot.computed_digest())]
        )
    if last_zxid:
        yield from seals.sealed([_LONG.pack(snapshot.zxid)])


def encode_changing(tables: Snapshot, nodes: Iterable[StoredNode], last_zxid: Callable[[], int]) -> Iterator[bytes]:
    """Yield the bytes of a snapshot of a tree that may change during the iteration, one piece per node.

    The snapshot has no tree digest, because it does not show the tree at any single zxid.

    Args:
        tables: The zxid, the sessions and the ACL lists. The nodes in it are ignored.
        nodes: The nodes.
        last_zxid: A function that returns the zxid of the last change. It is called after all nodes have been yielded.
    """
    seals = _SealWriter()
    yield from seals.counted(_encode_tables(tables))
    yield from seals.counted(map(_encode_node, nodes))
    yield from seals.sealed([END])
    yield from seals.sealed([_DIGEST.pack(max(tables.zxid, last_zxid()), NO_DIGEST_VERSION) + _LONG.pack(0)])
    yield from seals.sealed([_LONG.pack(tables.zxid)])


def _encode_tables(snapshot: Snapshot) -> Iterator[bytes]:
    yield _HEADER.pack(MAGIC, VERSION, -1)
    yield _INT.pack(len(snapshot.sessions))
    for entry in snapshot.sessions.items():
        yield _SESSION.pack(*entry)
    yield _INT.pack(len(snapshot.acls))
    for key, acl in snapshot.acls.items():
        yield _LONG.pack(key) + _INT.pack(len(acl)) + b"".join(entry.encode() for entry in acl)


def _encode_node(node: StoredNode) -> bytes:
    path = node.path.encode()
    data = _INT.pack(-1) if node.data is None else _INT.pack(len(node.data)) + node.data
    return b"".join([_INT.pack(len(path)), path, data, _LONG.pack(node.acl), _STAT.pack(*node[3:])])


def has_seal(path: Path) -> bool:
    """Return whether the last seal of a snapshot file is correct, which proves that the file is complete and undamaged.

    Raises:
        OSError: The file cannot be read.
    """
    checksum, last = 1, b""
    try:
        for piece in pieces(path):
            if not last and not piece.startswith(MAGIC):
                return False
            checksum = zlib.adler32(last[: -_SEAL.size], checksum)
            last = last[-_SEAL.size :] + piece
    except StorageError:
        return False
    checksum = zlib.adler32(last[: -_SEAL.size], checksum)
    return len(last) >= _SEAL.size and last[-_SEAL.size :] == _SEAL.pack(checksum, END)


def is_truncated(path: Path) -> bool:
    """Return whether a snapshot file is incomplete or zeroed at its start, because the writing was interrupted."""
    begin = b""
    with suppress(StorageError):
        begin = next(pieces(path), b"")[:8]
    return (_HEADER.pack(MAGIC, VERSION, 0).startswith(begin) or not any(begin)) and not has_seal(path)


def find_acl(snapshot: Snapshot, key: int) -> AclList:
    """Return the ACL list that *key* refers to in a snapshot."""
    return OPEN_ACL_UNSAFE if key == SNAPSHOT_OPEN_KEY else snapshot.acls[key]
