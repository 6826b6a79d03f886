"""The facts in a recording: the changes at each zxid, and the states that answers show."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol import multi as wire
from ...protocol import records as r
from ...protocol.acl import ANYONE
from ...protocol.codec import Record
from ...protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, Perm
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.handshake import ConnectRequest, ConnectResponse
from ...protocol.operations import OPERATIONS, OpCode, codes_by_change
from ...protocol.paths import is_internal
from ..frames.requests import CONNECT, Entry, RecordedRequest
from .violation import HEADER_BYTES, reply_zxid

CREATE_OPCODES: Final = codes_by_change("create")
LIST_OPCODES: Final = frozenset({int(OpCode.GET_CHILDREN), int(OpCode.GET_CHILDREN2)})
STATELESS_REQUESTS: Final = frozenset(map(int, (CONNECT, OpCode.AUTH, OpCode.SASL, OpCode.PING)))
"""Requests whose answers do not depend on the state of the server."""
ERRORS_WITH_ZXID: Final = frozenset(
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
"""Errors of writes that use a zxid. A reply with any other error may show the zxid of a different write."""
FALSIFYING_FAULTS: Final = ("error(", "corrupt_reply", "cut_reply")
"""Faults after which a reply is not the server's answer."""


@dataclass(frozen=True, slots=True)
class AcknowledgedChange:
    """The change of one node by an acknowledged write.

    Args:
        entry: The write. For an ephemeral node that was deleted with its session, the request that closed the session.
        zxid: The zxid of the write.
        path: The path of the node.
        kind: ``create``, ``set``, ``delete``, or ``check`` for a condition of a transaction, which changes nothing.
        mode: The create mode, or None if the node was not created.
        session: The session that created the node, or 0 if the node was not created.
        data: The data of the node after the change, or None if unknown.
        expected: The required version, -1 for any.
        stat: The Stat in the reply, or None if the reply contains no Stat.
        is_open: Whether every client may read the created node.
        requested_path: The path in the request, without the number that the server appends.
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
    requested_path: str = ""

    @property
    def exists(self) -> bool:
        """Whether the node exists after the change."""
        return self.kind != "delete"

    @property
    def version(self) -> int | None:
        """The version of the node after the change, or None if unknown."""
        return 0 if self.kind == "create" else self.stat.version if self.stat is not None else None


@dataclass(frozen=True, slots=True)
class ShownNode:
    """The part of an answer that shows the state of one node.

    Args:
        entry: The request.
        zxid: The zxid of the state.
        path: The path of the node.
        exists: Whether the node exists.
        stat: The node's Stat, or None if the answer contains no Stat.
        data: The node's data, or None if the answer contains no data.
        children: The names of the children, or None if the answer is not a list of children.
        listed: Number of names in the answer, including duplicates.
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
    """A refused write of one node.

    Args:
        entry: The request.
        zxid: The zxid of the request.
        path: The path of the node.
        error: The error code.
        expected: The required version, -1 for any.
    """

    entry: RecordedRequest
    zxid: int
    path: str
    error: int
    expected: int


class Zxids:
    """A sorted set of the zxids whose changes are all known."""

    def __init__(self, known: Iterable[int]) -> None:
        self._known = sorted(set(known))
        self._run_starts: list[int] = []  # for each known zxid, the first zxid of its gapless run
        for place, zxid in enumerate(self._known):
            follows = place > 0 and self._known[place - 1] == zxid - 1
            self._run_starts.append(self._run_starts[-1] if follows else zxid)

    def complete_since(self, zxid: int) -> int:
        """Return the zxid after which all zxids up to *zxid* are known. If *zxid* is unknown, return *zxid* itself."""
        place = bisect_right(self._known, zxid) - 1
        return self._run_starts[place] - 1 if place >= 0 and self._known[place] == zxid else zxid

    def are_complete(self, after: int, upto: int) -> bool:
        """Return whether all zxids after *after*, up to and including *upto*, are known."""
        return after >= self.complete_since(upto)


