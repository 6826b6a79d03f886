"""Rules for nodes with a common parent: lists of children, sequence numbers, and locks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from ...protocol import paths
from ...protocol.enums import SEQUENTIAL_MODES, CreateMode
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ...protocol.recipe_names import parse_contender, sort_by_number
from .facts import AcknowledgedChange, Facts, ShownNode
from .nodes import NO_CONFLICT
from .violation import Violation

MAX_SEQUENCE: Final = 2**31 - 1000
"""Sequence numbers above this limit are ignored, because they may soon overflow to negative numbers."""


def find_contradictory_lists(facts: Facts) -> Iterator[Violation]:
    """Find lists of children that lack a created child, or contain a child that was deleted or never created."""
    lists = [view for view in facts.shown_nodes if view.children is not None]
    by_parent: dict[str, list[AcknowledgedChange | ShownNode]] = defaultdict(list)
    listed = {view.path for view in lists}
    for change in facts.changes:  # in one pass, because a transaction may create a node and its children
        if change.kind == "create" and change.path in listed:
            by_parent[change.path].append(change)
        if change.kind in ("create", "delete") and change.path != "/":
            by_parent[paths.parent(change.path)].append(change)
    for view in lists:
        if view.path in by_parent:
            by_parent[view.path].append(view)
    for path, moments in by_parent.items():
        moments.sort(key=lambda fact: (fact.zxid, isinstance(fact, ShownNode)))
        present: dict[str, AcknowledgedChange] = {}
        gone: dict[str, AcknowledgedChange] = {}
        birth: AcknowledgedChange | None = None
        for fact in moments:
            if isinstance(fact, AcknowledgedChange) and fact.path == path:
                birth, present, gone = fact, {}, {}
            elif isinstance(fact, AcknowledgedChange):
                name = paths.name(fact.path)
                (gone if fact.exists else present).pop(name, None)
                (present if fact.exists else gone)[name] = fact
            else:
                yield from _check_list(facts, path, fact, present, gone)
                if birth is not None and facts.zxids.are_complete(birth.zxid, fact.zxid):
                    for name in (fact.children or frozenset()) - present.keys() - gone.keys():
                        rule = f"A list of the children of {path} contains {name}, which was never created."
                        yield Violation(rule, (birth.entry, fact.entry), NO_CONFLICT)


def _check_list(
    facts: Facts,
    path: str,
    view: ShownNode,
    present: dict[str, AcknowledgedChange],
    gone: dict[str, AcknowledgedChange],
) -> Iterator[Violation]:
    assert view.children is not None
    since = facts.zxids.complete_since(view.zxid)
    for name in present.keys() - view.children:
        if present[name].zxid >= since:
            rule = f"A list of the children of {path} lacks {name}."
            yield Violation(rule, (present[name].entry, view.entry), NO_CONFLICT)
    for name in gone.keys() & view.children:
        is_old = view.stat is not None and view.stat.pzxid < gone[name].zxid
        if is_old or gone[name].zxid >= since:
            rule = f"A list of the children of {path} contains {name}, which was deleted before."
            yield Violation(rule, (gone[name].entry, view.entry), "" if is_old else NO_CONFLICT)


def find_repeated_sequences(facts: Facts) -> Iterator[Violation]:
    """Find sequence numbers that repeat or decrease under the same parent."""
    last: dict[str, AcknowledgedChange] = {}
    for change in facts.changes:
        if change.kind == "delete":
            last.pop(change.path, None)  # the sequence numbers below a deleted node restart
        number = paths.sequence_number(change.path)
        if change.mode not in SEQUENTIAL_MODES or number is None or not 0 <= number <= MAX_SEQUENCE:
            continue
        above = paths.parent(change.path)
        before, last[above] = last.get(above), change
        if before is None or not facts.zxids.are_complete(before.zxid, change.zxid):
            continue
        if number == (earlier := int(before.path[-10:])):
            yield Violation(f"A sequence number below {above} was assigned twice.", (before.entry, change.entry))
        elif number < earlier:
            yield Violation(
                f"The sequence numbers below {above} decrease.",
                (before.entry, change.entry),
                f"{paths.name(change.path)} was created after {paths.name(before.path)}. {NO_CONFLICT}",
            )


class _LockHold(NamedTuple):
    """A lock held by a client, from the moment when a list of contenders shows the client's node in first place.

    Args:
        zxid: The zxid of the list.
        end: The deletion of the node, or None if unknown.
        made: The change that created the node.
        view: The list.
    """

    zxid: int
    end: AcknowledgedChange | None
    made: AcknowledgedChange
    view: ShownNode

    def lasts_until(self, facts: Facts, zxid: int) -> bool:
        """Return whether the lock is known to have been held until *zxid*.

        Either a later request deleted its node, or no request up to *zxid* can have deleted it.
        """
        if self.end is not None and self.end.zxid <= zxid:
            return False
        is_deleted = self.end is not None and self.end.entry.opcode != OpCode.CLOSE_SESSION
        return is_deleted or facts.zxids.are_complete(self.zxid, zxid)


def find_shared_locks(facts: Facts) -> Iterator[Violation]:
    """Find locks that two clients hold at the same time, and tokens that are lower than an earlier holder's token.

    A client holds an exclusive lock once a list has shown it that its node is the first contender, until the node is
    deleted. The token is the zxid that created the node.
    """
    for path, holds in _find_holds(facts).items():
        held: _LockHold | None = None
        for hold in holds:
            if held is not None and hold.made is not held.made:
                stories = held.made.entry, held.view.entry, hold.made.entry, hold.view.entry
                if held.lasts_until(facts, hold.zxid):
                    yield Violation(
                        f"Two clients hold the lock {path}.",
                        stories if held.end is None else (*stories, held.end.entry),
                        "2 shows the node of 1 as the first, 4 shows the node of 3; at zxid "
                        f"{hexadecimal(hold.zxid)} the node of 1 was still present.",
                    )
                elif hold.made.zxid < held.made.zxid:
                    yield Violation(
                        f"The tokens of the lock {path} decrease.",
                        stories,
                        f"The holder of 4 has the token {hexadecimal(hold.made.zxid)}, lower than the token of 2, "
                        f"{hexadecimal(held.made.zxid)}.",
                    )
            held = hold


def _is_exclusive_contender(path: str) -> bool:
    return (node := parse_contender(path)) is not None and node.row.excludes


def _find_holds(facts: Facts) -> dict[str, list[_LockHold]]:
    made: dict[str, AcknowledgedChange] = {}
    ends: dict[str, list[AcknowledgedChange]] = defaultdict(list)
    for change in facts.changes:
        if change.mode == CreateMode.EPHEMERAL_SEQUENTIAL and _is_exclusive_contender(change.path):
            made[change.path] = change
        elif change.kind == "delete" and change.path in made:
            ends[change.path].append(change)
    holds: dict[str, list[_LockHold]] = defaultdict(list)
    known: set[str] = set()
    for view in facts.shown_nodes:
        contenders = [node for name in view.children or () if (node := parse_contender(name)) is not None]
        if not contenders:
            continue
        first = paths.join(view.path, sort_by_number(contenders)[0].name)
        mine = made.get(first)
        if mine is not None and first not in known and mine.session == view.entry.session and mine.zxid <= view.zxid:
            known.add(first)
            end = next((end for end in ends[first] if end.zxid > view.zxid), None)
            holds[view.path].append(_LockHold(view.zxid, end, mine, view))
    return holds
