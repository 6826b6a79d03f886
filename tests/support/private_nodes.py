"""Nodes with a restricted ACL, to test what clients without READ permission can see."""

from __future__ import annotations

from typing import Final

from support.calls import connect_peer
from support.peer import Peer

from zoolet.protocol.acl import ACL, AclList, Id, digest_id
from zoolet.protocol.enums import Perm
from zoolet.server.core.engine import Engine

OWNER: Final = b"owner:secret"
"""The credentials of the owner, for scheme digest."""
PRIVATE: Final[AclList] = (ACL(Perm.ALL, Id("digest", digest_id(OWNER))),)
"""All permissions for the owner, none for others."""


def connect_owner(engine: Engine) -> Peer:
    """Return a peer that is authenticated as the owner."""
    owner = connect_peer(engine)
    owner.auth("digest", OWNER)
    return owner


def connect_stranger(engine: Engine) -> Peer:
    """Create ``/private`` and ``/private/child`` as the owner; return an unauthenticated peer."""
    owner = connect_owner(engine)
    owner.create("/private", b"secret", acl=PRIVATE)
    owner.create("/private/child", b"secret too", acl=PRIVATE)
    return connect_peer(engine, host="127.0.0.2")
