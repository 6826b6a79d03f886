"""Watches: who waits for what, and what they are told.

There are two stores. The *data* store holds the watches that exists, getData and addWatch set, the *child* store those
of getChildren and addWatch. In each store a connection has a set of modes for a path: STANDARD (fires once),
PERSISTENT, and in the data store RECURSIVE, which also hears of everything below. The modes live in
``ClientConnection.modes``; the stores only know who has any.

A change fires its steps in order, and in each step a connection hears at most once:

- create N: NodeCreated to the data store's N; NodeChildrenChanged to the child store's parent.
- setData N: NodeDataChanged to the data store's N.
- delete N: NodeDeleted to the data store's N; NodeDeleted to the child store's N, but to nobody told before;
  NodeChildrenChanged to the child store's parent.

Source: WatchManager, WatchManagerWithRecursive modes; DataTree.createNode, deleteNode, setData.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from zoolet.protocol.codec import Int, put_str, struct_of
from zoolet.protocol.enums import EventType, KeeperState, Perm, WatcherType, Xid
from zoolet.protocol.errors import MarshallingError, ThrottledOpError
from zoolet.protocol.records import ReplyHeader, WatcherEvent
from zoolet.server.core.acls import Acls
from zoolet.server.core.ancestors import AncestorIndex
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.metrics import Metrics
from zoolet.server.core.settings import Settings
from zoolet.server.core.warnings import Warnings

STANDARD: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
ALL_MODES: Final = 7
NULL_PATH: Final = "\ud800"
"""Stands for null as the path of a watch, which is accepted and never fires; no bytes decode to it."""
DATA: Final = 0
CHILD: Final = 1

_DROPPED_AT_ONCE: Final = 1_000
"""Watches of a connection that is gone, up to which they are removed at once: under a millisecond."""

_EVENT = struct_of(Int, ReplyHeader, WatcherEvent).pack

WANTED: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    WatcherType.CHILDREN: ((CHILD, STANDARD),),
    WatcherType.DATA: ((DATA, STANDARD),),
    WatcherType.ANY: ((DATA, ALL_MODES), (CHILD, ALL_MODES)),
    WatcherType.PERSISTENT: ((DATA, PERSISTENT), (CHILD, PERSISTENT)),
    WatcherType.PERSISTENT_RECURSIVE: ((DATA, RECURSIVE),),
}
"""What each WatcherType of a checkWatches or removeWatches request means: stores and modes."""
WANTED_3_8: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    WatcherType.CHILDREN: ((CHILD, ALL_MODES),),
    WatcherType.DATA: ((DATA, ALL_MODES),),
    WatcherType.ANY: ((DATA, ALL_MODES), (CHILD, ALL_MODES)),
}


def encode_event(path: str, event: int, zxid: int) -> bytes:
    """Write a notification, frame and all."""
    raw = put_str(path)
    return _EVENT(24 + len(raw), Xid.NOTIFICATION, zxid, 0, event, KeeperState.SYNC_CONNECTED) + raw


def weight(path: str) -> int:
    """Return how many watches a watch on *path* counts as: one for each 128 characters, so that a limit on watches is
    one on memory too (about 500 bytes each).
    """
    return 1 + len(path) // 128


class Watches:
    """The watches of all connections.

    A connection that is gone does not delay events: it is skipped at once, and where it had many watches they are
    removed in steps, by :meth:`sweep`.

    Args:
        acls: Events are sent only to clients that may read the node.
        settings: ``compat`` decides whether modes coexist and which zxid events carry; ``max_watches`` and
            ``max_watches_per_connection`` are the limits.
        metrics: Counts what is refused.
        warnings: Receives a line about it.
        pending_output: Receives each connection that an event is sent to.

    Attributes:
        active: How many watches there are: one for each connection, store and path. With none, nothing need be fired.
        event_filter: Called with each event before it is sent: the client, the path, the event type and the frame; an
            event for which it returns True is not sent. # for zoolet.testing
    """

    def __init__(
        self,
        acls: Acls,
        settings: Settings,
        metrics: Metrics,
        warnings: Warnings,
        pending_output: dict[ClientConnection, None],
    ) -> None:
        self._acls = acls
        self._settings = settings
        self._compat = settings.compat
        self._metrics = metrics
        self._warnings = warnings
        self._stores: tuple[dict[str, dict[ClientConnection, None]], dict[str, dict[ClientConnection, None]]] = ({}, {})
        # The recursive watches of each store once more, to find those above a path; empty spares the search.
        self._recursive: tuple[
            AncestorIndex[dict[ClientConnection, None]], AncestorIndex[dict[ClientConnection, None]]
        ] = (
            AncestorIndex(),
            AncestorIndex(),
        )
        self.active = 0
        self._weight = 0  # of all watches in the stores
        self._gone: list[ClientConnection] = []  # connections whose watches are still to be removed
        self._held: list[tuple[int, str, int, int, int]] | None = None
        self._pending_output = pending_output
        self.event_filter: Callable[[ClientConnection, str, int, bytes], bool] | None = None

    # --- setting and removing ---

    def add(self, client: ClientConnection, store: int, path: str, mode: int) -> None:
        """Set a watch; one that is set already is not set twice.

        Raises:
            ThrottledOpError: The connection, or all together, have as many as they may.
        """
        modes = client.modes[store]
        before = modes.get(path, 0)
        if not before:
            self.admit(client, path, 1)
        after = before | mode if self._compat.watch_modes_coexist else mode
        if (before ^ after) & RECURSIVE:
            self._set_recursive(client, store, path, bool(after & RECURSIVE))
        modes[path] = after
        if not before:
            self.active += 1
            self._stores[store].setdefault(path, {})[client] = None
            more = weight(path)
            client.watch_weight += more
            self._weight += more
            if store == DATA:
                client.watched_data = True

    def admit(self, client: ClientConnection, path: str, count: int) -> None:
        """Make sure that there is room for so many more watches on a path.

        Raises:
            ThrottledOpError: There is not.
        """
        settings = self._settings
        more = weight(path) * count
        if client.watch_weight + more > settings.max_watches_per_connection:
            limit, name, key = settings.max_watches_per_connection, "watches_per_connection", "maxWatchesPerConnection"
        elif self._weight + more > settings.max_watches:
            limit, name, key = settings.max_watches, "watches", "maxWatches"
        else:
            return
        self._metrics.refuse(name)
        self._warnings.warn(
            name, "refusing a watch of %s:%d: %d is the limit (zoolet.%s)", client.host, client.port, limit, key
        )
        raise ThrottledOpError(path, f"no room for another watch: {limit} is the limit (zoolet.{key})")

    def _set_recursive(self, client: ClientConnection, store: int, path: str, on: bool) -> None:
        index = self._recursive[store]
        clients = index.get(path)
        if on:
            if clients is None:
                index.put(path, clients := {})
            clients[client] = None
        elif clients is not None:
            del clients[client]
            if not clients:
                index.remove(path)

    def wanted(self, kind: int) -> tuple[tuple[int, int], ...] | None:
        """Return the stores and modes that a WatcherType means; None if there is no such type."""
        return (WANTED if self._compat.watcher_types_4_and_5 else WANTED_3_8).get(kind)

    def has(self, client: ClientConnection, path: str, kind: int) -> bool:
        """Return whether *caller* has a watch of that WatcherType on exactly this path.

        Raises:
            MarshallingError: The path is relative and the release that is imitated stumbles over it.
        """
        wanted = self.wanted(kind) or ()
        if self._compat.check_watches_sees_others:
            return self._anybody_has(path, [store for store, _ in wanted])
        return any(client.modes[store].get(path, 0) & mode for store, mode in wanted)

    def _anybody_has(self, path: str, stores: list[int]) -> bool:
        """Return what 3.8 says of a watch: it looks at all connections, and stumbles over relative paths.

        Source: WatchManager.containsWatcher and PathParentIterator, 3.8.0.
        """
        if path == "":
            return False  # the iterator has nothing to look at
        missing = [store for store in stores if all(one.closing for one in self._stores[store].get(path, ()))]
        relative = path[0] != "/"
        if relative and ("/" not in path or any(self._recursive[store] for store in missing)):
            raise MarshallingError(path, "a relative path has no parent to look for recursive watches at")
        return len(missing) < len(stores)

    def remove(self, client: ClientConnection, path: str, kind: int) -> bool:
        """Remove the watches of that WatcherType; say whether there was one."""
        removed = False
        for store, mode in self.wanted(kind) or ():
            if client.modes[store].get(path, 0) & mode:
                self._drop(client, store, path, mode)
                removed = True
        if self._compat.removal_ends_watching and not client.modes[DATA]:
            client.watched_data = False
        return removed

    def forget(self, client: ClientConnection) -> None:
        """Remove all watches of a connection that is gone; its ``closing`` is set."""
        count = sum(map(len, client.modes))
        self.active -= count
        self._gone.append(client)
        if count <= _DROPPED_AT_ONCE:
            self._sweep(client, count)
            self._gone.pop()

    @property
    def unswept(self) -> bool:
        """Whether there is something for :meth:`sweep` to do."""
        return bool(self._gone)

    def sweep(self, limit: int = 2_000) -> None:
        """Remove up to *limit* watches of connections that are gone; 2,000 take two milliseconds."""
        while self._gone and limit > 0:
            limit -= self._sweep(self._gone[-1], limit)
            if not any(self._gone[-1].modes):
                self._gone.pop()

    def _sweep(self, client: ClientConnection, limit: int) -> int:
        """Remove up to *limit* watches of a connection that is gone; return how many."""
        done = 0
        for store, modes in enumerate(client.modes):
            while modes and done < limit:
                path, mode = modes.popitem()
                if mode & RECURSIVE:
                    self._set_recursive(client, store, path, False)
                self._leave(client, store, path)
                done += 1
        return done

    def _drop(self, client: ClientConnection, store: int, path: str, mode: int) -> None:
        modes = client.modes[store]
        before = modes[path]
        after = before & ~mode
        if (before ^ after) & RECURSIVE:
            self._set_recursive(client, store, path, False)
        if after:
            modes[path] = after
            return
        del modes[path]
        self.active -= 1
        self._leave(client, store, path)

    def _leave(self, client: ClientConnection, store: int, path: str) -> None:
        less = weight(path)
        client.watch_weight -= less
        self._weight -= less
        waiting = self._stores[store][path]
        del waiting[client]
        if not waiting:
            del self._stores[store][path]

    # --- firing ---

    def created(self, path: str, acl: int, parent: str, parent_acl: int, zxid: int) -> None:
        """A node was made: *acl* is its ACL key, *parent_acl* that of the node it hangs in."""
        self._fire(DATA, path, EventType.NODE_CREATED, acl, zxid)
        self._fire(CHILD, parent, EventType.NODE_CHILDREN_CHANGED, parent_acl, zxid)

    def changed(self, path: str, acl: int, zxid: int) -> None:
        """A node's data was replaced."""
        self._fire(DATA, path, EventType.NODE_DATA_CHANGED, acl, zxid)

    def deleted(self, path: str, acl: int, parent: str, parent_acl: int, zxid: int) -> None:
        """A node is gone."""
        self._fire(DATA, path, EventType.NODE_DELETED, acl, zxid)
        self._fire(CHILD, parent, EventType.NODE_CHILDREN_CHANGED, parent_acl, zxid)

    def _fire(self, store: int, path: str, event: int, acl: int, zxid: int) -> None:
        if self._held is not None:
            self._held.append((store, path, event, acl, zxid))
            return
        told = self._step(store, path, event, acl, zxid, ())
        if event == EventType.NODE_DELETED:
            self._step(CHILD, path, event, acl, zxid, told)

    def _step(
        self, store: int, path: str, event: int, acl: int, zxid: int, told: dict[ClientConnection, None] | tuple[()]
    ) -> dict[ClientConnection, None] | tuple[()]:
        """Tell everybody in one store who waits for *path*, but those in *told*; return whom."""
        waiting = self._waiting(store, path, event)
        if not waiting:
            return ()
        frame = encode_event(path, event, zxid if self._compat.event_zxid else -1)
        for client in waiting:
            if client.closing:
                continue
            if client.modes[store].get(path, 0) & STANDARD:
                self._drop(client, store, path, STANDARD)
            if client not in told and (not acl or self._acls.allows(acl, client, Perm.READ)):
                if self.event_filter is not None and self.event_filter(client, path, event, frame):
                    continue
                client.outbox.append(frame)
                self._pending_output[client] = None
        return waiting

    def _waiting(self, store: int, path: str, event: int) -> dict[ClientConnection, None]:
        """Who is to hear of *path*: a copy, for the watches that fire once are removed on the way.

        Recursive watches hear of everything below them, and never that a node's children changed. They are in the data
        store; in releases where modes do not coexist also in the child store, where one may be left when a later watch
        has taken its place in the other.
        """
        exact = self._stores[store].get(path) or {}
        if not self._recursive[store]:
            return dict(exact)
        if event == EventType.NODE_CHILDREN_CHANGED:
            return {client: None for client in exact if client.modes[store][path] & ~RECURSIVE}
        waiting = dict(exact)
        for above, clients in self._recursive[store].along(path):
            if above != path:
                waiting.update(clients)
        return waiting

    def tell(self, client: ClientConnection, path: str, event: int) -> None:
        """Tell one connection what it missed while it was away; no permission is asked for, no zxid told.

        Source: DataTree.setWatches.
        """
        client.outbox.append(encode_event(path, event, -1))

    def begin(self) -> None:
        """Keep back all events from now on."""
        self._held = []

    def commit(self) -> None:
        """Send what was kept back."""
        held, self._held = self._held or [], None
        for store, path, event, acl, zxid in held:
            self._fire(store, path, event, acl, zxid)

    def roll_back(self) -> None:
        """Drop what was kept back."""
        self._held = None

    # --- looking ---

    def by_path(self, store: int) -> dict[str, list[ClientConnection]]:
        """Return the connections that watch each path, for reports."""
        return {
            path: clients
            for path, waiting in self._stores[store].items()
            if (clients := [client for client in waiting if not client.closing])
        }
