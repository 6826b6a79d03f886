"""The facts in a recording: what was changed by which zxid, and what each answer shows of which state."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.acl import ANYONE
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, Perm
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.protocol.paths import ZOOKEEPER
from zoolet.server.testing.checking.violation import HEADER, zxid_of
from zoolet.server.testing.frames.requests import CONNECT, Entry, RecordedRequest

CREATES: Final = frozenset(map(int, (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)))
LISTS: Final = frozenset({int(OpCode.GET_CHILDREN), int(OpCode.GET_CHILDREN2)})
NO_STATE: Final = frozenset(map(int, (CONNECT, OpCode.AUTH, OpCode.SASL, OpCode.PING)))
"""Requests whose answers say nothing of the state that their server has."""
FAILS_WITH_ZXID: Final = frozenset(
    map(
        int,
        (
            ErrorCode.NO_NODE,
            ErrorCode.NODE_EXISTS,
            ErrorCode.BAD_VERSION,
            ErrorCode.NOT_EMPTY,
            ErrorCode.NO_AUTH,
            ErrorCode.NO_CHILDREN_FOR_EPHEMERALS,
            ErrorCode.INVALID_ACL,
        ),
    )
)
"""Errors that a write takes a zxid for; others may show the zxid of another one."""
UNTRUE: Final = ("error(", "corrupt_reply", "cut_reply")
"""Faults after which a reply is not the server's answer."""


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one node by an acknowledged write.

    Args:
        entry: The write; of an ephemeral node that ended with its session, the request that closed that one.
        zxid: Its zxid.
        path: The node.
        kind: ``create``, ``set``, ``delete``, or ``check`` for a condition of a transaction, which changes nothing.
        mode: The create mode; None unless it was created.
        session: Who created it.
        data: The data that it has then; None if that is unknown.
        expected: The version that was asked for, -1 for any.
        stat: The Stat in the reply; None for none.
        is_open: Whether everybody may read a node that was created.
        asked: The path in the request, without the number that the server appends.
    """

    entry: RecordedRequest
    zxid: int
    path: str
    kind: str
    mode: int | None = None
    session: int = 0
    data: bytes | None = None
    expected: int = -1
    stat: r.Stat | None = None
    is_open: bool = True
    asked: str = ""

    @property
    def exists(self) -> bool:
        """Whether the node exists then."""
        return self.kind != "delete"

    @property
    def version(self) -> int | None:
        """The version that the node has then; None if that is unknown."""
        return 0 if self.kind == "create" else self.stat.version if self.stat is not None else None


@dataclass(frozen=True, slots=True)
class Sight:
    """One node, as an answer shows it.

    Args:
        entry: The request.
        zxid: Which state it shows.
        path: The node.
        exists: Whether it is there.
        stat: Its Stat; None if the answer has none.
        data: Its data; None if the answer has none.
        children: The names of its children; None if the answer has none.
        listed: How many names the answer has.
    """

    entry: RecordedRequest
    zxid: int
    path: str
    exists: bool
    stat: r.Stat | None = None
    data: bytes | None = None
    children: frozenset[str] | None = None
    listed: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """A write of one node that was refused.

    Args:
        entry: The request.
        zxid: Its zxid.
        path: The node.
        error: The error code.
        expected: The version that was asked for, -1 for any.
    """

    entry: RecordedRequest
    zxid: int
    path: str
    error: int
    expected: int


class Zxids:
    """The zxids of which it is known what they were for."""

    def __init__(self, known: Iterable[int]) -> None:
        self._known = sorted(set(known))
        self._begins: list[int] = []  # of the run without gaps that each belongs to
        for place, zxid in enumerate(self._known):
            follows = place > 0 and self._known[place - 1] == zxid - 1
            self._begins.append(self._begins[-1] if follows else zxid)

    def complete_since(self, zxid: int) -> int:
        """Return from which zxid on all until *zxid* are known; *zxid* itself if it is not."""
        place = bisect_right(self._known, zxid) - 1
        return self._begins[place] - 1 if place >= 0 and self._known[place] == zxid else zxid

    def are_complete(self, after: int, upto: int) -> bool:
        """Return whether all zxids behind *after* are known, *upto* included."""
        return after >= self.complete_since(upto)


@dataclass
class Facts:
    """The facts in a recording.

    Attributes:
        entries: All entries.
        answered: The requests that were answered truly, in order.
        changes: What acknowledged writes have done, by zxid.
        sights: What answers show, by zxid.
        refusals: The writes of one node that were refused.
        failed: The writes that failed, by zxid.
        closed: Of the sessions that were closed, the requests that did so.
        zxids: Those that are known.
    """

    entries: Sequence[Entry]
    answered: list[RecordedRequest] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    failed: dict[int, RecordedRequest] = field(default_factory=dict)
    closed: dict[int, RecordedRequest] = field(default_factory=dict)
    zxids: Zxids = field(default_factory=lambda: Zxids(()))

    @classmethod
    def read(cls, entries: Sequence[Entry], zxids: Zxids | None = None) -> Facts:
        """Read a recording.

        Args:
            entries: Its entries.
            zxids: Those that are known; by default those of these entries.
        """
        facts = cls(entries)
        known: list[int] = []
        handshakes: Counter[int] = Counter()
        unsure: set[int] = set()  # sessions that may have nodes that nobody knows
        for entry in entries:
            if not isinstance(entry, RecordedRequest):
                continue
            if len(entry.reply) >= HEADER and not any(fault in entry.faults_applied for fault in UNTRUE):
                facts.answered.append(entry)
                known += facts._read(entry)
                if entry.opcode == CONNECT:
                    handshakes[entry.session] += 1
                    unsure |= set() if opened_by(entry) and entry.zxid else {entry.session}
            elif entry.opcode in CREATES or entry.opcode == OpCode.MULTI:
                unsure.add(entry.session)
        # One that was resumed may have been elsewhere meanwhile, and have made nodes there. One whose beginning shows
        # no zxid may take none at its end: it is local, or was recorded by a proxy.
        sure = {session for session, count in handshakes.items() if count == 1} - unsure
        facts.changes.sort(key=lambda change: change.zxid)
        facts.sights.sort(key=lambda sight: sight.zxid)
        facts._end_ephemerals(known, sure, zxids)
        return facts

    def _read(self, entry: RecordedRequest) -> Iterator[int]:
        """Take the facts of an answer; yield the zxid that it took."""
        row = OPERATIONS.get(entry.opcode)
        zxid = zxid_of(entry)
        if row is None or entry.opcode in NO_STATE or zxid <= 0:
            return
        if not row.takes_zxid:
            self.sights += (sight for sight in _sights(entry, zxid) if _counts(sight.path))
        elif entry.error == ErrorCode.OK and not any(entry.part_errors):
            self.changes += (change for change in _changes(entry, zxid) if _counts(change.path))
            if entry.opcode == OpCode.CLOSE_SESSION:
                self.closed.setdefault(entry.session, entry)
            else:
                yield zxid
        elif entry.error in FAILS_WITH_ZXID or any(entry.part_errors):
            self.failed.setdefault(zxid, entry)
            self.refusals += _refusals(entry, zxid)
            yield zxid

    def _end_ephemerals(self, known: list[int], sure: set[int], zxids: Zxids | None) -> None:
        """Note which zxids are known, and the ends of ephemeral nodes with their sessions: the zxid of such an end is
        known only if all the nodes are that it has ended.

        Args:
            known: The zxids of writes, and of the beginnings of sessions.
            sure: The sessions of which all that they have made is recorded.
            zxids: Those that are known, if that is given.
        """
        opened = [entry.zxid for entry in self.answered if entry.opcode == CONNECT and entry.zxid and opened_by(entry)]
        ends = {session: zxid_of(closing) for session, closing in self.closed.items()}
        shown = Counter([*known, *opened, *ends.values()])
        if all(shown[zxid] == 1 for zxid in (*opened, *ends.values())):  # or there are local sessions, that take none
            known = known + opened
        else:
            sure = set()
        while True:
            self.zxids = zxids or Zxids([*known, *(ends[session] for session in sure & ends.keys())])
            ended, lost = self._ended()
            if zxids is not None or not sure & lost:
                break
            sure = sure - lost
        self.changes += ended
        self.changes.sort(key=lambda change: change.zxid)

    def _ended(self) -> tuple[list[Change], set[int]]:
        """Return the ends of ephemeral nodes with their sessions, and the sessions of which that is not known."""
        ended: list[Change] = []
        lost: set[int] = set()
        later: dict[str, int] = {}  # the zxid at which each node is created or deleted next
        for change in reversed(self.changes):
            closing = self.closed.get(change.session)
            if closing is not None and change.mode in EPHEMERAL_MODES:
                zxid = zxid_of(closing)
                if change.zxid < zxid < later.get(change.path, zxid + 1):
                    if self.zxids.are_complete(change.zxid, zxid):
                        ended.append(Change(closing, zxid, change.path, "delete"))
                    else:
                        lost.add(change.session)
            if change.kind in ("create", "delete"):
                later[change.path] = change.zxid
        return ended, lost


def is_internal(path: str) -> bool:
    """Return whether a node is ZooKeeper's own, which changes by rules of its own."""
    return f"{path}/".startswith(f"{ZOOKEEPER}/")


