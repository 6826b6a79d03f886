"""Rules for single clients: states never go back, writes keep their order, and closed sessions stay closed."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.enums import EPHEMERAL_MODES
from ...protocol.errors import ErrorCode
from ...protocol.handshake import ConnectRequest, ConnectResponse
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS, OpCode
from ..frames.requests import CONNECT, RecordedRequest
from .facts import NO_STATE, Facts, opened_by
from .violation import Violation, reply_zxid


def states_go_back(facts: Facts) -> Iterator[Violation]:
    """Find answers that are older than the last state that the client saw, on this connection or before it."""
    last: dict[int, tuple[int, RecordedRequest]] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT:
            last[entry.connection] = ConnectRequest.decode(entry.body).last_zxid_seen, entry
        if entry.opcode in NO_STATE or (zxid := reply_zxid(entry)) <= 0:
            continue
        least, before = last.get(entry.connection, (0, entry))
        if zxid < least:
            yield Violation(
                "A client gets an answer from an earlier state than it has seen.",
                (before, entry),
                f"The client of 1 had seen zxid {hexadecimal(least)}; 2 shows the state at {hexadecimal(zxid)}.",
            )
        last[entry.connection] = zxid, entry


def reads_go_back(facts: Facts) -> Iterator[Violation]:
    """Find reads that show an older version of a node than an earlier read on the same connection."""
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
                f"A read of {sight.path} shows an old node that the same client has found missing.",
                (before, sight.entry),
                f"1 shows the state at zxid {hexadecimal(gone)}; the node of 2 was created earlier, at "
                f"{hexadecimal(sight.stat.czxid)}.",
            )
        children, before = lists.get(key, (0, sight.entry))
        if sight.stat.pzxid < children:
            yield Violation(
                f"A read of {sight.path} shows older children than the same client has read.",
                (before, sight.entry),
                f"1 shows the children at zxid {hexadecimal(children)}, 2 at {hexadecimal(sight.stat.pzxid)}.",
            )
        lists[key] = sight.stat.pzxid, sight.entry
        seen, before = newest.get(key, (0, sight.entry))
        if sight.stat.mzxid < seen:
            yield Violation(
                f"A read of {sight.path} shows an older node than the same client has read.",
                (before, sight.entry),
                f"1 shows the node at zxid {hexadecimal(seen)}, 2 at {hexadecimal(sight.stat.mzxid)}.",
            )
        newest[key] = sight.stat.mzxid, sight.entry


def writes_out_of_order(facts: Facts) -> Iterator[Violation]:
    """Find writes of a connection whose zxids do not increase."""
    last: dict[int, RecordedRequest] = {}
    for entry in _writes(facts):
        before = last.get(entry.connection)
        if before is not None and reply_zxid(entry) <= reply_zxid(before):
            yield Violation(
                "A client's writes are not in the order of its requests.",
                (before, entry),
                "The zxid of 2 must be higher than the zxid of 1.",
            )
        last[entry.connection] = entry


def shared_zxids(facts: Facts) -> Iterator[Violation]:
    """Find two writes with the same zxid."""
    by_zxid: dict[int, RecordedRequest] = {}
    for entry in _writes(facts):
        before = by_zxid.setdefault(reply_zxid(entry), entry)
        if before is not entry:
            yield Violation("Two writes have the same zxid.", (before, entry))


def shared_sessions(facts: Facts) -> Iterator[Violation]:
    """Find a session that was opened for two clients."""
    opened: dict[int, RecordedRequest] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT and opened_by(entry):
            before = opened.setdefault(entry.session, entry)
            if before is not entry:
                yield Violation("Two clients have the same session.", (before, entry))


def answers_to_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find sessions that are answered or resumed after the request that closed them."""
    for entry in facts.answered:
        closing = facts.closed.get(entry.session)
        if closing is None or closing is entry:
            continue
        zxid = entry.zxid if entry.opcode == CONNECT else 0 if entry.opcode in NO_STATE else reply_zxid(entry)
        if zxid > reply_zxid(closing) and (entry.opcode != CONNECT or _resumes(entry)):
            yield Violation(
                "A closed session is still served.",
                (closing, entry),
                f"1 closed the session at zxid {hexadecimal(reply_zxid(closing))}; 2 shows the state at "
                f"{hexadecimal(zxid)}.",
            )


def ephemerals_of_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find ephemeral nodes whose session was closed before."""
    for sight in facts.sights:
        if sight.stat is None or not sight.stat.ephemeralOwner or sight.stat.ephemeralOwner not in facts.closed:
            continue
        closing = facts.closed[sight.stat.ephemeralOwner]
        if sight.zxid >= reply_zxid(closing) > sight.stat.czxid:
            yield Violation(
                f"The ephemeral node {sight.path} exists, although its session is closed.",
                (closing, sight.entry),
                f"1 closed session {hexadecimal(sight.stat.ephemeralOwner)}, which owns the node in 2.",
            )
    for change in facts.changes:
        closing_ = facts.closed.get(change.session)
        if change.mode in EPHEMERAL_MODES and closing_ is not None and change.zxid > reply_zxid(closing_):
            yield Violation(
                f"The ephemeral node {change.path} was created for a closed session.", (closing_, change.entry)
            )


def _writes(facts: Facts) -> Iterator[RecordedRequest]:
    """Yield the acknowledged writes in the order of their answers.

    Requests that close a session are left out: for a local session they use no zxid, but look the same.
    """
    for entry in facts.answered:
        row = OPERATIONS.get(entry.opcode)
        is_write = row is not None and row.takes_zxid and entry.opcode not in NO_STATE | {OpCode.CLOSE_SESSION}
        if is_write and entry.error == ErrorCode.OK and reply_zxid(entry) > 0:
            yield entry


def _resumes(entry: RecordedRequest) -> bool:
    return ConnectRequest.decode(entry.body).session_id != 0 and ConnectResponse.decode(entry.reply).timeout_ms > 0
