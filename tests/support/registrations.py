"""Registrations of watches, and tables of them, for tests without I/O."""

from __future__ import annotations

from zoolet.client import EventType
from zoolet.client.wire.watches import Registration, WatchKind, WatchTable


def watch(kind: WatchKind, path: str = "/a", limit: int = 100) -> Registration:
    """Return the registration of a watch."""
    return Registration(kind, path, limit, lambda: None)


def table(*watches: Registration) -> WatchTable:
    """Return a table of these registrations."""
    made = WatchTable()
    for one in watches:
        made.add(one)
    return made


def events(one: Registration) -> list[tuple[EventType, str]]:
    """Return the types and paths of the pending events."""
    return [(event.type, event.path) for event in one.events]