def _counts(path: str) -> bool:
    """Return whether the rules are for a node: its path is one, and it is not ZooKeeper's own."""
    return path.startswith("/") and not is_internal(path)


def opened_by(entry: RecordedRequest) -> bool:
    """Return whether a handshake has opened a session."""
    try:
        asked, answer = ConnectRequest.decode(entry.body), ConnectResponse.decode(entry.reply)
    except MarshallingError:
        return False
    return asked.session_id == 0 and answer.timeout_ms > 0


def _sights(entry: RecordedRequest, zxid: int) -> Iterator[Sight]:
    row = OPERATIONS[entry.opcode]
    try:
        if entry.opcode == OpCode.MULTI_READ:
            reads = [(int(op), path) for op, path in wire.iter_reads(entry.body, 0, len(entry.body))]
            for (op, path), (kind, record) in zip(reads, wire.decode_results(entry.reply, HEADER), strict=False):
                if path is not None:
                    code = getattr(record, "err", 0) if kind == -1 else 0
                    yield from _sight(entry, zxid, op, path, code, record)
        elif row.request is not None and row.path is not None:
            path = getattr(row.request.decode(entry.body), row.path)
            has_body = row.response is not None and entry.error == ErrorCode.OK
            answer = row.response.decode(entry.reply, HEADER) if has_body and row.response is not None else None
            if path is not None:
                yield from _sight(entry, zxid, entry.opcode, path, entry.error or 0, answer)
    except MarshallingError:
        return


