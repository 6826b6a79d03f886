"""Transaction logs: one entry for each write, in the order of their zxids, as ZooKeeper writes them.

::

    header   "ZKLG", int version 2, long dbid
    entries  long Adler-32 of the entry, int length, TxnHeader, record, [int version 2, long digest], "B"
    padding  zeros: the length 0 is the end

An entry that was being written when the machine stopped ends the log; what precedes it counts.

Source: FileTxnLog, SerializeUtils.deserializeTxn.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.operations import OpCode
from zoolet.server.storage.errors import StorageError

MAGIC: Final = b"ZKLG"
ERROR: Final = -1
"""The type of a write that failed: it has a zxid and changes nothing."""
_HEADER = struct.Struct(">4siq")
_ENTRY = struct.Struct(">qi")
RECORDS: Final[dict[int, type[Record]]] = {
    int(OpCode.CREATE_SESSION): t.CreateSessionTxn,
    int(OpCode.CLOSE_SESSION): t.CloseSessionTxn,
    int(OpCode.CREATE): t.CreateTxn,
    int(OpCode.CREATE2): t.CreateTxn,
    int(OpCode.CREATE_CONTAINER): t.CreateContainerTxn,
    int(OpCode.CREATE_TTL): t.CreateTTLTxn,
    int(OpCode.DELETE): t.DeleteTxn,
    int(OpCode.DELETE_CONTAINER): t.DeleteTxn,
    int(OpCode.SET_DATA): t.SetDataTxn,
    int(OpCode.RECONFIG): t.SetDataTxn,
    int(OpCode.SET_ACL): t.SetACLTxn,
    int(OpCode.CHECK): t.CheckVersionTxn,
    ERROR: t.ErrorTxn,
    int(OpCode.MULTI): t.MultiTxn,
}
"""The records of the types of transactions."""


class LogEntry(NamedTuple):
    """One transaction.

    Args:
        header: Session, zxid, time and type.
        records: What it did, in order; empty for a write that failed. A close of a session has its record, which is
            empty in logs of 3.5 and before.
    """

    header: t.TxnHeader
    records: tuple[Record, ...]


def parse(data: bytes, where: str = "") -> Iterator[LogEntry]:
    """Yield the transactions of a log, up to its end or to one that was not written completely.

    Args:
        data: The bytes of the file.
        where: The file, for errors.

    Raises:
        StorageError: It is no log, or an entry is damaged.
    """
    if not data:
        return  # it was created, and nothing was written
    if data[:4] != MAGIC:
        raise StorageError(where, "this is not a transaction log: it does not begin with ZKLG")
    at = _HEADER.size
    while at + _ENTRY.size <= len(data):
        checksum, length = _ENTRY.unpack_from(data, at)
        start, end = at + _ENTRY.size, at + _ENTRY.size + length
        if length == 0:
            return
        if length < 0:
            raise StorageError(where, f"a length of {length} cannot be, at byte {at + 8}")
        if end >= len(data) or data[end] != 0x42:
            return  # the last one was not written completely
        if zlib.adler32(memoryview(data)[start:end]) != checksum:
            raise StorageError(where, f"the checksum of the transaction at byte {at} is wrong")
        try:
            yield _entry(data, start, end)
        except MarshallingError as error:
            raise StorageError(where, f"the transaction at byte {at} cannot be read: {error}") from None
        at = end + 1


def encode_header() -> bytes:
    """Return the beginning of a log."""
    return _HEADER.pack(MAGIC, 2, 0)


def encode(header: t.TxnHeader, record: Record, digest: int | None = None) -> bytes:
    """Return the bytes of a transaction.

    Args:
        header: Its header.
        record: What it did.
        digest: The digest of the tree after it; None for none.
    """
    body = header.encode() + record.encode()
    if digest is not None:
        body += struct.pack(">iQ", 2, digest)
    return _ENTRY.pack(zlib.adler32(body), len(body)) + body + b"B"


def _entry(data: bytes, start: int, end: int) -> LogEntry:
    header, at = t.TxnHeader.read_from(data, start, end)
    if header.type == int(OpCode.CLOSE_SESSION) and end - at in (0, 12):
        return LogEntry(header, (t.CloseSessionTxn([]),))
    kind = RECORDS.get(header.type)
    if kind is None:
        raise MarshallingError(detail=f"a transaction of type {header.type} is unknown")
    record, _ = kind.read_from(data, at, end)
    if not isinstance(record, t.MultiTxn):
        return LogEntry(header, () if isinstance(record, t.ErrorTxn) else (record,))
    if any(part.type == ERROR for part in record.txns):
        return LogEntry(header, ())  # it failed as a whole
    return LogEntry(header, tuple(_part(part) for part in record.txns))


def _part(part: t.Txn) -> Record:
    kind = RECORDS.get(part.type)
    if kind is None or kind is t.MultiTxn:
        raise MarshallingError(detail=f"a transaction of type {part.type} cannot be in another one")
    return kind.decode(part.data)
