"""Counts of locks and similar recipes, of waiting clients and of deadlocks, for the metrics.

Creates and deletes pay nothing for them. Every contender has an ephemeral node, so a count visits these nodes and their
neighbours, at 5 us each, in time slices. Until it is complete, it takes memory for the paths of their folders, for the
line of one folder (0.2 kB for each contender), and for the graph of waits (see ``MAX_WAITS``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Iterator
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from ...protocol import paths
from ...protocol.deadlocks import LockEntry, LockStatus, Wait, search_circles
from ...protocol.recipe_names import (
    IN_LINE,
    NAMES,
    TAKEN,
    Naming,
    NodeName,
    is_named,
    parse_numbered,
    place,
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
"""Maximum number of children of a counted folder. Larger folders are left out."""
REUSED: Final = 10
"""A count is reused for this many times its own duration. It works for half of its duration, so counting takes at most
5 % of the server's time, however often the metrics are read.
"""
Label = tuple[str, str]
"""A naming and a kind."""
_KINDS: Final = {"read-write lock": "rwlock"}
"""The labels of recipes whose label is not their name."""
NOT_COUNTED: Final = frozenset({("kazoo", "election"), ("kazoo", "party")})
"""Namings and recipes without a count. kazoo's elections use the names of its locks, and a party has no waiters."""
LABELS: Final[tuple[Label, ...]] = (
    *dict.fromkeys(
        (row.naming, _KINDS.get(row.recipe, row.recipe)) for row in NAMES if (row.naming, row.recipe) not in NOT_COUNTED
    ),
    ("zoolet", "lock"),
)
"""The labels of all counts."""


class Count:
    """The count of one label.

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
    """All counts.

    Args:
        by_label: The counts by label.
        deadlocks: Number of circles of sessions that wait for each other.
    """

    by_label: dict[Label, Count]
    deadlocks: int


class _Line:
    """The contenders of one naming in a folder. Sorting 100,000 of them would take too long for a time slice."""

    def __init__(self) -> None:
        self.contenders: list[tuple[NodeName, Node]] = []
        self.kinds: set[str] = set()
        self._start = 0  # the number of the first contender
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
        return place(parsed.number, self._start)

    def holds(self, parsed: NodeName) -> bool:
        """Return whether a contender of the complete line holds the lock, alone or with other readers."""
        at = self._place(parsed)
        return at == self._first or at < self._first_writer

    def kind(self, naming: Naming) -> str:
        """Return the label of the kind of the lock."""
        recipe = recipe_of_line(naming, self.kinds)
        return _KINDS.get(recipe, recipe)


class _Folder(NamedTuple):
    """The nodes of recipes in one folder."""

    lines: dict[Naming, _Line]
    leases: set[Naming]
    entries: set[Naming]
    proven: int


_FolderSteps = Generator[None, None, _Folder]


class _Counting:
    """One count. All methods that take long yield None after each bit of work."""

    def __init__(self, engine: Engine) -> None:
        self._tree = engine.tree
        self._holding: set[int] = set()
        self._waiting: set[int] = set()
        self._semaphores: set[tuple[str, str]] = set()
        self.counts: dict[Label, Count] = {label: Count() for label in LABELS}
        self.deadlocks = 0

    def steps(self) -> Iterator[None]:
        """Count everything."""
        folders = yield from self._folders()
        for path in folders:
            folder = yield from self._read(path)
            yield from self._count(path, folder)
        if both := self._holding & self._waiting:
            for circle in search_circles(self._mixed(folders, both), both):
                yield
                if circle is not None and self._exists(circle):
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
        """Return the nodes of recipes that exist in a folder. Nodes that are created in the meantime are left out."""
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
                if parsed.row.kind in IN_LINE:
                    folder.lines.setdefault(parsed.row.naming, _Line()).add(parsed, child)
                else:
                    (folder.leases if parsed.row.kind == "lease" else folder.entries).add(parsed.row.naming)
            elif is_named("kazoo", "lease", name):
                folder.leases.add("kazoo")
            elif not is_taken and proven_node(name) in children:
                number_proven += 1
        return folder._replace(proven=number_proven)

    def _count(self, path: str, folder: _Folder) -> Iterator[None]:
        for naming, line in folder.lines.items():
            semaphore = self._with_waiters(naming, path)
            count = self.counts[naming, "semaphore" if semaphore else line.kind(naming)]
            count.locks += not semaphore
            self._add_semaphore(naming, semaphore)
            while line.contenders:  # they are released one by one, because releasing 100,000 together takes 100 ms
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

    def _with_waiters(self, naming: Naming, path: str) -> str:
        """Return the path of the semaphore whose waiters are in a folder; empty for none."""
        found = semaphore_paths(naming, path)
        return found.path if found is not None and found.lock == path and self._has(found.leases) else ""

    def _add_semaphore(self, naming: str, path: str) -> None:
        if path and (naming, path) not in self._semaphores:
            self._semaphores.add((naming, path))
            self.counts[naming, "semaphore"].locks += 1

    # --- deadlocks ---

    def _mixed(self, folders: Iterable[str], both: set[int]) -> Generator[LockStatus | None, None, None]:
        """Yield the lines, with only the contenders of some sessions."""
        for path in folders:
            folder = yield from self._read(path)
            for naming, line in folder.lines.items():
                entries: list[LockEntry] = []
                for number, (parsed, node) in enumerate(line.contenders):
                    if not number % STEP:
                        yield None
                    if node.owner in both:
                        at, shared = f"{path}/{parsed.name}", parsed.row.kind == "read"
                        holds = line.holds(parsed)
                        entries.append(LockEntry(at, shared, node.owner, b"", node.ctime / 1000, holds, node.czxid))
                yield LockStatus(path, naming, tuple(entries))

    def _exists(self, circle: list[Wait]) -> bool:
        """Return whether all nodes of a circle exist at this moment. Then its clients wait for each other."""
        nodes = {(entry.path, entry.czxid) for wait in circle for entry in (wait.entry, wait.holder)}
        return all((node := self._tree.get(path)) is not None and node.czxid == czxid for path, czxid in nodes)


class LockCounts:
    """The latest counts of a server.

    Attributes:
        latest: The latest counts; empty before the first.
    """

    def __init__(self) -> None:
        self.latest = Counts({}, 0)
        self._turn = asyncio.Lock()
        self._valid_until = -inf

    async def refresh(self, engine: Engine) -> None:
        """Count again in time slices, unless the latest counts are still valid. Concurrent calls count once."""
        async with self._turn:
            if (started := monotonic()) < self._valid_until:
                return
            counting, pace = _Counting(engine), Pace(asyncio.Lock())
            for _ in counting.steps():
                await pace.rest()
            self.latest = Counts(counting.counts, counting.deadlocks)
            self._valid_until = monotonic() + REUSED * (monotonic() - started)
