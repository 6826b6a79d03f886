"""What has happened to the nodes and sessions of a server lately: each transaction, who made it, and why.

It listens to the journal (:class:`~zoolet.server.core.journal.HeardJournal`) and to what becomes of sessions. Of data
only the size is kept, so that what it takes is bounded by the number of entries and by the bytes of their paths.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from zoolet.protocol.codec import Record
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.engine import Engine
from zoolet.server.core.journal import HeardJournal

CONSOLE_XID: Final = -77
"""The xid of what a person does in the console."""
MAX_BYTES: Final = 64 << 20
"""The most bytes that are kept."""
MAX_CHANGES: Final = 1_000
"""The most changes of one transaction that are kept: a session may end with many ephemeral nodes."""
ENTRY_BYTES: Final = 400
"""What an entry takes beside its paths."""
MAX_ADDRESSES: Final = 100_000
"""Sessions whose address is remembered."""
_CREATES: Final = frozenset({OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL})
_DELETES: Final = frozenset({OpCode.DELETE, OpCode.DELETE_CONTAINER})
_WITH_DATA: Final = _CREATES | {OpCode.SET_DATA, OpCode.RECONFIG}


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
        zxid: Its zxid; 0 if it took none.
        time: When, in milliseconds since the epoch.
        session_id: Whose it was; 0 for the server's own.
        address: Where that client was connected from; empty if that is not known.
        kind: ``create``, ``set``, ``delete``, ``set ACL``, ``multi``, ``opened``, ``resumed``, ``closed``, ``expired``.
        changes: What it changed.
        left_out: How many changes are not kept.
        why: More, in words; empty for nothing.
    """

    zxid: int
    time: int
    session_id: int
    address: str
    kind: str
    changes: tuple[Change, ...] = ()
    left_out: int = 0
    why: str = ""


class History:
    """The last transactions of an engine.

    Args:
        engine: The engine; from now on it is listened to.
        limit: How many entries are kept.
    """

    def __init__(self, engine: Engine, limit: int) -> None:
        self._engine = engine
        self._limit = limit
        self._kept: deque[tuple[int, int, int, int, int, int, Any]] = deque()
        self._weight = 0
        self._addresses: dict[int, str] = {}
        self._reason = ""  # for which the session whose end follows has expired
        self._before = engine.on_session
        engine.journal = HeardJournal(engine.journal, self._add)
        engine.on_session = self._on_session

    def __len__(self) -> int:
        return len(self._kept)

    # --- listening ---

    def _add(self, session_id: int, xid: int, zxid: int, now: int, kind: int, txn: Record) -> None:
        # As little as possible for each write; the words are found when somebody asks.
        path = getattr(txn, "path", None)
        if path is not None:
            data = getattr(txn, "data", None)
            weight = ENTRY_BYTES + len(path)
            what: Any = (path, None if data is None else len(data))
        else:
            what = self._several(kind, txn)
            weight = ENTRY_BYTES + sum(ENTRY_BYTES + len(each[1]) for each in what[0])
        self._keep((zxid, now, session_id, xid, kind, weight, what))

    def _keep(self, entry: tuple[int, int, int, int, int, int, Any]) -> None:
        kept = self._kept
        kept.append(entry)
        self._weight += entry[5]
        while len(kept) > self._limit or self._weight > MAX_BYTES:
            self._weight -= kept.popleft()[5]

    def _several(self, kind: int, txn: Any) -> tuple[list[tuple[int, str, int | None]], int, str]:
        """Return kind, path and size of each change, how many are left out, and why there are any."""
        if kind == OpCode.MULTI:
            parts = txn.txns
            return [_part(each.type, each.data) for each in parts[:MAX_CHANGES]], max(0, len(parts) - MAX_CHANGES), ""
        if kind == OpCode.CLOSE_SESSION:
            paths, reason, self._reason = txn.paths2Delete, self._reason, ""
            changes: list[tuple[int, str, int | None]] = [(OpCode.DELETE, path, None) for path in paths[:MAX_CHANGES]]
            return changes, max(0, len(paths) - MAX_CHANGES), reason
        return [], 0, ""

    def _on_session(self, what: str, session_id: int, client: ClientConnection | None) -> None:
        engine = self._engine
        if client is not None and what in ("opened", "resumed"):
            self._addresses.pop(session_id, None)
            self._addresses[session_id] = f"{client.host}:{client.port}"
            if len(self._addresses) > MAX_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
        if what == "resumed":
            self._keep((0, engine.now, session_id, 0, OpCode.CREATE_SESSION, ENTRY_BYTES, ([], 0, "resumed")))
        elif what == "expired" and (session := engine.sessions.alive.get(session_id)) is not None:
            silent = (engine.monotonic_ms - session.heard) / 1000
            self._reason = f"last heard {silent:.1f} s before; its timeout was {session.timeout_ms / 1000:.1f} s"
        if self._before is not None:
            self._before(what, session_id, client)

    # --- asking ---

    def entries(self, path: str | None = None, session_id: int | None = None, before: int = 0) -> Iterator[Entry]:
        """Yield what is kept, the last one first.

        Args:
            path: Of this node only.
            session_id: Of this session only.
            before: Of zxids below this one only; 0 for all.
        """
        for raw in reversed(self._kept):
            zxid, _, owner, _, kind, _, what = raw
            if (before and zxid >= before) or (session_id is not None and owner != session_id):
                continue
            if path is not None:
                single = kind not in (OpCode.MULTI, OpCode.CLOSE_SESSION, OpCode.CREATE_SESSION)
                if what[0] != path if single else all(each[1] != path for each in what[0]):
                    continue
            yield self._entry(*raw)

    def _entry(self, zxid: int, time: int, owner: int, xid: int, kind: int, weight: int, what: Any) -> Entry:
        if kind in (OpCode.MULTI, OpCode.CLOSE_SESSION, OpCode.CREATE_SESSION):
            parts, left_out, why = what
            changes = tuple(Change(_name(each), path, size) for each, path, size in parts)
        else:
            changes, left_out, why = (Change(_name(kind), *what),), 0, ""
        name = _name(kind)
        if kind == OpCode.CLOSE_SESSION:
            name = "expired" if why else "closed"
        elif kind == OpCode.CREATE_SESSION:
            name, why = why or "opened", ""
        elif owner == 0:
            own = "a container without children, or a node whose TTL was over"
            why = "by a person, in the console" if xid == CONSOLE_XID else own if kind in _DELETES else ""
        return Entry(zxid, time, owner, self.address(owner), name, changes, left_out, why)

    def address(self, session_id: int) -> str:
        """Return where the client of a session is or was connected from; empty if that is not known."""
        if address := self._addresses.get(session_id):
            return address
        session = self._engine.sessions.alive.get(session_id)
        client = session.client if session is not None else None
        return f"{client.host}:{client.port}" if client is not None else ""


def _part(kind: int, data: bytes) -> tuple[int, str, int | None]:
    """Return kind, path and size of an operation of a multi: its record begins with the path, then has the data."""
    end = 4 + int.from_bytes(data[:4], "big")
    size = int.from_bytes(data[end : end + 4], "big", signed=True) if kind in _WITH_DATA else -1
    return kind, data[4:end].decode("utf-8", "surrogatepass"), size if size >= 0 else None


def _name(kind: int) -> str:
    if kind in _CREATES:
        return "create"
    if kind in _DELETES:
        return "delete"
    names = {OpCode.SET_ACL: "set ACL", OpCode.MULTI: "multi", OpCode.CHECK: "check"}
    return names.get(OpCode(kind), "set")
