"""The last transactions of a server, with their changes, clients and reasons.

A write costs almost nothing here, because the history only keeps bytes that already exist: the received requests, or
with a data directory the encoded journal. These bytes become entries when the history is read.

The memory of the history is limited. Requests with much data become entries early, and entries contain only the size of
the data. Old entries are discarded. If they end a session, delete a node or change an ACL, they are compressed instead
(``lasting``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from sys import getsizeof
from typing import Final, NamedTuple, cast

from ...protocol.codec import Record
from ...protocol.operations import OPERATIONS, OpCode
from ...protocol.paths import parent, sequence_number
from ...protocol.txns import ErrorTxn
from ..core.client_connection import ClientConnection
from ..core.engine import Engine
from ..core.journal import Applied, RequestBatch, Transaction, node_changes
from ..core.ops.received import transactions
from .lasting import HistoryArchive
from .recent_writes import RecentWrites

CONSOLE_XID: Final = -77
"""The xid of changes made in the console."""
MAX_BYTES: Final = 64 << 20
"""Approximate maximum size of all entries in bytes."""
ENTRY_BYTES: Final = 300
"""Size of an entry in bytes, without its paths."""
CHANGE_BYTES: Final = 150
"""Size of each change of a transaction in bytes, without its path."""
MAX_RAW_BYTES: Final = 16 << 20
"""Maximum size in bytes of the transactions that have not become entries yet, unless their entries would be larger."""
SILENT_CLIENT_REASON: Final = "the leader did not hear from its client during the session timeout"
"""The reason for an expiry in an ensemble."""
MAX_READ: Final = 300
"""Maximum number of transactions that are read per tenth of a second, before they are discarded. This takes 2 ms."""
READ_BYTES: Final = 1_024
"""Number of bytes of an entry that take as long to read as a transaction with one change."""
DATA_BYTES: Final = 8_192
"""Number of bytes of requests or of a journal that take as long to read as a transaction with one change. Most of them
are data, which is skipped.
"""
STEP: Final = 100
"""Number of transactions with one change that are read in one step. This takes 1 ms."""
MAX_PARSED: Final = 1_000
"""Maximum number of changes that are read per tenth of a second, to release their data. This takes 5 ms."""
CATCH_UP_TRANSACTIONS: Final = 500
"""Number of transactions that become entries together when the history is read. This takes 4 ms."""
OWN_DELETE_REASON: Final = "a container without children, or a node whose TTL expired"
"""The reason for the deletion of a node by the server itself."""
MIN_WRITE_BYTES: Final = 18
"""Size of the smallest write in bytes.

