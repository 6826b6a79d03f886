"""States of a client, and events of watched nodes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from zoolet.protocol.enums import EventType


class State(Enum):
    """How a client stands.

    ::

        CONNECTING --> CONNECTED <--> SUSPENDED --> LOST --> CONNECTED (a new session)
                   --> READ_ONLY <-->     |
        every one of them --> CLOSED, for good
    """

    CONNECTING = "connecting"
    """There has been no session yet."""
    CONNECTED = "connected"
    """A server serves the session, and all credentials have been accepted."""
    READ_ONLY = "read-only"
    """A server that has lost its quorum serves; writes are refused."""
    SUSPENDED = "suspended"
    """The connection is lost. The session may live on; nothing can be known of it until the client is back."""
    LOST = "lost"
    """The session is over, and its ephemeral nodes with it. The client goes on with a new one."""
    CLOSED = "closed"
    """The client was closed, or its credentials were refused; it is of no use any more."""


class StateListener(Protocol):
    """A listener for states."""

    def on_state(self, state: State) -> None:
        """Receive the state of the client, at once, inside the loop."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a watched node.

    Args:
        type: What.
        path: To which node, as the client names it.
        zxid: By which transaction; None where the server does not say.
    """

    type: EventType
    path: str
    zxid: int | None = None


class WatchOverflowError(Exception):
    """The events of a watch were not taken as fast as they came, and were dropped: read again what is watched.

    Args:
        path: What is watched.
        limit: How many events may wait.
    """

    def __init__(self, path: str, limit: int) -> None:
        super().__init__(path, limit)
        self.path = path
        self.limit = limit

    def __str__(self) -> str:
        return f"{self.path}: more than {self.limit} events waited to be taken, and all of them were dropped"
