"""Rules for single nodes: answers show the result of all writes up to their zxid, and no version is lost."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ...protocol.enums import EPHEMERAL_MODES, SEQUENTIAL_MODES, CreateMode
from ...protocol.errors import ErrorCode
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ...protocol.paths import SEQUENCE_PATTERN
from ..frames.requests import RecordedRequest
from .facts import AcknowledgedChange, Facts, Refusal, ShownNode
from .violation import Violation

MODES_WITH_KNOWN_OWNER: Final = EPHEMERAL_MODES | {CreateMode.PERSISTENT, CreateMode.PERSISTENT_SEQUENTIAL}
"""Modes that determine the owner of a node: the creating session for an ephemeral node, otherwise no session."""
NO_CONFLICT = "All zxids between them are known, and none belongs to a conflicting write."
"""Explanation of a violation that depends on the absence of unrecorded changes."""


@dataclass(slots=True)
class _KnownNode:
    """The latest known state of a node.

    Args:
        entry: The request that shows the state.
        zxid: The zxid of the state.
        exists: Whether the node exists.
        changed: The zxid of the node's last change, or 0 if unknown.
        version: The node's version, or None if unknown.
        data: The node's data, or None if unknown.
        is_change: Whether the entry changed the node.
    """

    entry: RecordedRequest
    zxid: int
    exists: bool
    changed: int
    version: int | None
    data: bytes | None
    is_change: bool


def find_contradictory_nodes(facts: Facts) -> Iterator[Violation]:
    """Find changes, refusals and answers that contradict the earlier state of their node, in the order of zxids."""
    by_path: dict[str, list[tuple[int, int, AcknowledgedChange | ShownNode | Refusal]]] = defaultdict(list)
    for change in facts.changes:
        by_path[change.path].append((change.zxid, 0, change))
    for refusal in facts.refusals:
        by_path[refusal.path].append((refusal.zxid, 0, refusal))
    for view in facts.shown_nodes:
        by_path[view.path].append((view.zxid, 1, view))
    for path, moments in by_path.items():
        moments.sort(key=lambda moment: moment[:2])
        last_change: _KnownNode | None = None
        known: _KnownNode | None = None
        for _, _, fact in moments:
            if isinstance(fact, ShownNode):
                yield from _check_view(facts, path, fact, last_change)
                known = _known_from_read(fact, known)
            elif isinstance(fact, Refusal):
                yield from _check_refusal(facts, path, fact, known)
            else:
                yield from _check_change(facts, path, fact, known)
                if fact.kind != "check":
                    known = last_change = _known_from_change(fact)


def _known_from_read(view: ShownNode, known: _KnownNode | None) -> _KnownNode:
    if not view.exists:
        return _KnownNode(view.entry, view.zxid, False, 0, None, None, False)
    if view.stat is None:
        version = known.version if known is not None and known.zxid == view.zxid else None
        return _KnownNode(view.entry, view.zxid, True, 0, version, None, False)
    return _KnownNode(view.entry, view.zxid, True, view.stat.mzxid, view.stat.version, view.data, False)


def _known_from_change(change: AcknowledgedChange) -> _KnownNode:
    version = change.version if change.exists else None
    return _KnownNode(change.entry, change.zxid, change.exists, change.zxid, version, change.data, True)


def _check_view(facts: Facts, path: str, view: ShownNode, last: _KnownNode | None) -> Iterator[Violation]:
    """Compare an answer with the last acknowledged change of the node up to the answer's zxid."""
    if view.stat is not None and view.stat.mzxid > view.zxid:
        yield Violation(
            f"A read of {path} shows a write with a higher zxid than its own.",
            (view.entry,),
            f"1 shows the state at zxid {hexadecimal(view.zxid)}, but a node from {hexadecimal(view.stat.mzxid)}.",
        )
    if last is None:
        return
    pair = last.entry, view.entry
    is_complete = facts.zxids.are_complete(last.zxid, view.zxid)
    because = f"2 shows the state at zxid {hexadecimal(view.zxid)}, which includes 1 ({hexadecimal(last.zxid)})."
    if not view.exists:
        if last.exists and is_complete:
            yield Violation(f"{path} is missing, although it was not deleted.", pair, f"{because} {NO_CONFLICT}")
    elif not last.exists:
        if is_complete or (view.stat is not None and view.stat.czxid <= last.zxid):
            yield Violation(f"{path} exists, although it was deleted before.", pair, because)
    elif view.stat is not None:
        if view.stat.mzxid < last.zxid:
            what = "a part of a transaction" if last.entry.opcode == OpCode.MULTI else "a write"
            yield Violation(f"A read of {path} does not show {what} up to its zxid.", pair, because)
        elif view.stat.mzxid > last.zxid and is_complete:
            yield Violation(f"A read of {path} shows a write that was never made.", pair, NO_CONFLICT)
        elif view.stat.mzxid == last.zxid:
            yield from _compare_with_change(path, view, last)


