"""Snapshots: the whole tree, the sessions and the ACL lists at one zxid, as ZooKeeper writes them.

::

    header    "ZKSN", int version 2, long dbid
    sessions  int count, then id and timeout of each
    ACLs      int count, then key and list of each; key -1 is world:anyone with all permissions
    nodes     path, data, ACL key and StatPersisted of each, parents first; the root's path is empty
    end       "/"
    seal      long Adler-32 of all bytes before, "/"
    digest    long zxid, int version, long digest of the tree then, and a seal   (since 3.6)
    zxid      long zxid, and a seal                                              (since 3.9)

The zxid of the digest is that at the end of writing: a snapshot that was written while the tree changed may have
effects of transactions up to it. ZooKeeper's digests have version 2; a snapshot without a digest has another version.

Source: FileSnap, SerializeUtils, DataTree.serialize, DataTree.deserializeZxidDigest, DigestCalculator.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from zoolet.protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, AclList
from zoolet.protocol.errors import MarshallingError
from zoolet.server.storage.errors import StorageError

MAGIC: Final = b"ZKSN"
VERSION: Final = 2
NO_SNAPSHOT: Final = "this is not a snapshot: it does not begin with ZKSN"
REPORT_EVERY: Final = 1 << 14
"""Nodes or transactions between two reports of progress."""
NOBODY: Final[AclList] = (ACL(0, ANYONE),)
"""Stands for a list that a node has got while the snapshot was written: no permission, until the log has its list."""
OPEN_KEY: Final = -1
"""The key of the list that grants everything to everyone; it is not in the table."""
_HEADER = struct.Struct(">4siq")
_SESSION = struct.Struct(">qi")
_STAT = struct.Struct(">qqqqiiiqq")
_DIGESTED = struct.Struct(">qqqqqiiiq")
_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")
_DIGEST = struct.Struct(">qi")
DIGESTED: Final = 2
"""The version of digests that are known."""
UNDIGESTED: Final = 1 << 16
"""The version of a digest that is none, which ZooKeeper does not compare: what counts is its zxid."""
END: Final = b"\0\0\0\1/"
_SEAL = struct.Struct(">q5s")
_PIECE: Final = 1 << 20


class StoredNode(NamedTuple):
    """A node as it is stored.

    Args:
        path: Its path; empty for the root.
        data: Its data; None for null.
        acl: The key of its ACL list.
        czxid: The zxid of its creation.
        mzxid: The zxid of the last change of its data.
        ctime: When it was created, in milliseconds since the epoch.
        mtime: When its data was last changed.
        version: How often its data was changed.
        creates: How many children were created below it, ever: the number of the next sequential one.
        aversion: How often its ACL list was changed.
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
        """Return what it adds to the digest of the tree; nodes below ``/zookeeper`` add nothing."""
        if self.path.startswith("/zookeeper/"):
            return 0
        code = zlib.crc32(self.path.encode())
        if self.data is not None:
            code = zlib.crc32(self.data, code)
        fields = (self.czxid, self.mzxid, self.pzxid, self.ctime, self.mtime)
        return zlib.crc32(_DIGESTED.pack(*fields, self.version, self.creates, self.aversion, self.owner), code)


