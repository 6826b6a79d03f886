"""Transaction logs: one entry for each write, in the order of their zxids, as ZooKeeper writes them.

::

    header   "ZKLG", int version 2, long dbid
    entries  long Adler-32 of the entry, int length, TxnHeader, record, [int version 2, long digest], "B"
    padding  zeros: the length 0 is the end

An entry that was being written when the machine stopped ends the log; what precedes it counts. It is the last thing in
the file, or a part of it is zero: after a loss of power, sectors of what was not synced may be missing, whatever comes
after them. Anything else that is wrong is damage of what was written as a whole, and an error.

Source: FileTxnLog, SerializeUtils.deserializeTxn.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record, struct_of
from zoolet.protocol.errors import MarshallingError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.journal import ERROR, RECORDS, Applied
from zoolet.server.storage.errors import StorageError

MAGIC: Final = b"ZKLG"
VERSION: Final = 2
END: Final = b"B"
"""The byte after each transaction."""
WINDOW: Final = 1 << 20
"""Bytes of a log that are read at a time."""
SECTOR: Final = 512
"""The bytes that a disk writes as a whole, or not at all."""
MAX_CHECKED: Final = 4 << 30
"""Bytes, with repetitions, that are read to find out whether a valid transaction follows a torn one, some seconds: data
that a client wrote may look like the beginnings of very many.
"""
_HEADER = struct.Struct(">4siq")
_ENTRY = struct.Struct(">qi")
_TXN_HEADER = struct_of(t.TxnHeader)
_MAY_BE_ENTRY: Final = re.compile(rb"(?=\0\0\0\0(?!\0\0\0\0)[\s\S]{4}[\0-\x7f])")
"""Where an entry may begin: the upper half of its checksum is zero, the lower one not, and its length is positive."""


class LogEntry(NamedTuple):
    """One transaction.

    Args:
        header: Session, zxid, time and type.
        records: What it did, in order; empty for a write that failed. A close of a session has its record, which is
            empty in logs of 3.5 and before.
    """

    header: t.TxnHeader
    records: tuple[Record, ...]


class _Window:
    """The bytes of a file, of which a part is in memory.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._file: BinaryIO | None = None  # for __del__, if it cannot be opened
        self._file = path.open("rb")
        self.size = self._file.seek(0, os.SEEK_END)
        self._start, self._bytes = 0, b""

    def __call__(self, start: int, end: int) -> bytes:
        """Return the bytes from *start* to *end*, fewer where the file ends."""
        if start < self._start or end > self._start + len(self._bytes):
            assert self._file is not None
            self._file.seek(start)
            self._start, self._bytes = start, self._file.read(max(WINDOW, end - start))
        return self._bytes[start - self._start : end - self._start]

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


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

    def __init__(self, data: bytes | _Window, where: str = "") -> None:
        self._read: Callable[[int, int], bytes]
        if isinstance(data, _Window):
            self._read, self.size = data, data.size
        else:
            self._read, self.size = (lambda start, end: data[start:end]), len(data)
        self._where = where
        self.end = 0
        self.incomplete = False

    @classmethod
    def open(cls, path: Path) -> Log:
        """Return the transactions of a file, of which a megabyte at a time is in memory.

        Raises:
            OSError: It cannot be read.
        """
        return cls(_Window(path), str(path))

    def __iter__(self) -> Iterator[LogEntry]:
        """Yield the transactions, up to the end of the log or to one that was not written completely.

        Raises:
            StorageError: The file is not a log, or is damaged; the transactions before the damage were yielded.
        """
        for start, body in self._bodies():
            try:
                entry = _entry(body)
            except MarshallingError as error:
                at = start - _ENTRY.size
                reason = f"the transaction at byte {at} cannot be read, though its checksum is right: {error}"
                raise StorageError(self._where, reason) from None
            self.end = start + len(body) + 1
            yield entry

    def last_zxid(self) -> int | None:
        """Return the zxid of the last valid transaction, without reading what the transactions did; None for none.

        Raises:
            StorageError: As for iterating.
        """
        zxid = None
        for start, body in self._bodies():
            zxid = t.TxnHeader.read_from(body, 0, len(body))[0].zxid if len(body) >= _TXN_HEADER.size else zxid
            self.end = start + len(body) + 1
        return zxid

    def _bodies(self) -> Iterator[tuple[int, bytes]]:
        """Yield where each transaction begins, after its checksum and length, and its bytes."""
        read, where, size = self._read, self._where, self.size
        if not size:
            raise StorageError(where, "the file is empty: the transactions that it had are lost")
        header = read(0, _HEADER.size)
        if size < _HEADER.size and encode_header().startswith(header):
            self.incomplete = True  # its header was not written completely
            return
        if header[:4] != MAGIC or size < _HEADER.size:
            raise StorageError(where, "this is not a transaction log: it does not begin with ZKLG")
        self.end = at = _HEADER.size
        while at + _ENTRY.size <= size:
            checksum, length = _ENTRY.unpack(read(at, at + _ENTRY.size))
            if not checksum and not length:
                return
            start = at + _ENTRY.size
            if (body := self._body(start, length, checksum)) is None:
                self._end_torn(at, start + length if 0 < length < size - start else start)
                return
            yield start, body
            at = start + length + 1

    def _body(self, start: int, length: int, checksum: int) -> bytes | None:
        """Return a transaction, if it is as it was written."""
        if not 0 < length < self.size - start:
            return None
        body = self._read(start, start + length)
        whole = zlib.adler32(body) == checksum and self._read(start + length, start + length + 1) == END
        return body if whole else None

    def _end_torn(self, at: int, end: int) -> None:
        """End the log before a transaction that was not written completely.

        Args:
            at: Where the transaction begins.
            end: Where it ends; where its content begins, if its length is invalid.

        Raises:
            StorageError: It was written completely, and was damaged since.
        """
        self.incomplete = True
        if self._may_be_torn(at, end):
            return
        tail = self._read(at + 1, self.size).rstrip(b"\0")
        unchecked = MAX_CHECKED
        for found in _MAY_BE_ENTRY.finditer(tail):
            if found.start() + _ENTRY.size < len(tail):
                checksum, length = _ENTRY.unpack_from(tail, found.start())
                follows = at + 1 + found.start()
                if self._body(follows + _ENTRY.size, length, checksum) is not None:
                    reason = f"the transaction at byte {at} is damaged, and valid ones follow, from byte {follows} on"
                    raise StorageError(self._where, reason)
                if length < len(tail) and (unchecked := unchecked - length) < 0:
                    reason = f"the transaction at byte {at} is damaged, and too much after it looks like others"
                    raise StorageError(self._where, reason)

    def _may_be_torn(self, at: int, end: int) -> bool:
        """Return whether a part of a transaction may not have been written: a sector, or what is in it, is zero."""
        begin = at + 4  # the upper half of the checksum is zero in every transaction
        for sector in range(begin - begin % SECTOR, end + 1, SECTOR):
            if not any(self._read(max(begin, sector), sector + SECTOR)):
                return True
        return False

    def tail(self) -> bytes:
        """Return what is behind the last valid transaction, without the zeros at its end."""
        return self._read(self.end, self.size).rstrip(b"\0")


def encode_header() -> bytes:
    """Return the beginning of a log."""
    return _HEADER.pack(MAGIC, VERSION, 0)


def encode(entries: Iterable[Applied]) -> bytes:
    """Return the bytes of transactions of a journal."""
    pieces: list[bytes] = []
    for session_id, xid, zxid, time, kind, record in entries:
        if isinstance(record, list):
            record = t.MultiTxn([t.Txn(op, part.encode()) for op, part in record])
        body = _TXN_HEADER.pack(session_id, xid, zxid, time, kind) + record.encode()
        pieces += _ENTRY.pack(zlib.adler32(body), len(body)), body, b"B"
    return b"".join(pieces)


def _entry(data: bytes) -> LogEntry:
    end = len(data)
    header, at = t.TxnHeader.read_from(data, 0, end)
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
