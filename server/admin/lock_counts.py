"""Counts of locks and similar recipes, of waiting clients and of deadlocks, for the metrics.

The counts make creates and deletes no slower. Every contender has an ephemeral node, so counting visits all ephemeral
nodes and their neighbours, at 5 us each, in time slices. Until counting is complete, it needs memory for the paths of
all folders with such nodes, for the contenders of one folder (0.2 kB each), and for the graph of waits (see
``MAX_WAITS``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from ...protocol import paths
from ...protocol.deadlocks import LockEntry, LockStatus, Wait, search_cycles
from ...protocol.recipe_names import (
    LINE_KINDS,
    NAMES,
    TAKEN,
    Naming,
    NodeName,
    circular_key,
    matches_kind,
    parse_numbered,
    proven_node,
    recipe_of_line,
    semaphore_paths,
)
from ..core.engine import Engine
from ..core.node import Children, Node, is_session
from .pace import Pace

STEP: Final = 100
"""Number of nodes between two checks of the clock."""
MAX_CHILDREN: Final = 200_000
"""Maximum number of children of a folder. Larger folders are not counted."""
REUSE_FACTOR: Final = 10
"""How long a count is reused, as a multiple of its duration.

A count works during half of its duration, so counting takes at most 5 % of the server's time, however often the metrics
are read.
"""
Label = tuple[str, str]
"""The labels of a metric: the naming, such as ``kazoo``, and the kind of recipe."""
_KINDS: Final = {"read-write lock": "rwlock"}
"""The kinds of recipes whose label differs from their name."""
UNCOUNTED_RECIPES: Final = frozenset({("kazoo", "election"), ("kazoo", "party")})
"""Namings and recipes that are not counted.

