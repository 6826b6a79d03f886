"""Quotas: how many nodes and bytes may hang below a node, and how many do.

A quota on ``/a/b`` is the pair of ordinary nodes ``/zookeeper/quota/a/b/zookeeper_limits`` and ``.../zookeeper_stats``.
The first holds what is allowed, the second what there is, both as text::

    count=3,bytes=800=;byteHardLimit=1000;countHardLimit=5

``count`` and ``bytes`` of the limits only make the server complain; the hard limits refuse, if ``enforceQuota`` is on.
A missing number, or -1, is no limit. Only the nearest quota at or above a node counts. The stats change in place: their
version, times and watches do not.

What stops a real server is harmless here: limits directly below ``/zookeeper/quota`` are a plain node, and stats that
do not parse are left alone.

Source: DataTree.createNode, updateQuotaStat; ZooKeeperServer.checkQuota; StatsTrack.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Final

from zoolet.protocol.errors import MarshallingError, QuotaExceededError
from zoolet.server.core.node import Node
from zoolet.server.core.settings import Settings
from zoolet.server.core.tree import QUOTA, Tree

LIMITS: Final = "/zookeeper_limits"
STATS: Final = "/zookeeper_stats"
_log = logging.getLogger("zoolet.server")


@dataclass(frozen=True, slots=True)
class Amount:
    """The numbers of a limits or stats node; -1 means none."""

    count: int = -1
    size: int = -1
    count_hard: int = -1
    size_hard: int = -1

    @classmethod
    def parse(cls, data: bytes | None) -> Amount:
        """Read the text of a limits or stats node; empty data means no numbers.

        Raises:
            ValueError: It is null, or not of the form ``key=number,key=number``.

        Source: StatsTrack.
        """
        if data is None:
            raise ValueError("null data")
        if not data:
            return cls()
        numbers: dict[str, int] = {}
        for pair in re.split("[,;]+", data.decode("utf-8", "replace")):
            key, *rest = pair.rstrip("=").split("=")
            if not rest:
                raise ValueError(f"no number in {pair!r}")
            if not re.fullmatch("[+-]?[0-9]{1,19}", rest[0]):
                raise ValueError(f"not a number: {rest[0]!r}")
            numbers[key] = int(rest[0])
        return cls(
            numbers.get("count", -1),
            numbers.get("bytes", -1),
            numbers.get("countHardLimit", -1),
            numbers.get("byteHardLimit", -1),
        )


class Quota:
    """The quotas of a tree.

    Args:
        tree: Whose nodes are counted.
        settings: ``enforce_quota`` is looked at.

    Attributes:
        active: There is a quota somewhere; nothing has to be counted while there is none.
        enforced: Writes have to be checked.
    """

    def __init__(self, tree: Tree, settings: Settings) -> None:
        self._tree = tree
        self._limited: dict[str, None] = {}
        self._before: tuple[dict[str, None], dict[str, bytes | None]] | None = None
        self.active = False
        self.enforced = settings.enforce_quota

    # --- checking ---

    def check(self, path: str, count: int, size: int) -> None:
        """Refuse a write that would exceed a hard limit.

        Inside a transaction the amounts are those from before it, so that several creates in one can exceed a limit
        together, as in ZooKeeper.

        Args:
            path: The node that is written.
            count: Nodes it adds.
            size: Bytes of data it adds; negative when data shrinks.

        Raises:
            QuotaExceededError: There would be more than the hard limit allows.
            MarshallingError: The limits do not parse.
        """
        limited, amounts = self._before or (self._limited, {})
        above = _nearest(limited, path)
        if above is None:
            return
        try:
            limits = Amount.parse(self._tree.find(QUOTA + above + LIMITS).data)
        except ValueError as error:
            raise MarshallingError(path, f"the quota of {above} does not parse: {error}") from None
        stats = self._tree.get(QUOTA + above + STATS)
        if stats is None:
            return
        try:
            used = Amount.parse(amounts.get(QUOTA + above + STATS, stats.data))
        except ValueError:
            return
        for what, new, soft, hard, counted in (
            ("nodes", used.count + count, limits.count, limits.count_hard, count != 0),
            ("bytes", used.size + size, limits.size, limits.size_hard, size != 0),
        ):
            if counted and hard > -1 and new > hard:
                raise QuotaExceededError(path, f"{new} {what} would be below {above}, and {hard} is its hard limit")
            if counted and hard <= -1 < soft < new:
                _log.warning("quota exceeded: %d %s below %s, and %d is its limit", new, what, above, soft)

    # --- counting ---

    def created(self, path: str, node: Node) -> None:
        """A node was made, somewhere."""
        above, kind = _quota_of(path)
        if kind == LIMITS and above:
            self._limited = {**self._limited, above: None}  # a transaction may have to go back to the one before
            self.active = True
        elif kind == STATS and above:
            self._recount(above)
        self._add(path, 1, len(node.data or b""))

    def deleted(self, path: str, node: Node) -> None:
        """A node is gone."""
        above, kind = _quota_of(path)
        if kind == LIMITS:
            self._limited = {path: None for path in self._limited if path != above}
            self.active = bool(self._limited)
        self._add(path, -1, -len(node.data or b""))

    def changed(self, path: str, size: int) -> None:
        """A node's data grew by so many bytes."""
        self._add(path, 0, size)

    def _add(self, path: str, count: int, size: int) -> None:
        above = _nearest(self._limited, path)
        stats = self._tree.get(QUOTA + above + STATS) if above is not None else None
        if above is None or stats is None:
            return
        try:
            used = Amount.parse(stats.data)
        except ValueError:
            return
        self._write(QUOTA + above + STATS, stats, used.count + count, used.size + size)

    def _recount(self, above: str) -> None:
        count = size = 0
        if self._tree.get(above) is not None:
            for _, node in self._tree.walk(above):
                count += 1
                size += len(node.data or b"")
        path = QUOTA + above + STATS
        self._write(path, self._tree.find(path), count, size)

    def _write(self, path: str, stats: Node, count: int, size: int) -> None:
        if self._before is not None:
            self._before[1].setdefault(path, stats.data)
        self._tree.amend(stats, b"count=%d,bytes=%d" % (count, size))

    def reload(self) -> None:
        """Find out anew which nodes have a quota: the tree was changed behind this object's back."""
        paths = [path for path, _ in self._tree.walk(QUOTA)]
        found = [above for above, kind in map(_quota_of, paths) if kind == LIMITS and above]
        self._limited = dict.fromkeys(found)
        self.active = bool(found)

    def begin(self) -> None:
        """Check against what there is now, until the end."""
        self._before = (self._limited, {})

    def commit(self) -> None:
        """Check against what there is again."""
        self._before = None

    def roll_back(self) -> None:
        """Take back which nodes have a quota; their numbers are the tree's to undo."""
        if self._before is not None:
            self._limited = self._before[0]
            self.active = bool(self._limited)
        self._before = None


def _quota_of(path: str) -> tuple[str, str]:
    """Give the node that a limits or stats node is about, and which it is; two empty strings for any other."""
    if path.startswith(QUOTA + "/"):
        for kind in (LIMITS, STATS):
            if path.endswith(kind):
                return path[len(QUOTA) : -len(kind)], kind
    return "", ""


def _nearest(limited: dict[str, None], path: str) -> str | None:
    while path:
        if path in limited:
            return path
        path = path[: path.rfind("/")]
    return None