def _sight(entry: RecordedRequest, zxid: int, op: int, path: str, code: int, record: Any) -> Iterator[Sight]:
    if op not in (OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_ACL) and op not in LISTS:
        return
    if code == ErrorCode.NO_NODE:
        yield Sight(entry, zxid, path, exists=False)
    elif code == ErrorCode.OK and record is not None:
        children = getattr(record, "children", None)
        names = None if children is None else frozenset(children)
        data = getattr(record, "data", None) if op == OpCode.GET_DATA else None
        yield Sight(entry, zxid, path, True, getattr(record, "stat", None), data, names, len(children or ()))


def _changes(entry: RecordedRequest, zxid: int) -> Iterator[Change]:
    """Yield what a write has done, of several changes of one node in their order."""
    row = OPERATIONS[entry.opcode]
    try:
        if entry.opcode == OpCode.MULTI:
            operations = wire.read_operations(entry.body, 0, len(entry.body))
            results = wire.decode_results(entry.reply, HEADER)
            for (op, request), (_, result) in zip(operations, results, strict=False):
                yield from _change(entry, zxid, int(op), request, result)
        elif row.request is not None:
            asked = row.request.decode(entry.body)
            response = row.response.decode(entry.reply, HEADER) if row.response is not None else None
            yield from _change(entry, zxid, entry.opcode, asked, response)
    except MarshallingError:
        return


def _change(entry: RecordedRequest, zxid: int, op: int, request: Record, result: Any) -> Iterator[Change]:
    path = getattr(request, "path", None)
    stat = getattr(result, "stat", None)
    if op in CREATES:
        made = getattr(result, "path", None) or path
        acl = getattr(request, "acl", None) or ()
        is_open = any(each.id == ANYONE and each.perms & Perm.READ for each in acl)
        data = getattr(request, "data", None) or b""
        mode = int(getattr(request, "flags", 0))
        if made is not None:
            yield Change(
                entry, zxid, made, "create", mode, entry.session, data, stat=stat, is_open=is_open, asked=path or ""
            )
    elif isinstance(request, r.SetDataRequest) and path is not None:
        yield Change(entry, zxid, path, "set", data=request.data or b"", expected=request.version, stat=stat)
    elif isinstance(request, r.DeleteRequest) and path is not None:
        yield Change(entry, zxid, path, "delete", expected=request.version)
    elif isinstance(request, r.CheckVersionRequest) and path is not None:
        yield Change(entry, zxid, path, "check", expected=request.version)


def _refusals(entry: RecordedRequest, zxid: int) -> Iterator[Refusal]:
    row = OPERATIONS[entry.opcode]
    if entry.opcode == OpCode.MULTI or row.request is None or entry.error is None:
        return
    try:
        request = row.request.decode(entry.body)
    except MarshallingError:
        return
    path = getattr(request, "path", None)
    if getattr(request, "flags", None) in SEQUENTIAL_MODES:
        return  # it was refused because of another node, whose number nobody knows
    if path is not None and _counts(path):
        yield Refusal(entry, zxid, path, entry.error, int(getattr(request, "version", -1)))
