"""The last transactions of a server: what each has changed, who made it, and why.

Of data only the size is kept, and old entries make room, so that the memory is bounded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import Any, Final, NamedTuple

from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import ERROR, Applied

CONSOLE_XID: Final = -77
"""The xid of what a person does in the console."""
MAX_BYTES: Final = 64 << 20
"""The most bytes that all entries take, about."""
ENTRY_BYTES: Final = 300
"""What an entry takes beside its paths."""
CHANGE_BYTES: Final = 150
"""What each change of a transaction takes beside its path."""
MAX_CHANGES: Final = 1_000
"""The most changes of a transaction in a log that are shown."""
MAX_FRESH: Final = 16 << 20
"""Bytes of requests after which all transactions are digested, because they may hold as much data."""
TIDIED: Final = 300
"""Transactions that are digested at a time otherwise, in 0.4 ms."""
MAX_ADDRESSES: Final = 100_000
"""Sessions whose address is remembered."""
_CREATES: Final = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL})
_DELETES: Final = frozenset({OpCode.DELETE, OpCode.DELETE_CONTAINER})
_WITH_DATA: Final = frozenset(map(int, _CREATES | {OpCode.SET_DATA, OpCode.RECONFIG}))
_SINGLE: Final = frozenset(map(int, _DELETES | {OpCode.SET_ACL}))
_SEVERAL: Final = frozenset(map(int, (OpCode.MULTI, OpCode.CLOSE_SESSION, OpCode.CREATE_SESSION)))
_Raw = tuple[int, int, int, int, int, Any, int, int, str]
"""zxid, time, session, xid, kind, what was changed (path and size, or several and why), its bytes, a number, and where
the client was connected from then.
"""


class Change(NamedTuple):
    """One change of a node.

    Args:
        op: ``create``, ``set``, ``delete`` or ``set ACL``.
        path: The node.
        size: Bytes of the new data; None where data has no part in it.
    """

    op: str
    path: str
    size: int | None = None


class Entry(NamedTuple):
    """A transaction, or what became of a session.

    Args:
        zxid: Its zxid; of what took none, the last one then.
        time: When, in milliseconds since the epoch.
        session_id: Whose it was; 0 for the server's own.
        address: Where that client was connected from; empty if that is not known.
        kind: ``create``, ``set``, ``delete``, ``set ACL``, ``multi``, ``opened``, ``resumed``, ``closed``, ``expired``,
            or ``ended`` if it is not known which of both.
        changes: What it changed.
        left_out: How many changes are not kept.
        why: More, in words; empty for nothing.
        number: Counts what is kept; 0 of an entry of a log.
    """

    zxid: int
    time: int
    session_id: int
    address: str
    kind: str
    changes: tuple[Change, ...] = ()
    left_out: int = 0
    why: str = ""
    number: int = 0


class History:
    """The last transactions of an engine.

    Args:
        engine: The engine; from now on it is listened to.
        limit: How many entries are kept.
    """

    def __init__(self, engine: Engine, limit: int) -> None:
        self._engine = engine
        self._limit = limit
        self._kept: deque[_Raw] = deque()
        self._bytes = self._number = self._received = 0
        # A write pays for nothing but being appended here. Its data is released when it is digested.
        self._fresh: deque[Applied] = deque(maxlen=limit)
        self._addresses: dict[int, str] = {}
        self._reasons: dict[int, str] = {}  # for which sessions have expired whose end was not digested yet
        self._before = engine.on_session
        if engine.journal is not None:
            engine.journal.heard = self._fresh.extend
        else:
            engine.record = self._fresh.append
        engine.on_session = self._on_session

    def __len__(self) -> int:
        self.digest()
        return len(self._kept)

    # --- listening ---

    def tidy(self) -> None:
        """Digest some transactions, or all after much data was received; to be called ten times a second.

        So 3,000 a second are digested at most, for 0.4 % of the time of the server; the rest when somebody asks.
        """
        received = self._engine.metrics.bytes_received
        is_much = not 0 <= received - self._received < MAX_FRESH  # srst sets it back
        self._received = received if is_much else self._received
        self.digest(None if is_much else TIDIED)

    def digest(self, most: int | None = None) -> None:
        """Keep of the transactions since the last time what is shown, and release their data.

        Args:
            most: Of how many; by default of all.
        """
        fresh, kept = self._fresh, self._kept
        for _ in range(len(fresh) if most is None else min(most, len(fresh))):
            session_id, xid, zxid, now, kind, txn = fresh.popleft()
            what: Any
            if kind in _WITH_DATA:
                what = txn.path, -1 if txn.data is None else len(txn.data)  # type: ignore[union-attr]
                size = ENTRY_BYTES + getsizeof(what[0])
            elif kind in _SINGLE:
                what = txn.path, -1  # type: ignore[union-attr]
                size = ENTRY_BYTES + getsizeof(what[0])
            elif kind in _SEVERAL:
                what = self._several(session_id, kind, txn)
                if what is None:  # it has failed
                    continue
                size = ENTRY_BYTES + sum(CHANGE_BYTES + getsizeof(path) for _, path, _ in what[0])
            else:
                continue
            self._number += 1
            self._bytes += size
            kept.append((zxid, now, session_id, xid, kind, what, size, self._number, self.address(session_id)))
            while len(kept) > self._limit or (self._bytes > MAX_BYTES and len(kept) > 1):
                self._bytes -= kept.popleft()[6]
        while len(self._reasons) > MAX_ADDRESSES:
            del self._reasons[next(iter(self._reasons))]

    def _several(self, session_id: int, kind: int, txn: Any) -> tuple[list[tuple[int, str, int]], str] | None:
        """Return kind, path and size of each change, and why there are any; None of a multi that has failed."""
        if kind == OpCode.MULTI:
            return None if txn and txn[-1][0] == ERROR else ([_part(op, record) for op, record in txn], "")
        if kind == OpCode.CLOSE_SESSION:
            return [(int(OpCode.DELETE), path, -1) for path in txn.paths2Delete], self._reasons.pop(session_id, "")
        return [], "resumed" if txn is None else ""

    def _on_session(self, what: str, session_id: int, client: ClientConnection | None) -> None:
        engine = self._engine
        if client is not None and what in ("opened", "resumed"):
            self._addresses.pop(session_id, None)
            self._addresses[session_id] = f"{client.host}:{client.port}"
            if len(self._addresses) > MAX_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
        if what == "resumed":
            self._fresh.append((session_id, 0, engine.zxid, engine.now, OpCode.CREATE_SESSION, None))  # type: ignore[arg-type]
        elif what == "expired" and (session := engine.sessions.alive.get(session_id)) is not None:
            silent, timeout = (engine.monotonic_ms - session.heard) / 1000, session.timeout_ms / 1000
            early = "somebody ended it before its time; " if silent < timeout else ""
            self._reasons[session_id] = f"{early}last heard {silent:.1f} s before; its timeout was {timeout:.1f} s"
        if self._before is not None:
            self._before(what, session_id, client)

    def explain(self, session_id: int, why: str) -> None:
        """Note why a session has expired just now, if not for its silence."""
        self._reasons[session_id] = why

    # --- asking ---

    def entries(self, path: str | None = None, session_id: int | None = None, before: int = 0) -> Iterator[Entry]:
        """Yield what is kept, the last one first.

        Args:
            path: Of this node only.
            session_id: Of this session only.
            before: Of numbers below this one only; 0 for all.
        """
        self.digest()
        for raw in reversed(self._kept):
            _, _, owner, _, kind, what, _, number, _ = raw
            if (before and number >= before) or (session_id is not None and owner != session_id):
                continue
            if path is not None:
                if all(each[1] != path for each in _parts(kind, what)):
                    continue
            yield self._entry(*raw)

    def _entry(
        self, zxid: int, time: int, owner: int, xid: int, kind: int, what: Any, size: int, number: int, address: str
    ) -> Entry:
        changes = tuple(_change(*part) for part in _parts(kind, what))
        name, why = _name(kind), what[1] if kind in _SEVERAL else ""
        if kind == OpCode.CLOSE_SESSION:
            name = "expired" if why else "closed"
        elif kind == OpCode.CREATE_SESSION:
            name, why = why or "opened", ""
        elif owner == 0:
            own = "a container without children, or a node whose TTL was over"
            why = "by a person, in the console" if xid == CONSOLE_XID else own if kind in _DELETES else ""
        return Entry(zxid, time, owner, address, name, changes, 0, why, number)

    def last_gone(self, parents: set[str]) -> dict[str, list[tuple[int, int]]]:
        """Return the numbers of the sequential children of some nodes that were deleted, and when, in milliseconds."""
        self.digest()
        gone: dict[str, list[tuple[int, int]]] = {}
        for _, time, _, _, kind, what, _, _, _ in self._kept:
            for op, path, _ in _parts(kind, what):
                if op in _DELETES and (parent := path.rpartition("/")[0]) in parents:
                    gone.setdefault(parent, []).append((sequence_of(path), time))
        return gone

    def address(self, session_id: int) -> str:
        """Return where the client of a session is or was connected from; empty if that is not known."""
        if address := self._addresses.get(session_id):
            return address
        session = self._engine.sessions.alive.get(session_id)
        client = session.client if session is not None else None
        return f"{client.host}:{client.port}" if client is not None else ""


def entry_of_log(session_id: int, zxid: int, time: int, kind: int, changes: list[tuple[int, Any]]) -> Entry:
    """Return an entry of a transaction in a log, which does not tell why a session has ended."""
    if kind == OpCode.CREATE_SESSION:
        return Entry(zxid, time, session_id, "", "opened")
    if kind == OpCode.CLOSE_SESSION:
        paths = [path for _, record in changes for path in record.paths2Delete or ()]
        shown = tuple(Change("delete", path) for path in paths[:MAX_CHANGES])
        return Entry(zxid, time, session_id, "", "ended", shown, len(paths) - len(shown))
    shown = tuple(_change(*_part(each, record)) for each, record in changes[:MAX_CHANGES])
    return Entry(zxid, time, session_id, "", _name(kind), shown, len(changes) - len(shown))


def _parts(kind: int, what: Any) -> Sequence[tuple[int, str, int]]:
    """Return kind, path and size of each change of an entry."""
    parts: Sequence[tuple[int, str, int]] = what[0] if kind in _SEVERAL else ((kind, *what),)
    return parts


def _change(kind: int, path: str, size: int) -> Change:
    return Change(_name(kind), path, size if size >= 0 else None)


def _part(kind: int, record: Any) -> tuple[int, str, int]:
    """Return kind, path and size of an operation of a multi."""
    data = record.data if kind in _WITH_DATA else None
    return kind, record.path, -1 if data is None else len(data)


def sequence_of(path: str) -> int:
    """Return the number of a sequential node; -1 for another one."""
    number = path[-10:]
    return int(number) if number.isascii() and number.isdecimal() else -1


def _name(kind: int) -> str:
    if kind in _CREATES:
        return "create"
    if kind in _DELETES:
        return "delete"
    names = {OpCode.SET_ACL: "set ACL", OpCode.MULTI: "multi", OpCode.CHECK: "check"}
    return names.get(OpCode(kind), "set")
