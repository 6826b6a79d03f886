"""Registrations of watches, and tables of them, for tests without I/O."""

from __future__ import annotations

from zoolet.client import EventType
from zoolet.client.wire.watches import Registration, WatchKind, WatchTable


def make_registration(kind: WatchKind, path: str = "/a", limit: int = 100) -> Registration:
    """Return a registration for a watch of this kind on *path*."""
    return Registration(kind, path, limit, lambda: None)


def make_table(*watches: Registration) -> WatchTable:
    """Return a watch table that contains these registrations."""
    made = WatchTable()
    for one in watches:
        made.add(one)
    return made


def pending_events(one: Registration) -> list[tuple[EventType, str]]:
    """Return the types and paths of the pending events of a registration."""
    return [(event.type, event.path) for event in one.events]