kazoo's elections have the same names as its locks, and its parties have no waiters.
"""
LABELS: Final[tuple[Label, ...]] = (
    *dict.fromkeys(
        (row.naming, _KINDS.get(row.recipe, row.recipe))
        for row in NAMES
        if (row.naming, row.recipe) not in UNCOUNTED_RECIPES
    ),
    ("zoolet", "lock"),
)
"""The labels of all counts."""


class Count:
    """The numbers of locks and waiting clients of one label.

    Attributes:
        locks: Number of locks that a client holds or waits for.
        waiters: Number of waiting clients.
        since: Start of the longest wait, in milliseconds since the epoch; infinite if no client waits.
    """

    __slots__ = ("locks", "since", "waiters")

    def __init__(self) -> None:
        self.locks = self.waiters = 0
        self.since = inf


class Counts(NamedTuple):
    """The counts of all labels, and the number of deadlocks.

    Args:
        by_label: The counts by label.
        deadlocks: Number of circles of sessions that wait for each other.
    """

    by_label: dict[Label, Count]
    deadlocks: int


class _LockQueue:
    """The contenders of one naming in a folder, unsorted: sorting 100,000 of them would exceed a time slice."""

    def __init__(self) -> None:
        self.contenders: list[tuple[NodeName, Node]] = []
        self.kinds: set[str] = set()
        self._start = 0  # sequence number of the contender that was added first
        self._first = self._first_writer = inf

    def add(self, parsed: NodeName, node: Node) -> None:
        """Add a contender."""
        if not self.contenders:
            self._start = parsed.number
        self.contenders.append((parsed, node))
        self.kinds.add(parsed.row.kind)
        at = self._place(parsed)
        self._first = min(self._first, at)
        if parsed.row.kind != "read":
            self._first_writer = min(self._first_writer, at)

    def _place(self, parsed: NodeName) -> int:
        return circular_key(parsed.number, self._start)

    def holds(self, parsed: NodeName) -> bool:
        """Return whether a contender holds the lock, alone or with other readers. Call this on the complete queue."""
        at = self._place(parsed)
        return at == self._first or at < self._first_writer

    def kind(self, naming: Naming) -> str:
        """Return the kind of the lock, as metrics show it."""
        recipe = recipe_of_line(naming, self.kinds)
        return _KINDS.get(recipe, recipe)


class _Folder(NamedTuple):
    """The nodes of recipes in one folder.

    Args:
        lines: The contenders of locks and elections, by naming.
        leases: The namings with a lease of a semaphore.
        entries: The namings with other nodes, such as queue entries.
        proven: Number of nodes that have a proof node, which zoolet's locks create.
    """

    lines: dict[Naming, _LockQueue]
    leases: set[Naming]
    entries: set[Naming]
    proven: int


_FolderSteps = Generator[None, None, _Folder]


class _CountInProgress:
    """A count in progress. Its slow methods are generators, which yield None at least every :data:`STEP` nodes."""

    def __init__(self, engine: Engine) -> None:
        self._tree = engine.tree
        self._holding: set[int] = set()
        self._waiting: set[int] = set()
        self._semaphores: set[tuple[str, str]] = set()
        self.counts: dict[Label, Count] = {label: Count() for label in LABELS}
        self.deadlocks = 0

    def steps(self) -> Iterator[None]:
        """Count all locks, waiters and deadlocks, and yield after each step."""
        folders = yield from self._folders()
        for path in folders:
            folder = yield from self._read(path)
            yield from self._count(path, folder)
        if both := self._holding & self._waiting:
            for circle in search_cycles(self._select_contenders(folders, both), both):
                yield
                if circle is not None and self._still_exists(circle):
                    self.deadlocks += 1

    def _folders(self) -> Generator[None, None, dict[str, None]]:
        """Return the paths of the parents of all ephemeral nodes."""
        owned, found = self._tree.ephemerals, dict[str, None]()
        for session_id in list(owned):
            yield
            for number, path in enumerate(list(owned.get(session_id, ()))):
                found[path[: path.rindex("/")]] = None
                if not number % STEP:
                    yield
        return found

    def _read(self, path: str) -> _FolderSteps:
        """Return the nodes of recipes in a folder, except nodes that are created while the folder is read."""
        folder, number_proven = _Folder({}, set(), set(), 0), 0
        node = self._tree.get(path)
        children = (node.children if node is not None else None) or Children()
        is_taken = paths.name(path) == TAKEN
        for number, name in enumerate(list(children) if len(children) <= MAX_CHILDREN else ()):
            if not number % STEP:
                yield
            child = children.get(name)
            if not isinstance(child, Node) or not is_session(child.owner):
                continue
            if (parsed := parse_numbered(name)) is not None:
                if parsed.row.kind in LINE_KINDS:
                    folder.lines.setdefault(parsed.row.naming, _LockQueue()).add(parsed, child)
                else:
                    (folder.leases if parsed.row.kind == "lease" else folder.entries).add(parsed.row.naming)
            elif matches_kind("kazoo", "lease", name):
                folder.leases.add("kazoo")
            elif not is_taken and proven_node(name) in children:
                number_proven += 1
        return folder._replace(proven=number_proven)

    def _count(self, path: str, folder: _Folder) -> Iterator[None]:
        for naming, line in folder.lines.items():
            semaphore = self._find_semaphore(naming, path)
            count = self.counts[naming, "semaphore" if semaphore else line.kind(naming)]
            count.locks += not semaphore
            self._add_semaphore(naming, semaphore)
            while line.contenders:  # released one by one, because releasing 100,000 contenders together takes 100 ms
                parsed, node = line.contenders.pop()
                if not len(line.contenders) % STEP:
                    yield
                holds = line.holds(parsed)
                (self._holding if holds else self._waiting).add(node.owner)
                if semaphore or not holds:
                    count.waiters += 1
                    count.since = min(count.since, node.ctime)
        for naming in folder.leases:
            found = semaphore_paths(naming, path)
            if found is not None and found.leases == path and found.is_likely(self._has):
                self._add_semaphore(naming, found.path)
        for naming in folder.entries if paths.name(path) == TAKEN else ():
            self.counts[naming, "queue"].locks += 1
        self.counts["zoolet", "lock"].locks += folder.proven

    def _has(self, path: str) -> bool:
        return self._tree.get(path) is not None

    def _find_semaphore(self, naming: Naming, path: str) -> str:
        """Return the path of the semaphore whose waiters are in a folder, or an empty text if there is none."""
        found = semaphore_paths(naming, path)
        return found.path if found is not None and found.lock == path and self._has(found.leases) else ""

    def _add_semaphore(self, naming: str, path: str) -> None:
        if path and (naming, path) not in self._semaphores:
            self._semaphores.add((naming, path))
            self.counts[naming, "semaphore"].locks += 1

    # --- deadlocks ---

    def _select_contenders(self, folders: Iterable[str], owners: set[int]) -> Generator[LockStatus | None, None, None]:
        """Yield the queues of all locks, reduced to the contenders of some sessions.

        Args:
            folders: The paths of the folders.
            owners: The sessions that hold a lock and wait for a lock.
        """
        for path in folders:
            folder = yield from self._read(path)
            for naming, line in folder.lines.items():
                entries: list[LockEntry] = []
                for number, (parsed, node) in enumerate(line.contenders):
                    if not number % STEP:
                        yield None
                    if node.owner in owners:
                        at, shared = f"{path}/{parsed.name}", parsed.row.kind == "read"
                        holds = line.holds(parsed)
                        entries.append(LockEntry(at, shared, node.owner, b"", node.ctime / 1000, holds, node.czxid))
                yield LockStatus(path, naming, tuple(entries))

    def _still_exists(self, circle: list[Wait]) -> bool:
        """Return whether all nodes of a circle still exist, which proves that its clients wait for each other."""
        nodes = {(entry.path, entry.czxid) for wait in circle for entry in (wait.entry, wait.holder)}
        return all((node := self._tree.get(path)) is not None and node.czxid == czxid for path, czxid in nodes)


class LockCounts:
    """The latest counts of a server.

    Attributes:
        latest: The latest counts; empty until the first count is complete.
    """

    def __init__(self) -> None:
        self.latest = Counts({}, 0)
        self._turn = asyncio.Lock()
        self._valid_until = -inf

    async def refresh(self, engine: Engine) -> None:
        """Count in time slices, unless the latest counts are still valid. Concurrent calls share one count."""
        async with self._turn:
            if (started := monotonic()) < self._valid_until:
                return
            counting, pace = _CountInProgress(engine), Pace(asyncio.Lock())
            for _ in counting.steps():
                await pace.rest()
            self.latest = Counts(counting.counts, counting.deadlocks)
            self._valid_until = monotonic() + REUSE_FACTOR * (monotonic() - started)
