"""The watches that commands have set, and the events that are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from zoolet.client.aio.client import Client
from zoolet.client.aio.watcher import Watcher
from zoolet.client.shell.errors import CommandError, plain_text
from zoolet.client.wire.states import Event
from zoolet.client.wire.watches import CONSUMED, Kind
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import ErrorCode

REMOVED: Final = (
    (EventType.DATA_WATCH_REMOVED, (Kind.DATA, Kind.EXIST)),
    (EventType.CHILD_WATCH_REMOVED, (Kind.CHILD,)),
    (EventType.PERSISTENT_WATCH_REMOVED, (Kind.PERSISTENT, Kind.RECURSIVE)),
)
"""Which event the removal of a watch of each kind causes, in this order."""


class ShellWatches:
    """The watches of one session.

    Args:
        client: Whose session it is.
        show: Called with each event, its path as the client names it, once however many watches it reaches.
    """

    def __init__(self, client: Client, show: Callable[[Event], None]) -> None:
        self._client = client
        self._show = show
        self._watchers: list[tuple[Kind, str, Watcher]] = []
        self._last: Event | None = None

    async def set(self, kind: Kind, path: str) -> Any:
        """Set a watch; return what was read with it, if it is of a kind that fires once.

        Raises:
            ZooKeeperError: It could not be set, or what was to be read could not be.
        """
        client = self._client
        if kind is Kind.DATA:
            watcher = client.watch_data(path)
        elif kind is Kind.EXIST:
            watcher = client.watch_exists(path)
        elif kind is Kind.CHILD:
            watcher = client.watch_children(path)
        else:
            watcher = client.watch(path, recursive=kind is Kind.RECURSIVE)
        watcher.deliver_to(self._receive)
        entry = kind, path, watcher
        self._watchers.append(entry)
        try:
            await watcher.__aenter__()
        except BaseException:
            self._watchers.remove(entry)
            raise
        return watcher.initial

    def _receive(self, event: Event) -> None:
        if event is self._last:  # it reaches another watch, too
            return
        self._last = event
        path = self._client.strip_chroot(event.path)
        fired = CONSUMED.get(event.type, ())
        self._watchers = [entry for entry in self._watchers if not (entry[0] in fired and entry[1] == path)]
        self._show(Event(event.type, path, event.zxid))

    async def remove(self, path: str, kinds: tuple[Kind, ...]) -> None:
        """Remove the watches of some kinds on a node; an event is shown for those of each kind.

        Raises:
            CommandError: There are none.
        """
        chosen = [entry for entry in self._watchers if entry[1] == path and entry[0] in kinds]
        if not chosen:
            raise CommandError(plain_text(ErrorCode.NO_WATCHER, path))
        for entry in chosen:
            await entry[2].__aexit__(None, None, None)
            self._watchers = [other for other in self._watchers if other is not entry]  # it may have fired meanwhile
        for event, of_event in REMOVED:
            if any(kind in of_event for kind, _, _ in chosen):
                self._show(Event(event, path))
