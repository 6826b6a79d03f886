"""Recovery of recursive watches after a lost connection: nodes are listed again, and changes delivered as events.

A server compares one-shot watches with the last zxid that a client has seen, but not recursive ones. So the client
keeps the names below a recursively watched node, and lists them again when it has reconnected.

States and transitions::

    idle --start--> listing --last answer--> idle
             ^          |
             +--start---+   (a new connection: the listing starts again, compared with the same zxid)

The invariant: ``children`` contains a path exactly if a creation was delivered for it, or it existed at the first
listing, and no deletion was delivered since. Answers of an earlier round are recognized by their number and ignored.
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol import paths
from ...protocol import records as r
from ...protocol.enums import EventType
from .states import Event

ChildrenRequest = Callable[[str, Callable[[r.GetChildren2Response | None], None]], None]
"""Function that requests the children and the Stat of a node.

The callback receives the answer, or None for a missing node. It is called in order with the events, before anything
that the server sent later is processed.
"""


class SubtreeResync:
    """A record of the nodes below a recursively watched node, to deliver changes that happened while disconnected.

    Args:
        path: Path of the watched node on the server.
        deliver: Function that receives the events.
        ask: Function that requests children from the server.

    Attributes:
        done: Function that is called when the listing is complete.
    """

    def __init__(self, path: str, deliver: Callable[[Event], None], ask: ChildrenRequest) -> None:
        self._path = path
        self._deliver = deliver
        self._ask = ask
        self.children: dict[str, dict[str, None]] = {}  # the names of the children, by path
        self._zxids: dict[str, tuple[int | None, int | None]] = {}  # czxid and mzxid; None if unknown
        self._since: int | None = None  # None in the first listing, which delivers no events
        self._observed: set[str] = set()  # paths of the events that arrived during a listing
        self._pending = 0
        self._complete = False
        self._round = 0
        self.done: Callable[[], None] | None = None

    def start(self, since: int | None) -> None:
        """List the subtree. Differences from the known nodes are delivered as events when the answers arrive.

        Args:
            since: The last zxid that was seen before the disconnection; None for the first listing.
        """
        if not self._pending:
            self._since = since if self._complete else None
        self._observed.clear()
        self._pending = 0  # this listing replaces an interrupted one, and keeps its zxid
        self._round += 1
        self._list(self._path)

    def _list(self, path: str) -> None:
        self._pending += 1
        turn = self._round

        def answered(listed: r.GetChildren2Response | None) -> None:
            if turn != self._round:  # the answer belongs to an earlier round
                return
            self._pending -= 1
            if listed is None:
                self._remove(path)
            else:
                self._compare(path, listed)
            if not self._pending:
                self._complete = True
                if self.done is not None:
                    self.done()

        self._ask(path, answered)

    def _compare(self, path: str, listed: r.GetChildren2Response) -> None:
        since, known, stat = self._since, self.children.get(path), listed.stat
        czxid, mzxid = self._zxids.get(path, (None, None))
        self._zxids[path] = stat.czxid, stat.mzxid
        if known is None:
            known = self.children[path] = {}
            if since is not None:  # the node is unknown, so its creation was not delivered
                self._emit(EventType.NODE_CREATED, path)
        elif since is not None and path not in self._observed:
            # Known zxids are compared with !=, not >, because a different server's zxids may have started over.
            if czxid is not None and stat.czxid != czxid:
                self._emit(EventType.NODE_DELETED, path)
                self._emit(EventType.NODE_CREATED, path)
            elif stat.mzxid > since if mzxid is None else stat.mzxid != mzxid:
                self._emit(EventType.NODE_DATA_CHANGED, path)
        # A server that lists invalid names must not cause endless recursion: "/" and "" would lead to "/" again.
        names = dict.fromkeys(name for name in listed.children if name and "/" not in name)
        for name in [name for name in known if name not in names]:
            self._remove(paths.join(path, name))
        known.update(names)
        for name in names:
            self._list(paths.join(path, name))

    def _remove(self, path: str) -> None:
        """Deliver the deletion of a node and everything below it, children first."""
        order = [path]  # a growing list instead of recursion, because a tree may be deeper than Python's stack
        for above in order:
            order += [paths.join(above, name) for name in self.children.get(above, ())]
        for removed in reversed(order):
            self._zxids.pop(removed, None)
            if self.children.pop(removed, None) is not None:
                self._forget_name(removed)
                self._emit(EventType.NODE_DELETED, removed)

    def _forget_name(self, path: str) -> None:
        siblings = self.children.get(paths.parent(path))
        if siblings is not None and path != "/":
            siblings.pop(paths.name(path), None)

    def _emit(self, kind: EventType, path: str) -> None:
        if self._since is not None:
            self._deliver(Event(kind, path))

    @property
    def running(self) -> bool:
        """Whether answers are still expected."""
        return self._pending > 0

    def stop(self) -> None:
        """Stop listing, and ignore answers that are still expected."""
        self._round += 1
        self._pending = 0

    def observe(self, event: Event) -> None:
        """Update the known nodes with an event from the server.

        If the event deletes a node, deliver deletions of its known descendants, which have no events of their own.
        """
        path = event.path
        if path != "/" and path.endswith("/"):  # a node cannot have this path
            return
        if self._pending:
            self._observed.add(path)
        if event.type == EventType.NODE_CREATED:
            self.children.setdefault(path, {})
            self._zxids[path] = event.zxid, event.zxid
            siblings = self.children.get(paths.parent(path))
            if siblings is not None and path != "/":
                siblings[paths.name(path)] = None
        elif event.type == EventType.NODE_DATA_CHANGED:
            self._zxids[path] = self._zxids.get(path, (None, None))[0], event.zxid
        elif event.type == EventType.NODE_DELETED:
            for name in list(self.children.get(path, ())):  # the children were deleted earlier, without an event
                self._remove(paths.join(path, name))
            self.children.pop(path, None)
            self._zxids.pop(path, None)
            self._forget_name(path)
