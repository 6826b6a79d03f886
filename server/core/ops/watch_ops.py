"""Setting, checking and removing watches by themselves.

Source: FinalRequestProcessor, cases setWatches to removeWatches; DataTree.setWatches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zoolet.protocol import records as r
from zoolet.protocol.codec import pack_int
from zoolet.protocol.enums import AddWatchMode, EventType
from zoolet.protocol.errors import MarshallingError, NoWatcherError, ThrottledOpError
from zoolet.protocol.operations import OpCode
from zoolet.server.core.client_connection import ClientConnection
from zoolet.server.core.node import Node
from zoolet.server.core.ops.dispatch import reads
from zoolet.server.core.state import ServerState
from zoolet.server.core.watches import CHILD, DATA, NULL_PATH, PERSISTENT, RECURSIVE, STANDARD


@reads(OpCode.ADD_WATCH)
def add_watch(state: ServerState, client: ClientConnection, request: r.AddWatchRequest) -> bytes:
    """Set a watch that stays; the path need not exist, nor be one."""
    if request.mode == AddWatchMode.PERSISTENT:
        stores: tuple[int, ...] = (DATA, CHILD)
        mode = PERSISTENT
    elif request.mode == AddWatchMode.PERSISTENT_RECURSIVE:
        stores = (DATA,) if state.settings.compat.watch_modes_coexist else (DATA, CHILD)
        mode = RECURSIVE
    else:
        raise MarshallingError(request.path, f"unknown watch mode {request.mode}")
    path = _of(request.path)
    state.watches.admit(client, path, sum(path not in client.modes[store] for store in stores))
    for store in stores:
        state.watches.add(client, store, path, mode)
    return pack_int(0)


def _of(path: str | None) -> str:
    return NULL_PATH if path is None else path


@reads(OpCode.CHECK_WATCHES)
def check_watches(state: ServerState, client: ClientConnection, request: r.CheckWatchesRequest) -> bytes:
    """Return whether the connection has such a watch on exactly this path."""
    if state.watches.wanted(request.type) is None:
        raise MarshallingError(request.path, f"unknown watcher type {request.type}")
    if request.path is None and state.settings.compat.null_watch_path_unchecked:
        raise MarshallingError(None, "a path must not be null")
    if not state.watches.has(client, _of(request.path), request.type):
        raise NoWatcherError(request.path)
    return b""


@reads(OpCode.REMOVE_WATCHES)
def remove_watches(state: ServerState, client: ClientConnection, request: r.RemoveWatchesRequest) -> bytes:
    """Remove such watches of the connection on exactly this path; no event is sent."""
    if state.watches.wanted(request.type) is None:
        raise MarshallingError(request.path, f"unknown watcher type {request.type}")
    if not state.watches.remove(client, _of(request.path), request.type):
        raise NoWatcherError(request.path)
    return b""


@reads(OpCode.SET_WATCHES, OpCode.SET_WATCHES2, costly=True)
def set_watches(state: ServerState, client: ClientConnection, request: r.SetWatches | r.SetWatches2) -> bytes:
    """Set the watches of an earlier connection again; tell at once what happened since ``relativeZxid``.

    A null list, or a null in one, makes the request fail, but what stands before it has been dealt with by then; among
    the watches that stay a null is a watch that never fires. All as in ZooKeeper.

    Clients do not look at the reply, so where there is no room for a watch the connection is closed: they notice that.
    """
    try:
        _set_again(state, client, request)
    except ThrottledOpError:
        state.close_connection(client)
        raise
    return b""


def _set_again(state: ServerState, client: ClientConnection, request: r.SetWatches | r.SetWatches2) -> None:
    lists = [getattr(request, name) for name in request.__match_args__[1:]]
    if sum(map(len, filter(None, lists))) > state.settings.max_set_watches:
        limit = state.settings.max_set_watches
        state.metrics.refuse("set_watches")
        state.warnings.warn(
            "set_watches",
            "closing %s:%d: more than %d watches in one setWatches (zoolet.maxSetWatches)",
            client.host,
            client.port,
            limit,
        )
        raise ThrottledOpError(None, f"more than {limit} watches in one request")
    since = request.relativeZxid
    for path in _given(request.dataWatches):
        _again(state, client, DATA, path, lambda node: node.mzxid > since, EventType.NODE_DATA_CHANGED)
    for path in _given(request.existWatches):
        if state.tree.get(path) is None:
            state.watches.add(client, DATA, path, STANDARD)
        else:
            state.watches.tell(client, path, EventType.NODE_CREATED)
    for path in _given(request.childWatches):
        _again(state, client, CHILD, path, lambda node: node.pzxid > since, EventType.NODE_CHILDREN_CHANGED)
    if isinstance(request, r.SetWatches2):
        for path in _staying(request.persistentWatches):
            state.watches.add(client, CHILD, path, PERSISTENT)
            state.watches.add(client, DATA, path, PERSISTENT)
        for path in _staying(request.persistentRecursiveWatches):
            state.watches.add(client, DATA, path, RECURSIVE)
            if not state.settings.compat.watch_modes_coexist:
                state.watches.add(client, CHILD, path, RECURSIVE)


def _given(paths: list[str | None] | None) -> Iterator[str]:
    if paths is None:
        raise MarshallingError(None, "a list of watches is null")
    for path in paths:
        if path is None:
            raise MarshallingError(None, "a path must not be null")
        yield path


def _staying(paths: list[str | None] | None) -> Iterator[str]:
    if paths is None:
        raise MarshallingError(None, "a list of watches is null")
    return map(_of, paths)


def _again(
    state: ServerState,
    client: ClientConnection,
    store: int,
    path: str,
    missed: Callable[[Node], bool],
    event: EventType,
) -> None:
    node = state.tree.get(path)
    if node is None:
        state.watches.tell(client, path, EventType.NODE_DELETED)
    elif missed(node):
        state.watches.tell(client, path, event)
    else:
        state.watches.add(client, store, path, STANDARD)