@dataclass
class Facts:
    """The facts in a recording.

    Attributes:
        entries: All entries.
        answered: The requests with genuine answers from the server, in order.
        changes: The changes by acknowledged writes, sorted by zxid.
        shown_nodes: The nodes that answers show, sorted by zxid.
        refusals: The refused writes of single nodes.
        failed: The failed writes that used a zxid, by zxid.
        closed: The closing request of each closed session, by session id.
        zxids: The known zxids.
    """

    entries: Sequence[Entry]
    answered: list[RecordedRequest] = field(default_factory=list)
    changes: list[AcknowledgedChange] = field(default_factory=list)
    shown_nodes: list[ShownNode] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    failed: dict[int, RecordedRequest] = field(default_factory=dict)
    closed: dict[int, RecordedRequest] = field(default_factory=dict)
    zxids: Zxids = field(default_factory=lambda: Zxids(()))

    @classmethod
    def read(cls, entries: Sequence[Entry], zxids: Zxids | None = None) -> Facts:
        """Read the facts of a recording.

        Args:
            entries: The entries of the recording.
            zxids: The known zxids. By default, the entries determine them.
        """
        facts = cls(entries)
        known: list[int] = []
        handshakes: Counter[int] = Counter()
        incomplete_sessions: set[int] = set()  # sessions that may own unknown nodes
        for entry in entries:
            if not isinstance(entry, RecordedRequest):
                continue
            if len(entry.reply) >= HEADER_BYTES and not any(
                fault in entry.faults_applied for fault in FALSIFYING_FAULTS
            ):
                facts.answered.append(entry)
                known += facts._read(entry)
                if entry.opcode == CONNECT:
                    handshakes[entry.session] += 1
                    incomplete_sessions |= set() if opens_session(entry) and entry.zxid else {entry.session}
            elif entry.opcode in CREATE_OPCODES or entry.opcode == OpCode.MULTI:
                incomplete_sessions.add(entry.session)
        # A resumed session may have created nodes through a different server before. A session that was opened
        # without a zxid may also be closed without one, because it is local or was recorded by a proxy.
        complete_sessions = {session for session, count in handshakes.items() if count == 1} - incomplete_sessions
        facts.changes.sort(key=lambda change: change.zxid)
        facts.shown_nodes.sort(key=lambda view: view.zxid)
        facts._add_ephemeral_deletions(known, complete_sessions, zxids)
        return facts

    def _read(self, entry: RecordedRequest) -> Iterator[int]:
        """Add the facts of an answer, and yield the zxid that the request used, if any."""
        row = OPERATIONS.get(entry.opcode)
        zxid = reply_zxid(entry)
        if row is None or entry.opcode in STATELESS_REQUESTS or zxid <= 0:
            return
        if not row.takes_zxid:
            self.shown_nodes += (view for view in _read_shown_nodes(entry, zxid) if _is_checked(view.path))
        elif entry.error == ErrorCode.OK and not any(entry.part_errors):
            self.changes += (change for change in _changes(entry, zxid) if _is_checked(change.path))
            if entry.opcode == OpCode.CLOSE_SESSION:
                self.closed.setdefault(entry.session, entry)
            else:
                yield zxid
        elif entry.error in ERRORS_WITH_ZXID or any(entry.part_errors):
            self.failed.setdefault(zxid, entry)
            self.refusals += _refusals(entry, zxid)
            yield zxid

    def _add_ephemeral_deletions(self, known: list[int], complete_sessions: set[int], zxids: Zxids | None) -> None:
        """Determine the known zxids, and add the deletions of ephemeral nodes by closed sessions.

        The zxid of a closed session is known only if all nodes that it deleted are known.

        Args:
            known: The zxids of writes.
            complete_sessions: The sessions whose creations are all recorded.
            zxids: The known zxids, or None to determine them.
        """
        opened = [
            entry.zxid for entry in self.answered if entry.opcode == CONNECT and entry.zxid and opens_session(entry)
        ]
        ends = {session: reply_zxid(closing) for session, closing in self.closed.items()}
        shown = Counter([*known, *opened, *ends.values()])
        if all(shown[zxid] == 1 for zxid in (*opened, *ends.values())):  # no zxid repeats, so no session is local
            known = known + opened
        else:
            complete_sessions = set()
        while True:
            self.zxids = zxids or Zxids([*known, *(ends[session] for session in complete_sessions & ends.keys())])
            ended, lost = self._ephemeral_deletions()
            if zxids is not None or not complete_sessions & lost:
                break
            complete_sessions = complete_sessions - lost
        self.changes += ended
        self.changes.sort(key=lambda change: change.zxid)

    def _ephemeral_deletions(self) -> tuple[list[AcknowledgedChange], set[int]]:
        """Return the deletions of ephemeral nodes by closed sessions, and the sessions whose deletions are unknown."""
        ended: list[AcknowledgedChange] = []
        lost: set[int] = set()
        later: dict[str, int] = {}  # the zxid of each node's next creation or deletion
        for change in reversed(self.changes):
            closing = self.closed.get(change.session)
            if closing is not None and change.mode in EPHEMERAL_MODES:
                zxid = reply_zxid(closing)
                if change.zxid < zxid < later.get(change.path, zxid + 1):
                    if self.zxids.are_complete(change.zxid, zxid):
                        ended.append(AcknowledgedChange(closing, zxid, change.path, "delete"))
                    else:
                        lost.add(change.session)
            if change.kind in ("create", "delete"):
                later[change.path] = change.zxid
        return ended, lost