This limits the estimated number of writes in the received bytes, because the zxid may jump without writes, to a new
epoch.
"""
MAX_ADDRESSES: Final = 8
"""Maximum number of stored addresses of each session."""
_KIND_NAMES: Final = {"acl": "set ACL", "several": "multi", "": "check"}
_KINDS: Final = {op: _KIND_NAMES.get(row.changes, row.changes) for op, row in OPERATIONS.items()}
"""The kinds of entries and changes in words, by op code."""
_EVENTS: Final[dict[int, str]] = {OpCode.CREATE_SESSION: "opened", OpCode.CLOSE_SESSION: "ended"}
_ChangeFields = tuple[str, str, int | None]
"""The fields of a change."""
_EntryFields = tuple[int, int, int, str, str, tuple[_ChangeFields, ...], int, str, int]
"""The fields of an entry. Entries are kept as plain tuples, because the garbage collector stops tracking plain tuples,
but would traverse named tuples in each full collection.
"""


class NodeChange(NamedTuple):
    """One change of a node.

    Args:
        op: ``create``, ``set``, ``delete`` or ``set ACL``.
        path: Path of the node.
        size: Size of the new data in bytes; None for changes without data.
    """

    op: str
    path: str
    size: int | None = None


class HistoryEntry(NamedTuple):
    """A transaction, or an event of a session.

    Args:
        zxid: Zxid of the transaction. An event that is not a transaction has the last zxid at its time.
        time: Time in milliseconds since the epoch.
        session_id: The session that made the request; 0 for the server itself.
        address: Address of the client; empty if it is not known.
        kind: ``create``, ``set``, ``delete``, ``set ACL``, ``multi``, ``opened``, ``resumed``, ``closed``, ``expired``,
            or ``ended`` if it is not known whether the session was closed or expired.
        parts: The fields of the changes.
        left_out: Number of changes that are not kept.
        why: Explanation in words; empty if there is none.
        number: Serial number of the entry in the history; 0 for an entry from a log file.
    """

    zxid: int
    time: int
    session_id: int
    address: str
    kind: str
    parts: tuple[_ChangeFields, ...] = ()
    left_out: int = 0
    why: str = ""
    number: int = 0

    @property
    def changes(self) -> tuple[NodeChange, ...]:
        """The changes of the transaction, as named tuples."""
        return tuple(NodeChange(*part) for part in self.parts)


_RawTransaction = RequestBatch | Transaction | HistoryEntry | bytes
"""A form of transactions that have not become entries yet: received requests, a transaction that was not a request, an
event of a session that is not a transaction, or an encoded journal.
"""


class _RawBatch(NamedTuple):
    """The transactions of a tenth of a second, which have not become entries yet.

    Args:
        raw: The transactions, the latest first.
        number: Approximate number of transactions; at least 1.
        size: Approximate number of bytes.
        zxid: The last zxid.
        cost: The time for reading the transactions, in units of one transaction with one change.
    """

    raw: list[_RawTransaction]
    number: int
    size: int
    zxid: int
    cost: int


class TransactionHistory:
    """The last transactions of an engine.

    Args:
        engine: The engine. The history registers its callbacks there.
        limit: Maximum number of kept entries.

    Attributes:
        writes: The number of recent writes of each session.
        lasting: The archive of discarded entries that end a session, delete a node or change an ACL.
    """

    def __init__(self, engine: Engine, limit: int) -> None:
        self.writes: Final = RecentWrites()
        self.lasting: Final = HistoryArchive()
        self._engine = engine
        self._limit = limit
        self._kept: deque[_EntryFields] = deque()
        self._sizes: deque[int] = deque()  # sizes of the entries in _kept, in bytes
        self._bytes = self._number = 0
        self._raw: deque[_RawBatch] = deque()
        self._reading: Iterator[Transaction | HistoryEntry] | None = None  # the rest of a partly read batch
        self._is_partly_read = False  # whether the first of _raw is partly read, so _raw_count no longer includes it
        self._raw_count = self._raw_bytes = 0
        self._raw_limit = max(MAX_RAW_BYTES // limit, ENTRY_BYTES + CHANGE_BYTES)  # average bytes per transaction
        self._unrequested_bytes = 0  # bytes of new transactions that did not arrive as requests
        self._last_counters: tuple[int, int] = self._counters()
        # The addresses of each session, in order. Each has the last zxid before the session used the address, because a
        # transaction may become an entry much later, after a client with a new address has resumed the session.
        self._addresses: dict[int, list[tuple[int, str]]] = {}
        self._reasons: dict[int, str] = {}  # by session id: the reason of each expiry that has not become an entry yet
        self._before = engine.on_session
        engine.on_session = self._on_session
        self._listen()

    def _listen(self) -> None:
        """Start a new list of transactions.

        The engine appends to the list directly, because calling a Python function would make each write 1 % slower.
        """
        self._fresh: list[_RawTransaction] = []
        if (journal := self._engine.journal) is not None:
            journal.on_logged = self._fresh.append
        else:
            self._engine.on_requests, self._engine.on_applied = self._fresh.append, self._on_applied

    def __len__(self) -> int:
        self._catch_up()
        return len(self._kept)

    # --- listening ---

    def limit_memory(self) -> None:
        """Limit the memory of new transactions. Call this ten times a second.

        If the new transactions contain much data, they become entries now. Otherwise they become entries when the
        history is read, or when they are old, as far as :data:`MAX_READ` permits.
        """
        if not self._fresh:
            return
        before, self._last_counters = self._last_counters, self._counters()
        received = self._last_counters[1] - before[1]
        size = received + self._unrequested_bytes
        if self._engine.journal is not None:
            received = size = sum(map(len, cast("list[bytes]", self._fresh)))
        most = len(self._fresh) + max(received, 0) // MIN_WRITE_BYTES
        number = max(1, min(self._last_counters[0] - before[0], most))
        heard, cost = self._fresh, number + max(size, 0) // DATA_BYTES
        if not 0 <= size <= self._raw_limit * number:  # a negative size means that srst has reset the counter
            heard, size = self._without_data(heard)
            cost = number + sum(map(_size, heard)) // DATA_BYTES
        heard.reverse()
        self._raw.append(_RawBatch(heard, number, size, self._engine.zxid, cost))
        self._listen()
        self._unrequested_bytes = 0
        self._raw_count += number
        self._raw_bytes += size
        self._discard()

    def _without_data(self, heard: list[_RawTransaction]) -> tuple[list[_RawTransaction], int]:
        """Read transactions that contain much data, to release the data. At most :data:`MAX_PARSED` changes are read.

        Returns:
            The transactions and their size in bytes.
        """
        read: list[_RawTransaction] = []
        size, left = 0, MAX_PARSED
        for each in heard:
            found = self._transactions(each) if left > 0 else (each,)
            for transaction in found:
                read.append(transaction)
                if not isinstance(transaction, bytes | HistoryEntry) and len(transaction) == 6:
                    needed = ENTRY_BYTES + sum([CHANGE_BYTES + getsizeof(path) for _, path, _ in transaction[5]])
                    left -= 1 + len(transaction[5]) + needed // READ_BYTES
                    size += needed
                else:
                    size += _size(transaction)
        return read, size

    def _counters(self) -> tuple[int, int]:
        """Return two counters, whose differences are the numbers of successful transactions and of received bytes."""
        engine = self._engine
        return engine.zxid - engine.failed, engine.metrics.bytes_received

    def _on_applied(self, applied: Applied) -> None:
        session_id, xid, zxid, time, op, record = applied
        records = [record] if isinstance(record, Record) else [part for _, part in record]  # a multi of an ensemble
        if any(isinstance(each, ErrorTxn) for each in records):
            return
        changes = node_changes(records)
        self._unrequested_bytes += sum([getsizeof(path) for _, path, _ in changes])
        self._fresh.append((session_id, xid, zxid, time, op, changes))

    def catch_up_in_steps(self) -> Iterator[None]:
        """Turn all current transactions into entries, and yield after each millisecond of work."""
        self.limit_memory()
        last = self._engine.zxid
        while self._raw and self._raw[0].zxid <= last:
            self._step()
            yield

    def _catch_up(self) -> None:
        """Turn about :data:`CATCH_UP_TRANSACTIONS` new transactions into entries.

        To process all, call :meth:`catch_up_in_steps`.
        """
        self.limit_memory()
        left = CATCH_UP_TRANSACTIONS
        while left > 0 and self._raw:
            left -= self._step()

    def _step(self) -> int:
        """Turn a few of the oldest transactions into entries. Return the cost, in transactions with one change."""
        oldest, cost = self._raw[0], 0
        if not self._is_partly_read:
            self._is_partly_read = True
            self._raw_count -= oldest.number
        while cost < STEP:
            transaction = next(self._reading, None) if self._reading is not None else None
            if transaction is not None:
                cost += 1 + self._keep(transaction)
                self._discard_entries()
            elif oldest.raw:
                self._reading = self._transactions(oldest.raw.pop())
            else:
                self._pop_oldest()
                return cost + 1
        return cost

    def _discard(self) -> None:
        """Discard the oldest transactions until the limits of the history are met.

        First, up to :data:`MAX_READ` of these transactions are read, because some are archived in :attr:`lasting`. The
        rest waits for the next call. If the rest is too large, it is discarded unread, and only the writes of each
        session are counted.
        """
        raw, left = self._raw, MAX_READ
        self._discard_entries()
        while len(raw) > 1:
            excess, number, cost = self._raw_count - self._limit, raw[0].number, raw[0].cost
            if not self._is_full() and excess < (1 if cost <= MAX_READ else number):
                break
            if cost <= left:
                self._read_oldest()
                left -= cost
            elif cost > MAX_READ or self._is_full() or excess > self._limit:
                self._count_writes(self._pop_oldest())
            else:
                break
        while len(self._reasons) > self._limit:
            del self._reasons[next(iter(self._reasons))]

    def _discard_entries(self) -> None:
        kept, raw = self._kept, self._raw
        while (
            kept
            and (len(kept) + self._raw_count > self._limit or self._is_full())
            and (len(kept) > 1 or len(raw) > self._is_partly_read)
        ):
            self.lasting.add(kept.popleft())
            self._bytes -= self._sizes.popleft()

    def _pop_oldest(self) -> _RawBatch:
        oldest = self._raw.popleft()
        self._raw_count -= 0 if self._is_partly_read else oldest.number
        self._raw_bytes -= oldest.size
        self._reading, self._is_partly_read = None, False
        return oldest

    def _read_oldest(self) -> None:
        """Turn all transactions of the oldest batch into entries."""
        oldest = self._raw[0]
        while self._raw and self._raw[0] is oldest:
            self._step()

    def _count_writes(self, discarded: _RawBatch) -> None:
        """Count the writes of transactions that are discarded before they are read, including failed ones."""
        time, last = self._engine.now, discarded.zxid
        for heard in discarded.raw:
            if isinstance(heard, bytes):
                assert self._engine.journal is not None
                for session_id, number in Counter(self._engine.journal.sessions(heard)).items():
                    self.writes.count(session_id, time, number)
            elif not isinstance(heard, HistoryEntry) and len(heard) == 5:
                self.writes.count(heard[1], time, min(last - heard[3], len(heard[0]) // MIN_WRITE_BYTES))
                last = heard[3]
            elif not isinstance(heard, HistoryEntry) and heard[0]:
                self.writes.count(heard[0], time)

    def _is_full(self) -> bool:
        return self._bytes + self._raw_bytes > MAX_BYTES

    def _keep(self, transaction: Transaction | HistoryEntry) -> int:
        """Add the entry of a transaction, and return its size in units of READ_BYTES."""
        if isinstance(transaction, HistoryEntry):
            return self._add(transaction)
        session_id, _, zxid, time, op, changes = transaction
        entry = _entry(transaction, self.address(session_id, zxid))
        if op == OpCode.CLOSE_SESSION:
            why = self._reasons.pop(session_id, "")
            entry = entry._replace(kind="expired" if why else "closed", why=why)
        elif session_id and changes:
            self.writes.count(session_id, time)
        return self._add(entry)

    def _transactions(self, heard: _RawTransaction) -> Iterator[Transaction | HistoryEntry]:
        if isinstance(heard, bytes):
            assert self._engine.journal is not None
            return self._engine.journal.decode(heard)
        return transactions(heard) if not isinstance(heard, HistoryEntry) and len(heard) == 5 else iter((heard,))

    def _add(self, entry: HistoryEntry) -> int:
        size = ENTRY_BYTES
        for _, path, _ in entry.parts:
            size += CHANGE_BYTES + getsizeof(path)
        self._number += 1
        self._bytes += size
        self._sizes.append(size)
        self._kept.append((*entry[:-1], self._number))
        return size // READ_BYTES

    def _on_session(self, what: str, session_id: int, client: ClientConnection | None) -> None:
        engine = self._engine
        if client is not None and what in ("opened", "resumed"):
            before, address = self._addresses.pop(session_id, [])[1 - MAX_ADDRESSES :], client.address
            self._addresses[session_id] = [*before, (engine.zxid if what == "resumed" else 0, address)]
            self._forget_addresses()
            if what == "resumed":
                self._fresh.append(HistoryEntry(engine.zxid, engine.now, session_id, address, "resumed"))
        if what == "expired":
            session, why = engine.sessions.alive.get(session_id), SILENT_CLIENT_REASON
            if session is not None:
                silent, timeout = (engine.monotonic_ms - session.heard) / 1000, session.timeout_ms / 1000
                early = "expired early, on request; " if silent < timeout else ""
                why = f"{early}last heard from {silent:.1f} s before; session timeout {timeout:.1f} s"
            self._reasons[session_id] = why
        if self._before is not None:
            self._before(what, session_id, client)

    def _forget_addresses(self) -> None:
        """Remove the addresses of closed sessions, if there are more sessions than kept transactions.

        Open sessions may still write, so their addresses stay. Two sessions are checked for each new session, so closed
        sessions are removed even if every second session is open.
        """
        addresses = self._addresses
        for _ in range(2 if len(addresses) > self._limit else 0):
            oldest = next(iter(addresses))
            known = addresses.pop(oldest)
            if oldest in self._engine.sessions.alive:
                addresses[oldest] = known

    def explain(self, session_id: int, why: str) -> None:
        """Record why a session has just expired, if the reason is not its timeout."""
        self._reasons[session_id] = why

    # --- reading ---

    def entries(self, text: str = "", before: int = 0) -> Iterator[HistoryEntry | None]:
        """Yield the kept entries, the latest first. None is yielded before each longer step.

        Args:
            text: A text that entries in :attr:`lasting` must contain; empty for all. Recent entries are not filtered.
            before: Yield only entries with a number below this one; 0 for all.
        """
        self._catch_up()
        kept = list(self._kept)  # a copy, because the entries may change while the caller pauses
        lasting = self.lasting.entries(text, before)
        for each in reversed(kept):
            yield HistoryEntry(*each) if not before or each[-1] < before else None
        for row in lasting:
            if row is None or (kept and row[-1] >= kept[0][-1]):  # an entry of *kept* was archived during a pause
                yield None
            else:
                yield HistoryEntry(*row)

    def oldest(self) -> HistoryEntry | None:
        """Return the oldest entry, ignoring :attr:`lasting`. Return None if no entry is kept."""
        self._catch_up()
        return HistoryEntry(*self._kept[0]) if self._kept else None

    def deleted_children(self, parents: set[str]) -> Iterator[list[tuple[str, int, int]]]:
        """Yield the deleted sequential children of some nodes, as one list for each transaction.

        Each child is a tuple: the parent, the number of the child, and the time of the deletion in milliseconds.
        """
        self._catch_up()
        for kept in list(self._kept):  # a copy, because the entries may change while the caller pauses
            entry = HistoryEntry(*kept)
            yield [
                (above, number, entry.time)
                for op, path, _ in entry.parts
                if op == "delete"
                and (above := parent(path)) in parents
                and (number := sequence_number(path)) is not None
            ]

    def address(self, session_id: int, zxid: int | None = None) -> str:
        """Return the address of a session's client; empty if it is not known.

        Args:
            session_id: The session.
            zxid: A transaction of the session, to return the address at that time; None for the latest address.
        """
        if known := self._addresses.get(session_id):
            return next((address for since, address in reversed(known) if zxid is None or since < zxid), "")
        session = self._engine.sessions.alive.get(session_id)
        client = session.client if session is not None else None
        return client.address if client is not None else ""


def _size(heard: _RawTransaction) -> int:
    if isinstance(heard, bytes):
        return len(heard)
    return len(heard[0]) if not isinstance(heard, HistoryEntry) and len(heard) == 5 else 0


def entry_of_log(transaction: Transaction) -> HistoryEntry:
    """Return the entry of a transaction in a log. Logs do not contain the reason for the end of a session."""
    return _entry(transaction, "")


def _entry(transaction: Transaction, address: str) -> HistoryEntry:
    session_id, xid, zxid, time, op, changes = transaction
    kind = _EVENTS.get(op) or _KINDS[op]
    why = ""
    if session_id == 0 and (xid == CONSOLE_XID or kind == "delete"):
        why = "in the console" if xid == CONSOLE_XID else OWN_DELETE_REASON
    parts = tuple([(_KINDS[each], path, size if size >= 0 else None) for each, path, size in changes])
    return HistoryEntry(zxid, time, session_id, address, kind, parts, 0, why)
