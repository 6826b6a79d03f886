"""Rules for what one client is answered: nothing goes back, its order is kept, and a closed session is gone."""

from __future__ import annotations

from collections.abc import Iterator

from zoolet.protocol.enums import EPHEMERAL_MODES
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.handshake import ConnectRequest, ConnectResponse
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OPERATIONS, OpCode
from zoolet.server.testing.checking.facts import NO_STATE, Facts, opened_by
from zoolet.server.testing.checking.violation import Violation, zxid_of
from zoolet.server.testing.frames.requests import CONNECT, RecordedRequest


def states_go_back(facts: Facts) -> Iterator[Violation]:
    """Find answers from an earlier state than their connection has seen, or its client before it connected."""
    last: dict[int, tuple[int, RecordedRequest]] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT:
            last[entry.connection] = ConnectRequest.decode(entry.body).last_zxid_seen, entry
        if entry.opcode in NO_STATE or (zxid := zxid_of(entry)) <= 0:
            continue
        least, before = last.get(entry.connection, (0, entry))
        if zxid < least:
            yield Violation(
                "A client is answered from an earlier state than it has seen.",
                (before, entry),
                f"The client of 1 had seen zxid {hexadecimal(least)}; 2 is as of {hexadecimal(zxid)}.",
            )
        last[entry.connection] = zxid, entry


def reads_go_back(facts: Facts) -> Iterator[Violation]:
    """Find reads of a node that show an older one than an earlier read on their connection."""
    place = {id(entry): number for number, entry in enumerate(facts.answered)}
    newest: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    lists: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    missing: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    for sight in sorted(facts.sights, key=lambda sight: place[id(sight.entry)]):
        key = sight.entry.connection, sight.path
        if not sight.exists:
            missing[key] = sight.zxid, sight.entry
        if sight.stat is None:
            continue
        gone, before = missing.get(key, (-1, sight.entry))
        if sight.stat.czxid <= gone:
            yield Violation(
                f"A read of {sight.path} shows a node that the same client has found missing.",
                (before, sight.entry),
                f"1 is as of zxid {hexadecimal(gone)}, and the node of 2 is of {hexadecimal(sight.stat.czxid)}.",
            )
        children, before = lists.get(key, (0, sight.entry))
        if sight.stat.pzxid < children:
            yield Violation(
                f"A read of {sight.path} shows older children than the same client has read.",
                (before, sight.entry),
                f"1 shows those of zxid {hexadecimal(children)}, 2 those of {hexadecimal(sight.stat.pzxid)}.",
            )
        lists[key] = sight.stat.pzxid, sight.entry
        seen, before = newest.get(key, (0, sight.entry))
        if sight.stat.mzxid < seen:
            yield Violation(
                f"A read of {sight.path} shows an older node than the same client has read.",
                (before, sight.entry),
                f"1 shows the node of zxid {hexadecimal(seen)}, 2 that of {hexadecimal(sight.stat.mzxid)}.",
            )
        newest[key] = sight.stat.mzxid, sight.entry


def writes_out_of_order(facts: Facts) -> Iterator[Violation]:
    """Find writes of a connection whose zxids do not grow."""
    last: dict[int, RecordedRequest] = {}
    for entry in _writes(facts):
        before = last.get(entry.connection)
        if before is not None and zxid_of(entry) <= zxid_of(before):
            yield Violation(
                "A client's writes are not in the order of its requests.",
                (before, entry),
                "The zxid of 2 has to be above that of 1.",
            )
        last[entry.connection] = entry


def shared_zxids(facts: Facts) -> Iterator[Violation]:
    """Find two writes with one zxid."""
    by_zxid: dict[int, RecordedRequest] = {}
    for entry in _writes(facts):
        before = by_zxid.setdefault(zxid_of(entry), entry)
        if before is not entry:
            yield Violation("Two writes were given the same zxid.", (before, entry))


def shared_sessions(facts: Facts) -> Iterator[Violation]:
    """Find a session that was opened for two clients."""
    opened: dict[int, RecordedRequest] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT and opened_by(entry):
            before = opened.setdefault(entry.session, entry)
            if before is not entry:
                yield Violation("Two clients were given the same session.", (before, entry))


def answers_to_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find answers to sessions behind the request that closed them, and such sessions resumed."""
    for entry in facts.answered:
        closing = facts.closed.get(entry.session)
        if closing is None or closing is entry:
            continue
        zxid = entry.zxid if entry.opcode == CONNECT else 0 if entry.opcode in NO_STATE else zxid_of(entry)
        if zxid > zxid_of(closing) and (entry.opcode != CONNECT or _resumes(entry)):
            yield Violation(
                "A session that was closed is served.",
                (closing, entry),
                f"1 has closed it by zxid {hexadecimal(zxid_of(closing))}; 2 is as of {hexadecimal(zxid)}.",
            )


def ephemerals_of_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find nodes whose owner was closed before."""
    for sight in facts.sights:
        if sight.stat is None or not sight.stat.ephemeralOwner or sight.stat.ephemeralOwner not in facts.closed:
            continue
        closing = facts.closed[sight.stat.ephemeralOwner]
        if sight.zxid >= zxid_of(closing) > sight.stat.czxid:
            yield Violation(
                f"The ephemeral node {sight.path} is there, and its session is closed.",
                (closing, sight.entry),
                f"1 has closed session {hexadecimal(sight.stat.ephemeralOwner)}, whose node 2 shows.",
            )
    for change in facts.changes:
        closing_ = facts.closed.get(change.session)
        if change.mode in EPHEMERAL_MODES and closing_ is not None and change.zxid > zxid_of(closing_):
            yield Violation(
                f"The ephemeral node {change.path} was created for a session that was closed.", (closing_, change.entry)
            )


def _writes(facts: Facts) -> Iterator[RecordedRequest]:
    """Yield the acknowledged writes in the order in which they were answered. The end of a session is left out: that
    of a local one takes no zxid, and looks like any other.
    """
    for entry in facts.answered:
        row = OPERATIONS.get(entry.opcode)
        is_write = row is not None and row.takes_zxid and entry.opcode not in NO_STATE | {OpCode.CLOSE_SESSION}
        if is_write and entry.error == ErrorCode.OK and zxid_of(entry) > 0:
            yield entry


def _resumes(entry: RecordedRequest) -> bool:
    return ConnectRequest.decode(entry.body).session_id != 0 and ConnectResponse.decode(entry.reply).timeout_ms > 0
