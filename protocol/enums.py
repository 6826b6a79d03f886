"""Every number that ZooKeeper puts on the wire, but op codes and error codes, which have files of their own."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final


class CreateMode(IntEnum):
    """What kind of node a create makes: the ``flags`` field of the create requests.

    Source: CreateMode.
    """

    PERSISTENT = 0
    EPHEMERAL = 1
    PERSISTENT_SEQUENTIAL = 2
    EPHEMERAL_SEQUENTIAL = 3
    CONTAINER = 4
    PERSISTENT_WITH_TTL = 5
    PERSISTENT_SEQUENTIAL_WITH_TTL = 6


SEQUENTIAL_MODES: Final = frozenset({2, 3, 6})
EPHEMERAL_MODES: Final = frozenset({1, 3})
TTL_MODES: Final = frozenset({5, 6})


class EventType(IntEnum):
    """What happened to a watched node.

    The server sends 1 to 4; clients make up the others for their own watchers.

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
    """The state of a client's link to the server, as events tell it.

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
    """What an ACL entry allows.

    Source: ZooDefs.Perms.
    """

    READ = 1
    WRITE = 2
    CREATE = 4
    DELETE = 8
    ADMIN = 16
    ALL = 31


class AddWatchMode(IntEnum):
    """The kinds of watch that stay after they fired.

    Source: AddWatchMode.
    """

    PERSISTENT = 0
    PERSISTENT_RECURSIVE = 1


class WatcherType(IntEnum):
    """Which watches a checkWatches or removeWatches request means.

    Source: Watcher.WatcherType.
    """

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


class Xid(IntEnum):
    """The xids that mark what is not the answer to an ordinary request.

    Source: ClientCnxn (NOTIFICATION_XID, PING_XID, AUTHPACKET_XID, SET_WATCHES_XID).
    """

    NOTIFICATION = -1
    PING = -2
    AUTH = -4
    SET_WATCHES = -8


ANY_VERSION: Final = -1
MAX_FRAME: Final = 0xFFFFF
"""Default of ``jute.maxbuffer``: bytes a frame may have, its length word not counted."""
