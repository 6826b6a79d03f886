"""Locks below a node: who holds them, who waits for them, and who waits for each other."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import NamedTuple, Protocol, Self, cast

from zoolet.client import serializers
from zoolet.client.aio.client import Client
from zoolet.client.aio.subtree import ask, names_below, subtree
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._node_names import NAMINGS, in_order
from zoolet.protocol.errors import NoAuthError, NoNodeError
from zoolet.protocol.hexadecimal import hexadecimal
from zoolet.protocol.records import Stat


class LockEntry(NamedTuple):
    """One that holds a lock or waits for it.

    Args:
        path: Its node.
        shared: Whether it is a reader's, which others share.
        session_id: Its session.
        data: What its node holds; by default host and process id.
        since: When it asked for the lock, in seconds since the epoch, by the server's clock.
        holds: Whether it holds the lock.
        token: The zxid at which its node was created: the fencing token of our Lock and of Curator's and kazoo's node;
            0 if that is not known.
    """

    path: str
    shared: bool
    session_id: int
    data: bytes
    since: float
    holds: bool
    token: int = 0


class LockLine(NamedTuple):
    """A lock that somebody holds.

    Args:
        path: The lock.
        naming: ``kazoo`` or ``curator``.
        entries: Who holds it and who waits, in the order in which they asked.
        kind: ``lock``, ``read-write lock`` or ``election``, as far as the names of the nodes tell.
    """

    path: str
    naming: str
    entries: tuple[LockEntry, ...]
    kind: str = "lock"


class Wait(NamedTuple):
    """One of those that wait for each other.

    Args:
        lock: The lock that it waits for.
        entry: It.
        behind: Who holds it: another one of them.
    """

    lock: str
    entry: LockEntry
    behind: LockEntry

    def __str__(self) -> str:
        return f"{name_of(self.entry)} waits for {self.lock}, and {name_of(self.behind)} holds it"


class Reader(Protocol):
    """Reads nodes: a client, or the server itself."""

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children."""
        ...

    async def get(self, path: str) -> tuple[bytes, Stat]:
        """Return data and Stat of a node."""
        ...


class LockTable(Recipe):
    """The locks below a node: ``for line in await LockTable(zk, "/locks").read(): print(line)``.

    Znodes: none of its own. It reads those of Lock, ReadWriteLock, Election and the lines of semaphores, of kazoo's and
    Curator's too.

    Limits: the whole tree below PATH is listed. Locks whose nodes may not be read are left out.
    """

    _serializer = serializers.raw

    @classmethod
    def over(cls, reader: Reader, path: str) -> Self:
        """Return a table that reads through something else than a client."""
        table = cls.__new__(cls)
        table._client, table._path = cast(Client, reader), path
        return table

    async def read(self) -> list[LockLine]:
        """Return the locks in order of their paths; each line as it is at one moment, not all at the same."""
        return await self._lines(await self._listing())

    async def _listing(self) -> dict[str, list[str]]:
        """Return the names of the children of each node."""
        return {path: names async for path, names in subtree(self._client, self._path)}

    async def _lines(self, listing: dict[str, list[str]]) -> list[LockLine]:
        lines = []
        for parent, names in listing.items():
            lines += [line for naming in NAMINGS if (line := await self._line(parent, naming, names)) is not None]
        return sorted(lines)

    async def _read_nodes(self, nodes: list[str]) -> list[tuple[str, bytes, Stat]]:
        """Return path, data and Stat of each node that is there and may be read."""
        answers = await ask(self._client.get, nodes, NoNodeError, NoAuthError)
        return [(path, *answer) for path, answer in zip(nodes, answers, strict=True) if isinstance(answer, tuple)]

    async def _line(self, path: str, naming: str, names: list[str]) -> LockLine | None:
        line = in_order(naming, NAMINGS[naming], names)
        entries: list[LockEntry] = []
        only_readers = True
        kinds = {f"{path.rstrip('/')}/{node.name}": node.kind for node in line}
        for at, data, stat in await self._read_nodes(list(kinds)):
            if stat.ephemeralOwner:
                only_readers = only_readers and kinds[at] == "read"
                since = stat.ctime / 1000
                holds = only_readers or not entries
                entries.append(LockEntry(at, kinds[at] == "read", stat.ephemeralOwner, data, since, holds, stat.czxid))
        return LockLine(path, naming, tuple(entries), _kind(naming, set(kinds.values()))) if entries else None

    async def deadlocks(self) -> list[list[Wait]]:
        """Return who waits for each other, each circle of clients as a list: it does not change by itself any more.

        A circle has at least two locks, and is one of sessions: a client that holds one lock in one task and waits for
        the other in another task is found too, although its first task may go on.
        """
        return await self._circles(await self.read())

    async def _circles(self, lines: list[LockLine]) -> list[list[Wait]]:
        """Read lines again, and return who waits for each other both times."""
        # Nodes are not created again: what is there both times was there at one moment in between, in all lines.
        before = {(entry.path, entry.session_id, entry.holds) for line in lines for entry in line.entries}
        parents = list({line.path for line in lines})
        lists = await names_below(self._client, parents)
        listing = {path: names for path, names in zip(parents, lists, strict=True) if isinstance(names, list)}
        both = [
            line._replace(
                entries=tuple(entry for entry in line.entries if (entry.path, entry.session_id, entry.holds) in before)
            )
            for line in await self._lines(listing)
        ]
        return find_circles(both)


