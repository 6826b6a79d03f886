"""The test for light requests: small requests that take less than about half a millisecond.

A busy server executes a light request as soon as it has read the request, and queues all other requests. So it must
estimate the cost before the execution. The cost mostly depends on the state of the tree: a node may have a megabyte of
data, a parent 100,000 children, or a path a thousand watching connections. The test itself takes 1 microsecond, or up
to 20 if there are watches.
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
MAX_REQUEST_BYTES: Final = 1024
"""Maximum size of a light request in bytes."""
MAX_MULTI_BYTES: Final = 256
"""Maximum size of a light multi in bytes. Each operation may replace or delete a node of a megabyte."""
MAX_REPLY_BYTES: Final = 1 << 16
"""Maximum size, in bytes, of the data or the list of names in the reply to a light read."""
MAX_NAMES: Final = 16
"""Maximum number of names that a light read encodes. A read of a longer list is light only if the list is cached."""
MAX_SEARCHED_BYTES: Final = 1 << 18
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
_QUOTA: Final = QUOTA.encode()  # a create below this path may count all nodes
_PATH_OFFSET: Final = 16  # offset of the path in nearly all requests, after its length
LightCheck = Callable[[ServerState, ClientConnection, bytes], bool]


def is_light(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    """Return whether received bytes are one whole light request. The request may be malformed.

    Args:
        state: The state of the server.
        client: The connection that sent the bytes. None of its earlier requests may be incomplete.
        data: The received bytes.
    """
    size = len(data)
    if not 12 <= size <= MAX_REQUEST_BYTES or data[2] << 8 | data[3] != size - 4:
        return False
    check = _CHECKS.get(data[11])
    return check is None or check(state, client, data)


def _read_path(data: bytes) -> str:
    (size,) = int_at(data, _PATH_OFFSET - 4) if len(data) >= _PATH_OFFSET else (0,)
    return data[_PATH_OFFSET : _PATH_OFFSET + max(size, 0)].decode("utf-8", "replace")


def _is_exact(data: bytes) -> bool:
    """Return whether the body of a read is exactly a path and one byte. The server would ignore further bytes."""
    return (
        len(data) > _PATH_OFFSET
        and data[_PATH_OFFSET - 2] << 8 | data[_PATH_OFFSET - 1] == len(data) - _PATH_OFFSET - 1
    )


def _find_node(state: ServerState, data: bytes) -> Node | None:
    path = data[_PATH_OFFSET:-1].decode("utf-8", "replace")
    return state.tree.path_cache.get(path) or state.tree.get(path)


def _is_never_light(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return False


def _is_light_read(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if state.tree.largest <= MAX_REPLY_BYTES:  # true for most trees, and faster than finding the node
        return True
    if not _is_exact(data):
        return False
    node = _find_node(state, data)
    return node is None or not node.data or len(node.data) <= MAX_REPLY_BYTES


def _is_light_list(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if not _is_exact(data):
        return False
    node = _find_node(state, data)
    if node is None or not node.children:
        return True
    children = node.children
    cached = children.encoding
    if cached is not None and len(children.removed) * len(cached) > MAX_SEARCHED_BYTES:
        return False
    names = children if cached is None else children.added
    return len(names) <= MAX_NAMES and sum(map(len, names)) + len(cached or b"") <= MAX_REPLY_BYTES


def _is_light_add_watch(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.watches.unswept  # a new watch may first remove watches of lost connections


def _is_light_write(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.watches.active or _causes_few_events(state, _read_path(data))


def _causes_few_events(state: ServerState, *paths: str) -> bool:
    """Return whether changes of these nodes, and of their parents, cause few events."""
    if any(len(path) > MAX_REQUEST_BYTES or path.count("/") > MAX_LEVELS for path in paths):
        return False
    return sum(map(state.watches.count_events, paths)) <= MAX_EVENTS


def _is_light_release(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return not state.acls.large and _is_light_write(state, client, data)


def _is_light_create(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if data.startswith(_QUOTA, _PATH_OFFSET) or len(client.ids) > MAX_IDENTITIES:
        return False
    if not state.watches.active:
        return True
    path = _read_path(data)
    parent = state.tree.get(path[: path.rfind("/")]) if "/" in path else None
    sequential = f"{path}{parent.creates:010d}" if parent is not None else path
    return _causes_few_events(state, path) and _causes_few_events(state, sequential)


def _is_light_set_acl(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return len(client.ids) <= MAX_IDENTITIES and _is_light_release(state, client, data)


def _is_light_multi(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if len(data) > MAX_MULTI_BYTES or state.acls.large or _QUOTA in data or len(client.ids) > MAX_IDENTITIES:
        return False
    return state.watches.active <= MAX_EVENTS


def _is_light_close(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    owned = state.tree.ephemerals.get(client.session_id, ())
    if state.acls.large or len(owned) > MAX_OWNED:
        return False
    return _causes_few_events(state, *owned)


_CHECKS: Final[dict[int, LightCheck]] = {
    op & 255: check
    for op, check in {
        **{
            op: _is_light_write if OPERATIONS[op].changes else _is_never_light
            for op, entry in TABLE.items()
            if entry.costly
        },
        OpCode.ADD_WATCH: _is_light_add_watch,
        **{op: _is_light_create for op in TABLE if OPERATIONS[op].changes == "create"},
        **{op: _is_light_release for op in TABLE if OPERATIONS[op].changes == "delete"},
        **{op: _is_light_set_acl for op in TABLE if OPERATIONS[op].changes == "acl"},
        OpCode.GET_DATA: _is_light_read,
        OpCode.GET_CHILDREN: _is_light_list,
        OpCode.GET_CHILDREN2: _is_light_list,
        OpCode.MULTI: _is_light_multi,
        OpCode.CLOSE_SESSION: _is_light_close,
        OpCode.RECONFIG: _is_never_light,
    }.items()
}
"""The checks, by the last byte of the op code (unique). Operations that are not in this table are always light."""
