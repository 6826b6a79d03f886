"""Types for the signatures of this package. A type checker rejects mistakes such as ``fault(..., "creat")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

# A type checker needs the names spelled out. tests/testing/test_signatures.py compares them with the operation table.
OpName = Literal[
    "addWatch", "add_watch", "auth", "check", "checkWatches", "check_watches", "children", "close", "closeSession",
    "close_session", "connect", "create", "create2", "createContainer", "create_container", "createTTL", "create_ttl",
    "delete", "deleteContainer", "delete_container", "exists", "get", "getACL", "get_acl", "getAllChildrenNumber",
    "get_all_children_number", "getChildren", "get_children", "getChildren2", "get_children2", "getData", "get_data",
    "getEphemerals", "get_ephemerals", "multi", "multiRead", "multi_read", "ping", "reconfig", "removeWatches",
    "remove_watches", "sasl", "set", "setACL", "set_acl", "setData", "set_data", "setWatches", "set_watches",
    "setWatches2", "set_watches2", "sync", "transaction", "whoAmI", "who_am_i",
]  # fmt: skip
"""The names of the operations. ``children``, ``close``, ``create``, ``get``, ``set``, ``setWatches`` and
``transaction`` each stand for all op codes that clients use for this purpose.
"""
ClockName = Literal["real", "manual"]
"""The names of the clocks that a server can use."""
CompatName = Literal["3.8", "3.9"]
"""The ZooKeeper releases whose behaviour a server can reproduce."""


Direction = Literal["both", "requests", "replies"]
"""The direction that a pause stops: from clients, to clients, or both."""


class Timer(Protocol):
    """A timer of an event loop or of a manual clock."""

    def cancel(self) -> object:
        """Cancel the timer: its function is not called."""
        ...


CallLater = Callable[[float, Callable[[], object]], Timer]
"""A function that calls a second function after some seconds, and returns the timer."""


class HasSession(Protocol):
    """A client that knows the id of its session: zoolet's ``Client`` for asyncio or for threads."""

    @property
    def session_id(self) -> int:
        """The id of the client's session, or 0 while it has none."""
        ...


class HasClientId(Protocol):
    """A client that knows the id and the password of its session: a KazooClient."""

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The id and the password of the client's session, or None while it is not connected."""
        ...


Who = int | Literal["all"] | HasSession | HasClientId
"""Selects sessions: a session id, a client for its session, or ``"all"``."""
