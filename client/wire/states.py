"""States of a client, and events of watched nodes."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from ...protocol.enums import EventType


class State(Enum):
    """The state of a client.

    ::

        CONNECTING --> CONNECTED <--> SUSPENDED --> LOST --> CONNECTED (a new session)
                   --> READ_ONLY <-->     |
        any of them --> CLOSED, permanently
    """

    CONNECTING = "connecting"
    """The client has not had a session yet."""
    CONNECTED = "connected"
    """A server serves the session, and all credentials have been accepted."""
    READ_ONLY = "read-only"
    """A server that has lost its quorum serves the session, and rejects writes."""
    SUSPENDED = "suspended"
    """The connection is lost. Whether the session still exists is unknown until the client has reconnected."""
    LOST = "lost"
    """A server reported that the session has expired, or no server was heard from for the session timeout. The client
    continues with a new session."""
    CLOSED = "closed"
    """The client was closed, or its credentials were rejected. It can no longer be used."""


class StateListener(Protocol):
    """An object that is notified of each new state of a client."""

    def on_state(self, state: State) -> None:
        """Handle a new state of the client. This is called immediately, inside the event loop."""
        ...


class Event(NamedTuple):
    """An event of a watched node.

    Args:
        type: Kind of change.
        path: Path of the node, without the client's chroot.
        zxid: Zxid of the transaction that caused the event; None if the server does not send it.
    """

    type: EventType
    path: str
    zxid: int | None = None


class WatchOverflowError(Exception):
    """Events were dropped, because they arrived faster than the program read them. Read the watched nodes again.

    Args:
        path: The watched node.
        limit: Maximum number of waiting events.
    """

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(path, limit)
        self.path = path
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.path}: more than {self.limit} events were waiting, and all of them were dropped"