@dataclass
class Snapshot:
    """The content of a snapshot.

    Args:
        zxid: Its zxid, as the name of its file says.
        nodes: The nodes, parents first.
        sessions: The timeouts of the sessions in milliseconds, by id.
        acls: The ACL lists by key, without :data:`OPEN_KEY`.
        digest: The digest of the tree that it has, if that is of its zxid; None for none.
        seen: The last zxid when it had been written; 0 if that is not known.
    """

    zxid: int
    nodes: list[StoredNode]
    sessions: dict[int, int] = field(default_factory=dict)
    acls: dict[int, AclList] = field(default_factory=dict)
    digest: int | None = None
    seen: int = 0

    def newest_change(self) -> int:
        """Return the highest zxid of a transaction that it may have seen; it may be later than the snapshot's."""
        return max(self.seen, max((max(node.czxid, node.mzxid, node.pzxid) for node in self.nodes), default=0))

    def has_seen(self, zxid: int) -> bool:
        """Return whether a node shows that it was written after a transaction: it has a later one, or a list that it
        got after the snapshot was begun.
        """
        nobody = {key for key, acl in self.acls.items() if acl == NOBODY}
        return any(max(node.czxid, node.mzxid, node.pzxid) > zxid or node.acl in nobody for node in self.nodes)

    def computed_digest(self) -> int:
        """Return the digest of its nodes."""
        return sum(node.digest() for node in self.nodes) & 0xFFFFFFFFFFFFFFFF


# --- reading ---


class _Reader:
    """Reads values from bytes.

    Args:
        data: The bytes.
        where: The file, for errors.
    """

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.at = 0
        self._where = where

    def fail(self, reason: str) -> StorageError:
        return StorageError(self._where, f"{reason} (at byte {self.at})")

    def values(self, layout: struct.Struct) -> tuple[int, ...]:
        try:
            values = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise self.fail("the file ends early") from None
        self.at += layout.size
        return values

    def count(self, what: str, smallest: int) -> int:
        """Return the number of entries that follow, of which each has some bytes at least."""
        (count,) = self.values(_INT)
        if not 0 <= count <= (len(self.data) - self.at) // smallest:
            raise self.fail(f"invalid count of {what}: {count}")
        return count

    def buffer(self) -> bytes | None:
        (length,) = self.values(_INT)
        if length == -1:
            return None
        end = self.at + length
        if length < 0 or end > len(self.data):
            raise self.fail(f"invalid length: {length}")
        value = self.data[self.at : end]
        self.at = end
        return value

    def text(self) -> str:
        value = self.buffer()
        try:
            return (value or b"").decode()
        except UnicodeDecodeError:
            raise self.fail("text that is not UTF-8") from None

    def acl(self) -> AclList:
        entries = []
        for _ in range(self.count("ACLs", 12)):
            try:
                entry, self.at = ACL.read_from(self.data, self.at, len(self.data))
            except MarshallingError as error:
                raise self.fail(f"an ACL that cannot be read ({error})") from None
            entries.append(entry)
        return tuple(entries)

    def seal(self) -> None:
        """Check that what was read is what was written."""
        expected = zlib.adler32(memoryview(self.data)[: self.at])
        at = self.at
        (found,) = self.values(_LONG)
        if found != expected:
            reason = f"checksum mismatch in the bytes before {at}: {found:#x}, expected {expected:#x}"
            raise StorageError(self._where, reason)
        if self.data[self.at : self.at + 5] != END:
            raise self.fail("the end of the seal is missing")
        self.at += 5


def parse(data: bytes, zxid: int, where: str = "", progress: Callable[[str, int, int], None] | None = None) -> Snapshot:
    """Read a snapshot.

    Args:
        data: The bytes of its file, decompressed.
        zxid: The zxid in the name of the file.
        where: The file, for errors.
        progress: Receives how many bytes of how many were read, now and then.

    Raises:
        StorageError: It is damaged, or no snapshot.
    """
    reader = _Reader(data, where)
    if data[:4] != MAGIC:
        raise StorageError(where, NO_SNAPSHOT)
    _, version, _ = reader.values(_HEADER)
    if version != VERSION:
        raise StorageError(where, f"this is a snapshot of version {version}; known is {VERSION}")
    sessions: dict[int, int] = {}
    for _ in range(reader.count("sessions", 12)):
        session_id, timeout = reader.values(_SESSION)
        sessions[session_id] = timeout
    acls: dict[int, AclList] = {}
    for _ in range(reader.count("ACL lists", 12)):
        (key,) = reader.values(_LONG)
        acls[key] = reader.acl()
    nodes = []
    for node in _nodes(reader):
        nodes.append(node)
        if progress is not None and not len(nodes) % REPORT_EVERY:
            progress("bytes of the snapshot", reader.at, len(data))
    reader.seal()
    _check_nodes(nodes, acls, where)
    snapshot = Snapshot(zxid, nodes, sessions, acls)
    if reader.at < len(data):
        snapshot.seen, version = reader.values(_DIGEST)
        if version < 2:
            reader.text()  # the hexadecimal digest of 3.6.0
        else:
            (digest,) = reader.values(_LONG)
            if version == DIGESTED and snapshot.seen == zxid:
                snapshot.digest = digest & 0xFFFFFFFFFFFFFFFF
        reader.seal()
    if reader.at < len(data):
        reader.values(_LONG)
        reader.seal()
    return snapshot


