"""Which watches a client has, which event reaches whom, and what to say to a server that knows none of them.

A watch is one of five kinds. ``DATA``, ``EXIST`` and ``CHILD`` fire once; ``PERSISTENT`` and ``RECURSIVE`` stay.

No event is lost with a connection. One-shot watches are the server's to compare with the last zxid. It does not do that
for those that stay, so here a ``PERSISTENT`` watch is registered a second time as one-shot watches of the same node,
and a ``RECURSIVE`` one remembers the names below its node and compares them with what there is once it is back
(:class:`SubtreeResync`). What happened to a node several times meanwhile is told once.

Source: ZKWatchManager; ClientCnxn.SendThread.primeConnection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final

from zoolet.client.states import Event, WatchOverflowError
from zoolet.protocol import paths
from zoolet.protocol import records as r
from zoolet.protocol.enums import EventType, WatcherType
from zoolet.protocol.operations import OpCode

BATCH: Final = 120_000
"""Bytes of paths in one setWatches, so that the request stays below 128 KiB."""


class Kind(Enum):
    """What a watch hears of."""

    DATA = "data"
    EXIST = "exist"
    CHILD = "child"
    PERSISTENT = "persistent"
    RECURSIVE = "recursive"


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
        kind: What it hears of.
        path: The node, as the server names it.
        limit: How many events may wait; one more drops them all.
        wake: Called when there is an event or an error to take.
    """

    def __init__(self, kind: Kind, path: str, limit: int, wake: Callable[[], None]) -> None:
        self.kind = kind
        self.path = path
        self.limit = limit
        self.wake = wake
        self.events: deque[Event] = deque()
        self.overflowed = False
        self.there: bool | None = None
        """Of a PERSISTENT watch: whether its node exists, as far as the events tell."""
        self.census: SubtreeResync | None = None

    def deliver(self, event: Event) -> None:
        """Let an event wait for the user."""
        if self.kind is Kind.PERSISTENT and event.path == self.path:
            if event.type == EventType.NODE_DELETED:
                if self.there is False:  # the second of two for the same deletion
                    return
                self.there = False
            elif event.type == EventType.NODE_CREATED:
                self.there = True
        elif self.census is not None:
            self.census.saw(event)
        self.put(event)

    def put(self, event: Event) -> None:
        """Let an event wait for the user, whatever else is known."""
        if len(self.events) >= self.limit:
            self.events.clear()
            self.overflowed = True
        else:
            self.events.append(event)
        self.wake()

    def take(self) -> Event | None:
        """Return the event that has waited longest, if there is one.

        Raises:
            WatchOverflowError: Events were dropped; said once.
        """
        if self.overflowed:
            self.overflowed = False
            raise WatchOverflowError(self.path, self.limit)
        return self.events.popleft() if self.events else None


Ask = Callable[[str, Callable[[r.GetChildren2Response | None], None]], None]
"""Asks for the children of a node and their parent's Stat; the answer is None if there is no such node. It is called
back in its place among the events, before anything that the server sent later is looked at.
"""


