"""Which small requests are light: they take less than about half a millisecond, whatever the tree contains.

A busy server serves light requests as it reads them and queues the others, so it must know the cost of a request before
it is executed. Most of the cost depends on what a request finds: a node of a megabyte, a folder of 100,000 names, or a
path that a thousand connections watch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...protocol.codec import int_at
from ...protocol.operations import OPERATIONS, OpCode
from ...protocol.paths import QUOTA
from .client_connection import ClientConnection
from .ops.dispatch import TABLE
from .state import ServerState

MAX_BYTES: Final = 1 << 16
"""Maximum size of the data or the list of names in the reply to a light read."""
MAX_NAMES: Final = 16
"""Maximum number of names of a list that has to be encoded, because a name may have a megabyte."""
MAX_EVENTS: Final = 16
"""Maximum number of events of a light write."""
MAX_LEVELS: Final = 64
"""Maximum number of levels of a path that are searched for recursive watches."""
_QUOTA: Final = QUOTA.encode()  # a write below it may count all nodes
_PATH: Final = 16  # offset of the path in nearly all requests, after its length


def is_light(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    """Return whether one request is light. It may be malformed.

    Args:
        state: The state of the server.
        client: The connection that sent it.
        data: The whole frame, of at most a kilobyte and at least 12 bytes.
    """
    check = _CHECKS.get(int_at(data, 8)[0])
    return check is None or check(state, client, data)


def _path(data: bytes) -> str:
    (size,) = int_at(data, _PATH - 4) if len(data) >= _PATH else (0,)
    return data[_PATH : _PATH + max(size, 0)].decode("utf-8", "replace")


def _never(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return False


def _get(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    node = state.tree.get(_path(data))
    return node is None or len(node.data or b"") <= MAX_BYTES


def _list(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    node = state.tree.get(_path(data))
    if node is None or not node.children:
        return True
    encoded = node.children.encoding
    return len(node.children) <= MAX_NAMES if encoded is None else len(encoded) <= MAX_BYTES


def _write(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    if _QUOTA in data:
        return False
    watches = state.watches
    return not watches.active or (data.count(b"/") <= MAX_LEVELS and watches.count_events(_path(data)) <= MAX_EVENTS)


def _multi(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    return _QUOTA not in data and not state.watches.active


def _close(state: ServerState, client: ClientConnection, data: bytes) -> bool:
    owned, watches = state.tree.ephemerals.get(client.session_id, ()), state.watches
    if len(owned) > MAX_EVENTS:
        return False
    return not watches.active or sum(map(watches.count_events, owned)) <= MAX_EVENTS


_CHECKS: Final[dict[int, Callable[[ServerState, ClientConnection, bytes], bool]]] = {
    **{op: _write if OPERATIONS[op].changes else _never for op, entry in TABLE.items() if entry.costly},
    OpCode.GET_DATA: _get,
    OpCode.GET_CHILDREN: _list,
    OpCode.GET_CHILDREN2: _list,
    OpCode.MULTI: _multi,
    OpCode.CLOSE_SESSION: _close,
    OpCode.RECONFIG: _never,
}
"""The checks by op code. The other operations are light."""
