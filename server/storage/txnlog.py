"""Transaction logs: one entry for each write, in the order of their zxids, as ZooKeeper writes them.

::

    header   "ZKLG", int version 2, long dbid
    entries  long Adler-32 of the entry, int length, TxnHeader, record, [int version 2, long digest], "B"
    padding  zeros: the length 0 is the end

An entry that was being written when the machine stopped ends the log; what precedes it counts. After a loss of power,
sectors of what was not synced may be missing: they are zero then, whatever is behind them.

Source: FileTxnLog, SerializeUtils.deserializeTxn.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record, struct_of
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.journal import ERROR, RECORDS, Applied
from zoolet.server.storage.errors import StorageError

MAGIC: Final = b"ZKLG"
VERSION: Final = 2
SECTOR: Final = 512
"""The bytes that a disk writes as a whole, or not at all."""
_HEADER = struct.Struct(">4siq")
_ENTRY = struct.Struct(">qi")
_TXN_HEADER = struct_of(t.TxnHeader)


class LogEntry(NamedTuple):
    """One transaction.

    Args:
        header: Session, zxid, time and type.
        records: What it did, in order; empty for a write that failed. A close of a session has its record, which is
            empty in logs of 3.5 and before.
    """

    header: t.TxnHeader
    records: tuple[Record, ...]


class Log:
    """The transactions of a log.

    Args:
        data: The bytes of the file.
        where: The file, for errors.

    Attributes:
        size: The bytes of the file.
        end: Where the last valid transaction ends, once all are read.
        incomplete: Whether another one follows that was not written completely, which is not damage.
    """

    def __init__(self, data: bytes, where: str = "") -> None:
        self._data = data
        self._where = where
        self.size = len(data)
        self.end = 0
        self.incomplete = False

    def __iter__(self) -> Iterator[LogEntry]:
        """Yield the transactions, up to the end of the log or to one that was not written completely.

        Raises:
            StorageError: The file is not a log, or is damaged; the transactions before the damage were yielded.
        """
        data, where = self._data, self._where
        if encode_header().startswith(data):
            self.incomplete = bool(data) and len(data) < _HEADER.size  # its header was not written completely
            self.end = len(data) if len(data) == _HEADER.size else 0
            return
        if data[:4] != MAGIC or len(data) < _HEADER.size:
            raise StorageError(where, "this is not a transaction log: it does not begin with ZKLG")
        _, version, dbid = _HEADER.unpack_from(data)
        if (version, dbid) != (VERSION, 0):
            raise StorageError(where, f"this is a log of version {version} and database {dbid}; known is {VERSION}, 0")
        self.end = _HEADER.size
        while self.end + _ENTRY.size <= len(data):
            at = self.end
            checksum, length = _ENTRY.unpack_from(data, at)
            if not checksum and not length:
                return
            start, end = at + _ENTRY.size, at + _ENTRY.size + length
            if length <= 0:
                if self._may_be_torn(at, start):
                    return
                raise StorageError(where, f"a length of {length} cannot be, at byte {at + 8}")
            if end >= len(data):
                self.incomplete = True
                return
            if data[end] != 0x42 or zlib.adler32(memoryview(data)[start:end]) != checksum:
                if self._may_be_torn(at, end):
                    return
                raise StorageError(where, f"the transaction at byte {at} is damaged: its checksum or its end is wrong")
            try:
                entry = _entry(data, start, end)
            except MarshallingError as error:
                raise StorageError(where, f"the transaction at byte {at} cannot be read: {error}") from None
            self.end = end + 1
            yield entry

    def _may_be_torn(self, at: int, end: int) -> bool:
        """Return whether a part of a transaction may not have been written, so that the log ends before it: a sector,
        or what is in it, is zero.
        """
        data = self._data
        for sector in range(at - at % SECTOR, end + 1, SECTOR):
            first, last = max(at, sector), min(end + 1, sector + SECTOR)
            if not any(data[first:last]) and not any(data[last : sector + SECTOR]):
                self.incomplete = True
                return True
        return False

    def tail(self) -> bytes:
        """Return what is behind the last valid transaction, without the zeros at its end."""
        return self._data[self.end :].rstrip(b"\0")


def encode_header() -> bytes:
    """Return the beginning of a log."""
    return _HEADER.pack(MAGIC, VERSION, 0)


def encode(entries: Iterable[Applied]) -> bytes:
    """Return the bytes of transactions of a journal."""
    pieces: list[bytes] = []
    for session_id, xid, zxid, time, kind, record in entries:
        body = _TXN_HEADER.pack(session_id, xid, zxid, time, kind) + record.encode()
        pieces += _ENTRY.pack(zlib.adler32(body), len(body)), body, b"B"
    return b"".join(pieces)


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
