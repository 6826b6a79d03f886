"""Watches: the paths that each connection watches, and the events that a change sends.

There are two stores. The *data* store contains watches of exists, getData and addWatch, and the *child* store contains
watches of getChildren and addWatch. In each store a connection has a set of modes for a path: STANDARD (fires once),
PERSISTENT, and in the data store RECURSIVE, which also reports changes of all nodes below. The modes are in
``ClientConnection.modes``. A store maps paths to the connections with any mode.

A change fires in steps. Each step sends at most one event to a connection:

- create N: NodeCreated to the watches of N in the data store, then NodeChildrenChanged to the watches of its parent in
  the child store.
- setData N: NodeDataChanged to the watches of N in the data store.
- delete N: NodeDeleted to the watches of N in the data store, then NodeDeleted to its watches in the child store
  (except to connections already notified), then NodeChildrenChanged to the watches of its parent in the child store.

Inside a transaction events are held back until the commit.

Source: WatchManager (with recursive modes), DataTree.createNode, DataTree.deleteNode, DataTree.setData.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ...protocol.codec import Int, combined_struct, put_str
from ...protocol.enums import EventType, KeeperState, Perm, WatcherType, Xid
from ...protocol.errors import BadArgumentsError, MarshallingError, ThrottledOpError
from ...protocol.records import ReplyHeader, WatcherEvent
from .acls import Acls
from .ancestors import AncestorIndex
from .client_connection import ClientConnection
from .metrics import Metrics
from .settings import EngineSettings
from .warnings import Warnings

STANDARD: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
ALL_MODES: Final = 7
NULL_PATH: Final = "\ud800"
"""The path under which watches with a null path are stored. Such watches are accepted, but never fire. No bytes decode
to this text, so it cannot be a real path.
"""
DATA: Final = 0
CHILD: Final = 1

_MAX_IMMEDIATE_COST: Final = 16
"""Maximum cost of removing the watches of a lost connection immediately. It is low, because many connections may be
lost together.
"""
_DROPPED_FOR_ROOM: Final = 200
"""Number of watches of lost connections that are removed to make room for a new watch. This takes 0.2 ms."""
_COST_OF_RECURSIVE: Final = 5
"""Additional cost of removing a recursive watch, in units of removing any other watch. Four levels of its path cost one
more unit.
"""
MAX_LEVELS: Final = 2_000
"""Maximum number of levels in the path of a recursive watch. Indexing the path takes a microsecond per level."""

_EVENT = combined_struct(Int, ReplyHeader, WatcherEvent).pack

_KINDS: Final = {
    DATA: ((STANDARD, "data"), (PERSISTENT, "persistent"), (RECURSIVE, "recursive")),
    CHILD: ((STANDARD, "child"), (PERSISTENT, "persistent"), (RECURSIVE, "recursive")),
}

STORES_AND_MODES: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    WatcherType.CHILDREN: ((CHILD, STANDARD),),
    WatcherType.DATA: ((DATA, STANDARD),),
    WatcherType.ANY: ((DATA, ALL_MODES), (CHILD, ALL_MODES)),
    WatcherType.PERSISTENT: ((DATA, PERSISTENT), (CHILD, PERSISTENT)),
    WatcherType.PERSISTENT_RECURSIVE: ((DATA, RECURSIVE),),
}
"""The stores and modes that each WatcherType of a checkWatches or removeWatches request stands for."""
STORES_AND_MODES_3_8: Final[dict[int, tuple[tuple[int, int], ...]]] = {
    WatcherType.CHILDREN: ((CHILD, ALL_MODES),),
    WatcherType.DATA: ((DATA, ALL_MODES),),
    WatcherType.ANY: ((DATA, ALL_MODES), (CHILD, ALL_MODES)),
}
"""The same table for ZooKeeper 3.8, which does not distinguish modes."""


def encode_event(path: str, event: int, zxid: int) -> bytes:
    """Return the frame of an event."""
    raw = put_str(path)
    return _EVENT(24 + len(raw), Xid.NOTIFICATION, zxid, 0, event, KeeperState.SYNC_CONNECTED) + raw


def weight(path: str) -> int:
    """Return the weight of a watch on *path*: 1, plus 1 for each 128 characters.

    Limits apply to sums of weights, and so they limit the memory of watches (about 500 bytes per unit of weight).
    """
    return 1 + len(path) // 128


def _removal_cost(path: str, mode: int) -> int:
    """Return the cost of removing a watch. The unit is the time to remove a watch that is not recursive."""
    return 1 + _COST_OF_RECURSIVE + path.count("/") // 4 if mode & RECURSIVE else 1


_EVENT_SUMMARIES: Final = {
    int(EventType.NODE_CREATED): "node_created_watch_count",
    int(EventType.NODE_DELETED): "node_deleted_watch_count",
    int(EventType.NODE_DATA_CHANGED): "node_changed_watch_count",
    int(EventType.NODE_CHILDREN_CHANGED): "node_children_watch_count",
}
"""The name of the summary that counts, for each event type, the connections that watch the changed path."""


def watch_kinds(store: int, modes: int) -> list[str]:
    """Return the names of the kinds of a client's watches on one path, such as ``data`` and ``persistent``.

    Args:
        store: The store that contains the modes. A persistent watch is in both stores.
        modes: The modes of the watches.
    """
    return [kind for mode, kind in _KINDS[store] if modes & mode]


class Watches:
    """The watches of all connections.

    A lost connection receives no further events. If it had many watches, :meth:`sweep` removes them in steps, so they
    do not delay the events of other connections.

    Args:
        acls: ACL lists, which decide which clients may read a node. Events are sent only to these clients.
        settings: Settings of the server. ``compat`` decides whether modes coexist and which zxid events carry, and
            ``max_watches`` and ``max_watches_per_connection`` are the limits.
        metrics: Counter of the rejected watches.
        warnings: Receiver of a warning when a watch is rejected.
        pending_output: Set of connections with unsent output. Each connection with a new event is added.

    Attributes:
        active: Number of watches, where all modes of one connection for one path in one store count as one watch. If it
            is 0, no watch can fire.
        event_filter: A function that is called with the client, path, event type and frame of each event before it is
            sent. If it returns True, the event is not sent. It is for :mod:`zoolet.testing`.
    """

    def __init__(
        self,
        acls: Acls,
        settings: EngineSettings,
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
        # For each connection, a table that contains only this connection. All paths that no other connection watches
        # share the table, which saves 200 bytes per path. So a table of one connection is never modified, only
        # replaced.
        self._single: dict[ClientConnection, dict[ClientConnection, None]] = {}
        # The recursive watches of each store, indexed by ancestors. An empty index avoids the search.
        self._recursive: tuple[
            AncestorIndex[dict[ClientConnection, None]], AncestorIndex[dict[ClientConnection, None]]
        ] = (
            AncestorIndex(),
            AncestorIndex(),
        )
        self.active = 0
        self._weight = 0  # sum of the weights of all watches in the stores
        self._lost_connections: list[ClientConnection] = []  # connections whose watches are still to be removed
        self._held: list[tuple[int, str, int, int, int]] | None = None
        self._pending_output = pending_output
        self.event_filter: Callable[[ClientConnection, str, int, bytes], bool] | None = None

    # --- setting and removing ---

    def add(self, client: ClientConnection, store: int, path: str, mode: int) -> None:
        """Set a watch, unless it is already set.

        Raises:
            ThrottledOpError: A limit of the connection, or of all connections together, would be exceeded.
            BadArgumentsError: The watch is recursive, and its path has more than :data:`MAX_LEVELS` levels.
        """
        modes = client.modes[store]
        before = modes.get(path, 0)
        if not before:
            self.admit(client, path, 1)
        after = before | mode if self._compat.watch_modes_coexist else mode
        if (before ^ after) & RECURSIVE:
            if path.count("/") > MAX_LEVELS:
                self._metrics.count_refusal("watches")
                reason = "refusing a recursive watch of %s: its path has more than %d levels"
                self._warnings.warn("levels", reason, client.address, MAX_LEVELS)
                raise BadArgumentsError(path[:80], f"a recursive watch has at most {MAX_LEVELS} levels")
            self._set_recursive(client, store, path, bool(after & RECURSIVE))
        modes[path] = after
        if not before:
            self.active += 1
            self._join(client, store, path)
            path_weight = weight(path)
            client.watch_weight += path_weight
            self._weight += path_weight
            if store == DATA:
                client.watched_data = True

    def _join(self, client: ClientConnection, store: int, path: str) -> None:
        paths = self._stores[store]
        watching = paths.get(path)
        if watching is None:
            single = self._single.get(client)
            if single is None:
                single = self._single[client] = {client: None}
            paths[path] = single
        elif len(watching) == 1:
            paths[path] = {**watching, client: None}
        else:
            watching[client] = None

    def admit(self, client: ClientConnection, path: str, count: int) -> None:
        """Check that *count* more watches on a path do not exceed the limits.

        Raises:
            ThrottledOpError: A limit would be exceeded.
        """
        settings = self._settings
        added = weight(path) * count
        if client.watch_weight + added > settings.max_watches_per_connection:
            limit, name, key = settings.max_watches_per_connection, "watches_per_connection", "maxWatchesPerConnection"
        elif self._weight + added > settings.max_watches and not self._make_room(added):
            limit, name, key = settings.max_watches, "watches", "maxWatches"
        else:
            return
        self._metrics.count_refusal(name)
        self._warnings.warn(name, "refusing a watch from %s: the limit is %d (zoolet.%s)", client.address, limit, key)
        raise ThrottledOpError(path, f"too many watches: the limit is {limit} (zoolet.{key})")

    def _make_room(self, added: int) -> bool:
        """Remove some watches of lost connections.

        Return whether *added* more units of weight are now within the limit.
        """
        if self._lost_connections:
            self.sweep(max(added, _DROPPED_FOR_ROOM))
        return self._weight + added <= self._settings.max_watches

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

    def stores_and_modes(self, kind: int) -> tuple[tuple[int, int], ...] | None:
        """Return the stores and modes of a WatcherType, or None if the imitated release has no such type."""
        return (STORES_AND_MODES if self._compat.watcher_types_4_and_5 else STORES_AND_MODES_3_8).get(kind)

    def has(self, client: ClientConnection, path: str, kind: int) -> bool:
        """Return whether *client* has a watch of the WatcherType *kind* on exactly this path.

        In ZooKeeper 3.8, a watch of any other connection also counts.

        Raises:
            MarshallingError: The path is relative, and the imitated release fails on it.
        """
        stores_and_modes = self.stores_and_modes(kind) or ()
        if self._compat.check_watches_sees_others:
            return self._any_connection_has(path, [store for store, _ in stores_and_modes])
        return any(client.modes[store].get(path, 0) & mode for store, mode in stores_and_modes)

    def _any_connection_has(self, path: str, stores: list[int]) -> bool:
        """Return whether any connection has a watch on *path* in one of the stores, as ZooKeeper 3.8 determines it.

        Raises:
            MarshallingError: The path is relative, and 3.8 searches its ancestors for recursive watches.

        Source: WatchManager.containsWatcher and PathParentIterator, 3.8.0.
        """
        if path == "":
            return False  # PathParentIterator has no elements for an empty path
        missing = [store for store in stores if all(client.closing for client in self._stores[store].get(path, ()))]
        relative = path[0] != "/"
        if relative and self._lost_connections:
            self.sweep()  # the recursive watches of lost connections do not count
        if relative and ("/" not in path or any(self._recursive[store] for store in missing)):
            raise MarshallingError(path, "cannot search the ancestors of a relative path for recursive watches")
        return len(missing) < len(stores)

    def remove(self, client: ClientConnection, path: str, kind: int) -> bool:
        """Remove the client's watches of the WatcherType *kind* on *path*. Return whether there were any."""
        removed = False
        for store, mode in self.stores_and_modes(kind) or ():
            if client.modes[store].get(path, 0) & mode:
                self._drop(client, store, path, mode)
                removed = True
        if self._compat.removal_ends_watching and not client.modes[DATA]:
            client.watched_data = False
        return removed

    def forget(self, client: ClientConnection) -> None:
        """Remove all watches of a lost connection. If it has many, they are left for :meth:`sweep`.

        The caller must set ``client.closing`` first, which keeps the remaining watches from firing.
        """
        self._single.pop(client, None)
        if not any(client.modes):
            return
        count = sum(map(len, client.modes))
        self.active -= count
        self._lost_connections.append(client)
        if count > _MAX_IMMEDIATE_COST:
            return
        if sum(_removal_cost(*each) for modes in client.modes for each in modes.items()) <= _MAX_IMMEDIATE_COST:
            self._sweep(client, _MAX_IMMEDIATE_COST)
            self._lost_connections.pop()

    @property
    def unswept(self) -> bool:
        """Whether watches of lost connections are left for :meth:`sweep` to remove."""
        return bool(self._lost_connections)

    def sweep(self, limit: int = 2_000) -> None:
        """Remove about *limit* watches of lost connections, or fewer if some are recursive. 2,000 watches take 2 ms."""
        while self._lost_connections and limit > 0:
            limit -= self._sweep(self._lost_connections[-1], limit)
            if not any(self._lost_connections[-1].modes):
                self._lost_connections.pop()

    def _sweep(self, client: ClientConnection, limit: int) -> int:
        """Remove watches of a lost connection until the removals have cost *limit*. Return their cost.

        See :func:`_removal_cost`.
        """
        done = 0
        for store, modes in enumerate(client.modes):
            while modes and done < limit:
                path, mode = modes.popitem()
                if mode & RECURSIVE:
                    self._set_recursive(client, store, path, False)
                self._leave(client, store, path)
                done += _removal_cost(path, mode)
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
        path_weight = weight(path)
        client.watch_weight -= path_weight
        self._weight -= path_weight
        watching = self._stores[store][path]
        if len(watching) == 1:
            del self._stores[store][path]
        else:
            del watching[client]

    # --- firing ---

    def created(self, path: str, acl: int, parent: str, parent_acl: int, zxid: int) -> None:
        """Fire the watches for a new node. *acl* is its ACL key, and *parent_acl* is its parent's ACL key."""
        self._fire(DATA, path, EventType.NODE_CREATED, acl, zxid)
        self._fire(CHILD, parent, EventType.NODE_CHILDREN_CHANGED, parent_acl, zxid)

    def changed(self, path: str, acl: int, zxid: int) -> None:
        """Fire the watches for a change of a node's data."""
        self._fire(DATA, path, EventType.NODE_DATA_CHANGED, acl, zxid)

    def deleted(self, path: str, acl: int, parent: str, parent_acl: int, zxid: int) -> None:
        """Fire the watches for a deleted node. The arguments are the same as for :meth:`created`."""
        self._fire(DATA, path, EventType.NODE_DELETED, acl, zxid)
        self._fire(CHILD, parent, EventType.NODE_CHILDREN_CHANGED, parent_acl, zxid)

    def affected_paths(self, paths: list[str], parents: Collection[str]) -> set[str]:
        """Return the *paths* whose deletion may send events. Call :meth:`deleted` only for these.

        For many paths, this is faster than calling :meth:`deleted` for all of them.

        Args:
            paths: Paths of nodes that were deleted together.
            parents: The paths of all parents of these nodes.
        """
        data, child = self._stores
        unique = set(paths)
        found = unique & data.keys() | unique & child.keys()  # an intersection takes as long as its smaller set
        recursive = [index for index in self._recursive if index]
        always, once = set[str](), set[str]()  # the first delete below a parent removes its standard watches
        for parent in parents:
            folder = parent or "/"
            if recursive and any(True for index in recursive for _ in index.search_ancestors(folder)):
                always.add(parent)
            elif folder in child:
                is_standard = all(client.modes[CHILD][folder] == STANDARD for client in child[folder])
                (once if is_standard else always).add(parent)
        for path in paths:
            if not always and not once:
                break
            parent = path[: path.rindex("/")]
            if parent in always or parent in once:
                found.add(path)
                once.discard(parent)
        return found

    def _fire(self, store: int, path: str, event: int, acl: int, zxid: int) -> None:
        if self._held is not None:
            self._held.append((store, path, event, acl, zxid))
            return
        notified = self._step(store, path, event, acl, zxid, ())
        if event == EventType.NODE_DELETED:
            self._step(CHILD, path, event, acl, zxid, notified)

    def _step(
        self, store: int, path: str, event: int, acl: int, zxid: int, notified: dict[ClientConnection, None] | tuple[()]
    ) -> dict[ClientConnection, None] | tuple[()]:
        """Notify the connections that watch *path* in one store, except for those in *notified*.

        Return all connections that watch *path* in this store, including those in *notified*.
        """
        for_all = not (acl or notified or self._recursive[store] or self.event_filter)
        watching = self._stores[store].get(path) if for_all else self._watching(store, path, event)
        if not watching:
            return ()
        frame = encode_event(path, event, zxid if self._compat.event_zxid else -1)
        self._metrics.summaries[_EVENT_SUMMARIES[event]].observe(len(watching))
        if for_all:
            self._notify_all(store, path, frame, watching)
            return watching
        for client in watching:
            if client.closing:
                continue
            if client.modes[store].get(path, 0) & STANDARD:
                self._drop(client, store, path, STANDARD)
            if client not in notified and (not acl or self._acls.allows(acl, client, Perm.READ)):
                if self.event_filter is not None and self.event_filter(client, path, event, frame):
                    continue
                client.outbox.append(frame)
                self._pending_output[client] = None
        return watching

    def _notify_all(self, store: int, path: str, frame: bytes, watching: dict[ClientConnection, None]) -> None:
        """Notify all connections that watch exactly *path*, and remove their standard watches.

        For a thousand connections, this takes half the time of notifying each connection separately.
        """
        path_weight, pending = weight(path), self._pending_output
        staying: dict[ClientConnection, None] = {}
        for client in watching:
            if client.closing:
                staying[client] = None  # left for sweep()
                continue
            modes = client.modes[store]
            if modes[path] == STANDARD:
                del modes[path]
                client.watch_weight -= path_weight
            else:
                modes[path] &= ~STANDARD
                staying[client] = None
            client.outbox.append(frame)
            pending[client] = None
        fired = len(watching) - len(staying)
        self.active -= fired
        self._weight -= fired * path_weight
        if staying:
            self._stores[store][path] = staying
        else:
            del self._stores[store][path]

    def _watching(self, store: int, path: str, event: int) -> dict[ClientConnection, None]:
        """Return the connections that watch *path*, as a copy, because standard watches are removed during iteration.

        A recursive watch matches all paths below its own, but never NodeChildrenChanged. It is in the data store. In
        releases without coexisting modes, the child store also contains it, and it may remain there
        after a later watch has replaced it in the data store.
        """
        exact = self._stores[store].get(path) or {}
        if not self._recursive[store]:
            return dict(exact)
        if event == EventType.NODE_CHILDREN_CHANGED:
            return {client: None for client in exact if client.modes[store][path] & ~RECURSIVE}
        watching = dict(exact)
        for above, clients in self._recursive[store].search_ancestors(path):
            if above != path:
                watching.update(clients)
        return watching

    def notify(self, client: ClientConnection, path: str, event: int) -> None:
        """Send an event that a client missed while it was disconnected, without a permission check and with zxid -1.

        Source: DataTree.setWatches.
        """
        client.outbox.append(encode_event(path, event, -1))

    def begin(self) -> None:
        """Hold back all events until :meth:`commit` sends them or :meth:`roll_back` discards them."""
        self._held = []

    def commit(self) -> None:
        """Send the events that were held back."""
        held, self._held = self._held or [], None
        for store, path, event, acl, zxid in held:
            self._fire(store, path, event, acl, zxid)

    def roll_back(self) -> None:
        """Discard the events that were held back."""
        self._held = None

    def count_events(self, path: str) -> int:
        """Return an upper bound on the number of events that a change of a node causes."""
        data, child = self._stores
        count = len(data.get(path, ())) + len(child.get(path, ())) + len(child.get(path[: path.rfind("/")] or "/", ()))
        for index in self._recursive:
            if index:
                count += sum(len(clients) for _, clients in index.search_ancestors(path))
        return count

    # --- queries for reports ---

    def totals(self, store: int) -> tuple[int, int]:
        """Return the number of paths that open connections watch, and the number of their watches."""
        counts = [sum(not client.closing for client in waiting) for waiting in self._stores[store].values()]
        return sum(count > 0 for count in counts), sum(counts)

    def watching(self, store: int, path: str) -> list[ClientConnection]:
        """Return the open connections that watch exactly this path."""
        return [client for client in self._stores[store].get(path, ()) if not client.closing]

    def by_path(self, store: int) -> dict[str, list[ClientConnection]]:
        """Return the open connections that watch each path, by path."""
        return {
            path: clients
            for path, waiting in self._stores[store].items()
            if (clients := [client for client in waiting if not client.closing])
        }
