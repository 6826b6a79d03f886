"""The watches of a client: delivery of events to watches, and registration of watches after a reconnect.

Events arrive in ``ClientSession._on_event``, which calls :meth:`WatchTable.fire`. The
:class:`~zoolet.client.aio.watcher.Watcher` takes them from its :class:`Registration`.

A watch is one of five kinds. ``DATA``, ``EXIST`` and ``CHILD`` fire once. ``PERSISTENT`` and ``RECURSIVE`` stay.

A 3.8 server keeps one mode for all watches that a connection has on one path: the last one set. So if a path has a
recursive watch, its other watches are not set at the server: the events of the recursive watch fire them
(:meth:`WatchTable.fire`). If the recursive watch is replaced anyway, or ends before the others, the path's
watches are registered again, as after a reconnect (``ClientSession.rewatch``).

A lost connection loses no change. A server compares one-shot watches with the last zxid that a client has seen, but
not watches that stay. So a ``PERSISTENT`` watch is also registered as one-shot watches of the same node, and a
``RECURSIVE`` watch lists its subtree (:mod:`.resync`). Several changes of a node while disconnected are delivered once.

Source: ZKWatchManager; ClientCnxn.SendThread.primeConnection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from ...protocol import paths
from ...protocol import records as r
from ...protocol.enums import EventType, WatcherType
from ...protocol.operations import OpCode
from .resync import SubtreeResync
from .states import Event, WatchOverflowError

MAX_BATCH_BYTES: Final = 120_000
"""Maximum number of bytes of paths in one setWatches, to keep the request below 128 KiB."""


class WatchKind(Enum):
    """The kinds of watches that a client registers, as in SetWatches2."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


REQUEST_ORDER: Final = tuple(WatchKind)
"""The order of the lists in the request that registers watches."""
FIRED_KINDS: Final = {
    EventType.NODE_CREATED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.NODE_DATA_CHANGED: (WatchKind.DATA, WatchKind.EXIST),
    EventType.NODE_DELETED: (WatchKind.DATA, WatchKind.EXIST, WatchKind.CHILD),
    EventType.NODE_CHILDREN_CHANGED: (WatchKind.CHILD,),
}
"""The kinds of one-shot watches of a node that each event fires."""
_SERVER_TYPES: Final = {
    WatchKind.DATA: WatcherType.DATA,
    WatchKind.EXIST: WatcherType.DATA,
    WatchKind.CHILD: WatcherType.CHILDREN,
    WatchKind.PERSISTENT: WatcherType.ANY,
    WatchKind.RECURSIVE: WatcherType.ANY,
}


def _do_nothing() -> None:
    """Do nothing. This replaces ``Registration.wake`` outside of the watcher's block."""


class Registration:
    """One watch and the events that wait for its user.

    Args:
        kind: Kind of the watch.
        path: Path of the node on the server.
        limit: Maximum number of waiting events. One more event drops them all.
        wake: Function that is called when there is an event or an error to pop.
    """

    def __init__(self, kind: WatchKind, path: str, limit: int, wake: Callable[[], None] = _do_nothing) -> None:
        self.kind = kind
        self.path = path
        self.limit = limit
        self.wake = wake
        self.events: deque[Event] = deque()
        self.overflowed = False
        self.receive: Callable[[Event], None] | None = None
        """Function that is called with each event; None to queue the events."""
        self.exists: bool | None = None
        """Whether the node of a PERSISTENT watch exists, according to the events so far."""
        self.resync: SubtreeResync | None = None
        self.derived: int | None = None
        """For a PERSISTENT watch, the zxid of the last change of its children that a recursive watch reported."""

    def forget_owner(self) -> None:
        """Forget the functions of the watcher, to break the reference cycle with it."""
        self.wake, self.receive, self.resync = _do_nothing, None, None

    def deliver(self, event: Event) -> None:
        """Update the facts about the node, and queue the event for the user unless it repeats a deletion."""
        if self.kind is WatchKind.PERSISTENT and event.path == self.path:
            if event.type == EventType.NODE_DELETED:
                if self.exists is False:  # a second event for the same deletion
                    return
                self.exists = False
            elif event.type == EventType.NODE_CREATED:
                self.exists = True
        elif self.resync is not None:
            self.resync.observe(event)
        self.put(event)

    def put(self, event: Event) -> None:
        """Pass an event to the function ``receive``, or queue it. If the queue is full, drop all events."""
        if self.receive is not None:
            self.receive(event)
        elif len(self.events) >= self.limit:
            self.events.clear()
            self.overflowed = True
        else:
            self.events.append(event)
        self.wake()

    def pop(self) -> Event | None:
        """Remove and return the oldest waiting event. Return None if no event waits.

        Raises:
            WatchOverflowError: Events were dropped since the last call.
        """
        if self.overflowed:
            self.overflowed = False
            raise WatchOverflowError(self.path, self.limit)
        return self.events.popleft() if self.events else None


