"""SASL logins of a peer, and the users of the server."""

from __future__ import annotations

from typing import Final

from support.peer import Peer, Reply

from zoolet.protocol.acl import digest_id
from zoolet.protocol.codec import put_bytes
from zoolet.protocol.operations import OpCode
from zoolet.protocol.sasl import answer

USERS: Final = {"bob": "secret", "eve": "easy"}
"""The users of a server with SASL: names and passwords."""
SUPER: Final = digest_id(b"super:pw")
"""The super user's digest for the credentials ``super:pw``."""


def start_sasl(peer: Peer) -> bytes:
    """Start a SASL exchange, and return the server's challenge."""
    (reply,) = peer.send(OpCode.SASL, put_bytes(b""))
    return reply.body[4:]


def complete_sasl(peer: Peer, user: str, password: str) -> Reply:
    """Run a complete SASL exchange, and return the last reply."""
    token, _ = answer(start_sasl(peer), user, password, "cnonce")
    (reply,) = peer.send(OpCode.SASL, put_bytes(token))
    return reply
