"""Rules for watches: an event arrives once, before any answer with its change, and only at clients with a watch."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ...protocol import paths
from ...protocol import records as r
from ...protocol.enums import AddWatchMode, EventType
from ...protocol.errors import ErrorCode, MarshallingError
from ...protocol.hexadecimal import hexadecimal
from ...protocol.operations import OPERATIONS, OpCode
from ...protocol.paths import is_internal
from ..frames.requests import CONNECT, Entry, RecordedEvent, RecordedRequest, recorded_view
from .facts import LIST_OPCODES, STATELESS_REQUESTS, AcknowledgedChange, Facts
from .violation import HEADER_BYTES, Violation, reply_zxid

DATA: Final = "data"
CHILDREN: Final = "children"
BOTH: Final = "both"
"""The kinds of watches: one-shot for data, one-shot for children, and persistent, which covers both."""
UNORDERED_WITH_EVENTS: Final = STATELESS_REQUESTS | {int(OpCode.CLOSE_SESSION)}
"""Requests whose answers need not follow the events of earlier changes. A closing session, for example, receives no
more events."""
REMOVED_WATCHES: Final[dict[int, tuple[str, ...]]] = {
    EventType.NODE_CREATED: (DATA,),
    EventType.NODE_DELETED: (DATA, CHILDREN),
    EventType.NODE_DATA_CHANGED: (DATA,),
    EventType.NODE_CHILDREN_CHANGED: (CHILDREN,),
}
"""The kinds of one-shot watches that an event removes, by type of event."""


class _DueEvent(NamedTuple):
    """An event that a watch waits for.

    Args:
        zxid: The zxid of the change.
        number: The number of the watch on its connection.
        kind: ``data``, ``children``, or ``both`` for a persistent watch.
        path: The path of the node.
        change: The change.
    """

    zxid: int
    number: int
    kind: str
    path: str
    change: AcknowledgedChange


class _ConnectionWatches:
    """The recorded watches of one connection."""

    def __init__(self, triggers: _Triggers) -> None:
        self.is_complete = False  # whether the handshake was recorded, and therefore all watches
        self.one_shot: dict[tuple[str, str], int] = {}  # the number of each watch, by kind and path
        self.persistent: dict[str, tuple[AddWatchMode, int]] = {}
        self.uncertain: set[str] = set()  # paths that may have a watch: renewed, removed or unconfirmed
        self.uncertain_below: set[str] = set()
        self.setters: dict[int, RecordedRequest] = {}
        self.due: list[_DueEvent] = []
        self._awaited: dict[int, int] = {}  # zxid of the next change that a watch must report, by its number
        self._numbers = 0
        self._triggers = triggers

    def add_one_shot(self, kind: str, path: str, base: int, setter: RecordedRequest) -> None:
        """Add a one-shot watch for changes after the zxid *base*."""
        number = self._number()
        self.setters[number] = setter
        self.one_shot[kind, path] = number
        self._expect(kind, path, base, number)

    def add_persistent(self, path: str, mode: int, base: int, setter: RecordedRequest) -> None:
        """Add a persistent watch for changes after the zxid *base*."""
        number = self._number()
        self.setters[number] = setter
        self.persistent[path] = AddWatchMode(mode), number
        if mode == AddWatchMode.PERSISTENT:
            self._expect(BOTH, path, base, number)

    def _expect(self, kind: str, path: str, base: int, number: int) -> None:
        change = self._triggers.first_after(kind, path, base)
        if change is not None:
            heappush(self.due, _DueEvent(change.zxid, number, kind, path, change))
            if kind == BOTH:
                self._awaited[number] = change.zxid

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def pop_missed_event(self, zxid: int) -> _DueEvent | None:
        """Return an event that should have arrived before an answer with *zxid*, or None if no event is missing."""
        while self.due and self.due[0].zxid <= zxid:
            due = heappop(self.due)
            if due.kind == BOTH and self.persistent.get(due.path, (0, -1))[1] == due.number:
                return due
            if self.one_shot.get(due[2:4]) == due.number and not self._is_silenced(due.path):
                return due
        return None

    def _is_silenced(self, path: str) -> bool:
        """Return whether a persistent watch may keep other watches of its connection from firing, as in ZooKeeper 3.8.

        Source: ZOOKEEPER-4475.
        """
        return path in self.persistent or path in self.uncertain or self._is_below_recursive_watch(path)

    def receive(self, kind: int, path: str) -> bool:
        """Process an event. Return whether the connection has, or may have, a watch for it."""
        ended = [self.one_shot.pop((each, path), None) for each in REMOVED_WATCHES.get(kind, ())]
        asked = any(number is not None for number in ended)
        if path in self.persistent:
            asked = True
            mode, number = self.persistent[path]
            waited = self._awaited.pop(number, None)
            if waited is not None:
                renewed = self._number()  # a new number invalidates the entry in self.due with the old number
                self.setters[renewed] = self.setters[number]
                self.persistent[path] = mode, renewed
                self._expect(BOTH, path, waited, renewed)
        return asked or kind not in REMOVED_WATCHES or path in self.uncertain or self._is_below_recursive_watch(path)

    def _is_below_recursive_watch(self, path: str) -> bool:
        above = [path]
        while above[-1] != "/":
            above.append(paths.parent(above[-1]))
        recursive = AddWatchMode.PERSISTENT_RECURSIVE
        return any(self.persistent.get(each, (0, 0))[0] == recursive or each in self.uncertain_below for each in above)

    def forget_watches(self, path: str) -> None:
        """Forget the removed watches of a node. They may still fire, but no longer have to."""
        self.uncertain.add(path)
        self.uncertain_below.add(path)
        self.persistent.pop(path, None)
        for kind in (DATA, CHILDREN):
            self.one_shot.pop((kind, path), None)


class _Triggers:
    """The acknowledged changes that fire watches, by kind and path."""

    def __init__(self, facts: Facts) -> None:
        self._changes: dict[tuple[str, str], list[AcknowledgedChange]] = defaultdict(list)
        self._zxids: dict[tuple[str, str], list[int]] = defaultdict(list)
        guarded = {change.path for change in facts.changes if not change.is_open}
        requests = (entry for entry in facts.entries if isinstance(entry, RecordedRequest))
        guarded |= {recorded_view(entry).path or "" for entry in requests if entry.opcode == OpCode.SET_ACL}
        for change in facts.changes:
            if change.kind == "check" or change.path in guarded:
                continue
            kinds = [(DATA, change.path), (BOTH, change.path)]
            if change.kind == "delete":
                kinds.append((CHILDREN, change.path))
            if change.kind != "set" and change.path != "/" and (above := paths.parent(change.path)) not in guarded:
                kinds += [(CHILDREN, above), (BOTH, above)]
            for key in kinds:
                self._changes[key].append(change)
                self._zxids[key].append(change.zxid)

    def first_after(self, kind: str, path: str, base: int) -> AcknowledgedChange | None:
        """Return the first change after the zxid *base* that fires a watch, or None if there is no such change."""
        zxids = self._zxids.get((kind, path), ())
        place = bisect_right(zxids, base)
        return self._changes[kind, path][place] if place < len(zxids) else None


def find_wrong_events(facts: Facts) -> Iterator[Violation]:
    """Find events that arrive after the data that they announce, and events without a watch."""
    triggers = _Triggers(facts)
    connections: dict[int, _ConnectionWatches] = {}
    last_events: dict[tuple[int, str], Entry] = {}
    answered = {id(entry) for entry in facts.answered}
    for entry in facts.entries:
        connection = connections.setdefault(entry.connection, _ConnectionWatches(triggers))
        if isinstance(entry, RecordedRequest) and entry.opcode == CONNECT:
            connection.is_complete = True
        elif isinstance(entry, RecordedRequest) and entry.opcode in (OpCode.SET_WATCHES, OpCode.SET_WATCHES2):
            _note_renewed_watches(connection, entry)
    for entry in facts.entries:
        connection = connections[entry.connection]
        if isinstance(entry, RecordedEvent):
            event = r.WatcherEvent.decode(entry.payload, HEADER_BYTES)
            if not event.path.startswith("/"):
                continue  # the event is a session event, or is garbled
            is_asked = connection.receive(event.type, event.path) or not connection.is_complete
            if not is_asked and not is_internal(event.path):
                before = last_events.get((entry.connection, event.path))
                rule = f"An event for {event.path} is sent to a client without a watch for it."
                yield Violation(rule, (entry,) if before is None else (before, entry))
            last_events[entry.connection, event.path] = entry
        elif id(entry) in answered and entry.opcode not in UNORDERED_WITH_EVENTS and (zxid := reply_zxid(entry)) > 0:
            due = connection.pop_missed_event(zxid)
            if due is not None:
                yield Violation(
                    f"A client gets data before the event for {due.path} that announces it.",
                    (connection.setters[due.number], due.change.entry, entry),
                    f"1 set the watch, and 2 fires it at zxid {hexadecimal(due.zxid)}; 3 shows the state at zxid "
                    f"{hexadecimal(zxid)}, but the event was not sent before.",
                )
            _update_watches(connection, entry, zxid)
        elif isinstance(entry, RecordedRequest) and id(entry) not in answered and (path := recorded_view(entry).path):
            connection.uncertain.add(path)  # the request may have set a watch, although its answer is not genuine
            connection.uncertain_below.add(path)


def _note_renewed_watches(connection: _ConnectionWatches, entry: RecordedRequest) -> None:
    row = OPERATIONS[entry.opcode]
    assert row.request is not None
    try:
        request = row.request.decode(entry.body)
    except MarshallingError:
        return
    for name in ("dataWatches", "existWatches", "childWatches", "persistentWatches", "persistentRecursiveWatches"):
        listed = {path for path in getattr(request, name, None) or () if path is not None}
        (connection.uncertain_below if "Recursive" in name else connection.uncertain).update(listed)


def _update_watches(connection: _ConnectionWatches, entry: RecordedRequest, zxid: int) -> None:
    """Update the watches of a connection after a request that may have set or removed some."""
    view = recorded_view(entry)
    path = view.path
    is_found = entry.error == ErrorCode.OK
    if (
        path is None
        or not path.startswith("/")
        or not (is_found or (entry.opcode == OpCode.EXISTS and entry.error == ErrorCode.NO_NODE))
    ):
        return
    if entry.opcode == OpCode.ADD_WATCH and view.flags in AddWatchMode.__members__.values():
        connection.add_persistent(path, view.flags or 0, zxid, entry)
    elif entry.opcode == OpCode.REMOVE_WATCHES:
        connection.forget_watches(path)
    elif view.watch and entry.opcode in (OpCode.GET_DATA, OpCode.EXISTS):
        connection.add_one_shot(DATA, path, zxid, entry)
    elif view.watch and entry.opcode in LIST_OPCODES:
        connection.add_one_shot(CHILDREN, path, zxid, entry)
