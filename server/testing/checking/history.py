"""Whether the answers that clients were given are those of one ZooKeeper: the core of a checker of histories.

It is given the entries of a recording, with what servers answered, in the order in which they did so. It needs nothing
else, so a recording of real servers through a proxy is checked in the same way. What is checked:

- Each client's answers: their zxids never go back, nor behind what the client has seen at another server, and its own
  writes have zxids that grow.
- Writes: no two that were acknowledged have the same zxid, and no sequential node is created twice.
- Reads: each sees every acknowledged write whose zxid is not above its own.

A write that was not answered may have happened or not, and others may write who are not recorded; neither is ever
held against a server, because each Stat says by which zxid a node was changed last. Time is not compared: two answers
are in an order only through zxids, or because one client was given both.

Source: ZooKeeper's consistency guarantees, in its Programmer's Guide.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from zoolet.protocol import multi as wire
from zoolet.protocol import records as r
from zoolet.protocol.codec import Record
from zoolet.protocol.enums import SEQUENTIAL_MODES, CreateMode
from zoolet.protocol.errors import ErrorCode, MarshallingError
from zoolet.protocol.handshake import ConnectRequest
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.testing.frames.requests import CONNECT, Entry, RecordedRequest, paths_in, view_of

HEADER: Final = 16
CREATES: Final = frozenset(map(int, (OpCode.CREATE, OpCode.CREATE2, OpCode.CREATE_CONTAINER, OpCode.CREATE_TTL)))
STAT_READS: Final[dict[int, Any]] = {int(OpCode.GET_DATA): r.GetDataResponse, int(OpCode.EXISTS): r.StatResponse}
LASTING: Final = frozenset({int(CreateMode.PERSISTENT), int(CreateMode.PERSISTENT_SEQUENTIAL)})
"""The create modes of nodes that nothing deletes but a request."""


@dataclass(frozen=True, slots=True)
class Violation:
    """An answer that no ZooKeeper gives.

    Args:
        rule: What it violates, in one sentence.
        entries: The requests that show it, in the order in which they were answered.
    """

    rule: str
    entries: tuple[RecordedRequest, ...]

    def __str__(self) -> str:
        return "\n".join([self.rule, *map(_line, self.entries)])


def _line(entry: RecordedRequest) -> str:
    return f"  {hexadecimal(_zxid_of(entry))} on connection {entry.connection}: {view_of(entry)}"


@dataclass(slots=True)
class _Change:
    """The last acknowledged change of a node, by its zxid."""

    zxid: int
    exists: bool
    entry: RecordedRequest
    lasts: bool
    """Whether nothing deletes the node but a request: it is neither ephemeral, a container, nor has a TTL."""


def check(entries: Sequence[Entry]) -> Violation | None:
    """Return the first answer that violates what ZooKeeper promises; None if all are in order.

    Args:
        entries: Those of a :class:`~zoolet.server.testing.Recording`, which has the replies.
    """
    requests = [entry for entry in entries if isinstance(entry, RecordedRequest) and len(entry.reply) >= HEADER]
    doubtful = {path for entry in _unanswered(entries) for path in paths_in(entry.opcode, entry.body)}
    return _check_clients(requests) or _check_writes(requests) or _check_reads(requests, doubtful)


def _unanswered(entries: Iterable[Entry]) -> Iterator[RecordedRequest]:
    """Yield the writes that were not answered: they may have happened or not."""
    for entry in entries:
        if isinstance(entry, RecordedRequest) and len(entry.reply) < HEADER and entry.opcode != CONNECT:
            row = OPERATIONS.get(entry.opcode)
            if row is not None and row.takes_zxid:
                yield entry


def _zxid_of(entry: RecordedRequest) -> int:
    return r.ReplyHeader.decode(entry.reply).zxid if len(entry.reply) >= HEADER else entry.zxid


def _counts(entry: RecordedRequest) -> bool:
    """Return whether the zxid of an answer says which state its server had."""
    return entry.opcode not in (CONNECT, OpCode.AUTH, OpCode.SASL) and _zxid_of(entry) > 0


def _is_write(entry: RecordedRequest) -> bool:
    row = OPERATIONS.get(entry.opcode)
    return row is not None and row.takes_zxid and entry.opcode != CONNECT


def _check_clients(requests: list[RecordedRequest]) -> Violation | None:
    """Check each connection, which begins with the zxid that its client has seen before."""
    last: dict[int, tuple[int, RecordedRequest]] = {}
    last_write: dict[int, RecordedRequest] = {}
    for entry in requests:
        if entry.opcode == CONNECT:
            last[entry.connection] = ConnectRequest.decode(entry.body).last_zxid_seen, entry
        if not _counts(entry):
            continue
        zxid = _zxid_of(entry)
        least, before = last.get(entry.connection, (0, entry))
        if zxid < least:
            return Violation("A client is answered from an earlier state than it has seen.", (before, entry))
        last[entry.connection] = zxid, entry
        if _is_write(entry) and entry.error == ErrorCode.OK:
            earlier = last_write.setdefault(entry.connection, entry)
            if earlier is not entry and zxid <= _zxid_of(earlier):
                return Violation("A client's writes are not in the order of its requests.", (earlier, entry))
            last_write[entry.connection] = entry
    return None


def _check_writes(requests: list[RecordedRequest]) -> Violation | None:
    by_zxid: dict[int, RecordedRequest] = {}
    for entry in requests:
        if _is_write(entry) and entry.error == ErrorCode.OK:
            before = by_zxid.setdefault(_zxid_of(entry), entry)
            if before is not entry:
                return Violation("Two writes were given the same zxid.", (before, entry))
    made: dict[str, tuple[int, RecordedRequest]] = {}
    for zxid in sorted(by_zxid):
        entry = by_zxid[zxid]
        for path, exists, mode in _changes(entry):
            if exists and mode in SEQUENTIAL_MODES:
                if path in made:
                    return Violation(f"The sequence number of {path} was given twice.", (made[path][1], entry))
                made[path] = zxid, entry
    return None


def _check_reads(requests: list[RecordedRequest], doubtful: set[str]) -> Violation | None:
    moments = sorted(
        (entry for entry in requests if _counts(entry)), key=lambda entry: (_zxid_of(entry), not _is_write(entry))
    )
    nodes: dict[str, _Change] = {}
    for entry in moments:
        if entry.error == ErrorCode.OK and _is_write(entry):
            for path, exists, mode in _changes(entry):
                before = nodes.get(path)
                lasts = mode in LASTING if mode is not None else before is not None and before.lasts
                nodes[path] = _Change(_zxid_of(entry), exists, entry, lasts)
        elif (violation := _check_read(entry, nodes, doubtful)) is not None:
            return violation
    return None


def _check_read(entry: RecordedRequest, nodes: dict[str, _Change], doubtful: set[str]) -> Violation | None:
    reads = STAT_READS.get(entry.opcode)
    path = next(iter(paths_in(entry.opcode, entry.body)), None)
    change = nodes.get(path) if path is not None else None
    if reads is None or change is None:
        return None
    if entry.error == ErrorCode.OK:
        stat = reads.decode(entry.reply, HEADER).stat
        seen = stat.mzxid if change.exists else stat.czxid
        if seen < change.zxid:
            return Violation(f"A read of {path} misses a write whose zxid is not above its own.", (change.entry, entry))
    elif entry.error == ErrorCode.NO_NODE and change.exists and change.lasts and path not in doubtful:
        return Violation(f"{path} is missing, and nobody has deleted it.", (change.entry, entry))
    return None


def _changes(entry: RecordedRequest) -> Iterator[tuple[str, bool, int | None]]:
    """Yield which nodes a write has changed, whether they exist then, and of those that it created their mode."""
    if entry.opcode == OpCode.MULTI:
        if any(entry.part_errors):
            return
        try:
            operations = list(wire.read_operations(entry.body, 0, len(entry.body)))
            results = [record for _, record in wire.decode_results(entry.reply[HEADER:])]
        except MarshallingError:
            return
        for (op, request), result in zip(operations, results, strict=False):
            yield from _change(op, request, getattr(result, "path", None))
        return
    row = OPERATIONS.get(entry.opcode)
    if row is None or row.request is None:
        return
    try:
        request = row.request.decode(entry.body)
        made = r.CreateResponse.decode(entry.reply, HEADER).path if entry.opcode in CREATES else None
    except MarshallingError:
        return
    yield from _change(entry.opcode, request, made)


def _change(opcode: int, request: Record, made: str | None) -> Iterator[tuple[str, bool, int | None]]:
    path: str = made or getattr(request, "path", "") or ""
    if opcode in CREATES:
        yield path, True, int(getattr(request, "flags", 0))
    elif opcode in (OpCode.DELETE, OpCode.SET_DATA):
        yield path, opcode == OpCode.SET_DATA, None
