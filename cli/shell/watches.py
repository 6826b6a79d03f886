"""The watches that commands set, and the events that the shell shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...client.aio.watcher import Watcher
from ...client.client import Client
from ...client.wire.states import Event
from ...client.wire.watches import FIRED_KINDS, WatchKind
from ...protocol.enums import EventType
from ...protocol.errors import ErrorCode
from .errors import ShellCommandError, error_code_text

REMOVAL_EVENTS: Final = (
    (EventType.DATA_WATCH_REMOVED, (WatchKind.DATA, WatchKind.EXIST)),
    (EventType.CHILD_WATCH_REMOVED, (WatchKind.CHILD,)),
    (EventType.PERSISTENT_WATCH_REMOVED, (WatchKind.PERSISTENT, WatchKind.RECURSIVE)),
)
"""Events to show when watches are removed, in this order, each with the kinds of watches that cause it."""


class ShellWatches:
    """The watches of one session.

    Args:
        client: The client of the session.
        show: Function that is called once for each event, with the path relative to the chroot.
    """

    def __init__(self, client: Client, show: Callable[[Event], None]) -> None:
        self._client = client
        self._show = show
        self._watchers: list[tuple[WatchKind, str, Watcher]] = []
        self._last: Event | None = None

    async def set(self, kind: WatchKind, path: str) -> Any:
        """Set a watch. For a watch that fires once, return the data that the request read.

        Raises:
            ZooKeeperError: The server rejected the request, or the connection was lost.
        """
        client = self._client
        watcher: Watcher[Any]
        if kind is WatchKind.DATA:
            watcher = client.watch_data(path)
        elif kind is WatchKind.EXIST:
            watcher = client.watch_exists(path)
        elif kind is WatchKind.CHILD:
            watcher = client.watch_children(path)
        else:
            watcher = client.watch(path, recursive=kind is WatchKind.RECURSIVE)
        watcher._deliver_to(self._receive)  # noqa: SLF001 - keeps the order of the events of all watches
        entry = kind, path, watcher
        self._watchers.append(entry)
        try:
            await watcher.__aenter__()
        except BaseException:
            self._watchers.remove(entry)
            raise
        return watcher.initial

    def _receive(self, event: Event) -> None:
        if event is self._last:  # already shown for a different watch
            return
        self._last = event
        path = self._client.strip_chroot(event.path)
        fired = FIRED_KINDS.get(event.type, ())
        self._watchers = [entry for entry in self._watchers if not (entry[0] in fired and entry[1] == path)]
        self._show(Event(event.type, path, event.zxid))

    async def remove(self, path: str, kinds: tuple[WatchKind, ...]) -> None:
        """Remove the watches of some kinds on a node, and show the events for these kinds.

        Raises:
            ShellCommandError: The node has no such watches.
        """
        chosen = [entry for entry in self._watchers if entry[1] == path and entry[0] in kinds]
        if not chosen:
            raise ShellCommandError(error_code_text(ErrorCode.NO_WATCHER, path))
        for entry in chosen:
            await entry[2].__aexit__(None, None, None)
            self._watchers = [other for other in self._watchers if other is not entry]  # missing if the watch has fired
        for event, of_event in REMOVAL_EVENTS:
            if any(kind in of_event for kind, _, _ in chosen):
                self._show(Event(event, path))
