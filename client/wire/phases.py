"""The phases of a client's connection, and their transitions::

    OFF --start--> HANDSHAKE --> SASL --> AUTH --> PROBE --> READY
     ^                |            |        |        |         |
     +----------------+--- lost ---+--------+--------+---------+
     ^                |
     +-----lost--- ENDING

SASL is skipped without a login. PROBE is skipped unless a new session has watches of an earlier one: the reply to a
ping then shows whether the zxids of the server started over, as after a restart without data. ENDING closes a session
that the client has given up.

Two deadlines follow from the session timeout. A lease is lost when the timeout has passed since ``last_confirmed``:
a server may have expired the session. The client gives the session up when the timeout has passed since it
last heard from a server, usually up to a third of the timeout later. In between, it resumes the session if the server
still knows it, because a restarted server gives all its sessions their whole timeout again. For the same reason, the
server may still know a session that the client has given up. So before it opens a new session, the client resumes the
previous one and closes it, which deletes its ephemeral nodes.

No session is given up before an attempt to connect has failed: if a debugger has stopped this process, for example, a
server in the same process was stopped too.

A ping is sent after a third of the session timeout without a request. After two thirds without a reply the connection
is closed, because the client needs the last third to find another server before the session expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from ...protocol.handshake import NO_PASSWORD


class ConnectionBroken(Exception):
    """The connection must be closed, for example because the server is silent. The message is the reason."""


class ConnectionPhase(Enum):
    """The phases of a connection. The module's docstring shows the transitions."""

    OFF = 0
    HANDSHAKE = 1
    SASL = 2
    AUTH = 3
    PROBE = 4
    READY = 5
    ENDING = 6


@dataclass(slots=True)
class AbandonedSession:
    """A session that the client has given up, and that it closes on its next connection.

    Args:
        id: Id of the session.
        password: Password of the session.
        tries: Number of further connections that may try to close the session; 0 if there is nothing to close.
    """

    MAX_TRIES: ClassVar[int] = 3

    id: int = 0
    password: bytes | None = NO_PASSWORD
    tries: int = 0