def _compare_with_change(path: str, view: ShownNode, last: _KnownNode) -> Iterator[Violation]:
    """Compare an answer with the change that it shows."""
    assert view.stat is not None
    pair = last.entry, view.entry
    if view.data is not None and last.data is not None and view.data != last.data:
        yield Violation(f"A read of {path} shows different data than the write.", pair, "Both have the same zxid.")
    elif last.version is not None and view.stat.version != last.version:
        yield Violation(f"A read of {path} shows a different version than the write.", pair, "Both have the same zxid.")


def _check_change(facts: Facts, path: str, change: AcknowledgedChange, known: _KnownNode | None) -> Iterator[Violation]:
    """Compare an accepted write with the last known state of its node."""
    if change.stat is not None and change.kind == "set" and 0 <= change.expected != change.stat.version - 1:
        yield Violation(
            f"A write of {path} was accepted at a different version than it requires.",
            (change.entry,),
            f"1 requires version {change.expected}, so the new version must be {change.expected + 1}.",
        )
    if known is None or known.zxid >= change.zxid or not facts.zxids.are_complete(known.zxid, change.zxid - 1):
        return
    pair = known.entry, change.entry
    if change.kind == "create" and known.exists:
        yield Violation(f"{path} was created twice, although it was not deleted.", pair, NO_CONFLICT)
    elif change.kind in ("set", "check", "delete") and not known.exists:
        yield Violation(f"A write of {path} was accepted, although the node did not exist.", pair, NO_CONFLICT)
    elif change.kind == "set" and known.version is not None and change.version not in (None, known.version + 1):
        yield Violation(f"The version of {path} does not increase by one.", pair, NO_CONFLICT)
    elif change.kind in ("check", "delete") and 0 <= change.expected and known.version not in (None, change.expected):
        yield Violation(
            f"A write of {path} was accepted, although the version did not match.",
            pair,
            f"2 requires version {change.expected}, but the node had version {known.version}. {NO_CONFLICT}",
        )


def _check_refusal(facts: Facts, path: str, refusal: Refusal, known: _KnownNode | None) -> Iterator[Violation]:
    """Compare a refused write with the last known state of its node."""
    if known is None or known.zxid >= refusal.zxid or not facts.zxids.are_complete(known.zxid, refusal.zxid - 1):
        return
    is_of_acl = refusal.entry.opcode == OpCode.SET_ACL  # the version of an ACL differs from the version of the data
    wrong = {
        ErrorCode.BAD_VERSION: known.exists and known.version == refusal.expected and not is_of_acl,
        ErrorCode.NO_NODE: known.exists and refusal.entry.opcode in (OpCode.SET_DATA, OpCode.DELETE),
        ErrorCode.NODE_EXISTS: not known.exists and refusal.entry.opcode in (OpCode.CREATE, OpCode.CREATE2),
    }
    if wrong.get(ErrorCode(refusal.error)):
        name = ErrorCode(refusal.error).name
        yield Violation(
            f"A write of {path} was refused with {name}, which contradicts the state of the node.",
            (known.entry, refusal.entry),
            NO_CONFLICT,
        )


