"""Quotas: limits on the number of nodes and bytes in a subtree, and the current numbers.

:mod:`zoolet.protocol.quotas` describes the two nodes of a quota and their text. If ``enforceQuota`` is on, a write that
exceeds a hard limit is rejected, and a write that exceeds a soft limit is logged. Only the nearest quota at or above a
node applies. The stats node is updated silently: its version and times do not change, and no watch fires. Every client
may write below ``/zookeeper/quota``. Therefore texts of more than 256 bytes are invalid, and parsed texts are cached.

Two cases that stop Apache ZooKeeper are harmless here: a limits node directly below ``/zookeeper/quota`` is a plain
node, and stats that cannot be parsed are not updated.

Source: DataTree.createNode, DataTree.updateQuotaStat, ZooKeeperServer.checkQuota, StatsTrack.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice

from ...protocol.errors import MarshallingError, QuotaExceededError
from ...protocol.hexadecimal import to_signed_64
from ...protocol.paths import QUOTA
from ...protocol.quotas import LIMITS, STATS, Amount
from .ancestors import AncestorIndex
from .metrics import Metrics
from .node import Node
from .settings import EngineSettings
from .tree import Tree
from .warnings import Warnings


class Quota:
    """The quotas of a tree.

    Args:
        tree: The tree whose nodes are counted.
        settings: Settings of the server. Only ``enforce_quota`` is used.
        metrics: Counter of the rejected writes.
        warnings: Receiver of a warning when a soft limit is exceeded.

    Attributes:
        active: Whether the tree has a quota. If it has none, writes need not be counted.
        enforced: Whether writes are checked against the limits.
        in_transaction: Whether a transaction is open. Its writes are checked against the amounts before its start.
        changes: The changes of the open transaction; None before the first change.
    """

    def __init__(self, tree: Tree, settings: EngineSettings, metrics: Metrics, warnings: Warnings) -> None:
        self._tree = tree
        self._metrics = metrics
        self._warnings = warnings
        # The nodes with a quota. The value is False if the quota was removed in the current transaction.
        self._limited: AncestorIndex[bool] = AncestorIndex()
        self.active = False
        self.enforced = settings.enforce_quota
        self.in_transaction = False
        self.changes: _QuotaChanges | None = None

    # --- checking ---

    def check(self, path: str, count: int, size: int) -> None:
        """Reject a write that would exceed a hard limit, and log a write that would exceed only a soft limit.

        Inside a transaction, each write is checked against the amounts before the transaction. Several creates in one
        transaction can therefore exceed a limit together, as in ZooKeeper.

        Args:
            path: Path of the node that is written.
            count: Number of nodes that the write adds.
            size: Number of bytes of data that the write adds; negative when data shrinks.

        Raises:
            QuotaExceededError: The write would exceed the hard limit.
            MarshallingError: The text of the limits cannot be parsed.
        """
        changed, amounts = (self.changes.limited, self.changes.texts) if self.changes is not None else ({}, {})
        above = self._nearest(path, changed)
        if above is None:
            return
        try:
            limits = Amount.parse(self._text(above + LIMITS, amounts))
        except ValueError as error:
            raise MarshallingError(path, f"cannot parse the quota of {above}: {error}") from None
        try:
            used = Amount.parse(self._text(above + STATS, amounts))
        except ValueError:
            return
        for unit, new, soft, hard, changes in (
            ("nodes", to_signed_64(used.nodes + count), limits.nodes, limits.node_hard_limit, count != 0),
            ("bytes", to_signed_64(used.size + size), limits.size, limits.byte_hard_limit, size != 0),
        ):
            if changes and hard > -1 and new > hard:
                self._metrics.count_exceeded_quota(path)
                raise QuotaExceededError(path, f"quota exceeded: {new} {unit} below {above}; the hard limit is {hard}")
            if changes and hard <= -1 < soft < new:
                self._warnings.warn(
                    f"quota {unit} {above}",
                    "quota exceeded: %d %s below %s; the soft limit is %d",
                    new,
                    unit,
                    above,
                    soft,
                )

    def _text(self, name: str, before: dict[str, bytes | None]) -> bytes | None:
        """Return the data of the limits or stats node *name*. *before* overrides the current data."""
        path = QUOTA + name
        if path in before:
            return before[path]
        node = self._tree.get(path)
        return node.data if node is not None else None

    def amounts(self, most: int) -> Iterator[tuple[str, Amount, Amount]]:
        """Yield the path of each node that has a quota, with the limits and the current amounts.

        Nodes with a text that cannot be parsed are skipped.

        Args:
            most: Maximum number of quotas to read. It is limited because every client can create quotas.
        """
        for above in islice(self._limited, most):
            try:
                limits, used = (Amount.parse(self._text(above + name, {})) for name in (LIMITS, STATS))
            except ValueError:
                continue
            yield above, limits, used

    # --- counting ---

    def created(self, path: str, size: int) -> None:
        """Count a new node with *size* bytes of data, and record its quota if it is a limits or stats node."""
        above, kind = _parse_quota_path(path)
        if kind and self.in_transaction:
            self._current_changes().texts.setdefault(path, None)  # the node did not exist before the transaction
        if kind == LIMITS and above:
            self._set_limited(above, True)
        elif kind == STATS and above:
            self._recount(above)
        self._add_to_stats(path, 1, size)

    def deleted(self, path: str, node: Node) -> None:
        """Count a deleted node. Deleting a limits node removes the quota."""
        above, kind = _parse_quota_path(path)
        if kind == LIMITS and above:
            self._set_limited(above, False)
        if kind and self.in_transaction:
            self._current_changes().texts.setdefault(path, node.data)
        self._add_to_stats(path, -1, -len(node.data or b""))

    def affected_paths(self, paths: list[str], parents: Collection[str]) -> set[str]:
        """Return the *paths* whose deletion affects a quota. Call :meth:`deleted` only for these.

        For many paths, this is faster than calling :meth:`deleted` for all of them.

        Args:
            paths: Paths of nodes that were deleted together.
            parents: The paths of all parents of these nodes.
        """
        counted = {
            parent
            for parent in parents
            if (parent + "/").startswith(QUOTA + "/") or self._nearest(parent or "/", {}) is not None
        }
        exact = {path for path in paths if path in self._limited}
        return exact.union(path for path in paths if path[: path.rindex("/")] in counted) if counted else exact

    def changed(self, path: str, before: bytes | None, data: bytes | None) -> None:
        """Count a change of a node's data."""
        if self.in_transaction and path.endswith((LIMITS, STATS)):
            self._current_changes().texts.setdefault(path, before)
        self._add_to_stats(path, 0, len(data or b"") - len(before or b""))

    def _set_limited(self, above: str, limited: bool) -> None:
        """Record whether a node has a quota."""
        if self.in_transaction:
            self._current_changes().limited.setdefault(above, bool(self._limited.get(above)))
            self._limited.put(above, limited)
        elif limited:
            self._limited.put(above, True)
        elif above in self._limited:
            self._limited.remove(above)
        self.active = len(self._limited) > 0

    def _nearest(self, path: str, before: dict[str, bool]) -> str | None:
        """Return the nearest path at or above *path* that has a quota, or None.

        *before* overrides the current state.
        """
        nearest = None
        for above, limited in self._limited.search_ancestors(path):
            if before.get(above, limited):
                nearest = above
        return nearest

    def _add_to_stats(self, path: str, count: int, size: int) -> None:
        above = self._nearest(path, {})
        stats = self._tree.get(QUOTA + above + STATS) if above is not None else None
        if above is None or stats is None:
            return
        try:
            used = Amount.parse(stats.data)
        except ValueError:
            return
        self._write_stats(QUOTA + above + STATS, stats, used.plus(count, size))

    def _recount(self, above: str) -> None:
        if self.in_transaction:
            self._current_changes().recounts += 1
        path = QUOTA + above + STATS
        self._write_stats(path, self._tree.find(path), Amount(*self._tree.count(above)))

    def _write_stats(self, path: str, stats: Node, amount: Amount) -> None:
        if self.in_transaction:
            self._current_changes().texts.setdefault(path, stats.data)
        self._tree.set_data_silently(stats, amount.encode())

    def recount_all(self) -> None:
        """Search the tree for quotas and count the nodes below them, after the tree was read from files.

        Source: DataTree.setupQuota.
        """
        self.reload()
        for path in [path for path, _ in self._tree.walk(QUOTA)]:
            above, kind = _parse_quota_path(path)
            if kind == LIMITS and above and self._tree.get(QUOTA + above + STATS) is not None:
                self._recount(above)

    def reload(self) -> None:
        """Search the tree for quotas again, for example after undo records have changed nodes."""
        paths = [path for path, _ in self._tree.walk(QUOTA)]
        limited = [above for above, kind in map(_parse_quota_path, paths) if kind == LIMITS and above]
        self._limited = AncestorIndex()
        for above in limited:
            self._limited.put(above, True)
        self.active = bool(limited)

    def _current_changes(self) -> _QuotaChanges:
        if self.changes is None:
            self.changes = _QuotaChanges()
        return self.changes

    def commit(self, changes: _QuotaChanges) -> None:
        """Keep the changes of a transaction. Later writes are checked against the current amounts."""
        self.changes = None
        for above in changes.limited:
            self._set_limited(above, bool(self._limited.get(above)))

    def roll_back(self, changes: _QuotaChanges) -> None:
        """Restore the set of nodes with a quota. The tree restores the texts of the quotas."""
        self.changes = None
        for above, limited in changes.limited.items():
            self._set_limited(above, limited)


class _QuotaChanges:
    """The changes of a transaction.

    Attributes:
        limited: Whether a node had a quota before the transaction, by path.
        texts: Data of limits and stats nodes before the transaction, by path; None for a node that did not exist.
        recounts: Number of times that all nodes below a quota were counted.
    """

    def __init__(self) -> None:
        self.limited: dict[str, bool] = {}
        self.texts: dict[str, bytes | None] = {}
        self.recounts = 0


def _parse_quota_path(path: str) -> tuple[str, str]:
    """Return the path that a limits or stats node is for, and its kind. Return two empty strings for other nodes."""
    if path.startswith(QUOTA + "/"):
        for kind in (LIMITS, STATS):
            if path.endswith(kind):
                return path[len(QUOTA) : -len(kind)], kind
    return "", ""
