"""Access control lists: their records, the common ones, and digest identities."""

import base64
import hashlib
from typing import Annotated, Final

from zoolet.protocol.codec import NULL, Codec, Int, Record, count_at, pack_int, record
from zoolet.protocol.enums import Perm


@record
class Id(Record):
    """An identity: a scheme and what that scheme says of somebody.

    Source: zookeeper.jute, Id.
    """

    scheme: str | None
    id: str | None


@record
class ACL(Record):
    """What one identity may do.

    Source: zookeeper.jute, ACL.
    """

    perms: Int
    id: Id


AclList = tuple[ACL, ...]

ANYONE: Final = Id("world", "anyone")
OPEN_ACL_UNSAFE: Final[AclList] = (ACL(Perm.ALL, ANYONE),)
"""Everybody may do everything."""
READ_ACL_UNSAFE: Final[AclList] = (ACL(Perm.READ, ANYONE),)
"""Everybody may read, nobody may change."""
CREATOR_ALL_ACL: Final[AclList] = (ACL(Perm.ALL, Id("auth", "")),)
"""The identities of whoever creates the node may do everything."""

_OPEN_BYTES: Final = pack_int(1) + OPEN_ACL_UNSAFE[0].encode()


def _read(buf: bytes, offset: int, end: int) -> tuple[AclList | None, int]:
    """Read a vector of ACLs. The one list nearly everybody sends is known by its bytes: decoding costs a third of a
    create.
    """
    if buf.startswith(_OPEN_BYTES, offset, end):
        return OPEN_ACL_UNSAFE, offset + len(_OPEN_BYTES)
    count = count_at(buf, offset, end)
    offset += 4
    if count < 0:
        return None, offset
    entries = []
    for _ in range(count):
        entry, offset = ACL.read_from(buf, offset, end)
        entries.append(entry)
    return tuple(entries), offset


def _write(acl: AclList | None) -> bytes:
    if acl is OPEN_ACL_UNSAFE:
        return _OPEN_BYTES
    return NULL if acl is None else pack_int(len(acl)) + b"".join([entry.encode() for entry in acl])


Acls = Annotated[AclList | None, Codec(_read, _write)]
"""A vector of ACLs as a record's field."""


def digest_id(credentials: bytes, algorithm: str = "sha1") -> str:
    """Make the id that scheme ``digest`` gives to ``user:password``: ``user:base64(hash(user:password))``.

    Args:
        credentials: The bytes of ``user:password``; without a colon all of it is the user.
        algorithm: A name that ``hashlib`` knows.

    Source: DigestAuthenticationProvider.generateDigest.
    """
    user = credentials.partition(b":")[0].decode("utf-8", "replace")
    return f"{user}:{base64.b64encode(hashlib.new(algorithm, credentials).digest()).decode()}"