def find_impossible_answers(facts: Facts) -> Iterator[Violation]:
    """Find answers that contradict themselves, their request, or the creation of their node."""
    created: dict[tuple[str, int], AcknowledgedChange] = {}
    for change in facts.changes:
        if change.kind == "create":
            created[change.path, change.zxid] = change
            number = SEQUENCE_PATTERN if change.mode in SEQUENTIAL_MODES else ""
            if not re.fullmatch(re.escape(change.requested_path) + number, change.path):
                text = f"The requested path is {change.requested_path}{', plus a number' if number else ''}."
                yield Violation(f"A create returned the wrong path {change.path}.", (change.entry,), text)
    for view in facts.shown_nodes:
        stat, path = view.stat, view.path
        if view.children is not None and (
            view.listed != len(view.children) or (stat is not None and stat.numChildren != view.listed)
        ):
            rule = f"A list of the children of {path} contradicts itself."
            yield Violation(rule, (view.entry,), "1 repeats a name, or its number of names differs from its Stat.")
        if stat is None:
            continue
        if view.data is not None and len(view.data) != stat.dataLength:
            text = f"1 has {len(view.data)} bytes of data, but its Stat has the length {stat.dataLength}."
            yield Violation(f"A read of {path} contradicts itself.", (view.entry,), text)
        creation = created.get((path, stat.czxid))
        if creation is not None and creation.mode in MODES_WITH_KNOWN_OWNER:
            owner = creation.session if creation.mode in EPHEMERAL_MODES else 0
            if stat.ephemeralOwner != owner:
                text = f"2 shows the owner {hexadecimal(stat.ephemeralOwner)} instead of {hexadecimal(owner)}."
                pair = creation.entry, view.entry
                yield Violation(f"A read of {path} shows a wrong owner.", pair, text)


def find_lost_versions(facts: Facts) -> Iterator[Violation]:
    """Find changes that do not increase the version of their node, and answers that differ for the same zxid."""
    shown: dict[tuple[str, int], dict[int, tuple[int, bytes | None, RecordedRequest]]] = defaultdict(dict)
    for change in facts.changes:
        if change.kind == "create":
            shown[change.path, change.zxid][change.zxid] = 0, change.data, change.entry
        elif change.kind == "set" and change.stat is not None:
            shown[change.path, change.stat.czxid][change.zxid] = change.stat.version, change.data, change.entry
    for view in facts.shown_nodes:
        if view.stat is not None:
            versions = shown[view.path, view.stat.czxid]
            version, data, entry = versions.get(view.stat.mzxid, (view.stat.version, view.data, view.entry))
            differs = version != view.stat.version or (None not in (data, view.data) and data != view.data)
            if differs:
                rule = f"Two answers show a different node {view.path} for the same zxid."
                yield Violation(rule, (entry, view.entry), f"Both show the node at {hexadecimal(view.stat.mzxid)}.")
            versions[view.stat.mzxid] = version, view.data if data is None else data, entry
    for (path, _), versions in shown.items():
        ordered = sorted(versions.items())
        for (zxid, (version, _, before)), (later, (then, _, entry)) in pairwise(ordered):
            if then <= version and before is not entry:
                yield Violation(
                    f"An update of {path} is lost: a later update also has version {then}."
                    if then == version
                    else f"The version of {path} decreases.",
                    (before, entry),
                    f"The node has version {version} at zxid {hexadecimal(zxid)}, and {then} at {hexadecimal(later)}.",
                )


def find_effects_of_failed_writes(facts: Facts) -> Iterator[Violation]:
    """Find nodes that were changed by a failed write."""
    for view in facts.shown_nodes:
        if view.stat is not None:
            failed = facts.failed.get(view.stat.mzxid) or facts.failed.get(view.stat.czxid)
            if failed is not None:
                what = "A transaction" if failed.opcode == OpCode.MULTI else "A write"
                yield Violation(f"{what} failed, but changed {view.path}.", (failed, view.entry))
