"""The watches of a client: which event reaches which, and how to register them at a server that knows none.

Events arrive in ``Session._event``, which calls :meth:`WatchTable.fire`; the
:class:`~zoolet.client.aio.watcher.Watcher` takes them from its :class:`Registration`.

A watch is one of five kinds. ``DATA``, ``EXIST`` and ``CHILD`` fire once; ``PERSISTENT`` and ``RECURSIVE`` stay.

A 3.8 server keeps one mode for all watches that a connection has on one path: the last one set. So where there is a
recursive watch, the others of that path are not set at the server: its events fire them (:meth:`WatchTable.fire`). If
it was replaced nevertheless, or ends while others are left, the path's watches are registered again, as after a
reconnect (``Session.rewatch``).

No event is lost with a connection. A server compares one-shot watches with the last zxid that a client has seen. It
does not do that for those that stay, so here a ``PERSISTENT`` watch is registered a second time as one-shot watches of
the same node, and a ``RECURSIVE`` one lists what is below its node (:mod:`.resync`). What happened to a node several
times meanwhile is delivered once.

Source: ZKWatchManager; ClientCnxn.SendThread.primeConnection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from zoolet.client.wire.resync import SubtreeResync
from zoolet.client.wire.states import Event, WatchOverflowError
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.enums import EventType, WatcherType
from zoolet.protocol.operations import OpCode

BATCH: Final = 120_000
"""Bytes of paths in one setWatches, so that the request stays below 128 KiB."""


class Kind(Enum):
    """The kinds of watches."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


IN_REQUEST: Final = tuple(Kind)
"""The order of the lists in the request that registers watches."""
CONSUMED: Final = {
    EventType.NODE_CREATED: (Kind.DATA, Kind.EXIST),
    EventType.NODE_DATA_CHANGED: (Kind.DATA, Kind.EXIST),
    EventType.NODE_DELETED: (Kind.DATA, Kind.EXIST, Kind.CHILD),
    EventType.NODE_CHILDREN_CHANGED: (Kind.CHILD,),
}
"""Which one-shot watches of a node each event fires."""
_SERVER_KIND: Final = {
    Kind.DATA: WatcherType.DATA,
    Kind.EXIST: WatcherType.DATA,
    Kind.CHILD: WatcherType.CHILDREN,
    Kind.PERSISTENT: WatcherType.ANY,
    Kind.RECURSIVE: WatcherType.ANY,
}


class Registration:
    """One watch and the events that wait for its user.

    Args:
        kind: What it is notified of.
        path: The node, as the server names it.
        limit: How many events may wait; one more drops them all.
        wake: Called when there is an event or an error to pop.
    """

    def __init__(self, kind: Kind, path: str, limit: int, wake: Callable[[], None]) -> None:
        self.kind = kind
        self.path = path
        self.limit = limit
        self.wake = wake
        self.events: deque[Event] = deque()
        self.overflowed = False
        self.receive: Callable[[Event], None] | None = None
        """Called with each event, in place of queueing it."""
        self.exists: bool | None = None
        """Of a PERSISTENT watch: whether its node exists, as far as the events tell."""
        self.resync: SubtreeResync | None = None
        self.derived: int | None = None
        """Of a PERSISTENT watch: the zxid of the last change of its children that was known from a recursive watch."""

    def deliver(self, event: Event) -> None:
        """Queue an event for the user."""
        if self.kind is Kind.PERSISTENT and event.path == self.path:
            if event.type == EventType.NODE_DELETED:
                if self.exists is False:  # the second of two for the same deletion
                    return
                self.exists = False
            elif event.type == EventType.NODE_CREATED:
                self.exists = True
        elif self.resync is not None:
            self.resync.observe(event)
        self.put(event)

    def put(self, event: Event) -> None:
        """Queue an event without looking at it."""
        if self.receive is not None:
            self.receive(event)
        elif len(self.events) >= self.limit:
            self.events.clear()
            self.overflowed = True
        else:
            self.events.append(event)
        self.wake()

    def pop(self) -> Event | None:
        """Return the event that has waited longest, if there is one.

        Raises:
            WatchOverflowError: Events were dropped; raised once.
        """
        if self.overflowed:
            self.overflowed = False
            raise WatchOverflowError(self.path, self.limit)
        return self.events.popleft() if self.events else None


