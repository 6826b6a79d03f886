"""Sessions: ids, passwords, and who is alive.

A session's id is no secret: it stands in the Stat of each of its ephemeral nodes, and in ``cons``. ZooKeeper computes
the password from the id, so that a client that may read a lock's node can resume its holder's session. Here the
password is a hash of the id under a key that the server draws when it starts; only ``--compat 3.8`` keeps ZooKeeper's
formula.

A session is alive from its creation until it is closed or its deadline passes; the connection that serves it may
change. Its ephemeral nodes are the tree's to know (``Tree.ephemerals``).

Source: SessionTrackerImpl; ZooKeeperServer.generatePasswd.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from zoolet.server.core.client_connection import Session
from zoolet.server.core.expiry import Expiry

_SECRET: Final = 0xB3415C00
_FOUR_INTS = struct.Struct("<4I").pack


def password_of(session_id: int) -> bytes:
    """Return the password that ZooKeeper gives to a session, 16 bytes that follow from its id.

    Source: ZooKeeperServer.generatePasswd: java.util.Random seeded with the id, and its nextBytes.
    """
    mask = (1 << 48) - 1
    state = (session_id ^ _SECRET ^ 0x5DEECE66D) & mask
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 11) & mask
        words.append(state >> 16)
    return _FOUR_INTS(*words)


def first_session_id(server_id: int, now: int) -> int:
    """Return the first id that a server hands out: its number, then 40 bits of its start time in milliseconds, then a
    16-bit count.

    Source: SessionTrackerImpl.initializeNextSessionId.
    """
    return (server_id << 56) | (now & (1 << 40) - 1) << 16


class Sessions:
    """All sessions that are alive.

    Args:
        rounding: Deadlines are rounded up to multiples of this, in milliseconds; 0 for exact ones.
        first_id: The id of the first session.
        secret: The key of the passwords; None for ZooKeeper's own formula.
    """

    def __init__(self, rounding: int, first_id: int, secret: bytes | None = None) -> None:
        self._secret_key = secret
        self.alive: dict[int, Session] = {}
        self.expiry: Expiry[Session] = Expiry(rounding)
        self._next_id = first_id

    def new_id(self) -> int:
        """Return an id that no session had before."""
        self._next_id += 1
        return self._next_id - 1

    def password(self, session_id: int) -> bytes:
        """Return the 16 bytes that prove a session to be one's own."""
        if self._secret_key is None:
            return password_of(session_id)
        return hashlib.blake2b(struct.pack(">q", session_id), key=self._secret_key, digest_size=16).digest()

    def proves(self, session_id: int, password: bytes | None) -> bool:
        """Return whether *password* is the session's; the time that takes tells nothing about it."""
        return hmac.compare_digest(password or b"", self.password(session_id))

    def open(self, session_id: int, timeout_ms: int, monotonic_ms: int) -> Session:
        """Make a session."""
        session = self.alive[session_id] = Session(session_id, timeout_ms)
        self.touch(session, monotonic_ms)
        return session

    def touch(self, session: Session, monotonic_ms: int) -> None:
        """Record that something was heard of a session; nothing happens if it has been closed."""
        if session.id in self.alive:
            self.expiry.touch(session, monotonic_ms, session.timeout_ms)

    def close(self, session: Session) -> None:
        """End a session."""
        del self.alive[session.id]
        self.expiry.remove(session)
