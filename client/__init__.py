"""An asyncio client for ZooKeeper servers, including zoolet.

``from zoolet.client import Client``; its recipes are in :mod:`zoolet.client.recipes`.
"""

if __name__ != "zoolet.client":
    raise ImportError("import zoolet.client, not client")

# The underscores keep these modules out of the names that completion offers for the package.
import importlib as _importlib
import typing as _typing

from ..protocol.enums import EventType
from ..protocol.errors import (
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
from ..protocol.records import Stat
from . import acl, serializers
from .aio.call import Call
from .aio.hooks import RequestHook, RequestInfo
from .aio.watcher import Watcher
from .serializers import UndecodableError
from .wire.backoff import Backoff
from .wire.states import Event, State, WatchOverflowError
from .wire.transaction import Transaction

if _typing.TYPE_CHECKING:
    from .client import Client
    from .recipes import LockLostError

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

_LAZY_NAMES: _typing.Final = {"Client": "zoolet.client.client", "LockLostError": "zoolet.client.recipes"}
"""Names that are imported when they are first used, because a command may need neither the client nor recipes."""


def _publish(value: _typing.Any) -> None:
    """Set the ``__module__`` of a class to this package, for tracebacks, ``repr`` and help. Ignore other values."""
    if isinstance(value, type) and value.__module__.startswith(f"{__name__}."):
        value.__module__ = __name__


for _name in set(__all__) - set(_LAZY_NAMES):
    _publish(globals()[_name])


def __dir__() -> list[str]:
    return __all__


if not _typing.TYPE_CHECKING:  # with __getattr__, type checkers would accept every name

    def __getattr__(name: str) -> _typing.Any:
        if name not in _LAZY_NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(_importlib.import_module(_LAZY_NAMES[name]), name)
        if name == "Client":
            _publish(value)
        return value
