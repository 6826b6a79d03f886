"""The format of transaction logs, which contain one entry for each write, in order of their zxids, as in ZooKeeper.

::

    header   "ZKLG", int version 2, long dbid
    entries  long Adler-32 of the entry, int length, TxnHeader, record, [int version 2, long digest], "B"
    padding  zeros: a length of 0 marks the end

If the machine stopped while an entry was being written, the log ends before this torn entry. A torn entry is the last
data in the file, or a part of it is zero, because after a power failure any unsynced sector may be missing. Any other
invalid entry was written completely and damaged later. Such damage is an error, unless a snapshot contains the damaged
entry and all entries before the next valid entry.

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

from ...protocol import txns as t
from ...protocol.codec import Record, combined_struct
from ...protocol.errors import MarshallingError
from ..core.journal import Applied, Transaction, applied_records, decode_transaction, node_changes
from .errors import StorageError

MAGIC: Final = b"ZKLG"
VERSION: Final = 2
END: Final = b"B"
"""The byte after each transaction."""
WINDOW_BYTES: Final = 1 << 20
"""Bytes of a log that are read in one step."""
SECTOR: Final = 512
"""Bytes that a disk writes completely or not at all."""
MAX_CHECKED: Final = 4 << 30
"""Maximum number of bytes to read in the search for a valid transaction after a torn one, which takes a few seconds.

