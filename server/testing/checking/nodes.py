"""Rules for single nodes: an answer shows what the writes up to its zxid have made of them, and no version is lost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from zoolet.protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, CreateMode
from zoolet.protocol.errors import ErrorCode
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OpCode
from zoolet.server.testing.checking.facts import Change, Facts, Refusal, Sight
from zoolet.server.testing.checking.violation import Violation
from zoolet.server.testing.frames.requests import RecordedRequest

NUMBER: Final = r"(-[0-9]{9,10}|[0-9]{10})"
"""What the server appends to the path of a sequential node."""
PLAIN_MODES: Final = EPHEMERAL_MODES | {CreateMode.PERSISTENT, CreateMode.PERSISTENT_SEQUENTIAL}
"""Modes in which the owner of a node is its session, or nobody."""
NOBODY = "All zxids between them are known, and no other write is among them."


@dataclass(slots=True)
class _Known:
    """The last that is known of a node, by zxid.

    Args:
        entry: The request that says it.
        zxid: As of which zxid it is known.
        exists: Whether the node is there.
        changed: The zxid of its last change, as far as that is known.
        version: Its version; None if that is unknown.
        data: Its data; None if that is unknown.
        is_change: Whether that entry has changed it.
    """

    entry: RecordedRequest
    zxid: int
    exists: bool
    changed: int
    version: int | None
    data: bytes | None
    is_change: bool


def nodes_contradict(facts: Facts) -> Iterator[Violation]:
    """Walk through what is known of each node by zxid, and find what contradicts what was known before."""
    by_path: dict[str, list[tuple[int, int, Change | Sight | Refusal]]] = defaultdict(list)
    for change in facts.changes:
        by_path[change.path].append((change.zxid, 0, change))
    for refusal in facts.refusals:
        by_path[refusal.path].append((refusal.zxid, 0, refusal))
    for sight in facts.sights:
        by_path[sight.path].append((sight.zxid, 1, sight))
    for path, moments in by_path.items():
        moments.sort(key=lambda moment: moment[:2])
        last_change: _Known | None = None
        known: _Known | None = None
        for _, _, fact in moments:
            if isinstance(fact, Sight):
                yield from _check_sight(facts, path, fact, last_change)
                known = _seen(fact, known)
            elif isinstance(fact, Refusal):
                yield from _check_refusal(facts, path, fact, known)
            else:
                yield from _check_change(facts, path, fact, known)
                if fact.kind != "check":
                    known = last_change = _changed(fact)


def _seen(sight: Sight, known: _Known | None) -> _Known:
    if not sight.exists:
        return _Known(sight.entry, sight.zxid, False, 0, None, None, False)
    if sight.stat is None:
        version = known.version if known is not None and known.zxid == sight.zxid else None
        return _Known(sight.entry, sight.zxid, True, 0, version, None, False)
    return _Known(sight.entry, sight.zxid, True, sight.stat.mzxid, sight.stat.version, sight.data, False)


def _changed(change: Change) -> _Known:
    version = change.version if change.exists else None
    return _Known(change.entry, change.zxid, change.exists, change.zxid, version, change.data, True)


def _check_sight(facts: Facts, path: str, sight: Sight, last: _Known | None) -> Iterator[Violation]:
    """Compare what an answer shows with the last acknowledged change whose zxid is not above its own."""
    if sight.stat is not None and sight.stat.mzxid > sight.zxid:
        yield Violation(
            f"A read of {path} shows a write that comes after its zxid.",
            (sight.entry,),
            f"1 is as of zxid {hexadecimal(sight.zxid)}, and shows the node of {hexadecimal(sight.stat.mzxid)}.",
        )
    if last is None:
        return
    pair = last.entry, sight.entry
    is_complete = facts.zxids.are_complete(last.zxid, sight.zxid)
    because = f"2 is as of zxid {hexadecimal(sight.zxid)}, which has 1, {hexadecimal(last.zxid)}."
    if not sight.exists:
        if last.exists and is_complete:
            yield Violation(f"{path} is missing, and nobody has deleted it.", pair, f"{because} {NOBODY}")
    elif not last.exists:
        if is_complete or (sight.stat is not None and sight.stat.czxid <= last.zxid):
            yield Violation(f"{path} is there, and was deleted before.", pair, because)
    elif sight.stat is not None:
        if sight.stat.mzxid < last.zxid:
            what = "a part of a transaction" if last.entry.opcode == OpCode.MULTI else "a write"
            yield Violation(f"A read of {path} misses {what} whose zxid is not above its own.", pair, because)
        elif sight.stat.mzxid > last.zxid and is_complete:
            yield Violation(f"A read of {path} shows a write that nobody has made.", pair, NOBODY)
        elif sight.stat.mzxid == last.zxid:
            yield from _compare(path, sight, last)


def _compare(path: str, sight: Sight, last: _Known) -> Iterator[Violation]:
    """Compare an answer with the change that it shows."""
    assert sight.stat is not None
    pair = last.entry, sight.entry
    if sight.data is not None and last.data is not None and sight.data != last.data:
        yield Violation(f"A read of {path} shows other data than were written.", pair, "Both are of one zxid.")
    elif last.version is not None and sight.stat.version != last.version:
        yield Violation(f"A read of {path} shows another version than was written.", pair, "Both are of one zxid.")


def _check_change(facts: Facts, path: str, change: Change, known: _Known | None) -> Iterator[Violation]:
    """Compare a write that was accepted with what was known before."""
    if change.stat is not None and change.kind == "set" and 0 <= change.expected != change.stat.version - 1:
        yield Violation(
            f"A write of {path} was accepted at another version than it asked for.",
            (change.entry,),
            f"1 has asked for version {change.expected}, so that it becomes {change.expected + 1}.",
        )
    if known is None or known.zxid >= change.zxid or not facts.zxids.are_complete(known.zxid, change.zxid - 1):
        return
    pair = known.entry, change.entry
    if change.kind == "create" and known.exists:
        yield Violation(f"{path} was created twice, and nobody has deleted it.", pair, NOBODY)
    elif change.kind in ("set", "check", "delete") and not known.exists:
        yield Violation(f"A write of {path} was accepted, and it did not exist.", pair, NOBODY)
    elif change.kind == "set" and known.version is not None and change.version not in (None, known.version + 1):
        yield Violation(f"The version of {path} does not grow by one.", pair, NOBODY)
    elif change.kind in ("check", "delete") and 0 <= change.expected and known.version not in (None, change.expected):
        yield Violation(
            f"{path} had another version than a request asked for that was accepted.",
            pair,
            f"2 has asked for version {change.expected}, and it had {known.version}. {NOBODY}",
        )


def _check_refusal(facts: Facts, path: str, refusal: Refusal, known: _Known | None) -> Iterator[Violation]:
    """Compare a write that was refused with what was known before."""
    if known is None or known.zxid >= refusal.zxid or not facts.zxids.are_complete(known.zxid, refusal.zxid - 1):
        return
    is_of_acl = refusal.entry.opcode == OpCode.SET_ACL  # which counts versions of its own
    wrong = {
        ErrorCode.BAD_VERSION: known.exists and known.version == refusal.expected and not is_of_acl,
        ErrorCode.NO_NODE: known.exists and refusal.entry.opcode in (OpCode.SET_DATA, OpCode.DELETE),
        ErrorCode.NODE_EXISTS: not known.exists and refusal.entry.opcode in (OpCode.CREATE, OpCode.CREATE2),
    }
    if wrong.get(ErrorCode(refusal.error)):
        name = ErrorCode(refusal.error).name
        yield Violation(
            f"A write of {path} was refused with {name}, and the node says otherwise.",
            (known.entry, refusal.entry),
            NOBODY,
        )


def answers_are_impossible(facts: Facts) -> Iterator[Violation]:
    """Find answers that contradict themselves, their request, or the creation of the node that they show."""
    created: dict[tuple[str, int], Change] = {}
    for change in facts.changes:
        if change.kind == "create":
            created[change.path, change.zxid] = change
            number = NUMBER if change.mode in SEQUENTIAL_MODES else ""
            if not re.fullmatch(re.escape(change.asked) + number, change.path):
                text = f"It was to be {change.asked}{', with a number' if number else ''}."
                yield Violation(f"A create has made {change.path}, which it did not ask for.", (change.entry,), text)
    for sight in facts.sights:
        stat, path = sight.stat, sight.path
        if sight.children is not None and (
            sight.listed != len(sight.children) or (stat is not None and stat.numChildren != sight.listed)
        ):
            rule = f"A list of the children of {path} contradicts itself."
            yield Violation(rule, (sight.entry,), "It has a name twice, or another number of names than its Stat says.")
        if stat is None:
            continue
        if sight.data is not None and len(sight.data) != stat.dataLength:
            text = f"It has {len(sight.data)} bytes, and its Stat says {stat.dataLength}."
            yield Violation(f"A read of {path} contradicts itself.", (sight.entry,), text)
        creation = created.get((path, stat.czxid))
        if creation is not None and creation.mode in PLAIN_MODES:
            owner = creation.session if creation.mode in EPHEMERAL_MODES else 0
            if stat.ephemeralOwner != owner:
                text = f"2 shows the owner {hexadecimal(stat.ephemeralOwner)} in place of {hexadecimal(owner)}."
                pair = creation.entry, sight.entry
                yield Violation(f"A read of {path} shows another owner than has created it.", pair, text)


def versions_are_lost(facts: Facts) -> Iterator[Violation]:
    """Find two changes of a node after which it has the same version, or a later one after which that is lower, and
    two answers that show different nodes of one zxid.
    """
    shown: dict[tuple[str, int], dict[int, tuple[int, bytes | None, RecordedRequest]]] = defaultdict(dict)
    for change in facts.changes:
        if change.kind == "create":
            shown[change.path, change.zxid][change.zxid] = 0, change.data, change.entry
        elif change.kind == "set" and change.stat is not None:
            shown[change.path, change.stat.czxid][change.zxid] = change.stat.version, change.data, change.entry
    for sight in facts.sights:
        if sight.stat is not None:
            versions = shown[sight.path, sight.stat.czxid]
            version, data, entry = versions.get(sight.stat.mzxid, (sight.stat.version, sight.data, sight.entry))
            differs = version != sight.stat.version or (None not in (data, sight.data) and data != sight.data)
            if differs:
                rule = f"Two answers show different nodes {sight.path} of one zxid."
                yield Violation(rule, (entry, sight.entry), f"Both are of zxid {hexadecimal(sight.stat.mzxid)}.")
            versions[sight.stat.mzxid] = version, sight.data if data is None else data, entry
    for (path, _), versions in shown.items():
        ordered = sorted(versions.items())
        for (zxid, (version, _, before)), (later, (then, _, entry)) in pairwise(ordered):
            if then <= version and before is not entry:
                yield Violation(
                    f"An update of {path} is lost: a later one has version {then}, too."
                    if then == version
                    else f"The version of {path} goes back.",
                    (before, entry),
                    f"The node of zxid {hexadecimal(zxid)} has version {version}, that of {hexadecimal(later)} {then}.",
                )


def failures_have_changed(facts: Facts) -> Iterator[Violation]:
    """Find nodes that were changed by a write that failed."""
    for sight in facts.sights:
        if sight.stat is not None:
            failed = facts.failed.get(sight.stat.mzxid) or facts.failed.get(sight.stat.czxid)
            if failed is not None:
                what = "A transaction" if failed.opcode == OpCode.MULTI else "A write"
                yield Violation(f"{what} that failed has changed {sight.path}.", (failed, sight.entry))
