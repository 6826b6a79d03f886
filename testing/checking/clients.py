"""Rules for single clients: states never go back, writes keep their order, and closed sessions stay closed."""

from __future__ import annotations

from collections.abc import Iterator

from ...protocol.enums import EPHEMERAL_MODES
from ...protocol.errors import ErrorCode
from ...protocol.handshake import ConnectRequest, ConnectResponse
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS, OpCode
from ..frames.requests import CONNECT, RecordedRequest
from .facts import STATELESS_REQUESTS, Facts, opens_session
from .violation import Violation, reply_zxid


def find_backward_states(facts: Facts) -> Iterator[Violation]:
    """Find answers from an earlier state than the client has already seen, on this connection or an earlier one."""
    last: dict[int, tuple[int, RecordedRequest]] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT:
            last[entry.connection] = ConnectRequest.decode(entry.body).last_zxid_seen, entry
        if entry.opcode in STATELESS_REQUESTS or (zxid := reply_zxid(entry)) <= 0:
            continue
        least, before = last.get(entry.connection, (0, entry))
        if zxid < least:
            yield Violation(
                "A client gets an answer from an earlier state than it has seen.",
                (before, entry),
                f"The client of 1 had seen zxid {hexadecimal(least)}; 2 shows the state at {hexadecimal(zxid)}.",
            )
        last[entry.connection] = zxid, entry


def find_backward_reads(facts: Facts) -> Iterator[Violation]:
    """Find reads that show an older version of a node than an earlier read on the same connection."""
    place = {id(entry): number for number, entry in enumerate(facts.answered)}
    newest: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    lists: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    missing: dict[tuple[int, str], tuple[int, RecordedRequest]] = {}
    for view in sorted(facts.shown_nodes, key=lambda view: place[id(view.entry)]):
        key = view.entry.connection, view.path
        if not view.exists:
            missing[key] = view.zxid, view.entry
        if view.stat is None:
            continue
        gone, before = missing.get(key, (-1, view.entry))
        if view.stat.czxid <= gone:
            yield Violation(
                f"A read of {view.path} shows an old node that the same client has found missing.",
                (before, view.entry),
                f"1 shows the state at zxid {hexadecimal(gone)}; the node of 2 was created earlier, at "
                f"{hexadecimal(view.stat.czxid)}.",
            )
        children, before = lists.get(key, (0, view.entry))
        if view.stat.pzxid < children:
            yield Violation(
                f"A read of {view.path} shows older children than the same client has read.",
                (before, view.entry),
                f"1 shows the children at zxid {hexadecimal(children)}, 2 at {hexadecimal(view.stat.pzxid)}.",
            )
        lists[key] = view.stat.pzxid, view.entry
        seen, before = newest.get(key, (0, view.entry))
        if view.stat.mzxid < seen:
            yield Violation(
                f"A read of {view.path} shows an older node than the same client has read.",
                (before, view.entry),
                f"1 shows the node at zxid {hexadecimal(seen)}, 2 at {hexadecimal(view.stat.mzxid)}.",
            )
        newest[key] = view.stat.mzxid, view.entry


def find_reordered_writes(facts: Facts) -> Iterator[Violation]:
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


def find_shared_zxids(facts: Facts) -> Iterator[Violation]:
    """Find two writes with the same zxid."""
    by_zxid: dict[int, RecordedRequest] = {}
    for entry in _writes(facts):
        before = by_zxid.setdefault(reply_zxid(entry), entry)
        if before is not entry:
            yield Violation("Two writes have the same zxid.", (before, entry))


def find_shared_sessions(facts: Facts) -> Iterator[Violation]:
    """Find a session that was opened for two clients."""
    opened: dict[int, RecordedRequest] = {}
    for entry in facts.answered:
        if entry.opcode == CONNECT and opens_session(entry):
            before = opened.setdefault(entry.session, entry)
            if before is not entry:
                yield Violation("Two clients have the same session.", (before, entry))


def find_answers_to_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find closed sessions that a server still answers, or allows a client to resume."""
    for entry in facts.answered:
        closing = facts.closed.get(entry.session)
        if closing is None or closing is entry:
            continue
        zxid = entry.zxid if entry.opcode == CONNECT else 0 if entry.opcode in STATELESS_REQUESTS else reply_zxid(entry)
        if zxid > reply_zxid(closing) and (entry.opcode != CONNECT or _resumes(entry)):
            yield Violation(
                "A closed session is still served.",
                (closing, entry),
                f"1 closed the session at zxid {hexadecimal(reply_zxid(closing))}; 2 shows the state at "
                f"{hexadecimal(zxid)}.",
            )


def find_ephemerals_of_closed_sessions(facts: Facts) -> Iterator[Violation]:
    """Find ephemeral nodes that exist, or are created, after their session was closed."""
    for view in facts.shown_nodes:
        if view.stat is None or not view.stat.ephemeralOwner or view.stat.ephemeralOwner not in facts.closed:
            continue
        closing = facts.closed[view.stat.ephemeralOwner]
        if view.zxid >= reply_zxid(closing) > view.stat.czxid:
            yield Violation(
                f"The ephemeral node {view.path} exists, although its session is closed.",
                (closing, view.entry),
                f"1 closed session {hexadecimal(view.stat.ephemeralOwner)}, which owns the node in 2.",
            )
    for change in facts.changes:
        closing_ = facts.closed.get(change.session)
        if change.mode in EPHEMERAL_MODES and closing_ is not None and change.zxid > reply_zxid(closing_):
            yield Violation(
                f"The ephemeral node {change.path} was created for a closed session.", (closing_, change.entry)
            )


def _writes(facts: Facts) -> Iterator[RecordedRequest]:
    """Yield the acknowledged writes in the order of their answers.

    Requests that close a session are skipped, because the session may be local. In that case they use no zxid.
    """
    for entry in facts.answered:
        row = OPERATIONS.get(entry.opcode)
        is_write = (
            row is not None and row.takes_zxid and entry.opcode not in STATELESS_REQUESTS | {OpCode.CLOSE_SESSION}
        )
        if is_write and entry.error == ErrorCode.OK and reply_zxid(entry) > 0:
            yield entry


def _resumes(entry: RecordedRequest) -> bool:
    return ConnectRequest.decode(entry.body).session_id != 0 and ConnectResponse.decode(entry.reply).timeout_ms > 0
