"""Locks, elections, semaphores and queues below a node, recognized by the names of their nodes.

A :class:`Reader` argument reads the nodes, with a client or from the server that runs in the same process.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterator
from itertools import product
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from ...protocol import paths
from ...protocol.deadlocks import LockEntry, LockStatus, Wait, search_cycles
from ...protocol.errors import NoAuthError, NoNodeError
from ...protocol.recipe_names import (
    ENTRIES,
    KAZOO_LOCK,
    LINE_KINDS,
    NAMINGS,
    READY,
    TAKEN,
    Naming,
    is_barrier_member,
    is_hold,
    is_leaf,
    matches_kind,
    proven_node,
    recipe_of_line,
    semaphore_paths,
    sort_by_arrival,
    sort_by_number,
)
from ...protocol.records import Stat
from ..aio.operations import BaseClient
from ..aio.subtree import child_names, request_each, walk_subtree

NAMES_PER_SLICE: Final = 1_000
"""Number of names to process between two pauses."""
MAX_DURABLE_BYTES: Final = 4_096
"""Maximum size of the data of a durable lock in bytes. Any client may write JSON that takes long to parse."""
T = TypeVar("T")
Listing = dict[str, list[str]]
"""Names of the children of nodes, by the path of the parent."""


class SharedRecipe(NamedTuple):
    """A lock, election, semaphore or queue that clients share.

    Args:
        path: Path of its node.
        kind: ``lock``, ``read-write lock``, ``election``, ``semaphore``, ``queue``, ``durable lock`` or
            ``double barrier``.
        naming: Naming of its nodes: ``kazoo``, ``curator``, or ``zoolet`` for recipes that only zoolet provides.
        holders: One holder, or several readers or leases. For a queue, the entries that are being consumed. For a
            double barrier, the members of the current round.
        waiters: Waiters, in order.
        size: Number of entries of a queue; None for other kinds.
    """

    path: str
    kind: str
    naming: str
    holders: tuple[LockEntry, ...]
    waiters: tuple[LockEntry, ...]
    size: int | None = None


def longest_wait_start(line: SharedRecipe) -> float:
    """Return the start of the longest wait in a line, in seconds since the epoch. It is infinite if no client waits."""
    return line.waiters[0].since if line.waiters else math.inf


def drain(items: list[T]) -> Iterator[T]:
    """Remove the items of a list one by one, and yield them. Freeing all of them in one step would take too long."""
    items.reverse()
    while items:
        yield items.pop()


class Reader(Protocol):
    """The interface that reads nodes for an overview. Unreadable nodes are left out of its results."""

    async def listing(self) -> Listing:
        """Return the names of the children of each node that may be the path of a recipe."""
        ...

    async def lists(self, parents: list[str]) -> Listing:
        """Return the names of the children of nodes, without nodes that cannot be listed."""
        ...

    async def nodes(self, nodes: list[str]) -> list[tuple[str, bytes, Stat]]:
        """Return path, data and Stat of nodes, without missing and unreadable nodes."""
        ...

    async def rest(self) -> None:
        """Pause if much work was done since the last pause."""
        ...


class ClientReader:
    """A :class:`Reader` that reads the nodes below a path through a client."""

    def __init__(self, client: BaseClient[Any], path: str) -> None:
        self._client = client
        self._path = path

    async def listing(self) -> Listing:
        """Return the names of the children of each node below the path, without contenders and queue entries."""
        return {path: names async for path, names in walk_subtree(self._client, self._path, is_leaf)}

    async def lists(self, parents: list[str]) -> Listing:
        """Return the names of the children of nodes, without nodes that cannot be listed."""
        lists = await child_names(self._client, parents)
        return {path: names for path, names in zip(parents, lists, strict=True) if isinstance(names, list)}

    async def nodes(self, nodes: list[str]) -> list[tuple[str, bytes, Stat]]:
        """Return path, data and Stat of nodes, without missing and unreadable nodes."""
        answers = await request_each(self._client.get, nodes, NoNodeError, NoAuthError)
        return [(path, *answer) for path, answer in zip(nodes, answers, strict=True) if isinstance(answer, tuple)]

    async def rest(self) -> None:
        """Do nothing, because a client already pauses at each request."""


async def read_shared_recipes(reader: Reader) -> tuple[list[SharedRecipe], list[list[Wait]]]:
    """Return the recipes in use, in any order, and the deadlocks: cycles of clients that wait for each other."""
    listing = await reader.listing()
    lines, hidden = await _read_semaphores(reader, listing)
    locks = await read_lock_lines(reader, listing)
    for line in locks:
        await reader.rest()
        if line.path not in hidden:
            holders = tuple(entry for entry in line.entries if entry.holds)
            waiters = tuple(entry for entry in line.entries if not entry.holds)
            lines.append(SharedRecipe(line.path, line.kind, line.naming, holders, waiters))
    lines += await _read_queues(reader, listing)
    lines += await _read_try_locks(reader, listing)
    lines += await _read_durable_locks(reader, listing)
    lines += await _read_barriers(reader, listing)
    return lines, await find_deadlocks(reader, locks)


async def find_deadlocks(reader: Reader, lines: list[LockStatus]) -> list[list[Wait]]:
    """Read the locks again, and return the cycles of clients that wait for each other both times."""
    # Nodes are never recreated, so nodes present both times, in any line, existed together at a moment in between.
    holding: set[int] = set()
    waiting: set[int] = set()
    for line in lines:
        await reader.rest()
        for entry in line.entries:
            (holding if entry.holds else waiting).add(entry.session_id)
    both = holding & waiting  # only these sessions can be in a circle, and most servers have none
    before: dict[tuple[str, str], dict[str, bool]] = {}
    for line in lines if both else ():
        await reader.rest()
        if mixed := {entry.path: entry.holds for entry in line.entries if entry.session_id in both}:
            before[line.path, line.naming] = mixed
    listing = await reader.lists(list(dict.fromkeys(path for path, _ in before)))

    def present(line: LockStatus) -> LockStatus:
        mixed = before.pop((line.path, line.naming), {})
        return line._replace(entries=tuple(each for each in line.entries if mixed.get(each.path) == each.holds))

    remaining = map(present, drain(await read_lock_lines(reader, listing)))
    complete = []
    for circle in search_cycles(remaining, both):
        await reader.rest()
        complete += [circle] if circle else []
    return complete


async def read_lock_lines(reader: Reader, listing: Listing) -> list[LockStatus]:
    """Return the locks in any order. Each is a consistent snapshot, but not all are from the same moment."""
    lines = []
    for parent, names in listing.items():
        lines += [line for naming in NAMINGS if (line := await _read_line(reader, parent, naming, names)) is not None]
    return lines


async def _name_slices(reader: Reader, names: list[str]) -> AsyncIterator[list[str]]:
    for start in range(0, len(names), NAMES_PER_SLICE):
        await reader.rest()
        yield names[start : start + NAMES_PER_SLICE]


async def _read_line(reader: Reader, path: str, naming: Naming, names: list[str]) -> LockStatus | None:
    nodes = [node async for some in _name_slices(reader, names) for node in sort_by_arrival(naming, LINE_KINDS, some)]
    entries: list[LockEntry] = []
    only_readers = True
    kinds = {f"{path.rstrip('/')}/{node.name}": node.row.kind for node in sort_by_number(nodes)}
    for at, data, stat in await reader.nodes(list(kinds)):
        await reader.rest()
        if stat.ephemeralOwner:
            only_readers = only_readers and kinds[at] == "read"
            since = stat.ctime / 1000
            holds = only_readers or not entries
            entries.append(LockEntry(at, kinds[at] == "read", stat.ephemeralOwner, data, since, holds, stat.czxid))
    return LockStatus(path, naming, tuple(entries), recipe_of_line(naming, set(kinds.values()))) if entries else None


async def _read_semaphores(reader: Reader, listing: Listing) -> tuple[list[SharedRecipe], set[str]]:
    """Return the semaphores in use, and the paths of the locks that belong to them.

    The first waiter for the lock may already have a lease node, because Curator's semaphore creates it before waiting.
    """
    lines: list[SharedRecipe] = []
    hidden: set[str] = set()
    for naming, parent in product(NAMINGS, list(listing)):
        await reader.rest()
        found = semaphore_paths(naming, parent)
        if found is None or found.leases != parent or not found.is_likely(listing.__contains__):
            continue
        leases = [name for name in listing[parent] if matches_kind(naming, "lease", name)]
        line = await _read_line(reader, found.lock, naming, listing.get(found.lock, []))
        if not leases and line is None:
            continue
        hidden.add(found.lock)
        if naming == "curator":
            leases = [node.name for node in sort_by_arrival(naming, ("lease",), leases)]
        held = await _read_entries(reader, [paths.join(parent, name) for name in leases])
        waiting = [entry._replace(holds=False) for entry in line.entries] if line is not None else []
        if naming == "curator" and waiting and held and held[-1].session_id == waiting[0].session_id:
            del held[-1]
        lines.append(SharedRecipe(found.path, "semaphore", naming, tuple(held), tuple(waiting)))
    return lines, hidden


async def _read_queues(reader: Reader, listing: Listing) -> list[SharedRecipe]:
    lines = []
    for path, names in listing.items():
        entries = [
            naming async for some in _name_slices(reader, names) for name in some if (naming := _entry_naming(name))
        ]
        if not entries or paths.name(path) == TAKEN:
            continue
        shown = paths.parent(path) if paths.name(path) == ENTRIES else path
        taken = paths.join(shown, TAKEN)
        owners = (
            [paths.join(taken, name) for name in listing.get(taken, []) if _entry_naming(name)] if shown != path else []
        )
        held = await _read_entries(reader, sorted(owners))
        lines.append(SharedRecipe(shown, "queue", entries[0], tuple(held), (), len(entries)))
    return lines


def _entry_naming(name: str) -> str | None:
    """Return the naming of a queue entry; None for other names."""
    return next((naming for naming in NAMINGS if matches_kind(naming, "entry", name)), None)


async def _read_try_locks(reader: Reader, listing: Listing) -> list[SharedRecipe]:
    """Return zoolet's TryLocks and NodeElections: a node, and its proof node next to it."""
    lines = []
    for path, names in listing.items():
        proofs = [node async for some in _name_slices(reader, names) for name in some if (node := proven_node(name))]
        nodes = sorted(set(proofs) & set(names))
        if paths.name(path) == TAKEN:  # the nodes below belong to a queue
            continue
        held = await _read_entries(reader, [paths.join(path, name) for name in nodes])
        lines += [SharedRecipe(entry.path, "lock", "zoolet", (entry,), ()) for entry in held]
    return lines


