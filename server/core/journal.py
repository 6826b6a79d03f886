"""The journal: applied transactions, in order, until their owner writes them to a log.

The code that applies a transaction also adds it to the journal, so exactly the applied transactions are logged. The
journal neither encodes nor writes them. A server without a data directory has no journal.

A history reads transactions long after they were applied: from encoded journals, or in a server without a journal from
the received requests (``ops/received.py``). It converts both to a :data:`Transaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from ...protocol import txns as t
from ...protocol.codec import Record, combined_struct, int_at
from ...protocol.errors import MarshallingError
from ...protocol.operations import OpCode

ERROR: Final = -1
"""The type of a failed write, which used up a zxid and changed nothing."""
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
"""The record of each type of transaction.

Source: SerializeUtils.deserializeTxn.
"""
TYPES: Final = {record: kind for kind, record in reversed(RECORDS.items())}
"""The transaction type of each record. A record with several types is mapped to the first of these."""
MultiRecords = list[tuple[int, Record]]
"""The op code (or :data:`ERROR`) and the record of each operation of a multi, not yet encoded."""
Applied = tuple[int, int, int, int, int, Record | MultiRecords]
"""One transaction: the session, its xid, the zxid, the time in milliseconds since the epoch, the type (an op code, or
:data:`ERROR`), and the record.
"""
_DIGEST_SIZE: Final = combined_struct(t.TxnDigest).size
Detail = tuple[int, str]
"""A fact that is not in the bytes of a request: the zxid of the request, and a text (``ServerState.add_detail``)."""
RequestBatch = tuple[bytes, int, int, int, tuple[Detail, ...]]
"""Successful requests of a connection: the received frames, the session, the time in milliseconds since the epoch, the
last zxid before them, and the details.
"""
Change = tuple[int, str, int]
"""A change of a node: the op code, the path, and the number of bytes of data or -1 if the change has no data."""
Transaction = tuple[int, int, int, int, int, list[Change]]
"""A transaction without its data: the fields of :data:`Applied`, with the changes in place of the record."""


def node_changes(records: Iterable[Record | None]) -> list[Change]:
    """Return the changes that transaction records make.

    For a closed session, these are deletes of its ephemeral nodes.
    """
    changes: list[Change] = []
    for record in records:
        if isinstance(record, t.CloseSessionTxn):
            changes += [(OpCode.DELETE, path, -1) for path in record.paths2Delete or ()]
        elif (path := getattr(record, "path", None)) is not None:
            data = getattr(record, "data", None)
            changes.append((TYPES[type(record)], path, -1 if data is None else len(data)))  # type: ignore[index]
    return changes


def decode_transaction(data: bytes) -> tuple[Applied, int]:
    """Decode a transaction of a log or from a leader. Return the transaction and the offset after its record.

    A digest may follow at this offset. ZooKeeper 3.5 and earlier write a closeSession without a record, which is
    decoded as a record without paths.

    Raises:
        MarshallingError: The transaction is truncated, or its type is not known.
    """
    end = len(data)
    header, offset = t.TxnHeader.read_from(data, 0, end)
    record: Record
    if header.type == OpCode.CLOSE_SESSION and _has_no_record(data, offset, end):
        record = t.CloseSessionTxn([])
    else:
        kind = RECORDS.get(header.type)
        if kind is None:
            raise MarshallingError(detail=f"unknown transaction type {header.type}")
        record, offset = kind.read_from(data, offset, end)
    parts = [_decode_part(part) for part in record.txns] if isinstance(record, t.MultiTxn) else record
    return (header.clientId, header.cxid, header.zxid, header.time, header.type, parts), offset


def _has_no_record(data: bytes, offset: int, end: int) -> bool:
    """Return whether no record follows the header, but nothing or only a digest.

    The bytes of a digest could also be decoded as a record with two empty paths.
    """
    left = end - offset
    return not left or (left == _DIGEST_SIZE and int_at(data, offset)[0] == t.DIGEST_VERSION)


def _decode_part(part: t.Txn) -> tuple[int, Record]:
    """Decode one part of a multi.

    If the multi failed, a leader may send parts whose type is an error, but whose data is the record of an operation.

    Raises:
        MarshallingError: The type is unknown or a multi, or the record is truncated.
    """
    kind = RECORDS.get(part.type)
    if kind is None or kind is t.MultiTxn:
        raise MarshallingError(detail=f"a multi cannot contain a transaction of type {part.type}")
    return part.type, kind.decode(part.data)


def applied_records(entry: Applied) -> tuple[Record, ...]:
    """Return the records of a transaction in order: one, or several for a multi. A failed request has no records."""
    *_, kind, record = entry
    if isinstance(record, list):
        return () if any(op == ERROR for op, _ in record) else tuple(part for _, part in record)
    return () if kind == ERROR else (record,)


class Journal:
    """The transactions that are not yet written to the log.

    Callers append to *entries* directly, because a method call would cost a write 3 % of its time.

    Args:
        zxid: The last zxid that is already used.
        decode: A function that yields the successful transactions of an encoded journal, for a history.
        sessions: A function that yields only the session id of each transaction, including failed ones.

    Attributes:
        entries: The transactions, in order.
        decode: The decoder of an encoded journal, as given.
        sessions: The decoder for session ids, as given.
        on_logged: A function that is called with each encoded journal after it was logged; None if no history is kept.
    """

    __slots__ = ("_popped", "decode", "entries", "on_logged", "sessions")

    def __init__(
        self,
        zxid: int,
        decode: Callable[[bytes], Iterator[Transaction]] = lambda data: iter(()),
        sessions: Callable[[bytes], Iterator[int]] = lambda data: iter(()),
    ) -> None:
        self.entries: Final[list[Applied]] = []
        self.decode: Final = decode
        self.sessions: Final = sessions
        self.on_logged: Callable[[bytes], object] | None = None
        self._popped = zxid

    @property
    def zxid(self) -> int:
        """The zxid of the last transaction that was added to the journal."""
        return self.entries[-1][2] if self.entries else self._popped

    def add_failure(self, session_id: int, xid: int, zxid: int, now: int, code: int) -> None:
        """Add a failed request if it used up a zxid that is not yet in the journal.

        Without this entry, a replay of the log would end at a lower zxid.
        """
        if zxid > self.zxid:
            self.entries.append((session_id, xid, zxid, now, ERROR, t.ErrorTxn(code)))

    def pop_all(self) -> list[Applied]:
        """Remove the transactions, and return them."""
        entries = self.entries.copy()
        self.entries.clear()
        if entries:
            self._popped = entries[-1][2]
        return entries