def _nodes(reader: _Reader) -> Iterator[StoredNode]:
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
            raise StorageError(where, f"{node.path}: its parent is not before it")
        if node.path in known:
            raise StorageError(where, f"{node.path or '/'} is there twice")
        if node.acl != OPEN_KEY and node.acl not in acls:
            raise StorageError(where, f"{node.path or '/'}: its ACL list, number {node.acl}, is missing")
        known.add(node.path)
    if "" not in known:
        raise StorageError(where, "the root is missing")


# --- writing ---


class _Seals:
    """Yields bytes, and the checksum of all that it has yielded."""

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
    """Yield the bytes of a snapshot, piece by piece.

    Args:
        snapshot: Its content.
        digest: Whether it has the section of 3.6.
        last_zxid: Whether it has the section of 3.9; older releases ignore it.
    """
    seals = _Seals()
    yield from seals.sealed([*_tables(snapshot), *map(_encode_node, snapshot.nodes), END])
    if digest:
        yield from seals.sealed([_DIGEST.pack(snapshot.zxid, DIGESTED) + struct.pack(">Q", snapshot.computed_digest())])
    if last_zxid:
        yield from seals.sealed([_LONG.pack(snapshot.zxid)])


def encode_growing(tables: Snapshot, nodes: Iterable[StoredNode], last_zxid: Callable[[], int]) -> Iterator[bytes]:
    """Yield the bytes of a snapshot of a tree that changes meanwhile, one piece for each node.

    It has no digest of the tree, for there is no zxid whose tree it is.

    Args:
        tables: The zxid, the sessions and the ACL lists; its nodes are not used.
        nodes: The nodes.
        last_zxid: Returns the zxid of the last change; it is asked for when all nodes are written.
    """
    seals = _Seals()
    yield from seals.counted(_tables(tables))
    yield from seals.counted(map(_encode_node, nodes))
    yield from seals.sealed([END])
    yield from seals.sealed([_DIGEST.pack(max(tables.zxid, last_zxid()), UNDIGESTED) + _LONG.pack(0)])
    yield from seals.sealed([_LONG.pack(tables.zxid)])


def _tables(snapshot: Snapshot) -> Iterator[bytes]:
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
    """Return whether the last seal of a snapshot's file is right: then all its bytes are as they were written.

    Raises:
        OSError: The file cannot be read.
    """
    checksum, last = 1, b""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            if not (last := stream.read(_PIECE)).startswith(MAGIC):
                return False
            while piece := stream.read(_PIECE):
                checksum = zlib.adler32(last[: -_SEAL.size], checksum)
                last = last[-_SEAL.size :] + piece
    except (EOFError, zlib.error, gzip.BadGzipFile):
        return False
    checksum = zlib.adler32(last[: -_SEAL.size], checksum)
    return len(last) >= _SEAL.size and last[-_SEAL.size :] == _SEAL.pack(checksum, END)


def acl_of(snapshot: Snapshot, key: int) -> AclList:
    """Return the ACL list with a key."""
    return OPEN_ACL_UNSAFE if key == OPEN_KEY else snapshot.acls[key]