class WatchTable:
    """All watches of one client.

    Attributes:
        forget: Function that removes watches of a path from the server, given the path and their type. It is called
            when the last watch of a path has fired while watches that ended earlier are still registered there.
    """

    def __init__(self) -> None:
        self.forget: Callable[[str, WatcherType], object] = lambda path, kind: None
        self._expected: dict[str, int] = {}  # number of unanswered registrations, by path
        self._orphans: set[str] = set()  # paths of watches that ended, but had to stay registered for others
        self._by_kind: dict[WatchKind, dict[str, dict[Registration, None]]] = {kind: {} for kind in WatchKind}

    def add(self, registration: Registration) -> None:
        """Add a watch that is registered at the server."""
        self._by_kind[registration.kind].setdefault(registration.path, {})[registration] = None

    def remove(self, registration: Registration) -> WatcherType | None:
        """Remove a watch.

        Returns:
            The type of watches that the server should remove; None if the watch has fired, or if other watches need the
            server's registration.
        """
        registrations = self._by_kind[registration.kind].get(registration.path, {})
        if registration not in registrations:
            return None
        del registrations[registration]
        if not registrations:
            del self._by_kind[registration.kind][registration.path]
        if self.is_needed(registration.path):
            self._orphans.add(registration.path)  # some servers would also remove a watch that is still needed
            return None
        return self._removal_type(registration.path, _SERVER_TYPES[registration.kind])

    def is_needed(self, path: str) -> bool:
        """Return whether the server's registration of a path is still needed, or a new one has been requested."""
        return path in self._expected or self.has_any(path)

    def expect(self, path: str) -> None:
        """Record that a registration was requested from the server, which protects it from removal."""
        self._expected[path] = self._expected.get(path, 0) + 1

    def finish(self, path: str) -> None:
        """Record the answer to a registration. Remove an orphan of the path that is no longer needed."""
        pending = self._expected.pop(path) - 1
        if pending:
            self._expected[path] = pending
        else:
            self._remove_orphan(path)

    def _remove_orphan(self, path: str) -> None:
        """Remove a watch from the server that the client no longer uses."""
        if path in self._orphans and not self.is_needed(path):
            self._orphans.discard(path)
            self.forget(path, WatcherType.ANY)

    def _removal_type(self, path: str, kind: WatcherType) -> WatcherType:
        if path not in self._orphans:
            return kind
        self._orphans.discard(path)
        return WatcherType.ANY

    def add_orphan(self, path: str) -> None:
        """Record that the server has a watch that the client does not use. :meth:`finish` removes the watch."""
        self._orphans.add(path)

    def __iter__(self) -> Iterator[Registration]:
        for table in self._by_kind.values():
            for registrations in table.values():
                yield from registrations

    def has(self, kind: WatchKind, path: str) -> bool:
        """Return whether there is a watch of that kind on exactly this path."""
        return path in self._by_kind[kind]

    def has_any(self, path: str) -> bool:
        """Return whether there is a watch on exactly this path."""
        return any(path in table for table in self._by_kind.values())

    def fire(self, event: Event) -> None:
        """Deliver an event to every watch that it reaches, and remove one-shot watches."""
        path = event.path
        for kind in FIRED_KINDS.get(event.type, ()):
            for registration in self._by_kind[kind].pop(path, ()):
                registration.deliver(event)
        for registration in list(self._by_kind[WatchKind.PERSISTENT].get(path, ())):
            if event.type != EventType.NODE_CHILDREN_CHANGED or not event.zxid or registration.derived != event.zxid:
                registration.deliver(event)  # unless _deliver_derived has already delivered it
        self._remove_orphan(path)
        recursive = self._by_kind[WatchKind.RECURSIVE]
        if recursive and event.type != EventType.NODE_CHILDREN_CHANGED:
            above = path
            while True:
                for registration in list(recursive.get(above, ())):
                    registration.deliver(event)
                if above == "/":
                    break
                above = paths.parent(above)
            if event.type in (EventType.NODE_CREATED, EventType.NODE_DELETED) and path != "/":
                self._deliver_derived(paths.parent(path), event)

    def _deliver_derived(self, parent: str, event: Event) -> None:
        """Deliver a NODE_CHILDREN_CHANGED to the other watches of a recursively watched node.

        *event* is the creation or deletion of a child. A 3.8 server treats all watches of the node as a single watch,
        which does not report changes of the list of children.
        """
        if parent not in self._by_kind[WatchKind.RECURSIVE]:
            return
        derived = Event(EventType.NODE_CHILDREN_CHANGED, parent, event.zxid)
        for registration in self._by_kind[WatchKind.CHILD].pop(parent, ()):
            registration.deliver(derived)
        for registration in list(self._by_kind[WatchKind.PERSISTENT].get(parent, ())):
            registration.derived = event.zxid
            registration.deliver(derived)

    def batches(self, last_zxid: int, path: str | None = None) -> list[tuple[OpCode, bytes]]:
        """Return the requests that register watches at a server. The server answers with events for missed changes.

        Args:
            last_zxid: The last zxid that was seen before the connection was lost.
            path: Path of the watches to register; by default all watches.
        """
        watched: list[tuple[WatchKind, str]] = []
        for kind in REQUEST_ORDER:
            table = self._by_kind[kind]
            for watched_path in table if path is None else table.keys() & {path}:
                if kind is WatchKind.PERSISTENT:
                    exists = next(iter(table[watched_path])).exists
                    kinds = [WatchKind.EXIST] if exists is False else [WatchKind.DATA, WatchKind.CHILD]
                    watched += [(kind, watched_path) for kind in kinds]
                watched.append((kind, watched_path))
        requests = []
        place = 0
        while place < len(watched):
            lists: dict[WatchKind, dict[str | None, None]] = {kind: {} for kind in REQUEST_ORDER}
            size = 0
            while place < len(watched) and size < MAX_BATCH_BYTES:
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
        """Start a resync of all recursive watches, or of those on one path, to deliver the changes that they missed."""
        for registrations in list(self._by_kind[WatchKind.RECURSIVE].values()):
            for registration in list(registrations):
                if registration.resync is not None and path in (None, registration.path):
                    registration.resync.start(since)
