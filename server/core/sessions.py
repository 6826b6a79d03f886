"""The sessions of a server, with their ids, passwords and deadlines.

States and transitions::

                    bind_session                disconnect
    alive, unbound --------------> alive, bound -----------> alive, unbound
          |                             |
          +--closeSession, or the deadline has passed--> closed

- A session is *alive* while it is in ``Sessions.alive``. Only alive sessions have a deadline in ``Sessions.expiry``.
- A session is *bound* while ``Session.client`` is the connection that serves it. That connection's ``session`` is then
  this session. If a new connection resumes the session, the old connection is closed. Sessions expire at their
  deadline whether or not they are bound.
- *Closed* is final: an id is never reused. The session's ephemeral nodes (``Tree.ephemerals``) are deleted in the same
  transaction.

A session's id is not a secret: it is in the Stat of each of its ephemeral nodes, and in ``cons``. ZooKeeper computes
the password from the id, so a client that may read a lock's node can resume its holder's session. Here the password is
a hash of the id under a random key that is drawn when the server starts. ZooKeeper's formula is used with
``--compat 3.8``. It is also used with a data directory, to let clients resume their sessions after a real ZooKeeper has
taken over the data.

Source: SessionTrackerImpl, ZooKeeperServer.generatePasswd.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from .client_connection import Session
from .expiry import Expiry

_SECRET: Final = 0xB3415C00
_FOUR_INTS = struct.Struct("<4I").pack
_LONG = struct.Struct(">q").pack


def session_password(session_id: int) -> bytes:
    """Return the password that ZooKeeper computes from a session's id, 16 bytes.

    Source: ZooKeeperServer.generatePasswd (nextBytes of a java.util.Random that is seeded with the id).
    """
    mask = (1 << 48) - 1
    state = (session_id ^ _SECRET ^ 0x5DEECE66D) & mask
    words = []
    for _ in range(4):
        state = (state * 0x5DEECE66D + 11) & mask
        words.append(state >> 16)
    return _FOUR_INTS(*words)


def first_session_id(server_id: int, now: int) -> int:
    """Return the first session id of a server.

    It consists of the server's number in the top byte, 40 bits of the start time in milliseconds, and a 16-bit count.

    Source: SessionTrackerImpl.initializeNextSessionId.
    """
    return (server_id << 56) | (now & (1 << 40) - 1) << 16


class Sessions:
    """The sessions that are alive.

    Args:
        rounding: Interval in milliseconds to whose multiples deadlines are rounded up; 0 for exact deadlines.
        first_id: The id of the first session.
        secret: Key of the hash that computes passwords; None for ZooKeeper's formula.
    """

    def __init__(self, rounding: int, first_id: int, secret: bytes | None = None) -> None:
        self.set_key(secret)
        self.alive: dict[int, Session] = {}
        self.expiry: Expiry[Session] = Expiry(rounding)
        self._next_id = first_id

    def set_key(self, secret: bytes | None) -> None:
        """Set the key of the hash that computes passwords; None for ZooKeeper's formula."""
        # Each password is computed with a copy of this object, because the constructor takes most of the time.
        self._keyed = None if secret is None else hashlib.blake2b(key=secret, digest_size=16)

    def touch_all(self, monotonic_ms: int) -> None:
        """Extend the deadline of each session to its timeout from now, for example after sessions were loaded."""
        for session in self.alive.values():
            self.touch(session, monotonic_ms)

    def skip_id(self, session_id: int) -> None:
        """Never assign an id up to *session_id*, because a client of an earlier session may know its password."""
        self._next_id = max(self._next_id, session_id + 1)

    def continue_after(self, session_id: int) -> None:
        """Assign the ids after *session_id* next, even if they were skipped before."""
        self._next_id = session_id + 1

    @property
    def highest_id(self) -> int:
        """The highest id that was assigned or skipped."""
        return self._next_id - 1

    def new_id(self) -> int:
        """Return the next id, which was never used."""
        self._next_id += 1
        return self._next_id - 1

    def password(self, session_id: int) -> bytes:
        """Return a session's password, 16 bytes, which a client needs to resume it."""
        if self._keyed is None:
            return session_password(session_id)
        keyed = self._keyed.copy()
        keyed.update(_LONG(session_id))
        return keyed.digest()

    def password_matches(self, session_id: int, password: bytes | None) -> bool:
        """Compare *password* with the password of a session id, in constant time. The session need not be alive."""
        return hmac.compare_digest(password or b"", self.password(session_id))

    def open(self, session_id: int, timeout_ms: int, monotonic_ms: int) -> Session:
        """Add a session with the given id, which starts without a connection, and return it."""
        session = self.alive[session_id] = Session(session_id, timeout_ms, heard=monotonic_ms)
        self.touch(session, monotonic_ms)
        return session

    def touch(self, session: Session, monotonic_ms: int) -> None:
        """Set a session's deadline to *monotonic_ms* plus its timeout. Do nothing for a closed session."""
        if session.id in self.alive:
            self.expiry.touch(session, monotonic_ms, session.timeout_ms)

    def close(self, session: Session) -> None:
        """Remove a session. Its connection and its ephemeral nodes are not affected.

        Raises:
            KeyError: The session is not alive.
        """
        del self.alive[session.id]
        self.expiry.remove(session)