async def _read_durable_locks(reader: Reader, listing: Listing) -> list[SharedRecipe]:
    """Return zoolet's DurableLocks: a persistent node that names its owner, with the proof node as its child."""
    lines = []
    proofs = {path: names[0] for path, names in listing.items() if len(names) == 1 and is_hold(names[0])}
    for path, data, stat in await reader.nodes(list(proofs)):
        await reader.rest()
        if len(data) > MAX_DURABLE_BYTES:
            continue
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and value.get("id") == proofs[path] and "owner" in value and "ttl" in value:
            owner = str(value["owner"]).encode("utf-8", "replace")
            entry = LockEntry(path, False, 0, owner, stat.ctime / 1000, True)
            lines.append(SharedRecipe(path, "durable lock", "zoolet", (entry,), ()))
    return lines


async def _read_barriers(reader: Reader, listing: Listing) -> list[SharedRecipe]:
    """Return the double barriers: members older than ``ready`` are in the round, and newer members wait."""
    lines = []
    for path, names in listing.items():
        known = READY in names
        members = [
            name
            async for some in _name_slices(reader, names)
            for name in some
            if is_barrier_member(name, has_ready=known)
        ]
        if not members or path + KAZOO_LOCK in listing:
            continue
        entries = sorted(
            await _read_entries(reader, [paths.join(path, name) for name in members]), key=lambda e: e.czxid
        )
        ready = [stat.czxid for _, _, stat in await reader.nodes([paths.join(path, READY)])] or [0]
        inside = tuple(entry for entry in entries if entry.czxid < ready[0])
        waiting = tuple(entry._replace(holds=False) for entry in entries if entry.czxid > ready[0])
        naming = "curator" if "-" in members[0] else "kazoo"
        lines += [SharedRecipe(path, "double barrier", naming, inside, waiting)] if entries else []
    return lines


async def _read_entries(reader: Reader, nodes: list[str]) -> list[LockEntry]:
    """Return the owners of ephemeral nodes, sorted by path."""
    return [
        LockEntry(path, False, stat.ephemeralOwner, data, stat.ctime / 1000, True, stat.czxid)
        for path, data, stat in await reader.nodes(nodes)
        if stat.ephemeralOwner
    ]
