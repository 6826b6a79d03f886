"""Access control lists for ``create(acl=...)``, ``Client(acl=...)`` or a recipe. Join lists with ``+``::

await zk.create("/reports", acl=acl.CREATOR_ALL + acl.READ_ONLY)
await zk.create("/orders", acl=acl.digest("shop", "secret", acl.READ | acl.WRITE) + acl.ip("10.0.0.0/8"))
"""

from __future__ import annotations

from typing import Final

from ..protocol.acl import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, AclList, Id, digest_id
from ..protocol.distinguished_name import WRITTEN_FORM, is_canonical
from ..protocol.enums import Perm

READ: Final = Perm.READ
WRITE: Final = Perm.WRITE
CREATE: Final = Perm.CREATE
DELETE: Final = Perm.DELETE
ADMIN: Final = Perm.ADMIN
ALL: Final = Perm.ALL

OPEN: Final = OPEN_ACL_UNSAFE
"""All permissions for everyone. This is the default for new nodes."""
READ_ONLY: Final = READ_ACL_UNSAFE
"""Read permission for everyone, and no other permissions."""
CREATOR_ALL: Final = CREATOR_ALL_ACL
"""All permissions for the identities of the client that creates the node."""


def _permit(permissions: int, identity: Id) -> AclList:
    if not isinstance(permissions, int) or not 0 < permissions <= ALL:
        raise ValueError(f"permissions must be READ, WRITE, CREATE, DELETE, ADMIN, joined with |, not {permissions!r}")
    return (ACL(permissions, identity),)


def digest(user: str, password: str, permissions: int = ALL) -> AclList:
    """Return an ACL list that grants permissions to clients with these ``digest`` credentials.

    Args:
        user: Name of the user.
        password: Password of the user. The ACL list contains only its hash.
        permissions: READ, WRITE, CREATE, DELETE and ADMIN, joined with ``|``.

    Raises:
        ValueError: *permissions* is not a combination of these.
    """
    return _permit(permissions, Id("digest", digest_id(f"{user}:{password}".encode())))


def ip(network: str, permissions: int = ALL) -> AclList:
    """Return an ACL list that grants permissions to clients at an IP address or in a network.

    Args:
        network: An IP address, or a network such as ``10.0.0.0/8``.
        permissions: READ, WRITE, CREATE, DELETE and ADMIN, joined with ``|``.

    Raises:
        ValueError: *network* is not an IP address or network, or *permissions* is not a combination of these.
    """
    from ipaddress import ip_network  # imported here, because the import takes 3 ms

    try:
        ip_network(network, strict=False)
    except ValueError:
        raise ValueError(f"network must be an address or a network such as 10.0.0.0/8, not {network!r}") from None
    return _permit(permissions, Id("ip", network))


def x509(name: str, permissions: int = ALL) -> AclList:
    """Return an ACL list that grants permissions to clients whose TLS certificate has this distinguished name.

    Args:
        name: The name in the server's notation (as in ``who_am_i``): the most specific part first, no space after
            commas, such as ``CN=shop,O=Example``.
        permissions: READ, WRITE, CREATE, DELETE and ADMIN, joined with ``|``.

    Raises:
        ValueError: *name* is in a different notation, which matches no client, or *permissions* is invalid.
    """
    if not is_canonical(name):
        raise ValueError(f"{name!r} is not in the server's notation for distinguished names: {WRITTEN_FORM}")
    return _permit(permissions, Id("x509", name))
