"""Locks below a node: who holds them, who waits for them, and who waits for each other."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from zoolet.client import serializers
from zoolet.client.recipes._base import Recipe
from zoolet.client.recipes._follow import children_of
from zoolet.client.recipes._node_names import NAMINGS, in_order
from zoolet.protocol.errors import NoAuthError, NoNodeError

_AT_ONCE = 1000
"""Nodes that are read at the same time."""


class LockEntry(NamedTuple):
    """One that holds a lock or waits for it.

    Args:
        path: Its node.
        shared: Whether it is a reader's, which others share.
        session_id: Its session.
        data: What its node holds; by default host and process id.
        since: When it asked for the lock, in seconds since the epoch, by the server's clock.
        holds: Whether it holds the lock.
    """

    path: str
    shared: bool
    session_id: int
    data: bytes
    since: float
    holds: bool


class LockLine(NamedTuple):
    """A lock that somebody holds.

    Args:
        path: The lock.
        naming: ``kazoo`` or ``curator``.
        entries: Who holds it and who waits, in the order in which they asked.
    """

    path: str
    naming: str
    entries: tuple[LockEntry, ...]


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
        return f"{_name(self.entry)} waits for {self.lock}, and {_name(self.behind)} holds it"


class LockTable(Recipe):
    """The locks below a node: ``for line in await LockTable(zk, "/locks").read(): print(line)``.

    Znodes: none of its own. It reads those of Lock, ReadWriteLock, Election and the lines of semaphores, of kazoo's and
    Curator's too.

    Limits: the whole tree below PATH is listed. Locks whose nodes may not be read are left out.
    """

    _serializer = serializers.raw

    async def read(self) -> list[LockLine]:
        """Return the locks in order of their paths; each line as it is at one moment, not all at the same."""
        lines = []
        pending = [self._path]
        while pending:
            listed = await asyncio.gather(*[self._names(path) for path in pending[:_AT_ONCE]])
            parents, pending = pending[:_AT_ONCE], pending[_AT_ONCE:]
            for parent, names in zip(parents, listed, strict=True):
                prefix = parent.rstrip("/")
                pending += [f"{prefix}/{name}" for name in names]
                lines += [line for naming in NAMINGS if (line := await self._line(parent, naming, names)) is not None]
        return sorted(lines)

    async def _names(self, path: str) -> list[str]:
        try:
            return await children_of(self._client, path)
        except NoAuthError:
            return []

    async def _line(self, path: str, naming: str, names: list[str]) -> LockLine | None:
        line = in_order(naming, NAMINGS[naming], names)
        calls = [self._client.get(f"{path.rstrip('/')}/{node.name}") for node in line]
        entries: list[LockEntry] = []
        only_readers = True
        for node, answer in zip(line, await asyncio.gather(*calls, return_exceptions=True), strict=True):
            if isinstance(answer, NoNodeError | NoAuthError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            data, stat = answer
            if stat.ephemeralOwner:
                only_readers = only_readers and node.kind == "read"
                at, since = f"{path.rstrip('/')}/{node.name}", stat.ctime / 1000
                holds = only_readers or not entries
                entries.append(LockEntry(at, node.kind == "read", stat.ephemeralOwner, data, since, holds))
        return LockLine(path, naming, tuple(entries)) if entries else None

    async def deadlocks(self) -> list[list[Wait]]:
        """Return who waits for each other, each circle of clients as a list: it does not change by itself any more.

        A circle has at least two locks, and is one of sessions: a client that holds one lock in one task and waits for
        the other in another task is found too, although its first task may go on.
        """
        # Nodes are not created again: what is there both times was there at one moment in between, in all lines.
        before = {entry for line in await self.read() for entry in line.entries}
        lines = [
            line._replace(entries=tuple(entry for entry in line.entries if entry in before))
            for line in await self.read()
        ]
        return _circles(lines)


def _circles(lines: list[LockLine]) -> list[list[Wait]]:
    """Find circles, each lock in one of them at most."""
    waiting: dict[int, list[tuple[int, LockEntry]]] = {}  # by session: where it waits
    for number, line in enumerate(lines):
        for entry in line.entries:
            if not entry.holds:
                waiting.setdefault(entry.session_id, []).append((number, entry))
    # From a lock to those that its holders wait for.
    next_locks = [
        [
            (holder, number, entry)
            for holder in line.entries
            if holder.holds
            for number, entry in waiting.get(holder.session_id, ())
            if lines[number].path != line.path
        ]
        for line in lines
    ]
    circles: list[list[Wait]] = []
    done: set[int] = set()
    for start in range(len(lines)):
        if start not in done:
            circle = _circle_through(start, next_locks, done)
            circles += [[Wait(lines[number].path, entry, behind) for number, entry, behind in circle]] if circle else []
            done.update({start}, (number for number, _, _ in circle))
    return circles


_Step = tuple[LockEntry, int, LockEntry]
"""The holder of a lock, the number of the lock that it waits for, and its place there."""


def _circle_through(start: int, steps: list[list[_Step]], done: set[int]) -> list[tuple[int, LockEntry, LockEntry]]:
    """Find a circle from a lock back to it: the locks, who waits for each, and which holder is in the way;
    empty if there is none.
    """
    for first in steps[start]:
        if first[1] in done:
            continue
        # How each lock was come by; by which session matters, for the next step is another session's.
        ways: dict[tuple[int, int], list[_Step]] = {(first[1], first[0].session_id): [first]}
        pending = deque(ways)
        while pending:
            number, session_id = pending.popleft()
            way = ways[number, session_id]
            for step in steps[number]:
                holder, following, _ = step
                if following in done or holder.session_id == session_id:
                    continue
                if following == start and holder.session_id != first[0].session_id:
                    circle = [*way, step]
                    behind = [*circle[1:], first]
                    return [(lock, entry, after[0]) for (_, lock, entry), after in zip(circle, behind, strict=True)]
                if following != start and (following, holder.session_id) not in ways:
                    ways[following, holder.session_id] = [*way, step]
                    pending.append((following, holder.session_id))
    return []


def _name(entry: LockEntry) -> str:
    return f"{entry.data.decode(errors='replace') or 'somebody'} (session {entry.session_id:#x})"
