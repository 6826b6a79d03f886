"""Sessions: ids, passwords, and who is alive.

A session is alive from its creation until it is closed or its deadline passes; the connection that serves it may
change. Its ephemeral nodes are the tree's to know (``Tree.ephemerals``).

Source: SessionTrackerImpl; ZooKeeperServer.generatePasswd.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Final

from zoolet.server.core.caller import Caller
from zoolet.server.core.expiry import Expiry

_SECRET: Final = 0xB3415C00
_WORDS = struct.Struct("<4I").pack


def password_of(session_id: int) -> bytes:
    """Give the 16 bytes that prove a session is one's own; they follow from its id, as with ZooKeeper.

    Source: ZooKeeperServer.generatePasswd: java.util.Random seeded with the id, and its nextBytes.
    """
    mask = (1 << 48) - 1
    state = (session_id ^ _SECRET ^ 0x5DEECE66D) & mask
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 11) & mask
        words.append(state >> 16)
    return _WORDS(*words)


def first_session_id(server_id: int, now: int) -> int:
    """Give the first id that a server hands out: its number, then 40 bits of its start time in milliseconds, then a
    16-bit count.

    Source: SessionTrackerImpl.initializeNextSessionId.
    """
    return (server_id << 56) | (now & (1 << 40) - 1) << 16


@dataclass(slots=True, eq=False)
class Session:
    """One client's session.

    Args:
        id: Above 0.
        timeout_ms: As negotiated at the last connect.
        caller: The connection that serves it; None while there is none.
        deadline: When it ends if nothing is heard of it, in milliseconds of the engine's uptime.
    """

    id: int
    timeout_ms: int
    caller: Caller | None = None
    deadline: int = field(default=0)


class Sessions:
    """All sessions that are alive.

    Args:
        rounding: Deadlines are rounded up to multiples of this, in milliseconds; 0 for exact ones.
        first_id: The id of the first session.
    """

    def __init__(self, rounding: int, first_id: int) -> None:
        self.alive: dict[int, Session] = {}
        self.expiry: Expiry[Session] = Expiry(rounding)
        self._next_id = first_id

    def new_id(self) -> int:
        """Give an id that no session had before."""
        self._next_id += 1
        return self._next_id - 1

    def open(self, session_id: int, timeout_ms: int, uptime: int) -> Session:
        """Make a session."""
        session = self.alive[session_id] = Session(session_id, timeout_ms)
        self.touch(session, uptime)
        return session

    def touch(self, session: Session, uptime: int) -> None:
        """Take note that something was heard of a session."""
        self.expiry.touch(session, uptime, session.timeout_ms)

    def close(self, session: Session) -> None:
        """End a session."""
        del self.alive[session.id]
        self.expiry.remove(session)
