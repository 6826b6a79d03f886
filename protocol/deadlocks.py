"""Lock holders and waiters, and the search for deadlocks: cycles of sessions that wait for each other."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Generator, Iterable, Iterator
from itertools import pairwise, product
from typing import Final, NamedTuple

from .hexadecimal import hexadecimal
from .recipe_names import HEX, UUID

_RANDOM_DATA: Final = re.compile(f"{HEX}|{UUID}".encode())
"""Pattern of random data. Such data lets queues and leases recognise their own nodes, and does not name a client."""
MAX_VISITS: Final = 1_000_000
"""Maximum number of sessions that a search visits. With thousands of deadlocked sessions, some cycles may be missed."""
MAX_WAITS: Final = 200_000
"""Maximum number of pairs of a waiter and a holder in a search. Each pair uses up to 1 kB during the search."""
PAIRS_PER_PAUSE: Final = 256
"""Number of pairs that a search considers between two pauses."""


class LockEntry(NamedTuple):
    """A client that holds a lock or waits for it.

    Args:
        path: Path of the client's node.
        shared: Whether the client is a reader, which shares the lock with other readers.
        session_id: Id of the client's session; 0 if unknown.
        data: Data of the node; by default the client's host and process id.
        since: Time of the client's request for the lock, in seconds since the epoch, by the server's clock.
        holds: Whether the client holds the lock.
        czxid: Creation zxid of the node; 0 if unknown. The fencing token ``Lease.token`` is the zxid of the grant, so
            it is never lower than this number.
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
    """A wait of one client for another client, as a part of a deadlock.

    Args:
        lock: Path of the lock that the client waits for.
        entry: The waiting client.
        holder: The client that holds *lock*. It is also part of the deadlock.
    """

    lock: str
    entry: LockEntry
    holder: LockEntry

    def __str__(self) -> str:
        return f"{contender_name(self.entry)} waits for {self.lock}, and {contender_name(self.holder)} holds it"


_Waits = dict[int, dict[int, list[Wait]]]
"""The waits of one session for another, by the ids of the waiting and the holding session. For each pair, there are at
most two waits, for different locks.
"""


def find_cycles(lines: list[LockStatus]) -> list[list[Wait]]:
    """Find cycles of sessions that wait for each other. Each session is part of at most one returned cycle."""
    holding = {entry.session_id for line in lines for entry in line.entries if entry.holds}
    waiting = {entry.session_id for line in lines for entry in line.entries if not entry.holds}
    return [circle for circle in search_cycles(lines, holding & waiting) if circle is not None]


def search_cycles(lines: Iterable[LockStatus | None], both: Collection[int]) -> Iterator[list[Wait] | None]:
    """Search like :func:`find_cycles`, but incrementally: yield each cycle, and None after each small step.

    Args:
        lines: The locks. For each None in this iterable, the search also yields None, to let the caller pause.
        both: Ids of the sessions that hold a lock and also wait for a lock. Only these can be part of a cycle.
    """
    waits = yield from _collect_waits(lines, both)
    waiting_for: dict[int, set[int]] = {}
    for session_id, others in waits.items():
        yield None
        for other in others:
            waiting_for.setdefault(other, set()).add(session_id)
    ends = [session_id for session_id in waiting_for if session_id not in waits]
    visits = 0
    while True:
        while ends:  # remove sessions that wait for no remaining session; most of the others are in cycles
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
        for found in _search_shortest_cycle(start, waits):
            visits += 1
            circle = found or circle
            yield None
        if circle:
            yield circle
        for session_id in {start, *(wait.entry.session_id for wait in circle)}:
            waits.pop(session_id, None)
            ends.append(session_id)


def _collect_waits(lines: Iterable[LockStatus | None], both: Collection[int]) -> Generator[None, None, _Waits]:
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
            if not room % PAIRS_PER_PAUSE:
                yield None
            if waiter.session_id != holder.session_id:
                between = waits.setdefault(waiter.session_id, {}).setdefault(holder.session_id, [])
                if len(between) < 2 and all(other.lock != line.path for other in between):
                    between.append(Wait(line.path, waiter, holder))
    return waits


def _search_shortest_cycle(start: int, waits: _Waits) -> Iterator[list[Wait] | None]:
    """Search for the shortest cycle through the session *start* that involves at least two locks.

    Yield None for each visited session, and finally the cycle if it exists.
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
            if circle := _choose_waits([waits[session][holder] for session, holder in pairwise([*sessions, start])]):
                yield circle
                return


def _choose_waits(steps: list[list[Wait]]) -> list[Wait]:
    """Return one wait for each step of a cycle. The waits must involve at least two locks, because the tasks of one
    session may take turns with one lock. Return an empty list if that is impossible.
    """
    circle = [step[0] for step in steps]
    if len({wait.lock for wait in circle}) > 1:
        return circle
    for place, step in enumerate(steps):
        if len(step) > 1 and step[1].lock != circle[0].lock:
            circle[place] = step[1]
            return circle
    return []


def client_name(data: bytes) -> str:
    """Return the name of the client, which is the data of its node. Return an empty text for random data."""
    return "" if _RANDOM_DATA.fullmatch(data) else data.decode(errors="replace")


def contender_name(entry: LockEntry) -> str:
    """Return a text that identifies a client: its name and session, or only the session of a client without a name."""
    name = client_name(entry.data)
    if not entry.session_id:
        return name or "an unknown client"
    session = f"session {hexadecimal(entry.session_id)}"
    return f"{name} ({session})" if name else session
