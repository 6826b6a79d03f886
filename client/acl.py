"""Access control lists for ``create(acl=...)``, ``Client(acl=...)`` or a recipe; lists are joined with ``+``::

await zk.create("/reports", acl=acl.CREATOR_ALL + acl.READ_ONLY)
await zk.create("/orders", acl=acl.digest("shop", "secret", acl.READ | acl.WRITE) + acl.ip("10.0.0.0/8"))
"""

from __future__ import annotations

from typing import Final

from zoolet.protocol.acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from zoolet.protocol.distinguished_name import WRITTEN_FORM, is_written_as_shown
from zoolet.protocol.enums import Perm

READ: Final = Perm.READ
WRITE: Final = Perm.WRITE
CREATE: Final = Perm.CREATE
DELETE: Final = Perm.DELETE
ADMIN: Final = Perm.ADMIN
ALL: Final = Perm.ALL

OPEN: Final = OPEN_ACL_UNSAFE
"""Everyone has all permissions: what a node has unless something else is asked for."""
READ_ONLY: Final = READ_ACL_UNSAFE
"""Everyone may read."""
CREATOR_ALL: Final = CREATOR_ALL_ACL
"""The identities of the client that creates the node have all permissions."""


def _permit(permissions: int, identity: Id) -> AclList:
    if not isinstance(permissions, int) or not 0 < permissions <= ALL:
        raise ValueError(f"permissions are READ, WRITE, CREATE, DELETE, ADMIN, joined with |, not {permissions!r}")
    return (ACL(permissions, identity),)


def digest(user: str, password: str, permissions: int = ALL) -> AclList:
    """Return a list that permits something to the clients that have added ``digest`` credentials.

    Args:
        user: The user.
        password: The password; the list has only a hash of it.
        permissions: READ, WRITE, CREATE, DELETE and ADMIN, joined with ``|``.

    Raises:
        ValueError: The permissions are others; so it is for all lists.
    """
    return _permit(permissions, Id("digest", digest_id(f"{user}:{password}".encode())))


def ip(network: str, permissions: int = ALL) -> AclList:
    """Return a list that permits something to the clients of an address or a network, such as ``10.0.0.0/8``."""
    return _permit(permissions, Id("ip", network))


def x509(name: str, permissions: int = ALL) -> AclList:
    """Return a list that permits something to the clients whose TLS certificate is of a distinguished name.

    Args:
        name: The name as the server writes it (``who_am_i``): the most specific part first, no space behind commas,
            such as ``CN=shop,O=Example``.
        permissions: READ, WRITE, CREATE, DELETE and ADMIN, joined with ``|``.

    Raises:
        ValueError: The name is written in another way: no client would have it.
    """
    if not is_written_as_shown(name):
        raise ValueError(f"{name!r} is not a name as the server writes it: {WRITTEN_FORM}")
    return _permit(permissions, Id("x509", name))