class SubtreeResync:
    """The names below a recursively watched node, so that what happened during an absence can be told.

    Args:
        watch: Whom to tell.
        ask: Asks the server.
    """

    def __init__(self, watch: Registration, ask: Ask) -> None:
        self._watch = watch
        self._ask = ask
        self._known: dict[str, dict[str, None]] = {}  # by path: the names of its children
        self._made: dict[str, int | None] = {}  # by path: its czxid; None where the event that told of it had none
        self._since: int | None = None  # None in the first count, which tells nothing
        self._seen: set[str] = set()  # what live events have told of during a count
        self._left = 0
        self._counted = False
        self._round = 0
        self.done: Callable[[], None] | None = None

    def count(self, since: int | None) -> None:
        """Compare what is known with what there is, and tell the difference.

        Args:
            since: The last zxid that was seen before the absence; None to count for the first time.
        """
        if not self._left:
            self._since = since if self._counted else None
            self._seen.clear()
        self._left = 0  # of a count that was broken off: this one goes on from where that began
        self._round += 1
        self._inquire(self._watch.path)

    def _inquire(self, path: str) -> None:
        self._left += 1
        turn = self._round

        def answered(found: r.GetChildren2Response | None) -> None:
            if turn != self._round:  # of a connection before this one
                return
            self._left -= 1
            if found is None:
                self._gone(path)
            else:
                self._found(path, found)
            if not self._left:
                self._counted = True
                if self.done is not None:
                    self.done()

        self._ask(path, answered)

    def _found(self, path: str, found: r.GetChildren2Response) -> None:
        since, known, made = self._since, self._known.get(path), self._made.get(path)
        self._made[path] = found.stat.czxid
        if known is None:
            known = self._known[path] = {}
            if since is not None and path not in self._seen:
                self._tell(EventType.NODE_CREATED, path)
        elif since is not None and found.stat.mzxid > since and path not in self._seen:
            if made is not None and found.stat.czxid != made:
                self._tell(EventType.NODE_DELETED, path)
                self._tell(EventType.NODE_CREATED, path)
            else:
                self._tell(EventType.NODE_DATA_CHANGED, path)
        names = dict.fromkeys(found.children)
        for name in [name for name in known if name not in names]:
            self._gone(paths.join(path, name))
        known.update(names)
        for name in names:
            self._inquire(paths.join(path, name))

    def _gone(self, path: str) -> None:
        """Tell that a node and all that was below it is gone, children first."""
        order = [path]  # a list that grows, not calls: a tree may be deeper than Python's stack
        for above in order:
            order += [paths.join(above, name) for name in self._known.get(above, ())]
        for gone in reversed(order):
            self._made.pop(gone, None)
            if self._known.pop(gone, None) is not None:
                self._forget_name(gone)
                self._tell(EventType.NODE_DELETED, gone)

    def _forget_name(self, path: str) -> None:
        siblings = self._known.get(paths.parent(path))
        if siblings is not None and path != "/":
            siblings.pop(path.rpartition("/")[2], None)

    def _tell(self, kind: EventType, path: str) -> None:
        if self._since is not None:
            self._watch.put(Event(kind, path))

    def stop(self) -> None:
        """Ask no more, and heed no answer that is still to come."""
        self._round += 1

    def saw(self, event: Event) -> None:
        """Record a live event."""
        path = event.path
        if self._left:
            self._seen.add(path)
        if event.type == EventType.NODE_CREATED:
            self._known.setdefault(path, {})
            self._made[path] = event.zxid
            siblings = self._known.get(paths.parent(path))
            if siblings is not None and path != "/":
                siblings[path.rpartition("/")[2]] = None
        elif event.type == EventType.NODE_DELETED:
            for name in list(self._known.get(path, ())):  # which went before, and unseen
                self._gone(paths.join(path, name))
            self._known.pop(path, None)
            self._made.pop(path, None)
            self._forget_name(path)