def _is_checked(path: str) -> bool:
    """Return whether the rules apply to a node: its path is valid and not internal to ZooKeeper."""
    return path.startswith("/") and not is_internal(path)


def opens_session(entry: RecordedRequest) -> bool:
    """Return whether a handshake opened a new session. False if the handshake cannot be decoded."""
    try:
        asked, answer = ConnectRequest.decode(entry.body), ConnectResponse.decode(entry.reply)
    except MarshallingError:
        return False
    return asked.session_id == 0 and answer.timeout_ms > 0


def _read_shown_nodes(entry: RecordedRequest, zxid: int) -> Iterator[ShownNode]:
    row = OPERATIONS[entry.opcode]
    try:
        if entry.opcode == OpCode.MULTI_READ:
            reads = [(int(op), path) for op, path in wire.iter_reads(entry.body, 0, len(entry.body))]
            for (op, path), (kind, record) in zip(reads, wire.decode_results(entry.reply, HEADER_BYTES), strict=False):
                if path is not None:
                    code = getattr(record, "err", 0) if kind == -1 else 0
                    yield from _read_shown_node(entry, zxid, op, path, code, record)
        elif row.request is not None and row.path is not None:
            path = getattr(row.request.decode(entry.body), row.path)
            has_body = row.response is not None and entry.error == ErrorCode.OK
            answer = row.response.decode(entry.reply, HEADER_BYTES) if has_body and row.response is not None else None
            if path is not None:
                yield from _read_shown_node(entry, zxid, entry.opcode, path, entry.error or 0, answer)
    except MarshallingError:
        return


def _read_shown_node(
    entry: RecordedRequest, zxid: int, op: int, path: str, code: int, record: Any
) -> Iterator[ShownNode]:
    if op not in (OpCode.GET_DATA, OpCode.EXISTS, OpCode.GET_ACL) and op not in LIST_OPCODES:
        return
    if code == ErrorCode.NO_NODE:
        yield ShownNode(entry, zxid, path, exists=False)
    elif code == ErrorCode.OK and record is not None:
        children = getattr(record, "children", None)
        names = None if children is None else frozenset(children)
        data = getattr(record, "data", None) if op == OpCode.GET_DATA else None
        yield ShownNode(entry, zxid, path, True, getattr(record, "stat", None), data, names, len(children or ()))


def _changes(entry: RecordedRequest, zxid: int) -> Iterator[AcknowledgedChange]:
    """Yield the changes by a write, in order, as far as its reply can be decoded."""
    row = OPERATIONS[entry.opcode]
    try:
        if entry.opcode == OpCode.MULTI:
            operations = wire.read_operations(entry.body, 0, len(entry.body))
            results = wire.decode_results(entry.reply, HEADER_BYTES)
            for (op, request), (_, result) in zip(operations, results, strict=False):
                yield from _change(entry, zxid, int(op), request, result)
        elif row.request is not None:
            asked = row.request.decode(entry.body)
            response = row.response.decode(entry.reply, HEADER_BYTES) if row.response is not None else None
            yield from _change(entry, zxid, entry.opcode, asked, response)
    except MarshallingError:
        return


def _change(entry: RecordedRequest, zxid: int, op: int, request: Record, result: Any) -> Iterator[AcknowledgedChange]:
    path = getattr(request, "path", None)
    stat = getattr(result, "stat", None)
    if op in CREATE_OPCODES:
        made = getattr(result, "path", None) or path
        acl = getattr(request, "acl", None) or ()
        is_open = any(each.id == ANYONE and each.perms & Perm.READ for each in acl)
        data = getattr(request, "data", None) or b""
        mode = int(getattr(request, "flags", 0))
        if made is not None:
            yield AcknowledgedChange(
                entry,
                zxid,
                made,
                "create",
                mode,
                entry.session,
                data,
                stat=stat,
                is_open=is_open,
                requested_path=path or "",
            )
    elif isinstance(request, r.SetDataRequest) and path is not None:
        yield AcknowledgedChange(
            entry, zxid, path, "set", data=request.data or b"", expected=request.version, stat=stat
        )
    elif isinstance(request, r.DeleteRequest) and path is not None:
        yield AcknowledgedChange(entry, zxid, path, "delete", expected=request.version)
    elif isinstance(request, r.CheckVersionRequest) and path is not None:
        yield AcknowledgedChange(entry, zxid, path, "check", expected=request.version)


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
        return  # the refusal concerns a node with an unknown sequence number
    if path is not None and _is_checked(path):
        yield Refusal(entry, zxid, path, entry.error, int(getattr(request, "version", -1)))