Bytes are counted each time they are read: a client's data may look like the starts of very many transactions.
"""
_HEADER = struct.Struct(">4siq")
_ENTRY = struct.Struct(">qi")
_TXN_HEADER = combined_struct(t.TxnHeader)
_ENTRY_START_PATTERN: Final = re.compile(rb"(?=\0\0\0\0(?!\0\0\0\0)[\s\S]{4}[\0-\x7f])")
"""A pattern for the possible start of an entry: the upper half of the checksum is zero, the lower half is not, and the
length is positive.
"""


class LogEntry(NamedTuple):
    """One transaction of a transaction log, with its header.

    Args:
        header: Session, zxid, time and type.
        records: The changes, in order; empty for a failed write. The record of a closed session is empty in logs of
            ZooKeeper 3.5 and earlier.
    """

    header: t.TxnHeader
    records: tuple[Record, ...]


class _FileWindow:
    """The bytes of a file. Only a part is kept in memory.

    Args:
        path: The file.
        size: The number of bytes to use; None for all.

    Raises:
        OSError: The file cannot be read.
    """

    def __init__(self, path: Path, size: int | None) -> None:
        self._file: BinaryIO | None = None  # __del__ reads this even if the file cannot be opened
        self._file = path.open("rb")
        self.size = self._file.seek(0, os.SEEK_END) if size is None else size
        self._start, self._bytes = 0, b""

    def __call__(self, start: int, end: int) -> bytes:
        """Return the bytes from *start* to *end*, or fewer at the end of the file."""
        end = min(end, self.size)
        if start < self._start or end > self._start + len(self._bytes):
            assert self._file is not None
            self._file.seek(start)
            self._start, self._bytes = start, self._file.read(max(WINDOW_BYTES, end - start))
        return self._bytes[start - self._start : end - self._start]

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


class Log:
    """The transactions of a log.

    Args:
        data: The bytes of the file.
        where: The file, for errors.
        known: The last zxid that a snapshot contains. Damaged transactions up to this zxid are skipped.

    Attributes:
        size: The size of the file in bytes.
        end: The position after the last valid transaction, once all transactions are read.
        incomplete: Whether the log ends with an incompletely written transaction or header, which is not damage.
        skipped: The positions of a damaged header, and of damaged transactions that were skipped.
    """

    def __init__(self, data: bytes | _FileWindow, where: str = "", known: int = 0) -> None:
        self._read: Callable[[int, int], bytes]
        if isinstance(data, _FileWindow):
            self._read, self.size = data, data.size
        else:
            self._read, self.size = (lambda start, end: data[start:end]), len(data)
        self._where = where
        self._known = known
        self.end = 0
        self.incomplete = False
        self.skipped: list[int] = []

    @classmethod
    def open(cls, path: Path, known: int = 0, size: int | None = None) -> Log:
        """Return the transactions of a file, or of its first *size* bytes. Only about a megabyte is in memory.

        Raises:
            OSError: The file cannot be read.
        """
        return cls(_FileWindow(path, size), str(path), known)

    def __iter__(self) -> Iterator[LogEntry]:
        """Yield the transactions, up to the end of the log or an incompletely written transaction.

        Raises:
            StorageError: The file is not a log, or is damaged. The transactions before the damage have been yielded.
        """
        for start, body in self._bodies():
            try:
                entry = _entry(body)
            except MarshallingError as error:
                at = start - _ENTRY.size
                if len(body) >= _TXN_HEADER.size and _zxid(body) <= self._known:
                    self.skipped.append(at)
                    continue
                reason = f"cannot decode the transaction at byte {at}, although its checksum is valid: {error}"
                raise StorageError(self._where, reason) from None
            self.end = start + len(body) + 1
            yield entry

    def zxids(self) -> Iterator[int]:
        """Yield the zxids of the valid transactions, without decoding the changes.

        Raises:
            StorageError: The file is not a log, or is damaged.
        """
        for start, body in self._bodies():
            self.end = start + len(body) + 1
            if len(body) >= _TXN_HEADER.size:
                yield _zxid(body)

    def _bodies(self) -> Iterator[tuple[int, bytes]]:
        """Yield the position and the bytes of each transaction, without its checksum and length.

        Raises:
            StorageError: The file is not a log, or is damaged.
        """
        read, where, size = self._read, self._where, self.size
        header = read(0, _HEADER.size)
        if header[:4] != MAGIC or size < _HEADER.size:
            if self._transaction(_HEADER.size)[2] is not None:
                self.skipped.append(0)  # nothing in the header is needed
            elif (size < _HEADER.size and encode_header().startswith(header)) or not self.tail_size():
                self.incomplete = True  # the header was not written completely, so no transaction was acknowledged
                return
            else:
                raise StorageError(where, "not a transaction log: the file does not start with ZKLG")
        self.end = at = _HEADER.size
        # The file may become shorter during this loop: a server that closes its log truncates the reserved space.
        while len(entry := read(at, at + _ENTRY.size)) == _ENTRY.size:
            checksum, length = _ENTRY.unpack(entry)
            if not checksum and not length:
                return
            start = at + _ENTRY.size
            if (body := self._body(start, length, checksum)) is None:
                follows = self._after_known(start, length) or self._after_damaged_length(start, checksum)
                if follows is not None:
                    self.skipped.append(at)
                    at = follows
                    continue
                self._end_before_torn(at, start + length if 0 < length < size - start else start)
                return
            yield start, body
            at = start + length + 1

    def _transaction(self, at: int) -> tuple[int, int, bytes | None]:
        """Return the start and the length of a transaction's bytes, and the bytes, or None if they are not valid."""
        checksum, length = _ENTRY.unpack(self._read(at, at + _ENTRY.size).ljust(_ENTRY.size, b"\0"))
        return at + _ENTRY.size, length, self._body(at + _ENTRY.size, length, checksum)

    def _body(self, start: int, length: int, checksum: int) -> bytes | None:
        """Return the bytes of a transaction, or None if its length, checksum or end marker is invalid."""
        if not 0 < length < self.size - start:
            return None
        body = self._read(start, start + length + 1)
        if body[length:] != END:
            return None
        body = body[:length]
        return body if zlib.adler32(body) == checksum else None

    def _after_known(self, start: int, length: int) -> int | None:
        """Return the position of the next valid transaction after a damaged one that a snapshot contains, or None.

        None means that a damaged transaction may be needed. The position is computed only from the lengths of the
        transactions, because data that a client wrote may contain bytes of a valid transaction.
        """
        while 0 < length < self.size - start:
            follows = start + length + 1
            start, length, body = self._transaction(follows)
            if body is not None:
                return follows if len(body) >= _TXN_HEADER.size and _zxid(body) <= self._known + 1 else None
        return None

    def _after_damaged_length(self, start: int, checksum: int) -> int | None:
        """Return the same as :meth:`_after_known`, for a transaction whose length is damaged.

        The transaction ends at the position where the checksum of its bytes equals the stored checksum.
        """
        at, computed = start, 1
        for follows in self._possible_starts(start, self.size) if self._known else ():
            computed, at = zlib.adler32(self._read(at, follows - 1), computed), follows - 1
            if computed == checksum:
                return self._after_known(start, follows - 1 - start)
        return None

    def _end_before_torn(self, at: int, end: int) -> None:
        """End the log before an incompletely written transaction.

        Args:
            at: The position of the transaction.
            end: The end of the transaction, or the start of its content if its length is invalid.

        Raises:
            StorageError: The transaction was written completely, and was damaged later.
        """
        self.incomplete = True
        if self._may_be_torn(at, end):
            return
        end = self.end + self.tail_size()
        unchecked = MAX_CHECKED
        for follows in self._possible_starts(at + 1, end):
            _, length, body = self._transaction(follows)
            if body is not None:
                reason = f"the transaction at byte {at} is damaged, but a valid one follows at byte {follows}"
                raise StorageError(self._where, reason)
            if 0 < length < self.size - follows and (unchecked := unchecked - length) < 0:
                reason = f"the transaction at byte {at} is damaged; too much data after it resembles transactions"
                raise StorageError(self._where, reason)

    def _possible_starts(self, start: int, end: int) -> Iterator[int]:
        """Yield the positions where a transaction may start."""
        for begin in range(start, end - _ENTRY.size, WINDOW_BYTES):
            piece = self._read(begin, min(end, begin + WINDOW_BYTES + _ENTRY.size))
            for found in _ENTRY_START_PATTERN.finditer(piece):
                if found.start() < WINDOW_BYTES and found.start() + _ENTRY.size < len(piece):
                    yield begin + found.start()

    def _may_be_torn(self, at: int, end: int) -> bool:
        """Return whether a part of a transaction may be missing: its bytes in some sector are all zero."""
        begin = at + 4  # skip the upper half of the checksum, which is always zero
        for sector in range(begin - begin % SECTOR, end + 1, SECTOR):
            if not any(self._read(max(begin, sector), sector + SECTOR)):
                return True
        return False

    def tail_size(self, after: int | None = None) -> int:
        """Return the number of bytes after the last valid transaction, without trailing zeros.

        Args:
            after: A position to count from instead; None for the last valid transaction.
        """
        after = self.end if after is None else after
        end = self.size
        while end > after:
            start = max(after, end - WINDOW_BYTES)
            if piece := self._read(start, end).rstrip(b"\0"):
                return start + len(piece) - after
            end = start
        return 0

    def pieces(self, start: int, size: int) -> Iterator[bytes]:
        """Yield *size* bytes of the file from *start*, in pieces."""
        for begin in range(start, start + size, WINDOW_BYTES):
            yield self._read(begin, min(start + size, begin + WINDOW_BYTES))


