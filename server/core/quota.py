"""Quotas: how many nodes and bytes may be in a subtree, and how many are.

The two nodes of a quota, and their text, are described in :mod:`zoolet.protocol.quotas`. A write that exceeds a soft
limit is logged. A write that exceeds a hard limit is refused, if ``enforceQuota`` is on. Only the nearest quota at or
above a node applies. The stats node is updated silently: its version and times do not change, and no watch fires. Every
client may write below ``/zookeeper/quota``, so a text of more than 256 bytes is not a quota, and a text is parsed once.

Two cases that stop Apache ZooKeeper are harmless here: limits directly below ``/zookeeper/quota`` are a plain node, and
stats that do not parse are not updated.

Source: DataTree.createNode, updateQuotaStat; ZooKeeperServer.checkQuota; StatsTrack.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from zoolet.protocol.errors import MarshallingError, QuotaExceededError
from zoolet.protocol.paths import QUOTA
from zoolet.protocol.quotas import LIMITS, STATS, Amount, wrapped
from zoolet.server.core.ancestors import AncestorIndex
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.node import Node
from zoolet.server.core.settings import Settings
from zoolet.server.core.tree import Tree
from zoolet.server.core.warnings import Warnings


class Quota:
    """The quotas of a tree.

    Args:
        tree: The tree whose nodes are counted.
        settings: ``enforce_quota`` is used.
        metrics: Counts the writes that are refused.
        warnings: Receives a line when a soft limit is exceeded.

    Attributes:
        active: Whether the tree has a quota; while it has none, nothing has to be counted.
        enforced: Whether writes have to be checked.
    """

    def __init__(self, tree: Tree, settings: Settings, metrics: Metrics, warnings: Warnings) -> None:
        self._tree = tree
        self._metrics = metrics
        self._warnings = warnings
        # The nodes that have a quota; False for one that lost it in the current transaction.
        self._limited: AncestorIndex[bool] = AncestorIndex()
        # Of the current transaction: which nodes had a quota before it, and the texts of changed quota nodes before it.
        self._before: tuple[dict[str, bool], dict[str, bytes | None]] | None = None
        self.active = False
        self.enforced = settings.enforce_quota

    # --- checking ---

    def check(self, path: str, count: int, size: int) -> None:
        """Refuse a write that would exceed a hard limit.

        Inside a transaction the amounts are those from before it, so that several creates in one can exceed a limit
        together, as in ZooKeeper.

        Args:
            path: The node that is written.
            count: The number of nodes that the write adds.
            size: The bytes of data that it adds; negative when data shrinks.

        Raises:
            QuotaExceededError: The write would exceed the hard limit.
            MarshallingError: The limits do not parse.
        """
        changed, amounts = self._before or ({}, {})
        above = self._nearest(path, changed)
        if above is None:
            return
        try:
            limits = Amount.parse(self._text(above + LIMITS, amounts))
        except ValueError as error:
            raise MarshallingError(path, f"the quota of {above} does not parse: {error}") from None
        try:
            used = Amount.parse(self._text(above + STATS, amounts))
        except ValueError:
            return
        for unit, new, soft, hard, changes in (
            ("nodes", wrapped(used.count + count), limits.count, limits.count_hard, count != 0),
            ("bytes", wrapped(used.size + size), limits.size, limits.size_hard, size != 0),
        ):
            if changes and hard > -1 and new > hard:
                self._metrics.exceed_quota(path)
                raise QuotaExceededError(path, f"there would be {new} {unit} below {above}; the hard limit is {hard}")
            if changes and hard <= -1 < soft < new:
                self._warnings.warn(
                    f"quota {unit} {above}",
                    "quota exceeded: %d %s below %s; the limit is %d",
                    new,
                    unit,
                    above,
                    soft,
                )

    def _text(self, name: str, before: dict[str, bytes | None]) -> bytes | None:
        """Return the data of a limits or stats node, as it was before the current transaction."""
        path = QUOTA + name
        if path in before:
            return before[path]
        node = self._tree.get(path)
        return node.data if node is not None else None

    def amounts(self, most: int) -> Iterator[tuple[str, Amount, Amount]]:
        """Yield nodes that have a quota, with the limits and what is used, unless the text of these does not parse.

        Args:
            most: How many are looked at, for every client may make them.
        """
        for above in islice(self._limited, most):
            try:
                limits, used = (Amount.parse(self._text(above + name, {})) for name in (LIMITS, STATS))
            except ValueError:
                continue
            yield above, limits, used

    # --- counting ---

    def created(self, path: str, node: Node) -> None:
        """Count a new node, and record its quota if it is a limits or stats node."""
        size = len(node.data or b"")  # a stats node may count itself, with the data it was created with
        above, kind = _quota_of(path)
        if kind and self._before is not None:
            self._before[1].setdefault(path, None)  # it did not exist before
        if kind == LIMITS and above:
            self._set(above, True)
        elif kind == STATS and above:
            self._recount(above)
        self._add(path, 1, size)

    def deleted(self, path: str, node: Node) -> None:
        """Count a deleted node; the deletion of a limits node ends a quota."""
        above, kind = _quota_of(path)
        if kind == LIMITS and above:
            self._set(above, False)
        if kind and self._before is not None:
            self._before[1].setdefault(path, node.data)
        self._add(path, -1, -len(node.data or b""))

    def changed(self, path: str, before: bytes | None, data: bytes | None) -> None:
        """Count a change of a node's data."""
        if self._before is not None and path.endswith((LIMITS, STATS)):
            self._before[1].setdefault(path, before)
        self._add(path, 0, len(data or b"") - len(before or b""))

    def _set(self, above: str, limited: bool) -> None:
        """Record whether a node has a quota."""
        if self._before is not None:
            self._before[0].setdefault(above, bool(self._limited.get(above)))
            self._limited.put(above, limited)
        elif limited:
            self._limited.put(above, True)
        elif above in self._limited:
            self._limited.remove(above)
        self.active = len(self._limited) > 0

    def _nearest(self, path: str, before: dict[str, bool]) -> str | None:
        """Return the nearest node at or above *path* that has a quota; *before* overrides the present state."""
        nearest = None
        for above, limited in self._limited.along(path):
            if before.get(above, limited):
                nearest = above
        return nearest

    def _add(self, path: str, count: int, size: int) -> None:
        above = self._nearest(path, {})
        stats = self._tree.get(QUOTA + above + STATS) if above is not None else None
        if above is None or stats is None:
            return
        try:
            used = Amount.parse(stats.data)
        except ValueError:
            return
        self._write(QUOTA + above + STATS, stats, used.plus(count, size))

    def _recount(self, above: str) -> None:
        count = size = 0
        if self._tree.get(above) is not None:
            for _, node in self._tree.walk(above):
                count += 1
                size += len(node.data or b"")
        path = QUOTA + above + STATS
        self._write(path, self._tree.find(path), Amount(count, size))

    def _write(self, path: str, stats: Node, amount: Amount) -> None:
        if self._before is not None:
            self._before[1].setdefault(path, stats.data)
        self._tree.set_data_silently(stats, amount.encode())

    def recount_all(self) -> None:
        """Search the tree for quotas, and count what is below them, after the tree was read from files.

        Source: DataTree.setupQuota.
        """
        self.reload()
        for path in [path for path, _ in self._tree.walk(QUOTA)]:
            above, kind = _quota_of(path)
            if kind == LIMITS and above and self._tree.get(QUOTA + above + STATS) is not None:
                self._recount(above)

    def reload(self) -> None:
        """Search the tree for quotas again, after its nodes were changed by undo records."""
        paths = [path for path, _ in self._tree.walk(QUOTA)]
        limited = [above for above, kind in map(_quota_of, paths) if kind == LIMITS and above]
        self._limited = AncestorIndex()
        for above in limited:
            self._limited.put(above, True)
        self.active = bool(limited)

    def begin(self) -> None:
        """Begin a transaction: until its end, writes are checked against the amounts before it."""
        self._before = ({}, {})

    def commit(self) -> None:
        """End the transaction; writes are checked against the present amounts again."""
        changed = self._before[0] if self._before else {}
        self._before = None
        for above in changed:
            self._set(above, bool(self._limited.get(above)))

    def roll_back(self) -> None:
        """Restore which nodes have a quota; the tree undoes the changes of their texts."""
        changed = self._before[0] if self._before else {}
        self._before = None
        for above, limited in changed.items():
            self._set(above, limited)


def _quota_of(path: str) -> tuple[str, str]:
    """Return the node that a limits or stats node is for, and which of the two it is; two empty strings otherwise."""
    if path.startswith(QUOTA + "/"):
        for kind in (LIMITS, STATS):
            if path.endswith(kind):
                return path[len(QUOTA) : -len(kind)], kind
    return "", ""
