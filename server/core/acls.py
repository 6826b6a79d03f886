"""Access control: each ACL list is interned under a small key and evaluated through it.

Key 0 is world:anyone with all permissions. Most nodes have this key, and checking it costs no more than
``if node.acl:``.

A list becomes a :class:`Grants` when it is interned. A check then costs one look-up for each identity of the client
(for an address: one for each prefix length in the list), regardless of the length of the list.

Invariants:

- The nodes with a key are counted: :meth:`Acls.intern` adds one and :meth:`Acls.release` subtracts one. At zero, the
  key and its list are removed. A key is never reused for a different list.
- Inside a transaction nothing is removed. The keys that it releases are released at its commit, and the keys that it
  interned are released at its rollback. So a rollback finds every list that a node had before.
- Data files refer to lists by these keys. After a restart the lists are interned again, in the order of the nodes.

Source: ReferenceCountedACLCache, PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from ...protocol.acl import ACL, ANYONE, OPEN_ACL_UNSAFE, AclList, Id
from ...protocol.distinguished_name import is_name
from ...protocol.enums import Perm
from ...protocol.errors import InvalidACLError, MarshallingError, NoAuthError
from .client_connection import ClientConnection
from .metrics import Metrics
from .settings import EngineSettings
from .warnings import Warnings

OPEN: Final = 0
SNAPSHOT_OPEN_KEY: Final = -1
"""The key of the list that grants everything to everyone, in snapshots. This list is not in their tables."""
NOBODY: Final[AclList] = (ACL(0, ANYONE),)
"""Stands for an ACL list that was set while a snapshot was written. It grants nothing until a transaction sets the
list.
"""
MAX_EXPANDED: Final = 1_000
"""Maximum number of entries that ``auth`` expands to in one list. Otherwise a short request could allocate many."""
LARGE: Final = 100
"""Number of entries above which removing a list takes long."""
MAX_IN_MULTI: Final = 100_000
"""Maximum number of ACL entries in one multi, which cannot be interrupted. They take about 0.15 s."""
AUTHENTICATED: Final = frozenset({"digest", "sasl", "x509"})
"""The schemes of the identities in the expansion of scheme ``auth``."""


class Grants:
    """The permissions that one ACL list grants, indexed by identity.

    Args:
        acl: The list. An empty list grants all permissions to everyone, as in ZooKeeper.
    """

    __slots__ = ("_anyone", "_exact", "_networks", "_sasl")

    def __init__(self, acl: AclList) -> None:
        self._anyone = 0 if acl else -1  # permissions of world:anyone
        self._exact: dict[Id, int] = {}
        self._sasl = 0  # union of the permissions of all SASL users, for the SASL user "super"
        self._networks: dict[tuple[int, int], dict[int, int]] = {}  # by (address bits, bits to drop): prefix -> perms
        for entry in acl:
            identity, perms = entry.id, entry.perms
            if identity == ANYONE:
                self._anyone |= perms
            elif identity.scheme == "ip":
                if (network := parse_network(identity.id or "")) is not None:
                    address, prefix, width = network
                    prefixes = self._networks.setdefault((width, width - prefix), {})
                    prefixes[address >> width - prefix] = prefixes.get(address >> width - prefix, 0) | perms
            else:
                self._exact[identity] = self._exact.get(identity, 0) | perms
                if identity.scheme == "sasl":
                    self._sasl |= perms

    def allow(self, identities: Iterable[Id], perms: int) -> bool:
        """Return whether one of the identities has one of the permissions *perms*."""
        perms = int(perms)  # an operation of an enum takes ten times as long, for each identity
        if self._anyone & perms:
            return True
        for identity in identities:
            if identity.scheme == "ip":
                if self._networks and self._permissions_of_address(identity.id or "") & perms:
                    return True
            elif self._exact.get(identity, 0) & perms or (
                identity.scheme == "sasl" and identity.id == "super" and self._sasl & perms
            ):
                return True
        return False

    def _permissions_of_address(self, text: str) -> int:
        """Return the permissions that entries of scheme ``ip`` grant to an address.

        Source: IPAuthenticationProvider.matches.
        """
        perms = 0
        if (network := _peer_address(text)) is not None:
            address, _, width = network
            for (bits, dropped), prefixes in self._networks.items():
                if bits == width:
                    perms |= prefixes.get(address >> dropped, 0)
        return perms


class _Interned:
    """A list that nodes use.

    Args:
        acl: The list.
        hashed: The result of :func:`_hash`, which takes 5 ms for 9,000 entries.
    """

    __slots__ = ("acl", "grants", "hashed", "uses")

    def __init__(self, acl: AclList, hashed: int) -> None:
        self.acl = acl
        self.hashed = hashed
        self.grants = Grants(acl)
        self.uses = 0


class _AclChanges:
    """The changes of a transaction: the keys that it interned (a rollback releases them), the keys that it released (a
    commit releases them), and the number of entries in all its lists.
    """

    def __init__(self) -> None:
        self.interned: list[int] = []
        self.released: list[int] = []
        self.entries = 0


class Acls:
    """The ACL lists of all nodes, each with the number of nodes that use it.

    A list is removed together with the last node that uses it. Inside a transaction, releases are deferred until the
    commit, because a rollback needs every list that a node had before.

    Args:
        settings: Settings of the server (``skip_acl``, ``max_acl_entries`` and ``compat`` are used).
        metrics: Counter of the rejected lists.
        warnings: Receiver of warnings about rejected lists.
    """

    def __init__(self, settings: EngineSettings, metrics: Metrics, warnings: Warnings) -> None:
        self._settings = settings
        self._metrics = metrics
        self._warnings = warnings
        hashed = _hash(OPEN_ACL_UNSAFE)
        self._lists = {OPEN: _Interned(OPEN_ACL_UNSAFE, hashed)}
        self._keys = {hashed: [OPEN]}  # the keys of the lists with that hash
        self._next = 1
        self.in_transaction = False
        """Whether a transaction is open."""
        self.changes: _AclChanges | None = None
        """The changes of the open transaction; None without changes."""
        self.keep = False
        """Keep every list, even if no node uses it. It is set while undo records may restore nodes."""
        self.large = 0
        """Number of lists with more than LARGE entries. Removing such a list takes up to 5 ms."""

    # --- keys ---

    def intern(self, acl: AclList) -> int:
        """Return the key of a list, and increment its use count. A rollback of the open transaction decrements it."""
        if acl is OPEN_ACL_UNSAFE:
            return OPEN
        hashed = _hash(acl)
        key = next((key for key in self._keys.get(hashed, ()) if self._lists[key].acl == acl), None)
        if key is None:
            key, self._next = self._next, self._next + 1
            self._lists[key] = _Interned(acl, hashed)
            self._keys.setdefault(hashed, []).append(key)
            self.large += len(acl) > LARGE
        if key:
            self._lists[key].uses += 1
            if self.in_transaction:
                self._kept().interned.append(key)
        return key

    def release(self, key: int) -> None:
        """Decrement the use count of a list, and remove the list at zero. Inside a transaction this happens at the
        commit.
        """
        if not key or self.keep:
            return
        if self.in_transaction:
            self._kept().released.append(key)
            return
        interned = self._lists[key]
        interned.uses -= 1
        if not interned.uses:
            del self._lists[key]
            self.large -= len(interned.acl) > LARGE
            keys = self._keys[interned.hashed]
            keys.remove(key)
            if not keys:
                del self._keys[interned.hashed]

    def _kept(self) -> _AclChanges:
        if self.changes is None:
            self.changes = _AclChanges()
        return self.changes

    def release_all(self, keys: Sequence[int]) -> None:
        """Discard the changes of a transaction, and release *keys*: after a commit the keys that it released, after a
        rollback the keys that it interned.
        """
        self.changes = None
        for key in keys:
            self.release(key)

    def list(self, key: int) -> AclList:
        """Return the list of a key."""
        return self._lists[key].acl

    def lists(self) -> dict[int, AclList]:
        """Return the lists that nodes use, by key, without :data:`OPEN`."""
        return {key: interned.acl for key, interned in self._lists.items() if key != OPEN}

    # --- permissions ---

    def allows(self, key: int, client: ClientConnection, perms: int) -> bool:
        """Return whether *client* has one of the permissions *perms* on a node with this list.

        Source: ZooKeeperServer.checkACL.
        """
        if not key or client.is_super or self._settings.skip_acl:
            return True
        return self._lists[key].grants.allow(client.ids, perms)

    def check(self, key: int, client: ClientConnection, perms: Perm, path: str) -> None:
        """Check that *client* has one of the permissions *perms* on a node with this list. *path* is for the error.

        Raises:
            NoAuthError: The client has none of the permissions.
        """
        if not self.allows(key, client, perms):
            raise NoAuthError(path)

    # --- validation ---

    def normalized(self, acl: AclList | None, client: ClientConnection, path: str | None) -> AclList:
        """Validate the list of a create or setACL, and return the list to store. It has no duplicates, and ``auth`` is
        replaced by the client's identities.

        Raises:
            InvalidACLError: The list is null or empty, or contains an invalid entry, such as ``auth`` for a client that
                has not authenticated. Or a limit is exceeded: ``max_acl_entries`` entries or ``max_frame`` bytes in the
                result, MAX_EXPANDED entries from ``auth``, or MAX_IN_MULTI entries in all lists of a multi.
            MarshallingError: An entry has a null id that ZooKeeper would have to read.

        Source: PrepRequestProcessor.fixupACL.
        """
        if acl is OPEN_ACL_UNSAFE:
            return OPEN_ACL_UNSAFE
        if not acl:
            raise InvalidACLError(path)
        stored: list[ACL] = []
        limit, expanded = self._settings.max_acl_entries, 0
        authenticated = [identity for identity in client.ids if identity.scheme in AUTHENTICATED]
        size, authenticated_size = 0, sum(map(_size, authenticated))
        for entry in _without_duplicates(acl, path):
            if len(stored) > limit or size > self._settings.max_frame:
                break
            scheme = entry.id.scheme
            if scheme is None:
                raise InvalidACLError(path)
            if scheme == "auth":
                if not authenticated:
                    raise InvalidACLError(path)
                expanded += len(authenticated)
                if expanded > MAX_EXPANDED:
                    self._refuse(client, "with more than %d entries, because auth is expanded", MAX_EXPANDED)
                    raise InvalidACLError(path, f"auth expands to more than {MAX_EXPANDED} entries")
                stored += [ACL(entry.perms, identity) for identity in authenticated]
                size += authenticated_size
            elif self._valid(entry.id, path):
                stored.append(entry)
                size += _size(entry.id)
            else:
                raise InvalidACLError(path)
        if len(stored) > limit:
            self._refuse(client, "with more than %d entries (zoolet.maxAclEntries)", limit)
            raise InvalidACLError(path, f"the ACL list would have more than {limit} entries (zoolet.maxAclEntries)")
        if size > self._settings.max_frame:
            self._refuse(client, "with more than %d bytes (jute.maxbuffer)", self._settings.max_frame)
            raise InvalidACLError(path, f"the ACL list would have more than {self._settings.max_frame} bytes")
        if self.in_transaction:
            changes = self._kept()
            changes.entries += len(stored)
            if changes.entries > MAX_IN_MULTI:
                self._refuse(client, "in a multi with more than %d ACL entries", MAX_IN_MULTI)
                raise InvalidACLError(path, f"a transaction may contain at most {MAX_IN_MULTI} ACL entries")
        result = tuple(stored)
        return OPEN_ACL_UNSAFE if result == OPEN_ACL_UNSAFE else result

    def _refuse(self, client: ClientConnection, what: str, limit: int) -> None:
        self._metrics.refuse("acl_entries")
        self._warnings.warn("acl", "refusing an ACL list from %s " + what, client.address, limit)

    def _valid(self, identity: Id, path: str | None) -> bool:
        scheme, name = identity.scheme, identity.id
        if scheme == "sasl" and self._settings.sasl_users is not None:
            return name is not None and re.fullmatch(r"[^@]+(@[^@/]+)?", name) is not None
        if scheme == "x509" and self._settings.x509:
            return name is not None and is_name(name)
        if scheme not in ("world", "digest", "ip") or (scheme == "digest" and not self._settings.digest_enabled):
            return False
        if name is None:
            raise MarshallingError(path, f"the id of an ACL entry with scheme {scheme} is null")
        if scheme == "world":
            return name == "anyone"
        if scheme == "digest":
            parts = name.split(":")
            while parts and not parts[-1]:
                parts.pop()
            return len(parts) == 2
        return parse_network(name, self._settings.compat.ip6_acls) is not None


def _hash(acl: AclList) -> int:
    """Return a hash that differs for permissions of -1 and -2. Their hashes are equal in Python, so a client could make
    any number of lists with one hash.
    """
    return hash((acl, *[entry.perms & 0xFFFFFFFF for entry in acl]))


def _size(identity: Id) -> int:
    """Return the approximate size of an entry on the wire, in bytes."""
    return 12 + len(identity.scheme or "") + len(identity.id or "")


def _without_duplicates(acl: AclList, path: str | None) -> list[ACL]:
    """Return the distinct entries in order of first occurrence.

    Raises:
        MarshallingError: A null would have to be compared with another value. ZooKeeper also fails in this case.

    Source: PrepRequestProcessor.removeDuplicates, ACL.equals, Id.equals.
    """
    distinct: list[ACL] = []
    seen: dict[int, tuple[set[Id], set[str | None]]] = {}  # by permissions: the identities, and their schemes
    for entry in acl:
        identity = entry.id
        identities, schemes = seen.setdefault(entry.perms, (set(), set()))
        if identities and (identity.scheme is None or (identity.id is None and identity.scheme in schemes)):
            raise MarshallingError(path, "an ACL list with several entries has a null scheme or id")
        if identity not in identities:
            identities.add(identity)
            schemes.add(identity.scheme)
            distinct.append(entry)
    return distinct


def parse_network(text: str, ip6: bool = True) -> tuple[int, int, int] | None:
    """Parse ``address[/bits]``.

    Returns:
        The address as a number, the length of the prefix in bits, and the width of an address (32 or 128); None if the
        text has any other form.

    Source: IPAuthenticationProvider.isValid, addr2Bytes.
    """
    address, slash, prefix = text.partition("/")
    value: int | None
    if ":" in address:
        value, width = (_ip6(address) if ip6 else None), 128
    else:
        value, width = _ip4(address), 32
    bits = _decimal(prefix) if slash else width
    return None if value is None or bits is None or not 0 <= bits <= width else (value, bits, width)


_peer_address = lru_cache(maxsize=1024)(parse_network)
""":func:`parse_network` for the addresses of peers. The results for the last 1,024 addresses are cached, because they
depend only on the text.
"""


def _ip4(address: str) -> int | None:
    parts = address.split(".")
    numbers = [_decimal(part) for part in parts]
    if len(parts) != 4 or not all(number is not None and 0 <= number <= 255 for number in numbers):
        return None
    value = 0
    for number in numbers:
        value = value << 8 | (number or 0)
    return value


def _ip6(address: str) -> int | None:
    if "." in address or "%" in address:
        return None
    from ipaddress import AddressValueError, IPv6Address  # most servers have no IPv6 addresses

    try:
        return int(IPv6Address(address))
    except AddressValueError:
        return None


def _decimal(text: str) -> int | None:
    """Parse a number below 10**9 like Java's Integer.parseInt, which accepts any number of leading zeros."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits.isdigit():
        return None
    number = digits.lstrip("0") or "0"
    return int(text[: -len(digits)] + number) if len(number) < 10 else None
