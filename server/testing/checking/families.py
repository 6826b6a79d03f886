"""Rules for nodes with a parent in common: lists of children, sequence numbers, and the locks that are made of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from zoolet.protocol import paths
from zoolet.protocol.enums import SEQUENTIAL_MODES, CreateMode
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.operations import OpCode
from zoolet.server.testing.checking.facts import Change, Facts, Sight
from zoolet.server.testing.checking.nodes import NOBODY
from zoolet.server.testing.checking.violation import Violation

SEQUENCE: Final = re.compile(r"[0-9]{10}$")
TURNS: Final = 2**31 - 1000
"""Sequence numbers above this may turn negative soon, and are not looked at."""
CONTENDS: Final = re.compile(r"(__r?lock__|lock-|latch-|__WRIT__|__READ__)[0-9]{10}$")
"""The names of those who contend for a lock of kazoo, Curator or zoolet."""
EXCLUDES: Final = re.compile(r"(__lock__|lock-|latch-|__WRIT__)[0-9]{10}$")
"""The names of those of them that hold it alone."""


def lists_contradict(facts: Facts) -> Iterator[Violation]:
    """Find lists of children that miss one that was created, or have one that was deleted."""
    lists = [sight for sight in facts.sights if sight.children is not None]
    by_parent: dict[str, list[Change | Sight]] = defaultdict(list)
    for change in facts.changes:
        if change.kind in ("create", "delete") and change.path != "/":
            by_parent[paths.parent(change.path)].append(change)
    listed = {sight.path for sight in lists}
    for change in facts.changes:
        if change.kind == "create" and change.path in listed:
            by_parent[change.path].append(change)
    for sight in lists:
        if sight.path in by_parent:
            by_parent[sight.path].append(sight)
    for path, moments in by_parent.items():
        moments.sort(key=lambda fact: (fact.zxid, isinstance(fact, Sight)))
        present: dict[str, Change] = {}
        gone: dict[str, Change] = {}
        birth: Change | None = None
        for fact in moments:
            if isinstance(fact, Change) and fact.path == path:
                birth, present, gone = fact, {}, {}
            elif isinstance(fact, Change):
                name = paths.name(fact.path)
                (gone if fact.exists else present).pop(name, None)
                (present if fact.exists else gone)[name] = fact
            else:
                yield from _list(facts, path, fact, present, gone)
                if birth is not None and facts.zxids.are_complete(birth.zxid, fact.zxid):
                    for name in (fact.children or frozenset()) - present.keys() - gone.keys():
                        rule = f"A list of the children of {path} has {name}, which nobody has created."
                        yield Violation(rule, (birth.entry, fact.entry), NOBODY)


def _list(
    facts: Facts, path: str, sight: Sight, present: dict[str, Change], gone: dict[str, Change]
) -> Iterator[Violation]:
    assert sight.children is not None
    since = facts.zxids.complete_since(sight.zxid)
    for name in present.keys() - sight.children:
        if present[name].zxid >= since:
            rule = f"A list of the children of {path} misses {name}."
            yield Violation(rule, (present[name].entry, sight.entry), NOBODY)
    for name in gone.keys() & sight.children:
        is_old = sight.stat is not None and sight.stat.pzxid < gone[name].zxid
        if is_old or gone[name].zxid >= since:
            rule = f"A list of the children of {path} has {name}, which was deleted before."
            yield Violation(rule, (gone[name].entry, sight.entry), "" if is_old else NOBODY)


def sequences_repeat(facts: Facts) -> Iterator[Violation]:
    """Find sequence numbers that were given twice, or that do not grow, while their parent was the same."""
    last: dict[str, Change] = {}
    for change in facts.changes:
        if change.kind == "delete":
            last.pop(change.path, None)  # its children's numbers begin again
        number = SEQUENCE.search(change.path)
        if change.mode not in SEQUENTIAL_MODES or number is None or int(number[0]) > TURNS:
            continue
        above = paths.parent(change.path)
        before, last[above] = last.get(above), change
        if before is None or not facts.zxids.are_complete(before.zxid, change.zxid):
            continue
        if int(change.path[-10:]) == int(before.path[-10:]):
            yield Violation(f"A sequence number below {above} was given twice.", (before.entry, change.entry))
        elif int(change.path[-10:]) < int(before.path[-10:]):
            yield Violation(
                f"The sequence numbers below {above} go back.",
                (before.entry, change.entry),
                f"{paths.name(change.path)} comes after {paths.name(before.path)}. {NOBODY}",
            )


class _Hold(NamedTuple):
    """A lock that is held, as its holder was answered: its node is the first in the list.

    Args:
        zxid: Since when.
        end: The end of its node; None if that is unknown.
        made: The creation of its node.
        sight: The list.
    """

    zxid: int
    end: Change | None
    made: Change
    sight: Sight

    def lasts_until(self, facts: Facts, zxid: int) -> bool:
        """Return whether it is known to be held until a zxid: a request deleted its node later, or no other one has."""
        if self.end is not None and self.end.zxid <= zxid:
            return False
        is_deleted = self.end is not None and self.end.entry.opcode != OpCode.CLOSE_SESSION
        return is_deleted or facts.zxids.are_complete(self.zxid, zxid)


def locks_are_shared(facts: Facts) -> Iterator[Violation]:
    """Find locks that two clients hold at once, and tokens that are lower than that of an earlier holder.

    A client holds an exclusive lock from when a list has shown it that its node is the first of those that contend,
    until that node is gone. The token is the zxid by which it was created.
    """
    for path, holds in _holds(facts).items():
        held: _Hold | None = None
        for hold in holds:
            if held is not None and hold.made is not held.made:
                stories = held.made.entry, held.sight.entry, hold.made.entry, hold.sight.entry
                if held.lasts_until(facts, hold.zxid):
                    yield Violation(
                        f"Two clients hold the lock {path}.",
                        stories if held.end is None else (*stories, held.end.entry),
                        "2 shows the node of 1 to be the first, 4 that of 3; at zxid "
                        f"{hexadecimal(hold.zxid)} that of 1 was still present.",
                    )
                elif hold.made.zxid < held.made.zxid:
                    yield Violation(
                        f"The tokens of the lock {path} go back.",
                        stories,
                        f"The holder of 4 has the token {hexadecimal(hold.made.zxid)}, which is below that of 2, "
                        f"{hexadecimal(held.made.zxid)}.",
                    )
            held = hold


def _holds(facts: Facts) -> dict[str, list[_Hold]]:
    made: dict[str, Change] = {}
    ends: dict[str, list[Change]] = defaultdict(list)
    for change in facts.changes:
        if change.mode == CreateMode.EPHEMERAL_SEQUENTIAL and EXCLUDES.search(change.path):
            made[change.path] = change
        elif change.kind == "delete" and change.path in made:
            ends[change.path].append(change)
    holds: dict[str, list[_Hold]] = defaultdict(list)
    known: set[str] = set()
    for sight in facts.sights:
        contenders = [name for name in sight.children or () if CONTENDS.search(name)]
        if not contenders:
            continue
        first = paths.join(sight.path, min(contenders, key=lambda name: name[-10:]))
        mine = made.get(first)
        if mine is not None and first not in known and mine.session == sight.entry.session and mine.zxid <= sight.zxid:
            known.add(first)
            end = next((end for end in ends[first] if end.zxid > sight.zxid), None)
            holds[sight.path].append(_Hold(sight.zxid, end, mine, sight))
    return holds
