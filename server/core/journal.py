"""The journal: the transactions that were applied, in order, until their owner writes them to a log.

It is filled where transactions are applied, so that what is applied is what is logged. Nothing is encoded here, and
nothing is written: a server without a data directory has no journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zoolet.protocol import txns as t
from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode

ERROR: Final = -1
"""The type of a write that failed: it took a zxid and changed nothing."""
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
"""The type of each record, of several the first one."""
Applied = tuple[int, int, int, int, int, Record]
"""One transaction: the session, its xid, the zxid, the time in milliseconds since the epoch, the type (an op code, or
:data:`ERROR`), and the record.
"""


class Journal:
    """The transactions that are not written yet.

    Args:
        zxid: The last zxid that was taken before.

    Attributes:
        entries: The transactions, in order.
        zxid: The last zxid that the journal has had.
    """

    __slots__ = ("entries", "zxid")

    def __init__(self, zxid: int) -> None:
        self.entries: list[Applied] = []
        self.zxid = zxid

    @property
    def is_logged(self) -> bool:
        """Whether what is in it is written to a log."""
        return True

    def add(self, session_id: int, xid: int, zxid: int, now: int, kind: int, txn: Record) -> None:
        """Add a transaction that was applied."""
        self.zxid = zxid
        self.entries.append((session_id, xid, zxid, now, kind, txn))

    def add_failure(self, session_id: int, xid: int, zxid: int, now: int, code: int) -> None:
        """Add a request that failed, if it took a zxid, one that the journal has not had: otherwise the zxid would go
        back when the log is replayed.
        """
        if zxid > self.zxid:
            self.add(session_id, xid, zxid, now, ERROR, t.ErrorTxn(code))

    def pop_all(self) -> list[Applied]:
        """Remove the transactions, and return them."""
        entries, self.entries = self.entries, []
        return entries


class HeardJournal(Journal):
    """A journal to whose transactions somebody listens, as they are applied.

    Args:
        journal: That of the log; None if the server has none.
        heard: Called with each transaction, as for :meth:`Journal.add`; it must not fail.
    """

    __slots__ = ("_heard", "_journal")

    def __init__(self, journal: Journal | None, heard: Callable[[int, int, int, int, int, Record], object]) -> None:
        self._journal = journal
        self._heard = heard

    @property
    def is_logged(self) -> bool:
        """Whether the transactions are written to a log, too."""
        return self._journal is not None

    def add(self, session_id: int, xid: int, zxid: int, now: int, kind: int, txn: Record) -> None:
        """Add a transaction that was applied."""
        if self._journal is not None:
            self._journal.add(session_id, xid, zxid, now, kind, txn)
        self._heard(session_id, xid, zxid, now, kind, txn)

    def add_failure(self, session_id: int, xid: int, zxid: int, now: int, code: int) -> None:
        """Add a request that failed; nobody listens to those."""
        if self._journal is not None:
            self._journal.add_failure(session_id, xid, zxid, now, code)
