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
Parts = list[tuple[int, Record]]
"""The operations of a multi: op code, or :data:`ERROR`, and record of each. They are encoded with their log."""
Applied = tuple[int, int, int, int, int, Record | Parts]
"""One transaction: the session, its xid, the zxid, the time in milliseconds since the epoch, the type (an op code, or
:data:`ERROR`), and the record.
"""


class Journal:
    """The transactions that are not written yet. Each is appended to the entries: a call of a method would cost a write
    3 % of its time.

    Args:
        zxid: The last zxid that was taken before.

    Attributes:
        entries: The transactions, in order.
        heard: Called with transactions that were logged, for a history; None for nobody.
    """

    __slots__ = ("_popped", "entries", "heard")

    def __init__(self, zxid: int) -> None:
        self.entries: Final[list[Applied]] = []
        self.heard: Callable[[list[Applied]], object] | None = None
        self._popped = zxid

    @property
    def zxid(self) -> int:
        """The last zxid that the journal has had."""
        return self.entries[-1][2] if self.entries else self._popped

    def add_failure(self, session_id: int, xid: int, zxid: int, now: int, code: int) -> None:
        """Add a request that failed, if it took a zxid, one that the journal has not had: otherwise the zxid would go
        back when the log is replayed.
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
