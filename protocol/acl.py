"""Access control lists (ACLs): their records, constants for common lists, and the ids of digest identities."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from .codec import NULL, Codec, Int, Record, count_at, pack_int, record
from .enums import Perm


@record
class Id(Record):
    """An identity: an authentication scheme and an id in it, such as ``digest`` and ``user:hash``.

    Source: zookeeper.jute, Id.
    """

    scheme: str | None
    id: str | None


def name_without_hash(identity: Id) -> str:
    """Return the id of an identity. For scheme ``digest``, this is the user name without the password hash."""
    name = identity.id or ""
    return name.partition(":")[0] if identity.scheme == "digest" else name


@record
class ACL(Record):
    """An entry of an access control list: the permissions of one identity.

    Source: zookeeper.jute, ACL.
    """

    perms: Int
    id: Id


AclList = tuple[ACL, ...]


def mask_digest(entry: ACL) -> ACL:
    """Return the entry as clients without ADMIN permission see it: a digest identity has ``x`` in place of its hash.

    Source: FinalRequestProcessor, case getACL.
    """
    if entry.id.scheme != "digest":
        return entry
    return ACL(entry.perms, Id("digest", f"{name_without_hash(entry.id)}:x"))


def is_masked(entry: ACL) -> bool:
    """Return whether an entry looks masked: a digest identity with ``x`` in place of its hash."""
    return entry.id.scheme == "digest" and (entry.id.id or "").endswith(":x")


def acl_entries(acl: Iterable[Any]) -> Iterator[ACL]:
    """Yield the entries of an ACL list, which may contain nested lists, and entries of other libraries such as kazoo.

    Raises:
        TypeError: *acl* is not a list of ACL entries.
    """
    for entry in acl:
        if isinstance(entry, ACL):
            yield entry
        elif isinstance(entry, list | tuple) and not hasattr(entry, "perms"):  # kazoo's ACL entries are tuples too
            yield from acl_entries(entry)
        else:
            perms, who = getattr(entry, "perms", None), getattr(entry, "id", None)
            scheme, name = getattr(who, "scheme", None), getattr(who, "id", None)
            if not (isinstance(perms, int) and isinstance(scheme, str) and isinstance(name, str)):
                raise TypeError(f"not an ACL entry: {entry!r}")
            yield ACL(perms, Id(scheme, name))


ANYONE: Final = Id("world", "anyone")
OPEN_ACL_UNSAFE: Final[AclList] = (ACL(Perm.ALL, ANYONE),)
"""The list that grants all permissions to everyone."""
READ_ACL_UNSAFE: Final[AclList] = (ACL(Perm.READ, ANYONE),)
"""The list that grants only READ permission to everyone."""
CREATOR_ALL_ACL: Final[AclList] = (ACL(Perm.ALL, Id("auth", "")),)
"""The list that grants all permissions to the identities of the client that creates the node, and none to others."""

_OPEN_BYTES: Final = pack_int(1) + OPEN_ACL_UNSAFE[0].encode()
_OPEN_SIZE: Final = len(_OPEN_BYTES)


def _read(buf: bytes, offset: int, end: int) -> tuple[AclList | None, int]:
    """Read an ACL list. OPEN_ACL_UNSAFE, which nearly all creates contain, is recognised by its bytes, because decoding
    this list would take a third of the time of a create.
    """
    acl: AclList | None = OPEN_ACL_UNSAFE
    after = offset + _OPEN_SIZE
    if buf[offset:after] != _OPEN_BYTES or after > end:
        acl, after = _read_entries(buf, offset, end)
    return acl, after


def _read_entries(buf: bytes, offset: int, end: int) -> tuple[AclList | None, int]:
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
"""The type of a record's field that contains an ACL list or null."""


def digest_id(credentials: bytes, algorithm: str = "sha1") -> str:
    """Return the id of ``user:password`` in scheme ``digest``: ``user:base64(hash(user:password))``.

    Args:
        credentials: The bytes of ``user:password``, or of the user's name alone, without a colon.
        algorithm: Name of a ``hashlib`` algorithm.

    Raises:
        ValueError: The algorithm is unknown.

    Source: DigestAuthenticationProvider.generateDigest.
    """
    import base64
    import hashlib  # imported here, because most clients have no digest identity

    user = credentials.partition(b":")[0].decode("utf-8", "replace")
    return f"{user}:{base64.b64encode(hashlib.new(algorithm, credentials).digest()).decode()}"