class WatchTable:
    """All watches of one client.

    Attributes:
        forget: Called with a path and what the server should be asked to remove, when the last watch of a path has
            fired while watches that ended before it were still registered at the server.
    """

    def __init__(self) -> None:
        self.forget: Callable[[str, WatcherType], object] = lambda path, kind: None
        self._expected: dict[str, int] = {}  # by path: registrations that are under way
        self._orphans: set[str] = set()  # paths of watches that ended, and had to stay registered for others
        self._by_kind: dict[Kind, dict[str, dict[Registration, None]]] = {kind: {} for kind in Kind}

    def add(self, registration: Registration) -> None:
        """Add a watch that the server has, too."""
        self._by_kind[registration.kind].setdefault(registration.path, {})[registration] = None

    def remove(self, registration: Registration) -> WatcherType | None:
        """Remove a watch.

        Returns:
            What the server should be asked to remove; None if it has fired, or others need the server's registration.
        """
        registrations = self._by_kind[registration.kind].get(registration.path, {})
        if registration not in registrations:
            return None
        del registrations[registration]
        if not registrations:
            del self._by_kind[registration.kind][registration.path]
        if self.is_needed(registration.path):
            self._orphans.add(registration.path)  # of those that are wanted, some servers would remove one too many
            return None
        return self._what_to_remove(registration.path, _SERVER_KIND[registration.kind])

    def is_needed(self, path: str) -> bool:
        """Return whether the server has to keep what it has for a path, or is being asked for it."""
        return path in self._expected or self.has_any(path)

    def expect(self, path: str) -> None:
        """Record that the server is being asked for a registration, so that nobody has it removed meanwhile."""
        self._expected[path] = self._expected.get(path, 0) + 1

    def finish(self, path: str) -> None:
        """Record that it has answered; orphans that were kept for this watch are removed now if it failed."""
        pending = self._expected.pop(path) - 1
        if pending:
            self._expected[path] = pending
        else:
            self._remove_orphan(path)

    def _remove_orphan(self, path: str) -> None:
        """Have the server remove a watch that nothing here uses any more."""
        if path in self._orphans and not self.is_needed(path):
            self._orphans.discard(path)
            self.forget(path, WatcherType.ANY)

    def _what_to_remove(self, path: str, kind: WatcherType) -> WatcherType:
        if path not in self._orphans:
            return kind
        self._orphans.discard(path)
        return WatcherType.ANY

    def add_orphan(self, path: str) -> None:
        """Record that the server has a watch that nothing here uses; :meth:`finish` has it removed."""
        self._orphans.add(path)

    def __iter__(self) -> Iterator[Registration]:
        for table in self._by_kind.values():
            for registrations in table.values():
                yield from registrations

    def has(self, kind: Kind, path: str) -> bool:
        """Return whether there is a watch of that kind on exactly this path."""
        return path in self._by_kind[kind]

    def has_any(self, path: str) -> bool:
        """Return whether there is a watch on exactly this path."""
        return any(path in table for table in self._by_kind.values())

    def fire(self, event: Event) -> None:
        """Deliver an event to every watch that it reaches; one-shot watches are removed."""
        path = event.path
        for kind in CONSUMED.get(event.type, ()):
            for registration in self._by_kind[kind].pop(path, ()):
                registration.deliver(event)
        for registration in list(self._by_kind[Kind.PERSISTENT].get(path, ())):
            if event.type != EventType.NODE_CHILDREN_CHANGED or not event.zxid or registration.derived != event.zxid:
                registration.deliver(event)  # else it was delivered by _derive
        self._remove_orphan(path)
        recursive = self._by_kind[Kind.RECURSIVE]
        if recursive and event.type != EventType.NODE_CHILDREN_CHANGED:
            above = path
            while True:
                for registration in list(recursive.get(above, ())):
                    registration.deliver(event)
                if above == "/":
                    break
                above = paths.parent(above)
            if event.type in (EventType.NODE_CREATED, EventType.NODE_DELETED) and path != "/":
                self._derive(paths.parent(path), event)

    def _derive(self, parent: str, event: Event) -> None:
        """Deliver what the coming or going of a child means to other watches of a node that is watched recursively: to
        a 3.8 server they are one watch, which says nothing of the list of children.
        """
        if parent not in self._by_kind[Kind.RECURSIVE]:
            return
        derived = Event(EventType.NODE_CHILDREN_CHANGED, parent, event.zxid)
        for registration in self._by_kind[Kind.CHILD].pop(parent, ()):
            registration.deliver(derived)
        for registration in list(self._by_kind[Kind.PERSISTENT].get(parent, ())):
            registration.derived = event.zxid
            registration.deliver(derived)

    def batches(self, last_zxid: int, path: str | None = None) -> list[tuple[OpCode, bytes]]:
        """Return the requests that register watches at a server; it answers with events for what has changed since.

        Args:
            last_zxid: The last zxid that was seen before the connection was lost.
            path: Only those of this path; by default all.
        """
        watched: list[tuple[Kind, str]] = []
        for kind in IN_REQUEST:
            table = self._by_kind[kind]
            for watched_path in table if path is None else table.keys() & {path}:
                if kind is Kind.PERSISTENT:
                    exists = next(iter(table[watched_path])).exists
                    kinds = [Kind.EXIST] if exists is False else [Kind.DATA, Kind.CHILD]
                    watched += [(kind, watched_path) for kind in kinds]
                watched.append((kind, watched_path))
        requests = []
        place = 0
        while place < len(watched):
            lists: dict[Kind, dict[str | None, None]] = {kind: {} for kind in IN_REQUEST}
            size = 0
            while place < len(watched) and size < BATCH:
                kind, watched_path = watched[place]
                lists[kind][watched_path] = None
                size += (len(watched_path) if watched_path.isascii() else 3 * len(watched_path)) + 4
                place += 1
            data, exist, child, persistent, recursive = map(list, lists.values())
            if persistent or recursive:
                body = r.SetWatches2(last_zxid, data, exist, child, persistent, recursive).encode()
                requests.append((OpCode.SET_WATCHES2, body))
            else:
                requests.append((OpCode.SET_WATCHES, r.SetWatches(last_zxid, data, exist, child).encode()))
        return requests

    def resync(self, since: int, path: str | None = None) -> None:
        """Make every recursive watch, or those of one path, list what it has missed."""
        for registrations in list(self._by_kind[Kind.RECURSIVE].values()):
            for registration in list(registrations):
                if registration.resync is not None and path in (None, registration.path):
                    registration.resync.start(since)
