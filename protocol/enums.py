"""The enumerations of the protocol, except for op codes (``operations.py``) and error codes (``errors.py``)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class CreateMode(IntEnum):
    """The kind of node to create: the ``flags`` field of the create requests.

    Source: CreateMode.
    """

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6


CREATE_MODES: Final = frozenset(map(int, CreateMode))
TTL_MODES: Final = frozenset({5, 6})
PLAIN_MODES: Final = CREATE_MODES - TTL_MODES
"""The modes of nodes without a TTL."""
SEQUENTIAL: Final = 2
"""The bit that is set in the sequential modes."""
EPHEMERAL: Final = 1
"""The bit that is set in the ephemeral modes. In the TTL modes, it has no such meaning."""
SEQUENTIAL_MODES: Final = frozenset(mode for mode in CREATE_MODES if mode & SEQUENTIAL)
EPHEMERAL_MODES: Final = frozenset(mode for mode in PLAIN_MODES if mode & EPHEMERAL)
MAX_TTL: Final = (1 << 40) - 1
"""The longest TTL, in milliseconds."""


def is_ttl_ms(milliseconds: float) -> bool:
    """Return whether a number of milliseconds is a valid TTL, from 1 to :data:`MAX_TTL`."""
    return 1 <= milliseconds <= MAX_TTL


def is_ttl(seconds: float) -> bool:
    """Return whether a number of seconds is a valid TTL. See :func:`is_ttl_ms`."""
    return is_ttl_ms(seconds * 1000)


class EventType(IntEnum):
    """The change that a watch event reports.

    The server sends only the types 1 to 4. Clients generate events of the other types for their own watchers.

    Source: Watcher.Event.EventType.
    """

    NONE = -1
    NODE_CREATED = 1
    NODE_DELETED = 2
    NODE_DATA_CHANGED = 3
    NODE_CHILDREN_CHANGED = 4
    DATA_WATCH_REMOVED = 5
    CHILD_WATCH_REMOVED = 6
    PERSISTENT_WATCH_REMOVED = 7


class KeeperState(IntEnum):
    """The state of a client's connection in an event.

    Source: Watcher.Event.KeeperState.
    """

    DISCONNECTED = 0
    SYNC_CONNECTED = 3
    AUTH_FAILED = 4
    CONNECTED_READ_ONLY = 5
    SASL_AUTHENTICATED = 6
    CLOSED = 7
    EXPIRED = -112


class Perm(IntFlag):
    """The permissions of an ACL entry.

    Source: ZooDefs.Perms.
    """

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


PERM_LETTERS: Final = {"c": Perm.CREATE, "d": Perm.DELETE, "r": Perm.READ, "w": Perm.WRITE, "a": Perm.ADMIN}
"""The letters that stand for permissions in texts, in the order of output."""


class AddWatchMode(IntEnum):
    """The modes of addWatch: watches that stay registered after they have fired.

    Source: AddWatchMode.
    """

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatcherType(IntEnum):
    """The kind of watches in a checkWatches or removeWatches request.

    Source: Watcher.WatcherType.
    """

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class Xid(IntEnum):
    """The xids of frames that are not replies to ordinary requests.

    Source: ClientCnxn (NOTIFICATION_XID, PING_XID, AUTHPACKET_XID, SET_WATCHES_XID).
    """

    NOTIFICATION = -1
    PING = -2
    AUTH = -4
    SET_WATCHES = -8


ANY_VERSION: Final = -1
MAX_FRAME: Final = 0xFFFFF
"""Default of ``jute.maxbuffer``: the largest payload of a frame, in bytes."""
