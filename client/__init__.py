"""The asyncio client, for zoolet and for every other ZooKeeper server.

``from zoolet.client import Client``; its recipes are in :mod:`zoolet.client.recipes`.
"""

if __name__ != "zoolet.client":
    raise ImportError("import zoolet.client, not client")

# Under names that completion does not offer among those of the package.
import importlib as _importlib
import typing as _typing

from zoolet.client import acl, serializers
from zoolet.client.aio.call import Call
from zoolet.client.aio.hooks import RequestHook, RequestInfo
from zoolet.client.aio.watcher import Watcher
from zoolet.client.serializers import UndecodableError
from zoolet.client.wire.backoff import Backoff
from zoolet.client.wire.states import Event, State, WatchOverflowError
from zoolet.client.wire.transaction import Transaction
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
    NoWatcherError,
    SessionExpiredError,
    ThrottledOpError,
    ZooKeeperError,
)
from zoolet.protocol.records import Stat

if _typing.TYPE_CHECKING:
    from zoolet.client.aio.client import Client
    from zoolet.client.recipes import LockLostError

__all__ = [
    "AuthFailedError",
    "Backoff",
    "BadVersionError",
    "Call",
    "Client",
    "ClosedError",
    "ConnectionLossError",
    "Event",
    "EventType",
    "LockLostError",
    "NoAuthError",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NoWatcherError",
    "NodeExistsError",
    "NotEmptyError",
    "NotReadOnlyError",
    "RequestHook",
    "RequestInfo",
    "SessionExpiredError",
    "Stat",
    "State",
    "ThrottledOpError",
    "Transaction",
    "UndecodableError",
    "WatchOverflowError",
    "Watcher",
    "ZooKeeperError",
    "acl",
    "serializers",
]

_LATER: _typing.Final = {"Client": "zoolet.client.aio.client", "LockLostError": "zoolet.client.recipes"}
"""Imported lazily, because it loads all recipes, which a command of the shell does without."""


def __dir__() -> list[str]:
    return __all__


if not _typing.TYPE_CHECKING:  # type checkers would take every name for one that is there

    def __getattr__(name: str) -> _typing.Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(_importlib.import_module(_LATER[name]), name)
        return value
