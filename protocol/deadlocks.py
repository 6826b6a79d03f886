"""Clients that hold locks or wait for them, and deadlocks: cycles of sessions that wait for each other."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import pairwise, product
from typing import Final, NamedTuple

from .hexadecimal import hexadecimal
from .recipe_names import HEX, UUID

_RANDOM: Final = re.compile(f"{HEX}|{UUID}".encode())
"""Pattern of random data. Queues and leases recognize their own nodes by such data."""
MAX_VISITS: Final = 1_000_000
"""Maximum number of sessions that a search visits. With thousands of deadlocked sessions, it may miss some cycles."""
MAX_WAITS: Final = 200_000
"""Maximum number of pairs of a waiter and a holder that a search considers. Each uses up to 1 kB during the search."""
STEP: Final = 256
"""Number of sessions or waits of a search between two pauses."""


class LockEntry(NamedTuple):
    """A client that holds a lock or waits for it.

    Args:
        path: Path of its node.
        shared: Whether it is a reader, which shares the lock with other readers.
        session_id: Id of its session.
        data: Data of its node; by default host and process id.
        since: Time of its request for the lock, in seconds since the epoch, by the server's clock.
        holds: Whether it holds the lock.
        czxid: Creation zxid of its node; 0 if unknown. ``Lease.token``, the fencing token, is the zxid of the grant, so
            it is equal to this number or higher.
    """

    path: str
    shared: bool
    session_id: int
    data: bytes
    since: float
    holds: bool
    czxid: int = 0


class LockStatus(NamedTuple):
    """A lock with its holders and waiters.

    Args:
        path: Path of the lock.
        naming: ``kazoo`` or ``curator``.
        entries: Holders and waiters, in the order of their requests.
        kind: ``lock``, ``read-write lock`` or ``election``, inferred from the names of the nodes.
    """

    path: str
    naming: str
    entries: tuple[LockEntry, ...]
    kind: str = "lock"


class Wait(NamedTuple):
    """One wait of a circle of clients that wait for each other.

    Args:
        lock: Path of the lock that the client waits for.
        entry: Waiting client.
        holder: Client that holds *lock*. It is also a member of the circle.
    """

    lock: str
    entry: LockEntry
    holder: LockEntry

    def __str__(self) -> str:
        return f"{contender_name(self.entry)} waits for {self.lock}, and {contender_name(self.holder)} holds it"


_Waits = dict[int, dict[int, list[Wait]]]
"""Waits by the id of the waiting session, then by the session that holds the lock: one, or two for different locks."""


def find_cycles(lines: list[LockStatus]) -> list[list[Wait]]:
    """Find circles of sessions that wait for each other. Each session is in at most one of them."""
    holding = {entry.session_id for line in lines for entry in line.entries if entry.holds}
    waiting = {entry.session_id for line in lines for entry in line.entries if not entry.holds}
    return [circle for circle in search_circles(lines, holding & waiting) if circle is not None]


def search_circles(lines: Iterable[LockStatus | None], both: Collection[int]) -> Iterator[list[Wait] | None]:
    """Yield the cycles of :func:`find_cycles`. After each small step yield None, to let the caller pause.

    Args:
        lines: The locks. A None among them is passed on, to let the caller pause.
        both: Ids of the sessions that both hold a lock and wait for one. Only these can be in a cycle.
    """
    waits = yield from _waits(lines, both)
    waiting_for: dict[int, set[int]] = {}
    for session_id, others in waits.items():
        yield None
        for other in others:
            waiting_for.setdefault(other, set()).add(session_id)
    ends = [session_id for session_id in waiting_for if session_id not in waits]
    visits = 0
    while True:
        while ends:  # a session that waits only for ends is an end; the sessions that remain are mostly in circles
            end = ends.pop()
            for session_id in waiting_for.pop(end, ()):
                others = waits.get(session_id, {})
                if others.pop(end, None) is not None and not others:
                    del waits[session_id]
                    ends.append(session_id)
            yield None
        if not waits or visits >= MAX_VISITS:
            return
        start = next(iter(waits))
        circle: list[Wait] = []
        for found in _circle_through(start, waits):
            visits += 1
            circle = found or circle
            yield None
        if circle:
            yield circle
        for session_id in {start, *(wait.entry.session_id for wait in circle)}:
            waits.pop(session_id, None)
            ends.append(session_id)


def _waits(lines: Iterable[LockStatus | None], both: Collection[int]) -> Generator[None, None, _Waits]:
    waits: _Waits = {}
    room = MAX_WAITS
    for line in lines:
        yield None
        if line is None:
            continue
        entries = [entry for entry in line.entries if entry.session_id in both]
        holders = {entry.session_id: entry for entry in entries if entry.holds}
        waiters = {entry.session_id: entry for entry in entries if not entry.holds}
        for waiter, holder in product(waiters.values(), holders.values()):
            if not room:
                return waits
            room -= 1
            if not room % STEP:
                yield None
            if waiter.session_id != holder.session_id:
                between = waits.setdefault(waiter.session_id, {}).setdefault(holder.session_id, [])
                if len(between) < 2 and all(other.lock != line.path for other in between):
                    between.append(Wait(line.path, waiter, holder))
    return waits


def _circle_through(start: int, waits: _Waits) -> Iterator[list[Wait] | None]:
    """Search for the shortest cycle through a session that involves at least two locks. Yield None for each visited
    session, and finally the cycle, if one exists.
    """
    came_from: dict[int, int] = {}
    pending = deque([start])
    while pending:
        session_id = pending.popleft()
        yield None
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
            if circle := _with_two_locks([waits[session][holder] for session, holder in pairwise([*sessions, start])]):
                yield circle
                return


def _with_two_locks(steps: list[list[Wait]]) -> list[Wait]:
    """Return one wait of each step, from at least two locks, since tasks may take turns with one lock; else nothing."""
    circle = [step[0] for step in steps]
    if len({wait.lock for wait in circle}) > 1:
        return circle
    for place, step in enumerate(steps):
        if len(step) > 1 and step[1].lock != circle[0].lock:
            circle[place] = step[1]
            return circle
    return []


def client_name(data: bytes) -> str:
    """Return the name of the client in the data of a node; empty if the data is random."""
    return "" if _RANDOM.fullmatch(data) else data.decode(errors="replace")


def contender_name(entry: LockEntry) -> str:
    """Return a name for an entry: its data and its session, or the session alone if the data names no process."""
    name = client_name(entry.data)
    if not entry.session_id:
        return name or "an unknown client"
    session = f"session {hexadecimal(entry.session_id)}"
    return f"{name} ({session})" if name else session