class WatchTable:
    """All watches of one client.

    Attributes:
        forget: Called with a path and what the server should be told to remove, when the last watch of a path has fired
            while those that ended before it were still there at the server.
    """

    def __init__(self) -> None:
        self.forget: Callable[[str, WatcherType], None] = lambda path, kind: None
        self._expected: dict[str, int] = {}  # by path: registrations that are under way
        self._left: set[str] = set()  # paths of watches that ended and had to stay at the server, for others' sake
        self._by_kind: dict[Kind, dict[str, dict[Registration, None]]] = {kind: {} for kind in Kind}

    def add(self, watch: Registration) -> None:
        """Have a watch from now on; the server has it too."""
        self._by_kind[watch.kind].setdefault(watch.path, {})[watch] = None

    def remove(self, watch: Registration) -> WatcherType | None:
        """Have it no more.

        Returns:
            What the server should be told to remove; None if it has fired, or others need the server's watch.
        """
        held = self._by_kind[watch.kind].get(watch.path, {})
        if watch not in held:
            return None
        del held[watch]
        if not held:
            del self._by_kind[watch.kind][watch.path]
        if self._wanted(watch.path):
            self._left.add(watch.path)  # of those that are wanted, some servers would remove one too many
            return None
        return self._what_is_left(watch.path, _SERVER_KIND[watch.kind])

    def _wanted(self, path: str) -> bool:
        return path in self._expected or any(path in table for table in self._by_kind.values())

    def expect(self, path: str) -> None:
        """Record that the server is being asked for a watch, so that nobody has it removed meanwhile."""
        self._expected[path] = self._expected.get(path, 0) + 1

    def settle(self, path: str) -> None:
        """Record that it has answered; what was left for the sake of a watch that did not come to be goes now."""
        left = self._expected.pop(path) - 1
        if left:
            self._expected[path] = left
        elif path in self._left and not self._wanted(path):
            self._left.discard(path)
            self.forget(path, WatcherType.ANY)

    def _what_is_left(self, path: str, kind: WatcherType) -> WatcherType:
        if path not in self._left:
            return kind
        self._left.discard(path)
        return WatcherType.ANY

    def left_over(self, path: str) -> None:
        """Record that the server has a watch whose user has gone; :meth:`settle` has it removed in time."""
        self._left.add(path)

    def __iter__(self) -> Iterator[Registration]:
        for table in self._by_kind.values():
            for held in table.values():
                yield from held

    def has(self, kind: Kind, path: str) -> bool:
        """Return whether there is a watch of that kind on exactly this path."""
        return path in self._by_kind[kind]

    def fire(self, event: Event) -> None:
        """Hand an event to all whom it reaches; one-shot watches are gone then."""
        path = event.path
        for kind in CONSUMED.get(event.type, ()):
            for watch in self._by_kind[kind].pop(path, ()):
                watch.deliver(event)
        for watch in list(self._by_kind[Kind.PERSISTENT].get(path, ())):
            watch.deliver(event)
        if path in self._left and not self._wanted(path):
            self._left.discard(path)
            self.forget(path, WatcherType.ANY)
        recursive = self._by_kind[Kind.RECURSIVE]
        if recursive and event.type != EventType.NODE_CHILDREN_CHANGED:
            above = path
            while True:
                for watch in list(recursive.get(above, ())):
                    watch.deliver(event)
                if above == "/":
                    break
                above = paths.parent(above)

    def batches(self, last_zxid: int) -> list[tuple[OpCode, bytes]]:
        """Return the requests that tell a server of all watches; it answers with events for what has changed since.

        Args:
            last_zxid: The last zxid that was seen before the connection was lost.
        """
        wanted: list[tuple[int, str]] = []
        wanted += [(0, path) for path in self._by_kind[Kind.DATA]]
        wanted += [(1, path) for path in self._by_kind[Kind.EXIST]]
        wanted += [(2, path) for path in self._by_kind[Kind.CHILD]]
        for path, held in self._by_kind[Kind.PERSISTENT].items():
            there = next(iter(held)).there
            wanted += [(1, path)] if there is False else [(0, path), (2, path)]
            wanted.append((3, path))
        wanted += [(4, path) for path in self._by_kind[Kind.RECURSIVE]]
        requests = []
        at = 0
        while at < len(wanted):
            lists: tuple[dict[str | None, None], ...] = ({}, {}, {}, {}, {})
            size = 0
            while at < len(wanted) and size < BATCH:
                which, path = wanted[at]
                lists[which][path] = None
                size += len(path) * 3 + 4 if not path.isascii() else len(path) + 4
                at += 1
            data, exist, child, persistent, recursive = map(list, lists)
            if persistent or recursive:
                body = r.SetWatches2(last_zxid, data, exist, child, persistent, recursive).encode()
                requests.append((OpCode.SET_WATCHES2, body))
            else:
                requests.append((OpCode.SET_WATCHES, r.SetWatches(last_zxid, data, exist, child).encode()))
        return requests

    def recount(self, since: int) -> None:
        """Let every recursive watch find out what it has missed."""
        for held in list(self._by_kind[Kind.RECURSIVE].values()):
            for watch in list(held):
                if watch.census is not None:
                    watch.census.count(since)
