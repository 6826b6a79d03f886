"""The asyncio client, for zoolet and for every other ZooKeeper server.

``from zoolet.client import Client``; its recipes are in :mod:`zoolet.client.recipes`.
"""

from __future__ import annotations

if __name__ != "zoolet.client":
    raise ImportError("import zoolet.client, not client")

from zoolet.client import codecs
from zoolet.client.client import Client
from zoolet.client.codecs import UndecodableError
from zoolet.client.events import Event, State, WatchOverflowError
from zoolet.client.retry import Backoff
from zoolet.protocol.enums import EventType
from zoolet.protocol.errors import (
    AuthFailedError,
    BadVersionError,
    ClosedError,
    ConnectionLossError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    NotReadOnlyError,
    SessionExpiredError,
    ZooKeeperError,
)
from zoolet.protocol.records import Stat

__all__ = [
    "AuthFailedError",
    "Backoff",
    "BadVersionError",
    "Client",
    "ClosedError",
    "ConnectionLossError",
    "Event",
    "EventType",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "NotReadOnlyError",
    "SessionExpiredError",
    "Stat",
    "State",
    "UndecodableError",
    "WatchOverflowError",
    "ZooKeeperError",
    "codecs",
]