def _kind(naming: str, kinds: set[str]) -> str:
    """Return what a line is; kazoo's writers and candidates have the names of locks."""
    if "read" in kinds or (naming == "curator" and "write" in kinds):
        return "read-write lock"
    return "election" if naming == "curator" and kinds == {"latch"} else "lock"


_Waits = dict[int, dict[int, list[Wait]]]
"""By the session that waits and the one that it waits for: one wait, or two of different locks."""


def find_circles(lines: list[LockLine]) -> list[list[Wait]]:
    """Find circles of sessions that wait for each other, each session in one of them at most."""
    waits = _waits(lines)
    circles = []
    _drop_ends(waits)
    while waits:
        start = next(iter(waits))
        circle = _circle_through(start, waits)
        circles += [circle] if circle else []
        for session_id in {start, *(wait.entry.session_id for wait in circle)}:
            waits.pop(session_id, None)
        _drop_ends(waits)
    return circles


def _waits(lines: list[LockLine]) -> _Waits:
    waits: _Waits = {}
    holding = {entry.session_id for line in lines for entry in line.entries if entry.holds}
    waiting = {entry.session_id for line in lines for entry in line.entries if not entry.holds}
    both = holding & waiting  # only these are in a circle, and mostly they are few
    for line in lines:
        holders = {entry.session_id: entry for entry in line.entries if entry.holds and entry.session_id in both}
        waiters = {entry.session_id: entry for entry in line.entries if not entry.holds and entry.session_id in both}
        for waiter in waiters.values():
            for holder in holders.values():
                if waiter.session_id != holder.session_id:
                    between = waits.setdefault(waiter.session_id, {}).setdefault(holder.session_id, [])
                    if len(between) < 2 and all(other.lock != line.path for other in between):
                        between.append(Wait(line.path, waiter, holder))
    return waits


def _drop_ends(waits: _Waits) -> None:
    """Leave out, again and again, who waits for nobody that waits: in no circle. What is left is mostly circles."""
    waiting_for: dict[int, set[int]] = {}
    for session_id, others in waits.items():
        for other in others:
            waiting_for.setdefault(other, set()).add(session_id)
    ends = [session_id for session_id in waiting_for if session_id not in waits]
    while ends:
        end = ends.pop()
        for session_id in waiting_for.pop(end, ()):
            others = waits.get(session_id, {})
            if others.pop(end, None) is not None and not others:
                del waits[session_id]
                ends.append(session_id)


def _circle_through(start: int, waits: _Waits) -> list[Wait]:
    """Find the shortest circle from a session back to it; empty if there is none with two locks or more."""
    came_from: dict[int, int] = {}
    pending = deque([start])
    while pending:
        session_id = pending.popleft()
        for other in waits.get(session_id, ()):
            if other != start:
                if other not in came_from:
                    came_from[other] = session_id
                    pending.append(other)
                continue
            sessions = [session_id]
            while sessions[-1] != start:
                sessions.append(came_from[sessions[-1]])
            sessions.reverse()
            if circle := _with_two_locks([waits[session][behind] for session, behind in pairwise([*sessions, start])]):
                return circle
    return []


def _with_two_locks(steps: list[list[Wait]]) -> list[Wait]:
    """Return one wait of each step, not all of one lock, whose tasks may only take turns; empty if that cannot be."""
    circle = [step[0] for step in steps]
    if len({wait.lock for wait in circle}) > 1:
        return circle
    for place, step in enumerate(steps):
        if len(step) > 1 and step[1].lock != circle[0].lock:
            circle[place] = step[1]
            return circle
    return []


def name_of(entry: LockEntry) -> str:
    """Return how people know one that holds or waits: by its data and its session."""
    name = entry.data.decode(errors="replace") or "somebody"
    return f"{name} (session {hexadecimal(entry.session_id)})" if entry.session_id else name
