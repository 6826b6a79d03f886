"""Rules for the fields of a Stat: zxids, times, sizes and counters of one node agree in all answers.

The fields of a node are compared at equal zxids in the Stat, so these rules also hold if clients outside the recording
have changed the node.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter
from typing import Final

from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OpCode
from ...protocol.records import Stat
from ..frames.requests import RecordedRequest
from .facts import Facts
from .violation import Violation

FIELDS_BY_ZXID: Final = {
    "czxid": ("ctime", "ephemeralOwner"),
    "mzxid": ("mtime", "dataLength"),
    "pzxid": ("cversion", "numChildren"),
}
"""For each zxid of a Stat, the fields that change only together with this zxid."""


def find_contradictory_stats(facts: Facts) -> Iterator[Violation]:
    """Find Stats that contradict their reply, or another Stat of the same node."""
    shown: list[tuple[int, str, Stat, RecordedRequest]] = []
    for view in facts.shown_nodes:
        if (stat := view.stat) is not None:
            shown.append((view.zxid, view.path, stat, view.entry))
            later = next((name for name in ("czxid", "pzxid") if getattr(stat, name) > view.zxid), None)
            if later is not None:
                yield _impossible_stat(view.path, view.entry, f"{later} is higher than the zxid of the reply")
            elif stat.czxid > stat.mzxid:
                yield _impossible_stat(view.path, view.entry, "czxid is higher than mzxid")
    for change in facts.changes:
        if (stat := change.stat) is not None:
            name = "czxid" if change.kind == "create" else "mzxid"
            if getattr(stat, name) != change.zxid:
                yield _impossible_stat(change.path, change.entry, f"{name} is not the zxid of the write")
            if change.entry.opcode != OpCode.MULTI:  # a later part may have changed the node at the same zxid
                shown.append((change.zxid, change.path, stat, change.entry))
    shown.sort(key=itemgetter(0))
    yield from _find_differences(shown)
    yield from _find_decreases(shown)


def _impossible_stat(path: str, entry: RecordedRequest, contradiction: str) -> Violation:
    return Violation(f"The Stat of {path} is impossible: {contradiction}.", (entry,))


def _find_differences(shown: list[tuple[int, str, Stat, RecordedRequest]]) -> Iterator[Violation]:
    """Find fields that differ although their zxid is the same."""
    first: dict[tuple[str, int, str, int], tuple[Stat, RecordedRequest]] = {}
    for _, path, stat, entry in shown:
        for name, fields in FIELDS_BY_ZXID.items():
            zxid = getattr(stat, name)
            before, earlier = first.setdefault((path, stat.czxid, name, zxid), (stat, entry))
            for field in fields if before is not stat else ():
                values = getattr(before, field), getattr(stat, field)
                if values[0] != values[1]:
                    yield Violation(
                        f"Two answers show a different {field} of {path} for the same {name}.",
                        (earlier, entry),
                        f"1 shows {values[0]}, and 2 shows {values[1]}. The {name} of both is {hexadecimal(zxid)}.",
                    )


def _find_decreases(shown: list[tuple[int, str, Stat, RecordedRequest]]) -> Iterator[Violation]:
    """Find counters that decrease. Negative counters are skipped, because they have overflowed."""
    children: dict[tuple[str, int], dict[int, tuple[int, RecordedRequest]]] = defaultdict(dict)
    lists: dict[tuple[str, int], tuple[int, RecordedRequest]] = {}
    for _, path, stat, entry in shown:
        node = path, stat.czxid
        children[node].setdefault(stat.pzxid, (stat.cversion, entry))
        version, earlier = lists.get(node, (stat.aversion, entry))
        if 0 <= stat.aversion < version:
            yield _decrease_violation("aversion", path, version, stat.aversion, earlier, entry)
        lists[node] = stat.aversion, entry
    for (path, _), versions in children.items():
        for (_, (version, earlier)), (_, (then, entry)) in pairwise(sorted(versions.items(), key=itemgetter(0))):
            if 0 <= then < version:
                yield _decrease_violation("cversion", path, version, then, earlier, entry)


def _decrease_violation(
    field: str, path: str, before: int, after: int, earlier: RecordedRequest, entry: RecordedRequest
) -> Violation:
    return Violation(f"The {field} of {path} decreases.", (earlier, entry), f"1 shows {before}, and 2 shows {after}.")
