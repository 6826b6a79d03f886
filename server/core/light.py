"""The test for light requests: small requests that take less than about half a millisecond.

A busy server serves light requests as it reads them and queues the others, so it must know the cost of a request before
it is executed. Most of the cost depends on the state of the tree: a node may have a megabyte of data, a parent 100,000
children, or a path a thousand watching connections. The test itself takes 1 microsecond, or up to 20 with watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.codec import int_at
from ...protocol.operations import OPERATIONS, OpCode
from ...protocol.paths import QUOTA
from . import ops
from .client_connection import ClientConnection
from .node import Node
from .ops.dispatch import TABLE
from .state import ServerState

assert ops  # importing the package fills the table
MAX_REQUEST: Final = 1024
"""Maximum size of a light request in bytes."""
MAX_MULTI: Final = 256
"""Maximum size of a light multi in bytes. Each operation may replace or delete a node of a megabyte."""
MAX_REPLY: Final = 1 << 16
"""Maximum size of the data or the list of names in the reply to a light read."""
MAX_NAMES: Final = 16
"""Maximum number of names that a light read encodes. Longer lists are light only while they are cached."""
MAX_SEARCHED: Final = 1 << 18
"""Maximum number of bytes that a light read searches for deleted names."""
MAX_IDENTITIES: Final = 4
"""Maximum number of identities of a client that may set ACLs in a light request. An entry of scheme ``auth`` stands for
all of them.
"""
MAX_EVENTS: Final = 16
"""Maximum number of events that a light write causes."""
MAX_OWNED: Final = 16
"""Maximum number of ephemeral nodes that a light request deletes."""
MAX_LEVELS: Final = 64
"""Maximum number of levels of a path that are searched for recursive watches."""
_QUOTA: Final = QUOTA.encode()  # a create below it may count all nodes
_PATH: Final = 16  # offset of the path in nearly all requests, after its length
Check = Callable[[ServerState, ClientConnection, bytes], bool]


def is_light(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    """Return whether received bytes are one whole light request. The request may be malformed.

    Args:
        state: The state of the server.
        client: The connection that sent them, which has no incomplete request.
        data: The received bytes.
    """
    size = len(data)
    if not 12 <= size <= MAX_REQUEST or data[2] << 8 | data[3] != size - 4:
        return False
    check = _CHECKS.get(data[11])
    return check is None or check(state, client, data)


def _path(data: bytes) -> str:
    (size,) = int_at(data, _PATH - 4) if len(data) >= _PATH else (0,)
    return data[_PATH : _PATH + max(size, 0)].decode("utf-8", "replace")


def _is_exact(data: bytes) -> bool:
    """Return whether a read consists of a path and one byte. Further bytes would be ignored."""
    return len(data) > _PATH and data[_PATH - 2] << 8 | data[_PATH - 1] == len(data) - _PATH - 1


def _node(state: ServerState, data: bytes) -> Node | None:
    path = data[_PATH:-1].decode("utf-8", "replace")
    return state.tree.path_cache.get(path) or state.tree.get(path)


def _is_never_light(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return False


def _get(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if state.tree.largest <= MAX_REPLY:  # in most trees; finding the node takes longer than the rest
        return True
    if not _is_exact(data):
        return False
    node = _node(state, data)
    return node is None or not node.data or len(node.data) <= MAX_REPLY


def _list(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if not _is_exact(data):
        return False
    node = _node(state, data)
    if node is None or not node.children:
        return True
    children = node.children
    cached = children.encoding
    if cached is not None and len(children.removed) * len(cached) > MAX_SEARCHED:
        return False
    names = children if cached is None else children.added
    return len(names) <= MAX_NAMES and sum(map(len, names)) + len(cached or b"") <= MAX_REPLY


def _add_watch(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.watches.unswept  # it may have to remove watches of lost connections


def _write(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.watches.active or _causes_few_events(state, _path(data))


def _causes_few_events(state: ServerState, *paths: str) -> bool:
    """Return whether changes of these nodes, and of their parents, cause few events."""
    if any(len(path) > MAX_REQUEST or path.count("/") > MAX_LEVELS for path in paths):
        return False
    return sum(map(state.watches.count_events, paths)) <= MAX_EVENTS


def _release(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.acls.large and _write(state, client, data)


def _create(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if data.startswith(_QUOTA, _PATH) or len(client.ids) > MAX_IDENTITIES:
        return False
    if not state.watches.active:
        return True
    path = _path(data)
    parent = state.tree.get(path[: path.rfind("/")]) if "/" in path else None
    sequential = f"{path}{parent.creates:010d}" if parent is not None else path
    return _causes_few_events(state, path) and _causes_few_events(state, sequential)


def _set_acl(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return len(client.ids) <= MAX_IDENTITIES and _release(state, client, data)


def _multi(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if len(data) > MAX_MULTI or state.acls.large or _QUOTA in data or len(client.ids) > MAX_IDENTITIES:
        return False
    return state.watches.active <= MAX_EVENTS


def _close(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    owned = state.tree.ephemerals.get(client.session_id, ())
    if state.acls.large or len(owned) > MAX_OWNED:
        return False
    return _causes_few_events(state, *owned)


_CHECKS: Final[dict[int, Check]] = {
    op & 255: check
    for op, check in {
        **{op: _write if OPERATIONS[op].changes else _is_never_light for op, entry in TABLE.items() if entry.costly},
        OpCode.ADD_WATCH: _add_watch,
        **{op: _create for op in TABLE if OPERATIONS[op].changes == "create"},
        **{op: _release for op in TABLE if OPERATIONS[op].changes == "delete"},
        **{op: _set_acl for op in TABLE if OPERATIONS[op].changes == "acl"},
        OpCode.GET_DATA: _get,
        OpCode.GET_CHILDREN: _list,
        OpCode.GET_CHILDREN2: _list,
        OpCode.MULTI: _multi,
        OpCode.CLOSE_SESSION: _close,
        OpCode.RECONFIG: _is_never_light,
    }.items()
}
"""The checks by the last byte of the op code, which is unique. Operations without a check are always light."""