def _zxid(body: bytes) -> int:
    return t.TxnHeader.read_from(body, 0, len(body))[0].zxid


def encode_header() -> bytes:
    """Return the header of a log."""
    return _HEADER.pack(MAGIC, VERSION, 0)


def encode(entries: Iterable[Applied]) -> bytes:
    """Encode the transactions of a journal."""
    pieces: list[bytes] = []
    for session_id, xid, zxid, time, kind, record in entries:
        if isinstance(record, list):
            record = t.MultiTxn([t.Txn(op, part.encode()) for op, part in record])
        body = _TXN_HEADER.pack(session_id, xid, zxid, time, kind) + record.encode()
        pieces += _ENTRY.pack(zlib.adler32(body), len(body)), body, b"B"
    return b"".join(pieces)


def decode(data: bytes) -> Iterator[Transaction]:
    """Yield the successful transactions of an encoded journal."""
    at = 0
    while at < len(data):
        _, length = _ENTRY.unpack_from(data, at)
        start = at + _ENTRY.size
        header, records = _entry(data[start : start + length])
        if records:
            yield header.clientId, header.cxid, header.zxid, header.time, header.type, node_changes(records)
        at = start + length + len(END)


def sessions(data: bytes) -> Iterator[int]:
    """Yield the session id of each transaction of an encoded journal, without decoding the changes."""
    at = 0
    while at < len(data):
        _, length = _ENTRY.unpack_from(data, at)
        yield _TXN_HEADER.unpack_from(data, at + _ENTRY.size)[0]
        at += _ENTRY.size + length + len(END)


def _entry(data: bytes) -> LogEntry:
    entry, _ = decode_transaction(data)
    return LogEntry(t.TxnHeader(*entry[:-1]), applied_records(entry))
