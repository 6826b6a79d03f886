"""Sessions: their ids, passwords and deadlines.

States and transitions::

                    bind_session                disconnect
    alive, unbound --------------> alive, bound -----------> alive, unbound
          |                             |
          +--closeSession, or the deadline has passed--> closed

- A session is *alive* while it is in ``Sessions.alive``; then, and only then, it has a deadline in ``Sessions.expiry``.
- It is *bound* while ``Session.client`` is the connection that serves it, and that connection's ``session`` is this
  one. Another connection may resume it, which closes the first. A deadline passes whether or not it is bound.
- *Closed* is final: an id is never used again. Its ephemeral nodes (``Tree.ephemerals``) are deleted in the same
  transaction.

A session's id is not a secret: it is in the Stat of each of its ephemeral nodes, and in ``cons``. ZooKeeper computes
the password from the id, so that a client that may read a lock's node can resume its holder's session. Here the
password is a hash of the id under a random key that is drawn when the server starts; ZooKeeper's formula is used with
``--compat 3.8``, and with a data directory, so that a client can resume its session at a ZooKeeper that takes it over.

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
    """Return the password that ZooKeeper computes from a session's id, 16 bytes.

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
    """Return the first session id of a server: its number in the top byte, then 40 bits of its start time in
    milliseconds, then a 16-bit count.

    Source: SessionTrackerImpl.initializeNextSessionId.
    """
    return (server_id << 56) | (now & (1 << 40) - 1) << 16


class Sessions:
    """The sessions that are alive.

    Args:
        rounding: Deadlines are rounded up to multiples of this, in milliseconds; 0 for exact deadlines.
        first_id: The id of the first session.
        secret: The key of the passwords; None for ZooKeeper's formula.
    """

    def __init__(self, rounding: int, first_id: int, secret: bytes | None = None) -> None:
        self._secret_key = secret
        self.alive: dict[int, Session] = {}
        self.expiry: Expiry[Session] = Expiry(rounding)
        self._next_id = first_id

    def set_key(self, secret: bytes | None) -> None:
        """Compute the passwords with another key; None for ZooKeeper's formula."""
        self._secret_key = secret

    def touch_all(self, monotonic_ms: int) -> None:
        """Extend all deadlines: the sessions were read from files."""
        for session in self.alive.values():
            self.touch(session, monotonic_ms)

    def skip_id(self, session_id: int) -> None:
        """Use only ids above one that a session had: its client may still have its password."""
        self._next_id = max(self._next_id, session_id + 1)

    def continue_after(self, session_id: int) -> None:
        """Use the ids behind one, whatever was skipped since."""
        self._next_id = session_id + 1

    @property
    def highest_id(self) -> int:
        """The highest id that was given."""
        return self._next_id - 1

    def new_id(self) -> int:
        """Return an id that no session has had."""
        self._next_id += 1
        return self._next_id - 1

    def password(self, session_id: int) -> bytes:
        """Return a session's password, 16 bytes, which a client needs to resume it."""
        if self._secret_key is None:
            return password_of(session_id)
        return hashlib.blake2b(struct.pack(">q", session_id), key=self._secret_key, digest_size=16).digest()

    def proves(self, session_id: int, password: bytes | None) -> bool:
        """Return whether *password* is the session's, in constant time."""
        return hmac.compare_digest(password or b"", self.password(session_id))

    def open(self, session_id: int, timeout_ms: int, monotonic_ms: int) -> Session:
        """Create a session."""
        session = self.alive[session_id] = Session(session_id, timeout_ms, heard=monotonic_ms)
        self.touch(session, monotonic_ms)
        return session

    def touch(self, session: Session, monotonic_ms: int) -> None:
        """Extend a session's deadline to its timeout from now; a closed session is ignored."""
        if session.id in self.alive:
            self.expiry.touch(session, monotonic_ms, session.timeout_ms)

    def close(self, session: Session) -> None:
        """Remove a session."""
        del self.alive[session.id]
        self.expiry.remove(session)
