"""The operations that affect only watches: addWatch, checkWatches, removeWatches and setWatches.

Source: FinalRequestProcessor (cases setWatches to removeWatches), DataTree.setWatches.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import repeat
from typing import Final

from ....protocol import records as r
from ....protocol.codec import Long, bytes_or_null_at, combined_struct, count_at, pack_int, str_or_null_at
from ....protocol.enums import AddWatchMode, EventType
from ....protocol.errors import BadArgumentsError, MarshallingError, NoWatcherError, ThrottledOpError
from ....protocol.operations import OpCode
from ..client_connection import ClientConnection
from ..node import Node
from ..state import ServerState
from ..watches import CHILD, DATA, NULL_PATH, PERSISTENT, RECURSIVE, STANDARD
from .dispatch import Decode, UnfinishedError, reads

WATCHES_PER_STEP: Final = 256
"""Number of paths of a setWatches that are checked or watched between two reads of the clock. This takes less than a
millisecond.
"""
UndecodedSetWatches = tuple[int, bytes, int, int]
"""A setWatches request whose paths are decoded later: the number of its lists, the received bytes, and the positions of
its start and its end.
"""
_ZXID: Final = combined_struct(Long)


@reads(OpCode.ADD_WATCH, costly=True)
def add_watch(state: ServerState, client: ClientConnection, request: r.AddWatchRequest) -> bytes:
    """Set a persistent or recursive watch. The node need not exist, and the path need not be valid.

    Raises:
        MarshallingError: The mode is unknown.
        ThrottledOpError: A limit on watches would be exceeded.
        BadArgumentsError: The path of a recursive watch has more than ``MAX_LEVELS`` levels.
    """
    if request.mode == AddWatchMode.PERSISTENT:
        stores: tuple[int, ...] = (DATA, CHILD)
        mode = PERSISTENT
    elif request.mode == AddWatchMode.PERSISTENT_RECURSIVE:
        stores = (DATA,) if state.settings.compat.watch_modes_coexist else (DATA, CHILD)
        mode = RECURSIVE
    else:
        raise MarshallingError(request.path, f"unknown watch mode {request.mode}")
    path = _path_or_null(request.path)
    state.watches.admit(client, path, sum(path not in client.modes[store] for store in stores))
    for store in stores:
        state.watches.add(client, store, path, mode)
    return pack_int(0)


def _path_or_null(path: str | None) -> str:
    return NULL_PATH if path is None else path


@reads(OpCode.CHECK_WATCHES)
def check_watches(state: ServerState, client: ClientConnection, request: r.CheckWatchesRequest) -> bytes:
    """Check that the connection has a watch of the requested type on exactly the requested path.

    Raises:
        NoWatcherError: The connection has no such watch.
        MarshallingError: The type is unknown, or the path is null and the imitated release rejects that.
    """
    if state.watches.stores_and_modes(request.type) is None:
        raise MarshallingError(request.path, f"unknown watcher type {request.type}")
    if request.path is None and state.settings.compat.null_watch_path_is_malformed:
        raise MarshallingError(None, "a path must not be null")
    if not state.watches.has(client, _path_or_null(request.path), request.type):
        raise NoWatcherError(request.path)
    return b""


@reads(OpCode.REMOVE_WATCHES)
def remove_watches(state: ServerState, client: ClientConnection, request: r.RemoveWatchesRequest) -> bytes:
    """Remove the connection's watches of the requested type on exactly the requested path. No event is sent.

    Raises:
        NoWatcherError: The connection has no such watch.
        MarshallingError: The type is unknown.
    """
    if state.watches.stores_and_modes(request.type) is None:
        raise MarshallingError(request.path, f"unknown watcher type {request.type}")
    if not state.watches.remove(client, _path_or_null(request.path), request.type):
        raise NoWatcherError(request.path)
    return b""


def _keep_undecoded(lists: int) -> Decode:
    return lambda buf, offset, end: (lists, buf, offset, end)


@reads(OpCode.SET_WATCHES, decode=_keep_undecoded(3), costly=True)
@reads(OpCode.SET_WATCHES2, decode=_keep_undecoded(5), costly=True)
def set_watches(state: ServerState, client: ClientConnection, request: UndecodedSetWatches) -> bytes:
    """Restore the watches of an earlier connection.

    Watches that missed a change since ``relativeZxid`` fire immediately.

    As in ZooKeeper, a null list or a null path makes the request fail, but only after all earlier paths were processed.
    A null path in the lists of persistent watches does not fail: it becomes a watch that never fires.

    Clients ignore the error in the reply, so the connection is closed if a limit is exceeded.

    Raises:
        MarshallingError: The request is malformed, or contains a null as described above.
        ThrottledOpError: The request has more than ``max_set_watches`` watches, or would exceed a limit on watches.
        BadArgumentsError: The path of a recursive watch has more than ``MAX_LEVELS`` levels.
        UnfinishedError: The request takes more than one step: it has at least half of :data:`WATCHES_PER_STEP` paths,
            or any paths while watches of lost connections are being removed. The client misses no change between two
            steps, because a change fires the watches that are already set, and later steps notice it.
    """
    steps = _merge_steps(state, _close_on_error(state, client, _rewatch_all(state, client, request)))
    for _ in steps:
        raise UnfinishedError(steps)
    return b""


def _merge_steps(state: ServerState, steps: Iterator[None]) -> Iterator[None]:
    for done, _ in enumerate(steps, 1):
        # To make room for each new watch, watches of lost connections may be removed, which takes 0.2 ms.
        if not done % WATCHES_PER_STEP or state.watches.unswept:
            yield


def _close_on_error(state: ServerState, client: ClientConnection, steps: Iterator[None]) -> Iterator[None]:
    try:
        yield from steps
    except (BadArgumentsError, ThrottledOpError):
        state.close_connection(client)
        raise


def _rewatch_all(state: ServerState, client: ClientConnection, request: UndecodedSetWatches) -> Iterator[None]:
    """Set the watches of a request, and yield after each path that was checked or watched.

    The paths are decoded one at a time. Lists of all paths could be long, and each garbage collection would traverse
    the lists of all connections.
    """
    lists = yield from _check_lists(request)
    if sum(count for _, count in lists if count > 0) > state.settings.max_set_watches:
        limit = state.settings.max_set_watches
        state.metrics.count_refusal("set_watches")
        state.warnings.warn(
            "set_watches",
            "closing %s: more than %d watches in one setWatches (zoolet.maxSetWatches)",
            client.address,
            limit,
        )
        raise ThrottledOpError(None, f"more than {limit} watches in one request")
    _, buf, offset, end = request
    (since,) = _ZXID.unpack_from(buf, offset)
    data, exist, child, *persistent = (_decode_paths(buf, start, end, count) for start, count in lists)
    for path in _reject_null_paths(data):
        _rewatch(state, client, DATA, path, lambda node: node.mzxid > since, EventType.NODE_DATA_CHANGED)
        yield
    for path in _reject_null_paths(exist):
        if state.tree.get(path) is None:
            state.watches.add(client, DATA, path, STANDARD)
        else:
            state.watches.notify(client, path, EventType.NODE_CREATED)
        yield
    for path in _reject_null_paths(child):
        _rewatch(state, client, CHILD, path, lambda node: node.pzxid > since, EventType.NODE_CHILDREN_CHANGED)
        yield
    if persistent:
        for path in map(_path_or_null, persistent[0]):
            state.watches.add(client, CHILD, path, PERSISTENT)
            state.watches.add(client, DATA, path, PERSISTENT)
            yield
        for path in map(_path_or_null, persistent[1]):
            state.watches.add(client, DATA, path, RECURSIVE)
            if not state.settings.compat.watch_modes_coexist:
                state.watches.add(client, CHILD, path, RECURSIVE)
            yield from repeat(None, 1 + path.count("/") // 4)  # indexing the path takes a microsecond per level


def _check_lists(request: UndecodedSetWatches) -> Generator[None, None, list[tuple[int, int]]]:
    """Check that a request is well-formed, and yield after each path.

    Return the position of the first path and the number of paths (-1 for null) of each list.

    Raises:
        MarshallingError: The request is truncated, or a length is invalid.
    """
    lists, buf, offset, end = request
    offset += _ZXID.size
    found = []
    for _ in range(lists):
        count = count_at(buf, offset, end)
        offset += 4
        found.append((offset, count))
        for _ in range(count):
            _, offset = bytes_or_null_at(buf, offset, end)
            yield
    return found


def _decode_paths(buf: bytes, offset: int, end: int, count: int) -> Iterator[str | None]:
    if count < 0:
        raise MarshallingError(None, "a list of watches is null")
    for _ in range(count):
        path, offset = str_or_null_at(buf, offset, end)
        yield path


def _reject_null_paths(paths: Iterator[str | None]) -> Iterator[str]:
    for path in paths:
        if path is None:
            raise MarshallingError(None, "a path must not be null")
        yield path


def _rewatch(
    state: ServerState,
    client: ClientConnection,
    store: int,
    path: str,
    has_changed: Callable[[Node], bool],
    event: EventType,
) -> None:
    node = state.tree.get(path)
    if node is None:
        state.watches.notify(client, path, EventType.NODE_DELETED)
    elif has_changed(node):
        state.watches.notify(client, path, event)
    else:
        state.watches.add(client, store, path, STANDARD)
